// Operations on workers and jobs: shown if the key has the scope, confirmed if they interrupt work.

import { may, post, postNothing } from "./api";
import { about, acting, several } from "./live";
import { ask, tell, type Field } from "./parts";
import type { Answer } from "./types";
import { many, shortName } from "./words";

type Verb = "pause" | "resume" | "drain" | "restart" | "reset" | "scale" | "start" | "stop";

const NAMES: Record<Verb, string> = {
  pause: "Pause",
  resume: "Resume",
  drain: "Drain",
  restart: "Restart",
  reset: "Reset",
  scale: "Scale",
  start: "Start",
  stop: "Stop",
};
/** The keys of the keyboard for orders. */
const KEYS: Partial<Record<Verb, string>> = { pause: "p", resume: "p" };
const HURTS: Partial<Record<Verb, string>> = {
  stop: "Current jobs may finish within the grace period; otherwise they are queued again. The workers stay stopped until they are started.",
  drain: "Current jobs finish without a time limit. The workers then stay stopped until they are started.",
  restart: "Current jobs may finish within the grace period; otherwise they are queued again. Then new worker processes start.",
};
const DRAINS_NODE =
  "The node finishes its current jobs without a time limit and takes no more; other nodes take the jobs that wait. Its workers then stay stopped until the node is started or restarted.";

/** The scope of all workers of a node. */
export const allOf = (node: string): string => `${node}/*`;
const isNode = (scope: string | null): boolean => scope?.endsWith("/*") ?? false;

export const named = (scope: string | null): string => {
  if (scope === null || scope === "*") return "all workers";
  if (isNode(scope)) return `node ${scope.slice(0, -2)}`;
  if (scope.startsWith("worker:")) return shortName(scope);
  return scope.includes("/") ? scope : `crew ${scope}`;
};

/** Runs an operation and shows its outcome; returns whether it succeeded. */
export async function doing(title: string, work: () => Promise<string[]>): Promise<boolean> {
  try {
    tell(title, await work());
    return true;
  } catch (error) {
    tell(`${title} failed`, [(error as Error).message], true);
    return false;
  }
}

async function give(verb: Verb, scope: string | null, more: Record<string, unknown> = {}): Promise<void> {
  const title = `${NAMES[verb]} ${named(scope)}`;
  await doing(title, async () => {
    const body = { scope: scope === "*" ? null : scope, ...more };
    const { answers } = await post<{ answers: Answer[] }>(`api/web/worker/${verb}`, body);
    return answers.map((answer) => `${shortName(answer.component)} ${answer.text}`);
  });
  void about();
}

const PAUSE_FIELDS: Field[] = [
  { name: "reason", label: "Reason (shown to other users)", kind: "text" },
  { name: "minutes", label: "Duration in minutes (empty: until resumed)", kind: "number", min: 1 },
];

export async function order(verb: Verb, scope: string | null, size = 0): Promise<void> {
  if (verb === "pause") {
    const text = "Workers take no new jobs; current jobs finish, and the processes keep running. A pause survives restarts.";
    const said = await ask({ title: `Pause ${named(scope)}`, text, button: "Pause", fields: PAUSE_FIELDS });
    if (!said) return;
    const for_s = said.minutes ? Number(said.minutes) * 60 : null;
    return give(verb, scope, { reason: said.reason || null, for_s });
  }
  if (verb === "scale") {
    const each = several.value && !scope?.includes("/") ? " The number is set on each node whose settings give the crew workers." : "";
    const text = `Workers that are removed finish their jobs first. The number applies until the configured number changes.${each}`;
    const field: Field = {
      name: "count", label: "Workers", kind: "number", value: String(size), required: true, min: 0, max: 1000,
    };
    const said = await ask({ title: `Scale ${named(scope)}`, text, button: "Scale", fields: [field] });
    if (said) await give(verb, scope, { count: Number(said.count) });
    return;
  }
  const hurts = verb === "drain" && isNode(scope) ? DRAINS_NODE : HURTS[verb];
  if (hurts && !(await ask({ title: `${NAMES[verb]} ${named(scope)}?`, text: hurts, button: NAMES[verb], danger: true })))
    return;
  await give(verb, scope);
}

