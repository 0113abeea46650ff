// The page for the operator: what the store holds, how it grew, what could be freed, the mirror, the janitor, and the last
// errors.

import { fragmentOf } from "./address.js";
import { get } from "./api.js";
import { attempt, h, svg, timeAgo } from "./dom.js";
import { bytes, duration, plural } from "./format.js";
import { keepPrices, prices } from "./prices.js";

export async function drawHealth(page) {
  const found = await get("/health");
  const survey = h("button", { type: "button", onclick: () => attempt(async () => {
    survey.disabled = true;
    survey.textContent = "measuring …";
    const more = await get("/health", { survey: true });
    survey.replaceWith(facts({ "reachable": bytes(more.stats.live), "can be freed by prune": bytes(more.stats.garbage) }));
  }) }, "Measure what can be freed");
  const { stats, mirror, janitor, growth } = found;
  page.replaceChildren(h("header", { class: "head" }, h("h2", {}, "Health"), h("p", {}, found.healthy ? "The store answers." : found.problem)),
    h("div", { class: "view health", tabindex: "0" },
      part("Store", facts({
        engine: found.engine, version: found.version, threads: stats.threads?.toLocaleString(), rows: stats.rows?.toLocaleString(),
        blobs: stats.blobs?.toLocaleString(), size: bytes(stats.total ?? stats.bytes ?? 0), "failed writes": String(stats.failed_writes ?? 0),
        "answered in": `${found.seconds.toFixed(3)} s`,
      }), survey),
      part("Growth since the inspector was started", growth.length > 1 ? sparkline(growth) : h("p", { class: "dim" }, "Not enough figures yet: one is kept each minute while a page of the inspector is open.")),
      part("Pending", h("p", { class: "hint" }, found.pending ? h("a", { href: fragmentOf({ search: "is:waiting" }) },
        `${plural(found.pending, "question waits", "questions wait")} for an answer${found.pending >= 100 ? ", or more" : ""}`) : "No question waits for an answer.")),
      part("Mirror", mirror ? facts({
        active: mirror.active, replication: mirror.replication, primary: side(mirror.primary), replica: side(mirror.replica),
        "lineages behind": String(mirror.behind), lag: `${mirror.lag_records.toLocaleString()} records, ${bytes(mirror.lag_bytes)}, ${mirror.lag_seconds.toFixed(1)} s`,
        failovers: String(mirror.failovers), diverged: String(mirror.diverged), "last error": mirror.last_error ?? "none",
        ...(mirror.spool ? { "pending in the spool": `${plural(mirror.spool.records, "save")}, ${bytes(mirror.spool.bytes)}` } : {}),
      }) : h("p", { class: "dim" }, "This store has no mirror.")),
      part("Janitor", janitor ? janitorFacts(janitor) : h("p", { class: "dim" }, "No janitor has worked in this store yet: ", h("code", {}, "store.janitor(every=3600).start()"), " starts one.")),
      part("Last errors", found.errors.length ? h("ul", { class: "plain-list" }, found.errors.map((error) =>
        h("li", {}, timeAgo(error.at), ` ${error.level}: `, h("code", {}, error.message)))) : h("p", { class: "dim" }, "None since the inspector was started.")),
      part("Prices per million tokens", priceTable())));
}

const part = (title, ...body) => h("section", { class: "part" }, h("h3", {}, title), body);

const facts = (pairs) => h("dl", { class: "pairs" }, Object.entries(pairs).filter(([, value]) => value !== undefined)
  .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

function janitorFacts({ running, every, rounds, errors, freed, last_round: last, next_round: next, last_error: error }) {
  const late = next && Date.parse(next) + 60_000 < Date.now();
  const plan = !running || !next ? "none: it was stopped" : late ? [moment(next), " is over: its process may have ended"] : moment(next);
  return facts({
    "last round": last ? timeAgo(last) : "none yet", freed: freed ? freedText(freed) : "nothing yet",
    "next round": plan, every: duration(every), rounds: `${rounds.toLocaleString()}, and ${plural(errors, "that failed", "that failed")}`,
    "last error": error ?? "none",
  });
}

const freedText = (freed) => `${bytes(freed.bytes)}: ${plural(freed.threads, "thread")}, ${plural(freed.checkpoints, "checkpoint")}, ${plural(freed.rows, "row")}, ${plural(freed.blobs, "blob")}`;

const moment = (iso) => h("time", { datetime: iso }, new Date(iso).toLocaleString());

const side = ({ engine, healthy, active, error }) => `${engine}, ${healthy ? "healthy" : `unreachable (${error})`}${active ? ", active" : ""}`;

function sparkline(growth) {
  const [width, height] = [320, 48];
  const sizes = growth.map(([, size]) => size);
  const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
  const x = (i) => (i / (growth.length - 1)) * width;
  const y = (size) => height - 4 - ((size - least) / Math.max(1, most - least)) * (height - 8);
  const line = sizes.map((size, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(size).toFixed(1)}`).join("");
  const label = `From ${bytes(sizes[0])} to ${bytes(sizes.at(-1))}`;
  return h("figure", {}, svg("svg", { width, height, role: "img", "aria-label": label }, svg("path", { class: "sizes", d: line })), h("figcaption", {}, label));
}

// The reader's own prices: none are known here.
function priceTable() {
  const table = h("table", { class: "prices" }, h("thead", {}, h("tr", {}, ["model, or the start of its name", "read", "read from cache", "written"].map((name) => h("th", { scope: "col" }, name)), h("td", {}))));
  const body = h("tbody", {});
  const cell = (name, value, label) => h("td", {}, h("input", { name, value: value ?? "", "aria-label": label, inputmode: name === "model" ? "text" : "decimal" }));
  const save = () => keepPrices([...body.rows].map((row) => {
    const [model, input, cached, output] = [...row.querySelectorAll("input")].map((node) => node.value.trim());
    return { model, input: Number(input) || 0, cached: Number(cached) || 0, output: Number(output) || 0 };
  }).filter((row) => row.model));
  const add = (price = {}) => {
    const line = h("tr", { onchange: save }, cell("model", price.model, "model"), cell("input", price.input, "price of what is read"),
      cell("cached", price.cached, "price of what is read from the cache"), cell("output", price.output, "price of what is written"),
      h("td", {}, h("button", { type: "button", class: "act", onclick: () => { line.remove(); save(); } }, "Remove")));
    body.append(line);
  };
  prices().forEach(add);
  table.append(body);
  return [h("p", { class: "dim" }, "Kept in this browser. A turn shows a cost if its model has a price here, or if its messages say what they cost."),
    table, h("button", { type: "button", onclick: () => add() }, "Add a model")];
}
