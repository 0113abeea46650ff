// The keyboard. Every key has a button that does the same.

import { $, copy } from "./dom.js";
import { showKeys } from "./dialogs.js";
import { views } from "./headings.js";

export function bindKeys(app) {
  const { actions } = app;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
    const tab = app.row ? views(app)[Number(event.key) - 1] : null;
    const change = !app.readOnly && app.row;
    const keys = {
      j: () => app.steps.move(1), k: () => app.steps.move(-1), g: () => app.steps.newest(), G: () => app.steps.oldest(),
      "/": () => { app.showPane("threads"); $("search").focus(); $("search").select(); },
      s: () => app.row && $("find").focus(), n: () => app.find.step(1), N: () => app.find.step(-1),
      F: () => app.row && app.filter.toggle(true),
      x: () => app.row && app.find.nextFailure(),
      t: () => app.row && app.go({ list: app.place.list === "turns" ? null : "turns" }),
      "?": showKeys, l: () => change && actions.label(), f: () => change && actions.fork(), r: () => change && actions.rewind(),
      u: () => change && actions.undo(), U: () => change && actions.redo(), c: () => app.row && actions.compare(),
      p: () => app.row && actions.resume(), e: () => app.row && actions.exportCheckpoint(),
      y: () => app.row && copy(app.linkTo({ ...app.place, at: app.row.id }), "a link to this step"),
    };
    const run = tab ? () => app.chooseView(tab[0]) : Object.hasOwn(keys, event.key) ? keys[event.key] : null;
    if (!run) return;
    event.preventDefault();
    run();
  });
  $("keys").addEventListener("click", showKeys);
  for (const list of [$("rows"), $("kept")]) {
    list.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.target !== list) return;
      app.showPane("detail");
      $("view").focus();
    });
  }
}
