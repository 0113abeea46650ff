// The conversation at a checkpoint: the newest messages first into the page, earlier ones as they are scrolled to.

import { get } from "./api.js";
import { h, plural } from "./dom.js";

const PAGE = 50;

export async function conversation(view, thread, row, signal) {
  const page = await get("/messages", { thread, at: row.id, limit: PAGE }, signal);
  if (page.key === null) {
    view.replaceChildren(h("p", { class: "hint" }, "This state holds no list of messages. See the state."));
    return;
  }
  if (!page.total) {
    view.replaceChildren(h("p", { class: "hint" }, "No messages yet."));
    return;
  }
  const fresh = Number(/^\+(\d+) message/.exec(row.added)?.[1] ?? 0);
  const draw = (messages) => messages.map((message) => bubble(message, message.index >= page.total - fresh));
  const list = h("ol", { class: "talk", start: page.start }, draw(page.messages));
  let start = page.start;
  const earlier = h("button", { type: "button", class: "more" });
  const label = () => { earlier.textContent = `${plural(start, "earlier message")}`; earlier.hidden = start === 0; };
  const load = async () => {
    if (!start || earlier.disabled) return;
    earlier.disabled = true;
    const from = Math.max(0, start - PAGE);
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
  const watch = new IntersectionObserver((seen) => { if (seen[0].isIntersecting) load(); }, { root: view, rootMargin: "200px" });
  requestAnimationFrame(() => watch.observe(earlier));
  signal.addEventListener("abort", () => watch.disconnect());
}

function bubble(message, fresh) {
  const parts = [];
  if (message.thinking) parts.push(fold("thinking", "Thinking", message.thinking));
  if (message.text) parts.push(h("div", { class: "said" }, prose(message.text)));
  for (const call of message.calls) parts.push(fold("call", h("span", {}, h("b", {}, call.name || "tool"), h("span", { class: "args" }, oneLine(call.arguments))), pretty(call.arguments)));
  for (const result of message.results) parts.push(fold(result.failed ? "result failed" : "result", h("span", {}, h("b", {}, result.name || "result"), h("span", { class: "args" }, oneLine(result.text))), result.text));
  for (const extra of message.extra) parts.push(fold("extra", h("span", { class: "args" }, oneLine(extra)), extra));
  const role = ["user", "assistant", "tool", "system"].includes(message.role) ? message.role : "other";
  return h("li", { class: `message ${role}${fresh ? " fresh" : ""}`, data: { index: message.index } },
    h("header", {}, h("span", { class: "who" }, message.role), fresh ? h("span", { class: "new" }, "new here") : null, h("span", { class: "index" }, String(message.index))),
    parts);
}

function fold(kind, title, body) {
  return h("details", { class: `fold ${kind}` }, h("summary", {}, title), h("pre", {}, plain(body), cutNote(body)));
}

export const plain = (value) => (value && typeof value === "object" ? value.$cut ?? "" : value ?? "");
export const cutNote = (value) =>
  value && typeof value === "object" && "$cut" in value ? h("span", { class: "cut" }, ` … ${value.size.toLocaleString()} characters; export shows all`) : null;
const oneLine = (value) => plain(value).replace(/\s+/g, " ").slice(0, 160);

function pretty(value) {
  try {
    return JSON.stringify(JSON.parse(plain(value)), null, 2);
  } catch {
    return value;
  }
}

// Code between fences and backticks is set as code; all of it stays text.
function prose(value) {
  const parts = plain(value).split(/^```[^\n]*\n?/m);
  const nodes = parts.map((part, i) => (i % 2 ? h("pre", {}, part.replace(/\n$/, "")) : inline(part)));
  return [nodes, cutNote(value)];
}

function inline(text) {
  return text.split(/(`[^`\n]+`)/).map((part, i) => (i % 2 ? h("code", {}, part.slice(1, -1)) : part));
}
