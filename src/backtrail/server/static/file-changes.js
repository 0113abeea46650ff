// The view "Files": the changes in the directory since the snapshot before, and the whole tree of the snapshot, from
// which files are opened and downloaded.

import { get, getBlob } from "./api.js";
import { codeBlock, languageOfFile, unifiedDiff } from "./code.js";
import { attempt, download, h } from "./dom.js";
import { fold, openFolds } from "./folds.js";
import { bytes, plural } from "./format.js";
import { cutNote, shownText } from "./truncated.js";

const SHOWN = 200_000; // bytes of a file that is shown

export async function drawFileChanges(view, app, signal) {
  const where = { thread: app.place.thread, at: app.row.id };
  const { path } = app.place;
  const found = await get("/files", where, signal);
  const since = found.base
    ? `${plural(found.total, "file")} changed since step ${found.base.step}`
    : "This is the first snapshot of the directory";
  const items = found.changes.map((change) => h("li", { class: `change ${change.kind}` },
    h("header", {}, h("b", {}, change.kind), h("code", {}, change.path)),
    change.text ? [unifiedDiff(shownText(change.text), languageOfFile(change.path)), cutNote(change.text)] : null));
  const more = found.total - found.changes.length;
  if (more > 0) items.push(h("li", { class: "dim" }, `… ${plural(more, "more file")}`));
  const tree = h("ul", { class: "tree files" });
  const files = { where, signal, onOpen: (opened) => app.note({ path: opened }) };
  const browse = fold("files", { class: "browse" }, h("summary", {}, "All files of this snapshot"), tree, () => openFolder(tree, "", files));
  view.replaceChildren(
    h("p", { class: "hint" }, since, found.root ? [", in ", h("code", {}, found.root)] : null, "."),
    h("ul", { class: "changes" }, items), browse);
  if (path) await openPath(browse, path);
}

const keyOf = (path) => `file ${path}`;

// Opens the folders on the way to a file, and the file.
async function openPath(browse, path) {
  const names = path.split("/");
  await openFolds(browse.parentNode, new Set(["files", ...names.map((_, i) => keyOf(names.slice(0, i + 1).join("/")))]));
  const node = [...browse.querySelectorAll("details")].find(({ dataset }) => dataset.key === keyOf(path));
  if (node) node.classList.add("landed");
  else browse.before(h("p", { class: "hint" }, "Among the files that are shown here there is no ", h("code", {}, path), "."));
}

async function openFolder(list, path, files) {
  const { entries, more } = await get("/tree", { ...files.where, path }, files.signal);
  list.replaceChildren(...entries.map((entry) => node(entry, path, files)),
    ...(more ? [h("li", { class: "dim" }, `… ${plural(more, "more entry", "more entries")}`)] : []));
  if (!entries.length) list.replaceChildren(h("li", { class: "dim" }, "empty"));
}

function node(entry, folder, files) {
  const path = folder ? `${folder}/${entry.name}` : entry.name;
  const facts = h("span", { class: "dim" }, entry.kind === "folder" ? "" : entry.kind === "file" ? bytes(entry.size) : entry.kind);
  if (entry.kind === "link") return h("li", {}, h("span", { class: "key" }, entry.name), facts);
  const isFolder = entry.kind === "folder";
  const inside = h(isFolder ? "ul" : "div", {});
  const summary = h("summary", {}, h("span", { class: "key" }, isFolder ? `${entry.name}/` : entry.name), facts);
  return h("li", {}, fold(keyOf(path), {}, summary, inside, async () => {
    if (isFolder) return openFolder(inside, path, files);
    await openFile(inside, path, entry, files);
    return files.onOpen(path);
  }));
}

async function openFile(box, path, entry, { where, signal }) {
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
