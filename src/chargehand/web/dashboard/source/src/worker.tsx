// One worker: what it is, what it did, how it died.

import { get } from "./api";
import { Chart } from "./charts";
import { Crashes } from "./crashes";
import { memories, now, pasts, workerKeys, workers, workersTick } from "./live";
import { LogLines } from "./logs";
import { Orders } from "./orders";
import { stateOf, wordOf } from "./overview";
import { Ago, Bar, Empty, progressWords, Since, State, useAsked } from "./parts";
import { to, toJob } from "./route";
import type { Crash, Operation, Worker } from "./types";
import { bytes, count, shortName } from "./words";

/** A worker may be named without its node. */
function keyOf(name: string): string | undefined {
  return workers.has(name) ? name : workerKeys.value.find((key) => key.startsWith(`${name}@`));
}

export function WorkerPage({ name }: { name: string }) {
  const key = keyOf(name);
  const worker = key ? workers.get(key)?.now.value : undefined;
  const component = name.split("@")[0]!;
  return (
    <>
      <header class="top">
        <h1 tabIndex={-1}>
          Worker {shortName(component)} {worker && <State state={stateOf(worker)} word={wordOf(worker)} />}
        </h1>
        {worker && (
          <Orders scope={component} paused={worker.status === "paused"} down={["failed", "crashed"].includes(worker.status)} />
        )}
      </header>
      {!worker && <Empty>There is no such worker now. What it left is below.</Empty>}
      {worker && key && <Facts worker={worker} name={key} />}
      <Timeline component={component} name={key ?? name} />
      <section aria-labelledby="logs">
        <h2 id="logs">Last log lines</h2>
        <LogLines scope={component} />
      </section>
      <section aria-labelledby="crashes">
        <h2 id="crashes">Crash reports</h2>
        <Crashes component={component} again={worker?.restart_count} />
      </section>
    </>
  );
}

function Facts({ worker, name }: { worker: Worker; name: string }) {
  return (
    <>
      {(worker.text || worker.reason) && worker.status !== "healthy" && <p class="trouble">{worker.text ?? worker.reason}</p>}
      {worker.current_job && (
        <section aria-labelledby="now">
          <h2 id="now">
            Now: <a href={toJob(worker.current_job)}>{worker.current_job}</a>
          </h2>
          <Bar key={worker.current_job} progress={worker.progress} label="Progress" />
          <p class="soft">
            {worker.progress ? progressWords(worker.progress) : "It has not said how far it is"}
            {worker.job_since_ms && <>, for <Since ms={worker.job_since_ms} /></>}
          </p>
        </section>
      )}
      <dl class="facts">
        <div><dt>process</dt><dd>{worker.pid ?? "none"}</dd></div>
        <div><dt>up for</dt><dd>{worker.pid && worker.started_ms ? <Since ms={worker.started_ms} /> : "–"}</dd></div>
        <div><dt>memory</dt><dd>{bytes(worker.memory)}</dd></div>
        <div><dt>jobs done</dt><dd>{count(worker.jobs)}</dd></div>
        <div><dt>restarts</dt><dd>{count(worker.restart_count)}</dd></div>
        <div>
          <dt>crashes left</dt>
          <dd>{worker.budget ? `${worker.budget.rapid_left} soon, ${worker.budget.lifetime_left} in all` : "–"}</dd>
        </div>
        <div><dt>node</dt><dd>{worker.node}</dd></div>
      </dl>
      <div class="card">
        <Chart
          lines={[{ label: "memory", tone: "accent", scale: "bytes", fill: true }]}
          label={`Memory of ${worker.component} since this page was opened`}
          reach={MEMORY_REACH}
          format={(n) => (n ? bytes(n) : "0")}
          data={() => weighed(name)}
        />
        <p class="key" aria-hidden="true"><i class="accent" /> memory, since this page was opened</p>
      </div>
    </>
  );
}

const MEMORY_REACH = 3600;

function weighed(name: string): [number[], (number | null)[]] {
  const found = memories.get(name);
  if (!found) return [[], []];
  return [[...found.at, now.value / 1000], [...found.memory, found.memory[found.memory.length - 1] ?? null]];
}

interface Moment {
  at: number;
  state: string;
  text: string;
  link?: string;
}

const SAME_MS = 2000;
const reported = (crashes: Crash[] | undefined, at: number): boolean =>
  crashes?.some((crash) => Math.abs(crash.at_ms - at) < SAME_MS) ?? false;

/** What is known of its past: crashes and orders from the store, starts and jobs as they were seen here. */
function Timeline({ component, name }: { component: string; name: string }) {
  void workersTick.value;
  const restarts = workers.get(name)?.now.value.restart_count ?? 0;
  const crew = component.split(":")[1] ?? "";
  const [found] = useAsked(async () => {
    const [crashes, own, all] = await Promise.all([
      get<{ crashes: Crash[] }>("api/v1/crashes", { component, limit: 20 }),
      get<{ operations: Operation[] }>("api/v1/operations", { target: component, limit: 20 }),
      get<{ operations: Operation[] }>("api/v1/operations", { target: crew, limit: 20 }),
    ]);
    return { crashes: crashes.crashes, operations: [...own.operations, ...all.operations] };
  }, [component, restarts]);
  const seen = (pasts.get(name) ?? []).filter((past) => past.status !== "crashed" || !reported(found?.crashes, past.at));
  const moments: Moment[] = seen.map((past) => ({
    at: past.at,
    state: past.job && past.status === "healthy" ? "busy" : past.status,
    text: past.job ?? past.text,
    ...(past.job ? { link: toJob(past.job) } : {}),
  }));
  for (const crash of found?.crashes ?? []) {
    const after = seen.find((past) => past.status === "failed" && Math.abs(past.at - crash.at_ms) < SAME_MS);
    const at = after ? Math.min(crash.at_ms, after.at - 1) : crash.at_ms; // it was given up because of it
    moments.push({ at, state: "crashed", text: crash.text, link: to("crash", crash.id) });
  }
  for (const each of found?.operations ?? [])
    moments.push({ at: each.at_ms, state: "note", text: `${each.verb} ${each.target} by ${each.who}${each.detail ? `: ${each.detail}` : ""}` });
  moments.sort((a, b) => b.at - a.at);
  return (
    <section aria-labelledby="timeline">
      <h2 id="timeline">Timeline</h2>
      {moments.length === 0 && <Empty>Nothing has happened to it that is known.</Empty>}
      <ol class="timeline" tabIndex={0} aria-label="What happened, newest first">
        {moments.slice(0, 60).map((each, at) => (
          <li key={`${each.at}${each.state}${at}`}>
            <Ago ms={each.at} />
            <State state={each.state} word={each.state === "note" ? "order" : undefined} />
            {each.link ? <a href={each.link}>{each.text}</a> : <span>{each.text}</span>}
          </li>
        ))}
      </ol>
    </section>
  );
}
