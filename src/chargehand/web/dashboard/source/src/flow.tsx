// One flow: its counts, its jobs by stage on a time axis, and what failed.

import { useEffect, useRef } from "preact/hooks";
import { get, may } from "./api";
import { axis, drawn, type Lane, LANE_GAP, laneHeight, type Span, spanOf } from "./axis";
import { mergedFlow } from "./flows";
import { flows, flowsTick, now } from "./live";
import { cancelFlow, retryFlow } from "./orders";
import { Ago, allOfCounts, countWords, CountsBar, Empty, Mark, Since, State, Trouble, useAsked } from "./parts";
import { to } from "./route";
import type { FlowDetail, FlowStage, JobPage, JobRecord } from "./types";
import { brief, count, jobName, length, many, plain } from "./words";

/** Jobs that one request returns at most; a flow with more is drawn from a selection. */
const WHOLE = 500;
const SELECTED = 100;
const AGAIN_MS = 500;
const FAILED_SHOWN = 10;

interface Seen {
  flow: FlowDetail;
  jobs: JobRecord[];
}

/** Fetches a flow and its jobs; of a large one those that run, those that failed, and the newest. */
async function fetched(id: string): Promise<Seen> {
  const path = `api/v1/flows/${encodeURIComponent(id)}`;
  const flow = await get<FlowDetail>(path);
  if (allOfCounts(flow.counts) <= WHOLE) return { flow, jobs: (await get<JobPage>(`${path}/jobs`, { limit: WHOLE })).jobs };
  const some = (query: Record<string, string>) => get<JobPage>(`${path}/jobs`, { ...query, limit: SELECTED });
  const pages = await Promise.all([some({ state: "running" }), some({ state: "failed" }), ...flow.stages.slice(0, 8).map(({ queue }) => some({ queue }))]);
  return { flow, jobs: [...new Map(pages.flatMap((page) => page.jobs).map((job) => [job.id, job])).values()] };
}

export function FlowPage({ id }: { id: string }) {
  void flowsTick.value;
  const live = flows.get(id)?.now.value;
  const [found, error, look] = useAsked<Seen>(() => fetched(id), [id]);
  const sign = JSON.stringify([live?.state, live?.counts]);
  const before = useRef(sign);
  const soon = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => {
    if (before.current === sign || soon.current !== undefined) return;
    before.current = sign;
    soon.current = setTimeout(() => {
      soon.current = undefined;
      look();
    }, AGAIN_MS);
  }, [sign, found]);
  useEffect(() => () => clearTimeout(soon.current), []);
  if (!found) return <Trouble error={error} />;
  const flow = mergedFlow(found.flow, live);
  const { counts } = flow;
  const again = (done: boolean) => done && look();
  const bad = counts.failed + counts.cancelled;
  return (
    <>
      <header class="top">
        <h1 tabIndex={-1}>
          {plain(flow.name)} <State state={flow.state} word={flow.state} />
        </h1>
        {may("control") && (
          <div class="orders" role="group" aria-label="Actions for this flow">
            <button disabled={!bad} onClick={() => retryFlow(id, plain(flow.name), bad).then(again)}>
              Retry
            </button>
            <button
              disabled={flow.state !== "running"}
              onClick={() => cancelFlow(id, plain(flow.name), counts.queued + counts.running).then(again)}
            >
              Cancel
            </button>
          </div>
        )}
      </header>
      <Trouble error={error} />
      <Facts flow={flow} />
      <section aria-labelledby="stages">
        <div class="head">
          <h2 id="stages">Jobs by stage</h2>
          <a href={to("jobs", undefined, { flow: id })}>All {many(allOfCounts(counts), "job")}</a>
        </div>
        {flow.stages.length ? <Stages flow={flow} jobs={found.jobs} /> : <Empty>This flow has no jobs.</Empty>}
      </section>
      <Failed jobs={found.jobs} failed={counts.failed} id={id} />
    </>
  );
}

