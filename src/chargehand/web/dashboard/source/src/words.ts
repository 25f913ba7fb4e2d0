// Formats numbers, times, sizes and names.

import type { WorkerGpu } from "./types";

let skew = 0;

/** Computes the offset of the server's clock from the Date header; up to 5 seconds are ignored. */
export function learnClock(date: string | null): void {
  const theirs = date ? Date.parse(date) : NaN;
  if (!Number.isNaN(theirs)) {
    const off = theirs - Date.now();
    skew = Math.abs(off) > 5000 ? off : 0;
  }
}

/** Returns the current time by the server's clock. */
export const serverNow = (): number => Date.now() + skew;

const whole = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 0 });

export const count = (n: number): string => whole.format(n);

export function many(n: number, one: string, more = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : more}`;
}

/** Formats a duration: `850 ms`, `12 s`, `3 min 20 s`, `2 h 5 min`, `4 d 3 h`. */
export function length(seconds: number): string {
  if (seconds < 0) return "0 s";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1).replace(".0", "")} s`;
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return pair(Math.floor(s / 60), "min", s % 60, "s");
  if (s < 86400) return pair(Math.floor(s / 3600), "h", Math.floor((s % 3600) / 60), "min");
  return pair(Math.floor(s / 86400), "d", Math.floor((s % 86400) / 3600), "h");
}

/** Formats a duration in whole seconds, for counters. */
export const ticking = (seconds: number): string => length(Math.max(0, Math.floor(seconds) || 0) || 0).replace("0 ms", "0 s");

function pair(a: number, unit: string, b: number, smaller: string): string {
  return b ? `${a} ${unit} ${b} ${smaller}` : `${a} ${unit}`;
}

/** Formats a size; a dash if it is unknown, or 0 because it was not measured yet. */
export function bytes(n: number | null): string {
  if (!n) return "–";
  if (n < 1 << 20) return `${Math.round(n / 1024)} KiB`;
  if (n < 1 << 30) return `${Math.round(n / (1 << 20))} MiB`;
  return `${(n / (1 << 30)).toFixed(1)} GiB`;
}

export const gpuName = (gpu: WorkerGpu): string => (gpu.index === null ? gpu.name : `GPU ${gpu.index}`);

/** Formats the memory of a GPU: what all processes use, and how much there is. */
export function gpuMemory(gpu: WorkerGpu): string {
  if (gpu.memory === null) return "–";
  return gpu.memory_used === null ? bytes(gpu.memory) : `${gpu.memory_used ? bytes(gpu.memory_used) : "0"} of ${bytes(gpu.memory)}`;
}

/** Formats jobs per second as jobs per minute, or per hour if they are few. */
export function perMinute(rate: number | null): string {
  if (!rate) return "0/min";
  const minute = rate * 60;
  if (minute >= 10) return `${count(minute)}/min`;
  if (minute >= 1) return `${minute.toFixed(1).replace(".0", "")}/min`;
  return `${(rate * 3600).toFixed(rate * 3600 < 10 ? 1 : 0).replace(".0", "")}/h`;
}

const clockFormat = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayFormat = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** Formats a moment: the time of day, with the date if it is not today. */
export function moment(ms: number): string {
  const at = new Date(ms);
  const time = clockFormat.format(at);
  return at.toDateString() === new Date().toDateString() ? time : `${dayFormat.format(at)} ${time}`;
}

const datedFormat = new Intl.DateTimeFormat("en-GB", {
  weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
  timeZoneName: "short",
});

/** Formats a moment exactly: with day and zone. */
export const dated = (ms: number): string => datedFormat.format(new Date(ms));

/** Formats the seconds since a moment: `just now`, `40 s ago`, `5 min ago`, `3 h ago`, `in 2 min`. */
export function ago(seconds: number): string {
  const amount = Math.abs(seconds);
  if (amount < 3) return seconds < -1 ? "in a moment" : "just now";
  const [n, unit] =
    amount < 60 ? [amount, "s"] : amount < 3600 ? [amount / 60, "min"] : amount < 172_800 ? [amount / 3600, "h"] : [amount / 86_400, "d"];
  const text = `${Math.floor(n as number)} ${unit}`;
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}

/** Returns the last 8 characters of an id, which commands accept instead of it. */
export const shortId = (id: string): string => (id.length > 12 ? id.slice(-8) : id);

export const exact = (ms: number): string => new Date(ms).toISOString();

/** Shortens `worker:tag:0` to `tag 0`. */
export function shortName(component: string): string {
  const [, crew, index] = component.split(":");
  return index === undefined ? component : `${crew} ${index}`;
}

/** Characters that would turn the direction of the texts beside them. */
const TURNS = /[\u202a-\u202e\u2066-\u2069]/g;

/** Formats a text that may contain escapes for bytes that are not UTF-8: `caf\xe9.mp3`; characters that turn other texts are shown as escapes. */
export const plain = (text: string): string =>
  text.replaceAll("\u{10fade}", "\\").replace(TURNS, (character) => `\\u${character.charCodeAt(0).toString(16)}`);

/** Returns a text that is written from right to left so that the texts beside it keep their order. */
export const apart = (text: string): string => (/[\u0590-\u08ff\ufb1d-\ufefc]/.test(text) ? `\u2068${text}\u2069` : text);

/** Returns a text with the ids of jobs as their last 8 characters, by which everything finds them. */
export const brief = (text: string): string => plain(text).replace(/\b[0-9a-f]{24}([0-9a-f]{8})\b/g, "$1");

export function jobName(job: { label: string | null; item: string | null; id: string }): string {
  return plain(job.label || job.item || job.id);
}

/** Returns how many jobs of a queue are due: neither scheduled for later nor waiting for other jobs. */
export const waiting = (queue: { queued: number; future: number; following: number }): number =>
  queue.queued - queue.future - queue.following;

/** Returns what a queued job waits for, if it is other jobs. */
export const waitsFor = (job: { state: string; waits_for: number }): string =>
  job.state === "queued" && job.waits_for ? `waits for ${many(job.waits_for, "job")}` : "";

/** Keeps integers that JavaScript would round; browsers of before 2025 round them. Use: `JSON.stringify(value, exactly)`. */
export function exactly(_: string, value: unknown): unknown {
  if (typeof value !== "bigint") return value;
  const { rawJSON } = JSON as unknown as { rawJSON?: (text: string) => unknown };
  return rawJSON ? rawJSON(String(value)) : Number(value);
}

/** Parses JSON; integers that JavaScript would round become a `bigint`. */
export function parsed(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const keep = (_: string, value: unknown, context?: { source?: string }): unknown => {
    const source = context?.source ?? "";
    return typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source) ? BigInt(source) : value;
  };
  return JSON.parse(text, keep as (key: string, value: unknown) => unknown);
}

export const pretty = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value, exactly, 2));
