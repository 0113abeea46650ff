// The dialogs. Every one is a native <dialog>: focus stays inside, Escape closes it.

import { copy, h } from "./dom.js";
import { plural } from "./format.js";

// Shows a dialog; resolves to the values of its fields, or null if it was cancelled.
function ask(title, fields, verb, { danger = false, cancel = true } = {}) {
  return new Promise((done) => {
    const form = h("form", { method: "dialog" }, h("h2", {}, title), fields,
      h("div", { class: "buttons" },
        cancel ? h("button", { type: "button", onclick: () => dialog.close() }, "Cancel") : null,
        h("button", { type: "submit", class: danger ? "primary danger" : "primary", value: "yes" }, verb)));
    const dialog = h("dialog", { "aria-label": title }, form);
    dialog.addEventListener("close", () => {
      const given = dialog.returnValue === "yes" ? Object.fromEntries(new FormData(form)) : null;
      dialog.remove();
      done(given);
    });
    document.body.append(dialog);
    dialog.showModal();
    (form.querySelector("input:not([type=radio], [type=checkbox]), textarea") ?? form.querySelector("button")).focus();
    form.querySelector("input:not([type=radio], [type=checkbox])")?.select();
  });
}

const field = (name, label, value, hint, list = null) =>
  h("label", {},
    h("span", {}, label),
    h("input", { name, value, list, autocomplete: "off", spellcheck: "false" }),
    hint ? h("small", {}, hint) : null);

export const askLabel = (row) => ask(`Label step ${row.step}`, [
  field("label", "Label", row.label ?? "", "A name for the checkpoint, everywhere. Empty: no label."),
  field("tags", "Tags", row.tags.join(" "), "Words, with spaces between them."),
  field("note", "Note", typeof row.custom.note === "string" ? row.custom.note : "", "Kept as the custom field “note”."),
], "Save");

export const askFork = (row, thread) => ask(`Fork at step ${row.step}`, [
  h("p", {}, `A new thread that begins here. ${thread} stays as it is.`),
  field("to", "Name", "", "Empty: a generated name."),
], "Fork");

const SIGN = { added: "+", removed: "−", changed: "~", mode: "m", type: "t" };

// `plan`: the answer to a dry run. `restore`: a function that asks for it with files, kept or not; null if the
// checkpoint has no snapshot of them. `problem`: why the files cannot be restored.
export function askRewind(row, plan, restore, problem) {
  const effects = h("div", {});
  const draw = (found) => effects.replaceChildren(...restoreItems(found));
  const files = h("input", { type: "checkbox", name: "files", checked: true });
  const keep = h("input", { type: "checkbox", name: "keep" });
  files.addEventListener("change", () => { effects.hidden = keep.closest("label").hidden = !files.checked; });
  keep.addEventListener("change", async () => { draw(await restore(keep.checked)); });
  if (restore) draw(plan);
  return ask(`Rewind to step ${row.step}`, [
    h("p", {}, plan.left.length ? leftBehind(plan.left.length) : "Nothing is left behind."),
    problem ? h("p", { class: "problem" }, problem) : null,
    restore ? h("label", { class: "radio" }, files, "Restore the directory as well") : null,
    restore && (plan.removed_total || plan.kept_total) ? h("label", { class: "radio" }, keep,
      "Keep files that no snapshot holds") : h("label", { hidden: true }, keep),
    restore ? effects : null,
  ], "Rewind", { danger: true });
}

// What a restore does to the directory: changed, removed, and kept with the reasons.
function restoreItems(found) {
  const changed = found.files_total - found.removed_total;
  const words = [`${changed ? plural(changed, "file") : "No file"} will change`];
  if (found.removed_total) words.push(`${plural(found.removed_total, "file")} will be removed, and come back with undo`);
  const cut = (shown, total) => (total > shown.length ? h("li", { class: "dim" }, `… ${total - shown.length} more`) : null);
  return [
    h("p", {}, `${words.join("; ")}.`),
    found.files.length ? h("ul", { class: "touched" }, found.files.map(fileItem), cut(found.files, found.files_total)) : null,
    found.kept.length ? h("details", { class: "kept" },
      h("summary", {}, `${plural(found.kept_total, "file")} will be kept`),
      h("ul", { class: "touched" }, found.kept.map(keptItem), cut(found.kept, found.kept_total))) : null,
  ].filter(Boolean);
}

const leftBehind = (count) => {
  const stay = count === 1 ? "It stays" : "They stay";
  return `${plural(count, "checkpoint")} will be left behind. ${stay} in the graph, and undo goes back.`;
};

const fileItem = (file) => h("li", {},
  h("code", {}, `${SIGN[file.kind]} ${file.path}`),
  file.unsaved ? h("small", {}, file.kind === "removed" ? " in no snapshot yet" : " edited since",
    ", kept in a safety snapshot") : null);

const keptItem = (file) => h("li", {}, h("code", {}, file.path), h("small", {}, ` ${file.reason}`));

// What an undo or a redo does: the head goes from one step to another, and with it the files, if they were restored.
export function askMove(verb, head, plan) {
  const name = verb === "undo" ? "Undo" : "Redo";
  const to = plan.head;
  const from = head ? `from step ${head.step} ` : "";
  return ask(`${name}: the head goes ${from}to step ${to.step}`, [
    h("p", {}, verb === "undo" ? "The last move of the head, a save or a rewind, is taken back. " : "What the last undo took back is done again. ",
      "Nothing is deleted", verb === "undo" ? ", and redo goes forward again." : "."),
    to.label ? h("p", {}, "It is called ", h("span", { class: "label" }, to.label)) : null,
    plan.files_total || plan.kept_total ? h("div", {}, restoreItems(plan)) : null,
  ], name, { danger: verb === "undo" });
}

