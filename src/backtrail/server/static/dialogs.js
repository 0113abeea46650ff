// The dialogs. Every one is a native <dialog>: focus stays inside, Escape closes it.

import { h } from "./dom.js";

// Shows a dialog; resolves to the values of its fields, or null if it was cancelled.
function ask(title, fields, verb, { danger = false, cancel = true } = {}) {
  return new Promise((done) => {
    const form = h("form", { method: "dialog" }, h("h2", {}, title), fields,
      h("div", { class: "buttons" }, cancel ? h("button", { type: "button", onclick: () => dialog.close() }, "Cancel") : null,
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
  h("label", {}, h("span", {}, label), h("input", { name, value, autocomplete: "off", spellcheck: "false" }), hint ? h("small", {}, hint) : null);

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
  h("p", {}, left ? `${left} checkpoint${left === 1 ? "" : "s"} will no longer be on the way to the head. ${left === 1 ? "It stays" : "They stay"} in the graph, and undo goes back.` : "Nothing is left behind."),
  files ? h("label", { class: "radio" }, h("input", { type: "checkbox", name: "files", checked: true }), `Bring the directory back as well: ${files.length || "no"} file${files.length === 1 ? "" : "s"} will change`) : null,
  files?.length ? h("ul", { class: "touched" }, files.map((file) => h("li", {}, h("code", {}, `${SIGN[file.kind]} ${file.path}`), file.unsaved ? h("small", {}, " edited since, kept in a safety snapshot") : null))) : null,
], "Rewind", { danger: true });

export const askExport = () => ask("Export this checkpoint", [
  h("fieldset", {}, [["markdown", "The conversation to read, as Markdown"], ["jsonl", "The messages, one JSON line each"], ["json", "The whole state, as JSON"]]
    .map(([value, label], i) => h("label", { class: "radio" }, h("input", { type: "radio", name: "form", value, checked: i === 0 }), label))),
], "Export");

export const showKeys = () => ask("Keyboard", [
  h("dl", { class: "keys" }, [["j  k", "next, previous checkpoint"], ["/", "search threads"], ["g  G", "newest, oldest checkpoint"], ["1  2  3  4", "conversation, state, changes, files"],
    ["l", "label and tags"], ["f", "fork"], ["r", "rewind"], ["u", "undo"], ["e", "export"], ["?", "this help"]]
    .map(([key, what]) => [h("dt", {}, key.split("  ").map((one) => h("kbd", {}, one))), h("dd", {}, what)])),
], "Close", { cancel: false });
