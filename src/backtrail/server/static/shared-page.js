// The only script of a shared page: turns its text into Markdown and coloured code, with the same tokens and elements as
// the inspector. Without it the page shows the same text, as it is.

import { coloured, looksLikeDiff, unifiedDiff } from "./code.js";
import { markdown } from "./markdown.js";

const BUSY = 30; // milliseconds after which the browser may draw

function render(node) {
  const text = node.textContent;
  if (node.dataset.as === "markdown") {
    node.replaceChildren(...markdown(text).flat(Infinity).filter((part) => part !== null));
    node.classList.add("rendered");
  } else if (looksLikeDiff(text)) node.replaceWith(unifiedDiff(text));
  else node.replaceChildren(...coloured(text, node.dataset.as));
}

async function renderAll() {
  let began = performance.now();
  for (const node of document.querySelectorAll("[data-as]")) {
    render(node);
    if (performance.now() - began < BUSY) continue;
    await new Promise((done) => { setTimeout(done); });
    began = performance.now();
  }
}

renderAll();
