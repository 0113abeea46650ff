// The view "State": the state as a tree. Each level is fetched when it is opened, so a state of any size is shown at
// once.

import { get } from "./api.js";
import { h } from "./dom.js";
import { bytes } from "./format.js";
import { cutNote } from "./truncated.js";

const PAGE_SIZE = 100;

export async function drawStateTree(view, thread, row, signal) {
  const top = await get("/state", { thread, at: row.id }, signal);
  const fetchLevel = (path, start) =>
    get("/state", { thread, at: row.id, path: JSON.stringify(path), start, limit: PAGE_SIZE }, signal);
  view.replaceChildren(
    h("p", { class: "hint" }, `${bytes(top.size)} of state, ${bytes(row.written)} written by this step.`),
    h("ul", { class: "tree" }, level(top, [], fetchLevel)));
}

function level(page, path, fetchLevel) {
  const nodes = page.entries.map((entry) => branch(entry, [...path, entry.name], fetchLevel));
  const seen = page.start + page.entries.length;
  if (page.count !== null && seen < page.count) {
    const more = h("button", { type: "button", class: "more" }, `${(page.count - seen).toLocaleString()} more`);
    const item = h("li", {}, more);
    more.addEventListener("click", async () => {
      item.replaceWith(...level(await fetchLevel(path, seen), path, fetchLevel));
    });
    nodes.push(item);
  }
  if (!page.entries.length && page.count === null) nodes.push(h("li", {}, leaf(page.value)));
  if (page.count === 0) nodes.push(h("li", { class: "dim" }, "empty"));
  return nodes;
}

function branch(entry, path, fetchLevel) {
  const name = h("span", { class: typeof entry.name === "number" ? "key index" : "key" }, String(entry.name));
  if (entry.known) return h("li", {}, name, leaf(entry.value));
  const kind = entry.type ?? (entry.kind === "dict" ? "{ }" : entry.kind === "list" ? "[ ]" : entry.kind);
  const count = entry.count !== null ? entry.count.toLocaleString() : null;
  const facts = [count, entry.size ? bytes(entry.size) : null].filter(Boolean).join(" · ");
  const inside = h("ul", {});
  const summary = h("summary", {}, name, h("span", { class: "kind" }, kind), h("span", { class: "dim" }, facts));
  const node = h("details", {}, summary, inside);
  let loaded = false;
  node.addEventListener("toggle", async () => {
    if (!node.open || loaded) return;
    loaded = true;
    inside.replaceChildren(...level(await fetchLevel(path, 0), path, fetchLevel));
  });
  return h("li", {}, node);
}

// A value in the JSON of the API; `$bytes`, `$datetime`, … are shown with their type.
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
