// Markdown as elements. marked gives tokens; each becomes an element that is chosen here, with text in it. Markup in the
// text stays text, an address that is not http or mailto is no link, and no image is loaded from anywhere.

import { codeBlock, looksLikeDiff, unifiedDiff } from "./code.js";
import { h } from "./dom.js";
import { lexer } from "./vendor/marked.js";

const MOST = 60000; // characters: longer text is shown as it is
const IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: " " };
const plain = (text) => text.replace(/&(?:(amp|lt|gt|quot|apos|nbsp)|#(\d{1,6}));/g,
  (all, name, number) => (name ? ENTITIES[name] : Number(number) < 0x110000 ? String.fromCodePoint(Number(number)) : all));

export function markdown(text) {
  if (text.length > MOST) return [h("div", { class: "plain", dir: "auto" }, text)];
  return lexer(text, { gfm: true, breaks: true }).map(block);
}

function block(token) {
  switch (token.type) {
    case "space": return null;
    case "heading": return h(`h${Math.min(6, token.depth + 2)}`, { dir: "auto" }, inline(token.tokens));
    case "paragraph": return h("p", { dir: "auto" }, inline(token.tokens));
    case "text": return token.tokens ? inline(token.tokens) : plain(token.text);
    case "code": return fence(token);
    case "blockquote": return h("blockquote", { dir: "auto" }, token.tokens.map(block));
    case "list": return list(token);
    case "table": return table(token);
    case "hr": return h("hr", {});
    case "html": return h("p", { dir: "auto", class: "plain" }, token.text.replace(/\n$/, ""));
    default: return inlineToken(token);
  }
}

function fence(token) {
  const language = /^\S*/.exec(token.lang ?? "")[0];
  return looksLikeDiff(token.text) ? unifiedDiff(token.text) : codeBlock(token.text, language);
}

const list = (token) => h(token.ordered ? "ol" : "ul", {
  start: token.ordered && token.start !== 1 ? token.start : null, class: token.items.some((item) => item.task) ? "tasks" : null,
}, token.items.map((item) => h("li", { dir: "auto" }, item.tokens.map(block))));

const table = (token) => h("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, h("table", {},
  h("thead", {}, h("tr", {}, token.header.map((cell) => h("th", { scope: "col", class: cell.align }, inline(cell.tokens))))),
  h("tbody", {}, token.rows.map((row) => h("tr", {}, row.map((cell) => h("td", { class: cell.align }, inline(cell.tokens))))))));

const inline = (tokens) => (tokens ?? []).map(inlineToken);

function inlineToken(token) {
  switch (token.type) {
    case "strong": return h("strong", {}, inline(token.tokens));
    case "em": return h("em", {}, inline(token.tokens));
    case "del": return h("del", {}, inline(token.tokens));
    case "codespan": return h("code", {}, token.text);
    case "br": return h("br", {});
    case "checkbox": return h("span", { class: "box", role: "img", "aria-label": token.checked ? "done" : "open" }, token.checked ? "☑ " : "☐ ");
    case "link": return link(token);
    case "image": return image(token);
    case "text": return token.tokens ? inline(token.tokens) : plain(token.text);
    default: return plain(token.text ?? token.raw ?? "");
  }
}

function link(token) {
  if (!/^(https?:|mailto:)/i.test(token.href)) return [inline(token.tokens), token.href ? ` (${token.href})` : ""];
  return h("a", { href: token.href, rel: "noopener noreferrer", target: "_blank", title: token.href }, inline(token.tokens));
}

function image(token) {
  if (IMAGE.test(token.href)) return h("img", { class: "picture", src: token.href, alt: token.text });
  return h("span", { class: "unloaded" }, `image ${token.text}: ${token.href.slice(0, 200)}`);
}
