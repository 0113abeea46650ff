// One row of the history: the step, what it is marked with, what it added, and its part of the graph.

import { fragmentOf } from "./address.js";
import { h, svg } from "./dom.js";
import { age, bytes } from "./format.js";

export const ROW_HEIGHT = 54;
export const MAX_LANES = 8;
const LANE_WIDTH = 14;
const SHOWN_FORKS = 4;
const RELATION = { child: "forked to", parent: "forked from", sibling: "shares its past with" };

const forkMark = () => svg("svg", { width: 10, height: 11, viewBox: "0 0 10 11", "aria-hidden": "true" },
  svg("path", {
    d: "M2 1v3.500a2 2 0 0 0 2 2h2a2 2 0 0 0 2-2V1M5 6.500V10",
    fill: "none", stroke: "currentColor", "stroke-width": 1.5, "stroke-linecap": "round",
  }));

export const forkLink = (fork) => h("a", {
  class: "fork", href: fragmentOf({ thread: fork.thread_id, at: fork.at }), title: `${RELATION[fork.relation]} ${fork.thread_id}`,
  onclick: (event) => event.stopPropagation(),
}, forkMark(), fork.thread_id);

export function blankRow(index) {
  const node = h("div", { class: "row blank", role: "presentation" }, h("i"), h("b"));
  node.style.top = `${index * ROW_HEIGHT}px`;
  return node;
}

// `index`: the place in the list, from the top; `id`: of the element; `head`, `selected`: ids of checkpoints; `lanes`: how
// many the graph has.
export function checkpointRow(row, { index, id, head, thread, selected, forks, lanes, onChoose }) {
  const isHead = row.id === head;
  const inherited = row.thread_id !== thread;
  const classes = ["row", isHead && "is-head", !row.on_trail && "left", inherited && "inherited"];
  const title = h("span", { class: "title" },
    h("b", { class: "step" }, h("span", { class: "unseen" }, "Step "), String(row.step)),
    isHead ? h("span", { class: "unseen" }, "the head") : null,
    row.on_trail ? null : h("span", { class: "unseen" }, "left behind"),
    row.failed ? h("span", { class: "failure", title: "a tool failed" }, "failed") : null,
    row.label ? h("span", { class: "label" }, row.label) : null,
    row.damage ? h("span", { class: "damaged", title: row.damage }, "damaged") : null,
    row.tags.map((tag) => h("span", { class: "tag" }, tag)),
    forks.slice(0, SHOWN_FORKS).map((fork) => {
      const link = forkLink(fork);
      link.tabIndex = -1;
      return link;
    }),
    row.files ? h("span", { class: "tag", title: "with a snapshot of files" }, "files") : null);
  const summary = row.added || "no change";
  const role = row.role && row.role !== "message" ? h("span", { class: `role ${row.role}` }, row.role) : null;
  const side = h("span", { class: "side" },
    h("span", { class: "wrote", title: `${summary}, ${bytes(row.written)} written` }, bytes(row.written)),
    h("time", { datetime: row.created_at, title: new Date(row.created_at).toLocaleString() }, age(row.created_at)));
  const node = h("div", {
    class: classes.filter(Boolean).join(" "), role: "row", id,
    "aria-selected": row.id === selected ? "true" : "false", "aria-rowindex": index + 1, onclick: onChoose,
  }, graph(row, isHead, lanes), h("div", { class: "text", role: "gridcell" },
    title, side, h("span", { class: "preview", dir: "auto" }, row.preview ? [role, row.preview] : summary)));
  node.style.top = `${index * ROW_HEIGHT}px`;
  return node;
}

function graph(row, head, lanes) {
  const x = (lane) => 13 + Math.min(lane, MAX_LANES - 1) * LANE_WIDTH;
  const mid = ROW_HEIGHT / 2;
  const colour = (lane) => `l${lane % 5}`;
  const line = (lane, d) => svg("path", { class: `lane ${colour(lane)}`, d });
  const parts = row.through.map((lane) => line(lane, `M${x(lane)} 0V${ROW_HEIGHT}`));
  for (const lane of row.joins) {
    const bend = `V${mid - 9}Q${x(lane)} ${mid} ${x(lane) - 9} ${mid}H${x(row.lane)}`;
    parts.push(line(lane, `M${x(lane)} 0${lane === row.lane ? `V${mid}` : bend}`));
  }
  if (row.open) parts.push(line(row.lane, `M${x(row.lane)} ${mid}V${ROW_HEIGHT}`));
  const dot = `dot ${colour(row.lane)}${head ? " head" : ""}`;
  parts.push(svg("circle", { class: dot, cx: x(row.lane), cy: mid, r: head ? 6 : 4.5 }));
  return svg("svg", { class: "graph", width: 18 + lanes * LANE_WIDTH, height: ROW_HEIGHT, "aria-hidden": "true" }, parts);
}
