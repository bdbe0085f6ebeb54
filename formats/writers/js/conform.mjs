// Drives rlship.mjs from standard input: one call a line, TAB between fields. For tests only.

import { setTimeout as sleep } from "node:timers/promises";
import { Worker, isMainThread, workerData } from "node:worker_threads";
import { init } from "./rlship.mjs";

const BYTES = { t: 9, n: 10, r: 13, "\\": 92 };

/** A field's bytes as a text. Half a surrogate pair, which UTF-8 does not have, comes as the three bytes it would take. */
function unescape(field) {
  const bytes = Buffer.from(field.replace(/\\(x([0-9A-Fa-f]{2})|[tnr\\])/g, (_, code, hex) => String.fromCharCode(hex ? parseInt(hex, 16) : BYTES[code])), "latin1");
  const parts = bytes.toString("latin1").split(/(\xed[\xa0-\xbf][\x80-\xbf])/);
  return parts.map((part, i) => (i % 2 ? String.fromCharCode(0xd000 | ((part.charCodeAt(1) & 63) << 6) | (part.charCodeAt(2) & 63)) : Buffer.from(part, "latin1").toString())).join("");
}

const given = (field) => (field === undefined || field === "" ? undefined : field);
const whole = (field) => (given(field) === undefined ? undefined : Number(field));

/** A number, an integer beyond 2^53 as such, or the text behind `s:`. */
function number(text) {
  if (text.startsWith("s:")) return text.slice(2);
  return /^-?\d+$/.test(text) && !Number.isSafeInteger(Number(text)) ? BigInt(text) : Number(text);
}

const list = (field) => (given(field) === undefined ? [] : field.split(",").map(number));

function pairs(fields, read) {
  const found = new Map();
  for (let i = 0; i + 1 < fields.length; i += 2) found.set(fields[i], read(fields[i + 1]));
  return found;
}

function typed(text) {
  const value = text.slice(2);
  return { "s:": () => value, "n:": () => number(value), "b:": () => value === "1", "j:": () => JSON.parse(value) }[text.slice(0, 2)]();
}

let rl = null;
let opened = [];

const COMMANDS = {
  init(dir, actor, rank, world, replica, attempt, axis, parent, ...labels) {
    const options = {
      ...{ actor: given(actor), rank: whole(rank), world: whole(world), replica: given(replica), attempt: whole(attempt) },
      ...{ axis: given(axis), parent: given(parent), labels: Object.fromEntries(pairs(labels, String)) },
    };
    opened = [given(dir), options];
    rl = init(...opened);
  },
  define(metric, reduces, unit, perRank, stream) {
    const reduce = given(reduces)?.split(",");
    rl.define(new Map([[metric, { reduce, unit: given(unit), perRank: perRank === "1", stream: stream === "1" }]]));
  },
  log: (step, weight, ...metrics) => rl.log(pairs(metrics, number), { step: whole(step), weight: given(weight) === undefined ? undefined : number(weight) }),
  list(step, name, values, weights) {
    const found = list(weights);
    rl.log(new Map([[name, list(values)]]), { step: whole(step), weight: found.length ? found : undefined });
  },
  summary: (step, name, ...members) => rl.log(new Map([[name, pairs(members, number)]]), { step: whole(step) }),
  span: (step, name, duration, error) => rl.took(name, Number(duration), { step: whole(step), error: given(error) }),
  event: (step, name, ...attrs) => rl.event(name, pairs(attrs, typed), { step: whole(step) }),
  sample: (step, table, score, ...row) => rl.sample(table, pairs(row, typed), { step: whole(step), score: whole(score) }),
  run: (object, ...values) => rl[object === "members" ? "run" : object](pairs(values, typed)),
  ledger(call) {
    const { hop, key, ...given } = JSON.parse(call);
    rl.ledger(hop, key, given);
  },
  weights(call) {
    const { version, ...options } = JSON.parse(call);
    rl.weights(version, options);
  },
  barrier: (step) => rl.barrier(whole(step)),
  rollback: (step) => rl.rollback(whole(step)),
  flush: () => rl.flush(),
  close: () => rl.close(),
  sleep: (ms) => sleep(Number(ms)),
  burst(count) {
    for (let i = 0; i < Number(count); i++) {
      rl.log({ x: i }, { step: i });
      rl.barrier(i);
    }
  },
  // A thread has a file of its own, as a child of this one's.
  threads: (count, lines) =>
    Promise.all(
      Array.from({ length: Number(count) }, () => {
        const worker = new Worker(new URL(import.meta.url), { workerData: { opened, lines: Number(lines) } });
        return new Promise((resolve, reject) => worker.once("exit", resolve).once("error", reject));
      }),
    ),
  abort: () => process.kill(process.pid, "SIGKILL"),
};

if (isMainThread) {
  process.stdin.setEncoding("latin1");
  let rest = "";
  reading: for await (const chunk of process.stdin) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const [command, ...fields] = line.split("\t").map(unescape);
      if (command === "exit") break reading;
      if (command !== "") await COMMANDS[command](...fields);
    }
  }
} else {
  const { lines } = workerData;
  const own = init(...workerData.opened);
  for (let i = 0; i < lines; i++) own.log({ x: i }, { step: i });
}
