// The chart above the history: what each step took in bytes or time, or each turn in tokens.

import { get } from "./api.js";
import { $, attempt, h, svg } from "./dom.js";
import { bytes, count, duration } from "./format.js";

const HEIGHT = 44;
const UNITS = {
  written: ["bytes", bytes, "written"], tokens: ["tokens", (n) => `${count(n)} tokens`, "tokens"], seconds: ["time", duration, "since the step before"],
};
let unit = "written";

export async function drawChart(app) {
  const box = $("chart");
  const { thread } = app.place;
  const found = unit === "tokens" ? await tokensOfTurns(thread) : await get("/sizes", { thread });
  if (app.place.thread !== thread) return;
  if (unit !== "written" && found.points.length < 2) {
    unit = "written";
    await drawChart(app);
    return;
  }
  if (found.points.length < 2) {
    box.replaceChildren();
    return;
  }
  const [, shown, title] = UNITS[unit];
  const width = Math.max(200, box.clientWidth - 28);
  const number = Math.min(found.points.length, Math.floor(width / 4));
  const bars = Array.from({ length: number }, (_, i) => {
    const some = found.points.slice(Math.floor((i * found.points.length) / number), Math.floor(((i + 1) * found.points.length) / number));
    return some.reduce((most, point) => (point[unit] > most[unit] ? point : most));
  });
  const most = Math.max(...bars.map((bar) => bar[unit]), 1e-9);
  const largest = Math.max(...bars.map((bar) => bar.size), 1);
  const pitch = Math.min(28, width / number);
  const choose = (step) => attempt(async () => {
    const { id } = await get("/checkpoint", { thread, at: String(step) });
    await app.go({ at: id, message: null });
  });
  const name = unit === "tokens" ? "turn" : "step";
  const nodes = bars.map((bar, i) => {
    const tall = Math.max(1.5, (bar[unit] / most) * (HEIGHT - 8));
    return svg("rect", {
      class: "bar-of", x: i * pitch + 0.5, y: HEIGHT - tall, width: Math.max(1, pitch - 1), height: tall,
      rx: Math.min(1.5, pitch / 4), onclick: () => choose(bar.step),
    }, svg("title", {}, `${name} ${bar.number ?? bar.step}: ${shown(bar[unit])}`));
  });
  const y = (size) => HEIGHT - 3 - (size / largest) * (HEIGHT - 8);
  const line = bars.map((bar, i) => `${i ? "L" : "M"}${(i + 0.5) * pitch} ${y(bar.size)}`).join("");
  const label = `Each of ${found.steps} ${name}s, ${UNITS[unit][0]}: at most ${shown(most)}.`;
  const picture = svg("svg", { width, height: HEIGHT, role: "img", "aria-label": label },
    nodes, svg("path", { class: "sizes", d: line }));
  const select = h("select", { "aria-label": "Chart of", onchange: (event) => { unit = event.target.value; attempt(() => drawChart(app)); } },
    Object.entries(UNITS).map(([id, [name]]) => h("option", { value: id, selected: id === unit }, name)));
  const sum = unit === "written" ? ` ${bytes(found.written)}` : "";
  box.replaceChildren(picture, h("p", {}, h("span", { class: "swatch" }), `${title}${sum}`,
    h("span", { class: "swatch line" }), unit === "tokens" ? "written by the model" : `state ${bytes(found.size)}`, select));
}

// Tokens belong to turns: a step seldom says how many it took.
async function tokensOfTurns(thread) {
  const { turns, total } = await get("/conversation", { thread, limit: 1000 });
  const points = turns.toReversed().filter((turn) => turn.tokens && turn.last).map((turn) => ({
    step: turn.last.step, number: turn.number, tokens: turn.tokens.input + turn.tokens.output, size: turn.tokens.output,
  }));
  return { points, steps: total, size: Math.max(0, ...points.map((point) => point.size)) };
}
