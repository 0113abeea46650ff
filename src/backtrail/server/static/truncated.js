// Texts that the server may have truncated to { $cut: "the start", size: n }.

import { h } from "./dom.js";

export const shownText = (value) => (value && typeof value === "object" ? value.$cut ?? "" : value ?? "");

export function cutNote(value) {
  if (!value || typeof value !== "object" || !("$cut" in value)) return null;
  return h("span", { class: "cut" }, ` … ${value.size.toLocaleString()} characters; export shows all`);
}
