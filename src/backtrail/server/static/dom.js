// Builds elements of the page. Stored content becomes text nodes and never markup: there is no innerHTML anywhere, and
// the content security policy (trusted types) would refuse it.

import { age } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (value === true) node.setAttribute(name, "");
    else node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const svg = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);
export const $ = (id) => document.getElementById(id);

// A <time> element: how long ago, with the date as its tooltip.
export function timeAgo(iso) {
  const passed = age(iso);
  const title = new Date(iso).toLocaleString();
  return h("time", { datetime: iso, title }, passed === "now" ? "just now" : `${passed} ago`);
}

// A note at the edge of the page that goes away by itself.
export function toast(message, { bad = false, action = null } = {}) {
  const node = h("div", { class: bad ? "toast bad" : "toast" }, h("span", {}, message));
  const act = () => {
    node.remove();
    action.run();
  };
  if (action) node.append(h("button", { type: "button", onclick: act }, action.name));
  $("toasts").append(node);
  setTimeout(() => node.remove(), bad ? 9000 : 6000);
}

export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    toast(`Copied ${what}`);
  } catch {
    toast(`This browser does not let a page copy: ${text.slice(0, 400)}`, { bad: true });
  }
}

// Runs something; an error becomes a toast.
export async function attempt(run) {
  try {
    return await run();
  } catch (error) {
    if (error.name !== "AbortError") toast(error.message, { bad: true });
    return undefined;
  }
}

// Saves text or a blob as a file.
export function download(content, name) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content]));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
