// The view "Run": the steps of a durable run as a timeline, and what it waits for, with a form for the answer.

import { get, post } from "./api.js";
import { codeBlock } from "./code.js";
import { attempt, h, timeAgo, toast } from "./dom.js";
import { count, duration, plural } from "./format.js";
import { costOf, money } from "./prices.js";

export async function drawRun(view, app, signal) {
  const { thread } = app.place;
  const run = await get("/run", { thread }, signal);
  const resubmit = run.status === "failed" && !app.readOnly ? h("button", { type: "button", onclick: () => attempt(async () => {
    await post("/resubmit", { thread });
    toast("The run is ready again: a worker takes it up");
    app.redraw();
  }) }, "Try again") : null;
  view.replaceChildren(
    h("p", { class: "hint" }, h("b", { class: `run-status ${run.status}` }, run.status), run.task ? ` · ${run.task}` : "",
      ` · ${plural(run.steps_total, "step")}`, run.due_at ? [" · due ", new Date(run.due_at).toLocaleString()] : null, " ", resubmit),
    run.error ? h("p", { class: "problem" }, failure(run.error)) : "",
    ...run.questions.map((question) => questionForm(question, app)),
    timeline(run, app),
    run.result !== null ? section("Result", codeBlock(JSON.stringify(run.result, null, 2), "json")) : "");
}

const failure = (error) => (error.message ? `${error.type}: ${error.message}` : error.type);
const section = (title, body) => h("section", { class: "part" }, h("h3", {}, title), body);

function timeline(run, app) {
  if (!run.steps.length) return h("p", { class: "dim" }, "No steps are recorded.");
  const begin = Date.parse(run.steps[0].started_at);
  const end = Math.max(...run.steps.map((step) => Date.parse(step.started_at) + step.seconds * 1000), begin + 1);
  const left = run.steps_total - run.steps.length;
  return h("ol", { class: "timeline", "aria-label": "Steps" }, left > 0 ? h("li", { class: "dim" }, `… ${plural(left, "earlier step")}`) : null,
    run.steps.map((step, index) => {
      const bar = h("i", { class: `span ${step.status}` });
      const at = (Date.parse(step.started_at) - begin) / (end - begin);
      bar.style.marginLeft = `${(at * 100).toFixed(2)}%`;
      bar.style.width = `${Math.max(0.6, ((step.seconds * 1000) / (end - begin)) * 100).toFixed(2)}%`;
      const cost = costOf({ by_model: step.tokens ? { [step.model ?? ""]: step.tokens } : {}, cost: step.cost });
      const facts = [step.kind === "step" ? "" : step.kind, duration(step.seconds), step.attempts > 1 ? plural(step.attempts, "attempt") : "",
        step.tokens ? `${count(step.tokens.input)} tokens read, ${count(step.tokens.output)} written` : "",
        cost !== null ? money(cost) : "", step.by ? `by ${step.by}` : ""].filter(Boolean).join(" · ");
      const inside = [step.error ? h("p", { class: "problem" }, failure(step.error)) : null,
        step.result !== null ? codeBlock(JSON.stringify(step.result, null, 2), "json") : null,
        app.readOnly ? null : h("button", { type: "button", class: "act", onclick: () => forkAt(left + index + 1, app) }, "Fork before this step")];
      return h("li", {}, h("details", { class: "fold call", data: { key: `step ${left + index}` } }, h("summary", {}, h("span", {}, h("b", {}, step.name),
        step.key !== null ? h("span", { class: "args" }, String(step.key)) : null), h("span", { class: "outcome" }, facts,
        h("span", { class: `mark ${step.status === "failed" ? "failed" : step.status === "started" ? "waiting" : "ok"}` }, step.status))),
      h("div", { class: "inside" }, inside)), h("div", { class: "track", "aria-hidden": "true" }, bar));
    }));
}

