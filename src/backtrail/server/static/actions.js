// What changes a thread, each after a dialog that says what it does; and what leaves the page: links, exports, commands.

import { NO_FILTER } from "./address.js";
import { get, getText, post } from "./api.js";
import { askCompare, askDelete, askEdit, askExport, askFork, askLabel, askMove, askRewind, showResume } from "./dialogs.js";
import { attempt, download, toast } from "./dom.js";
import { plural } from "./format.js";

const ENDINGS = { json: "json", jsonl: "jsonl", markdown: "md", html: "html" };

export class Actions {
  constructor(app) { this.app = app; }

  get thread() { return this.app.place.thread; }

  get row() { return this.app.row; }

  async label() {
    const given = await askLabel(this.row);
    if (!given) return;
    await attempt(async () => {
      const tags = given.tags.split(/\s+/).filter(Boolean);
      const label = given.label.trim() || null;
      const custom = { ...this.row.custom };
      if (given.note.trim()) custom.note = given.note.trim();
      else delete custom.note;
      const saved = await post("/annotate", { thread: this.thread, at: this.row.id, label, tags, custom });
      await this.app.refresh();
      this.app.row = { ...this.row, label: saved.label, tags: saved.tags, custom: saved.custom };
      await this.app.go({});
      toast(saved.label ? `Step ${saved.step} is called ${saved.label}` : `Step ${saved.step} has no label`);
    });
  }

  async fork() {
    const given = await askFork(this.row, this.thread);
    if (!given) return;
    await attempt(async () => {
      const made = await post("/fork", { thread: this.thread, at: this.row.id, to: given.to.trim() || null });
      toast(`Forked to ${made.thread.id}`);
      await this.open(made.thread.id);
    });
  }

  async open(thread) {
    await this.app.threads.load();
    await this.app.go({ thread, at: null, view: null, message: null, base: null, with: null, find: null, ...NO_FILTER });
  }

  async rewind() {
    const { row, thread } = this;
    if (row.id === this.app.rows.head) return;
    await attempt(async () => {
      const move = (body) => post("/rewind", { thread, at: row.id, ...body });
      const dryRun = (keep) => move({ files: true, keep_untracked: keep, dry_run: true });
      let problem = null;
      const withFiles = row.files ? await dryRun(false).catch((error) => void (problem = error.message)) : null;
      const plan = withFiles ?? await move({ dry_run: true });
      const given = await askRewind(row, plan, withFiles ? dryRun : null, problem);
      if (!given) return;
      const files = given.files === "on";
      const done = await move({ files, keep_untracked: given.keep === "on" });
      await this.arrive(row, done, { name: "Undo", run: () => this.move("undo", { files }) });
    });
  }

  undo() { return this.move("undo"); }

  redo() { return this.move("redo"); }

  // Takes back the last move of the head, or does it again. The dialog says where the head would go.
  async move(verb, { files = false } = {}) {
    const { thread } = this;
    await attempt(async () => {
      const plan = await post(`/${verb}`, { thread, files, dry_run: true });
      const head = this.app.rows.find(this.app.rows.head);
      const given = await askMove(verb, head, plan);
      if (!given) return;
      const done = await post(`/${verb}`, { thread, files });
      const back = verb === "undo" ? "redo" : "undo";
      await this.arrive(done.head, done, { name: back === "redo" ? "Redo" : "Undo", run: () => this.move(back) });
    });
  }

  async arrive(row, done, action) {
    await this.app.refresh();
    await this.app.go({ at: null, message: null });
    toast(headAt(row, done), { action });
  }

  async remove() {
    const { row, thread } = this;
    const given = await askDelete(row, thread);
    if (!given) return;
    await attempt(async () => {
      const whole = given.what === "thread";
      await post("/delete", { thread, at: whole ? null : row.id });
      toast(whole ? `${thread} is deleted` : `Step ${row.step} is deleted`);
      if (whole) {
        await this.app.threads.load();
        await this.app.go({ thread: null, at: null, view: null, message: null, base: null, with: null, find: null, ...NO_FILTER });
        return;
      }
      await this.app.refresh();
      await this.app.go({ at: null, message: null });
    });
  }

  async compare() {
    const given = await askCompare(this.row, this.thread, [...this.app.rows.forks.values()].flat());
    if (given) await this.app.go({ view: "compare", with: given.with.trim() || this.thread, base: given.base.trim() || null });
  }

  resume() { return showResume(this.thread, this.row); }

  // Edits one value of the state, and saves the result as a fork: nothing that was saved changes.
  async edit(path, title) {
    const { thread, row } = this;
    await attempt(async () => {
      const { value } = await get("/value", { thread, at: row.id, path: JSON.stringify(path) });
      const given = await askEdit(title, value);
      if (!given) return;
      const edited = JSON.parse(given.value);
      const made = await post("/edit", { thread, at: row.id, path, value: edited, to: given.to.trim() || null });
      toast(`Saved as a fork: ${made.thread.id}`);
      await this.open(made.thread.id);
    });
  }

  editMessage(message) {
    return this.edit([this.app.conversation.place.key, message.index], `Edit message #${message.number}`);
  }

  async exportCheckpoint() {
    const given = await askExport(this.thread);
    if (!given) return;
    await attempt(async () => {
      const { form, ...left } = given;
      const leave = Object.keys(left).filter((name) => left[name] === "on").join(",");
      const data = await getText("/export", { thread: this.thread, at: this.row.id, form, leave_out: form === "html" ? leave : "",
        ...(form === "html" && this.app.view === "compare" ? { other: this.app.place.with, other_at: this.app.place.base ?? "@" } : {}) });
      download(data, `${this.thread.replace(/[^\w.-]+/g, "-")}-${this.row.step}.${ENDINGS[form]}`);
    });
  }
}

// Where the head is now, and what became of the files.
function headAt(row, { files_total: files, removed_total: removed, kept_total: kept }) {
  const words = [`The head is at step ${row.step} now`];
  if (files > removed) words.push(`${plural(files - removed, "file")} changed`);
  if (removed) words.push(`${plural(removed, "file")} removed`);
  if (kept) words.push(`${plural(kept, "file")} kept`);
  return words.join(", ");
}
