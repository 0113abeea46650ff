// The view "State": the state as a tree. Each level is fetched when it is opened, so a state of any size is shown at
// once. A top-level key can be edited, which makes a fork.

import { get } from "./api.js";
import { attempt, h } from "./dom.js";
import { fold } from "./folds.js";
import { bytes } from "./format.js";
import { isCut } from "./truncated.js";

const PAGE_SIZE = 100;
const MOST = 1000; // entries of a level that are fetched at once
const keyOf = (path) => `state ${JSON.stringify(path)}`;

export async function drawStateTree(view, app, signal, before) {
  const { row } = app;
  const where = { thread: app.place.thread, at: row.id };
  const tree = {
    fetch: (path, start) => {
      const limit = start ? PAGE_SIZE : Math.min(MOST, Math.max(PAGE_SIZE, before?.shown.get(keyOf(path)) ?? 0));
      return get("/state", { ...where, path: JSON.stringify(path), start, limit }, signal);
    },
    edit: app.readOnly ? null : (path) => app.actions.edit(path, `Edit ${path.join(".")}`),
    whole: async (path) => (await get("/value", { ...where, path: JSON.stringify(path) }, signal)).value,
  };
  const top = await tree.fetch([], 0);
  view.replaceChildren(
    h("p", { class: "hint" }, `${bytes(top.size)} of state, ${bytes(row.written)} written by this step.`),
    h("ul", { class: "tree", data: { entries: keyOf([]) } }, level(top, [], tree)));
}

function level(page, path, tree) {
  const nodes = page.entries.map((entry) => branch(entry, [...path, entry.name], tree));
  const seen = page.start + page.entries.length;
  if (page.count !== null && seen < page.count) {
    const more = h("button", { type: "button", class: "more" }, `${(page.count - seen).toLocaleString()} more`);
    const item = h("li", { class: "rest" }, more);
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
  const inside = h("ul", { data: { entries: keyOf(path) } });
  const summary = h("summary", {}, name, h("span", { class: "kind" }, kind), h("span", { class: "dim" }, facts));
  const node = fold(keyOf(path), {}, summary, inside, async () => inside.replaceChildren(...level(await tree.fetch(path, 0), path, tree)));
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
