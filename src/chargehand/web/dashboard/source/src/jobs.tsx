// The list of jobs: filters, pages, live updates of the rows shown.

import { useComputed } from "@preact/signals";
import { useRef, useState } from "preact/hooks";
import { get, may, post } from "./api";
import { crews, jobs, jobsTick, now, queueNames, queues } from "./live";
import { clearFailed, retryFailed } from "./orders";
import { Ago, ask, Bar, Empty, JOB_FILTERS, progressWords, Search, State, Tags, tell, Trouble, useAsked, WorkerLink } from "./parts";
import { place, to } from "./route";
import type { JobRecord, JobBody as LiveJob } from "./types";
import { count, jobName, length, waitsFor } from "./words";

const STATES = ["queued", "running", "done", "failed", "cancelled"] as const;
/** The reasons of failed jobs, by their name in the URL: the code in the store, and the label. */
const KINDS: Record<string, [reason: string, words: string]> = {
  quarantine: ["poison", "quarantined (crashed its workers)"],
  "no-progress": ["no progress", "done, but found again"],
  raised: ["raised", "raised an exception"],
  "timed-out": ["timed out", "timed out"],
  "gave-up": ["gave up", "gave up (permanent error)"],
  retries: ["retries used up", "retries used up"],
  predecessor: ["predecessor", "a predecessor failed"],
};

interface Page {
  jobs: JobRecord[];
  next: string | null;
}

type Filter = Record<(typeof JOB_FILTERS)[number], string>;

function filterOf(query: URLSearchParams): Filter {
  return Object.fromEntries(JOB_FILTERS.map((name) => [name, query.get(name) ?? ""])) as Filter;
}

export function Jobs() {
  const filter = filterOf(place.value.query);
  const { queue, state, tag, text, flow } = filter;
  const [trail, setTrail] = useState<string[]>([]);
  const after = trail[trail.length - 1];
  const which = JSON.stringify(filter);
  const before = useRef(which);
  if (before.current !== which) {
    before.current = which;
    if (trail.length) setTrail([]);
  }
  const [page, error, look] = useAsked<Page>(
    () =>
      get("api/v1/jobs", {
        queue,
        tag,
        text,
        flow,
        state: KINDS[state] ? "failed" : state,
        reason: KINDS[state]?.[0] ?? "",
        limit: 50,
        after: after ?? null,
      }),
    [which, after],
  );
  return (
    <>
      <header class="top">
        <h1 tabIndex={-1}>
          Jobs <InAll filter={filter} />
        </h1>
        <Many queue={queue} changed={look} />
      </header>
      <Filters filter={filter} />
      <Trouble error={error} />
      <Newer page={page} first={!after} filter={filter} look={look} />
      {page && <Table rows={page.jobs} />}
      {page && page.jobs.length === 0 && <Empty>No jobs match the filter.</Empty>}
      <nav class="paging" aria-label="Pages">
        <button disabled={!trail.length} onClick={() => setTrail([])}>
          Newest
        </button>
        <button disabled={!trail.length} onClick={() => setTrail(trail.slice(0, -1))}>
          Newer
        </button>
        <button disabled={!page?.next} onClick={() => page?.next && setTrail([...trail, page.next])}>
          Older
        </button>
      </nav>
    </>
  );
}

/** The number of jobs, if it is known without counting rows. */
function InAll({ filter: { queue, state, tag, text, flow } }: { filter: Filter }) {
  void queueNames.value; // subscribes: the queue may become known later
  const found = queues.get(queue)?.now.value;
  if (!found || tag || text || flow || KINDS[state]) return null;
  const sum = STATES.filter((name) => !state || name === state).reduce((all, name) => all + found[name], 0);
  return <span class="soft count">{count(sum)}</span>;
}

function go(changes: Partial<Filter>): void {
  location.replace(to("jobs", undefined, { ...filterOf(place.value.query), ...changes }));
}

function Filters({ filter: { queue, state, tag, text, flow } }: { filter: Filter }) {
  const names = queueNames.value.includes(queue) || !queue ? queueNames.value : [queue, ...queueNames.value];
  return (
    <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
      <label>
        Queue
        <select value={queue} onChange={(event) => go({ queue: event.currentTarget.value })}>
          <option value="">all</option>
          {names.map((name) => (
            <option key={name} value={name}>
              {name}
            </option>
          ))}
        </select>
      </label>
      <label>
        State
        <select value={state} onChange={(event) => go({ state: event.currentTarget.value })}>
          <option value="">all</option>
          {STATES.map((name) => (
            <option key={name}>{name}</option>
          ))}
          <optgroup label="failed, by reason">
            {Object.entries(KINDS).map(([kind, [, words]]) => (
              <option key={kind} value={kind}>
                {words}
              </option>
            ))}
          </optgroup>
        </select>
      </label>
      <Search label="Tag" value={tag} placeholder="exact match" change={(value) => go({ tag: value })} />
      <Search label="Text" value={text} placeholder="id, label, key, item or error" change={(value) => go({ text: value })} />
      {flow && (
        <p class="only">
          Only jobs of flow <a href={to("flow", flow)}>{flow.slice(-8)}</a>{" "}
          <button class="link" type="button" onClick={() => go({ flow: "" })}>
            Show all
          </button>
        </p>
      )}
    </form>
  );
}

