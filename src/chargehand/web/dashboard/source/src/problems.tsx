// What is wrong, from the doctor: each problem with its remedy as a button. The overview and the diagnosis share it.

import { computed, effect, signal } from "@preact/signals";
import { get, may, session } from "./api";
import { acting, connection, crashedAt, crews, health, isGone, nodeless, nodeNames, nodes, pauses, queueNames, queues, workers } from "./live";
import { order, retryFailed, retryJob } from "./orders";
import { Ago, Copy, Mark, toneOf } from "./parts";
import { to } from "./route";
import type { Diagnosed, Finding } from "./types";
import { brief, plain, shortId, shortName } from "./words";

const SOON_MS = 300;
const EVERY_MS = 20_000;

/** Notes that a person should see at once. */
const NOTICES = ["paused", "poison"];
/** Causes whose full text says when, which the line says beside it. */
const SHORT = ["paused", "replaced"];

export const diagnosed = signal<Diagnosed | null>(null);

/** What a person should see at once, worst first; a deliberate pause is a notice, below all faults. */
export const problems = computed<Finding[]>(() => {
  const found = (diagnosed.value?.findings ?? []).filter(
    ({ severity, cause }) => (severity !== "note" || NOTICES.includes(cause)) && !SEEN.includes(cause),
  );
  const gone = nodeNames.value.filter(isGone).map(goneFinding);
  return [...found.filter((each) => each.severity === "error" && each.cause !== "paused"), ...gone,
    ...found.filter((each) => each.severity !== "error" && each.cause !== "paused"), ...found.filter((each) => each.cause === "paused")];
});

/** The number of problems for the tab's title and icon; pauses do not count. */
export const howMany = computed(() =>
  connection.value === "lost" || nodeless.value !== null ? 1 : problems.value.filter((each) => each.cause !== "paused").length,
);

/** Causes that this page knows from the stream, earlier than the doctor. */
const SEEN = ["no-node", "node-gone"];

/** A node that is gone. */
const goneFinding = (name: string): Finding => ({
  severity: "warning", cause: "node-gone", about: name, short: `node ${name} is gone`,
  text: `node ${name} is gone: its jobs go to other nodes`, remedy: "start it again",
  since_ms: nodes.get(name)?.now.value.last_beat_ms ?? null,
});

let soon: ReturnType<typeof setTimeout> | undefined;
let asked = 0;

export async function examine(): Promise<void> {
  const mine = ++asked;
  try {
    const found = await get<Diagnosed>("api/v1/doctor");
    if (mine === asked) diagnosed.value = found;
  } catch {
    // shown as the connection state, or by the page of the diagnosis
  }
}

export function examineSoon(after = SOON_MS): void {
  clearTimeout(soon);
  soon = setTimeout(() => session.peek() && connection.peek() === "live" && void examine(), after);
}

/** Examines when something has changed for better or worse, and now and then while there are problems. */
export function watchProblems(): void {
  effect(() => {
    void health.value;
    void pauses.value;
    void crashedAt.value;
    if (session.value?.scopes.includes("read") && connection.value === "live") examineSoon();
  });
  setInterval(() => {
    const wrong = problems.peek().length > 0 || (health.peek()?.status ?? "healthy") !== "healthy";
    if (document.visibilityState === "visible" && wrong) examineSoon(0);
  }, EVERY_MS);
}

const CREW_CRASHES = ["backoff", "given-up", "breaker", "crashing"];
/** Causes without an order, which a link leads on from. */
const LINKED = ["replaced", "node-gone", "crashing", "backoff", "failing"];
const STATES: Record<string, string> = { paused: "paused", poison: "crashed", "node-gone": "gone" };

/** The mark of a finding: colour and shape. */
export const stateOfFinding = ({ cause, severity }: Finding): string => STATES[cause] ?? severity;