interface Concerned {
  scope: string | null;
  paused: boolean;
  down: boolean;
  size?: number;
  /** Whether all but the first are in the menu. */
  brief?: boolean;
  /** Whether the workers of a node finish their jobs and stop, or have stopped so. */
  drained?: boolean;
}

/** Buttons for the operations on a crew, a worker, a node or all workers; the likely ones first. */
export function Orders({ scope, paused, down, size, drained, brief }: Concerned) {
  if (!may("control") || !acting.value) return null;
  const button = (verb: Verb) => (
    <button key={verb} data-key={KEYS[verb]} onClick={() => order(verb, scope, size)} aria-label={`${NAMES[verb]} ${named(scope)}`}>
      {NAMES[verb]}{scope === null && first[0] === verb && " all"}
    </button>
  );
  const likely: Verb = !isNode(scope) ? "restart" : drained ? "start" : "drain";
  const first: Verb[] = [paused ? "resume" : "pause", likely];
  if (down) first.push("reset");
  if (size !== undefined) first.push("scale");
  if (brief) first.length = 1;
  const all: Verb[] = [paused ? "pause" : "resume", "drain", "restart", "stop", "start", "reset"];
  const rest = all.filter((verb) => !first.includes(verb));
  return (
    <div class="orders" role="group" aria-label={`Actions for ${named(scope)}`}>
      {first.map(button)}
      <details class="menu">
        <summary aria-label={`More actions for ${named(scope)}`}>More</summary>
        <div>{rest.map(button)}</div>
      </details>
    </div>
  );
}

// jobs

export async function retryJob(id: string): Promise<boolean> {
  return doing("Retry", async () => [(await postNothing<Answer>(`api/v1/jobs/${encodeURIComponent(id)}/retry`)).text]);
}

export async function cancelJob(id: string, running: boolean): Promise<boolean> {
  const text = "The job is asked to stop; if it does not stop in time, its worker is replaced. Work already done is not undone.";
  if (running && !(await ask({ title: "Cancel this running job?", text, button: "Cancel the job", danger: true })))
    return false;
  return doing("Cancel", async () => [(await postNothing<Answer>(`api/v1/jobs/${encodeURIComponent(id)}/cancel`)).text]);
}

// flows

const flowPath = (id: string, verb: string): string => `api/v1/flows/${encodeURIComponent(id)}/${verb}`;

export async function cancelFlow(id: string, name: string, live: number): Promise<boolean> {
  const text = `${many(live, "job")} of ${name} ${live === 1 ? "is" : "are"} cancelled. Running jobs are asked to stop; workers of jobs that do not stop in time are replaced. Work already done is not undone.`;
  if (!(await ask({ title: "Cancel this flow?", text, button: "Cancel the flow", danger: true }))) return false;
  return doing("Cancel flow", async () => [(await postNothing<Answer>(flowPath(id, "cancel"))).text]);
}

export async function retryFlow(id: string, name: string, bad: number): Promise<boolean> {
  const text = `${many(bad, "failed or cancelled job")} of ${name} ${bad === 1 ? "is" : "are"} queued again, and ${bad === 1 ? "its" : "their"} counters are reset. What is done is not done again.`;
  if (!(await ask({ title: "Retry this flow?", text, button: "Retry the flow" }))) return false;
  return doing("Retry flow", async () => [(await postNothing<Answer>(flowPath(id, "retry"))).text]);
}

async function retryEach(names: string[]): Promise<string[]> {
  const lines: string[] = [];
  for (const name of names) {
    let sum = 0;
    let more = true;
    while (more) {
      const found = await postNothing<{ count: number; more: boolean }>(`api/v1/queues/${encodeURIComponent(name)}/retry-failed`);
      sum += found.count;
      more = found.more && found.count > 0;
    }
    lines.push(`${name}: ${many(sum, "job")} queued again`);
  }
  return lines;
}

export async function retryFailed(names: string[]): Promise<boolean> {
  const text = `All failed jobs of ${names.join(", ")} are queued again, and their counters are reset.`;
  if (!(await ask({ title: "Retry all failed jobs?", text, button: "Retry all" }))) return false;
  return doing("Retry all failed", () => retryEach(names));
}