function Many({ queue, changed }: { queue: string; changed: () => void }) {
  const failed = useComputed(() => queueNames.value.filter((name) => (queues.get(name)?.now.value.failed ?? 0) > 0));
  const names = queue ? [queue].filter((name) => failed.value.includes(name)) : failed.value;
  const after = (done: boolean) => done && changed();
  return (
    <div class="orders" role="group" aria-label="All jobs">
      {may("enqueue") && <button onClick={() => enqueue().then(after)}>New job</button>}
      {may("control") && (
        <>
          <button disabled={!names.length} onClick={() => retryFailed(names).then(after)}>
            Retry all failed
          </button>
          <button disabled={!names.length} onClick={() => clearFailed(names).then(after)}>
            Delete all failed
          </button>
        </>
      )}
    </div>
  );
}

async function enqueue(): Promise<boolean> {
  const choices = crews.value.map((crew) => crew.name);
  const said = await ask({
    title: "New job",
    text: "The job is stored durably before the server answers.",
    button: "Enqueue",
    fields: [
      { name: "crew", label: "Crew", kind: "choice", choices },
      { name: "payload", label: "Payload (JSON)", kind: "area", value: "{}", required: true },
      { name: "label", label: "Label", kind: "text" },
    ],
    send: make,
  });
  return said !== null;
}

async function make(said: Record<string, string>): Promise<void> {
  let payload: unknown;
  try {
    payload = JSON.parse(said.payload ?? "null");
  } catch (error) {
    throw new Error(`The payload is not JSON: ${(error as Error).message}`);
  }
  const made = await post<{ id: string }>("api/v1/jobs", { crew: said.crew, payload, label: said.label || null });
  tell("New job", [made.id]);
  location.hash = to("job", made.id);
}

/** A button that loads newer jobs, so that rows do not move while a user reads them. */
function Newer({ page, first, filter, look }: { page: Page | null; first: boolean; filter: Filter; look: () => void }) {
  void jobsTick.value;
  const shown = new Set(page?.jobs.map((job) => job.id));
  const newest = page?.jobs[0]?.id ?? "";
  let newer = 0;
  if (page && first) {
    for (const [id, kept] of jobs) {
      const { queue, tags, flow } = kept.now.peek();
      const within = (!filter.queue || queue === filter.queue) && (!filter.flow || flow === filter.flow);
      const matches = within && (!filter.tag || tags.includes(filter.tag));
      if (!shown.has(id) && id > newest && matches) newer++;
    }
  }
  return (
    <p class="newer" aria-live="polite">
      <button class="link" disabled={!newer} onClick={look}>
        {newer ? `Show newer jobs (${count(newer)}${newer >= 100 ? " or more" : ""})` : "No newer jobs"}
      </button>
    </p>
  );
}

function Table({ rows }: { rows: JobRecord[] }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Jobs">
      <table>
        <thead>
          <tr>
            <th scope="col">State</th>
            <th scope="col">Job</th>
            <th scope="col">Queue</th>
            <th scope="col">Progress or error</th>
            <th scope="col" class="number">Failures</th>
            <th scope="col">Worker</th>
            <th scope="col">Created</th>
            <th scope="col" class="number">Duration</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Row key={row.id} row={row} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function merged<T extends JobRecord>(row: T, live: LiveJob | undefined): T {
  if (!live) return row;
  const { state, reason, failures, crashes, worker, node, progress, waits_for } = live;
  const [error, cause] = live.error === null ? [row.error, row.cause] : [live.error, live.cause];
  return { ...row, state, reason, failures, crashes, worker, node, progress, waits_for, error, cause };
}

function Row({ row }: { row: JobRecord }) {
  void jobsTick.value;
  const job = merged(row, jobs.get(row.id)?.now.value);
  const took = row.started_ms && row.finished_ms ? length((row.finished_ms - row.started_ms) / 1000) : "";
  return (
    <tr data-job={job.id}>
      <td>
        <State state={job.state} word={job.state} />
      </td>
      <td class="name">
        <a href={to("job", job.id)} title={job.id}>
          {jobName(job)}
        </a>
        <Tags tags={job.tags} />
      </td>
      <td>{job.queue}</td>
      <td class="what">
        {job.state === "running" && job.progress ? (
          <>
            <Bar progress={job.progress} label={`Progress of ${jobName(job)}`} />
            <span class="soft short">{progressWords(job.progress)}</span>
          </>
        ) : (
          <span class={`short ${job.state === "failed" ? "bad" : "soft"}`} title={job.cause ?? undefined}>
            {job.state === "queued" && job.run_at_ms > now.value && <>scheduled for <Ago ms={job.run_at_ms} />. </>}
            {waitsFor(job)}
            {job.reason === "poison" ? "crashed its workers. " : ""}
            {job.cause}
          </span>
        )}
      </td>
      <td class="number">
        {job.failures}
        {job.crashes > 0 && <span class="warn"> +{job.crashes} crashed</span>}
      </td>
      <td>{job.worker && <WorkerLink component={job.worker} node={job.node} />}</td>
      <td>
        <Ago ms={job.created_ms} />
      </td>
      <td class="number">{took}</td>
    </tr>
  );
}
