// The inspector: shows the place that the address names, and keeps both in step.

import { filterOf, fragmentOf, hasCode, isPage, linkTo, misunderstood, readAddress, setAddress } from "./address.js";
import { Actions } from "./actions.js";
import { get, listen } from "./api.js";
import { CheckpointList } from "./checkpoint-list.js";
import { drawComparison } from "./comparison.js";
import { Conversation } from "./conversation.js";
import { $, attempt, h, toast } from "./dom.js";
import { drawFileChanges } from "./file-changes.js";
import { ReadersPlace } from "./folds.js";
import { FilteredSteps } from "./filtered-steps.js";
import { FindInThread } from "./find-in-thread.js";
import { drawFacts, drawHeading, drawTabs } from "./headings.js";
import { drawHealth } from "./health.js";
import { bindKeys } from "./keys.js";
import { LiveThread } from "./live.js";
import { drawChart } from "./chart.js";
import { drawRun } from "./run.js";
import { drawSearch } from "./search.js";
import { drawStateDiff } from "./state-diff.js";
import { drawStateTree } from "./state-tree.js";
import { StepFilter } from "./step-filter.js";
import { ThreadList } from "./thread-list.js";
import { TurnList } from "./turn-list.js";

const app = {
  place: readAddress(), // what the address says
  row: null, // the checkpoint that is shown
  view: null, // the tab that is shown: that of the address, else the first that has something
  drawn: null, // the id of the checkpoint that the tab shows; null while it is drawn, or if that failed
  seen: 0, // checkpoints that the thread had when the reader came to this place
  readOnly: false,
  talks: true, // does the state of the thread have a conversation?
  go, note, refresh, chooseView, showPane, linkTo, redraw: () => drawView({ keep: true }),
  // The list of steps that keys move in.
  get steps() { return filterOf(app.place) && app.place.list !== "turns" ? app.kept : app.rows; },
};

app.threads = new ThreadList((search) => go({ search }, { replace: true }));
app.rows = new CheckpointList((row, how) => goToRow(row, how));
app.kept = new FilteredSteps(app, (row, how) => goToRow(row, how));
app.filter = new StepFilter(app);
app.turns = new TurnList((turn) => goToTurn(turn), (row) => goToRow(row));
app.find = new FindInThread(app);
app.actions = new Actions(app);
app.conversation = new Conversation($("view"), {
  message: (index) => linkTo({ ...app.place, at: app.row.id, view: "conversation", message: index }),
  step: (message) => fragmentOf({ thread: app.place.thread, at: message.step.id, message: message.index }),
  edit: (message) => app.actions.editMessage(message),
});
const live = new LiveThread(app);
app.rows.onForks = () => drawHeading(app);
app.rows.onLayout = () => live.follow();

// -- places -----------------------------------------------------------------------------------------------------------

function go(changes, how = {}) {
  const place = { ...app.place, ...changes };
  setAddress(place, how);
  return show(place);
}

// Something of the place was changed by hand: the address says it, and nothing is drawn.
function note(changes) {
  app.place = { ...app.place, ...changes };
  setAddress(app.place, { replace: true });
}

// The head is the place without a checkpoint: it is followed.
function goToRow(row, how = {}) {
  const at = row.id === app.rows.head ? null : row.id;
  return go({ at, message: null, page: null, ...(how.message !== undefined ? { message: how.message } : {}) }, how);
}

function goToTurn(turn) {
  if (turn.last) return go({ at: turn.last.id === app.rows.head ? null : turn.last.id, message: String(turn.start), view: null });
  return undefined;
}

async function show(place) {
  const before = app.place;
  app.place = place;
  document.body.classList.toggle("no-history", !place.thread || isPage(place));
  // Also while the thread is still being opened: whoever began that draws nothing, because the place is another one now.
  const opened = place.thread !== before.thread || app.rows.thread !== place.thread || app.rows.head === null;
  app.threads.show(place);
  if (isPage(place)) return attempt(() => showPage(place));
  $("page").hidden = true;
  if (!place.thread) return closeThread();
  return attempt(async () => {
    if (opened && !(await openThread(place))) return;
    showList();
    app.find.show(place.find);
    const row = await rowAt(place);
    if (app.place !== place || !row) return;
    if (app.rows.selected !== row.id) app.rows.selectRow(row, { quiet: true });
    app.kept.draw();
    const same = !opened && app.row?.id === row.id && before.view === place.view && before.message === place.message
      && before.with === place.with && before.base === place.base && before.path === place.path && app.view !== null;
    app.row = row;
    drawFacts(app);
    if (!same) drawView();
    app.seen = app.rows.total;
    $("newer").hidden = true;
  });
}

