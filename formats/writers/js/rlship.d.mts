/** One observation: booleans are 1 and 0; null and undefined are none. */
export type Observation = number | bigint | boolean | null | undefined;

export type NumberArray =
  | readonly Observation[]
  | Int8Array
  | Uint8Array
  | Uint8ClampedArray
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array;

/** Observations with a weight for each. */
export interface Weighted {
  readonly v: NumberArray;
  readonly w: NumberArray | number;
}

/** Many observations in a few figures. What is left out is unknown, and so is every figure that needs it. */
export interface Summary {
  readonly n: number;
  /** The sum of their weights; default: `n`. */
  readonly w?: number;
  readonly sum?: number;
  readonly min?: number;
  readonly max?: number;
  readonly first?: number;
  readonly last?: number;
  /** The sum of weight · (x − mean)². */
  readonly m2?: number;
}

export type Metric = Observation | NumberArray | Weighted | Summary | Metrics;

/** Values by name. Objects in objects are flattened: `{ env: { reward: 1 } }` is the metric `env/reward`. */
export type Metrics = { readonly [name: string]: Metric } | ReadonlyMap<string, Metric>;

export type Named = object | ReadonlyMap<string, unknown>;

export type Reduction =
  | "mean"
  | "sum"
  | "min"
  | "max"
  | "first"
  | "last"
  | "std"
  | "count"
  | "p50"
  | "p90"
  | "p95"
  | "p99"
  | "hist"
  | "rate"
  | "sum_last"
  /** A reduction of your own, which the sidecar knows. */
  | `${string}.${string}`;

export interface Definition {
  /** The first is the one whose figure has the metric's own key. Default: by the catalogue, else the mean. */
  readonly reduce?: Reduction | readonly Reduction[];
  readonly unit?: string;
  /** Keep each rank's value. */
  readonly perRank?: boolean;
  /** Each observation is worth a point of its own. */
  readonly stream?: boolean;
}

export interface InitOptions {
  /** The kind of worker, such as "environment". Default: `RLSHIP_ACTOR`. */
  readonly actor?: string;
  /** Which of the replica's workers this is, and how many there are. Default: `RLSHIP_RANK`, `RLSHIP_WORLD`, else the launcher's. */
  readonly rank?: number;
  readonly world?: number;
  /** Default: `RLSHIP_REPLICA`, else "0". */
  readonly replica?: string | number;
  /** How often this rank was started again. Default: `RLSHIP_ATTEMPT`, else the launcher's restart count. */
  readonly attempt?: number;
  /** What the steps count. Default: "global_step". */
  readonly axis?: string;
  /** Facts for people. */
  readonly labels?: Readonly<Record<string, unknown>>;
  /** The share of groups that `ledger` records, 0 to 1. Default: `RLSHIP_LEDGER_SHARE`, else 1/8. */
  readonly ledgerShare?: number;
  /** The id of the writer of the same rank whose child this one is. Default: found by `RLSHIP_PARENT`. */
  readonly parent?: string;
}

/** A value for each sample, or a row of values. */
export type OfSamples = ArrayLike<number | bigint | ArrayLike<number | bigint>>;

/** What a group of samples is at a hop. Any other name is a field of numbers, such as `logprobs`. */
export interface Group extends AtStep {
  /** How many samples. Default: as many as the other members have. */
  readonly n?: number;
  readonly tokens?: OfSamples;
  readonly reward?: OfSamples;
  readonly advantage?: OfSamples;
  readonly mask?: OfSamples;
  /** How many tokens of each row are no padding. */
  readonly lengths?: ArrayLike<number>;
  /** Names of the samples. Default: they are known by their tokens. */
  readonly sample?: ArrayLike<string | number>;
  readonly response?: number | ArrayLike<number>;
  readonly version?: number | ArrayLike<number>;
  readonly part?: readonly [number, number];
  readonly retry?: number;
  readonly passes?: number;
  readonly why?: string;
  readonly precision?: "bf16";
  readonly [field: string]: unknown;
}

