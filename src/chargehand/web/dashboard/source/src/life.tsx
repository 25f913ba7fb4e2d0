// A job's life to scale: how long it waited, its attempts, the pauses between them, and the usual duration in its queue.

import { useState } from "preact/hooks";
import { get } from "./api";
import { addressOf, now, queueNames, queues } from "./live";
import { Copy, Mark, Text, Trouble } from "./parts";
import type { JobDetail, WorkerStacks } from "./types";
import { bytes, length } from "./words";

interface Span {
  from: number;
  until: number;
  kind: "waited" | "attempt";
  state: string;
  words: string;
  /** What stands in a span without room for the words. */
  brief: string;
}

const CRASHED = ["crashed"];
const FAILED = ["raised", "timed out", "gave up"];
/** The least width of an attempt, in percent of the life: a short one stays visible. */
const LEAST = 0.6;

/** With more spans than this, an attempt may be too narrow for its mark. */
const MANY = 12;

/** Returns the spans of a job's life, in order; `at` is the present. */
function spansOf(job: JobDetail, at: number): Span[] {
  const attempts = job.attempt_history.map((each): Span => {
    const state = each.outcome === "done" ? "done" : CRASHED.includes(each.outcome) ? "crashed" : FAILED.includes(each.outcome) ? "failed" : "cancelled";
    const until = each.started_ms + each.duration_ms;
    return { from: each.started_ms, until, kind: "attempt", state, words: `${each.outcome} after ${length(each.duration_ms / 1000)}`, brief: length(each.duration_ms / 1000) };
  });
  if (job.state === "running" && job.started_ms) {
    const took = length((at - job.started_ms) / 1000);
    attempts.push({ from: job.started_ms, until: at, kind: "attempt", state: "running", words: `running for ${took}`, brief: took });
  }
  const spans: Span[] = [];
  let since = job.created_ms;
  for (const attempt of attempts) {
    if (attempt.from > since) spans.push(waited(since, attempt.from, spans.length > 0));
    spans.push(attempt);
    since = Math.max(since, attempt.until);
  }
  if (job.state === "queued") spans.push(waited(since, Math.max(at, since), spans.length > 0));
  return spans;
}

function waited(from: number, until: number, again: boolean): Span {
  const brief = length((until - from) / 1000);
  return { from, until, kind: "waited", state: "queued", words: `${again ? "paused" : "waited"} ${brief}`, brief };
}

export function Life({ job }: { job: JobDetail }) {
  void queueNames.value; // subscribes: the queue may become known later
  const spans = spansOf(job, job.state === "running" || job.state === "queued" ? now.value : (job.finished_ms ?? now.peek()));
  const whole = (spans[spans.length - 1]?.until ?? 0) - job.created_ms;
  if (!spans.length || whole <= 0) return null;
  const last = spans.filter((span) => span.kind === "attempt").pop();
  const took = last ? (last.until - last.from) / 1000 : null;
  const usual = queues.get(job.queue)?.now.value;
  const [p50, p95] = [usual?.run_p50_s ?? null, usual?.run_p95_s ?? null];
  return (
    <section aria-labelledby="life">
      <h2>
        <span id="life">Life</span> <span class="soft">{length(whole / 1000)} to scale</span>
      </h2>
      <ol class={spans.length > MANY ? "life many" : "life"}>
        {spans.map((span) => (
          <li
            key={`${span.kind}${span.from}`}
            class={`${span.kind} ${span.state}`}
            style={{ flexGrow: Math.max(((span.until - span.from) / whole) * 100, span.kind === "attempt" ? LEAST : 0) }}
            title={span.words}
          >
            {span.kind === "attempt" && ["failed", "crashed"].includes(span.state) && <Mark state={span.state} />}
            <span class="hidden">{span.words}</span>
            <span class="words" aria-hidden="true">{span.words}</span>
            <span class="brief" aria-hidden="true">{span.brief}</span>
          </li>
        ))}
      </ol>
      {took !== null && p50 !== null && p95 !== null && (
        <p class={took > p95 ? "warn" : "soft"}>
          {took > p95 ? "Slower than usual. " : ""}Usual in {job.queue}: p50 {length(p50)}, p95 {length(p95)}.
        </p>
      )}
    </section>
  );
}

/** A button that shows where a running job stands: the stacks of its worker, with memory and CPU. */
export function StackNow({ job }: { job: JobDetail }) {
  const [found, setFound] = useState<WorkerStacks | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [asking, setAsking] = useState(false);
  if (!job.worker || job.state !== "running") return null;
  const address = addressOf(job.worker, job.node ?? undefined);
  const ask = () => {
    setAsking(true);
    get<WorkerStacks>(`api/v1/workers/${encodeURIComponent(address)}/stack`)
      .then(
        (stacks) => [setFound(stacks), setError(null)],
        (refusal: Error) => setError(refusal.message),
      )
      .finally(() => setAsking(false));
  };
  const cpu = found?.cpu ?? null;
  return (
    <section aria-labelledby="stack">
      <h2>
        <span id="stack">Stack</span>{" "}
        <button disabled={asking} onClick={ask}>
          Stack now
        </button>{" "}
        <Copy text={`chargehand stack ${address.replace("worker:", "")}`} what="the command" label="as a command" />
      </h2>
      <Trouble error={error} />
      {found && (
        <>
          <p class="soft">
            {found.stacks ? "" : `${found.text}. `}
            {bytes(found.memory)} of memory
            {cpu !== null && `, ${cpu.toFixed(2)} CPU cores in use`}
            {found.cpu_s !== null && `, ${length(found.cpu_s)} of CPU time`}
          </p>
          {found.stacks && <Text label="Stacks">{found.stacks}</Text>}
        </>
      )}
    </section>
  );
}
