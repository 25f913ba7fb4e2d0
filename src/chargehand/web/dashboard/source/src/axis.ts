// Places the jobs of a stage on a time axis: in as few lanes as possible, and no more bars than a person can see.

import type { JobRecord } from "./types";
import { length } from "./words";

/** Bars of one stage, and lanes of one stage. */
const MOST_BARS = 100;
const MOST_LANES = 24;
const TALL = 12;
const LOW = 4;
export const LANE_GAP = 2;
/** The share of the axis that a bar takes up at least. */
const LEAST = 0.004;
const STEPS = [0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

export interface Span {
  from: number;
  to: number;
}

export interface Placed {
  job: JobRecord;
  from: number;
  to: number;
  /** The tone of the bar; `hollow` if the job waits. */
  look: string;
}

export type Lane = Placed[];

const LOOKS: Record<string, string> = { done: "good", failed: "bad", running: "busy", queued: "hollow", cancelled: "muted" };

/** Returns the time range of an axis, of one second at least. */
export const spanOf = (from: number, to: number): Span => ({ from, to: Math.max(to, from + 1000) });

/** Returns the height of a lane in pixels: many lanes are low. */
export const laneHeight = (lanes: number): number => (lanes <= 4 ? TALL : lanes <= 10 ? 8 : LOW);

function placed(job: JobRecord, span: Span): Placed {
  const ended = job.finished_ms ?? span.to;
  // A job that never ran is shown from when it was created, or as a mark at its end.
  const from = job.started_ms ?? (job.state === "queued" ? job.created_ms : ended);
  return { job, from, to: Math.max(from, job.state === "queued" ? span.to : ended), look: LOOKS[job.state] ?? "muted" };
}

/** What is drawn if not all can be: what runs, what failed, then what ended last; of those that wait, some. */
function rank(job: JobRecord): number {
  return ["running", "failed", "done", "cancelled", "queued"].indexOf(job.state);
}

/** Returns the bars of a stage by lane; the first lanes have the earliest jobs, the last those that wait. */
export function drawn(jobs: JobRecord[], span: Span): Lane[] {
  const chosen = [...jobs].sort((a, b) => rank(a) - rank(b) || b.seq - a.seq).slice(0, MOST_BARS);
  const waits = (bar: Placed): number => Number(bar.look === "hollow");
  const bars = chosen
    .map((job) => placed(job, span))
    .sort((a, b) => waits(a) - waits(b) || a.from - b.from || a.job.seq - b.job.seq);
  const least = (span.to - span.from) * LEAST;
  const lanes: Lane[] = [];
  const free: number[] = [];
  for (const bar of bars) {
    let lane = free.findIndex((until) => until <= bar.from);
    if (lane < 0) {
      if (lanes.length >= MOST_LANES) continue;
      lane = lanes.push([]) - 1;
    }
    lanes[lane]!.push(bar);
    free[lane] = Math.max(bar.to, bar.from + least);
  }
  return lanes;
}

/** Returns the ticks of an axis: their places from 0 to 1, and the time since its begin. */
export function axis({ from, to }: Span): { at: number; text: string }[] {
  const seconds = (to - from) / 1000;
  const step = STEPS.find((each) => seconds / each <= 6) ?? Math.ceil(seconds / 6 / 86400) * 86400;
  const ticks = [];
  for (let at = 0; at <= seconds * 0.97; at += step) ticks.push({ at: at / seconds, text: at ? length(at) : "0" });
  return ticks;
}
