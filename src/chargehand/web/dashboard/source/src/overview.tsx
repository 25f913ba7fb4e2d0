// The overview: overall status, a chart for every queue, a tile for every worker.

import { useComputed } from "@preact/signals";
import { memo } from "preact/compat";
import { may } from "./api";
import { Chart, type Line } from "./charts";
import {
  crews, health, isGone, lately, now, pasts, pauses, queueNames, queues, several, workerKeys, workers, workersTick,
} from "./live";
import { Orders } from "./orders";
import { Ago, Bar, Empty, Mark, progressWords, Since, State, toneOf, Until, WorkerLink } from "./parts";
import { to, toJob } from "./route";
import { drawn, reach, REACH } from "./samples";
import type { Pause, QueueBody as Queue, WorkerBody as Worker } from "./types";
import { bytes, count, gpuMemory, gpuName, length, many, perSecond, plain, ticking, waiting } from "./words";

const LINES: Line[] = [
  { label: "waiting", tone: "accent", scale: "jobs", fill: true },
  { label: "done per second", tone: "good", scale: "rate" },
  { label: "failed", tone: "bad", scale: "jobs", dashed: true },
];

export function Overview() {
  return (
    <>
      <div class="now">
        <Verdict />
        <Lately />
      </div>
      <Queues />
      <Crews />
    </>
  );
}

function totals(): { ready: number; busy: number; all: number; down: number; paused: number; asleep: number } {
  void workersTick.value;
  let ready = 0;
  let busy = 0;
  let down = 0;
  let paused = 0;
  let asleep = 0;
  let all = 0;
  for (const kept of workers.values()) {
    const worker = kept.now.peek();
    if (isGone(worker.node)) continue;
    all++;
    if (worker.status === "healthy") ready++;
    if (worker.current_job) busy++;
    if (worker.status === "failed" || worker.status === "crashed") down++;
    if (worker.status === "paused") paused++;
    if (worker.status === "asleep") asleep++;
  }
  return { ready, busy, all, down, paused, asleep };
}

function Verdict() {
  const found = health.value;
  const sum = totals();
  void queueNames.value; // subscribes: the totals may become known later
  const all = queues.get("")?.now.value;
  const due = all ? waiting(all) : 0;
  const state = found?.status ?? "unknown";
  const errors = found?.errors ?? [];
  const shown = errors.length > 2 ? errors.slice(0, 1) : errors;
  const words: Record<string, string> = {
    healthy: sum.busy ? "Healthy, processing jobs" : due > 0 ? "Healthy, jobs waiting" : "Healthy, idle",
    degraded: "Degraded",
    error: "Error: some jobs are not processed",
    unknown: "Waiting for the first event …",
  };
  return (
    <section class={`verdict ${toneOf(state)}`} aria-labelledby="verdict">
      <div>
        <h1 id="verdict" tabIndex={-1}>
          <Mark state={state} /> {words[state] ?? state}
        </h1>
        <p>
          {sum.ready} of {many(sum.all, "worker")} ready, {sum.busy} busy
          {sum.paused > 0 && `, ${sum.paused} paused`}
          {sum.asleep > 0 && `, ${sum.asleep} asleep`}
          {sum.down > 0 && `, ${sum.down} down`}
        </p>
        <p>{all ? `${count(due)} waiting, ${count(all.running)} running, ${count(all.failed)} failed` : "…"}</p>
      </div>
      <ul>
        {shown.map((error, at) => <li key={at} title={error}>{error}</li>)}
        {errors.length > shown.length && (
          <li>
            <a href={to("doctor")}>… and {errors.length - shown.length} more</a>
          </li>
        )}
      </ul>
      <div class="aside">
        <Orders scope={null} paused={pauses.value.some((pause) => pause.scope === "*")} down={sum.down > 0} />
        {state !== "healthy" && <a href={to("doctor")}>Diagnosis</a>}
      </div>
    </section>
  );
}

function Queues() {
  return (
    <section aria-labelledby="queues">
      <header class="head">
        <h2 id="queues">Queues</h2>
        <div class="choice" role="group" aria-label="Time range of the charts">
          <button aria-pressed={reach.value === "minutes"} onClick={() => (reach.value = "minutes")}>5 minutes</button>
          <button aria-pressed={reach.value === "hours"} onClick={() => (reach.value = "hours")}>2 hours</button>
        </div>
      </header>
      {queueNames.value.length === 0 && <Empty>No queue has jobs or a crew yet.</Empty>}
      <div class="queues">
        {queueNames.value.map((name) => (
          <QueueCard key={name} name={name} />
        ))}
      </div>
    </section>
  );
}

