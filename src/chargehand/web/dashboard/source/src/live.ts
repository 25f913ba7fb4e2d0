// Live state: one event stream for this page, applied once per animation frame, so that bursts cost one update.

import { batch, computed, effect, signal, type Signal } from "@preact/signals";
import { base, get, refused, session, whoAmI } from "./api";
import { forget, learnPast, sample } from "./samples";
import type {
  CrewRow as Crew,
  FlowBody as Flow,
  FlowRemoval,
  FlowUpdate,
  HealthBody as Health,
  Info,
  JobBody as LiveJob,
  JobRemoval,
  JobUpdate,
  LiveEvent,
  NodeBody as Node,
  NodeRemoval,
  NodeUpdate,
  Pause,
  QueueBody as Queue,
  QueueRemoval,
  QueueUpdate,
  WorkerBody as Worker,
  WorkerRemoval,
  WorkerUpdate,
} from "./types";
import { moment, serverNow } from "./words";

export interface Past {
  at: number;
  status: string;
  text: string;
  job: string | null;
}

/** A live object: its newest state, and the number of the full state that last included it. */
interface Kept<T> {
  now: Signal<T>;
  telling: number;
}

const PAST_KEPT = 40;
const SWEEP_MS = 1500;
const HIDDEN_MS = 15_000;
/** How long a stream may be interrupted before the page says so. */
const LOST_MS = 1000;
const MEMORIES_KEPT = 120;

export const workers = new Map<string, Kept<Worker>>();
/** The keys of all workers, sorted; changes only when workers are added or removed. */
export const workerKeys = signal<string[]>([]);
export const nodes = new Map<string, Kept<Node>>();
/** The names of all nodes, sorted; empty if the store is for one node. */
export const nodeNames = signal<string[]>([]);
/** Whether several nodes share the store: then workers are named with their nodes. */
export const several = computed(() => nodeNames.value.length > 1);
export const pasts = new Map<string, Past[]>();
export type LiveQueue = Queue & { oldest_ms: number | null };
export const queues = new Map<string, Kept<LiveQueue>>();
export const queueNames = signal<string[]>([]);
export const jobs = new Map<string, Kept<LiveJob>>();
export const jobsTick = signal(0);
export const flows = new Map<string, Kept<Flow>>();
export const flowsTick = signal(0);
/** Changes with every update of a worker, for components that aggregate workers. */
export const workersTick = signal(0);
export const health = signal<Health | null>(null);
/** When a worker crashed or was given up last, as far as this page has seen. */
export const crashedAt = signal(0);

export const connection = signal<"connecting" | "live" | "lost">("connecting");
export const lastHeard = signal(0);
export const now = signal(serverNow());
export const crews = signal<Crew[]>([]);
export const pauses = signal<Pause[]>([]);
export const info = signal<Info | null>(null);

/** Since when no node runs, as this page noticed; null while one runs, or before that is known. */
export const nodeless = signal<number | null>(null);
/** Whether orders can be carried out: the server answers, and a node runs. */
export const acting = computed(() => connection.value === "live" && nodeless.value === null);

/** The topics of the current page, in addition to ALWAYS: `queue:jobs`, `job:ID`, `flow:*`, `flow:ID`. */
export const wanted = signal<string[]>([]);

export interface Weights {
  at: number[];
  memory: (number | null)[];
}

/** The memory of each worker, at every change. */
export const memories = new Map<string, Weights>();

// applying

let pending = new Map<string, LiveEvent>();
let scheduled = false;
let telling = 0;

function keyOf(event: LiveEvent): string {
  if (event.type === "worker_update") return `w ${event.worker.component} ${event.worker.node}`;
  if (event.type === "job_update") return `j ${event.job.id}`;
  if (event.type === "flow_update") return `f ${event.flow.id}`;
  return event.topic;
}

function take(event: LiveEvent): void {
  const key = keyOf(event);
  pending.delete(key); // so that the order is that of the newest events
  pending.set(key, event);
  if (!scheduled) {
    scheduled = true;
    requestAnimationFrame(apply);
  }
}

function apply(): void {
  scheduled = false;
  const events = pending;
  pending = new Map();
  batch(() => {
    let come = false;
    let moved = false;
    let job = false;
    let flow = false;
    for (const event of events.values()) {
      if (event.type === "worker_update") {
        come = applyWorker(event) || come;
        moved = true;
      } else if (event.type === "node_update") applyNode(event);
      else if (event.type === "queue_update") applyQueue(event);
      else if (event.type === "job_update") job = applyJob(event) || job;
      else if (event.type === "flow_update") flow = applyFlow(event) || flow;
      else if (event.type === "health_update") {
        health.value = event.health;
        aboutSoon(); // whether a node runs is not part of the event
      }
    }
    if (come) sortWorkers();
    if (moved) workersTick.value++;
    if (job) jobsTick.value++;
    if (flow) flowsTick.value++;
    lastHeard.value = Date.now();
  });
}

