// The dialogs. Every one is a native <dialog>: focus stays inside, Escape closes it.

import { h } from "./dom.js";
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
    form.querySelector("input")?.select();
  });
}

const field = (name, label, value, hint) =>
  h("label", {},
    h("span", {}, label),
    h("input", { name, value, autocomplete: "off", spellcheck: "false" }),
    hint ? h("small", {}, hint) : null);

export const askLabel = (row) => ask(`Label step ${row.step}`, [
  field("label", "Label", row.label ?? "", "A name for the checkpoint, everywhere. Empty: no label."),
  field("tags", "Tags", row.tags.join(" "), "Words, with spaces between them."),
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

const EXPORT_FORMATS = [
  ["markdown", "The conversation to read, as Markdown"],
  ["jsonl", "The messages, one JSON line each"],
  ["json", "The whole state, as JSON"],
];

export const askExport = () => ask("Export this checkpoint", [
  h("fieldset", {}, EXPORT_FORMATS.map(([value, label], i) => h("label", { class: "radio" },
    h("input", { type: "radio", name: "form", value, checked: i === 0 }), label))),
], "Export");

const KEYS = [
  ["j  k", "next, previous checkpoint"],
  ["/", "search threads"],
  ["g  G", "newest, oldest checkpoint"],
  ["1  2  3  4", "conversation, state, changes, files"],
  ["l", "label and tags"],
  ["f", "fork"],
  ["r", "rewind"],
  ["u", "undo"],
  ["e", "export"],
  ["?", "this help"],
];

export const showKeys = () => ask("Keyboard", [
  h("dl", { class: "keys" }, KEYS.map(([keys, effect]) => [
    h("dt", {}, keys.split("  ").map((key) => h("kbd", {}, key))),
    h("dd", {}, effect),
  ])),
], "Close", { cancel: false });
