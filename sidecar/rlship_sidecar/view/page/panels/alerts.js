// Alerts and why they fired.

import { h, plain, show, table } from "../dom.js";
import { counted, number } from "../numbers.js";
import { GOING } from "./stability.js";

export const alerts = {
  id: "alerts",
  title: "Alerts",
  make(host, ctx) {
    const list = h("div", {});
    const why = h("section", { class: "section", "aria-label": "Why", "aria-live": "polite" });
    show(host, h("h2", {}, "Alerts"), list, why);
    const ask = async (episode) => {
      show(why, h("p", { class: "quiet" }, "Looking for causes …"));
      try {
        const said = await ctx.run.ask("why", { episode: episode.id });
        show(why, h("h2", {}, `Why ${plain(episode.rule, 80)}`), h("pre", { class: "text mono", tabindex: 0 }, plain(said.text.join("\n"), 40_000)));
      } catch (error) {
        show(why, h("p", { class: "note bad" }, [error.message, error.hint].filter(Boolean).join(" ")));
      }
    };
    const draw = () => {
      const { episodes, note, blind } = ctx.run.alerts;
      const head = ["Rule", "Severity", "State", "Place", "Steps", "Evidence", "What it means", ""];
      show(list,
        note ? h("p", { class: "note" }, note) : null,
        episodes.length ? table(counted(episodes.length, "episode"), head, episodes.map((episode) => line(episode, ctx, ask)), { class: "wide" }) : h("p", { class: "note good" }, "No alert fired."),
        blind.length ? h("p", { class: "quiet text" }, `Rules that saw none of their metrics: ${blind.join(", ")}`) : null);
    };
    draw();
    return ctx.run.listen((what) => { if (what === "all" || what === "alerts") draw(); });
  },
};

function line(episode, ctx, ask) {
  const from = episode.first?.step;
  const to = episode.ended?.step ?? episode.last?.step;
  const going = GOING.includes(episode.state);
  const evidence = Object.entries(episode.evidence).slice(0, 20).map(([key, value]) => h("div", { class: "text small" }, `${key}: ${number(value)}`));
  return h("tr", { data: { episode: episode.rule } }, [
    h("strong", { class: "name" }, episode.rule), episode.severity, h("span", { class: going ? "bad" : "quiet" }, episode.state), h("span", { class: "name" }, episode.place),
    Number.isFinite(from) ? h("button", { on: { click: () => ctx.open("stability", { from: Math.max(from - 20, 0), to: (going ? ctx.run.whole[1] : to ?? from) + 20, at: from }) } }, `${number(from, 9)} to ${going ? "now" : number(to, 9)}`) : "–",
    evidence, h("span", { class: "text" }, episode.about, episode.look ? h("div", { class: "quiet small text" }, `Look at: ${plain(episode.look, 400)}`) : null),
    h("button", { on: { click: () => ask(episode) } }, "Why?"),
  ].map((cell) => h("td", {}, cell)));
}