export const askDelete = (row, thread) => ask("Delete", [
  h("p", {}, "What is deleted does not come back."),
  h("fieldset", {}, h("legend", {}, "Delete"),
    h("label", { class: "radio" }, h("input", { type: "radio", name: "what", value: "step", checked: true }),
      `Step ${row.step} only: later steps and forks stay`),
    h("label", { class: "radio" }, h("input", { type: "radio", name: "what", value: "thread" }),
      `The whole thread ${thread}: forks stay`)),
], "Delete", { danger: true });

export const askCompare = (row, thread, forks) => ask(`Compare step ${row.step} of ${thread}`, [
  field("with", "With the thread", thread, "This thread, or another: forks are compared from where they parted.", "forks"),
  h("datalist", { id: "forks" }, forks.map((fork) => h("option", { value: fork.thread_id }))),
  field("base", "At", "", "A step, @, @~2, a label or an id. Empty: its head."),
], "Compare");

// A value as JSON. It is checked before the dialog closes.
export function askEdit(title, value) {
  const text = h("textarea", { name: "value", rows: 14, spellcheck: "false", "aria-label": "The value, as JSON" });
  text.value = JSON.stringify(value, null, 2);
  text.addEventListener("input", () => {
    try {
      JSON.parse(text.value);
      text.setCustomValidity("");
    } catch (error) {
      text.setCustomValidity(`This is not JSON: ${error.message}`);
    }
  });
  return ask(title, [
    h("p", {}, "Saved as a fork: the thread stays as it is."), text,
    field("to", "Name of the fork", "", "Empty: a generated name."),
  ], "Save as a fork");
}

// How to go on from a checkpoint, for a program, a shell and any other language.
export function showResume(thread, row) {
  const quoted = JSON.stringify(thread);
  const shell = `'${thread.replaceAll("'", "'\\''")}'`;
  const url = new URL("api/v1/fork", location.href.split("#")[0]).href;
  const body = JSON.stringify({ thread, at: row.id }).replaceAll("'", "'\\''");
  const snippets = [
    ["Python", `import backtrail\n\nstore = backtrail.open("…")\nthread = store.thread(${quoted}).fork(at=${JSON.stringify(row.id)})\nstate = thread.load()`],
    ["Command line", `backtrail fork ${shell} ${row.id}`],
    ["curl", `curl -s -H "Authorization: Bearer $BACKTRAIL_UI_TOKEN" -H 'Content-Type: application/json' \\\n  -d '${body}' ${url}`],
  ];
  return ask(`Go on from step ${row.step}`, snippets.map(([name, text]) => h("section", { class: "snippet" },
    h("h3", {}, name, h("button", { type: "button", class: "act", onclick: () => copy(text, `the ${name} lines`) }, "Copy")),
    h("pre", { tabindex: "0" }, text))), "Close", { cancel: false });
}

const EXPORT_FORMATS = [
  ["markdown", "The conversation to read, as Markdown"],
  ["html", "The conversation as a page of its own, which opens offline"],
  ["jsonl", "The messages, one JSON line each"],
  ["json", "The whole state, as JSON"],
];
const LEFT_OUT = [
  ["thinking", "the model's thinking"], ["arguments", "arguments of tools"], ["results", "results of tools"],
  ["system", "system messages"], ["images", "images"], ["facts", "models, tokens and times"],
];

export function askExport() {
  const leave = h("fieldset", { class: "leave", hidden: true }, h("legend", {}, "Leave out"),
    LEFT_OUT.map(([name, label]) => h("label", { class: "radio" }, h("input", { type: "checkbox", name }), label)));
  const choose = (event) => { leave.hidden = event.target.value !== "html"; };
  return ask("Export this checkpoint", [
    h("fieldset", { onchange: choose }, h("legend", { class: "unseen" }, "As"), EXPORT_FORMATS.map(([value, label], i) => h("label", { class: "radio" },
      h("input", { type: "radio", name: "form", value, checked: i === 0 }), label))), leave,
  ], "Export");
}

const KEYS = [
  ["j  k", "next, previous checkpoint"],
  ["/", "search threads"],
  ["g  G", "newest, oldest checkpoint"],
  ["s", "find in this thread"],
  ["n  N", "next, previous match"],
  ["F", "filter the steps and turns"],
  ["x", "next failed tool"],
  ["t", "steps or turns"],
  ["1  2  3  4", "conversation, state, changes, files"],
  ["l", "label, tags and note"],
  ["f", "fork"],
  ["r", "rewind"],
  ["u  U", "undo, redo"],
  ["c", "compare"],
  ["p", "go on from here: Python, command line, curl"],
  ["e", "export"],
  ["y", "copy a link to this step"],
  ["?", "this help"],
];

export const showKeys = () => ask("Keyboard", [
  h("dl", { class: "keys" }, KEYS.map(([keys, effect]) => [
    h("dt", {}, keys.split("  ").map((key) => h("kbd", {}, key))),
    h("dd", {}, effect),
  ])),
], "Close", { cancel: false });