const QueueCard = memo(function QueueCard({ name }: { name: string }) {
  const queue = queues.get(name)?.now.value;
  if (!queue) return null;
  return (
    <article class="card queue" aria-label={`Queue ${name}`}>
      <h3>
        <a href={to("jobs", undefined, { queue: name })}>{name}</a>
        <span class="soft">{queue.running ? `${count(queue.running)} running` : "idle"}</span>
      </h3>
      <Figures queue={queue} name={name} />
      {queue.following > 0 && <p class="paced">{many(queue.following, "job waits", "jobs wait")} for other jobs</p>}
      {queue.rate_next_ms !== null && (
        <p class="paced">
          limited by rate, next in <Until ms={queue.rate_next_ms} />
        </p>
      )}
      <Chart
        lines={LINES}
        reach={REACH[reach.value]}
        label={`Queue ${name} over the last ${reach.value}: jobs waiting, jobs done per second, jobs newly failed`}
        data={() => drawn(name)}
      />
      <p class="key" aria-hidden="true">
        <i class="accent" /> waiting <i class="bad dashed" /> newly failed <i class="good" /> done/s (right)
      </p>
    </article>
  );
});

function Figures({ queue, name }: { queue: Queue; name: string }) {
  const waits = waiting(queue);
  const eta = queue.eta_s !== null && waits > 0 ? length(queue.eta_s) : "–";
  return (
    <dl class="figures">
      <div>
        <dt>waiting</dt>
        <dd>{count(waits)}</dd>
      </div>
      <div>
        <dt>scheduled</dt>
        <dd>{count(queue.future)}</dd>
      </div>
      <div>
        <dt>rate</dt>
        <dd>{perSecond(queue.rate)}</dd>
      </div>
      <div>
        <dt>time left</dt>
        <dd>{eta}</dd>
      </div>
      <div>
        <dt>done</dt>
        <dd>{count(queue.done)}</dd>
      </div>
      <div class={queue.failed ? "bad" : ""}>
        <dt>failed</dt>
        <dd>{queue.failed ? <a href={to("jobs", undefined, { queue: name, state: "failed" })}>{count(queue.failed)}</a> : 0}</dd>
      </div>
    </dl>
  );
}

