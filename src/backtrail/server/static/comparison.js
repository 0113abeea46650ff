// The view "Compare": the chosen checkpoint beside one of this or another thread. The conversation from the last message
// that both have, the state as changes, and the files as diffs.

import { fragmentOf } from "./address.js";
import { get } from "./api.js";
import { codeBlock, languageOfFile, unifiedDiff } from "./code.js";
import { h } from "./dom.js";
import { plural } from "./format.js";
import { markdown } from "./markdown.js";
import { changeItems } from "./state-diff.js";
import { oneLine, shownText } from "./truncated.js";

export async function drawComparison(view, app, signal) {
  const { thread, with: other, base } = app.place;
  const found = await get("/comparison", { thread, at: app.row.id, other, other_at: base ?? "@" }, signal);
  const link = (side) => h("a", { href: fragmentOf({ thread: side.thread, at: side.checkpoint.id }) },
    `${side.thread} step ${side.checkpoint.step}`);
  const parted = found.ancestor ? `both go on from step ${found.ancestor.step}` : "they have no checkpoint in common";
  const title = h("p", { class: "hint" }, link(found.left), " and ", link(found.right), `: ${parted}. `,
    `${plural(found.same, "message is", "messages are")} the same.`);
  view.replaceChildren(title,
    found.key ? section("Conversation", h("div", { class: "sides" }, column(found.left, link), column(found.right, link))) : "",
    section(`State: ${plural(found.total, "change")}`, h("ul", { class: "changes" }, changeItems(found.changes),
      found.total > found.changes.length ? h("li", { class: "dim" }, `… ${found.total - found.changes.length} more`) : null)),
    found.files ? section(`Files: ${plural(found.files_total, "change")}`, h("ul", { class: "changes" }, found.files.map((file) =>
      h("li", { class: `change ${file.kind}` }, h("header", {}, h("b", {}, file.kind), h("code", {}, file.path)),
        file.text ? unifiedDiff(shownText(file.text), languageOfFile(file.path)) : null)))) : "");
}

const section = (title, body) => h("section", { class: "part" }, h("h3", {}, title), body);

function column(side, link) {
  const rest = side.total - side.messages.length;
  return h("div", { class: "side" }, h("h4", {}, link(side)),
    side.messages.length ? h("ol", { class: "talk" }, side.messages.map(entry(side.thread))) : h("p", { class: "dim" }, "nothing after that"),
    rest > 0 ? h("p", { class: "dim" }, `… ${plural(rest, "message")} more`) : null);
}

// Some frameworks give the results of tools the role of the user, who did not write them.
const role = (message) => (message.role === "user" && message.results.length && !message.text ? "tool" : message.role);

const entry = (side) => (message) => h("li", { class: `message ${role(message)}` },
  h("header", {}, h("span", { class: "who" }, role(message)), h("span", { class: "index" }, `#${message.number}`)),
  message.text ? h("div", { class: "said" }, markdown(shownText(message.text))) : null,
  message.calls.map((call, i) => h("details", { class: "fold call", data: { key: `${side} call ${message.index} ${i}` } },
    h("summary", {}, h("b", {}, call.name), h("span", { class: "args" }, oneLine(call.arguments))), codeBlock(shownText(call.arguments), "json"))),
  message.results.map((result, i) => h("details", { class: result.failed ? "fold call failed" : "fold call", data: { key: `${side} result ${message.index} ${i}` } },
    h("summary", {}, h("b", {}, result.name || "result"), h("span", { class: "args" }, oneLine(result.text))), codeBlock(shownText(result.text)))));
