// All metrics of the run, with a filter that is a regular expression.

import { ChartGrid } from "../grid.js";
import { h, show } from "../dom.js";
import { number } from "../numbers.js";

const PAGE = 60;
const SLOWEST_MS = 300; // for a filter over all metrics

export const metrics = {
  id: "metrics",
  title: "Metrics",
  make(host, ctx) {
    let shown = PAGE;
    const said = h("span", { class: "quiet", role: "status" });
    const field = h("input", { id: "metric-filter", type: "search", value: ctx.shared.view.filter ?? "", placeholder: "loss|reward", autocomplete: "off", maxlength: 200 });
    const charts = h("div", {});
    const more = h("button", { on: { click: () => { shown += PAGE; draw(); } } }, "Show more");
    show(host, h("h2", {}, "All metrics"),
      h("div", { class: "tools" }, h("label", {}, "Filter (regular expression) ", field), said), charts, h("p", {}, more));
    const grid = new ChartGrid(charts, ctx, [], { onPick: (step) => ctx.open("rollouts", { at: step }) });
    const draw = () => {
      const { found, wrong } = matching([...ctx.run.metrics.values()], field.value);
      said.textContent = `${number(found.length)} of ${number(ctx.run.metrics.size)} metrics${wrong ? "; the filter is no regular expression, so it is taken as a text" : ""}${ctx.run.leftOut ? `; ${number(ctx.run.leftOut)} more are beyond the page's bound` : ""}`;
      more.hidden = found.length <= shown;
      grid.put(found.slice(0, shown).map((metric, at) => ({ title: metric.kind === "step" ? metric.key : `${metric.key} (${metric.kind})`, ids: [metric.id], colours: [`c${at % 5}`], about: metric.about })));
    };
    field.addEventListener("input", () => {
      shown = PAGE;
      ctx.shared.set({ filter: field.value || undefined });
      draw();
    });
    draw();
    const quit = [
      ctx.run.listen((what) => { if (what === "all" || what === "metrics") draw(); }),
      ctx.shared.listen((view, changed) => {
        if (!changed.has("filter") || field.value === (view.filter ?? "")) return;
        field.value = view.filter ?? "";
        draw();
      }),
    ];
    return () => { quit.forEach((each) => each()); grid.close(); };
  },
};

/** The metrics whose key a filter finds. A filter that is no regular expression is looked for as it stands. */
export function matching(all, filter) {
  if (!filter) return { found: all, wrong: false };
  // A filter comes from a link too, and one with many repeats could take for ever: that is taken as a text.
  const risky = filter.length > 200 || /\)[*+?{]/.test(filter) || (filter.match(/[*+?{]/g) ?? []).length > 3;
  let test = null;
  if (!risky) {
    try {
      test = new RegExp(filter, "i");
    } catch {
      test = null;
    }
  }
  const low = filter.toLowerCase();
  const until = performance.now() + SLOWEST_MS;
  const found = [];
  for (const { key, ...metric } of test ? all : []) {
    if (performance.now() > until) break;
    if (test.test(key.slice(0, 200))) found.push({ key, ...metric });
  }
  if (test && performance.now() <= until) return { found, wrong: false };
  return { found: all.filter((metric) => metric.key.toLowerCase().includes(low)), wrong: true };
}
