// The findings of the doctor, each with its remedy, and a button where an operation is the remedy.

import { get } from "./api";
import { workersTick } from "./live";
import { Ago, Copy, Empty, Mark, Since, Skeleton, State, toneOf, Trouble, useAsked, useEvery } from "./parts";
import { diagnosed, Remedy } from "./problems";
import type { Diagnosed as Diagnosis } from "./types";
import { plain } from "./words";

const EVERY_MS = 10_000;

export function Doctor() {
  const [, error, look] = useAsked<Diagnosis>(async () => (diagnosed.value = await get<Diagnosis>("api/v1/doctor")), []);
  useEvery(EVERY_MS, look);
  void workersTick.value;
  const found = diagnosed.value;
  const state = found ? (found.status === null ? "healthy" : found.status) : "unknown";
  return (
    <>
      <header class="top">
        <h1 tabIndex={-1}>Diagnosis</h1>
        <button onClick={look}>Examine again</button>
      </header>
      <Trouble error={error} />
      {!found && !error && <Skeleton />}
      {found && (
        <>
          <section class={`verdict ${toneOf(state)}`} aria-live="polite">
            <h2>
              <Mark state={state} /> {plain(found.headline.charAt(0).toUpperCase() + found.headline.slice(1))}
            </h2>
          </section>
          {found.findings.length === 0 && <Empty>No problems found.</Empty>}
          <ol class="findings">
            {found.findings.map((finding) => (
              <li key={`${finding.cause} ${finding.about}`} class="card">
                <div>
                  <State state={finding.cause === "paused" ? "paused" : finding.severity} />{" "}
                  {finding.since_ms && (
                    <span class="soft">
                      for <Since ms={finding.since_ms} />
                    </span>
                  )}
                </div>
                <p>{plain(finding.text)}</p>
                <p class="soft">
                  Remedy: <code>{finding.remedy}</code> <Copy text={finding.remedy} what="the remedy" />
                </p>
                <Remedy finding={finding} />
              </li>
            ))}
          </ol>
          <p class="soft">
            {found.store}, examined <Ago ms={found.at_ms} />
          </p>
        </>
      )}
    </>
  );
}
