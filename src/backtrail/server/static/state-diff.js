// The view "Changes": the changes of the state from another checkpoint, by default the parent, to the selected one.

import { get } from "./api.js";
import { h } from "./dom.js";
import { bytes, plural } from "./format.js";
import { lineDiff } from "./code.js";
import { leaf } from "./state-tree.js";

const SIGN = { added: "+", removed: "−", changed: "~" };

export async function drawStateDiff(view, app, signal) {
  const { row } = app;
  const { thread, base } = app.place;
  const onBase = (given) => app.go({ base: given, view: "changes" });
  const from = base ?? row.parent_id;
  const input = h("input", {
    id: "diff-base", value: base ?? "", placeholder: row.parent_id ? "its parent" : "nothing before it",
    "aria-label": "Compare with: a step, @, @~2, a label or an id", spellcheck: "false", autocomplete: "off",
  });
  const submit = (event) => {
    event.preventDefault();
    onBase(input.value.trim() || null);
  };
  const form = h("form", { class: "compare", onsubmit: submit, data: { keep: `compared with ${base}` } },
    h("label", { for: "diff-base" }, "Compared with"), input, h("button", { type: "submit" }, "Compare"),
    base ? h("button", { type: "button", onclick: () => onBase(null) }, "Parent") : null,
    h("button", { type: "button", onclick: () => onBase("@") }, "Head"));
  if (!from) {
    view.replaceChildren(form, h("p", { class: "hint" }, "This is the first checkpoint: all of its state is new."));
    return;
  }
  let found;
  try {
    found = await get("/diff", { thread, a: from, b: row.id }, signal);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    view.replaceChildren(form, h("p", { class: "hint bad" }, error.message));
    return;
  }
  const grown = found.b.size - found.a.size;
  const counts = `${plural(found.total, "change")}, ${grown < 0 ? "−" : "+"}${bytes(Math.abs(grown))}`;
  const summary = h("p", { class: "hint" }, `Step ${found.a.step} → step ${found.b.step}: ${counts}.`);
  const items = changeItems(found.changes);
  const more = found.total - found.changes.length;
  if (more > 0) items.push(h("li", { class: "dim" }, `… ${more} more changes; \`backtrail diff\` shows all`));
  view.replaceChildren(form, summary, h("ul", { class: "changes" }, items));
}

export const changeItems = (changes) => changes.map((change) => h("li", { class: `change ${change.kind}` },
  h("header", {}, h("b", { role: "img", "aria-label": change.kind }, SIGN[change.kind]), h("code", {}, change.path)),
  changeBody(change)));

function changeBody(change) {
  const texts = typeof change.old === "string" && typeof change.new === "string";
  if (texts && (change.old + change.new).includes("\n")) return lineDiff(change.old, change.new);
  return [
    "old" in change ? h("div", { class: "old" }, valueNodes(change.old)) : null,
    "new" in change ? h("div", { class: "new" }, valueNodes(change.new)) : null,
  ];
}

function valueNodes(value) {
  if (value && typeof value === "object" && typeof value.role === "string") {
    return [h("span", { class: `role ${value.role}` }, value.role), h("span", { class: "v" }, messageText(value))];
  }
  return leaf(value);
}

function messageText(message) {
  if (typeof message.content === "string" && message.content) return message.content;
  const calls = Array.isArray(message.tool_calls) ? message.tool_calls.map((call) => call.function ?? call) : [];
  if (calls.length && calls.every((call) => typeof call.name === "string")) {
    const given = (call) => (typeof call.arguments === "string" ? call.arguments : JSON.stringify(call.args ?? {}));
    return calls.map((call) => `${call.name}(${given(call)})`).join("\n");
  }
  return JSON.stringify(message.tool_calls ?? message.content ?? message, null, 1);
}
