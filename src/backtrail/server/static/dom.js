// Building the page. Stored content becomes text nodes and never markup: there is no innerHTML anywhere, and the
// content security policy (trusted types) would refuse it.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(node.dataset, value);
    else if (value === true) node.setAttribute(name, "");
    else node.setAttribute(name, value);
  }
  node.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const svg = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);
export const $ = (id) => document.getElementById(id);

export function bytes(count) {
  if (count < 1000) return `${count} B`;
  for (const [unit, size] of [["kB", 1e3], ["MB", 1e6], ["GB", 1e9]]) {
    if (count < size * 1000) return `${(count / size).toFixed(1)} ${unit}`;
  }
  return `${(count / 1e12).toFixed(1)} TB`;
}

export function age(iso) {
  const seconds = Math.max(0, (Date.now() - Date.parse(iso)) / 1000);
  for (const [unit, length] of [["y", 31557600], ["mo", 2629800], ["d", 86400], ["h", 3600], ["m", 60]]) {
    if (seconds >= length) return `${Math.floor(seconds / length)}${unit}`;
  }
  return seconds < 5 ? "now" : `${Math.floor(seconds)}s`;
}

export function when(iso) {
  const passed = age(iso);
  return h("time", { datetime: iso, title: new Date(iso).toLocaleString() }, passed === "now" ? "just now" : `${passed} ago`);
}

export function toast(message, { bad = false, action = null } = {}) {
  const node = h("div", { class: bad ? "toast bad" : "toast" }, h("span", {}, message));
  if (action) node.append(h("button", { type: "button", onclick: () => { node.remove(); action.run(); } }, action.name));
  $("toasts").append(node);
  setTimeout(() => node.remove(), bad ? 9000 : 6000);
}

export const plural = (count, word) => `${count.toLocaleString()} ${word}${count === 1 ? "" : "s"}`;
