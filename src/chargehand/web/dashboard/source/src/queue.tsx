// One queue: what it does now, its charts, why jobs fail, what runs longest, its crew and its limits.

import { useState } from "preact/hooks";
import { may } from "./api";
import { Chart, type Line } from "./charts";
import { acting, crews, type LiveQueue, nodeless, now, queues, workerKeys, workers, workersTick } from "./live";
import { quoted } from "./filter";
import { Causes } from "./jobs";
import { retryFailed } from "./orders";
import { Problems } from "./problems";
import { Empty, Hint, Skeleton, Since, Until, WorkerLink } from "./parts";
import { to, toJob } from "./route";
import { drawn, type Figure, reach, REACH } from "./samples";
import type { CrewRow } from "./types";
import { count, length, many, perMinute, plain, shortId, waiting } from "./words";
import { CrewOrders, Workers } from "./workers";

/** Up to this number, each failure is looked at as it comes; of more, every tenth. */
const FEW = 30;
const SHOWN = 5;

interface Plot {
  title: string;
  lines: (Line & { figure: Figure })[];
  format: (n: number) => string;
}
const jobs = (n: number): string => (n < 10 && !Number.isInteger(n) ? n.toFixed(1) : count(n));
const PLOTS: Plot[] = [
  {
    title: "Jobs ended, and newly failed", format: jobs,
    lines: [
      { label: "ended per min", tone: "good", scale: "rate", fill: true, figure: "rate" },
      { label: "newly failed", tone: "bad", scale: "jobs", dashed: true, figure: "failed" },
    ],
  },
  {
    title: "Waiting and running", format: jobs,
    lines: [
      { label: "waiting", tone: "accent", scale: "jobs", fill: true, figure: "waiting" },
      { label: "running", tone: "good", scale: "jobs", dashed: true, figure: "running" },
    ],
  },
  {
    title: "How long jobs waited", format: length,
    lines: [
      { label: "p50", tone: "accent", scale: "time", figure: "wait_p50_s" },
      { label: "p95", tone: "warn", scale: "time", dashed: true, figure: "wait_p95_s" },
      { label: "oldest", tone: "muted", scale: "time", figure: "oldest_wait_s" },
    ],
  },
  {
    title: "How long attempts took", format: length,
    lines: [
      { label: "p50", tone: "accent", scale: "time", figure: "run_p50_s" },
      { label: "p95", tone: "warn", scale: "time", dashed: true, figure: "run_p95_s" },
    ],
  },
];

export function QueuePage({ name }: { name: string }) {
  const queue = queues.get(name)?.now.value;
  const serving = crews.value.filter((crew) => crew.queue === name);
  return (
    <>
      <header class="top">
        <h1 tabIndex={-1}>Queue {name}</h1>
        {queue && queue.failed > 0 && may("control") && acting.value && (
          <button data-key="r" onClick={() => retryFailed([name])}>Retry {many(queue.failed, "failed job")}</button>
        )}
        {serving.map((crew) => <CrewOrders key={crew.name} crew={crew.name} />)}
      </header>
      <Problems of={[name, ...serving.map((crew) => crew.name)]} />
      {!queue && <Skeleton rows={3} />}
      {queue && <Figures queue={queue} name={name} />}
      <header class="head charts-head">
        <h2>Charts</h2>
        <div class="choice" role="group" aria-label="Time range of the charts">
          <button aria-pressed={reach.value === "minutes"} onClick={() => (reach.value = "minutes")}>5 minutes</button>
          <button aria-pressed={reach.value === "hours"} onClick={() => (reach.value = "hours")}>2 hours</button>
        </div>
      </header>
      <div class="charts">
        {PLOTS.map((plot) => (
          <figure key={plot.title}>
            <figcaption>{plot.title}</figcaption>
            <Chart
              lines={plot.lines}
              reach={REACH[reach.value]}
              format={plot.format}
              label={`${plot.title}: queue ${name} over the last ${reach.value}`}
              data={() => dataOf(name, plot)}
            />
          </figure>
        ))}
      </div>
      <div class="pair">
        <Failures name={name} failed={queue?.failed ?? 0} />
        <Longest crews={serving.map((crew) => crew.name)} />
      </div>
      {serving.map((crew) => <Limits key={crew.name} crew={crew} queue={queue} />)}
      {serving.length === 0 && queue && nodeless.value === null && <Hint command="chargehand doctor">No crew serves this queue: its jobs are not processed.</Hint>}
      {serving.map((crew) => <Workers key={crew.name} crew={crew.name} />)}
    </>
  );
}

function dataOf(name: string, plot: Plot): [number[], ...(number | null)[][]] {
  const [at, ...rows] = drawn(name, plot.lines.map((line) => line.figure));
  return [at, ...rows.map((row, n) => (plot.lines[n]!.figure === "rate" ? row.map((each) => (each ?? 0) * 60) : row))];
}

