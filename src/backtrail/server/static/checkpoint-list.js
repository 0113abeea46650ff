// The history as a list of checkpoints with the graph beside it. Only visible rows are in the page, and only their pages
// are fetched, so ten thousand checkpoints scroll like ten. Rows are counted from the oldest: a new checkpoint comes on
// top and changes the place of no other.

import { get } from "./api.js";
import { MAX_LANES, ROW_HEIGHT, blankRow, checkpointRow } from "./checkpoint-row.js";
import { $, attempt, h } from "./dom.js";

const PAGE_SIZE = 60;
const KEPT = 2000; // rows in memory
const AT_ONCE = 2; // pages that are asked for at a time

const pageOf = (place) => Math.floor(place / PAGE_SIZE);

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
    this.layout = null;
    this.total = 0;
    this.lanes = 1;
    this.rows = new Map(); // place -> row; the oldest is 0
    this.places = new Map(); // id -> place
    this.asked = new Map(); // pages that are on their way
    this.selected = null; // an id
    this.head = null;
    this.kind = null;
    this.forks = new Map();
    this.moreForks = 0;
  }

  // Opens a thread at a checkpoint, or at its head; returns the row.
  async open(thread, at = null) {
    this.clear(thread);
    this.box.scrollTop = 0;
    const pages = [get("/history", { thread, limit: PAGE_SIZE })];
    // Without the second the list is shown all the same: whoever asked for the checkpoint says why there is none.
    if (at) pages.push(get("/history", { thread, limit: PAGE_SIZE, at }).catch(() => null));
    const [first, second] = await Promise.all(pages);
    if (thread !== this.thread) return null;
    this.take(first);
    if (second) this.take(second);
    attempt(() => this.refreshForks());
    return second ? second.rows[second.index - second.start] ?? null : this.find(this.head);
  }

  // Takes in a page. If more happened than saves at the head, all others are forgotten. Pages may come in another order
  // than they were made: one that is older, because the thread has grown since, gives its rows and says nothing of the
  // head; of two that have different layouts nobody can say which is older, so whoever listens asks once more.
  take(page) {
    const grown = page.total - this.total;
    if (page.layout !== this.layout) {
      if (this.layout !== null) this.onLayout?.();
      this.rows.clear();
      this.places.clear();
      this.asked.clear();
    } else if (grown < 0) {
      this.putAll(page);
      return;
    }
    if (this.box.scrollTop > 0 && grown > 0 && this.total) this.box.scrollTop += grown * ROW_HEIGHT;
    this.layout = page.layout;
    this.total = page.total;
    this.lanes = Math.min(page.lanes, MAX_LANES);
    this.head = page.thread.head;
    this.kind = page.thread.kind;
    this.putAll(page);
  }

  putAll(page) {
    page.rows.forEach((row, i) => {
      const place = page.total - 1 - page.start - i;
      this.rows.set(place, row);
      this.places.set(row.id, place);
    });
    this.evict();
    this.draw();
  }

  evict() {
    if (this.rows.size <= KEPT) return;
    const [first, last] = this.visible();
    for (const [place, row] of this.rows) {
      const near = place > this.total - last - 200 && place < this.total - first + 200;
      if (near || row.id === this.selected || row.id === this.head) continue;
      this.rows.delete(place);
      this.places.delete(row.id);
    }
  }

  // Asks for what came since; one request, however long the history.
  async refresh() {
    const thread = this.thread;
    const page = await get("/history", { thread, limit: PAGE_SIZE });
    if (thread !== this.thread) return;
    const changed = page.layout !== this.layout;
    this.take(page);
    if (!changed) return;
    attempt(() => this.refreshForks());
    if (this.selected && !this.places.has(this.selected)) await this.fetchId(this.selected);
  }

  async refreshForks() {
    const thread = this.thread;
    const { forks, more_forks: moreForks } = await get("/thread", { thread });
    if (thread !== this.thread) return;
    this.moreForks = moreForks;
    this.forks = new Map();
    for (const fork of forks) this.forks.set(fork.at, [...(this.forks.get(fork.at) ?? []), fork]);
    this.onForks?.();
    this.draw();
  }

  find(id) { return this.rows.get(this.places.get(id)); }

  async fetchId(id) {
    const thread = this.thread;
    const page = await get("/history", { thread, at: id, limit: PAGE_SIZE });
    if (thread !== this.thread) return undefined;
    this.take(page);
    return page.index === null ? undefined : page.rows[page.index - page.start];
  }

  // The row of the head, which may move while it is asked for.
  async fetchHead() {
    for (;;) {
      const { head } = this;
      const row = this.find(head) ?? await this.fetchId(head);
      if (!row || row.id === this.head) return row;
    }
  }

  // Fetches the page of a place, once. The thread may grow meanwhile: then its rows are further down than they were.
  fetchPlace(place) {
    const page = pageOf(place);
    if (!this.asked.has(page)) this.asked.set(page, this.fetchPage(page).finally(() => this.asked.delete(page)));
    return this.asked.get(page);
  }

  async fetchPage(page) {
    const { thread } = this;
    const limit = Math.min(PAGE_SIZE, this.total - page * PAGE_SIZE);
    for (let tries = 0; tries < 5; tries++) {
      const start = Math.max(0, this.total - page * PAGE_SIZE - limit);
      const found = await get("/history", { thread, start, limit: limit + PAGE_SIZE * (tries + 1) });
      if (thread !== this.thread) return;
      this.take(found);
      if (this.rows.has(page * PAGE_SIZE)) return;
    }
  }

  // Selects a checkpoint by id, which need not be loaded.
  async selectId(id, how = {}) {
    const row = this.find(id) ?? await this.fetchId(id);
    if (row) this.selectRow(row, how);
    return row;
  }

  selectRow(row, how = {}) {
    this.selected = row.id;
    this.scrollTo(this.places.get(row.id));
    this.draw();
    if (!how.quiet) this.onSelect(row, how);
  }

  async selectPlace(place, how) {
    if (!this.rows.has(place)) await this.fetchPlace(place);
    const row = this.rows.get(place);
    if (row) this.selectRow(row, how);
  }

  get place() { return this.places.get(this.selected); }

  // Down is older.
  move(step) {
    if (!this.total) return undefined;
    const place = this.place ?? this.total - 1;
    return attempt(() => this.selectPlace(Math.max(0, Math.min(this.total - 1, place - step)), { replace: true }));
  }

  newest() { return attempt(() => this.selectPlace(this.total - 1, { replace: true })); }

  oldest() { return attempt(() => this.selectPlace(0, { replace: true })); }

  get following() { return this.selected !== null && this.selected === this.head; }

  scrollTo(place) {
    if (place === undefined) return;
    const top = (this.total - 1 - place) * ROW_HEIGHT;
    const lowest = top + ROW_HEIGHT - this.box.clientHeight;
    this.sheet.style.height = `${this.total * ROW_HEIGHT}px`;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (lowest > this.box.scrollTop) this.box.scrollTop = lowest;
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.target !== this.box) return;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
    if (event.key in steps) this.move(steps[event.key]);
    else if (event.key === "Home") this.newest();
    else if (event.key === "End") this.oldest();
    else return;
    event.preventDefault();
  }

  visible() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW_HEIGHT) - 6);
    return [first, Math.min(this.total, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW_HEIGHT) + 6)];
  }

  draw() {
    this.sheet.style.height = `${this.total * ROW_HEIGHT}px`;
    this.box.setAttribute("aria-rowcount", this.total);
    const [first, last] = this.visible();
    const nodes = [];
    for (let i = first; i < last; i++) {
      const row = this.rows.get(this.total - 1 - i);
      nodes.push(row ? this.node(row, i) : blankRow(i));
    }
    this.sheet.replaceChildren(...nodes);
    this.fill();
    const at = this.place === undefined ? -1 : this.total - 1 - this.place;
    if (at >= first && at < last) this.box.setAttribute("aria-activedescendant", `row-${this.place}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  // Asks for what is in sight and missing, a page or two at a time: whoever scrolls through a long history waits for the
  // pages where they stop, and not for all that they passed.
  fill() {
    const [first, last] = this.visible();
    for (let i = first; i < last && this.asked.size < AT_ONCE; i++) {
      const place = this.total - 1 - i;
      if (this.rows.has(place) || this.asked.has(pageOf(place))) continue;
      attempt(() => this.fetchPlace(place).then(() => { if (this.rows.has(place)) this.fill(); }));
    }
  }

  node(row, i) {
    return checkpointRow(row, {
      index: i, id: `row-${this.total - 1 - i}`, head: this.head, thread: this.thread, selected: this.selected,
      forks: this.forks.get(row.id) ?? [], lanes: this.lanes, onChoose: () => { this.box.focus({ preventScroll: true }); this.selectRow(row); },
    });
  }
}
