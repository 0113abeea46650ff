// A tool call and its result as one unit: name, arguments on a line, duration and outcome; the whole of both inside.

import { codeBlock, languageOfFile, lineDiff, looksLikeDiff, unifiedDiff } from "./code.js";
import { h } from "./dom.js";
import { duration } from "./format.js";
import { cutNote, isCut, oneLine, shownText } from "./truncated.js";

const STATES = { waiting: "no result", ok: "done", failed: "failed" };
const PATHS = ["file_path", "path", "filePath", "filename", "file", "notebook_path"];
const SHORT = ["command", "cmd", "pattern", "query", "url", ...PATHS, "description", "prompt"];

export class ToolCall {
  constructor(call, message) {
    this.id = call.id;
    this.name = call.name || "tool";
    this.index = message.index;
    this.began = message.at ?? message.step?.created_at ?? null;
    this.answered = false;
    this.given = parsed(shownText(call.arguments));
    this.state = h("span", { class: "outcome" });
    this.body = h("div", { class: "inside" });
    this.node = h("details", { class: "fold call waiting", data: { tool: this.name } },
      h("summary", {}, h("span", {}, h("b", {}, this.name), h("span", { class: "args" }, this.brief(call.arguments))), this.state),
      this.body);
    this.outcome("waiting", null);
    // What is inside is made when it is opened: most calls never are.
    this.node.addEventListener("toggle", () => { if (this.node.open) this.fill(call, message); }, { once: true });
  }

  brief(raw) {
    const given = this.given;
    const known = given && SHORT.map((name) => given[name]).find((value) => typeof value === "string");
    return oneLine(known ?? raw);
  }

  fill(call) {
    this.body.prepend(...argumentNodes(this.given, call.arguments));
  }

  outcome(state, seconds) {
    this.node.classList.remove("waiting", "ok", "failed");
    this.node.classList.add(state);
    this.state.replaceChildren(seconds !== null ? h("span", { class: "took" }, duration(seconds)) : "",
      h("span", { class: `mark ${state}` }, STATES[state]));
  }

  attach(result, message, images) {
    this.answered = true;
    const ended = message.at ?? message.step?.created_at ?? null;
    const seconds = this.began && ended && ended !== this.began ? (Date.parse(ended) - Date.parse(this.began)) / 1000 : null;
    this.outcome(result.failed ? "failed" : "ok", seconds !== null && seconds >= 0 ? seconds : null);
    this.answer = h("div", {}, resultNodes(result, pathIn(this.given), message.index), images);
    this.body.append(this.answer);
  }

  // Takes over the result of the unit that this one replaces.
  adopt(old) {
    if (!old.answered) return;
    this.answered = true;
    this.answer = old.answer;
    this.body.append(old.answer);
    this.node.classList.remove("waiting");
    this.node.classList.add(...["ok", "failed"].filter((name) => old.node.classList.contains(name)));
    this.state.replaceChildren(...old.state.childNodes);
    this.node.open = old.node.open;
  }
}

export function looseResult(result, message) {
  const state = result.failed ? "failed" : "ok";
  return h("details", { class: `fold call result ${state}` },
    h("summary", {}, h("span", {}, h("b", {}, result.name || "result"), h("span", { class: "args" }, oneLine(result.text))),
      h("span", { class: "outcome" }, h("span", { class: `mark ${state}` }, STATES[state]))),
    h("div", { class: "inside" }, h("div", {}, resultNodes(result, null, message.index))));
}

const pathIn = (given) => (given ? PATHS.map((name) => given[name]).find((value) => typeof value === "string") ?? null : null);

function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

// The arguments: a command as a command, an edit as a difference, a file as code, everything else as JSON.
function argumentNodes(given, raw) {
  if (!given) return [codeBlock(shownText(raw), "json"), cutNote(raw)].filter(Boolean);
  const rest = { ...given };
  const nodes = [];
  const take = (name) => {
    const value = rest[name];
    delete rest[name];
    return value;
  };
  const language = languageOfFile(pathIn(given));
  if (typeof given.command === "string") nodes.push(codeBlock(take("command"), "bash"));
  for (const [old, fresh] of [["old_string", "new_string"], ["oldString", "newString"], ["old_str", "new_str"]]) {
    if (typeof given[old] === "string" && typeof given[fresh] === "string") nodes.push(lineDiff(take(old), take(fresh), language));
  }
  for (const name of ["patch", "diff"]) {
    if (typeof given[name] === "string" && looksLikeDiff(given[name])) nodes.push(unifiedDiff(take(name), language));
  }
  if (typeof given.content === "string" && language) nodes.push(codeBlock(take("content"), language));
  // The line above has the path already.
  const only = nodes.length && Object.keys(rest).every((name) => PATHS.includes(name) || name === "description");
  const left = Object.keys(rest).length && !only ? [codeBlock(JSON.stringify(rest, null, 2), "json")] : [];
  return [...left, ...nodes.flat()];
}

function resultNodes(result, path, index) {
  const text = shownText(result.text);
  if (!text.trim()) return [h("p", { class: "dim" }, "no output")];
  const note = isCut(result.text) ? wholeButton(result, path, index) : null;
  let body;
  if (looksLikeDiff(text)) body = unifiedDiff(text, languageOfFile(path));
  else if (/^\s*[[{]/.test(text) && isJson(text)) body = codeBlock(JSON.stringify(JSON.parse(text), null, 2), "json");
  else body = codeBlock(text, null);
  body.classList.add("output");
  return [body, note].filter(Boolean);
}

// Asks the conversation for the whole result, which it puts in the place of the beginning.
function wholeButton(result, path, index) {
  const put = (whole, node) => node.parentNode.replaceChildren(...resultNodes(whole, path, index));
  const ask = ({ target }) => target.dispatchEvent(new CustomEvent("whole", { bubbles: true, detail: { index, id: result.id, put } }));
  return h("button", { type: "button", class: "more", onclick: ask }, `Show all ${result.text.size.toLocaleString()} characters`);
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
