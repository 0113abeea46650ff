// The view "Conversation": a window of the messages at a checkpoint. It opens at the newest, loads earlier and later ones
// as the reader gets there, and drops those that are far away. A live agent's messages are appended; nothing that is
// shown is drawn again, and the reader is moved only if the end was in sight.

import { get } from "./api.js";
import { attempt, h, toast } from "./dom.js";
import { plural } from "./format.js";
import { hasCut, messageItem } from "./message.js";

const PAGE_SIZE = 50;
const MOST = 400; // messages in the page at a time
const OVERLAP = 20; // of those shown, compared with what the store has when it grew
const NEAR = 48; // pixels from the end that count as being there

// Pairs the results of tools with their calls, in whichever order they are loaded.
class Tools {
  constructor() {
    this.units = [];
    this.waiting = [];
  }

  add(unit) {
    this.units.push(unit);
    const at = this.waiting.findIndex(({ result, message }) => this.fits(unit, result, message));
    if (at < 0) return;
    const [{ result, message, node, item }] = this.waiting.splice(at, 1);
    unit.attach(result, message, [...item.querySelectorAll(".picture")]);
    node.remove();
    if (!item.querySelector(".content").children.length) item.hidden = true;
  }

  fits(unit, result, message) {
    if (unit.answered || unit.index > message.index) return false;
    return result.id ? unit.id === result.id : !result.name || unit.name === result.name;
  }

  find(result, message) { return this.units.find((unit) => this.fits(unit, result, message)); }

  wait(result, message, node, item) { this.waiting.push({ result, message, node, item }); }

  forget(index) {
    this.units = this.units.filter((unit) => unit.index !== index);
    this.waiting = this.waiting.filter(({ message }) => message.index !== index);
  }
}

export class Conversation {
  constructor(view, links) {
    this.view = view;
    this.links = links;
    this.pill = h("button", { type: "button", class: "pill", hidden: true, onclick: () => this.toEnd() });
    view.after(this.pill);
    view.addEventListener("whole", ({ detail, target }) => attempt(() => this.wholeResult(detail, target)));
    view.addEventListener("scroll", () => this.onScroll(), { passive: true });
    // Images and folds change the height after the messages were added.
    this.heights = new ResizeObserver(() => { if (this.pinned) this.toEnd(); });
    // On a phone the view may be hidden while it is drawn: it lands when it is shown.
    new ResizeObserver(() => { if (this.shown && this.landing && view.clientHeight) this.landing(); }).observe(view);
    this.clear();
  }

  clear() {
    this.place = null;
    this.pinned = false;
    this.landing = null;
    this.unseen = 0;
    this.pill.hidden = true;
    this.heights.disconnect();
  }

  get shown() { return this.place !== null && this.list.isConnected; }

  // Draws the conversation at a checkpoint; false if its state has none. `message`: the index of one to show.
  async show(thread, row, signal, message = null) {
    const start = message === null ? undefined : Math.max(0, message - PAGE_SIZE / 2);
    const page = await get("/messages", { thread, at: row.id, start, limit: PAGE_SIZE }, signal);
    if (message !== null && page.key !== null && message >= page.total) {
      toast(`This link leads to a message that is not there: step ${row.step} has ${plural(page.total, "message")}`, { bad: true });
      return this.show(thread, row, signal);
    }
    this.clear();
    if (page.key === null) return false;
    if (!page.total) {
      this.view.replaceChildren(h("p", { class: "hint" }, "No messages yet."));
      return true;
    }
    this.place = { thread, at: row.id, key: page.key };
    this.signal = signal;
    this.tools = new Tools();
    this.digests = new Map();
    [this.start, this.end, this.total] = [page.start, page.start, page.total];
    this.list = h("ol", { class: "talk" });
    this.earlier = h("button", { type: "button", class: "more", onclick: () => this.load(-1) });
    this.later = h("button", { type: "button", class: "more", onclick: () => this.load(1) });
    this.append(page.messages);
    this.mark(row.id);
    this.view.replaceChildren(this.earlier, this.list, this.later);
    this.heights.observe(this.list);
    this.landing = () => {
      this.landing = null;
      if (message === null) this.land();
      else this.reveal(message);
    };
    if (this.view.clientHeight) this.landing();
    return true;
  }

  // The newest message from its beginning if it is taller than the view, else the end.
  land() {
    const last = [...this.list.children].filter((item) => !item.hidden).at(-1);
    this.toEnd();
    if (last && last.offsetHeight > this.view.clientHeight - NEAR) {
      this.pinned = false;
      this.view.scrollTop = last.offsetTop - this.view.offsetTop - 12;
    }
  }

  toEnd() {
    this.pinned = true;
    this.view.scrollTop = this.view.scrollHeight;
    this.unseen = 0;
    this.pill.hidden = true;
    if (this.end < this.total) attempt(() => this.jumpToEnd());
  }

  async jumpToEnd() {
    const { thread, at } = this.place;
    await this.show(thread, { id: at }, this.signal);
  }

  reveal(index) {
    const item = this.list.querySelector(`[data-index="${index}"]`);
    const target = item?.hidden ? this.tools.units.findLast((unit) => unit.index < index)?.node.closest("li") : item;
    if (!target) return;
    this.pinned = false;
    for (const node of target.querySelectorAll("details.call")) node.open = true;
    target.scrollIntoView({ block: "start" });
    target.classList.add("landed");
    setTimeout(() => target.classList.remove("landed"), 2500);
  }

