// One message of a conversation: who, what was said, tool calls with their results, images, and what it says of itself.

import { get, getBlob } from "./api.js";
import { codeBlock } from "./code.js";
import { attempt, copy, h } from "./dom.js";
import { bytes, count } from "./format.js";
import { markdown } from "./markdown.js";
import { costOf, money } from "./prices.js";
import { ToolCall, looseResult } from "./tool-call.js";
import { cutNote, isCut, oneLine, shownText } from "./truncated.js";

const ROLES = ["user", "assistant", "tool", "system", "damaged"];
const FOLDED = 1500; // characters of a system prompt that are shown unasked

// `place`: { thread, at, key }. `tools`: an object whose `add(unit)` and `find(result, message)` pair calls and results.
// `links`: { step(id), message(index) } as addresses.
export function messageItem(message, { place, tools, links, whole = null }) {
  const role = ROLES.includes(message.role) ? message.role : "other";
  const shown = h("div", { class: "content" });
  const item = h("li", { class: `message ${role}`, data: { index: message.index }, id: `message-${message.index}` },
    h("header", {},
      h("span", { class: "who" }, message.role),
      h("span", { class: "new", hidden: true }, "new here"),
      facts(message),
      h("span", { class: "acts" },
        button("Copy", () => copy(textOf(message), "the message")),
        button("Raw", (event) => raw(event.target, shown, message, place)),
        whole ? button("Whole", whole) : null,
        h("button", { type: "button", class: "act", onclick: () => copy(links.message(message.index), "a link to it") }, "Link"),
        links.edit ? button("Edit", () => links.edit(message)) : null),
      message.step ? h("a", { class: "index", href: links.step(message), title: `added by step ${message.step.step}` },
        `#${message.number}`) : h("span", { class: "index" }, `#${message.number}`)),
    shown);
  const pictures = message.images.map((image, at) => picture(image, message, at, place));
  const parts = [];
  if (message.thinking) parts.push(fold("thinking", "Thinking", message.thinking));
  if (message.text) parts.push(said(message, role));
  for (const call of message.calls) {
    const unit = new ToolCall(call, message);
    parts.push(unit.node);
    tools.add(unit);
  }
  let unpaired = 0;
  for (const result of message.results) {
    const unit = tools.find(result, message);
    if (unit) unit.attach(result, message, pictures.splice(0));
    else {
      const node = looseResult(result, message);
      parts.push(node);
      unpaired++;
      tools.wait(result, message, node, item);
    }
  }
  for (const extra of message.extra) parts.push(fold("extra", h("span", { class: "args" }, oneLine(extra)), extra));
  parts.push(...pictures);
  shown.append(...parts);
  item.hidden = !parts.length && message.results.length > 0 && !unpaired;
  return item;
}

const button = (name, run) => h("button", { type: "button", class: "act", onclick: run }, name);

function said(message, role) {
  const text = shownText(message.text);
  const body = h("div", { class: "said" }, role === "damaged" ? h("p", {}, text) : markdown(text), cutNote(message.text));
  if (role !== "system" || text.length < FOLDED) return body;
  return h("details", { class: "fold long" }, h("summary", {}, h("span", { class: "args" }, oneLine(text))), body);
}

function facts(message) {
  const { tokens } = message;
  const cost = costOf({ by_model: tokens ? { [message.model ?? ""]: tokens } : {}, cost: message.cost });
  const found = [
    message.model,
    tokens ? `${count(tokens.input)} → ${count(tokens.output)} tokens` : null,
    cost !== null ? money(cost) : null,
  ].filter(Boolean);
  const time = message.at ?? message.step?.created_at;
  return h("span", { class: "facts" }, found.join(" · "),
    time ? h("time", { datetime: time, title: new Date(time).toLocaleString() }, new Date(time).toLocaleTimeString()) : null);
}

function fold(kind, title, body) {
  return h("details", { class: `fold ${kind}` }, h("summary", {}, title),
    h("pre", { tabindex: "0", dir: "auto" }, shownText(body)), cutNote(body));
}

// The bytes of an image come from the store; an address is shown and never loaded.
function picture(image, message, at, place) {
  if (!image.size) return h("p", { class: "unloaded" }, `image at ${image.url.slice(0, 300)}, not loaded`);
  const node = h("img", { class: "picture", alt: `image ${at + 1} of message ${message.number}, ${bytes(image.size)}` });
  attempt(async () => {
    const blob = await getBlob("/image", { thread: place.thread, at: place.at, message: message.index, image: at });
    const address = URL.createObjectURL(blob);
    node.addEventListener("load", () => URL.revokeObjectURL(address), { once: true });
    node.src = address;
  });
  return node;
}

function textOf(message) {
  const calls = message.calls.map((call) => `${call.name}(${shownText(call.arguments)})`);
  const results = message.results.map((result) => shownText(result.text));
  return [shownText(message.text), ...calls, ...results].filter(Boolean).join("\n\n");
}

// Shows a message as it is stored, in place; again, and it is shown as before.
async function raw(act, shown, message, place) {
  const before = shown.querySelector(":scope > .raw");
  if (before) {
    before.remove();
    for (const node of shown.children) node.hidden = false;
    act.textContent = "Raw";
    return;
  }
  await attempt(async () => {
    const path = JSON.stringify([place.key, message.index]);
    const { value } = await get("/value", { thread: place.thread, at: place.at, path });
    for (const node of shown.children) node.hidden = true;
    const block = codeBlock(JSON.stringify(value, null, 2), "json");
    block.classList.add("raw");
    shown.append(block);
    act.textContent = "Rendered";
  });
}

export const hasCut = (message) => [message.text, message.thinking, ...message.extra, ...message.calls.map((c) => c.arguments),
  ...message.results.map((r) => r.text)].some(isCut);
