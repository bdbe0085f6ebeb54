// What two runs differ in: run data, ranks, and for each metric the first step at which they part.

import { h, plain, problem, show, table } from "../dom.js";
import { counted, full, number } from "../numbers.js";
import { described } from "./overview.js";
import { value } from "./rundata.js";

const [LONG, BEFORE] = [300, 40]; // characters of a value

export const diff = {
  id: "diff",
  title: "Diff",
  make(host, ctx) {
    const others = ctx.listed.experiments.filter((entry) => entry.id !== ctx.run.id);
    const other = h("select", { id: "diff-with" }, others.map((entry) => h("option", { value: entry.id }, plain(entry.name, 120))));
    const rtol = h("input", { id: "diff-rtol", inputmode: "decimal", value: "0", size: 8 });
    const atol = h("input", { id: "diff-atol", inputmode: "decimal", value: "0", size: 8 });
    const list = h("div", { role: "status" });
    let closed = false;
    const compare = async (event) => {
      event?.preventDefault();
      show(list, h("p", { class: "quiet" }, "Comparing …"));
      try {
        const said = await ctx.run.ask("diff", { with: other.value, rtol: rtol.value || "0", atol: atol.value || "0" });
        if (!closed) draw(list, said, ctx);
      } catch (error) {
        if (!closed) show(list, h("p", { class: "note bad" }, problem(error)));
      }
    };
    const form = h("form", { class: "tools", on: { submit: compare } }, h("label", {}, "Compare with ", other), h("label", {}, "Relative tolerance ", rtol), h("label", {}, "Absolute tolerance ", atol), h("button", { class: "main" }, "Compare"));
    show(host, h("h2", {}, "Diff of two runs"),
      !ctx.run.source.live ? h("p", { class: "note" }, "An exported file holds one run. `rlship diff A B` compares two.")
        : others.length ? form : h("p", { class: "note" }, "There is no other experiment in this folder. `rlship diff A B` compares any two."),
      list);
    return () => { closed = true; };
  },
};

/** Two texts; long ones from shortly before the place where they differ. */
export function parting(a, b) {
  let at = 0;
  while (at < a.length && at < b.length && a[at] === b[at]) at += 1;
  const from = Math.max(a.length, b.length) > LONG ? Math.max(at - BEFORE, 0) : 0;
  return [a, b].map((text) => `${from ? "…" : ""}${text.slice(from, from + LONG)}${text.length > from + LONG ? "…" : ""}`);
}

/** Two values that differ, with as many digits as tell them apart; "–" twice without them. */
export function told(values, digits) {
  const { a, b } = values ?? {};
  const [left, right] = [number(a, digits), number(b, digits)];
  return left === right && a !== b ? [String(a), String(b)] : [left, right];
}

function draw(list, said, ctx) {
  const parted = said.metrics.filter((metric) => metric.first || metric.in_a !== metric.in_b);
  show(list,
    h("p", { class: parted.length || said.run.length ? "note" : "note good" }, `${counted(parted.length, "metric")} ${parted.length === 1 ? "parts" : "part"} and ${number(said.equal)} are equal, in ${counted(said.both, "row")} that both runs have.`),
    said.run.length ? table("Run data", ["Key", plain(said.a, 60), plain(said.b, 60)], said.run.map((each) => [h("span", { class: "name" }, `${each.part}.${each.key}`), ...parting(value(each.a), value(each.b)).map((text) => h("span", { class: "text" }, text))]), { class: "keys" }) : null,
    said.ranks.length ? h("ul", {}, said.ranks.map((each) => h("li", { class: "text" }, described(each)))) : null,
    parted.length ? table("Metrics that part", ["Metric", "First step", plain(said.a, 60), plain(said.b, 60), "Steps apart", "Widest at", "Note"], parted.map((metric) => h("tr", { data: { parted: metric.key } }, [
      h("span", { class: "name" }, metric.key),
      metric.first ? h("button", { on: { click: () => ctx.open("metrics", { at: metric.first.step, filter: metric.key.slice(0, 200) }) } }, full(metric.first.step)) : "–",
      ...told(metric.first, 8), full(metric.apart),
      metric.widest ? `${full(metric.widest.step)}: ${told(metric.widest, 4).join(" and ")}` : "–",
      metric.of_time ? "a time or a rate" : metric.in_a !== metric.in_b ? `${number(metric.in_a)} and ${number(metric.in_b)} values` : "",
    ].map((cell) => h("td", {}, cell))))) : null);
}