/** The crew that a finding is about, or whose worker it is about. */
const crewOf = (about: string): string => about.split("worker:").pop()!.split(":")[0]!;
const queueOf = (crew: string): string => crews.value.find((each) => each.name === crew)?.queue ?? crew;

/** The buttons and links that mend a problem. */
export function Remedy({ finding, brief }: { finding: Finding; brief?: boolean }) {
  const { cause, about } = finding;
  const name = about === "*" ? "all workers" : cause === "poison" ? `job ${shortId(about)}` : shortName(about);
  const press = (text: string, work: () => Promise<unknown>) =>
    may("control") &&
    acting.value && (
      <button aria-label={`${text} ${name}`} data-key={text === "Resume" ? "p" : "r"} onClick={() => void work().then(() => examineSoon(1000))}>
        {brief && cause !== "poison" ? text : `${text} ${name}`} {/* of several jobs only one */}
      </button>
    );
  const size = [...workers.values()].filter((kept) => kept.now.peek().crew === about).length;
  const remedies = {
    paused: () => press("Resume", () => order("resume", about)),
    "given-up": () => press("Reset", () => order("reset", about)),
    breaker: () => press("Reset", () => order("reset", about)),
    stopped: () => press("Start", () => order("start", about)),
    "no-workers": () => press("Scale", () => order("scale", about, 1)),
    busy: () => press("Scale", () => order("scale", about, size + 1)),
    stuck: () => press("Restart", () => order("restart", about)),
    poison: () => finding.severity === "note" && press("Retry", () => retryJob(about)), // otherwise it is tried again
    "failed-jobs": () =>
      may("control") &&
      acting.value && (
        <button onClick={() => retryFailed(queueNames.value.filter((each) => (queues.get(each)?.now.value.failed ?? 0) > 0))}>
          Retry all failed
        </button>
      ),
  } as Record<string, () => preact.ComponentChildren>;
  return (
    <div class="buttons">
      {remedies[cause]?.()}
      {CREW_CRASHES.includes(cause) && <a href={to("crashes", undefined, { crew: crewOf(about) })}>Crash reports</a>}
      {cause === "poison" && <a href={to("job", about)}>Job</a>}
      {cause === "replaced" && <a href={to("worker", about)}>Worker</a>}
      {cause === "node-gone" && <a href={to("nodes")}>Nodes</a>}
      {cause === "failing" && <a href={to("jobs", undefined, { queue: queueOf(about), state: "failed" })}>Failed jobs</a>}
      {cause === "failed-jobs" && <a href={to("jobs", undefined, { state: "failed" })}>Failed jobs</a>}
      {!remedies[cause] && brief && !LINKED.includes(cause) && <Copy text={finding.remedy} what="the remedy" label="Copy remedy" />}
    </div>
  );
}

/** The problems; `of`: only those of these queues and crews, and of their workers. */
export function Problems({ of }: { of?: string[] }) {
  const found = problems.value.filter(({ about }) => !of || [about, about.split(":")[1]].some((name) => name && of.includes(name)));
  const told = of ? [] : (health.value?.errors ?? []);
  if (!found.length && (diagnosed.value || !told.length)) return null;
  return (
    <section class="problems" aria-labelledby="problems">
      <h2 id="problems">Problems</h2>
      <ul>
        {found.map((finding) => (
          <li key={`${finding.cause} ${finding.about}`} class={toneOf(stateOfFinding(finding))}>
            <Mark state={stateOfFinding(finding)} />
            <span class="what" title={`${plain(finding.text)}\nRemedy: ${finding.remedy}`}>{brief(SHORT.includes(finding.cause) ? finding.short : finding.text)}</span>
            <span class="soft when">{finding.since_ms && <Ago ms={finding.since_ms} />}</span>
            <Remedy finding={finding} brief />
          </li>
        ))}
        {!found.length && told.map((text, at) => (
          <li key={at} class="bad">
            <Mark state="error" /> <span class="what" title={text}>{brief(text)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
