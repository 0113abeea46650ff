// The inspector: holds the current thread, checkpoint and view, and handles keys, clicks and events.

import { get, getText, listen, post } from "./api.js";
import { CheckpointList } from "./checkpoint-list.js";
import { drawConversation } from "./conversation.js";
import { askExport, askFork, askLabel, askRewind, showKeys } from "./dialogs.js";
import { $, h, timeAgo, toast } from "./dom.js";
import { drawFileChanges } from "./file-changes.js";
import { bytes, plural } from "./format.js";
import { drawSizeChart } from "./size-chart.js";
import { drawStateDiff } from "./state-diff.js";
import { drawStateTree } from "./state-tree.js";
import { ThreadList } from "./thread-list.js";

const VIEWS = [["conversation", "Conversation"], ["state", "State"], ["changes", "Changes"], ["files", "Files"]];
const current = { thread: null, row: null, view: "conversation", base: null, readOnly: false, drawing: null };

const threads = new ThreadList((id) => open(id));
const rows = new CheckpointList((row) => showCheckpoint(row));

// -- navigation -------------------------------------------------------------------------------------------------------

async function open(id, { at = null } = {}) {
  current.thread = id;
  current.row = null;
  current.base = null;
  threads.choose(id);
  document.title = `${id} · backtrail`;
  showPane("history");
  await attempt(async () => {
    await rows.open(id);
    if (current.thread !== id) return;
    drawHeading();
    drawChart();
    if (at) await rows.selectId(at);
    else await rows.select(Math.max(0, await rows.indexOf(rows.head)));
    showPane("history");
  });
}

function drawChart() {
  const thread = current.thread;
  const choose = async (step) => rows.selectId((await get("/checkpoint", { thread, at: String(step) })).id);
  attempt(() => drawSizeChart(thread, (step) => attempt(() => choose(step))));
}

function drawHeading() {
  const head = rows.pages.get(0)?.find((row) => row.id === rows.head);
  const parents = [...rows.forks.values()].flat().filter((fork) => fork.relation === "parent");
  const link = (fork) => h("button", {
    type: "button", class: "link", onclick: () => open(fork.thread_id, { at: fork.at }),
  }, fork.thread_id);
  $("history-head").replaceChildren(h("h1", { title: current.thread }, current.thread),
    h("p", {}, plural(rows.total, "checkpoint"), head ? `, ${bytes(head.size)}` : "",
      parents.map((fork) => [", forked from ", link(fork), ` at ${fork.step}`]),
      rows.moreForks ? `, and ${plural(rows.moreForks, "more fork")} that are not shown` : ""));
}

function showCheckpoint(row) {
  current.row = row;
  $("empty").hidden = true;
  $("checkpoint").hidden = false;
  drawHeader();
  drawView();
}

// The tabs of a checkpoint; "Files" only if it has some.
const views = () => VIEWS.filter(([id]) => id !== "files" || current.row?.files);

function drawHeader() {
  const row = current.row;
  if (!views().some(([id]) => id === current.view)) current.view = "conversation";
  const head = row.id === rows.head;
  const action = (name, key, run, off = false) => h("button", {
    type: "button", title: `${name} (${key})`, "aria-keyshortcuts": key, onclick: run,
    disabled: off || (current.readOnly && name !== "Export"),
  }, name);
  $("facts").replaceChildren(
    h("div", { class: "what" },
      h("h2", {},
        h("span", { class: "step" }, `Step ${row.step}`),
        head ? h("span", { class: "badge" }, "head") : null,
        row.on_trail ? null : h("span", { class: "badge old" }, "left behind"),
        row.label ? h("span", { class: "label" }, row.label) : null,
        row.tags.map((tag) => h("span", { class: "tag" }, tag))),
      h("p", {}, h("code", { class: "id", title: "The checkpoint's id" }, row.id), " ", timeAgo(row.created_at),
        ` · ${row.added || "no change"} · ${bytes(row.written)} written`)),
    h("div", { class: "actions" }, action("Label", "l", label), action("Fork", "f", fork),
      action("Rewind", "r", rewind, head), action("Export", "e", exportCheckpoint)));
  $("tabs").replaceChildren(...views().map(([id, name], i) => h("button", {
    type: "button", role: "tab", id: `tab-${id}`, "aria-selected": String(current.view === id), "aria-controls": "view",
    tabindex: current.view === id ? 0 : -1, title: String(i + 1), onclick: () => chooseView(id),
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      chooseView(views().at((i + step) % views().length)[0]);
      document.querySelector("[role=tab][aria-selected=true]").focus();
    },
  }, name)));
  $("view").setAttribute("aria-labelledby", `tab-${current.view}`);
}

function chooseView(view) {
  current.view = view;
  if (current.row) { drawHeader(); drawView(); }
}

function drawView() {
  current.drawing?.abort();
  const drawing = (current.drawing = new AbortController());
  const view = $("view");
  const slow = setTimeout(() => view.classList.add("waiting"), 150);
  const chooseBase = (base) => {
    current.base = base;
    drawView();
  };
  const drawn = {
    conversation: () => drawConversation(view, current.thread, current.row, drawing.signal),
    state: () => drawStateTree(view, current.thread, current.row, drawing.signal),
    files: () => drawFileChanges(view, current.thread, current.row, drawing.signal),
    changes: () => drawStateDiff(view, current.thread, current.row, drawing.signal, current.base, chooseBase),
  }[current.view]();
  drawn.catch((error) => {
    if (error.name !== "AbortError") view.replaceChildren(h("p", { class: "hint bad" }, error.message));
  }).finally(() => {
    clearTimeout(slow);
    if (!drawing.signal.aborted) view.classList.remove("waiting");
  });
}

