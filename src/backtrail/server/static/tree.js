// The state as a tree. Each level is asked for when it is opened, so a state of any size is at hand at once.

import { get } from "./api.js";
import { cutNote } from "./conversation.js";
import { bytes, h } from "./dom.js";

const PAGE = 100;

export async function tree(view, thread, row, signal) {
  const top = await get("/state", { thread, at: row.id }, signal);
  const ask = (path, start) => get("/state", { thread, at: row.id, path: JSON.stringify(path), start, limit: PAGE }, signal);
  view.replaceChildren(
    h("p", { class: "hint" }, `${bytes(top.size)} of state, ${bytes(row.written)} written by this step.`),
    h("ul", { class: "tree" }, level(top, [], ask)));
}

function level(answer, path, ask) {
  const nodes = answer.entries.map((entry) => branch(entry, [...path, entry.name], ask));
  const seen = answer.start + answer.entries.length;
  if (answer.count !== null && seen < answer.count) {
    const more = h("button", { type: "button", class: "more" }, `${(answer.count - seen).toLocaleString()} more`);
    const item = h("li", {}, more);
    more.addEventListener("click", async () => item.replaceWith(...level(await ask(path, seen), path, ask)));
    nodes.push(item);
  }
  if (!answer.entries.length && answer.count === null) nodes.push(h("li", {}, leaf(answer.value)));
  if (answer.count === 0) nodes.push(h("li", { class: "dim" }, "empty"));
  return nodes;
}

function branch(entry, path, ask) {
  const name = h("span", { class: typeof entry.name === "number" ? "key index" : "key" }, String(entry.name));
  if (entry.known) return h("li", {}, name, leaf(entry.value));
  const kind = entry.type ?? (entry.kind === "dict" ? "{ }" : entry.kind === "list" ? "[ ]" : entry.kind);
  const facts = [entry.count !== null ? entry.count.toLocaleString() : null, entry.size ? bytes(entry.size) : null].filter(Boolean).join(" · ");
  const inside = h("ul", {});
  const node = h("details", {}, h("summary", {}, name, h("span", { class: "kind" }, kind), h("span", { class: "dim" }, facts)), inside);
  let asked = false;
  node.addEventListener("toggle", async () => {
    if (!node.open || asked) return;
    asked = true;
    inside.replaceChildren(...level(await ask(path, 0), path, ask));
  });
  return h("li", {}, node);
}

// A value in the JSON form of the API: `$bytes`, `$datetime`, … are shown as what they are.
export function leaf(value) {
  if (value === null) return h("span", { class: "v null" }, "null");
  if (typeof value === "string") return h("span", { class: "v str" }, value);
  if (typeof value !== "object") return h("span", { class: `v ${typeof value}` }, String(value));
  if ("$cut" in value) return h("span", { class: "v str" }, value.$cut, cutNote(value));
  const keys = Object.keys(value);
  if (keys.length === 1 && keys[0].startsWith("$") && typeof value[keys[0]] !== "object") {
    return h("span", { class: "v special" }, h("i", {}, keys[0].slice(1)), String(value[keys[0]]));
  }
  return h("span", { class: "v json" }, JSON.stringify(value, null, 1));
}
