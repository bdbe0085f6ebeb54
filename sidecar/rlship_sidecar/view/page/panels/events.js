// What happened in the processes, by time.

import { h, plain, problem, show, table } from "../dom.js";
import { clock, counted, full, number } from "../numbers.js";

const LIVE_MS = 3000;

export const events = {
  id: "events",
  title: "Events",
  make(host, ctx) {
    let said = null;
    let known = "";
    let timer = 0;
    let closed = false;
    const name = h("select", { id: "event-name", on: { change: () => load() } }, h("option", { value: "" }, "all"));
    const note = h("span", { class: "quiet", role: "status" });
    const list = h("div", {});
    show(host, h("h2", {}, "Events"), h("div", { class: "tools" }, h("label", {}, "Name ", name), note), list);
    const load = async () => {
      const { view } = ctx.shared;
      const range = view.from < view.to && ctx.run.clock.known ? { first: Math.max(Math.floor(view.from), 0), last: Math.max(Math.ceil(view.to), 0) } : {};
      try {
        said = await ctx.run.ask("events", { ...range, name: name.value || undefined });
        if (!closed) draw();
      } catch (error) {
        if (!closed) note.textContent = plain(problem(error));
      }
    };
    const draw = () => {
      const before = name.value;
      // A list that a person has open closes where it is made anew.
      if (said.names.join("\0") !== known) show(name, h("option", { value: "" }, "all"), said.names.map((each) => h("option", { value: each }, plain(each, 100))));
      known = said.names.join("\0");
      name.value = before;
      const found = name.value ? said.events.filter((event) => event.name === name.value) : said.events;
      note.textContent = plain(`${counted(found.length, "event")}${said.left_out ? `; ${number(said.left_out)} older ones are left out` : ""}. ${said.note}`);
      show(list, table("Events, the newest first", ["Time (UTC)", "Step", "Actor", "Rank", "Event", "Attributes"], [...found].reverse().slice(0, 500).map((event) => h("tr", { data: { event: event.name } }, [
        clock(event.t),
        event.step === null ? "" : h("button", { on: { click: () => ctx.open("timeline", { from: event.step - 2, to: event.step + 2, at: event.step }) } }, full(event.step)),
        h("span", { class: "name" }, event.actor), event.rank, h("strong", { class: "name" }, event.name),
        h("span", { class: "text" }, Object.entries(event.attrs).map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join("; ")),
      ].map((cell) => h("td", {}, cell))))));
    };
    load();
    const later = (ms) => { timer ||= setTimeout(() => { timer = 0; load(); }, ms); };
    const quit = [
      ctx.run.listen((what) => { if (what === "all") later(0); if (what === "rows") later(LIVE_MS); }),
      ctx.shared.listen((view, changed) => { if (changed.has("from") || changed.has("to")) later(300); }),
    ];
    return () => { closed = true; quit.forEach((each) => each()); clearTimeout(timer); };
  },
};
