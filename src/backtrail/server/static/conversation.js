// The view "Conversation": the newest messages at a checkpoint, and earlier ones when the page is scrolled to them.

import { get } from "./api.js";
import { h } from "./dom.js";
import { plural } from "./format.js";
import { cutNote, shownText } from "./truncated.js";

const PAGE_SIZE = 50;

export async function drawConversation(view, thread, row, signal) {
  const page = await get("/messages", { thread, at: row.id, limit: PAGE_SIZE }, signal);
  if (page.key === null) {
    view.replaceChildren(h("p", { class: "hint" }, "This state holds no list of messages. See the state."));
    return;
  }
  if (!page.total) {
    view.replaceChildren(h("p", { class: "hint" }, "No messages yet."));
    return;
  }
  const added = Number(/^\+(\d+) message/.exec(row.added)?.[1] ?? 0);
  const draw = (messages) => messages.map((message) => messageItem(message, message.index >= page.total - added));
  const list = h("ol", { class: "talk", start: page.start }, draw(page.messages));
  let start = page.start;
  const earlier = h("button", { type: "button", class: "more" });
  const label = () => { earlier.textContent = `${plural(start, "earlier message")}`; earlier.hidden = start === 0; };
  const load = async () => {
    if (!start || earlier.disabled) return;
    earlier.disabled = true;
    const from = Math.max(0, start - PAGE_SIZE);
    const more = await get("/messages", { thread, at: row.id, start: from, limit: start - from }, signal);
    const height = view.scrollHeight;
    list.prepend(...draw(more.messages));
    start = from;
    view.scrollTop += view.scrollHeight - height;
    earlier.disabled = false;
    label();
  };
  earlier.addEventListener("click", load);
  label();
  view.replaceChildren(earlier, list);
  view.scrollTop = view.scrollHeight;
  const observer = new IntersectionObserver((entries) => {
    if (entries[0].isIntersecting) load();
  }, { root: view, rootMargin: "200px" });
  requestAnimationFrame(() => observer.observe(earlier));
  signal.addEventListener("abort", () => observer.disconnect());
}

function messageItem(message, isNew) {
  const parts = [];
  if (message.thinking) parts.push(fold("thinking", "Thinking", message.thinking));
  if (message.text) parts.push(h("div", { class: "said" }, prose(message.text)));
  const summary = (name, value) => h("span", {}, h("b", {}, name), h("span", { class: "args" }, oneLine(value)));
  for (const call of message.calls) {
    parts.push(fold("call", summary(call.name || "tool", call.arguments), pretty(call.arguments)));
  }
  for (const result of message.results) {
    const kind = result.failed ? "result failed" : "result";
    parts.push(fold(kind, summary(result.name || "result", result.text), result.text));
  }
  for (const extra of message.extra) parts.push(fold("extra", h("span", { class: "args" }, oneLine(extra)), extra));
  const role = ["user", "assistant", "tool", "system"].includes(message.role) ? message.role : "other";
  return h("li", { class: `message ${role}${isNew ? " fresh" : ""}`, data: { index: message.index } },
    h("header", {},
      h("span", { class: "who" }, message.role),
      isNew ? h("span", { class: "new" }, "new here") : null,
      h("span", { class: "index" }, `#${message.number}`)),
    parts);
}

function fold(kind, title, body) {
  return h("details", { class: `fold ${kind}` }, h("summary", {}, title), h("pre", {}, shownText(body), cutNote(body)));
}

const oneLine = (value) => shownText(value).replace(/\s+/g, " ").slice(0, 160);

function pretty(value) {
  try {
    return JSON.stringify(JSON.parse(shownText(value)), null, 2);
  } catch {
    return value;
  }
}

// Text in backticks and fences becomes code elements; all of it stays text.
function prose(value) {
  const parts = shownText(value).split(/^```[^\n]*\n?/m);
  const nodes = parts.map((part, i) => (i % 2 ? h("pre", {}, part.replace(/\n$/, "")) : inline(part)));
  return [nodes, cutNote(value)];
}

function inline(text) {
  return text.split(/(`[^`\n]+`)/).map((part, i) => (i % 2 ? h("code", {}, part.slice(1, -1)) : part));
}
