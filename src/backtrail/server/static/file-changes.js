// The view "Files": the changes in the directory since the snapshot before, and the whole tree of the snapshot, from
// which files are opened and downloaded.

import { get, getBlob } from "./api.js";
import { codeBlock, languageOfFile, unifiedDiff } from "./code.js";
import { attempt, download, h } from "./dom.js";
import { bytes, plural } from "./format.js";
import { cutNote, shownText } from "./truncated.js";

const SHOWN = 200_000; // bytes of a file that is shown

export async function drawFileChanges(view, thread, row, signal, app) {
  const found = await get("/files", { thread, at: row.id }, signal);
  const since = found.base
    ? `${plural(found.total, "file")} changed since step ${found.base.step}`
    : "This is the first snapshot of the directory";
  const items = found.changes.map((change) => h("li", { class: `change ${change.kind}` },
    h("header", {}, h("b", {}, change.kind), h("code", {}, change.path)),
    change.text ? [unifiedDiff(shownText(change.text), languageOfFile(change.path)), cutNote(change.text)] : null));
  const more = found.total - found.changes.length;
  if (more > 0) items.push(h("li", { class: "dim" }, `… ${more} more files`));
  const tree = h("ul", { class: "tree files" });
  const browse = h("details", { class: "browse", open: Boolean(app.place.path) }, h("summary", {}, "All files of this snapshot"), tree);
  browse.addEventListener("toggle", () => {
    if (browse.open && !tree.children.length) attempt(() => openFolder(tree, "", { thread, at: row.id }, signal));
  });
  view.replaceChildren(
    h("p", { class: "hint" }, since, found.root ? [", in ", h("code", {}, found.root)] : null, "."),
    h("ul", { class: "changes" }, items), browse);
}

async function openFolder(list, path, where, signal) {
  const { entries, more } = await get("/tree", { ...where, path }, signal);
  list.replaceChildren(...entries.map((entry) => node(entry, path, where, signal)),
    ...(more ? [h("li", { class: "dim" }, `… ${plural(more, "more entry", "more entries")}`)] : []));
  if (!entries.length) list.replaceChildren(h("li", { class: "dim" }, "empty"));
}

function node(entry, folder, where, signal) {
  const path = folder ? `${folder}/${entry.name}` : entry.name;
  const facts = h("span", { class: "dim" }, entry.kind === "folder" ? "" : entry.kind === "file" ? bytes(entry.size) : entry.kind);
  const inside = h(entry.kind === "folder" ? "ul" : "div", {});
  if (entry.kind === "link") return h("li", {}, h("span", { class: "key" }, entry.name), facts);
  const details = h("details", {}, h("summary", {}, h("span", { class: "key" }, entry.kind === "folder" ? `${entry.name}/` : entry.name), facts), inside);
  details.addEventListener("toggle", () => {
    if (!details.open || inside.children.length) return;
    attempt(() => (entry.kind === "folder" ? openFolder(inside, path, where, signal) : openFile(inside, path, entry, where, signal)));
  });
  return h("li", {}, details);
}

async function openFile(box, path, entry, where, signal) {
  const save = h("button", { type: "button", class: "act", onclick: () => attempt(async () => download(await getBlob("/file", { ...where, path }), entry.name)) }, "Download");
  if (entry.size > SHOWN) {
    box.replaceChildren(h("p", { class: "dim" }, "Too large to be shown. ", save));
    return;
  }
  const blob = await getBlob("/file", { ...where, path }, signal);
  const content = new Uint8Array(await blob.arrayBuffer());
  let text = null;
  try {
    text = content.includes(0) ? null : new TextDecoder("utf-8", { fatal: true }).decode(content);
  } catch {
    text = null; // not text
  }
  box.replaceChildren(save, text === null ? h("p", { class: "dim" }, "Not text.") : codeBlock(text, languageOfFile(path)));
}
