// One job: its data, attempts, crash reports and log.

import { useEffect, useRef } from "preact/hooks";
import { get, may } from "./api";
import { Json } from "./json";
import { Life, StackNow } from "./life";
import { crews, jobs, jobsTick, now } from "./live";
import { LogLines } from "./logs";
import { merged } from "./jobs";
import { cancelJob, retryJob } from "./orders";
import { Ago, Bar, Copy, Empty, Failure, progressWords, Since, Skeleton, State, Tags, Text, Trouble, useAsked, WorkerLink } from "./parts";
import { to } from "./route";
import type { FlowDetail, JobDetail, JobLink } from "./types";
import { count, exact, exactly, jobName, length, many, plain, pretty, shortId, shortName, waitsFor } from "./words";

export function JobPage({ id }: { id: string }) {
  void jobsTick.value;
  const live = jobs.get(id)?.now.value;
  const stage = `${live?.state}|${live?.waits_for}|${live?.failures}|${live?.crashes}|${live?.worker}`;
  const [found, error, look] = useAsked<JobDetail>(() => get(`api/v1/jobs/${encodeURIComponent(id)}`), [id]);
  const before = useRef(stage);
  useEffect(() => {
    if (before.current !== stage) look();
    before.current = stage;
  }, [stage]);
  if (!found) return error ? <Trouble error={error} /> : <Skeleton />;
  const job = merged(found, live);
  const again = (done: boolean) => done && look();
  return (
    <>
      <header class="top">
        <h1 tabIndex={-1}>
          {job.label || job.item ? jobName(job) : shortId(job.id)} <State state={job.state} word={job.state} />
        </h1>
        {may("control") && (
          <div class="orders" role="group" aria-label="Actions for this job">
            <button disabled={!["failed", "cancelled"].includes(job.state)} onClick={() => retryJob(id).then(again)}>
              Retry
            </button>
            <button
              disabled={!["queued", "running"].includes(job.state)}
              onClick={() => cancelJob(id, job.state === "running").then(again)}
            >
              Cancel
            </button>
          </div>
        )}
      </header>
      <Trouble error={error} />
      <Facts job={job} />
      <Life job={job} />
      {job.state === "running" && (
        <section aria-labelledby="progress">
          <h2 id="progress">Progress</h2>
          <Bar progress={job.progress} label="Progress" />
          <p class="soft">{job.progress ? progressWords(job.progress) : "No progress reported."}</p>
        </section>
      )}
      {may("control") && <StackNow job={job} />}
      {job.error && (
        <section aria-labelledby="error">
          <h2>
            <span id="error">{job.state === "failed" ? "Error" : "Last error"}</span> <Copy text={job.error} what="the error" />{" "}
            <Copy text={() => report(job)} what="a bug report" label="as a bug report" />
          </h2>
          <Failure label="Error" line={job.cause ?? null} frames={job.error === found.error ? found.own_frames : []} text={job.error} />
        </section>
      )}
      {job.result !== null && job.state === "done" && (
        <section aria-labelledby="result">
          <h2>
            <span id="result">Result</span> <Copy text={() => pretty(job.result)} what="the result" />
          </h2>
          <Json value={job.result} label="Result" />
        </section>
      )}
      <section aria-labelledby="payload">
        <h2>
          <span id="payload">Payload</span> <Copy text={() => pretty(job.payload)} what="the payload" />{" "}
          <Copy text={() => asCommand(job)} what="the command that enqueues such a job" label="as a command" />
        </h2>
        <Json value={job.payload} label="Payload" />
      </section>
      <Related job={job} />
      <Attempts job={job} />
      <Reports job={job} />
      <section aria-labelledby="logs">
        <h2 id="logs">Log</h2>
        <LogLines job={id} />
      </section>
    </>
  );
}

/** Returns the command that enqueues a job with this payload. */
function asCommand(job: JobDetail): string {
  const crew = crews.value.find((each) => each.queue === job.queue)?.name ?? job.queue;
  const text = JSON.stringify(job.payload, exactly).replaceAll("'", "'\\''");
  return `chargehand jobs enqueue ${crew} '${text}'`;
}

/** Returns what somebody who is to mend the handler needs. */
function report(job: JobDetail): string {
  const attempts = job.attempt_history.map((each) => `${exact(each.started_ms)}  ${each.outcome}  ${length(each.duration_ms / 1000)}  ${each.worker ?? ""}`);
  return [
    `Job ${job.id} (${jobName(job)}) of queue ${job.queue}: ${job.state}${job.reason ? `, ${job.reason}` : ""}`,
    `\nAttempts:\n${attempts.join("\n")}`,
    `\nPayload:\n${pretty(job.payload)}`,
    `\nError:\n${plain(job.error ?? "")}`,
  ].join("\n");
}

/** The facts that take two columns. */
const WIDE = ["id", "tags", "flow", "meta", "trace"];
/** Related jobs that are shown at first. */
const FEW = 10;