function Facts({ flow }: { flow: FlowDetail }) {
  const facts: [string, preact.ComponentChildren][] = [
    ["id", <code key="id">{flow.id}</code>],
    ["created", <Ago key="c" ms={flow.created_ms} />],
  ];
  if (flow.ended_ms === null) facts.push(["running for", <Since key="r" ms={flow.created_ms} />]);
  else {
    facts.push(["ended", <Ago key="e" ms={flow.ended_ms} />]);
    facts.push(["took", length((flow.ended_ms - flow.created_ms) / 1000)]);
  }
  if (flow.cancel_ms) facts.push(["cancelled", <Ago key="x" ms={flow.cancel_ms} />]);
  if (flow.ends > 1) facts.push(["ended", `${flow.ends} times`]);
  if (flow.on_end) facts.push(["job at the end", <a key="o" href={to("job", flow.on_end)}>{flow.on_end.slice(-8)}</a>]);
  return (
    <>
      <div class="whole">
        <CountsBar counts={flow.counts} />
        <p>
          {countWords(flow.counts)}
          {flow.counts.following > 0 && <span class="soft"> ({count(flow.counts.following)} for other jobs)</span>}
        </p>
      </div>
      <dl class="facts">
        {facts.map(([name, value], at) => (
          <div key={at} class={name === "id" ? "wide" : undefined}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}

const KEY = [["good", "done"], ["busy", "running"], ["hollow", "waiting"], ["muted", "cancelled"]] as const;

/** The stages on a common time axis. The table has the same in words: the bars are for eyes and the mouse alone. */
function Stages({ flow, jobs }: { flow: FlowDetail; jobs: JobRecord[] }) {
  const span = spanOf(flow.created_ms, flow.ended_ms ?? now.value);
  const stages = flow.stages.map((stage) => ({ stage, lanes: drawn(jobs.filter((job) => job.queue === stage.queue), span) }));
  const bars = stages.reduce((sum, { lanes }) => sum + lanes.reduce((all, lane) => all + lane.length, 0), 0);
  const left = allOfCounts(flow.counts) - bars;
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label="Stages">
        <table class="stages">
          <thead>
            <tr>
              <th scope="col">Stage</th>
              <th scope="col">Jobs</th>
              <th scope="col" class="time">
                <Ticks span={span} />
              </th>
              <th scope="col" class="number">Took</th>
            </tr>
          </thead>
          <tbody>
            {stages.map(({ stage, lanes }) => (
              <tr key={stage.queue} data-stage={stage.queue}>
                <th scope="row">
                  <a href={to("jobs", undefined, { flow: flow.id, queue: stage.queue })}>{stage.queue}</a>
                </th>
                <td class="parts">
                  <CountsBar counts={stage.counts} />
                  <span class="soft">{countWords(stage.counts)}</span>
                </td>
                <td class="time">
                  <Bars stage={stage} lanes={lanes} span={span} />
                </td>
                <td class="number">{took(stage)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <p class="key legend">
        {KEY.map(([tone, word]) => (
          <span key={word}>
            <i class={tone} /> {word}
          </span>
        ))}
        <span>
          <i class="bad" /> failed <Mark state="error" />
        </span>
        {left > 0 && <span>{count(bars)} jobs are drawn, {count(left)} are left out</span>}
      </p>
    </>
  );
}

function took(stage: FlowStage): preact.ComponentChildren {
  if (stage.begun_ms === null) return "–";
  return stage.ended_ms === null ? <Since ms={stage.begun_ms} /> : length((stage.ended_ms - stage.begun_ms) / 1000);
}

function Ticks({ span }: { span: Span }) {
  return (
    <div class="ticks" aria-hidden="true">
      {axis(span).map(({ at, text }) => (
        <span key={at} style={{ left: `${at * 100}%` }}>
          {text}
        </span>
      ))}
    </div>
  );
}

function Bars({ stage, lanes, span }: { stage: FlowStage; lanes: Lane[]; span: Span }) {
  const high = laneHeight(lanes.length);
  const place = (ms: number): number => Math.min(1, Math.max(0, (ms - span.from) / (span.to - span.from)));
  return (
    <div class="lanes" aria-hidden="true" style={{ height: `${Math.max(1, lanes.length) * (high + LANE_GAP)}px` }}>
      {axis(span).map(({ at }) => (
        <i key={at} class="tick" style={{ left: `${at * 100}%` }} />
      ))}
      {stage.begun_ms !== null && (
        <i
          class="band"
          style={{
            left: `${place(stage.begun_ms) * 100}%`,
            right: `${(1 - place(stage.ended_ms ?? span.to)) * 100}%`,
            height: `${Math.max(1, lanes.length) * (high + LANE_GAP) + LANE_GAP}px`,
          }}
        />
      )}
      {lanes.map((lane, row) =>
        lane.map(({ job, from, to: until, look }) => (
          <a
            key={job.id}
            class={`job ${look}`}
            tabIndex={-1}
            href={to("job", job.id)}
            title={`${jobName(job)}: ${job.state}${job.reason ? ` (${job.reason})` : ""}, ${length((until - from) / 1000)}`}
            style={{
              left: `${place(from) * 100}%`,
              width: `${(place(until) - place(from)) * 100}%`,
              top: `${row * (high + LANE_GAP)}px`,
              height: `${high}px`,
            }}
          >
            {look === "bad" && <Mark state="error" />}
          </a>
        )),
      )}
    </div>
  );
}

function Failed({ jobs, failed, id }: { jobs: JobRecord[]; failed: number; id: string }) {
  const found = jobs.filter((job) => job.state === "failed");
  // What failed by itself is the cause of the others.
  found.sort((a, b) => Number(a.reason === "predecessor") - Number(b.reason === "predecessor"));
  if (!found.length) return null;
  return (
    <section aria-labelledby="failed">
      <h2 id="failed">Failed</h2>
      <ul class="related">
        {found.slice(0, FAILED_SHOWN).map((job) => (
          <li key={job.id}>
            <State state="failed" word={job.reason ?? "failed"} /> <a href={to("job", job.id)}>{jobName(job)}</a>{" "}
            <span class="soft">{job.queue}</span> <span class="why" title={job.cause ?? undefined}>{brief(job.cause ?? "")}</span>
          </li>
        ))}
      </ul>
      {failed > FAILED_SHOWN && (
        <p>
          <a href={to("jobs", undefined, { flow: id, state: "failed" })}>All {count(failed)} failed jobs</a>
        </p>
      )}
    </section>
  );
}
