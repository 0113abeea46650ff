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

// `files`: the files that would change, or null if the checkpoint has no snapshot of them.
export const askRewind = (row, left, files) => ask(`Rewind to step ${row.step}`, [
  h("p", {}, left ? leftBehind(left) : "Nothing is left behind."),
  files ? h("label", { class: "radio" },
    h("input", { type: "checkbox", name: "files", checked: true }),
    `Restore the directory as well: ${files.length ? plural(files.length, "file") : "no files"} will change`) : null,
  files?.length ? h("ul", { class: "touched" }, files.map(fileItem)) : null,
], "Rewind", { danger: true });

const leftBehind = (count) => {
  const stay = count === 1 ? "It stays" : "They stay";
  return `${plural(count, "checkpoint")} will be left behind. ${stay} in the graph, and undo goes back.`;
};

const fileItem = (file) => h("li", {},
  h("code", {}, `${SIGN[file.kind]} ${file.path}`),
  file.unsaved ? h("small", {}, " edited since, kept in a safety snapshot") : null);

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
