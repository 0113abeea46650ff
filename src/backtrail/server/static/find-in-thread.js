// Find in a thread: words in messages, and filters like role:tool, tool:bash, is:failed, label:x, tag:y, since:2026-11-01.
// The server looks through the whole conversation and the whole history; a match is opened wherever it is.

import { getLines } from "./api.js";
import { $, attempt, h } from "./dom.js";
import { plural } from "./format.js";

const MOST = 500;
const NARROW = 24; // characters before a match: the list is narrow, and the match is to be seen
const FILTERS = ["role", "tool", "label", "tag", "since", "until"];

// The parameters of `/find` for a line of words and filters.
export function findQuery(line) {
  const query = {};
  const words = [];
  for (const word of line.match(/(?:[^\s"]|"[^"]*")+/g) ?? []) {
    const [, name, value] = /^(\w+):(.*)$/.exec(word) ?? [];
    if (FILTERS.includes(name)) query[name] = value.replaceAll('"', "");
    else if (word === "is:failed") query.failed = true;
    else words.push(word.replaceAll('"', ""));
  }
  return words.length ? { ...query, text: words.join(" ") } : query;
}

export class FindInThread {
  constructor(app) {
    this.app = app;
    this.box = $("found");
    this.matches = [];
    this.at = -1;
    this.asked = null;
    const input = $("find");
    input.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { input.value = ""; input.blur(); this.app.go({ find: null }, { replace: true }); }
      if (event.key !== "Enter") return;
      event.preventDefault();
      if (input.value.trim() === (this.asked ?? "")) this.step(event.shiftKey ? -1 : 1);
      else this.app.go({ find: input.value.trim() || null }, { replace: true });
    });
    input.addEventListener("search", () => { if (!input.value) this.app.go({ find: null }, { replace: true }); });
  }

  show(line) {
    const asked = line ? `${this.app.place.thread}\n${line}` : null;
    if (asked === this.key) return;
    this.key = asked;
    this.asked = line;
    if (document.activeElement !== $("find")) $("find").value = line ?? "";
    this.stop?.abort();
    this.matches = [];
    this.at = -1;
    this.box.hidden = !line;
    if (line) attempt(() => this.run(line));
  }

  async run(line) {
    const stop = (this.stop = new AbortController());
    const list = h("ol", {});
    const note = h("p", { class: "dim", role: "status" }, "looking …");
    this.box.replaceChildren(note, list);
    const { thread } = this.app.place;
    for await (const match of getLines("/find", { ...findQuery(line), thread, limit: MOST }, stop.signal)) {
      if (match.error) {
        note.textContent = match.error;
        return;
      }
      if (match.done) break;
      const number = this.matches.push(match) - 1;
      list.append(h("li", {}, h("button", { type: "button", onclick: () => this.go(number) },
        h("span", { class: `role ${match.role ?? ""}` }, match.number === null ? `step ${match.step}` : `${match.role} #${match.number}`),
        h("span", { dir: "auto" }, snippet({ ...match, before: match.match ? match.before.slice(-NARROW) : match.before })))));
    }
    note.textContent = this.matches.length ? `${plural(this.matches.length, "match", "matches")}${this.matches.length >= MOST ? " or more" : ""}: n and N step through them` : "nothing found";
  }

  step(by) {
    if (!this.matches.length) return;
    this.go((this.at + by + this.matches.length) % this.matches.length);
  }

  go(number) {
    this.at = number;
    const match = this.matches[number];
    [...this.box.querySelectorAll("li button")].forEach((node, i) => node.classList.toggle("chosen", i === number));
    this.box.querySelector(".chosen")?.scrollIntoView({ block: "nearest" });
    const { head } = this.app.rows;
    const at = match.at === head ? null : match.at;
    if (match.index === null) this.app.go({ at, message: null });
    else this.app.go({ at, message: String(match.index), view: null });
    this.app.showPane("detail");
  }

  // The next tool that failed after the message that is read, from the beginning again after the last.
  async nextFailure() {
    const line = "is:failed";
    if (this.asked !== line) {
      $("find").value = line;
      await this.app.go({ find: line }, { replace: true });
      const started = performance.now();
      while (!this.matches.length && this.box.textContent.includes("looking") && performance.now() - started < 10000) {
        await new Promise((done) => setTimeout(done, 50));
      }
    }
    this.step(1);
  }
}

// The text around a match, with the match marked.
export function snippet({ before, match, after }) {
  return [before ?? "", match ? h("mark", {}, match) : null, after ?? ""];
}
