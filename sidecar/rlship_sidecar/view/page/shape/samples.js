// Rollouts as turns, tokens and groups. Plain data only.

/** A prompt or a response as turns {role, text, calls}; a text is one turn of the role that is usual for it. */
export function turns(said, role) {
  if (said === null || said === undefined) return [];
  if (Array.isArray(said)) return said.flatMap((message) => turns(message, role));
  if (typeof said !== "object") return [{ role, text: String(said), calls: [] }];
  const calls = Array.isArray(said.tool_calls) ? said.tool_calls.map(callText) : [];
  return [{ role: typeof said.role === "string" ? said.role : role, text: contentText(said.content ?? (said.role === undefined ? said : "")), calls }];
}

function contentText(content) {
  if (typeof content === "string") return content;
  if (Array.isArray(content)) return content.map((part) => (typeof part === "string" ? part : typeof part?.text === "string" ? part.text : `[${part?.type ?? "part"}] ${JSON.stringify(part)}`)).join("\n");
  return content === null || content === undefined ? "" : JSON.stringify(content, null, 1);
}

function callText(call) {
  const named = call?.function ?? call;
  const given = named?.arguments ?? named?.input ?? {};
  return `${named?.name ?? "tool"}(${typeof given === "string" ? given : JSON.stringify(given)})`;
}

/** The columns of tokens that a colour can show, the best one first. */
const SHOWN = [["logp_diff", "logp difference"], ["importance_ratio", "importance ratio"], ["advantages", "advantage"], ["entropy", "entropy"], ["logprobs", "log-probability"]];

export function tokenColumns(tokens) {
  if (!tokens?.text) return [];
  const columns = { ...tokens.columns };
  if (!columns.logp_diff && columns.logprobs && columns.rollout_logprobs) {
    columns.logp_diff = columns.logprobs.map((value, at) => (value === null || columns.rollout_logprobs[at] === null ? null : value - columns.rollout_logprobs[at]));
  }
  const known = SHOWN.filter(([name]) => columns[name]).map(([name, title]) => ({ name, title, values: columns[name] }));
  return known;
}

/** -1..1 for a token: how far its value is from the one that says "the same", in the column's own measure. */
export function tokenShade(name, value) {
  if (value === null || value === undefined) return 0;
  if (name === "logprobs") return clamp(value / 5);
  if (name === "importance_ratio") return value > 0 ? clamp(Math.log(value)) : -1;
  return clamp(value);
}

function clamp(value) {
  return Math.max(-1, Math.min(1, value));
}

/** The indexes of a table's samples that a bin of the histogram and a search leave. */
export function chosenSamples(table, { bin, text }) {
  const edges = table.rewards?.edges;
  const [low, high] = edges && bin !== undefined ? [edges[bin], edges[bin + 1]] : [-Infinity, Infinity];
  const last = edges && bin === edges.length - 2;
  const wanted = (text ?? "").toLowerCase();
  return table.samples
    .map((sample, at) => at)
    .filter((at) => {
      const { score } = table.samples[at];
      if (bin !== undefined && edges && !(score !== null && score >= low && (score < high || (last && score <= high)))) return false;
      return !wanted || searched(table.samples[at]).includes(wanted);
    });
}

function searched(sample) {
  return JSON.stringify([sample.prompt, sample.response, sample.group, sample.row]).toLowerCase();
}

/** "n of N": how many samples are shown of those that are in the files, and of those that the job took. */
export function ofAll(table, shown) {
  const said = [`${shown} of ${table.kept} samples`];
  if (table.taken !== null && table.taken !== table.kept) said.push(`the job kept ${table.kept} of ${table.taken}`);
  if (table.shown < table.kept) said.push(`${table.shown} were loaded`);
  return said.join("; ");
}
