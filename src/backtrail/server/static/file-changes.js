// The view "Files": the changes in the directory since the snapshot before.

import { get } from "./api.js";
import { h } from "./dom.js";
import { plural } from "./format.js";
import { cutNote, shownText } from "./truncated.js";

export async function drawFileChanges(view, thread, row, signal) {
  const found = await get("/files", { thread, at: row.id }, signal);
  const since = found.base
    ? `${plural(found.total, "file")} changed since step ${found.base.step}`
    : "This is the first snapshot of the directory";
  const items = found.changes.map((change) => h("li", { class: `change ${change.kind}` },
    h("header", {}, h("b", {}, change.kind), h("code", {}, change.path)),
    change.text ? unifiedDiff(change.text) : null));
  const more = found.total - found.changes.length;
  if (more > 0) items.push(h("li", { class: "dim" }, `… ${more} more files`));
  view.replaceChildren(
    h("p", { class: "hint" }, since, found.root ? [", in ", h("code", {}, found.root)] : null, "."),
    h("ul", { class: "changes" }, items));
}

// A unified diff, line by line, without the lines that name the two files: the header above shows the name.
function unifiedDiff(text) {
  const lines = shownText(text).split("\n").filter((line) => !/^(---|\+\+\+) /.test(line));
  const tag = (line) => (line.startsWith("+") ? "ins" : line.startsWith("-") ? "del" : "span");
  const node = (line) => h(tag(line), { class: line.startsWith("@@") ? "dim" : null }, `${line}\n`);
  return h("pre", { class: "lines" }, lines.map(node), cutNote(text));
}
