// The fields that filter the steps and turns of a thread. What they say is part of the address.

import { FILTERS, NO_FILTER, filterOf } from "./address.js";
import { $, h } from "./dom.js";

const ROLES = ["user", "assistant", "tool", "system"];

export class StepFilter {
  constructor(app) {
    this.app = app;
    this.form = $("filters");
    this.button = $("filter");
    const field = (label, node) => h("label", { class: "field" }, h("span", {}, label), node);
    const text = (name, label) => field(label, h("input", { name, autocomplete: "off", spellcheck: "false" }));
    const date = (name, label) => field(label, h("input", { name, type: "date" }));
    this.form.append(
      field("role", h("select", { name: "role" }, h("option", { value: "" }, "any"), ROLES.map((role) => h("option", { value: role }, role)))),
      text("tool", "tool"), text("label", "label"), text("tag", "tag"), date("since", "since"), date("until", "until"),
      h("label", { class: "check" }, h("input", { type: "checkbox", name: "failed", value: "1" }), "failed"),
      h("button", { type: "button", onclick: () => this.clear() }, "Clear"));
    this.form.addEventListener("change", () => this.apply());
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.apply(); });
    this.form.addEventListener("keydown", (event) => { if (event.key === "Escape") this.toggle(false); });
    this.button.addEventListener("click", () => this.toggle(this.form.hidden));
  }

  toggle(open) {
    this.form.hidden = !open;
    this.button.setAttribute("aria-expanded", String(open));
    (open ? this.form.querySelector("select") : this.button).focus();
  }

  apply() {
    const given = new FormData(this.form);
    this.app.go(Object.fromEntries(FILTERS.map((name) => [name, given.get(name)?.trim() || null])));
  }

  clear() {
    this.app.go(NO_FILTER);
    this.form.querySelector("select").focus();
  }

  // The fields as the address says. A role that is not in the list is one of another framework.
  show(place) {
    const filter = filterOf(place);
    const role = this.form.elements.role;
    if (place.role && ![...role.options].some((option) => option.value === place.role)) role.append(h("option", { value: place.role }, place.role));
    for (const name of FILTERS) {
      const node = this.form.elements[name];
      if (node.type === "checkbox") node.checked = Boolean(place[name]);
      else if (node !== document.activeElement || !place[name]) node.value = place[name] ?? "";
    }
    const count = filter ? Object.keys(filter).length : 0;
    this.button.textContent = count ? `Filter (${count})` : "Filter";
    this.button.setAttribute("aria-pressed", String(count > 0));
    if (count && this.form.hidden && !this.seen) {
      this.form.hidden = false;
      this.button.setAttribute("aria-expanded", "true");
    }
    this.seen = true;
  }
}
