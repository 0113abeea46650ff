// Texts that the server may have truncated to { $cut: "the start", size: n }.

import { h } from "./dom.js";

export const shownText = (value) => (value && typeof value === "object" ? value.$cut ?? "" : value ?? "");
export const cutNote = (value) =>
  value && typeof value === "object" && "$cut" in value ? h("span", { class: "cut" }, ` … ${value.size.toLocaleString()} characters; export shows all`) : null;
