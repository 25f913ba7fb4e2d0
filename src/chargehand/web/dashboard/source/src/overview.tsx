// The overview: the verdict, what is wrong with its remedy, all queues, then the workers.

import { connection, health, isGone, lastHeard, nodeless, pauses, queueNames, queues, workers, workersTick } from "./live";
import { Orders } from "./orders";
import { Ago, Copy, Mark, Since, Skeleton, toneOf } from "./parts";
import { diagnosed, Problems, problems } from "./problems";
import { QueueTable } from "./queues";
import { place, to } from "./route";
import { count, many, waiting } from "./words";
import { Workers } from "./workers";

export function Overview() {
  const known = health.value !== null || connection.value === "lost";
  return (
    <>
      <Verdict />
      {known ? <Problems /> : <Skeleton rows={4} />}
      <QueueTable />
      <Workers tiles={place.value.query.get("view") === "tiles"} />
    </>
  );
}

interface Totals {
  ready: number;
  busy: number;
  all: number;
  /** The crews, and those of which no worker is well. */
  crews: number;
  down: number;
}

function totals(): Totals {
  void workersTick.value;
  const sum = { ready: 0, busy: 0, all: 0 };
  const crews = new Map<string, boolean>();
  for (const kept of workers.values()) {
    const worker = kept.now.peek();
    const gone = isGone(worker.node);
    const down = gone || worker.status === "failed" || worker.status === "crashed";
    crews.set(worker.crew, (crews.get(worker.crew) ?? true) && down);
    if (gone) continue;
    sum.all++;
    if (worker.status === "healthy") sum.ready++;
    if (worker.current_job) sum.busy++;
  }
  return { ...sum, crews: crews.size, down: [...crews.values()].filter(Boolean).length };
}

/** Returns the state of the whole and its words. */
function verdictOf(sum: Totals, due: number): [state: string, words: string] {
  const state = health.value?.status ?? "unknown";
  if (state === "unknown") return [state, "Waiting for the first event …"];
  if (state === "healthy") return [state, sum.busy ? "Healthy, processing jobs" : due > 0 ? "Healthy, jobs waiting" : "Healthy, idle"];
  const word = state === "error" ? "Error" : "Degraded";
  if (sum.down) return [state, `${word}: ${count(sum.down)} of ${many(sum.crews, "crew")} ${sum.down === 1 ? "is" : "are"} down`];
  const first = problems.value.find((each) => each.cause !== "paused");
  return [state, first ? `${word}: ${first.short}` : state === "error" ? "Error: some jobs are not processed" : "Degraded"];
}

function Verdict() {
  void queueNames.value; // subscribes: the totals may become known later
  const sum = totals();
  const all = queues.get("")?.now.value;
  const due = all ? waiting(all) : 0;
  if (connection.value === "lost") return <Lost />;
  if (nodeless.value !== null) return <NoNode due={due} />;
  const [state, words] = verdictOf(sum, due);
  const since = problems.value.flatMap((each) => (each.since_ms && each.cause !== "paused" ? [each.since_ms] : []));
  return (
    <section class={`verdict ${toneOf(state)}`} aria-labelledby="verdict">
      <h1 id="verdict" tabIndex={-1}>
        <Mark state={state} /> {words}
      </h1>
      <p class="soft">
        {state !== "healthy" && since.length > 0 && <>for <Since ms={Math.min(...since)} />; </>}
        {sum.ready} of {many(sum.all, "worker")} ready, {sum.busy} busy
        {all && `; ${count(due)} waiting, ${count(all.running)} running, ${count(all.failed)} failed`}
      </p>
      <Orders scope={null} paused={pauses.value.some((pause) => pause.scope === "*")} down={sum.down > 0} brief />
    </section>
  );
}

function Lost() {
  return (
    <section class="verdict bad" aria-labelledby="verdict">
      <h1 id="verdict" tabIndex={-1}>
        <Mark state="error" /> The server does not answer
      </h1>
      <p class="soft">
        {lastHeard.value > 0 && <>for <Since ms={lastHeard.value} />; below is what was known then. </>}
        This page reconnects by itself; a node that runs elsewhere goes on working.
      </p>
    </section>
  );
}

const START = "chargehand work APP";

function NoNode({ due }: { due: number }) {
  const found = diagnosed.value?.findings.find((each) => each.severity === "error");
  const last = found?.since_ms ?? queues.get("")?.now.value.last_done_ms ?? null;
  return (
    <section class="verdict bad" aria-labelledby="verdict">
      <h1 id="verdict" tabIndex={-1}>
        <Mark state="error" /> No node is running
      </h1>
      <p class="soft">
        {last ? <>the last sign of one <Ago ms={last} />; </> : <>noticed <Ago ms={nodeless.value ?? 0} />; </>}
        no jobs are performed, {many(due, "job waits", "jobs wait")}. <a href={to("doctor")}>Diagnosis</a>
      </p>
      <p class="command">
        Start your API, or: <code>{START}</code> <Copy text={START} what="the command" />
      </p>
    </section>
  );
}
