// The history as turns: what was asked, which tools ran, what came back. A turn unfolds to its steps.

import { get } from "./api.js";
import { languageOfFile, unifiedDiff } from "./code.js";
import { $, attempt, h } from "./dom.js";
import { age, count, duration, plural } from "./format.js";
import { costOf, money } from "./prices.js";
import { shownText } from "./truncated.js";

const PAGE_SIZE = 50;
const MOST_STEPS = 200; // that a turn unfolds to

export class TurnList {
  // `onTurn(turn)`: a turn was chosen; `onStep(row)`: one of its steps.
  constructor(onTurn, onStep) {
    this.onTurn = onTurn;
    this.onStep = onStep;
    this.box = $("turns");
    this.key = null; // the thread and the filter that are wanted
    this.drawn = null; // and those that are shown
    this.box.addEventListener("keydown", (event) => this.onKey(event));
  }

  // Shows the turns of a thread that a filter keeps, unless they are shown already.
  async show(thread, filter) {
    const key = JSON.stringify([thread, filter]);
    if (key !== this.key) await this.open(thread, filter);
  }

  forget() { this.key = this.drawn = null; }

  async open(thread, filter) {
    const key = (this.key = JSON.stringify([thread, filter]));
    const [{ agent }, page] = await Promise.all([get("/turns", { thread, limit: 1 }), this.page(thread, filter)]);
    if (this.key !== key) return;
    Object.assign(this, { drawn: key, agent, thread, filter, total: page.total, shown: page.turns.length, totals: page.totals });
    this.box.replaceChildren(this.summary(), ...page.turns.map((turn) => this.node(turn)), ...this.more());
    if (!page.total) this.box.replaceChildren(h("p", { class: "hint" }, filter ? "No turn has all of that." : "This thread has no conversation."));
  }

  page(thread, filter, start = 0) { return get("/conversation", { thread, ...filter, start, limit: PAGE_SIZE }); }

  // A thread that grew: only the newest turn changed, or turns came on top of it.
  async refresh() {
    const { key } = this;
    if (key === null || key !== this.drawn) return; // on its way
    const page = await this.page(this.thread, this.filter);
    if (this.key !== key) return;
    const old = this.box.querySelector(".turn");
    if (!old || page.total < this.total || page.total - this.total > PAGE_SIZE - 1) {
      await this.open(this.thread, this.filter);
      return;
    }
    const newest = Number(old.dataset.number);
    const nodes = page.turns.filter((turn) => turn.number >= newest).map((turn) => this.node(turn, old.open && turn.number === newest));
    this.box.querySelector(".totals")?.replaceWith(Object.assign(this, { totals: page.totals }).summary());
    old.replaceWith(...nodes);
    this.shown += page.total - this.total;
    this.total = page.total;
  }

  summary() {
    const { tokens, turns, failed } = this.totals;
    const cost = costOf(this.totals);
    const facts = [
      plural(turns, "turn"), failed ? `${plural(failed, "failed call")}` : null,
      tokens ? `${count(tokens.input)} tokens read, ${count(tokens.output)} written` : null, cost !== null ? money(cost) : null,
    ];
    return h("p", { class: "totals" }, facts.filter(Boolean).join(" · "));
  }

  more() {
    const rest = this.total - this.shown;
    if (rest <= 0) return [];
    const load = async () => {
      const page = await this.page(this.thread, this.filter, this.shown);
      this.shown += page.turns.length;
      button.replaceWith(...page.turns.map((turn) => this.node(turn)), ...this.more());
    };
    const button = h("button", { type: "button", class: "more", onclick: () => attempt(load) }, plural(rest, "earlier turn"));
    return [button];
  }

  node(turn, open = false) {
    const steps = h("ol", { class: "steps" });
    const tools = turn.tools.map((tool) => h("span", { class: tool.failed ? "tool-name bad" : "tool-name" },
      tool.name, tool.count > 1 ? h("i", {}, ` ×${tool.count}`) : null));
    const flow = h("span", { class: "flow" }, tools.flatMap((tool, i) => (i ? [", ", tool] : [tool])),
      turn.more_tools ? ` and ${turn.more_tools} more` : null);
    const cost = costOf({ by_model: turn.tokens ? { [turn.model ?? ""]: turn.tokens } : {}, cost: turn.cost });
    const facts = [
      duration(turn.duration), turn.tokens ? `${count(turn.tokens.input)} → ${count(turn.tokens.output)} tokens` : null,
      cost !== null ? money(cost) : null, turn.model,
    ].filter(Boolean).join(" · ");
    const node = h("details", { class: `turn${turn.failed ? " failed" : ""}`, data: { number: turn.number }, open },
      h("summary", { onclick: () => this.onTurn(turn) },
        h("span", { class: "turn-top" }, h("b", { class: "step" }, String(turn.number)),
          h("span", { class: "asked", dir: "auto" }, turn.prompt || "before the first prompt"),
          turn.first ? h("time", { datetime: turn.first.created_at }, age(turn.first.created_at)) : null),
        tools.length ? h("span", { class: "turn-line" }, "→ ", flow) : null,
        turn.reply ? h("span", { class: "turn-line answer", dir: "auto" }, "→ ", turn.reply) : null,
        facts ? h("span", { class: "turn-facts" }, facts) : null),
      steps);
    const unfold = () => { if (node.open && !steps.children.length) attempt(() => this.unfold(turn, steps, node)); };
    node.addEventListener("toggle", unfold);
    return node;
  }

  async unfold(turn, list, node) {
    if (this.agent) attempt(() => this.unfoldFiles(turn, node));
    if (!turn.first || !turn.last) return;
    const limit = Math.min(MOST_STEPS, turn.last.step - turn.first.step + 1);
    const page = await get("/history", { thread: this.thread, at: turn.last.id, limit: 1, trail: true });
    const rows = (await get("/history", { thread: this.thread, start: page.index ?? 0, limit, trail: true })).rows.toReversed();
    list.replaceChildren(...rows.map((row) => h("li", {}, h("button", { type: "button", onclick: () => this.onStep(row) },
      h("b", { class: "step" }, String(row.step)), row.failed ? h("span", { class: "failure" }, "failed") : null,
      row.role ? h("span", { class: `role ${row.role}` }, row.role) : null, h("span", { dir: "auto" }, row.preview || row.added)))));
  }

  // The files that a turn of a coding agent changed: the snapshots were taken when it began and when it ended.
  async unfoldFiles(turn, node) {
    const { turns } = await get("/turns", { thread: this.thread, limit: 1000 });
    const own = turns.find((one) => one.after !== null && one.after === turn.last?.id)
      ?? turns.find((one) => turn.prompt && one.prompt.slice(0, 60) === turn.prompt.slice(0, 60));
    if (!own) return;
    const { files, files_total: total, files_missing: missing } = await get("/turn", { thread: this.thread, number: own.number });
    node.append(h("div", { class: "turn-files" }, files === null ? h("p", { class: "dim" }, missing ?? "The files are not known.")
      : [h("p", { class: "dim" }, plural(total, "file changed", "files changed")), files.map((file) => h("details", {},
        h("summary", {}, h("b", {}, file.kind), " ", h("code", {}, file.path)),
        file.text ? unifiedDiff(shownText(file.text), languageOfFile(file.path)) : null))]));
  }

  onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const all = [...this.box.querySelectorAll("summary, .steps button, .more")].filter((node) => node.offsetParent);
    all[all.indexOf(document.activeElement) + step]?.focus();
  }
}