function showPane(name) {
  document.body.dataset.pane = name;
  $("back").hidden = name === "threads";
}

// Runs something; an error becomes a toast.
async function attempt(run) {
  try {
    return await run();
  } catch (error) {
    toast(error.message, { bad: true });
    return undefined;
  }
}

// -- changes ----------------------------------------------------------------------------------------------------------

async function refresh() {
  await rows.refresh();
  drawHeading();
  drawChart();
}

async function label() {
  const given = await askLabel(current.row);
  if (!given) return;
  await attempt(async () => {
    const tags = given.tags.split(/\s+/).filter(Boolean);
    const name = given.label.trim() || null;
    const saved = await post("/annotate", { thread: current.thread, at: current.row.id, label: name, tags });
    current.row = { ...current.row, label: saved.label, tags: saved.tags };
    await refresh();
    drawHeader();
    toast(saved.label ? `Step ${saved.step} is called ${saved.label}` : `Step ${saved.step} has no label`);
  });
}

async function fork() {
  const given = await askFork(current.row, current.thread);
  if (!given) return;
  await attempt(async () => {
    const made = await post("/fork", { thread: current.thread, at: current.row.id, to: given.to.trim() || null });
    toast(`Forked to ${made.thread.id}`);
    await threads.load();
    await open(made.thread.id);
  });
}

async function rewind() {
  if (current.row.id === rows.head) return;
  const row = current.row;
  await attempt(async () => {
    const move = (body) => post("/rewind", { thread: current.thread, at: row.id, ...body });
    const dryRun = (keep) => move({ files: true, keep_untracked: keep, dry_run: true });
    let problem = null;
    const withFiles = row.files ? await dryRun(false).catch((error) => void (problem = error.message)) : null;
    const plan = withFiles ?? await move({ dry_run: true });
    const given = await askRewind(row, plan, withFiles ? dryRun : null, problem);
    if (!given) return;
    const files = given.files === "on";
    const done = await move({ files, keep_untracked: given.keep === "on" });
    await refresh();
    await rows.selectId(row.id);
    toast(headAt(row, done), { action: { name: "Undo", run: () => undo(files) } });
  });
}

async function undo(files = false) {
  await attempt(async () => {
    const done = await post("/undo", { thread: current.thread, files });
    await refresh();
    await rows.selectId(done.head.id);
    toast(headAt(done.head, done));
  });
}

// Where the head is now, and what became of the files.
function headAt(row, { files_total: files, removed_total: removed, kept_total: kept }) {
  const words = [`The head is at step ${row.step} now`];
  if (files > removed) words.push(`${plural(files - removed, "file")} changed`);
  if (removed) words.push(`${plural(removed, "file")} removed`);
  if (kept) words.push(`${plural(kept, "file")} kept`);
  return words.join(", ");
}

async function exportCheckpoint() {
  const given = await askExport();
  if (!given) return;
  await attempt(async () => {
    const data = await getText("/export", { thread: current.thread, at: current.row.id, form: given.form });
    const ending = { json: "json", jsonl: "jsonl", markdown: "md" }[given.form];
    const address = URL.createObjectURL(new Blob([data]));
    const name = `${current.thread.replace(/[^\w.-]+/g, "-")}-${current.row.step}.${ending}`;
    h("a", { href: address, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  });
}

// -- keys, events, start ----------------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, dialog")) return;
  const tab = views()[Number(event.key) - 1];
  const canChange = !current.readOnly && current.row;
  const keys = {
    j: () => rows.move(1), k: () => rows.move(-1), g: () => rows.select(0), G: () => rows.select(rows.total - 1),
    "/": () => { showPane("threads"); $("search").focus(); $("search").select(); }, "?": showKeys,
    l: () => canChange && label(), f: () => canChange && fork(), r: () => canChange && rewind(),
    u: () => canChange && undo(), e: () => current.row && exportCheckpoint(),
  };
  const run = tab ? () => chooseView(tab[0]) : Object.hasOwn(keys, event.key) ? keys[event.key] : null;
  if (!run) return;
  event.preventDefault();
  run();
});

$("keys").addEventListener("click", showKeys);
$("back").addEventListener("click", () => showPane(document.body.dataset.pane === "detail" ? "history" : "threads"));
$("rows").addEventListener("click", (event) => { if (event.target.closest(".row")) showPane("detail"); });
$("rows").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  showPane("detail");
  $("view").focus();
});

function showConnection(state) {
  $("live").dataset.state = state;
  $("live").lastElementChild.textContent = { live: "live", lost: "reconnecting", refused: "no access" }[state];
  if (state !== "refused") return;
  const hint = "This page needs the address that `backtrail ui` printed last: each opens it once.";
  $("empty-text").textContent = hint;
}

async function onEvent(name, data) {
  if (name === "hello") return threads.load();
  threads.update(data.changed, data.gone);
  if (data.gone.includes(current.thread)) return toast(`${current.thread} was deleted`, { bad: true });
  if (!data.changed.some((info) => info.id === current.thread)) return undefined;
  const following = rows.following;
  return attempt(async () => {
    await refresh();
    if (following && !rows.following) await rows.select(await rows.indexOf(rows.head));
    else if (current.row) { current.row = rows.row(rows.index) ?? current.row; drawHeader(); }
  });
}

get("/store").then((store) => {
  current.readOnly = store.read_only;
  $("store").textContent = store.name + (store.read_only ? " · read-only" : "");
}).catch(() => showConnection("refused"));
listen((name, data) => attempt(() => onEvent(name, data)), showConnection);
