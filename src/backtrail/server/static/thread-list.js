// The list of threads on the left: filtered by the server, newest first, kept up to date by events. Only visible rows are
// in the page, and pages are fetched as the reader gets there, so a million threads scroll like a hundred.

import { fragmentOf } from "./address.js";
import { get } from "./api.js";
import { $, attempt, h } from "./dom.js";
import { age, plural } from "./format.js";

const ROW_HEIGHT = 62;
const PAGE_SIZE = 100;
const FILTERS = ["kind", "since", "until", "label", "tag", "prefix", "is", "text"];

// Words like `kind:run` are filters, everything else is part of the name. `text:` takes the rest of the line.
export function parseSearch(text) {
  const found = { search: [] };
  const at = /(?:^|\s)text:(.*)$/.exec(text);
  if (at) found.text = at[1].trim();
  for (const word of (at ? text.slice(0, at.index) : text).split(/\s+/).filter(Boolean)) {
    const [, name, value] = /^(\w+):(.*)$/.exec(word) ?? [];
    if (FILTERS.includes(name)) found[name] = value;
    else found.search.push(word);
  }
  return { ...found, search: found.search.join(" ") };
}

export class ThreadList {
  // `onSearch(text)` is called when a search was typed that has an address of its own.
  constructor(onSearch) {
    this.onSearch = onSearch;
    this.box = $("thread-list");
    this.sheet = h("ul", { class: "sheet" });
    this.box.append(this.sheet);
    this.infos = []; // newest first, as far as they are loaded
    this.next = null;
    this.chosen = null;
    this.link = (thread) => fragmentOf({ thread });
    let timer;
    $("search").addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        this.onSearch($("search").value.trim() || null);
        attempt(() => this.load());
      }, 150);
    });
    $("search").addEventListener("keydown", (event) => {
      if (event.key === "Escape") event.target.blur();
      if (event.key === "Enter") this.sheet.querySelector("a")?.click();
      if (event.key === "ArrowDown") {
        event.preventDefault();
        this.sheet.querySelector("a")?.focus();
      }
    });
    this.box.addEventListener("keydown", (event) => this.onKey(event));
    this.box.addEventListener("scroll", () => requestAnimationFrame(() => this.draw()), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.box);
    setInterval(() => this.refreshAges(), 10000);
  }

  get filters() { return parseSearch($("search").value.trim()); }

  get prefix() { return this.filters.prefix ?? ""; }

  start(place) { $("search").value = place.search ?? ""; }

  show(place) {
    if (document.activeElement !== $("search")) $("search").value = place.search ?? "";
    if (this.chosen === place.thread) return;
    this.chosen = place.thread;
    this.draw();
  }

  async page(after) {
    const { text, is, ...given } = this.filters;
    const flags = { failed: is === "failed" || null, damaged: is === "damaged" || null, waiting: is === "waiting" || null };
    return get("/threads", { ...given, ...flags, after, limit: PAGE_SIZE, describe: true });
  }

  async load() {
    const asked = $("search").value;
    try {
      const found = await this.page(null);
      if (asked !== $("search").value) return;
      [this.infos, this.next] = [found.threads, found.next];
      $("filter-note").hidden = true;
    } catch (error) {
      $("filter-note").textContent = error.message;
      $("filter-note").hidden = false;
      [this.infos, this.next] = [[], null];
    }
    this.draw();
  }

  async more() {
    if (!this.next || this.loading) return;
    this.loading = true;
    const asked = $("search").value;
    const found = await this.page(this.next).finally(() => { this.loading = false; });
    if (asked !== $("search").value) return;
    const known = new Set(this.infos.map((info) => info.id));
    this.infos.push(...found.threads.filter((info) => !known.has(info.id)));
    this.next = found.next;
    this.draw();
  }

  // Threads that changed come to the top; with filters, the server says which of them are shown.
  update(infos, deleted) {
    const gone = new Set(deleted);
    const anchor = this.anchor(new Set([...infos.map((info) => info.id), ...deleted]));
    const { search, text, ...rest } = this.filters;
    if (!Object.keys(rest).length && !text) {
      const changed = infos.filter((info) => info.id.toLowerCase().includes(search.toLowerCase()));
      const ids = new Set(changed.map((info) => info.id));
      const before = new Map(this.infos.map((info) => [info.id, info]));
      const newest = changed.map((info) => ({ ...before.get(info.id), ...info })).sort((a, b) => (a.updated_at < b.updated_at ? 1 : -1));
      this.moved = ids;
      this.infos = [...newest, ...this.infos.filter((info) => !ids.has(info.id))];
    }
    this.infos = this.infos.filter((info) => !gone.has(info.id));
    this.hold(anchor);
    this.draw();
    this.describeSoon();
  }

  // The first thread in sight of those that stay where they are, if the list is scrolled: it shall stay in sight.
  anchor(moving) {
    if (!this.box.scrollTop) return null;
    const at = this.infos.findIndex((info, i) => (i + 1) * ROW_HEIGHT > this.box.scrollTop && !moving.has(info.id));
    return at < 0 ? null : { id: this.infos[at].id, at };
  }

  hold(anchor) {
    if (!anchor) return;
    const at = this.infos.findIndex((info) => info.id === anchor.id);
    if (at < 0 || at === anchor.at) return;
    this.sheet.style.height = `${this.infos.length * ROW_HEIGHT}px`;
    this.box.scrollTop += (at - anchor.at) * ROW_HEIGHT;
  }

  // The newest threads again, with titles and last messages: at most every two seconds, and only while they are in sight.
  describeSoon() {
    if (this.timer || this.box.scrollTop > ROW_HEIGHT * PAGE_SIZE / 2) return;
    this.timer = setTimeout(() => attempt(async () => {
      this.timer = null;
      const found = await this.page(null);
      const ids = new Set(found.threads.map((info) => info.id));
      const anchor = this.anchor(new Set());
      this.infos = [...found.threads, ...this.infos.filter((info) => !ids.has(info.id))];
      if (!found.next) [this.infos, this.next] = [found.threads, null];
      this.hold(anchor);
      this.draw();
    }), 2000);
  }

  draw() {
    const focused = document.activeElement?.dataset?.thread;
    const total = this.infos.length;
    this.sheet.style.height = `${Math.max(1, total) * ROW_HEIGHT}px`;
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW_HEIGHT) - 4);
    const last = Math.min(total, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW_HEIGHT) + 4);
    const none = $("search").value.trim() ? "No thread matches." : "No threads yet. They appear here as agents save.";
    const nodes = this.infos.slice(first, last).map((info, i) => this.item(info, first + i));
    this.sheet.replaceChildren(...(total ? nodes : [h("li", { class: "none" }, none)]));
    if (this.next && last > total - 30) attempt(() => this.more());
    if (focused) [...this.sheet.querySelectorAll("a")].find((node) => node.dataset.thread === focused)?.focus({ preventScroll: true });
    this.moved = null;
  }

  item(info, i) {
    const cut = info.id.lastIndexOf("/") + 1;
    const prefix = cut > 1 ? h("span", { class: "prefix" }, info.id.slice(0, cut)) : null;
    const status = ["waiting", "failed"].includes(info.status) ? null : info.status; // those are marked
    const kind = info.kind === "thread" ? "" : ` · ${[info.kind, status].filter(Boolean).join(", ")}`;
    const marks = [
      info.damage ? h("span", { class: "damaged", title: info.damage }, "damaged") : null,
      info.failed ? h("span", { class: "failure" }, "failed") : null, info.status === "waiting" ? h("span", { class: "tag" }, "waiting") : null,
      info.label ? h("span", { class: "label" }, info.label) : null,
    ].filter(Boolean);
    const node = h("li", { class: "place" },
      h("a", {
        class: this.moved?.has(info.id) ? "thread moved" : "thread", data: { thread: info.id }, title: info.id,
        href: this.link(info.id), "aria-current": info.id === this.chosen ? "true" : null,
      }, h("span", { class: "name" }, prefix, info.id.slice(cut)),
        h("time", { datetime: info.updated_at }, age(info.updated_at)),
        info.title ? h("span", { class: "told", dir: "auto" }, info.title) : null,
        h("span", { class: "sub" }, marks, marks.length ? " " : null, plural(info.step, "step") + kind,
          info.last ? [" · ", h("span", { dir: "auto" }, info.last)] : null)));
    node.style.top = `${i * ROW_HEIGHT}px`;
    return node;
  }

  onKey(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const at = this.infos.findIndex((info) => info.id === document.activeElement?.dataset?.thread);
    if (!step || at < 0) return;
    event.preventDefault();
    const to = at + step;
    if (to < 0) return $("search").focus();
    if (to >= this.infos.length) return;
    const top = to * ROW_HEIGHT;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (top + ROW_HEIGHT > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + ROW_HEIGHT - this.box.clientHeight;
    this.draw();
    [...this.sheet.querySelectorAll("a")].find((node) => node.dataset.thread === this.infos[to].id)?.focus({ preventScroll: true });
  }

  refreshAges() {
    for (const node of this.sheet.querySelectorAll("time")) node.textContent = age(node.dateTime);
  }
}
