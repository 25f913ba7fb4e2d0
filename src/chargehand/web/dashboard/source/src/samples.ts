// The data of the charts: one sample per second for the last minutes, one per ten seconds for the last two hours.
// The samples from before the page was opened are fetched from the node.

import { signal } from "@preact/signals";
import { get } from "./api";
import type { QueueBody as Queue, QueueHistory } from "./types";
import { serverNow, waiting } from "./words";

type Value = number | null;
type Reach = "minutes" | "hours";

/** What is kept of a queue: its figures, each with where a sample has it. */
const FIGURES = {
  waiting: waiting as (queue: Queue) => Value,
  running: (queue: Queue) => queue.running,
  rate: (queue: Queue) => queue.rate ?? 0,
  failed: (queue: Queue) => queue.failed,
  wait_p50_s: (queue: Queue) => queue.wait_p50_s ?? null,
  wait_p95_s: (queue: Queue) => queue.wait_p95_s ?? null,
  run_p50_s: (queue: Queue) => queue.run_p50_s ?? null,
  run_p95_s: (queue: Queue) => queue.run_p95_s ?? null,
  // Nothing is told while it only goes on waiting.
  oldest_wait_s: (queue: Queue & { oldest_ms?: number | null }) =>
    queue.oldest_ms == null ? (queue.oldest_wait_s ?? null) : Math.max(0, (serverNow() - queue.oldest_ms) / 1000),
};
export type Figure = keyof typeof FIGURES;
const NAMES = Object.keys(FIGURES) as Figure[];
type Samples = { at: number[] } & Record<Figure, Value[]>;

/** The maximum time range of a chart, in seconds. */
export const REACH: Record<Reach, number> = { minutes: 300, hours: 7200 };
const STEP = 10;
const MOST: Record<Reach, number> = { minutes: 300, hours: 720 };

export const reach = signal<Reach>("minutes");
export const sampled = signal(0);
const kept: Record<Reach, Map<string, Samples>> = { minutes: new Map(), hours: new Map() };

const none = (): Samples =>
  ({ at: [], ...Object.fromEntries(NAMES.map((name) => [name, [] as Value[]])) }) as unknown as Samples;
const columns = (samples: Samples): Value[][] => [samples.at, ...NAMES.map((name) => samples[name])];

function push(table: Reach, name: string, at: number, queue: Queue): void {
  const found = kept[table].get(name) ?? none();
  kept[table].set(name, found);
  if (found.at[found.at.length - 1] === at) return;
  found.at.push(at);
  for (const figure of NAMES) found[figure].push(FIGURES[figure](queue));
  if (found.at.length > MOST[table]) for (const column of columns(found)) column.shift();
}

/** Takes a sample of every queue; called once per second. */
export function sample(queues: Iterable<[string, Queue]>): void {
  const at = Math.round(serverNow() / 1000);
  for (const [name, queue] of queues) {
    push("minutes", name, at, queue);
    if (at % STEP === 0 || !kept.hours.has(name)) push("hours", name, at, queue);
  }
  sampled.value++;
}

export function forget(name: string): void {
  kept.minutes.delete(name);
  kept.hours.delete(name);
}

/** Returns the points of a history that are within the range and older than the known samples; gaps keep the last value. */
function older(found: QueueHistory, known: Samples, seconds: number): Samples {
  const now = Math.round(serverNow() / 1000);
  const begin = now - seconds;
  const end = known.at[0] ?? now;
  const made = none();
  const add = (at: number, from: number) => {
    made.at.push(at);
    for (const name of NAMES) made[name].push(found[name]?.[from] ?? null);
  };
  let last = -1;
  found.at_ms.forEach((ms, from) => {
    const at = Math.round(ms / 1000);
    if (at >= end) return;
    if (at > begin && !made.at.length && last >= 0) add(begin, last);
    if (at > begin) add(at, from);
    last = from;
  });
  if (last >= 0 && !made.at.length) add(begin, last);
  if (last >= 0 && end - made.at[made.at.length - 1]! > 1.5 * STEP) add(end - 1, last);
  return made;
}

/** Fetches the samples from before the page was opened. */
export async function learnPast(): Promise<void> {
  const { queues } = await get<{ queues: QueueHistory[] }>("api/v1/queues/history");
  for (const queue of queues) {
    for (const table of ["minutes", "hours"] as const) {
      const known = kept[table].get(queue.name) ?? none();
      const before = older(queue, known, REACH[table]);
      const joined = none();
      joined.at = [...before.at, ...known.at].slice(-MOST[table]);
      for (const name of NAMES) joined[name] = [...before[name], ...known[name]].slice(-MOST[table]);
      kept[table].set(queue.name, joined);
    }
  }
  sampled.value++;
}

/** Returns the columns of a chart: times, then these figures; of `failed` the jobs that failed since the first sample. */
export function drawn(name: string, figures: Figure[]): [number[], ...Value[][]] {
  const found = kept[reach.value].get(name) ?? none();
  const newest = kept.minutes.get(name);
  const end = newest ? newest.at.length - 1 : -1;
  const live = reach.value === "hours" && newest && end >= 0 && newest.at[end]! > (found.at[found.at.length - 1] ?? 0);
  const before = found.failed[0] ?? 0;
  const value = (figure: Figure, each: Value): Value =>
    figure === "failed" ? Math.max(0, (each ?? 0) - before) : each;
  const at = live ? [...found.at, newest.at[end]!] : found.at;
  const rows = figures.map((figure) => {
    const row = found[figure].map((each) => value(figure, each));
    return live ? [...row, value(figure, newest[figure][end] ?? null)] : row;
  });
  return [at, ...rows];
}

/** Returns a queue's rate in the last minutes as so many parts of equal length, newest last; null: not known. */
export function rates(name: string, parts: number): Value[] {
  const found = kept.minutes.get(name);
  const end = Math.round(serverNow() / 1000);
  const made: Value[] = Array.from({ length: parts }, () => null);
  const each = REACH.minutes / parts;
  let last = parts;
  for (let at = (found?.at.length ?? 0) - 1; at >= 0; at--) {
    const part = parts - 1 - Math.floor((end - found!.at[at]!) / each);
    if (part < 0) break;
    // Of a gap, in which nothing changed, the value before it is true.
    for (let gap = Math.min(part, last - 1); gap < last; gap++) made[gap] ??= found!.rate[at] ?? 0;
    last = part;
  }
  return made;
}
