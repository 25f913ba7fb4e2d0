// The history of a worker: from its node, from live events since the last answer, and crashes and operations.

import { useRef } from "preact/hooks";
import { get } from "./api";
import { addressOf, now, pasts, several, type Weights, workers, workersTick } from "./live";
import { Ago, Empty, State, useAsked, useEvery } from "./parts";
import { to, toJob } from "./route";
import type { CrashRecord as Crash, Operation, WorkerHistory, WorkerMoment } from "./types";
import { length, plain, shortId } from "./words";

interface Moment {
  at: number;
  state: string;
  word?: string;
  text: string;
  link?: string;
  /** The whole text, if `text` is a part of it. */
  title?: string;
  /** The duration. */
  took?: string;
}

const AGAIN_MS = 1500;
const SAME_MS = 2000;
const SHOWN = 60;
/** The outcomes of a job: the state whose look is used, and a label where the outcome is also a worker status. */
const ENDS: Record<string, [state: string, word?: string]> = {
  raised: ["error"],
  "gave up": ["error"],
  "timed out": ["warning"],
  crashed: ["warning", "job crashed"],
  retry: ["queued", "will be retried"],
  interrupted: ["cancelled"],
};

/** Fetches the history of a worker when the page is opened, and again while the worker changes. */
export function useHistory(component: string, name: string): WorkerHistory | null {
  const address = addressOf(component, workers.get(name)?.now.value.node);
  const [found, , ask] = useAsked(
    () => get<WorkerHistory>(`api/v1/workers/${encodeURIComponent(address)}/history`),
    [address],
  );
  const seen = useRef({ sign: "", times: 0 });
  useEvery(
    AGAIN_MS,
    () => {
      const worker = workers.get(name)?.now.peek();
      const sign = `${worker?.status} ${worker?.pid} ${worker?.current_job} ${worker?.jobs}`;
      if (sign !== seen.current.sign) seen.current = { sign, times: 2 }; // the outcome of a job appears when it is stored
      if (seen.current.times > 0) ask();
      seen.current.times--;
    },
    [component, name],
  );
  const node = workers.get(name)?.now.value.node ?? found?.node;
  return found?.node && found.component === component && found.node === node ? found : null;
}

/** Returns the memory of a worker: the last hour from its node, then the live values. */
export function weighed(told: WorkerHistory | null, here: Weights | undefined): [number[], (number | null)[]] {
  const at = [...(here?.at ?? [])];
  const memory = [...(here?.memory ?? [])];
  const since = at[0] ?? now.value / 1000;
  const before = (told?.memory_at_ms ?? []).filter((ms) => ms / 1000 < since);
  at.unshift(...before.map((ms) => ms / 1000));
  memory.unshift(...(told?.memory.slice(0, before.length) ?? []));
  return at.length ? [[...at, now.value / 1000], [...memory, memory[memory.length - 1] ?? null]] : [[], []];
}

function remembered(each: WorkerMoment): Moment {
  if (each.job === null) {
    const process = each.what === "starting" && each.pid ? `process ${each.pid}` : "";
    return { at: each.at_ms, state: each.what, text: each.text ?? process };
  }
  const took = each.duration_ms === null ? undefined : length(each.duration_ms / 1000);
  const [state, word = each.what] = ENDS[each.what] ?? [each.what];
  return { at: each.at_ms, state, word, ...named(each.job), took };
}

const named = (job: string) => ({ text: shortId(plain(job)), title: plain(job), link: toJob(job) });

/** Returns the live events since the last answer of the node, and the current job. */
function seenHere(name: string, told: WorkerHistory | null): Moment[] {
  const past = pasts.get(name) ?? [];
  const inHand = workers.get(name)?.now.value.current_job;
  const news = past.filter((each, at) => {
    if (each.job && each.job === inHand && at === past.length - 1) return true;
    return each.at > (told?.at_ms ?? 0) && (each.job || past[at - 1]?.status !== each.status);
  });
  const since = workers.get(name)?.now.value.job_since_ms;
  return news.map((each) => ({
    at: each.job && each.job === inHand ? (since ?? each.at) : each.at,
    state: each.job && each.status === "healthy" ? "busy" : each.status,
    ...(each.job ? named(each.job) : { text: each.text }),
  }));
}

/** Links each crash to its report; a report without a matching crash is added as a moment. */
function withReports(moments: Moment[], crashes: Crash[]): Moment[] {
  const left = [...crashes];
  const made = moments.map((each) => {
    const at = each.state === "crashed" ? left.findIndex((crash) => Math.abs(crash.at_ms - each.at) < SAME_MS) : -1;
    if (at < 0) return each;
    const [crash] = left.splice(at, 1);
    return { ...each, text: crash!.cause, link: to("crash", crash!.id) };
  });
  for (const crash of left) {
    const after = moments.find((each) => each.state === "failed" && Math.abs(each.at - crash.at_ms) < SAME_MS);
    const at = after ? Math.min(crash.at_ms, after.at - 1) : crash.at_ms; // the crash precedes giving up
    made.push({ at, state: "crashed", text: crash.cause, link: to("crash", crash.id) });
  }
  return made;
}

const ordered = (each: Operation): Moment => ({
  at: each.at_ms,
  state: "note",
  word: "operation",
  text: `${each.verb} ${each.target} by ${each.who}${each.detail ? `: ${each.detail}` : ""}`,
});

/** The targets of operations on a worker: where several nodes share the store, an operation names the node. */
function targetsOf(component: string, node: string | undefined): string[] {
  const crew = component.split(":")[1] ?? "";
  const own = [component, crew];
  return several.value && node !== undefined ? [crew, ...[...own, "*"].map((each) => `${node}/${each}`)] : own;
}

export function Timeline({ component, name, told }: { component: string; name: string; told: WorkerHistory | null }) {
  void workersTick.value;
  const worker = workers.get(name)?.now.value;
  const restarts = worker?.restart_count ?? 0;
  const node = worker?.node;
  const [found] = useAsked(async () => {
    const [{ crashes }, ...about] = await Promise.all([
      get<{ crashes: Crash[] }>("api/v1/crashes", { component, node, limit: 20 }),
      ...targetsOf(component, node).map((target) =>
        get<{ operations: Operation[] }>("api/v1/operations", { target, limit: 20 }),
      ),
    ]);
    return { crashes, operations: about.flatMap((each) => each.operations) };
  }, [component, node, restarts]);
  const lived = [...seenHere(name, told).reverse(), ...(told?.moments.map(remembered) ?? [])];
  const moments = [...withReports(lived, found?.crashes ?? []), ...(found?.operations.map(ordered) ?? [])];
  moments.sort((a, b) => b.at - a.at);
  return (
    <section aria-labelledby="timeline">
      <h2 id="timeline">Timeline</h2>
      {moments.length === 0 && <Empty>No events recorded.</Empty>}
      <ol class="timeline" tabIndex={0} aria-label="Events, newest first">
        {moments.slice(0, SHOWN).map((each, at) => (
          <li key={`${each.at}${each.state}${at}`}>
            <Ago ms={each.at} />
            <State state={each.state} word={each.word} />
            {each.link ? <a href={each.link} title={each.title}>{plain(each.text)}</a> : <span>{plain(each.text)}</span>}
            {each.took && <span class="soft">{each.took}</span>}
          </li>
        ))}
      </ol>
    </section>
  );
}
