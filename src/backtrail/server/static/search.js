// The page of a search for text in all threads. Matches come in as they are found; each leads to its message.

import { fragmentOf } from "./address.js";
import { getLines } from "./api.js";
import { h } from "./dom.js";
import { snippet } from "./find-in-thread.js";
import { plural } from "./format.js";
import { parseSearch } from "./thread-list.js";

const MOST = 500;
let stop = null;

export async function drawSearch(page, line) {
  stop?.abort();
  stop = new AbortController();
  const { signal } = stop;
  const { text, search, prefix, kind } = parseSearch(line);
  const note = h("p", { class: "hint", role: "status" }, "looking …");
  const list = h("ol", { class: "results" });
  page.replaceChildren(h("header", { class: "head" }, h("h2", {}, `Messages with “${text}”`)), h("div", { class: "view", tabindex: "0" }, note, list));
  if (!text) {
    note.textContent = "Type what to look for after text:";
    return;
  }
  let found = 0;
  try {
    for await (const match of getLines("/find", { text, search, prefix, kind, limit: MOST }, signal)) {
      if (match.error) throw new Error(match.error);
      if (match.done) {
        note.textContent = `${plural(found, "message")} in ${plural(match.threads, "thread")}${found >= MOST ? ", and maybe more" : ""}.`;
        return;
      }
      found++;
      note.textContent = `${plural(found, "message")} so far …`;
      list.append(h("li", {}, h("a", { href: fragmentOf({ thread: match.thread, at: match.at, message: match.index, find: text }) },
        h("b", {}, match.thread), h("span", { class: `role ${match.role}` }, ` ${match.role} #${match.number} `), h("span", { dir: "auto" }, snippet(match)))));
    }
  } catch (error) {
    if (error.name !== "AbortError") note.textContent = error.message;
  }
}
