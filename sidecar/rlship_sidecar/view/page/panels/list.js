// The experiments of a folder, with their health and sparklines.

import { h, show, table } from "../dom.js";
import { clock, full, number } from "../numbers.js";
import { sparkline } from "../shape/curves.js";
import { STATES, section } from "./overview.js";

const WIDTH = 120;
const HEIGHT = 28;
const SPARKS = 4;

/** Draw the list into a place; `open(id)` opens one. */
export function drawList(host, said, filter, open) {
  const entries = chosen(said.experiments, filter);
  const head = ["Experiment", "State", "Step", "Ranks", "Newest line (UTC)", "Alerts", "What is wrong", "Headline metrics"];
  show(host,
    h("h2", {}, `Experiments in ${said.folder}`),
    entries.length
      ? table(`${number(entries.length)} of ${number(said.experiments.length)} experiments`, head, entries.map((entry) => line(entry, open)), { class: "wide" })
      : h("p", { class: "note" }, said.experiments.length ? "No experiment has this text in its name." : "There is no experiment in this folder. An experiment is a folder that holds a folder `rlship`, or logs of a framework that rlship reads."),
    Object.keys(said.left_out).length
      ? section("Left out", h("ul", {}, Object.entries(said.left_out).map(([name, why]) => h("li", { class: "text" }, `${name}: ${why}`))))
      : null);
}

/** The entries whose name holds a text, those with trouble first within the order of the server. */
export function chosen(entries, filter) {
  const wanted = (filter ?? "").toLowerCase();
  return entries.filter((entry) => entry.name.toLowerCase().includes(wanted));
}

function line(entry, open) {
  const [word, colour] = STATES[entry.state] ?? [entry.state, ""];
  return h("tr", { data: { experiment: entry.name } }, [
    h("button", { class: "name", on: { click: () => open(entry.id) } }, entry.name),
    h("span", { class: colour }, word), full(entry.step),
    h("span", { class: entry.ranks < entry.expected ? "bad" : "" }, `${number(entry.ranks)} of ${number(entry.expected)}`),
    clock(entry.newest),
    h("span", { class: entry.firing ? "bad" : "quiet" }, entry.firing ? `${number(entry.firing)} firing` : entry.episodes ? `${number(entry.episodes)} past` : entry.rows ? "none so far" : "–"),
    h("span", { class: "text small" }, entry.trouble[0] ?? entry.note),
    h("div", { class: "tools" }, entry.sparks.slice(0, SPARKS).map(spark)),
  ].map((cell) => h("td", {}, cell)));
}

function spark(said) {
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of Object.entries({ width: WIDTH, height: HEIGHT, viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true" })) picture.setAttribute(name, value);
  const drawn = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  for (const [name, value] of Object.entries({ points: sparkline(said.points, WIDTH, HEIGHT), fill: "none", stroke: "currentColor", "stroke-width": "1.4" })) drawn.setAttribute(name, value);
  picture.append(drawn);
  return h("span", { class: "spark small", title: said.key }, h("span", { class: "name quiet" }, said.key), " ", number(said.value), picture, h("span", { class: "unseen" }, curve(said)));
}

/** What a sparkline is like, in words. */
function curve(said) {
  const known = said.points.filter((value) => value !== null);
  if (!known.length) return "";
  return ` at step ${full(said.last)}; from step ${full(said.first)} on between ${number(Math.min(...known))} and ${number(Math.max(...known))}`;
}
