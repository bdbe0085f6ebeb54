// The ledger: what became of groups of samples.

import { Chart } from "../chart.js";
import { h, problem, show, table } from "../dom.js";
import { full } from "../numbers.js";

const LIVE_MS = 3000;

export const ledger = {
  id: "ledger",
  title: "Ledger",
  make(host, ctx) {
    const totals = h("div", {});
    const charts = h("div", { class: "charts" });
    const made = new Map();
    let timer = 0;
    let closed = false;
    show(host, h("h2", {}, "Ledger"), totals, charts);
    const load = async () => {
      try {
        const said = await ctx.run.ask("ledger", { axis: ctx.run.clock.known ? "step" : "time" });
        if (!closed) draw(said);
      } catch (error) {
        if (!closed) show(totals, h("p", { class: "note bad" }, problem(error)));
      }
    };
    const draw = (said) => {
      const wrong = new Set(said.wrong);
      const rows = Object.entries(said.totals).map(([key, value]) => [h("span", { class: "name" }, key), h("span", { class: wrong.has(key) ? "bad" : "", data: { total: key } }, full(value)), wrong.has(key) ? h("span", { class: "bad" }, "should be 0") : ""]);
      show(totals, said.logged ? table("Totals of the run", ["What", "Groups or samples", ""], rows, { class: "slim" }) : h("p", { class: "note" }, "The job records no ledger: `rlship.ledger` records what becomes of groups of samples."));
      if (!said.grid) return;
      const x = said.grid.axis === "step" ? said.grid.x : said.grid.x.map((t) => ctx.run.clock.step(t));
      for (const [key, curve] of Object.entries(said.curves)) {
        // A chart that is 0 everywhere says no more than the table.
        if (!made.has(key) && !curve.mean.some((value) => value)) continue;
        const chart = made.get(key) ?? add(key, wrong.has(key));
        chart.update([x, curve.mean, curve.min ?? curve.mean, curve.max ?? curve.mean]);
      }
    };
    const add = (key, bad) => {
      const plot = h("div", {});
      charts.append(h("article", { class: "card" }, h("h3", { class: "name" }, key), plot));
      const chart = new Chart(plot, ctx.shared, { title: key, axis: () => ctx.run.axis, lines: [{ colour: bad ? "c5" : "c0", band: true }], onPick: (step) => ctx.open("rollouts", { at: step }) });
      made.set(key, chart);
      return chart;
    };
    load();
    const quit = ctx.run.listen((what, rows) => {
      if (what !== "all" && !(what === "rows" && rows.some((row) => row.kind === "ledger"))) return;
      timer ||= setTimeout(() => { timer = 0; load(); }, what === "all" ? 0 : LIVE_MS);
    });
    return () => { closed = true; quit(); clearTimeout(timer); for (const chart of made.values()) chart.close(); };
  },
};
