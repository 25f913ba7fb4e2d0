// A worker's past: what its node remembers, what was seen here since the node was asked, crashes and orders of the store.

import { useRef } from "preact/hooks";
import { get } from "./api";
import { now, pasts, type Weights, workers, workersTick } from "./live";
import { Ago, Empty, State, useAsked, useEvery } from "./parts";
import { to, toJob } from "./route";
import type { CrashRecord as Crash, Operation, WorkerHistory, WorkerMoment } from "./types";
import { length } from "./words";

interface Moment {
  at: number;
  state: string;
  word?: string;
  text: string;
  link?: string;
  /** How long it took. */
  took?: string;
}

const AGAIN_MS = 1500;
const SAME_MS = 2000;
const SHOWN = 60;
/** How a job ended: in the look of a state, and in other words where the same are said of workers. */
const ENDS: Record<string, [state: string, word?: string]> = {
  raised: ["error"],
  "gave up": ["error"],
  "timed out": ["warning"],
  crashed: ["warning", "job crashed"],
  retry: ["queued", "to be retried"],
  interrupted: ["cancelled"],
};

/** What the node remembers of this worker: asked when the page is opened, and again while things happen to the worker. */
export function useHistory(component: string, name: string): WorkerHistory | null {
  const [found, , ask] = useAsked(
    () => get<WorkerHistory>(`api/v1/workers/${encodeURIComponent(component)}/history`),
    [component],
  );
  const seen = useRef({ sign: "", times: 0 });
  useEvery(
    AGAIN_MS,
    () => {
      const worker = workers.get(name)?.now.peek();
      const sign = `${worker?.status} ${worker?.pid} ${worker?.current_job} ${worker?.jobs}`;
      if (sign !== seen.current.sign) seen.current = { sign, times: 2 }; // the end of a job is told when it is written
      if (seen.current.times > 0) ask();
      seen.current.times--;
    },
    [component, name],
  );
  const node = workers.get(name)?.now.value.node ?? found?.node;
  return found?.node && found.component === component && found.node === node ? found : null;
}

/** Its memory: of the last hour as the node saw it, then as it was seen here. */
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
  return { at: each.at_ms, state, word, text: each.job, link: toJob(each.job), took };
}

/** What the node could not tell yet: all that was seen here since it was asked, and the job in hand. */
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
    text: each.job ?? each.text,
    ...(each.job ? { link: toJob(each.job) } : {}),
  }));
}

/** Each crash with its report; a report of a crash that nobody saw is a moment of its own. */
function withReports(moments: Moment[], crashes: Crash[]): Moment[] {
  const left = [...crashes];
  const made = moments.map((each) => {
    const at = each.state === "crashed" ? left.findIndex((crash) => Math.abs(crash.at_ms - each.at) < SAME_MS) : -1;
    if (at < 0) return each;
    const [crash] = left.splice(at, 1);
    return { ...each, text: crash!.text, link: to("crash", crash!.id) };
  });
  for (const crash of left) {
    const after = moments.find((each) => each.state === "failed" && Math.abs(each.at - crash.at_ms) < SAME_MS);
    const at = after ? Math.min(crash.at_ms, after.at - 1) : crash.at_ms; // it was given up because of it
    made.push({ at, state: "crashed", text: crash.text, link: to("crash", crash.id) });
  }
  return made;
}

const ordered = (each: Operation): Moment => ({
  at: each.at_ms,
  state: "note",
  word: "order",
  text: `${each.verb} ${each.target} by ${each.who}${each.detail ? `: ${each.detail}` : ""}`,
});

export function Timeline({ component, name, told }: { component: string; name: string; told: WorkerHistory | null }) {
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
  const lived = [...seenHere(name, told).reverse(), ...(told?.moments.map(remembered) ?? [])];
  const moments = [...withReports(lived, found?.crashes ?? []), ...(found?.operations.map(ordered) ?? [])];
  moments.sort((a, b) => b.at - a.at);
  return (
    <section aria-labelledby="timeline">
      <h2 id="timeline">Timeline</h2>
      {moments.length === 0 && <Empty>Nothing has happened to it that is known.</Empty>}
      <ol class="timeline" tabIndex={0} aria-label="What happened, newest first">
        {moments.slice(0, SHOWN).map((each, at) => (
          <li key={`${each.at}${each.state}${at}`}>
            <Ago ms={each.at} />
            <State state={each.state} word={each.word} />
            {each.link ? <a href={each.link}>{each.text}</a> : <span>{each.text}</span>}
            {each.took && <span class="soft">{each.took}</span>}
          </li>
        ))}
      </ol>
    </section>
  );
}