  onScroll() {
    if (!this.shown) return;
    const { scrollTop, scrollHeight, clientHeight } = this.view;
    this.pinned = scrollHeight - scrollTop - clientHeight < NEAR && this.end === this.total;
    if (this.pinned) {
      this.unseen = 0;
      this.pill.hidden = true;
    }
    if (scrollTop < 300) this.load(-1);
    else if (scrollHeight - scrollTop - clientHeight < 300) this.load(1);
  }

  item(message) {
    this.digests.set(message.index, JSON.stringify(message).length + shortHash(message));
    const whole = hasCut(message) ? () => attempt(() => this.whole(message.index)) : null;
    const item = messageItem(message, { place: this.place, tools: this.tools, links: this.links, whole });
    item.dataset.step = message.step?.id ?? "";
    if (message.bookkeeping) item.hidden = true;
    return item;
  }

  append(messages) {
    this.list.append(...messages.map((message) => this.item(message)));
    this.end = messages.length ? messages.at(-1).index + 1 : this.end;
    this.labels();
  }

  labels() {
    const rest = this.total - this.end;
    this.earlier.textContent = plural(this.start, "earlier message");
    this.earlier.hidden = this.start === 0;
    this.later.textContent = plural(rest, "later message");
    this.later.hidden = rest <= 0;
  }

  mark(step) {
    for (const item of this.list.children) {
      const fresh = item.dataset.step === step;
      item.classList.toggle("fresh", fresh);
      item.querySelector(".new").hidden = !fresh;
    }
  }

  async load(direction) {
    if (this.loading || !this.place) return;
    const from = direction < 0 ? Math.max(0, this.start - PAGE_SIZE) : this.end;
    const limit = direction < 0 ? this.start - from : Math.min(PAGE_SIZE, this.total - this.end);
    if (limit <= 0) return;
    this.loading = true;
    await attempt(async () => {
      const { thread, at } = this.place;
      const page = await get("/messages", { thread, at, start: from, limit }, this.signal);
      if (this.place?.at !== at) return;
      if (direction < 0) this.prepend(page.messages);
      else this.append(page.messages);
      this.trim(direction);
      this.labels();
    });
    this.loading = false;
  }

  prepend(messages) {
    // Newest first, so that each call finds the result that waits for it; the view stays on what is read.
    const height = this.view.scrollHeight;
    for (const message of messages.toReversed()) this.list.prepend(this.item(message));
    this.start = messages[0]?.index ?? this.start;
    this.view.scrollTop += this.view.scrollHeight - height;
  }

  trim(direction) {
    while (this.list.children.length > MOST) {
      const item = direction < 0 ? this.list.lastElementChild : this.list.firstElementChild;
      const index = Number(item.dataset.index);
      const height = this.view.scrollHeight;
      item.remove();
      if (direction > 0) this.view.scrollTop -= height - this.view.scrollHeight;
      this.tools.forget(index);
      this.digests.delete(index);
      if (direction < 0) this.end = index;
      else this.start = index + 1;
    }
  }

  // The same conversation at a newer checkpoint: what is new is appended, what changed is drawn again.
  async follow(row) {
    if (!this.shown) return false;
    const { thread, key } = this.place;
    const first = Math.max(this.start, this.end - OVERLAP);
    const complete = this.end === this.total;
    const page = await get("/messages", { thread, at: row.id, start: first, limit: OVERLAP + 2 * PAGE_SIZE }, this.signal);
    if (page.key !== key || page.total < this.end) return false;
    this.place = { ...this.place, at: row.id };
    const pinned = this.pinned;
    const grown = page.total - this.total;
    this.total = page.total;
    for (const message of page.messages.filter(({ index }) => index < this.end)) {
      if (this.digests.get(message.index) === JSON.stringify(message).length + shortHash(message)) continue;
      this.tools.forget(message.index);
      this.list.querySelector(`[data-index="${message.index}"]`)?.replaceWith(this.item(message));
    }
    // Nothing is dropped that somebody reads: without room the rest comes when they get there.
    const fresh = complete ? page.messages.filter(({ index }) => index >= this.end) : [];
    this.append(pinned ? fresh : fresh.slice(0, Math.max(0, MOST - this.list.children.length)));
    if (pinned) this.trim(1);
    this.labels();
    this.mark(row.id);
    if (pinned) this.toEnd();
    else if (grown > 0) {
      this.unseen += grown;
      this.pill.textContent = `${this.unseen} new ↓`;
      this.pill.hidden = false;
    }
    return true;
  }

  // Fetches a message without cuts.
  async whole(index) {
    const { thread, at } = this.place;
    const page = await get("/messages", { thread, at, start: index, limit: 1, whole: true }, this.signal);
    const before = this.tools.units.filter((unit) => unit.index === index);
    this.tools.forget(index);
    this.list.querySelector(`[data-index="${index}"]`).replaceWith(this.item(page.messages[0]));
    const after = this.tools.units.filter((unit) => unit.index === index);
    before.forEach((unit, n) => after[n]?.adopt(unit));
  }

  async wholeResult({ index, id, put }, button) {
    const { thread, at } = this.place;
    const page = await get("/messages", { thread, at, start: index, limit: 1, whole: true }, this.signal);
    put(page.messages[0].results.find((result) => result.id === id), button);
  }
}

// Of a message's JSON, to see that it changed.
function shortHash(message) {
  let hash = 7;
  for (const character of JSON.stringify(message)) hash = (Math.imul(hash, 31) + character.charCodeAt(0)) | 0;
  return `:${hash}`;
}