function Facts({ job }: { job: JobDetail }) {
  const facts: [string, preact.ComponentChildren][] = [
    ["id", <span key="id"><code>{job.id}</code> <Copy text={job.id} what="the id" /></span>],
    ["queue", <a key="q" href={to("jobs", undefined, { queue: job.queue })}>{job.queue}</a>],
    ["created", <Ago key="m" ms={job.created_ms} />],
    ...(job.flow ? ([["flow", <FlowLink key="f" id={job.flow} />]] as [string, preact.ComponentChildren][]) : []),
    ["failures", `${job.failures} of ${job.max_attempts}`],
  ];
  if (job.state === "queued" && job.run_at_ms > now.value) facts.push(["scheduled for", <Ago key="n" ms={job.run_at_ms} />]);
  if (waitsFor(job)) facts.push(["waits for", many(job.waits_for, "job")]);
  if (job.parent) facts.push(["spawned by", <a key="p" href={to("job", job.parent)}>{job.parent.slice(-8)}</a>]);
  if (job.crashes) facts.push(["crashes", String(job.crashes)]);
  if (job.interruptions) facts.push(["interruptions", String(job.interruptions)]);
  if (job.started_ms) facts.push(["started", <Ago key="s" ms={job.started_ms} />]);
  if (job.finished_ms) facts.push(["finished", <Ago key="f" ms={job.finished_ms} />]);
  if (job.started_ms && job.state === "running") facts.push(["running for", <Since key="r" ms={job.started_ms} />]);
  if (job.worker) facts.push(["worker", <WorkerLink key="w" component={job.worker} node={job.node} />]);
  if (job.reason) facts.push(["reason", job.reason]);
  if (job.tags?.length) facts.push(["tags", <Tags key="t" tags={job.tags} />]);
  if (job.meta) facts.push(["meta", <code key="j">{plain(JSON.stringify(job.meta))}</code>]);
  if (job.traceparent) facts.push(["trace", <code key="c">{job.traceparent.split("-")[1]}</code>]);
  if (job.key) facts.push(["unique key", plain(job.key)]);
  if (job.share) facts.push(["share", plain(job.share)]);
  if (job.sequence) facts.push(["sequence", plain(job.sequence)]);
  if (job.expires_at_ms && job.state === "queued") facts.push(["expires", <Ago key="x" ms={job.expires_at_ms} />]);
  if (job.limit_key) facts.push(["limit key", plain(job.limit_key)]);
  if (job.priority) facts.push(["priority", String(job.priority)]);
  if (job.timeout_ms) facts.push(["timeout", length(job.timeout_ms / 1000)]);
  if (job.cancel_ms && job.state === "running") facts.push(["cancel requested", <Ago key="c" ms={job.cancel_ms} />]);
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name} class={WIDE.includes(name) ? "wide" : undefined}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function FlowLink({ id }: { id: string }) {
  const [found] = useAsked<FlowDetail>(() => get(`api/v1/flows/${encodeURIComponent(id)}`), [id]);
  return (
    <a href={to("flow", id)} title={id}>
      {found ? plain(found.name) : id.slice(-8)}
    </a>
  );
}

/** The jobs that this one waits for, that wait for it, and that it spawned. */
function Related({ job }: { job: JobDetail }) {
  const kinds: [title: string, jobs: JobLink[], count: number][] = [
    ["Predecessors", job.predecessors, job.related.predecessors],
    ["Followers", job.followers, job.related.followers],
    ["Children", job.children, job.related.children],
  ];
  return (
    <>
      {kinds.map(
        ([title, jobs, all]) =>
          all > 0 && (
            <section key={title} aria-labelledby={title}>
              <h2 id={title}>
                {title} <span class="soft">{count(all)}</span>
              </h2>
              <Links jobs={jobs.slice(0, FEW)} />
              {jobs.length > FEW && (
                <details>
                  <summary>{many(jobs.length - FEW, "more job")}</summary>
                  <Links jobs={jobs.slice(FEW)} />
                </details>
              )}
              {all > jobs.length && <p class="soft">{count(all - jobs.length)} more are not shown.</p>}
            </section>
          ),
      )}
    </>
  );
}

function Links({ jobs }: { jobs: JobLink[] }) {
  return (
    <ul class="related">
      {jobs.map((each) => (
        <li key={each.id}>
          <State state={each.state} word={each.state} /> <a href={to("job", each.id)}>{plain(each.label ?? each.id)}</a>{" "}
          <span class="soft">{each.queue}</span>
        </li>
      ))}
    </ul>
  );
}

const ENDS: Record<string, string> = {
  done: "done",
  raised: "failed",
  "timed out": "failed",
  "gave up": "failed",
  retry: "warning",
  crashed: "crashed",
};

function Attempts({ job }: { job: JobDetail }) {
  return (
    <section aria-labelledby="attempts">
      <h2 id="attempts">Attempts</h2>
      {job.attempt_history.length === 0 && (
        <Empty>{job.state === "running" ? "The first attempt is running." : "No attempts yet."}</Empty>
      )}
      {job.attempt_history.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Attempts">
          <table class="stacked">
            <thead>
              <tr>
                <th scope="col">Started</th>
                <th scope="col">Worker</th>
                <th scope="col" class="number">Duration</th>
                <th scope="col">Outcome</th>
                <th scope="col">Error</th>
              </tr>
            </thead>
            <tbody>
              {job.attempt_history.map((each) => (
                <tr key={each.claim}>
                  <td class="when">
                    <Ago ms={each.started_ms} />
                  </td>
                  <td class="lead">{each.worker ? <WorkerLink component={each.worker} node={each.node} /> : "–"}</td>
                  <td class="number took">{length(each.duration_ms / 1000)}</td>
                  <td>
                    <State state={ENDS[each.outcome] ?? "cancelled"} word={each.outcome} />
                  </td>
                  <td class="what">
                    {each.error && (
                      <details>
                        <summary>{plain(each.cause ?? each.error)}</summary>
                        <Text label="Error of this attempt">{each.error}</Text>
                      </details>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function Reports({ job }: { job: JobDetail }) {
  if (!job.crash_reports.length) return null;
  return (
    <section aria-labelledby="reports">
      <h2 id="reports">Crashes during this job</h2>
      <ul>
        {job.crash_reports.map((crash) => (
          <li key={crash.id}>
            <Ago ms={crash.at_ms} /> <a href={to("crash", crash.id)}>{crash.text}</a> <span class="soft">{shortName(crash.component)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
