// The findings of the doctor, each with its remedy, and a button where an operation is the remedy.

import { get, may } from "./api";
import { queueNames, queues, workers, workersTick } from "./live";
import { order, retryFailed } from "./orders";
import { Ago, Empty, Mark, State, toneOf, Trouble, useAsked, useEvery } from "./parts";
import { to } from "./route";
import type { Diagnosed as Diagnosis, Finding } from "./types";
import { shortName } from "./words";

const EVERY_MS = 10_000;

export function Doctor() {
  const [found, error, look] = useAsked<Diagnosis>(() => get("api/v1/doctor"), []);
  useEvery(EVERY_MS, look);
  void workersTick.value;
  const state = found ? (found.status === null ? "healthy" : found.status) : "unknown";
  return (
    <>
      <header class="top">
        <h1 tabIndex={-1}>Diagnosis</h1>
        <button onClick={look}>Examine again</button>
      </header>
      <Trouble error={error} />
      {!found && !error && <Empty>Examining …</Empty>}
      {found && (
        <>
          <section class={`verdict ${toneOf(state)}`} aria-live="polite">
            <h2>
              <Mark state={state} /> {found.headline.charAt(0).toUpperCase() + found.headline.slice(1)}
            </h2>
          </section>
          {found.findings.length === 0 && <Empty>No problems found.</Empty>}
          <ol class="findings">
            {found.findings.map((finding) => (
              <li key={`${finding.cause} ${finding.about}`} class="card">
                <div>
                  <State state={finding.severity} />{" "}
                  {finding.since_ms && (
                    <span class="soft">
                      since <Ago ms={finding.since_ms} />
                    </span>
                  )}
                </div>
                <p>{finding.text}</p>
                <p class="soft">
                  Remedy: <code>{finding.remedy}</code>
                </p>
                <Remedy finding={finding} done={look} />
              </li>
            ))}
          </ol>
          <p class="soft">
            {found.store}, examined at <Ago ms={found.at_ms} />
          </p>
        </>
      )}
    </>
  );
}

const CREW_CRASHES = ["backoff", "given-up", "breaker", "crashing"];

function Remedy({ finding, done }: { finding: Finding; done: () => void }) {
  const { cause, about } = finding;
  const press = (text: string, work: () => Promise<unknown>) =>
    may("control") && <button onClick={() => void work().then(() => setTimeout(done, 1000))}>{text}</button>;
  const name = about === "*" ? "all workers" : shortName(about);
  const size = [...workers.values()].filter((kept) => kept.now.peek().crew === about).length;
  const remedies = {
    paused: () => press(`Resume ${name}`, () => order("resume", about)),
    "given-up": () => press(`Reset ${name}`, () => order("reset", about)),
    breaker: () => press(`Reset ${name}`, () => order("reset", about)),
    stopped: () => press(`Start ${name}`, () => order("start", about)),
    "no-workers": () => press(`Scale ${name}`, () => order("scale", about, 1)),
    busy: () => press(`Scale ${name}`, () => order("scale", about, size + 1)),
    stuck: () => press(`Restart ${name}`, () => order("restart", about)),
    "failed-jobs": () =>
      press("Retry all failed", () =>
        retryFailed(queueNames.value.filter((name) => (queues.get(name)?.now.value.failed ?? 0) > 0)),
      ),
  } as Record<string, () => preact.ComponentChildren>;
  return (
    <div class="buttons">
      {remedies[cause]?.()}
      {CREW_CRASHES.includes(cause) && <a href={to("crashes")}>Crash reports</a>}
      {cause === "failed-jobs" && <a href={to("jobs", undefined, { state: "failed" })}>Failed jobs</a>}
    </div>
  );
}
