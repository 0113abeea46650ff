// Code with colours, and texts as differences of lines. Prism gives tokens; elements are made from them here, with text
// in them and nothing else.

import { h } from "./dom.js";
import Prism from "./vendor/prism.js";

const MOST = 30000; // characters: longer code is shown without colours
const NAMES = {
  py: "python", python3: "python", sh: "bash", shell: "bash", console: "bash", zsh: "bash", js: "javascript",
  mjs: "javascript", ts: "typescript", tsx: "jsx", yml: "yaml", html: "markup", xml: "markup", svg: "markup",
  rs: "rust", golang: "go", md: "markdown", dockerfile: "docker", h: "c", hpp: "cpp", cc: "cpp", rb: "ruby", patch: "diff",
};

export function languageOf(name) {
  const known = String(name ?? "").toLowerCase().trim();
  const found = NAMES[known] ?? known;
  return Object.hasOwn(Prism.languages, found) && typeof Prism.languages[found] === "object" ? found : null;
}

// The language of a file, by the end of its name.
export const languageOfFile = (path) => languageOf(/\.([A-Za-z0-9]+)$/.exec(path ?? "")?.[1] ?? /([^/]*)$/.exec(path ?? "")[1]);

// Text in the colours of a language, as nodes.
export function coloured(text, language) {
  const found = languageOf(language);
  if (!found || text.length > MOST) return [text];
  return nodes(Prism.tokenize(text, Prism.languages[found]));
}

function nodes(tokens) {
  return [tokens].flat().map((token) => {
    if (typeof token === "string") return token;
    return h("span", { class: `t-${token.type}` }, nodes(token.content));
  });
}

export const codeBlock = (text, language) => h("pre", { class: "code", tabindex: "0" }, h("code", {}, coloured(text, language)));

export const looksLikeDiff = (text) => /^(diff --git |--- |@@ )/m.test(text) && /^@@ .*@@/m.test(text);

// A unified diff, line by line.
export function unifiedDiff(text, language = null) {
  const lines = text.replace(/\n$/, "").split("\n").filter((line) => !/^(---|\+\+\+) /.test(line));
  return h("pre", { class: "lines", tabindex: "0" }, lines.map((line) => {
    const tag = line.startsWith("+") ? "ins" : line.startsWith("-") ? "del" : "span";
    if (line.startsWith("@@") || line.startsWith("diff ") || line.startsWith("index ")) {
      return h("span", { class: "dim" }, `${line}\n`);
    }
    return h(tag, {}, line.slice(0, 1), coloured(line.slice(1), language), "\n");
  }));
}

// The difference of two texts by the longest common subsequence of their lines; two very long ones are shown one after
// the other.
export function lineDiff(old, fresh, language = null) {
  const a = old.split("\n"), b = fresh.split("\n");
  let head = 0, tail = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  while (tail < a.length - head && tail < b.length - head && a.at(-1 - tail) === b.at(-1 - tail)) tail++;
  const from = a.slice(head, a.length - tail), to = b.slice(head, b.length - tail);
  if (from.length * to.length > 400000) return [h("pre", { class: "old" }, old), h("pre", { class: "new" }, fresh)];
  const table = Array.from({ length: from.length + 1 }, () => new Uint16Array(to.length + 1));
  for (let i = from.length - 1; i >= 0; i--) {
    for (let j = to.length - 1; j >= 0; j--) {
      table[i][j] = from[i] === to[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const same = (lines) => lines.map((line) => ["span", "  ", line]);
  const middle = [];
  let i = 0, j = 0;
  while (i < from.length || j < to.length) {
    if (i < from.length && j < to.length && from[i] === to[j]) {
      middle.push(["span", "  ", from[i++]]);
      j++;
    } else if (j < to.length && (i === from.length || table[i][j + 1] > table[i + 1][j])) middle.push(["ins", "+ ", to[j++]]);
    else middle.push(["del", "− ", from[i++]]);
  }
  const before = a.slice(0, head), after = a.slice(a.length - tail);
  const note = (count) => (count > 0 ? [["dim", "", `… ${count} lines that are the same`]] : []);
  const lines = [
    ...note(before.length - 3), ...same(before.slice(-3)), ...middle, ...same(after.slice(0, 3)), ...note(after.length - 3),
  ];
  return h("pre", { class: "lines", tabindex: "0" }, lines.map(([tag, sign, line]) => (tag === "dim"
    ? h("span", { class: "dim" }, `${line}\n`) : h(tag, {}, sign, coloured(line, language), "\n"))));
}
