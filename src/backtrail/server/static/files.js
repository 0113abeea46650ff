// The files at a checkpoint: what changed in the directory since the snapshot before.

import { get } from "./api.js";
import { cutNote, plain } from "./conversation.js";
import { h, plural } from "./dom.js";

const WORD = { added: "added", removed: "removed", changed: "changed", mode: "mode", type: "type" };

export async function files(view, thread, row, signal) {
  const found = await get("/files", { thread, at: row.id }, signal);
  const since = found.base ? `${plural(found.total, "file")} changed since step ${found.base.step}` : "This is the first snapshot of the directory";
  const items = found.changes.map((change) => h("li", { class: `change ${change.kind}` },
    h("header", {}, h("b", {}, WORD[change.kind]), h("code", {}, change.path)), change.text ? patch(change.text) : null));
  if (found.total > found.changes.length) items.push(h("li", { class: "dim" }, `… ${found.total - found.changes.length} more files`));
  view.replaceChildren(h("p", { class: "hint" }, `${since}, in `, h("code", {}, found.root ?? ""), "."), h("ul", { class: "changes" }, items));
}

// A unified diff, line by line; the names of the two files are in the header above it already.
function patch(text) {
  const lines = plain(text).split("\n").filter((line) => !/^(---|\+\+\+) /.test(line));
  const tag = (line) => (line.startsWith("+") ? "ins" : line.startsWith("-") ? "del" : "span");
  return h("pre", { class: "lines" }, lines.map((line) => h(tag(line), { class: line.startsWith("@@") ? "dim" : null }, `${line}\n`)), cutNote(text));
}
