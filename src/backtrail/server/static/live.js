// A thread that an agent is writing to: what came is added to the lists, and the head is followed while it is shown. A
// place without a checkpoint is the head, whichever that was when the reader came there.

import { isPage } from "./address.js";
import { drawChart } from "./chart.js";
import { $, attempt } from "./dom.js";
import { drawFacts, drawHeading } from "./headings.js";

const PAUSE = 300; // milliseconds between two refreshes
const CHARTED = 5000; // milliseconds between two charts

export class LiveThread {
  constructor(app) {
    this.app = app;
    this.busy = this.again = false;
    this.charted = 0;
  }

  // One refresh at a time; events that come meanwhile are answered by one more.
  async follow() {
    this.again = true;
    if (this.busy) return;
    this.busy = true;
    while (this.again) {
      this.again = false;
      await attempt(() => this.followOnce());
      await new Promise((done) => setTimeout(done, PAUSE));
    }
    this.busy = false;
  }

  async followOnce() {
    const { app } = this;
    const { thread } = app.place;
    await app.rows.refresh();
    if (app.place.thread !== thread || !app.row) return;
    drawHeading(app);
    if (performance.now() - this.charted > CHARTED) {
      this.charted = performance.now();
      attempt(() => drawChart(app));
    }
    if (app.place.list === "turns") await app.turns.refresh();
    else app.turns.forget();
    await app.kept.refresh();
    const head = await app.rows.fetchHead();
    await app.done; // what is being drawn comes first, and is then followed
    // The reader may have gone elsewhere meanwhile: from here on nothing is waited for.
    const { place } = app;
    if (place.thread !== thread || !app.row || isPage(place)) return;
    const row = place.at ? app.rows.find(app.row.id) : head;
    if (!row) return;
    const other = row.id !== app.row.id;
    app.row = row;
    if (other) app.rows.selectRow(row, { quiet: true });
    drawFacts(app);
    if (place.at) this.showNewer();
    if (app.drawn !== row.id) await this.drawNewer(row);
  }

  // The same tab for another checkpoint: what is open stays open, and the reader where they are. A conversation that
  // cannot be continued, for whatever reason, is drawn anew, and then says why if that fails.
  async drawNewer(row) {
    const { app } = this;
    const { signal } = app.drawing;
    const continued = app.view === "conversation" && (await app.conversation.follow(row).catch(() => false));
    if (signal.aborted) return;
    if (continued) app.drawn = row.id;
    else app.redraw();
  }

  // A button that leads to the head says how many checkpoints came since the reader is here.
  showNewer() {
    const more = this.app.rows.total - this.app.seen;
    if (more <= 0) return;
    $("newer").textContent = `${more} new ↑`;
    $("newer").hidden = false;
  }
}
