// The list of threads on the left: searched by the server, newest first, kept up to date by events.

import { get } from "./api.js";
import { $, h } from "./dom.js";
import { age, plural } from "./format.js";

export class ThreadList {
  constructor(onChoose) {
    this.onChoose = onChoose;
    this.list = $("thread-list");
    this.known = new Map();
    this.chosen = null;
    this.next = null;
    let timer;
    $("search").addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.load(), 120);
    });
    $("search").addEventListener("keydown", (event) => {
      if (event.key === "Escape") event.target.blur();
      if (event.key === "Enter" && this.list.firstElementChild) this.list.querySelector("button")?.click();
      if (event.key === "ArrowDown") {
        event.preventDefault();
        this.list.querySelector("button")?.focus();
      }
    });
    this.list.addEventListener("keydown", (event) => {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const buttons = [...this.list.querySelectorAll("button")];
      const at = buttons.indexOf(document.activeElement) + step;
      (buttons[at] ?? (at < 0 ? $("search") : buttons.at(-1))).focus();
    });
    setInterval(() => this.refreshAges(), 10000);
  }

  get search() { return $("search").value.trim(); }

  async load(more = false) {
    const search = this.search;
    const page = await get("/threads", { search, after: more ? this.next : null, limit: 100 });
    if (search !== this.search) return;
    if (!more) this.known.clear();
    for (const info of page.threads) this.known.set(info.id, info);
    this.next = page.next;
    this.draw();
  }

  update(infos, deleted) {
    const wanted = this.search.toLowerCase();
    for (const id of deleted) this.known.delete(id);
    for (const info of infos) if (info.id.toLowerCase().includes(wanted)) this.known.set(info.id, info);
    this.draw(new Set(infos.map((info) => info.id)));
  }

  choose(id) {
    this.chosen = id;
    this.draw();
  }

  draw(moved = new Set()) {
    const focused = document.activeElement?.dataset?.thread;
    const infos = [...this.known.values()].sort((a, b) => (a.updated_at < b.updated_at ? 1 : -1));
    const items = infos.map((info) => this.item(info, moved.has(info.id)));
    const none = this.search ? "No thread matches." : "No threads yet. They appear here as agents save.";
    if (!infos.length) items.push(h("li", { class: "none" }, none));
    const more = h("button", { class: "more", type: "button", onclick: () => this.load(true) }, "More threads");
    if (this.next) items.push(h("li", {}, more));
    this.list.replaceChildren(...items);
    if (focused) [...this.list.querySelectorAll("button")].find((node) => node.dataset.thread === focused)?.focus();
  }

  item(info, moved) {
    const cut = info.id.lastIndexOf("/") + 1;
    const prefix = cut > 1 ? h("span", { class: "prefix" }, info.id.slice(0, cut)) : null;
    const name = h("span", { class: "name" }, prefix, info.id.slice(cut));
    const kind = info.kind === "thread" ? "" : ` · ${info.kind}`;
    const damage = info.damage ? h("span", { class: "damaged", title: info.damage }, "damaged") : null;
    const facts = h("span", { class: "sub" }, plural(info.step, "step") + kind, damage && " · ", damage);
    const time = h("time", { datetime: info.updated_at }, age(info.updated_at));
    return h("li", {},
      h("button", {
        type: "button", class: moved ? "thread moved" : "thread", data: { thread: info.id }, title: info.id,
        "aria-current": info.id === this.chosen ? "true" : null, onclick: () => this.onChoose(info.id),
      }, name, time, facts));
  }

  refreshAges() {
    for (const node of this.list.querySelectorAll("time")) node.textContent = age(node.dateTime);
  }
}
