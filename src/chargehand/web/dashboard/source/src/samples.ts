// The data of the charts: one sample per second for the last minutes, one per ten seconds for the last two hours.
// The samples from before the page was opened are fetched from the node.

import { signal } from "@preact/signals";
import { get } from "./api";
import type { QueueBody as Queue, QueueHistory } from "./types";
import { serverNow, waiting } from "./words";

export interface Samples {
  at: number[];
  waiting: number[];
  running: number[];
  rate: number[];
  failed: number[];
}
type Reach = "minutes" | "hours";

/** The maximum time range of a chart, in seconds. */
export const REACH: Record<Reach, number> = { minutes: 300, hours: 7200 };
const STEP = 10;
const MOST: Record<Reach, number> = { minutes: 300, hours: 720 };

export const reach = signal<Reach>("minutes");
export const sampled = signal(0);
const kept: Record<Reach, Map<string, Samples>> = { minutes: new Map(), hours: new Map() };

const none = (): Samples => ({ at: [], waiting: [], running: [], rate: [], failed: [] });
const columns = (samples: Samples): number[][] => Object.values(samples) as number[][];

function push(table: Reach, name: string, at: number, queue: Queue): void {
  const found = kept[table].get(name) ?? none();
  kept[table].set(name, found);
  if (found.at[found.at.length - 1] === at) return;
  found.at.push(at);
  found.waiting.push(waiting(queue));
  found.running.push(queue.running);
  found.rate.push(queue.rate ?? 0);
  found.failed.push(queue.failed);
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
    for (const name of ["waiting", "running", "rate", "failed"] as const) made[name].push(found[name][from]!);
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
      const joined = columns(before).map((column, at) => [...column, ...columns(known)[at]!].slice(-MOST[table]));
      const [at, waiting, running, rate, failed] = joined as [number[], number[], number[], number[], number[]];
      kept[table].set(queue.name, { at, waiting, running, rate, failed });
    }
  }
  sampled.value++;
}

/** Returns the columns of a queue's chart: times, waiting, rate, and jobs that failed since its first sample. */
export function drawn(name: string): [number[], number[], number[], number[]] {
  const found = kept[reach.value].get(name) ?? none();
  const newest = kept.minutes.get(name);
  const end = newest ? newest.at.length - 1 : -1;
  const live = reach.value === "hours" && newest && end >= 0 && newest.at[end]! > (found.at[found.at.length - 1] ?? 0);
  const before = found.failed[0] ?? 0;
  const rows: [number[], number[], number[], number[]] = [
    found.at,
    found.waiting,
    found.rate,
    found.failed.map((failed) => Math.max(0, failed - before)),
  ];
  if (!live) return rows;
  const last = [newest.at[end]!, newest.waiting[end]!, newest.rate[end]!, Math.max(0, newest.failed[end]! - before)];
  return rows.map((row, at) => [...row, last[at]!]) as [number[], number[], number[], number[]];
}
