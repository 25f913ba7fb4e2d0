// One worker: its status, history, log and crash reports.

import { Chart } from "./charts";
import { Crashes } from "./crashes";
import { addressOf, isGone, memories, workerKeys, workers } from "./live";
import { LogLines } from "./logs";
import { Orders } from "./orders";
import { stateOf, wordOf } from "./workers";
import { Bar, Empty, progressWords, Since, State } from "./parts";
import { toJob } from "./route";
import { Timeline, useHistory, weighed } from "./timeline";
import type { WorkerBody as Worker, WorkerHistory } from "./types";
import { bytes, count, gpuMemory, gpuName, plain, shortId, shortName } from "./words";

/** Returns the key of a worker, which may be named without its node. */
function keyOf(name: string): string | undefined {
  return workers.has(name) ? name : workerKeys.value.find((key) => key.startsWith(`${name}@`));
}

export function WorkerPage({ name }: { name: string }) {
  const key = keyOf(name);
  const worker = key ? workers.get(key)?.now.value : undefined;
  const component = name.split("@")[0]!;
  const address = addressOf(component, worker?.node);
  const told = useHistory(component, key ?? name);
  return (
    <>
      <header class="top">
        <h1 tabIndex={-1}>
          Worker {address === component ? shortName(component) : address} {worker && <State state={stateOf(worker)} word={wordOf(worker)} />}
        </h1>
        {worker && !isGone(worker.node) && (
          <Orders scope={address} paused={worker.status === "paused"} down={["failed", "crashed"].includes(worker.status)} />
        )}
      </header>
      {!worker && <Empty>This worker does not exist now. Its history is below.</Empty>}
      {worker && key && <Facts worker={worker} name={key} told={told} />}
      <Timeline component={component} name={key ?? name} told={told} />
      <section aria-labelledby="logs">
        <h2 id="logs">Log</h2>
        <LogLines scope={address} />
      </section>
      <section aria-labelledby="crashes">
        <h2 id="crashes">Crash reports</h2>
        <Crashes component={component} node={worker?.node} again={worker?.restart_count} />
      </section>
    </>
  );
}

/** The jobs of a worker that performs several at the same time. */
function InHand({ worker }: { worker: Worker }) {
  const names = worker.batch_jobs.length ? worker.batch_jobs : worker.current_job ? [worker.current_job] : [];
  const more = worker.in_hand - names.length;
  return (
    <section aria-labelledby="now">
      <h2 id="now">
        Jobs in hand: {worker.in_hand} of {worker.concurrency}
      </h2>
      <ul class="in-hand">
        {names.map((job) => (
          <li key={job}><a href={toJob(job)} title={plain(job)}>{shortId(plain(job))}</a></li>
        ))}
        {more > 0 && <li class="soft">and {more} more</li>}
      </ul>
    </section>
  );
}

function Facts({ worker, name, told }: { worker: Worker; name: string; told: WorkerHistory | null }) {
  return (
    <>
      {worker.status === "asleep" && !worker.shortage && <p class="soft">It exited because it was idle. The next job starts it.</p>}
      {(worker.text || worker.reason) && !["healthy", "asleep"].includes(worker.status) && (
        <p class="trouble">{plain(worker.cause ?? worker.text ?? worker.reason ?? "")}</p>
      )}
      {worker.status === "asleep" && worker.shortage && <p class="trouble">{worker.text}</p>}
      {worker.concurrency > 1 && worker.in_hand > 0 && <InHand worker={worker} />}
      {worker.concurrency === 1 && worker.current_job && (
        <section aria-labelledby="now">
          <h2 id="now">
            Current job: <a href={toJob(worker.current_job)} title={plain(worker.current_job)}>{shortId(plain(worker.current_job))}</a>
          </h2>
          <Bar key={worker.current_job} progress={worker.progress} label="Progress" />
          <p class="soft">
            {worker.progress ? progressWords(worker.progress) : "No progress reported"}
            {worker.job_since_ms && <>, for <Since ms={worker.job_since_ms} /></>}
          </p>
        </section>
      )}
      <dl class="facts">
        <div><dt>process</dt><dd>{worker.pid ?? "none"}</dd></div>
        <div><dt>uptime</dt><dd>{worker.pid && worker.started_ms ? <Since ms={worker.started_ms} /> : "–"}</dd></div>
        <div><dt>memory</dt><dd>{bytes(worker.memory)}</dd></div>
        <div><dt>jobs done</dt><dd>{count(worker.jobs)}</dd></div>
        <div>
          <dt>restarts</dt>
          <dd>{worker.restarts_total > worker.restart_count
            ? `${count(worker.restart_count)}, ${count(worker.restarts_total)} in total`
            : count(worker.restart_count)}</dd>
        </div>
        <div>
          <dt>crashes left</dt>
          <dd>{worker.budget ? `${worker.budget.rapid_left} in window, ${worker.budget.lifetime_left} in total` : "–"}</dd>
        </div>
        <div><dt>node</dt><dd>{worker.node}</dd></div>
        {worker.gpus?.map((gpu) => (
          <div key={gpu.uuid} class="wide">
            <dt title={gpu.uuid}>{gpuName(gpu)} {gpu.index !== null && gpu.name}</dt>
            <dd>
              {gpuMemory(gpu)}
              {gpu.worker_memory !== null && ` (this worker: ${bytes(gpu.worker_memory)})`}
              {gpu.utilization !== null && `, ${gpu.utilization} % busy`}
            </dd>
          </div>
        ))}
      </dl>
      <div class="card">
        <Chart
          lines={[{ label: "memory in the last hour", tone: "accent", scale: "bytes", fill: true }]}
          label={`Memory of ${worker.component} over the last hour`}
          reach={MEMORY_REACH}
          format={(n) => (n ? bytes(n) : "0")}
          data={() => weighed(told, memories.get(name))}
        />
      </div>
    </>
  );
}

const MEMORY_REACH = 3600;