function Lately() {
  return (
    <section class="card recent" aria-labelledby="lately">
      <h2 id="lately">Recent crashes</h2>
      <ul class="lately" aria-live="polite" aria-labelledby="lately" tabIndex={0}>
        {lately.value.length === 0 && <li class="soft">No crashes in the last 24 hours.</li>}
        {lately.value.map((each) => (
          <li key={`${each.key}${each.at}${each.status}`}>
            <Ago ms={each.at} /> <State state={each.status} />{" "}
            <WorkerLink component={each.component} node={each.key.slice(each.component.length + 1)} /> <span>{each.text}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Crews() {
  const byCrew = useComputed(() => {
    const found = new Map<string, string[]>(crews.value.map((crew) => [crew.name, []]));
    for (const key of workerKeys.value) {
      const crew = workers.get(key)?.now.peek().crew ?? "?";
      found.set(crew, [...(found.get(crew) ?? []), key]);
    }
    return [...found.entries()].sort(([a], [b]) => a.localeCompare(b));
  });
  return (
    <>
      {byCrew.value.length === 0 && (
        <section aria-labelledby="crews">
          <h2 id="crews">Crews</h2>
          <Empty>No crew is registered. Define a crew with hand.crew(…) and start a node.</Empty>
        </section>
      )}
      {byCrew.value.map(([crew, keys]) => (
        <CrewSection key={crew} crew={crew} keys={keys} />
      ))}
    </>
  );
}

function CrewSection({ crew, keys }: { crew: string; keys: string[] }) {
  const known = crews.value.find((each) => each.name === crew);
  const pause = pauses.value.find((each) => each.scope === crew || each.scope === "*");
  const here = keys.filter((key) => !isGone(workers.get(key)?.now.peek().node ?? ""));
  // The number of workers is set for each node.
  const size = several.value ? (known?.scaled ?? known?.workers ?? here.length) : here.length;
  return (
    <section class="crew" aria-labelledby={`crew-${crew}`}>
      <header>
        <h2 id={`crew-${crew}`}>
          {crew} <span class="soft">{many(here.length, "worker")}{known && known.queue !== crew && `, queue ${known.queue}`}</span>
        </h2>
        {pause && <Held pause={pause} />}
        <CrewOrders crew={crew} keys={keys} size={size} paused={pause !== undefined} />
      </header>
      {keys.length === 0 && <Empty>This crew has no workers; its jobs are not processed.</Empty>}
      {(several.value ? byNode(keys) : [["", keys] as const]).map(([node, own]) => (
        <div key={node}>
          {node && (
            <h3 class="of">
              <a href={to("nodes")}>{node}</a> {isGone(node) && <State state="gone" />}
            </h3>
          )}
          <ul class="tiles">
            {own.map((key) => (
              <Tile key={key} name={key} />
            ))}
          </ul>
        </div>
      ))}
    </section>
  );
}

/** Who paused a crew or a node, why, and until when. */
export function Held({ pause }: { pause: Pause }) {
  return (
    <p class="held">
      <Mark state="paused" /> paused by {pause.who}: {pause.reason ?? "no reason given"}
      {pause.until_ms && (
        <>
          , until <Ago ms={pause.until_ms} />
        </>
      )}
    </p>
  );
}

/** Groups the keys of workers by their nodes. */
function byNode(keys: string[]): [node: string, keys: string[]][] {
  const found = new Map<string, string[]>();
  for (const key of keys) {
    const node = workers.get(key)?.now.peek().node ?? "?";
    found.set(node, [...(found.get(node) ?? []), key]);
  }
  return [...found].sort(([a], [b]) => a.localeCompare(b));
}

function CrewOrders({ crew, keys, size, paused }: { crew: string; keys: string[]; size: number; paused: boolean }) {
  const down = useComputed(() => {
    void workersTick.value;
    return keys.some((key) => ["failed", "crashed"].includes(workers.get(key)?.now.peek().status ?? ""));
  });
  return may("control") ? <Orders scope={crew} paused={paused} down={down.value} size={size} /> : null;
}

/** Returns the state to show: a node that is gone, or a flag (unresponsive, stalled), has priority over the status. */
export function stateOf(worker: Worker): string {
  if (isGone(worker.node)) return "gone";
  if (worker.flags.length) return "flagged";
  return worker.status === "healthy" && worker.current_job ? "busy" : worker.status;
}

export function wordOf(worker: Worker): string | undefined {
  if (isGone(worker.node)) return "node gone";
  if (worker.flags.length) return worker.flags.join(", ");
  return worker.status === "healthy" && !worker.current_job ? "idle" : undefined;
}

export const Tile = memo(function Tile({ name }: { name: string }) {
  const worker = workers.get(name)?.now.value;
  if (!worker) return null;
  const state = stateOf(worker);
  return (
    <li class={`tile ${toneOf(state)}${worker.gpus?.length ? " gpus" : ""}`} data-worker={worker.component} data-state={state}>
      <a href={to("worker", name)}>
        <span class="index">
          <span class="hidden">Worker {worker.crew} </span>
          {worker.index ?? worker.component}
        </span>
        <State state={state} word={wordOf(worker)} />
      </a>
      <Doing worker={worker} />
      <div class="line soft">
        <span title="Memory">{bytes(worker.memory)}</span>
        <span title="Uptime">{worker.started_ms && worker.pid ? <>up <Since ms={worker.started_ms} roughly /></> : "–"}</span>
        <span title="Jobs done">{many(worker.jobs, "job")}</span>
      </div>
      {worker.gpus?.map((gpu) => (
        <div key={gpu.uuid} class="line soft" title={gpu.uuid}>
          <span>{gpuName(gpu)}</span>
          <span title="GPU memory in use by all processes">{gpuMemory(gpu)}</span>
          <span title="Share of the time in which the GPU was busy">{gpu.utilization === null ? "–" : `${gpu.utilization} %`}</span>
        </div>
      ))}
      <div class="line soft">
        <span title="Restarts, and the crashes left before the worker is given up: in the window / in total">
          {many(worker.restart_count, "restart")}
          {worker.budget && `, ${worker.budget.rapid_left}/${worker.budget.lifetime_left} left`}
        </span>
        <Strip name={name} />
      </div>
    </li>
  );
});

/** The scopes of pauses that are about this worker, or about all workers of its node. */
function scopesOf({ component, node, crew }: Worker): string[] {
  return [component, `${node}/${component}`, `${node}/${crew}`, `${node}/*`];
}

function Doing({ worker }: { worker: Worker }) {
  if (worker.current_job && worker.concurrency > 1) {
    const share = { done: worker.in_hand, total: worker.concurrency, stage: null, detail: null };
    return (
      <div class="doing">
        <div class="line"><span>{worker.in_hand} of {worker.concurrency} jobs</span></div>
        <Bar progress={share} label={`Jobs in hand of ${worker.component}`} />
      </div>
    );
  }
  if (worker.current_job) {
    const words = worker.progress ? progressWords(worker.progress) : plain(worker.current_job);
    return (
      <div class="doing">
        <div class="line">
          <a href={toJob(worker.current_job)} title={plain(worker.current_job)}>
            {words}
          </a>
          <span class="soft">{worker.job_since_ms && <Since ms={worker.job_since_ms} />}</span>
        </div>
        <Bar key={worker.current_job} progress={worker.progress} label={`Progress of ${plain(worker.current_job)}`} />
      </div>
    );
  }
  const back = worker.restart_at_ms ? `restart in ${ticking((worker.restart_at_ms - now.value) / 1000)}; ` : "";
  const held = worker.status === "paused" && pauses.value.find((pause) => scopesOf(worker).includes(pause.scope));
  const why = held ? `by ${held.who}: ${held.reason ?? "no reason given"}` : (worker.cause ?? worker.text ?? worker.reason ?? "");
  const asleep = worker.status === "asleep" && !worker.shortage;
  const text = worker.status === "healthy" ? "" : asleep ? "the next job starts it" : back + why;
  return (
    <div class="doing why" title={text}>
      {text}
    </div>
  );
}

/** The last states of a worker, oldest first. */
function Strip({ name }: { name: string }) {
  const past = (pasts.get(name) ?? []).slice(-10);
  return (
    <span class="strip" role="img" aria-label={`Last states: ${past.map((each) => each.status).join(", ")}`}>
      {past.map((each, at) => (
        <i key={at} class={toneOf(each.job && each.status === "healthy" ? "busy" : each.status)} />
      ))}
    </span>
  );
}