function keep<T>(table: Map<string, Kept<T>>, key: string, value: T): boolean {
  const kept = table.get(key);
  if (kept) {
    kept.now.value = value;
    kept.telling = telling;
    return false;
  }
  table.set(key, { now: signal(value), telling });
  return true;
}

function applyWorker(event: WorkerUpdate | WorkerRemoval): boolean {
  const key = `${event.worker.component}@${event.worker.node}`;
  if ("removed" in event) {
    pasts.delete(key);
    memories.delete(key);
    return workers.delete(key);
  }
  const worker = event.worker;
  const before = workers.get(key)?.now.peek();
  remember(key, before, worker, event.timestamp_ms);
  if (!before || before.memory !== worker.memory) weigh(key, worker.memory || null); // 0 before the first heartbeat
  // A pause by another user shows first in the status of its workers.
  if ((before?.status === "paused") !== (worker.status === "paused")) aboutSoon();
  return keep(workers, key, worker);
}

function weigh(key: string, memory: number | null): void {
  const row = memories.get(key) ?? { at: [], memory: [] };
  memories.set(key, row);
  const at = serverNow() / 1000;
  if (row.at.length) {
    row.at.push(at - 0.001); // the old value until now: a step, not a slope
    row.memory.push(row.memory[row.memory.length - 1] ?? null);
  }
  row.at.push(at);
  row.memory.push(memory);
  if (row.at.length > MEMORIES_KEPT) {
    row.at.splice(0, 2);
    row.memory.splice(0, 2);
  }
}

function remember(key: string, before: Worker | undefined, worker: Worker, at: number): void {
  const past = pasts.get(key) ?? [];
  pasts.set(key, past);
  const changed = !before || before.status !== worker.status || before.pid !== worker.pid;
  if (changed || before.current_job !== worker.current_job) {
    past.push({ at, status: worker.status, text: worker.text ?? "", job: worker.current_job });
    if (past.length > PAST_KEPT) past.shift();
  }
  if (!before) return;
  const fell = (worker.status === "crashed" || worker.status === "failed") && before.status !== worker.status;
  // The worker may have restarted before its crash was received.
  const back = worker.restart_count > before.restart_count && before.status !== "crashed" && !fell;
  if (fell || back) crashedAt.value = at;
}

function sortWorkers(): void {
  const found = [...workers.entries()].map(([key, kept]) => ({ key, worker: kept.now.peek() }));
  found.sort(
    (a, b) =>
      a.worker.crew.localeCompare(b.worker.crew) ||
      (a.worker.index ?? 0) - (b.worker.index ?? 0) ||
      a.worker.node.localeCompare(b.worker.node),
  );
  workerKeys.value = found.map((each) => each.key);
}

/** Returns since when the job that is taken next has been due, which does not change as long as it waits. */
const oldestOf = ({ queue, timestamp_ms }: QueueUpdate): number | null =>
  queue.oldest_wait_s === null ? null : timestamp_ms - queue.oldest_wait_s * 1000;

function applyQueue(event: QueueUpdate | QueueRemoval): void {
  const name = event.queue.name ?? "";
  if ("removed" in event) {
    queues.delete(name);
    forget(name);
  } else if (!keep(queues, name, { ...event.queue, oldest_ms: oldestOf(event) })) return;
  queueNames.value = [...queues.keys()].filter(Boolean).sort();
}

function applyNode(event: NodeUpdate | NodeRemoval): void {
  if ("removed" in event) nodes.delete(event.node.name);
  else if (!keep(nodes, event.node.name, event.node)) return;
  nodeNames.value = [...nodes.keys()].sort();
}

/** Returns the name of a worker for operations and requests: with its node where several nodes share the store. */
export const addressOf = (component: string, node: string | undefined): string =>
  several.value && node !== undefined ? `${node}/${component.replace(/^worker:/, "")}` : component;

/** Whether a node has disappeared without having been stopped. */
export function isGone(node: string): boolean {
  void nodeNames.value; // subscribes: the node may become known later
  return nodes.get(node)?.now.value.status === "gone";
}

function applyJob(event: JobUpdate | JobRemoval): boolean {
  if ("removed" in event) return jobs.delete(event.job.id);
  keep(jobs, event.job.id, event.job);
  return true;
}

function applyFlow(event: FlowUpdate | FlowRemoval): boolean {
  if ("removed" in event) return flows.delete(event.flow.id);
  keep(flows, event.flow.id, event.flow);
  return true;
}

/** Begins a full state; whatever it has not included after SWEEP_MS is removed. */
function tellAnew(): void {
  telling++;
  const mine = telling;
  setTimeout(() => {
    if (mine === telling && connection.peek() === "live") sweep(mine);
  }, SWEEP_MS);
}

