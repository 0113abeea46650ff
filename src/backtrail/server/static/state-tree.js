// The view "State": the state as a tree. Each level is fetched when it is opened, so a state of any size is shown at
// once. A top-level key can be edited, which makes a fork.

import { get } from "./api.js";
import { attempt, h } from "./dom.js";
import { bytes } from "./format.js";
import { isCut } from "./truncated.js";

const PAGE_SIZE = 100;

export async function drawStateTree(view, thread, row, signal, app) {
  const top = await get("/state", { thread, at: row.id }, signal);
  const tree = {
    fetch: (path, start) => get("/state", { thread, at: row.id, path: JSON.stringify(path), start, limit: PAGE_SIZE }, signal),
    edit: app.readOnly ? null : (path) => app.actions.edit(path, `Edit ${path.join(".")}`),
    whole: async (path) => (await get("/value", { thread, at: row.id, path: JSON.stringify(path) }, signal)).value,
  };
  view.replaceChildren(
    h("p", { class: "hint" }, `${bytes(top.size)} of state, ${bytes(row.written)} written by this step.`),
    h("ul", { class: "tree" }, level(top, [], tree)));
}

function level(page, path, tree) {
  const nodes = page.entries.map((entry) => branch(entry, [...path, entry.name], tree));
  const seen = page.start + page.entries.length;
  if (page.count !== null && seen < page.count) {
    const more = h("button", { type: "button", class: "more" }, `${(page.count - seen).toLocaleString()} more`);
    const item = h("li", {}, more);
    more.addEventListener("click", () => attempt(async () => {
      item.replaceWith(...level(await tree.fetch(path, seen), path, tree));
    }));
    nodes.push(item);
  }
  if (!page.entries.length && page.count === null) nodes.push(h("li", {}, value(page.value, path, tree)));
  if (page.count === 0) nodes.push(h("li", { class: "dim" }, "empty"));
  return nodes;
}

function branch(entry, path, tree) {
  const name = h("span", { class: typeof entry.name === "number" ? "key index" : "key" }, String(entry.name));
  const edit = tree.edit && path.length === 1
    ? h("button", { type: "button", class: "act", onclick: (event) => { event.preventDefault(); tree.edit(path); } }, "Edit") : null;
  if (entry.known) return h("li", {}, name, value(entry.value, path, tree), edit);
  const kind = entry.type ?? (entry.kind === "dict" ? "{ }" : entry.kind === "list" ? "[ ]" : entry.kind);
  const count = entry.count !== null ? entry.count.toLocaleString() : null;
  const facts = [count, entry.size ? bytes(entry.size) : null].filter(Boolean).join(" · ");
  const inside = h("ul", {});
  const summary = h("summary", {}, name, h("span", { class: "kind" }, kind), h("span", { class: "dim" }, facts));
  const node = h("details", {}, summary, inside);
  node.addEventListener("toggle", () => {
    if (!node.open || inside.children.length) return;
    attempt(async () => inside.replaceChildren(...level(await tree.fetch(path, 0), path, tree)));
  });
  return h("li", { class: "branch" }, node, edit);
}

function value(given, path, tree) {
  const node = leaf(given);
  if (!isCut(given) || !tree) return node;
  const show = async () => node.replaceWith(leaf(await tree.whole(path)));
  node.append(h("button", { type: "button", class: "more", onclick: () => attempt(show) }, `… show all ${given.size.toLocaleString()} characters`));
  return node;
}

// A value in the JSON of the API; `$bytes`, `$datetime`, … are shown with their type.
export function leaf(given) {
  if (given === null) return h("span", { class: "v null" }, "null");
  if (typeof given === "string") return h("span", { class: "v str", dir: "auto" }, given);
  if (typeof given !== "object") return h("span", { class: `v ${typeof given}` }, String(given));
  if ("$cut" in given) return h("span", { class: "v str", dir: "auto" }, given.$cut);
  const keys = Object.keys(given);
  if (keys.length === 1 && keys[0].startsWith("$") && typeof given[keys[0]] !== "object") {
    return h("span", { class: "v special" }, h("i", {}, keys[0].slice(1)), String(given[keys[0]]));
  }
  return h("span", { class: "v json" }, JSON.stringify(given, null, 1));
}
