// The steps that a filter keeps, newest first. The server looks at some hundred steps for each request; the page asks for
// more while there is room for them, and for what came on top while the thread grows.

import { get } from "./api.js";
import { ROW_HEIGHT, checkpointRow } from "./checkpoint-row.js";
import { $, attempt, h } from "./dom.js";
import { plural } from "./format.js";

const PAGE_SIZE = 60;

export class FilteredSteps {
  constructor(app, onSelect) {
    this.app = app;
    this.onSelect = onSelect;
    this.box = $("kept");
    this.note = $("kept-note");
    this.sheet = h("div", { class: "sheet", role: "presentation" });
    this.box.append(this.sheet);
    this.box.addEventListener("scroll", () => requestAnimationFrame(() => { this.draw(); this.fill(); }), { passive: true });
    this.box.addEventListener("keydown", (event) => this.onKey(event));
    new ResizeObserver(() => { this.draw(); this.fill(); }).observe(this.box);
    this.close();
  }

  close() {
    this.stop?.abort();
    this.key = null;
    this.rows = [];
    this.problem = null;
    this.below = null; // the place from which to look further down; null if all were looked at
    this.draw();
  }

  // Shows the steps of a thread that a filter keeps.
  open(thread, filter) {
    const key = JSON.stringify([thread, filter]);
    if (key === this.key) return this.draw();
    this.close();
    Object.assign(this, { key, thread, filter, layout: null, total: 0, below: undefined, stop: new AbortController() });
    this.box.scrollTop = 0;
    return this.fill();
  }

  ask(more) {
    return get("/steps", { thread: this.thread, ...this.filter, limit: PAGE_SIZE, ...more }, this.stop.signal);
  }

  get hasRoom() {
    return this.key !== null && this.below !== null && this.rows.length * ROW_HEIGHT < this.box.scrollTop + 2 * this.box.clientHeight;
  }

  // Asks for more while there is room, or until `until()` holds; one request at a time.
  async fill(until = () => !this.hasRoom) {
    const { key } = this;
    while (this.busy) await this.busy;
    if (this.key !== key || this.below === null || until()) return this.tell();
    this.busy = this.fillUntil(key, until).catch((error) => {
      if (this.key === key) [this.problem, this.below] = [error.message, null];
    });
    await this.busy;
    this.busy = null;
    return this.tell();
  }

  async fillUntil(key, until) {
    while (this.key === key && this.below !== null && !until()) {
      this.tell();
      const page = await this.ask({ below: this.below });
      if (this.key !== key) return;
      if (this.layout !== null && page.layout !== this.layout) {
        this.again();
        return;
      }
      Object.assign(this, { layout: page.layout, below: page.below });
      this.total ||= page.total;
      this.rows.push(...page.rows);
      this.draw();
    }
  }

  // More happened than saves at the head: what is known is wrong.
  again() {
    const { thread, filter } = this;
    this.close();
    this.open(thread, filter);
  }

  // Looks at what came since.
  async refresh() {
    const { key } = this;
    if (key === null || this.layout === null) return;
    const newer = [];
    let below, total;
    while (below !== null) {
      const page = await this.ask({ above: this.total, below });
      if (this.key !== key) return;
      if (page.layout !== this.layout) {
        this.again();
        return;
      }
      newer.push(...page.rows);
      total ??= page.total; // what comes after this is looked at the next time
      below = page.below;
    }
    this.total = total;
    this.rows.unshift(...newer);
    if (this.box.scrollTop > 0) this.box.scrollTop += newer.length * ROW_HEIGHT;
    this.draw();
    this.tell();
  }

  tell() {
    if (this.key === null) return;
    const found = plural(this.rows.length, "step");
    const looked = this.total - (this.below ?? 0);
    const text = this.problem ?? (this.below === null ? `${found} of ${this.total.toLocaleString()}`
      : this.total ? `${found} among the newest ${looked.toLocaleString()} of ${this.total.toLocaleString()}${this.busy ? " …" : ""}` : "looking …");
    if (this.note.textContent !== text) this.note.textContent = text;
  }

  // Where the chosen step is, or would be.
  get index() {
    const { selected, place } = this.app.rows;
    const at = this.rows.findIndex((row) => row.id === selected);
    if (at >= 0) return at;
    const next = this.rows.findIndex((row) => row.place < (place ?? Infinity));
    return (next < 0 ? this.rows.length : next) - 0.5;
  }

  // Down is older.
  async move(step) {
    const to = step > 0 ? Math.floor(this.index + step) : Math.ceil(this.index + step);
    if (to >= this.rows.length) await this.fill(() => this.rows.length > to);
    this.choose(Math.max(0, Math.min(this.rows.length - 1, to)));
  }

  newest() { this.choose(0); }

  async oldest() {
    await this.fill(() => false);
    this.choose(this.rows.length - 1);
  }

  choose(index, how = { replace: true }) {
    const row = this.rows[index];
    if (!row) return;
    const top = index * ROW_HEIGHT;
    const lowest = top + ROW_HEIGHT - this.box.clientHeight;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (lowest > this.box.scrollTop) this.box.scrollTop = lowest;
    this.onSelect(row, how);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.target !== this.box) return;
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 };
    if (event.key in steps) attempt(() => this.move(steps[event.key]));
    else if (event.key === "Home") this.newest();
    else if (event.key === "End") attempt(() => this.oldest());
    else return;
    event.preventDefault();
  }

  draw() {
    const { head, selected, forks } = this.app.rows ?? { forks: new Map() };
    this.sheet.style.height = `${this.rows.length * ROW_HEIGHT}px`;
    this.box.setAttribute("aria-rowcount", this.below === null ? this.rows.length : -1);
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW_HEIGHT) - 6);
    const last = Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW_HEIGHT) + 6;
    this.sheet.replaceChildren(...this.rows.slice(first, last).map((row, i) => checkpointRow(row, {
      index: first + i, id: `kept-${row.place}`, head, thread: this.thread, selected, forks: forks.get(row.id) ?? [], lanes: 1,
      onChoose: () => { this.box.focus({ preventScroll: true }); this.choose(first + i, {}); },
    })));
    const chosen = this.rows.slice(first, last).find((row) => row.id === selected);
    if (chosen) this.box.setAttribute("aria-activedescendant", `kept-${chosen.place}`);
    else this.box.removeAttribute("aria-activedescendant");
  }
}
