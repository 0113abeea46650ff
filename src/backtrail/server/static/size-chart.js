// The chart above the history: bytes written by each step as bars, the size of the state as a line. Ten thousand steps
// become as many bars as fit; a bar stands for the largest of its steps.

import { get } from "./api.js";
import { $, h, svg } from "./dom.js";
import { bytes } from "./format.js";

const HEIGHT = 44;

export async function drawSizeChart(thread, onStep) {
  const box = $("chart");
  const { steps, written: total, size: large, points } = await get("/sizes", { thread });
  if (points.length < 2) {
    box.replaceChildren();
    return;
  }
  const width = Math.max(200, box.clientWidth - 28);
  const count = Math.min(points.length, Math.floor(width / 4));
  const bars = Array.from({ length: count }, (_, i) => {
    const some = points.slice(Math.floor((i * points.length) / count), Math.floor(((i + 1) * points.length) / count));
    return some.reduce((most, point) => (point[1] > most[1] ? point : most));
  });
  const most = Math.max(...bars.map((bar) => bar[1]), 1);
  const largest = Math.max(...bars.map((bar) => bar[2]), 1);
  const pitch = Math.min(28, width / count);
  const nodes = bars.map(([step, written], i) => {
    const tall = Math.max(1.5, (written / most) * (HEIGHT - 8));
    return svg("rect", {
      class: "bar-of", x: i * pitch + 0.5, y: HEIGHT - tall, width: Math.max(1, pitch - 1), height: tall,
      rx: Math.min(1.5, pitch / 4), onclick: () => onStep(step),
    }, svg("title", {}, `step ${step}: ${bytes(written)} written`));
  });
  const y = (size) => HEIGHT - 3 - (size / largest) * (HEIGHT - 8);
  const line = bars.map(([, , size], i) => `${i ? "L" : "M"}${(i + 0.5) * pitch} ${y(size)}`).join("");
  const label = `Bytes written by each of ${steps} steps: at most ${bytes(most)}; the state has ${bytes(large)}.`;
  const picture = svg("svg", { width, height: HEIGHT, role: "img", "aria-label": label },
    nodes, svg("path", { class: "sizes", d: line }));
  box.replaceChildren(picture, h("p", {},
    h("span", { class: "swatch" }), `written ${bytes(total)}`,
    h("span", { class: "swatch line" }), `state ${bytes(large)}`));
}