function sweep(current: number): void {
  batch(() => {
    for (const table of [nodes, workers, queues, jobs, flows] as Map<string, Kept<unknown>>[]) {
      for (const [key, kept] of table) if (kept.telling !== current) table.delete(key);
    }
    for (const table of [pasts, memories]) for (const key of table.keys()) if (!workers.has(key)) table.delete(key);
    sortWorkers();
    nodeNames.value = [...nodes.keys()].sort();
    queueNames.value = [...queues.keys()].filter(Boolean).sort();
    workersTick.value++;
    jobsTick.value++;
    flowsTick.value++;
  });
}

// the stream

const ALWAYS = ["queue:status", "queue:*:status", "worker:*:status", "node:*:status", "system:health"];
const KINDS = ["node_update", "worker_update", "queue_update", "job_update", "flow_update", "health_update", "resync", "message"];
let source: EventSource | null = null;
let listening = "";
let retry: ReturnType<typeof setTimeout> | undefined;
let patience = 1000;
let losing: ReturnType<typeof setTimeout> | undefined;
/** Whether the history was fetched: when the page is opened, and after the stream was interrupted. */
let caughtUp = false;

function open(topics: string): void {
  close();
  listening = topics;
  const url = new URL("api/events", base);
  url.searchParams.set("topics", topics);
  const mine = (source = new EventSource(url));
  let first = true;
  mine.onopen = () => {
    if (first) tellAnew(); // a reconnection resumes the stream, or sends a resync event
    first = false;
    patience = 1000;
    clearTimeout(losing);
    losing = undefined;
    connection.value = "live";
    lastHeard.value = Date.now();
    void about();
    if (!caughtUp) void before();
    caughtUp = true;
  };
  mine.onerror = () => {
    losing ??= setTimeout(() => (connection.value = "lost"), LOST_MS);
    caughtUp = false;
    if (mine.readyState === EventSource.CLOSED) again(topics);
  };
  for (const kind of KINDS) {
    mine.addEventListener(kind, (message) => {
      const event = JSON.parse((message as MessageEvent<string>).data) as LiveEvent;
      if (event.type === "resync") tellAnew();
      else take(event);
    });
  }
}

/** Reopens a stream that the server refused, which EventSource does not retry; fetches the session first. */
function again(topics: string): void {
  clearTimeout(retry);
  retry = setTimeout(async () => {
    try {
      await whoAmI();
    } catch {
      again(topics);
      return;
    }
    if (session.peek() && listening === topics) open(topics);
  }, patience);
  patience = Math.min(patience * 2, 10_000);
}

function close(): void {
  clearTimeout(retry);
  source?.close();
  source = null;
  listening = "";
}

/** Keeps the stream open while a user is signed in and the tab is visible. */
export function listen(): void {
  const looking = signal(document.visibilityState === "visible");
  let hiding: ReturnType<typeof setTimeout> | undefined;
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.visibilityState === "visible") looking.value = true;
    else hiding = setTimeout(() => (looking.value = false), HIDDEN_MS);
  });
  effect(() => {
    const topics = [...ALWAYS, ...wanted.value].join(",");
    if (session.value?.scopes.includes("read") && looking.value) {
      if (topics !== listening) open(topics);
    } else close();
  });
  setInterval(tick, 1000);
}

function tick(): void {
  if (document.visibilityState !== "visible") return;
  batch(() => {
    now.value = serverNow();
    if (connection.peek() === "live") sample([...queues].map(([name, kept]) => [name, kept.now.peek()]));
  });
}

let soon: ReturnType<typeof setTimeout> | undefined;

/** Fetches pauses once for a burst of worker updates. */
function aboutSoon(): void {
  clearTimeout(soon);
  soon = setTimeout(() => session.peek() && void about(), 50);
}

/** Fetches what the stream does not contain: crews, pauses, versions. */
export async function about(): Promise<void> {
  try {
    const [foundCrews, foundPauses, foundInfo] = await Promise.all([
      get<{ crews: Crew[] }>("api/v1/crews"),
      get<{ pauses: Pause[] }>("api/v1/pauses"),
      get<Info>("api/v1/info"),
    ]);
    batch(() => {
      crews.value = foundCrews.crews;
      pauses.value = foundPauses.pauses;
      info.value = foundInfo;
      const elsewhere = [...nodes.values()].some((kept) => kept.now.peek().status !== "gone");
      if (foundInfo.supervisor || elsewhere) nodeless.value = null;
      else nodeless.value ??= serverNow();
    });
  } catch {
    // shown as the connection state; fetched again after the reconnection
  }
}

/** Fetches the samples of queues from before the page was opened. */
async function before(): Promise<void> {
  try {
    await learnPast();
  } catch {
    // shown as the connection state; fetched again after the reconnection
  }
}

export const lostSince = (): string => (lastHeard.value ? moment(lastHeard.value) : "");
export const signedOut = (): boolean => session.value === null && refused.value !== null;
