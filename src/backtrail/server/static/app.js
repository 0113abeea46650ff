// The inspector: which thread, which checkpoint, which view; and what happens on a key, a click or an event.

import { follow, get, post, text } from "./api.js";
import { chart } from "./chart.js";
import { conversation } from "./conversation.js";
import { askExport, askFork, askLabel, askRewind, showKeys } from "./dialogs.js";
import { diff } from "./diff.js";
import { files } from "./files.js";
import { $, bytes, h, plural, toast, when } from "./dom.js";
import { History } from "./history.js";
import { Threads } from "./threads.js";
import { tree } from "./tree.js";

const VIEWS = [["conversation", "Conversation"], ["state", "State"], ["changes", "Changes"], ["files", "Files"]];
const now = { thread: null, row: null, view: "conversation", base: null, readOnly: false, drawing: null };

const threads = new Threads((id) => open(id));
const rows = new History((row) => show(row));

// -- moving about -----------------------------------------------------------------------------------------------------

async function open(id, { at = null } = {}) {
  now.thread = id;
  now.row = null;
  now.base = null;
  threads.choose(id);
  document.title = `${id} · backtrail`;
  pane("history");
  await attempt(async () => {
    await rows.open(id);
    if (now.thread !== id) return;
    heading();
    picture();
    if (at) await rows.selectId(at);
    else await rows.select(Math.max(0, await rows.locate(rows.head)));
    pane("history");
  });
}

function picture() {
  const thread = now.thread;
  const choose = async (step) => rows.selectId((await get("/checkpoint", { thread, at: String(step) })).id);
  attempt(() => chart(thread, (step) => attempt(() => choose(step))));
}

function heading() {
  const head = rows.pages.get(0)?.find((row) => row.id === rows.head);
  const parents = [...rows.forks.values()].flat().filter((fork) => fork.relation === "parent");
  $("history-head").replaceChildren(h("h1", { title: now.thread }, now.thread),
    h("p", {}, plural(rows.total, "checkpoint"), head ? `, ${bytes(head.size)}` : "",
      parents.map((fork) => [", forked from ", h("button", { type: "button", class: "link", onclick: () => open(fork.thread_id, { at: fork.at }) }, fork.thread_id), ` at ${fork.step}`])));
}

function show(row) {
  now.row = row;
  $("empty").hidden = true;
  $("checkpoint").hidden = false;
  facts();
  draw();
}

// The tabs of a checkpoint: files only where it has some.
const views = () => VIEWS.filter(([id]) => id !== "files" || now.row?.files);

function facts() {
  const row = now.row;
  if (!views().some(([id]) => id === now.view)) now.view = "conversation";
  const head = row.id === rows.head;
  const act = (name, key, run, off = false) =>
    h("button", { type: "button", title: `${name} (${key})`, "aria-keyshortcuts": key, disabled: off || (now.readOnly && name !== "Export"), onclick: run }, name);
  $("facts").replaceChildren(
    h("div", { class: "what" },
      h("h2", {}, h("span", { class: "step" }, `Step ${row.step}`), head ? h("span", { class: "badge" }, "head") : null, row.on_trail ? null : h("span", { class: "badge old" }, "left behind"),
        row.label ? h("span", { class: "label" }, row.label) : null, row.tags.map((tag) => h("span", { class: "tag" }, tag))),
      h("p", {}, h("code", { class: "id", title: "The checkpoint's id" }, row.id), " ", when(row.created_at), ` · ${row.added || "no change"} · ${bytes(row.written)} written`)),
    h("div", { class: "actions" }, act("Label", "l", label), act("Fork", "f", fork), act("Rewind", "r", rewind, head), act("Export", "e", save)));
  $("tabs").replaceChildren(...views().map(([id, name], i) => h("button", {
    type: "button", role: "tab", id: `tab-${id}`, "aria-selected": String(now.view === id), "aria-controls": "view",
    tabindex: now.view === id ? 0 : -1, title: String(i + 1), onclick: () => turn(id),
    onkeydown: (event) => { const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key]; if (step) { turn(views().at((i + step) % views().length)[0]); document.querySelector("[role=tab][aria-selected=true]").focus(); } },
  }, name)));
  $("view").setAttribute("aria-labelledby", `tab-${now.view}`);
}

function turn(view) {
  now.view = view;
  if (now.row) { facts(); draw(); }
}

function draw() {
  now.drawing?.abort();
  const drawing = (now.drawing = new AbortController());
  const view = $("view");
  const slow = setTimeout(() => view.classList.add("waiting"), 150);
  const made = {
    conversation: () => conversation(view, now.thread, now.row, drawing.signal),
    state: () => tree(view, now.thread, now.row, drawing.signal),
    files: () => files(view, now.thread, now.row, drawing.signal),
    changes: () => diff(view, now.thread, now.row, drawing.signal, now.base, (base) => { now.base = base; draw(); }),
  }[now.view]();
  made.catch((error) => { if (error.name !== "AbortError") view.replaceChildren(h("p", { class: "hint bad" }, error.message)); })
    .finally(() => { clearTimeout(slow); if (!drawing.signal.aborted) view.classList.remove("waiting"); });
}