function Figures({ queue, name }: { queue: LiveQueue; name: string }) {
  const waits = waiting(queue);
  const time = (seconds: number | null | undefined) => (seconds == null ? "–" : length(seconds));
  const figure = (label: string, value: preact.ComponentChildren, bad = false) => (
    <div class={bad ? "bad" : ""}>
      <dt>{label}</dt>
      <dd>{value}</dd>
    </div>
  );
  return (
    <>
      <dl class="figures">
        {figure("waiting", <a href={to("jobs", undefined, { queue: name, state: "queued" })}>{count(waits)}</a>)}
        {figure("running", count(queue.running))}
        {figure("oldest", queue.oldest_ms === null ? "–" : <Since ms={queue.oldest_ms} />)}
        {figure("ended", perMinute(queue.rate))}
        {figure("time left", queue.eta_s !== null && waits > 0 ? length(queue.eta_s) : "–")}
        {figure("wait p50 / p95", `${time(queue.wait_p50_s)} / ${time(queue.wait_p95_s)}`)}
        {figure("run p50 / p95", `${time(queue.run_p50_s)} / ${time(queue.run_p95_s)}`)}
        {figure("done", count(queue.done))}
        {figure("failed", queue.failed ? <a href={to("jobs", undefined, { queue: name, state: "failed" })}>{count(queue.failed)}</a> : 0, queue.failed > 0)}
        {queue.future > 0 && figure("scheduled", count(queue.future))}
        {queue.following > 0 && figure("wait for other jobs", count(queue.following))}
      </dl>
      {queue.rate_next_ms !== null && <p class="paced">limited by rate, next in <Until ms={queue.rate_next_ms} /></p>}
    </>
  );
}

/** The failed jobs by their causes, each with its retry. */
function Failures({ name, failed }: { name: string; failed: number }) {
  const [changed, setChanged] = useState(0);
  return (
    <section aria-labelledby="failures">
      <h2 id="failures">Failures by error</h2>
      {failed === 0
        ? <Empty>No job of this queue has failed.</Empty>
        : <Causes key={`${changed} ${Math.min(failed, FEW)} ${Math.floor(failed / 10)}`} filter={`queue:${quoted(name)}`} changed={() => setChanged(changed + 1)} within />}
    </section>
  );
}

/** The jobs in hand that have run longest. */
function Longest({ crews: its }: { crews: string[] }) {
  void workersTick.value;
  void now.value;
  const running = workerKeys.value
    .map((key) => workers.get(key)?.now.peek())
    .filter((worker) => worker !== undefined)
    .filter((worker) => its.includes(worker.crew) && worker.current_job && worker.job_since_ms)
    .sort((a, b) => (a.job_since_ms ?? 0) - (b.job_since_ms ?? 0))
    .slice(0, SHOWN);
  return (
    <section aria-labelledby="longest">
      <h2 id="longest">Running longest</h2>
      {running.length === 0 && <Empty>Nothing runs.</Empty>}
      <ul class="rows groups">
        {running.map((worker) => (
          <li key={`${worker.component}@${worker.node}`}>
            <b class="number"><Since ms={worker.job_since_ms!} /></b>
            <a class="what" href={toJob(worker.current_job!)} title={plain(worker.current_job!)}>{plain(worker.progress?.detail || worker.progress?.stage || shortId(worker.current_job!))}</a>
            <WorkerLink component={worker.component} node={worker.node} />
          </li>
        ))}
      </ul>
    </section>
  );
}

/** The limits and rates of a crew, and how full they are. */
function Limits({ crew, queue }: { crew: CrewRow; queue: LiveQueue | undefined }) {
  const used = queue !== undefined && queue.rate_next_ms !== null;
  const rows: [what: string, filled: number | null, of: number | null, words: string][] = [];
  if (crew.limit !== null) rows.push(["jobs at the same time", queue?.running ?? 0, crew.limit, `${count(queue?.running ?? 0)} of ${count(crew.limit)}`]);
  if (crew.rate !== null) rows.push(["rate", used ? 1 : 0, 1, used ? `${crew.rate}, used up` : crew.rate]);
  if (crew.limit_per_key !== null) rows.push(["jobs per key", null, null, `${count(crew.limit_per_key)}${queue?.limited ? `; ${many(queue.limited, "job waits", "jobs wait")} for it` : ""}`]);
  if (crew.rate_per_key !== null) rows.push(["rate per key", null, null, crew.rate_per_key]);
  if (!rows.length) return null;
  return (
    <section aria-label={`Limits of ${crew.name}`}>
      <h2>Limits of {crew.name}</h2>
      <ul class="rows limits">
        {rows.map(([what, filled, of, words]) => (
          <li key={what}>
            <span>{what}</span>
            {of ? <meter min={0} max={of} value={Math.min(filled ?? 0, of)} aria-label={`${what}: ${words}`} /> : <span />}
            <span class="number">{words}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