// The row of a place; if there is no such step, the page says so, and the list stays.
async function rowAt(place) {
  try {
    if (!place.at) return await app.rows.fetchHead();
    const row = await app.rows.selectId(place.at, { quiet: true });
    if (row || app.place !== place) return row;
    showEmpty(`There is no checkpoint ${place.at} in ${place.thread}.`, place);
  } catch (error) {
    if (![400, 404].includes(error.status)) throw error;
    if (app.place === place) showEmpty(error.message, place);
  }
  return undefined;
}

// A message in the place of a checkpoint, with a way on: the newest step of the thread, if there is one.
function showEmpty(message, place = null) {
  app.drawing?.abort();
  app.row = null;
  $("checkpoint").hidden = true;
  $("empty").hidden = false;
  const newest = place ? [" ", h("a", { href: fragmentOf({ thread: place.thread }) }, "Show its newest step")] : [];
  $("empty-text").replaceChildren(message, ...newest);
  showPane("detail");
}

async function openThread(place) {
  const { thread } = place;
  app.row = null;
  app.view = null;
  app.talks = true;
  document.title = `${thread} · backtrail`;
  // A link to a step, a tab or a message leads there; one to a thread, to its history.
  if (document.body.dataset.pane === "threads") showPane(place.at || place.view || place.message ? "detail" : "history");
  try {
    await app.rows.open(thread, place.at);
  } catch (error) {
    closeThread(error.message);
    return false;
  }
  if (app.place.thread !== thread) return false;
  $("switch").hidden = false;
  drawHeading(app);
  attempt(() => drawChart(app));
  return true;
}

function closeThread(message = null) {
  app.row = null;
  app.rows.clear(null);
  app.rows.draw();
  document.title = "backtrail";
  $("checkpoint").hidden = true;
  $("empty").hidden = false;
  $("empty-text").textContent = message ?? "Choose a thread to see what its agent did.";
  app.turns.forget();
  $("history-head").replaceChildren();
  $("chart").replaceChildren();
  for (const id of ["switch", "filters", "turns", "kept", "kept-note"]) $(id).hidden = true;
  app.kept.close();
  showPane(message ? "detail" : "threads");
}

// Steps or turns, all of them or those that the filter keeps.
function showList() {
  const { place } = app;
  const turns = place.list === "turns";
  const filter = filterOf(place);
  app.filter.show(place);
  $("rows").hidden = turns || filter !== null;
  $("kept").hidden = $("kept-note").hidden = turns || filter === null;
  $("turns").hidden = !turns;
  $("as-turns").setAttribute("aria-pressed", String(turns));
  $("as-steps").setAttribute("aria-pressed", String(!turns));
  if (turns) attempt(() => app.turns.show(place.thread, filter));
  else if (filter) app.kept.open(place.thread, filter);
  else app.kept.close();
}

async function showPage(place) {
  $("checkpoint").hidden = true;
  $("empty").hidden = true;
  $("page").hidden = false;
  showPane("detail");
  if (place.page === "health") await drawHealth($("page"));
  else await drawSearch($("page"), place.search, app.threads.prefix);
}

// -- a checkpoint -----------------------------------------------------------------------------------------------------

function chooseView(view) {
  return go({ view, message: null, path: null });
}

function drawView({ keep = false } = {}) {
  app.drawing?.abort();
  const drawing = (app.drawing = new AbortController());
  const { signal } = drawing;
  const { row } = app;
  const view = $("view");
  $("empty").hidden = true;
  $("checkpoint").hidden = false;
  app.drawn = null;
  const slow = setTimeout(() => view.classList.add("waiting"), 150);
  app.done = drawInto(view, signal, keep).then(() => {
    if (!signal.aborted) app.drawn = row.id;
  }, (error) => {
    if (error.name !== "AbortError") view.replaceChildren(h("p", { class: "hint bad" }, error.message));
  }).finally(() => {
    clearTimeout(slow);
    if (!signal.aborted) view.classList.remove("waiting");
  });
}