export interface AtStep {
  /** An integer from 0 to 2^53 - 1. Without it, the record belongs to no step. */
  readonly step?: number | bigint | null;
}

/** Something that takes time, until `end()`. */
export interface Span {
  /** End it, the first time it is called. `step`: the one at its end, if it is another; `error`: what ended it. */
  end(options?: AtStep & { readonly error?: unknown }): void;
}

/** One actor of this thread, with a file of its own. No method throws. */
export class Logger {
  private constructor();

  /** Write one record of `metrics`. `weight`: of every value, or one for each element. */
  log(metrics: Metrics, options?: AtStep & { readonly weight?: number | NumberArray | null }): void;

  /** Declare how metrics are reduced, from here on. */
  define(
    metrics:
      | { readonly [name: string]: Definition | Reduction | readonly Reduction[] }
      | ReadonlyMap<string, Definition | Reduction | readonly Reduction[]>,
  ): void;

  /** Begin a span. `lane`: what nests in one lane nests in time; default: this thread, or the next that is free. */
  span(name: string, options?: AtStep & { readonly lane?: string }): Span;

  /** Write a span that ends now and lasted so many seconds, by a clock of your own. */
  took(name: string, seconds: number, options?: AtStep & { readonly lane?: string; readonly error?: unknown }): void;

  /** Run `body` in a span and return what it returns; a promise is waited for. Its errors are passed on. */
  timed<T>(name: string, body: (span: Span) => T, options?: AtStep & { readonly lane?: string }): T;

  /** Write that something happened. `attrs` are any JSON; long texts are shortened. */
  event(name: string, attrs?: Named, options?: AtStep): void;

  /** Record what a group of samples is at one hop of its way: docs/ledger.md. */
  ledger(hop: string, key: string | number, group: Group): void;

  /** Record which weights a version has. */
  weights(version: number, options?: AtStep & { readonly fingerprint?: string }): void;

  /** Tag a step, once. */
  tag(tag: string, options: AtStep & { readonly step: number | bigint }): void;

  /** Offer a row of a table; of very many in one step a fair random part is kept. */
  sample(table: string, row: Named, options?: AtStep & { readonly score?: number | null }): void;

  /**
   * Note what was set, such as hyper-parameters, as any JSON. A later call updates by name, in objects too. Secrets are
   * left out: texts under names such as `api_key`, and those that look like keys of known services.
   */
  config(values: Named): void;

  /** Note results, as `config` notes what was set. */
  summary(values: Named): void;

  /** Note what else the run is. */
  run(members: {
    readonly name?: string;
    readonly notes?: string;
    readonly group?: string;
    readonly project?: string;
    readonly entity?: string;
    readonly job_type?: string;
    readonly tags?: readonly string[];
    /** An integer from -255 to 255. */
    readonly exit_code?: number;
    readonly facts?: Named;
  }): void;

  /** Promise that this writer writes nothing more for steps up to `step`. What waits is written. */
  barrier(step: number | bigint): void;

  /** Say that this process goes back, to do `step` again. */
  rollback(step: number | bigint): void;

  /** Write what waits, and sync it where that matters. False if that failed; it is tried again later. */
  flush(): boolean;

  /** Write what waits and the `close` record. Later calls are dropped. Called at exit if you do not. */
  close(): boolean;

  /** The random id of the file; null where every call is dropped. */
  get id(): string | null;
  get path(): string | null;
  get closed(): boolean;
  get actor(): string | null;
  get rank(): number | null;
  get world(): number | null;
  /** How many lines were left out because the buffer was full or the call could not be understood. */
  get droppedLines(): number;
  /** How many values were left out because they are no metrics. */
  get droppedValues(): number;
  /** How many attempts to write failed, and how many calls with an error of their own. */
  get errors(): number;
}

/**
 * Open the file of an actor in the experiment `dir` (default: `RLSHIP_DIR`), or return the Logger that this thread opened
 * for it before. Never throws: where there is nothing to write to, the Logger drops every call.
 */
export function init(dir?: string | URL | null, options?: InitOptions): Logger;
