// The headings: of a thread, of a checkpoint with its actions, and the tabs.

import { fragmentOf } from "./address.js";
import { forkLink } from "./checkpoint-row.js";
import { $, copy, h, timeAgo } from "./dom.js";
import { bytes, count, duration, plural } from "./format.js";
import { costOf, money } from "./prices.js";

const VIEWS = [
  ["run", "Run"], ["conversation", "Conversation"], ["state", "State"], ["changes", "Changes"], ["files", "Files"], ["compare", "Compare"],
];

// The tabs of a checkpoint: without those that would be empty.
export const views = (app) => VIEWS.filter(([id]) => (id !== "files" || app.row?.files)
  && (id !== "run" || app.rows.kind === "run") && (id !== "conversation" || app.talks) && (id !== "compare" || app.place.with));

export function drawHeading(app) {
  const { rows } = app;
  const head = rows.find(rows.head);
  const parents = [...rows.forks.values()].flat().filter((fork) => fork.relation === "parent");
  const link = (fork) => h("a", { class: "link", href: fragmentOf({ thread: fork.thread_id, at: fork.at }) }, fork.thread_id);
  $("history-head").replaceChildren(h("h1", { title: rows.thread }, rows.thread),
    h("p", {}, plural(rows.total, "checkpoint"), head ? `, ${bytes(head.size)}` : "",
      parents.map((fork) => [", forked from ", link(fork), ` at ${fork.step}`]),
      rows.moreForks ? `, and ${plural(rows.moreForks, "more fork")} that are not shown` : ""));
}

export function drawFacts(app) {
  const { row, rows, actions } = app;
  const head = row.id === rows.head;
  const action = (name, key, run, off = false) => h("button", {
    type: "button", title: key ? `${name} (${key})` : name, "aria-keyshortcuts": key, onclick: run, disabled: off,
  }, name);
  const change = app.readOnly;
  const custom = Object.entries(row.custom);
  $("facts").replaceChildren(
    h("div", { class: "what" },
      h("h2", {},
        h("span", { class: "step" }, `Step ${row.step}`),
        head ? h("span", { class: "badge" }, "head") : null,
        row.on_trail ? null : h("span", { class: "badge old" }, "left behind"),
        row.label ? h("span", { class: "label" }, row.label) : null,
        row.tags.map((tag) => h("span", { class: "tag" }, tag)),
        row.damage ? h("span", { class: "damaged" }, `damaged: ${row.damage}`) : null,
        (rows.forks.get(row.id) ?? []).map(forkLink)),
      h("p", {}, h("code", { class: "id", title: "The checkpoint's id" }, row.id), " ", timeAgo(row.created_at),
        ` · ${row.added || "no change"} · ${bytes(row.written)} written`, usage(row).map((fact) => ` · ${fact}`)),
      custom.length ? h("p", { class: "custom" }, custom.slice(0, 12).map(([name, value]) =>
        h("span", {}, h("i", {}, name), typeof value === "string" ? value.slice(0, 200) : JSON.stringify(value).slice(0, 200)))) : null),
    h("div", { class: "actions" },
      action("Label", "l", () => actions.label(), change), action("Fork", "f", () => actions.fork(), change),
      action("Rewind", "r", () => actions.rewind(), change || head),
      action("Undo", "u", () => actions.undo(), change), action("Redo", "U", () => actions.redo(), change),
      action("Compare", "c", () => actions.compare()), action("Resume", "p", () => actions.resume()),
      action("Export", "e", () => actions.exportCheckpoint()),
      action("Copy link", "y", () => copy(app.linkTo({ ...app.place, at: row.id }), "a link to this step")),
      action("Delete", "", () => actions.remove(), change)));
}

// The model of a step, its tokens, what they cost, and the time since the step before.
function usage({ model, tokens, cost, seconds }) {
  const sum = costOf({ by_model: tokens ? { [model ?? ""]: tokens } : {}, cost });
  return [
    model, tokens ? `${count(tokens.input)} → ${count(tokens.output)} tokens` : null, sum !== null ? money(sum) : null,
    seconds ? `${duration(seconds)} after the step before` : null,
  ].filter(Boolean);
}

export function drawTabs(app) {
  const shown = views(app);
  $("tabs").replaceChildren(...shown.map(([id, name], i) => h("button", {
    type: "button", role: "tab", id: `tab-${id}`, "aria-selected": String(app.view === id), "aria-controls": "view",
    tabindex: app.view === id ? 0 : -1, title: String(i + 1), onclick: () => app.chooseView(id),
    onkeydown: async (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      await app.chooseView(shown.at((i + step) % shown.length)[0]);
      document.querySelector("[role=tab][aria-selected=true]").focus();
    },
  }, name)));
  $("view").setAttribute("aria-labelledby", `tab-${app.view}`);
}