async function drawInto(view, signal, keep) {
  const { place, row } = app;
  const first = app.rows.kind === "run" && row.id === app.rows.head ? "run" : app.talks ? "conversation" : "state";
  const wanted = place.view ?? first;
  app.view = wanted;
  drawTabs(app);
  if (wanted === "conversation") {
    const message = place.message === null || keep ? null : Number(place.message);
    if (await app.conversation.show(place.thread, row, signal, message)) return;
    const reason = row.damage ?? (row.added.startsWith("damaged") ? row.added : null);
    app.talks = reason !== null; // a damaged step says nothing of the others
    if (place.view === "conversation" || reason) {
      view.replaceChildren(h("p", { class: "hint" }, reason ? `This step cannot be read: ${reason}.` : "This state holds no list of messages."));
      return;
    }
    app.view = "state";
    drawTabs(app);
  } else app.conversation.clear();
  const before = keep ? new ReadersPlace(view) : null;
  const content = h("div", {});
  await drawTab(content, signal, before);
  if (signal.aborted) return;
  if (before) await before.put(content);
  else {
    view.replaceChildren(...content.childNodes);
    view.scrollTop = 0;
    view.querySelector("details.landed")?.scrollIntoView({ block: "nearest" });
  }
}

// Draws a tab other than the conversation. `before`: the place of the reader, if the tab is drawn again.
function drawTab(content, signal, before) {
  const { place, row } = app;
  switch (app.view) {
    case "run":
      attempt(() => findTalk(place, row, signal));
      return drawRun(content, app, signal);
    case "state": return drawStateTree(content, app, signal, before);
    case "files": return drawFileChanges(content, app, signal);
    case "compare": return drawComparison(content, app, signal);
    default: return drawStateDiff(content, app, signal);
  }
}

// Does a run have a conversation as well?
async function findTalk(place, row, signal) {
  const { total } = await get("/messages", { thread: place.thread, at: row.id, limit: 1 }, signal);
  app.talks = total > 0;
  drawTabs(app);
}

function showPane(name) {
  document.body.dataset.pane = name;
  $("back").hidden = name === "threads";
}

// -- changes ----------------------------------------------------------------------------------------------------------

// After a change of our own: everything is asked for again, and what is shown stays.
async function refresh() {
  await app.rows.refresh();
  attempt(() => app.rows.refreshForks());
  drawHeading(app);
  attempt(() => drawChart(app));
  app.turns.forget();
  app.kept.close();
  showList();
}

function onEvent(name, data) {
  if (name === "hello") { // also after the connection was lost: something may have been missed
    if (app.row) live.follow();
    return app.threads.load();
  }
  app.threads.update(data.changed, data.gone);
  const { thread } = app.place;
  if (data.gone.includes(thread)) return closeThread(`The thread ${thread} was deleted.`);
  return data.changed.some((info) => info.id === thread) ? live.follow() : undefined;
}

function showConnection(state) {
  $("live").dataset.state = state;
  $("live").lastElementChild.textContent = { live: "live", lost: "reconnecting", refused: "no access" }[state];
  $("banner").hidden = state !== "refused";
}

// -- start ------------------------------------------------------------------------------------------------------------

bindKeys(app);
$("newer").addEventListener("click", async () => {
  await go({ at: null, message: null });
  live.follow(); // the newest may be newer than this page knows
});
$("as-steps").addEventListener("click", () => go({ list: null }));
$("as-turns").addEventListener("click", () => go({ list: "turns" }));
$("back").addEventListener("click", () => showPane(document.body.dataset.pane === "detail" ? "history" : "threads"));
for (const id of ["rows", "kept"]) $(id).addEventListener("click", (event) => { if (event.target.closest(".row")) showPane("detail"); });
window.addEventListener("popstate", () => {
  if (hasCode()) location.reload();
  else {
    tellMisunderstood();
    show(readAddress());
  }
});

function tellMisunderstood() {
  const odd = misunderstood();
  if (odd) toast(`This address has something that is not known here, and is left out: ${odd}`, { bad: true });
}

get("/store").then((store) => {
  app.readOnly = store.read_only;
  $("store").textContent = store.name + (store.read_only ? " · read-only" : "");
  if (app.row) drawFacts(app);
}).catch(() => showConnection("refused"));
tellMisunderstood();
document.body.classList.toggle("no-history", !app.place.thread || isPage(app.place));
app.threads.start(app.place);
if (app.place.thread || app.place.page || app.place.search) {
  const place = app.place;
  app.place = readAddress("#");
  show(place);
}
listen((name, data) => attempt(() => onEvent(name, data)), showConnection);
