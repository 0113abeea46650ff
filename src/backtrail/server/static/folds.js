// Folds whose inside is fetched when they are opened, and the place of a reader in a view that is drawn again because its
// thread has grown: what was open is open, what was typed is there, and the view stays where it was.

import { attempt, h } from "./dom.js";

// A <details> element. `key` names it in its view; `fill()` puts something into `inside` when it is opened.
export function fold(key, props, summary, inside, fill) {
  const node = h("details", { ...props, data: { ...props.data, key } }, summary, inside);
  let filling = null;
  node.fill = () => {
    if (!inside.children.length) filling ??= attempt(fill).finally(() => { filling = null; });
    return filling;
  };
  node.addEventListener("toggle", () => { if (node.open) node.fill(); });
  return node;
}

// Opens all folds that have one of the keys: those inside of others come with them.
export async function openFolds(box, keys) {
  const closed = [...box.querySelectorAll("details[data-key]")].filter((node) => !node.open && keys.has(node.dataset.key));
  if (!closed.length) return;
  await Promise.all(closed.map((node) => {
    node.open = true;
    return node.fill?.();
  }));
  await openFolds(box, keys);
}

// What the reader has open in a view. `shown`: how many entries of each list.
export class ReadersPlace {
  constructor(view) {
    this.view = view;
    this.open = new Set([...view.querySelectorAll("details[open][data-key]")].map((node) => node.dataset.key));
    this.shown = new Map([...view.querySelectorAll("[data-entries]")].map((node) => [node.dataset.entries, node.querySelectorAll(":scope > :not(.rest)").length]));
  }

  // Puts new content into the view.
  async put(content) {
    await openFolds(content, this.open);
    const { view } = this;
    const { scrollTop } = view;
    const focused = view.contains(document.activeElement) ? document.activeElement : null;
    const folded = focused?.closest("details[data-key]")?.dataset.key;
    for (const node of view.querySelectorAll("[data-keep]")) {
      [...content.querySelectorAll("[data-keep]")].find((other) => other.dataset.keep === node.dataset.keep)?.replaceWith(node);
    }
    view.replaceChildren(...content.childNodes);
    view.scrollTop = scrollTop;
    const again = focused?.isConnected ? focused : [...view.querySelectorAll("details[data-key]")].find((node) => node.dataset.key === folded)?.firstChild;
    again?.focus({ preventScroll: true });
  }
}