function pane(name) {
  document.body.dataset.pane = name;
  $("back").hidden = name === "threads";
}

async function attempt(run) {
  try {
    return await run();
  } catch (error) {
    toast(error.message, { bad: true });
    return undefined;
  }
}

// -- changing -----------------------------------------------------------------------------------------------------------

async function refresh() {
  await rows.refresh();
  heading();
  picture();
}

async function label() {
  const given = await askLabel(now.row);
  if (!given) return;
  await attempt(async () => {
    const tags = given.tags.split(/\s+/).filter(Boolean);
    const said = await post("/annotate", { thread: now.thread, at: now.row.id, label: given.label.trim() || null, tags });
    now.row = { ...now.row, label: said.label, tags: said.tags };
    await refresh();
    facts();
    toast(said.label ? `Step ${said.step} is called ${said.label}` : `Step ${said.step} has no label`);
  });
}

async function fork() {
  const given = await askFork(now.row, now.thread);
  if (!given) return;
  await attempt(async () => {
    const made = await post("/fork", { thread: now.thread, at: now.row.id, to: given.to.trim() || null });
    toast(`Forked to ${made.thread.id}`);
    await threads.load();
    await open(made.thread.id);
  });
}

async function rewind() {
  if (now.row.id === rows.head) return;
  const row = now.row;
  await attempt(async () => {
    const ask = (files) => post("/rewind", { thread: now.thread, at: row.id, files, dry_run: true });
    const withFiles = row.files ? await ask(true).catch((error) => void toast(error.message, { bad: true })) : null;
    const plan = withFiles ?? await ask(false);
    const given = await askRewind(row, plan.left.length, withFiles ? plan.files : null);
    if (!given) return;
    await post("/rewind", { thread: now.thread, at: row.id, files: given.files === "on" });
    await refresh();
    await rows.selectId(row.id);
    toast(`The head is at step ${row.step} now`, { action: { name: "Undo", run: () => undo(given.files === "on") } });
  });
}

async function undo(files = false) {
  await attempt(async () => {
    const { head } = await post("/undo", { thread: now.thread, files });
    await refresh();
    await rows.selectId(head.id);
    toast(`The head is at step ${head.step} now`);
  });
}

async function save() {
  const given = await askExport();
  if (!given) return;
  await attempt(async () => {
    const data = await text("/export", { thread: now.thread, at: now.row.id, form: given.form });
    const ending = { json: "json", jsonl: "jsonl", markdown: "md" }[given.form];
    const address = URL.createObjectURL(new Blob([data]));
    const name = `${now.thread.replace(/[^\w.-]+/g, "-")}-${now.row.step}.${ending}`;
    h("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  });
}

// -- keys, live, start ------------------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, dialog")) return;
  const tab = views()[Number(event.key) - 1];
  const free = !now.readOnly && now.row;
  const keys = {
    j: () => rows.move(1), k: () => rows.move(-1), g: () => rows.select(0), G: () => rows.select(rows.total - 1),
    "/": () => { pane("threads"); $("search").focus(); $("search").select(); }, "?": showKeys,
    l: () => free && label(), f: () => free && fork(), r: () => free && rewind(), u: () => free && undo(), e: () => now.row && save(),
  };
  const run = tab ? () => turn(tab[0]) : Object.hasOwn(keys, event.key) ? keys[event.key] : null;
  if (!run) return;
  event.preventDefault();
  run();
});

$("keys").addEventListener("click", showKeys);
$("back").addEventListener("click", () => pane(document.body.dataset.pane === "detail" ? "history" : "threads"));
$("rows").addEventListener("click", (event) => { if (event.target.closest(".row")) pane("detail"); });
$("rows").addEventListener("keydown", (event) => { if (event.key === "Enter") { pane("detail"); $("view").focus(); } });

function light(state) {
  $("live").dataset.state = state;
  $("live").lastElementChild.textContent = { live: "live", lost: "reconnecting", refused: "no access" }[state];
  if (state === "refused") $("empty-text").textContent = "This page needs the token that `backtrail ui` printed: open the whole address it gave.";
}

async function heard(name, data) {
  if (name === "hello") return threads.load();
  threads.changed(data.changed, data.gone);
  if (data.gone.includes(now.thread)) return toast(`${now.thread} was deleted`, { bad: true });
  if (!data.changed.some((info) => info.id === now.thread)) return undefined;
  const following = rows.following;
  return attempt(async () => {
    await refresh();
    if (following && !rows.following) await rows.select(await rows.locate(rows.head));
    else if (now.row) { now.row = rows.row(rows.index) ?? now.row; facts(); }
  });
}

get("/store").then((store) => {
  now.readOnly = store.read_only;
  $("store").textContent = store.name + (store.read_only ? " · read-only" : "");
}).catch(() => light("refused"));
follow((name, data) => attempt(() => heard(name, data)), light);
