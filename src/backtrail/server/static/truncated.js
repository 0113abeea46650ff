// Texts that the server may have truncated to { $cut: "the start", size: n }.

import { h } from "./dom.js";

export const shownText = (value) => (value && typeof value === "object" ? value.$cut ?? "" : value ?? "");

export const isCut = (value) => Boolean(value && typeof value === "object" && "$cut" in value);

export function cutNote(value) {
  if (!isCut(value)) return null;
  return h("p", { class: "cut" }, `… ${value.size.toLocaleString()} characters; “Whole” shows all`);
}

export const oneLine = (value) => shownText(value).slice(0, 600).replace(/\s+/g, " ").slice(0, 160);
