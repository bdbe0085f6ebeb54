// Where answers come from: the server that `rlship view` started, or the data inside an exported file.
// Both answer the same questions (contract.py).

import { bytesOf, inflated } from "./packed.js";

/** What was asked got no answer; `hint` says the way out. */
export class Refused extends Error {
  constructor(status, said) {
    super(said.error);
    this.status = status;
    this.code = said.code;
    this.hint = said.hint;
  }
}

const query = (parameters) => {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value !== undefined && value !== null) said.set(name, value);
  const text = said.toString();
  return text ? `?${text}` : "";
};

const within = (experiment, what) => `/api/e/${encodeURIComponent(experiment)}/${what}`;

export class Served {
  constructor(token) {
    this.token = token;
    this.live = true;
  }

  experiments() {
    return this.get("/api/experiments");
  }

  ask(experiment, what, parameters = {}, signal) {
    return this.get(within(experiment, what) + query(parameters), signal);
  }

  async get(path, signal) {
    const answer = await this.fetch(path, signal);
    return answer.json();
  }

  async fetch(path, signal) {
    let answer;
    try {
      answer = await fetch(path, { headers: { Authorization: `Bearer ${this.token}` }, signal, cache: "no-store", credentials: "omit" });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Refused(0, { code: "away", error: "The server does not answer.", hint: "Start `rlship view` again, or bring the ssh tunnel back." });
    }
    if (answer.ok) return answer;
    const said = await answer.json().catch(() => ({ code: "", error: `The server answered ${answer.status}.`, hint: "" }));
    throw new Refused(answer.status, said);
  }

  /** Follow an experiment: `have` gives {store, row}, `take` gets each event. It goes on until the signal is aborted. */
  follow(experiment, have, take, lost, signal) {
    return this.stream(() => within(experiment, "live") + query(have()), take, lost, signal);
  }

  followList(take, lost, signal) {
    return this.stream(() => "/api/live", take, lost, signal);
  }

  async stream(path, take, lost, signal) {
    let pause = 250;
    while (!signal.aborted) {
      try {
        const answer = await this.fetch(path(), signal);
        for await (const line of lines(answer.body)) {
          pause = 250;
          take(JSON.parse(line));
          if (signal.aborted) return;
        }
      } catch (error) {
        if (signal.aborted) return;
        lost(error);
        if (error.status >= 400 && error.status !== 429 && error.status !== 503) return;
      }
      await waited(pause, signal);
      pause = Math.min(pause * 2, 5000);
    }
  }
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n");
      rest = parts.pop();
      for (const part of parts) if (part.trim()) yield part;
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}

function waited(ms, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
  });
}

/** The data of an exported file. */
export async function embedded(text) {
  const { z, ...apart } = JSON.parse(text);
  return new Embedded({ ...JSON.parse(new TextDecoder().decode(await inflated(bytesOf(z)))), ...apart });
}

class Embedded {
  constructor(held) {
    this.held = held;
    this.live = false;
  }

  async experiments() {
    return this.held.experiments;
  }

  async ask(experiment, what, parameters = {}) {
    const held = this.held;
    if (what === "ranks") return this.ranks(parameters);
    if (what === "rollouts") return this.rollouts(parameters);
    if (what === "why") return this.why(parameters);
    if (held[what]) return held[what];
    throw new Refused(404, { code: "unknown", error: "An exported file does not hold this.", hint: "Open the run with `rlship view`." });
  }

  ranks({ m, from }) {
    const newest = this.held.newest?.[m];
    const chosen = newest && from >= newest.grid.x[0] ? newest : this.held.ranks[m];
    if (chosen) return chosen;
    throw new Refused(404, { code: "unknown", error: `The file has no values by rank of ${m}.`, hint: "Choose another metric." });
  }

  rollouts({ step, table }) {
    const steps = Object.keys(this.held.rollouts).map(Number).sort((a, b) => a - b);
    if (!steps.length) return { step: null, steps, tables: [], note: "The file holds no rollouts." };
    const wanted = step ?? steps[steps.length - 1];
    const nearest = steps.reduce((best, at) => (Math.abs(at - wanted) < Math.abs(best - wanted) ? at : best));
    const found = this.held.rollouts[nearest];
    return { ...found, steps, tables: table ? found.tables.filter((each) => each.table === table) : found.tables };
  }

  why({ episode }) {
    const found = this.held.why[episode];
    if (found) return found;
    throw new Refused(404, { code: "unknown", error: "The file holds no answer for this.", hint: "Ask `rlship why`." });
  }

  async follow() {}

  async followList() {}
}