const forkAt = (number, app) => attempt(async () => {
  const made = await post("/fork_run", { thread: app.place.thread, step: number });
  toast(`Forked to ${made.thread.id}`);
  await app.actions.open(made.thread.id);
});

// A question with the form that its schema asks for.
function questionForm(question, app) {
  const fields = answerFields(question.schema);
  const send = (value) => attempt(async () => {
    await post("/answer", { thread: question.run_id, name: question.name, value, digest: question.digest, by: by.value.trim() || null });
    toast(`Answered ${question.name}`);
    app.redraw();
  });
  const by = h("input", { name: "by", autocomplete: "name", "aria-label": "Your name" });
  const buttons = fields.choices
    ? fields.choices.map((choice, i) => h("button", { type: "button", class: i ? "" : "primary", onclick: () => send(choice) }, choice === true ? "Yes" : choice === false ? "No" : String(choice)))
    : [h("button", { type: "submit", class: "primary" }, "Answer")];
  const form = h("form", { class: "question", data: { keep: `question ${question.name} ${question.digest}` }, onsubmit: (event) => { event.preventDefault(); attempt(async () => send(fields.read())); } },
    h("h3", {}, `Waits for an answer: ${question.name}`),
    h("p", { dir: "auto", class: "plain" }, typeof question.question === "string" ? question.question : JSON.stringify(question.question, null, 1)),
    question.about !== null ? codeBlock(JSON.stringify(question.about, null, 2), "json") : null,
    h("p", { class: "dim" }, "asked ", timeAgo(question.asked_at), question.expires_at ? `, expires ${new Date(question.expires_at).toLocaleString()}` : ""),
    fields.nodes, h("label", {}, h("span", {}, "Your name "), by), h("div", { class: "buttons" }, buttons));
  if (app.readOnly) form.querySelectorAll("button").forEach((button) => { button.disabled = true; });
  return form;
}

function answerFields(schema) {
  if (schema?.type === "boolean") return { choices: [true, false] };
  if (Array.isArray(schema?.enum) && schema.enum.length <= 6) return { choices: schema.enum };
  if (schema?.type === "object" && schema.properties) {
    const required = new Set(schema.required ?? []);
    const parts = Object.entries(schema.properties).map(([name, inner]) => [name, input(inner, name, required.has(name))]);
    const read = () => Object.fromEntries(parts.map(([name, part]) => [name, part.read()]).filter(([, value]) => value !== undefined));
    return { nodes: parts.map(([, part]) => part.node), read };
  }
  const one = input(schema, "Answer");
  return { nodes: [one.node], read: one.read };
}

// A field that is not required and stays empty reads as undefined: it is left out of the answer.
function input(schema, name, required = true) {
  const label = (node) => h("label", {}, h("span", {}, `${name} `), node);
  if (schema?.type === "boolean") {
    const box = h("input", { type: "checkbox" });
    return { node: label(box), read: () => box.checked };
  }
  if (Array.isArray(schema?.enum)) {
    const none = required ? null : h("option", { value: -1 }, "");
    const select = h("select", {}, none, schema.enum.map((choice, i) => h("option", { value: i }, String(choice))));
    return { node: label(select), read: () => schema.enum[Number(select.value)] };
  }
  if (schema?.type === "number" || schema?.type === "integer") {
    const field = h("input", { type: "number", step: schema.type === "integer" ? 1 : "any", required });
    return { node: label(field), read: () => (field.value === "" ? undefined : Number(field.value)) };
  }
  if (schema?.type === "string") {
    const field = h("input", { type: schema.format === "date" ? "date" : "text" });
    return { node: label(field), read: () => (field.value === "" && !required ? undefined : field.value) };
  }
  const text = h("textarea", { rows: 3, spellcheck: "false", placeholder: "JSON, or plain words" });
  const read = () => { try { return JSON.parse(text.value); } catch { return text.value; } };
  return { node: label(text), read: () => (text.value === "" && !required ? undefined : read()) };
}
