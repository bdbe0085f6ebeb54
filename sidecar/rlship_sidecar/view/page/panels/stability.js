// Training stability: small multiples with one cursor, and bands where alerts fired.

import { ChartGrid } from "../grid.js";
import { h, show } from "../dom.js";
import { number } from "../numbers.js";
import { noAlert } from "./overview.js";

export const stability = {
  id: "stability",
  title: "Stability",
  make(host, ctx) {
    const charts = h("div", {});
    const legend = h("p", { class: "quiet" });
    const none = h("p", { class: "note" });
    show(host, h("h2", {}, "Training stability"), legend, none, charts);
    const grid = new ChartGrid(charts, ctx, multiples(ctx.run), { onPick: (step) => ctx.open("rollouts", { at: step }) });
    const tell = () => {
      const found = ctx.run.alerts.episodes;
      legend.textContent = found.length
        ? `Bands show where alerts fired (${number(found.length)}). A click on a chart opens the rollouts of that step.`
        : `${noAlert(ctx.run)} A click on a chart opens the rollouts of a step.`;
      none.hidden = grid.cards.length > 0;
      none.textContent = "The run logs none of the catalogue's metrics of stability: reward, KL, entropy, gradient norm, clip fraction, mismatch of log-probabilities. All of its metrics are in the panel Metrics.";
    };
    tell();
    const quit = ctx.run.listen((what) => {
      if (what === "all" || what === "metrics") grid.put(multiples(ctx.run));
      if (["all", "alerts", "metrics", "overview"].includes(what)) tell();
    });
    return () => { quit(); grid.close(); };
  },
};

/** One chart for each metric that says how stable the training is, in the server's order. */
export function multiples(run) {
  const ids = run.overview.panels.stability ?? [];
  return ids.map((id) => run.metrics.get(id)).filter(Boolean)
    .map((metric, at) => ({ title: metric.key, ids: [metric.id], colours: [`c${at % 5}`], about: metric.about }));
}
