// The history as a list of checkpoints with the graph beside it. Only visible rows are in the page, and only their
// pages are fetched, so ten thousand checkpoints scroll like ten.

import { get } from "./api.js";
import { $, h, svg } from "./dom.js";
import { age, bytes } from "./format.js";

const ROW_HEIGHT = 54;
const LANE_WIDTH = 14;
const PAGE_SIZE = 60;
const MAX_LANES = 8;
const RELATION = { child: "forked to", parent: "forked from", sibling: "shares its past with" };

const forkMark = () => svg("svg", { width: 10, height: 11, viewBox: "0 0 10 11", "aria-hidden": "true" },
  svg("path", {
    d: "M2 1v3.500a2 2 0 0 0 2 2h2a2 2 0 0 0 2-2V1M5 6.500V10",
    fill: "none", stroke: "currentColor", "stroke-width": 1.5, "stroke-linecap": "round",
  }));

export class CheckpointList {
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.box = $("rows");
    this.sheet = h("div", { class: "sheet", role: "presentation" });
    this.box.append(this.sheet);
    this.box.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()), { passive: true });
    this.box.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.clear(null);
  }

  clear(thread) {
    this.thread = thread;
    this.total = 0;
    this.lanes = 1;
    this.pages = new Map();
    this.index = -1;
    this.selected = null;
    this.forks = new Map();
    this.moreForks = 0;
    this.base = null;
  }

  async open(thread) {
    this.clear(thread);
    this.box.scrollTop = 0;
    await this.refresh();
  }

  // Fetches the newest page again; other pages follow when they become visible.
  async refresh() {
    const thread = this.thread;
    const [page, { forks, more_forks: moreForks }] = await Promise.all([
      get("/history", { thread, limit: PAGE_SIZE }),
      get("/thread", { thread }),
    ]);
    if (thread !== this.thread) return null;
    this.moreForks = moreForks;
    this.forks = new Map();
    for (const fork of forks) this.forks.set(fork.at, [...(this.forks.get(fork.at) ?? []), fork]);
    const grown = page.total - this.total;
    if (this.box.scrollTop > 0 && grown > 0 && this.total) this.box.scrollTop += grown * ROW_HEIGHT;
    this.total = page.total;
    this.lanes = Math.min(page.lanes, MAX_LANES);
    this.head = page.thread.head;
    this.pages = new Map([[0, page.rows]]);
    this.index = page.rows.findIndex((row) => row.id === this.selected);
    if (this.index < 0 && this.selected) this.index = await this.indexOf(this.selected);
    this.draw();
    return page;
  }

  row(i) { return this.pages.get(Math.floor(i / PAGE_SIZE))?.[i % PAGE_SIZE]; }

  async fetchRow(i) {
    const number = Math.floor(i / PAGE_SIZE);
    if (!this.pages.has(number)) {
      this.pages.set(number, undefined);
      const thread = this.thread;
      const page = await get("/history", { thread, start: number * PAGE_SIZE, limit: PAGE_SIZE });
      if (thread !== this.thread) return undefined;
      this.pages.set(number, page.rows);
      this.draw();
    }
    return this.row(i);
  }

  async indexOf(id) {
    for (let i = 0; i < this.total; i += PAGE_SIZE) {
      await this.fetchRow(i);
      const at = this.pages.get(i / PAGE_SIZE)?.findIndex((row) => row.id === id) ?? -1;
      if (at >= 0) return i + at;
    }
    return -1;
  }

  async select(i, { quiet = false } = {}) {
    if (i < 0 || i >= this.total) return;
    const row = this.row(i) ?? await this.fetchRow(i);
    if (!row) return;
    this.index = i;
    this.selected = row.id;
    this.scrollTo(i);
    this.draw();
    if (!quiet) this.onSelect(row);
  }

  async selectId(id) {
    const i = await this.indexOf(id);
    if (i >= 0) await this.select(i);
  }

  move(step) { return this.select(Math.max(0, Math.min(this.total - 1, this.index + step))); }

  get following() { return this.selected !== null && this.selected === this.head; }

  scrollTo(i) {
    const top = i * ROW_HEIGHT;
    const lowest = top + ROW_HEIGHT - this.box.clientHeight;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (lowest > this.box.scrollTop) this.box.scrollTop = lowest;
  }

  onKey(event) {
    const jumps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -this.total, End: this.total };
    if (!(event.key in jumps) || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.move(jumps[event.key]);
  }

  draw() {
    this.sheet.style.height = `${this.total * ROW_HEIGHT}px`;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW_HEIGHT) - 6);
    const last = Math.min(this.total, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW_HEIGHT) + 6);
    const nodes = [];
    for (let i = first; i < last; i++) {
      const row = this.row(i);
      if (!row) this.fetchRow(i);
      nodes.push(row ? this.node(row, i) : this.blank(i));
    }
    this.sheet.replaceChildren(...nodes);
    if (this.index >= first && this.index < last) this.box.setAttribute("aria-activedescendant", `row-${this.index}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  blank(i) {
    const node = h("div", { class: "row blank", role: "presentation" }, h("i"), h("b"));
    node.style.top = `${i * ROW_HEIGHT}px`;
    return node;
  }

  node(row, i) {
    const head = row.id === this.head;
    const inherited = row.thread_id !== this.thread;
    const classes = [
      "row", head && "is-head", !row.on_trail && "left", inherited && "inherited", this.base === row.id && "base",
    ];
    const forkTag = (fork) =>
      h("span", { class: "fork", title: `${RELATION[fork.relation]} ${fork.thread_id}` }, forkMark(), fork.thread_id);
    const title = h("span", { class: "title" },
      h("b", { class: "step" }, String(row.step)),
      row.label ? h("span", { class: "label" }, row.label) : null,
      row.damage ? h("span", { class: "damaged", title: row.damage }, "damaged") : null,
      row.tags.map((tag) => h("span", { class: "tag" }, tag)),
      (this.forks.get(row.id) ?? []).map(forkTag),
      row.files ? h("span", { class: "tag", title: "with a snapshot of files" }, "files") : null);
    const summary = row.added || "no change";
    const role = row.role ? h("span", { class: `role ${row.role}` }, row.role) : null;
    const ariaLabel = [
      `Step ${row.step}`, head ? "the head" : "", row.on_trail ? "" : "left behind",
      row.label ?? "", row.added, row.preview,
    ];
    const side = h("span", { class: "side" },
      h("span", { class: "wrote", title: `${summary}, ${bytes(row.written)} written` }, bytes(row.written)),
      h("time", { datetime: row.created_at, title: new Date(row.created_at).toLocaleString() }, age(row.created_at)));
    const node = h("div", {
      class: classes.filter(Boolean).join(" "), role: "option", id: `row-${i}`,
      "aria-selected": i === this.index ? "true" : "false", "aria-setsize": this.total, "aria-posinset": i + 1,
      "aria-label": ariaLabel.filter(Boolean).join(", "),
      onclick: () => { this.box.focus({ preventScroll: true }); this.select(i); },
    }, this.graph(row, head), h("div", { class: "text" }, title, side,
      h("span", { class: "preview" }, row.preview ? [role, row.preview] : summary)));
    node.style.top = `${i * ROW_HEIGHT}px`;
    return node;
  }

  graph(row, head) {
    const x = (lane) => 13 + Math.min(lane, MAX_LANES - 1) * LANE_WIDTH;
    const mid = ROW_HEIGHT / 2;
    const colour = (lane) => `l${lane % 5}`;
    const line = (lane, d) => svg("path", { class: `lane ${colour(lane)}`, d });
    const parts = row.through.map((lane) => line(lane, `M${x(lane)} 0V${ROW_HEIGHT}`));
    for (const lane of row.joins) {
      const bend = `V${mid - 9}Q${x(lane)} ${mid} ${x(lane) - 9} ${mid}H${x(row.lane)}`;
      parts.push(line(lane, `M${x(lane)} 0${lane === row.lane ? `V${mid}` : bend}`));
    }
    if (row.open) parts.push(line(row.lane, `M${x(row.lane)} ${mid}V${ROW_HEIGHT}`));
    const dot = `dot ${colour(row.lane)}${head ? " head" : ""}`;
    parts.push(svg("circle", { class: dot, cx: x(row.lane), cy: mid, r: head ? 6 : 4.5 }));
    const width = 18 + this.lanes * LANE_WIDTH;
    return svg("svg", { class: "graph", width, height: ROW_HEIGHT, "aria-hidden": "true" }, parts);
  }
}
