// The list of jobs: filter, states, causes of failures, pages, and what can be done to many.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { get, may, post } from "./api";
import { completions, filterIn, having, STATES, valueOf } from "./filter";
import { crews, jobs, jobsTick, now, queueNames, workers } from "./live";
import { doing } from "./orders";
import { Ago, ask, Bar, Copy, Hint, progressWords, Skeleton, State, Tags, tell, Trouble, useAsked, WorkerLink } from "./parts";
import { place, to } from "./route";
import type { BulkChanged, Failures, JobRecord, JobBody as LiveJob, Tally } from "./types";
import { brief, count, jobName, length, many, parsed, plain, waitsFor } from "./words";

interface Page {
  jobs: JobRecord[];
  next: string | null;
  searched_ms: number | null;
}

const SORTS = { newest: "newest first", oldest: "oldest first", longest: "longest first", priority: "highest priority first" };

function go(filter: string, sort = place.value.query.get("sort") ?? ""): void {
  location.replace(to("jobs", undefined, { filter, sort: sort === "newest" ? "" : sort }));
}

export function Jobs() {
  const filter = filterIn(place.value.query);
  const sort = place.value.query.get("sort") || "newest";
  const [trail, setTrail] = useState<string[]>([]);
  const [picked, setPicked] = useState<Set<string>>(new Set());
  const after = trail[trail.length - 1];
  const which = `${sort} ${filter}`;
  const before = useRef(which);
  if (before.current !== which) {
    before.current = which;
    if (trail.length) setTrail([]);
    if (picked.size) setPicked(new Set());
  }
  const [page, error, look] = useAsked<Page>(
    () => get("api/v1/jobs", { filter, sort, limit: 50, after: after ?? null }),
    [which, after],
  );
  const [counts, , recount] = useAsked<Tally>(
    () => get<Tally>("api/v1/jobs/counts", { filter: having(filter, "state", "") }),
    [having(filter, "state", "")],
  );
  const changed = () => {
    setPicked(new Set());
    look();
    recount();
  };
  const pick = (ids: string[]) => {
    const left = new Set(picked);
    for (const id of ids) if (!left.delete(id)) left.add(id);
    setPicked(left);
  };
  useKeys(pick, (id) => void change("retry", { ids: picked.size ? [...picked] : [id] }, picked.size || 1).then((done) => done && changed()));
  const state = valueOf(filter, "state");
  return (
    <>
      <header class="top">
        <h1 tabIndex={-1}>
          Jobs <InAll state={state} counts={counts} />
        </h1>
        {may("enqueue") && (
          <div class="orders">
            <button onClick={() => enqueue().then((done) => done && changed())}>New job</button>
          </div>
        )}
      </header>
      <FilterLine filter={filter} sort={sort} />
      <Tabs filter={filter} state={state} counts={counts} />
      <Trouble error={error} />
      {state === "failed" && <Causes filter={filter} changed={changed} />}
      <Newer page={page} first={!after && sort === "newest"} filter={filter} look={changed} />
      {!page && !error && <Skeleton rows={12} />}
      {page && page.jobs.length > 0 && <Table rows={page.jobs} picked={picked} pick={pick} setPicked={setPicked} />}
      {page && page.jobs.length === 0 && page.searched_ms === null && (
        filter ? (
          <Hint command={`chargehand jobs list '${filter.replaceAll("'", "'\\''")}'`}>No jobs match the filter. The same on the command line:</Hint>
        ) : (
          <Hint command={`chargehand jobs enqueue ${crews.value[0]?.name ?? "CREW"} '{}'`}>There are no jobs yet. This enqueues one:</Hint>
        )
      )}
      {page?.searched_ms != null && (
        <p class="soft" role="status">
          The search was stopped after a second: it covers the jobs that were created since <Ago ms={page.searched_ms} />.
          {page.next !== null && " “Older” continues from there."} A filter with a queue, a state, a tag or since: finds more.
        </p>
      )}
      {may("control") && page !== null && page.jobs.length > 0 && <Actions filter={filter} state={state} picked={picked} rows={page.jobs} counts={counts} changed={changed} clear={() => setPicked(new Set())} />}
      {(trail.length > 0 || page?.next) && <nav class="paging" aria-label="Pages">
        <button disabled={!trail.length} onClick={() => setTrail([])}>
          Newest
        </button>
        <button disabled={!trail.length} onClick={() => setTrail(trail.slice(0, -1))}>
          Newer
        </button>
        <button disabled={!page?.next} onClick={() => page?.next && setTrail([...trail, page.next])}>
          Older
        </button>
      </nav>}
    </>
  );
}

const sumOf = (counts: Tally, states: readonly (typeof STATES)[number][]): number => states.reduce((sum, name) => sum + counts[name], 0);

/** The number of jobs that match. */
function InAll({ state, counts }: { state: string; counts: Tally | null }) {
  if (!counts) return null;
  const sum = sumOf(counts, STATES.filter((name) => !state || name === state));
  return <span class="soft count">{count(sum)}{counts.searched_ms === null ? "" : " or more"}</span>;
}

/** The line in which the filter is written; it is applied by Enter, and when nothing was typed for a moment. */
function FilterLine({ filter, sort }: { filter: string; sort: string }) {
  const [text, setText] = useState(filter);
  const [shown, setShown] = useState(filter);
  if (shown !== filter) {
    setShown(filter);
    if (text.trim() !== filter) setText(filter); // a link changed it
  }
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = (value: string) => {
    setText(value);
    clearTimeout(timer.current);
    // A word that has a field and no value yet, or no closing quote, would only be refused.
    const open = value.replace(/\\./g, "").split('"').length % 2 === 0;
    if (!open && !/(^|\s)[\w.]+:~?$/.test(value)) timer.current = setTimeout(() => go(value.trim()), 400);
  };
  const names = [...workers.keys()].map((name) => name.replace(/^worker:/, "").replace(/@.*$/, ""));
  return (
    <form
      class="filters"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        clearTimeout(timer.current);
        go(text.trim());
      }}
    >
      <label class="text">
        Filter
        <input
          type="search"
          value={text}
          list="filter-words"
          spellcheck={false}
          autocomplete="off"
          placeholder='queue:tag error:"CUDA" since:1h payload.path:~flac, or any text'
          onInput={(event) => type(event.currentTarget.value)}
        />
        <datalist id="filter-words">
          {completions(text, queueNames.value, names).map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
      </label>
      <label>
        Sort
        <select value={sort} onChange={(event) => go(filter, event.currentTarget.value)}>
          {Object.entries(SORTS).map(([name, words]) => (
            <option key={name} value={name}>
              {words}
            </option>
          ))}
        </select>
      </label>
    </form>
  );
}

/** The states, each with the number of jobs that match. */
function Tabs({ filter, state, counts }: { filter: string; state: string; counts: Tally | null }) {
  const tab = (name: string, number: number | null) => (
    <button key={name} type="button" aria-pressed={state === name} onClick={() => go(having(filter, "state", name))}>
      {name || "all"} {number !== null && <span class="soft">{count(number)}</span>}
    </button>
  );
  return (
    <div class="choice states" role="group" aria-label="State">
      {tab("", counts && sumOf(counts, STATES))}
      {STATES.map((name) => tab(name, counts && counts[name]))}
    </div>
  );
}

/** The failed jobs that match by their causes, each with its jobs and their retry; `within`: a section that has its heading, also if there is one job. */
export function Causes({ filter, changed, within }: { filter: string; changed: () => void; within?: boolean }) {
  const [found] = useAsked<Failures>(() => get<Failures>("api/v1/jobs/failures", { filter }), [filter]);
  const groups = found?.groups.filter((group) => within || group.count > 1 || found.groups.length > 1) ?? [];
  if (!found || !groups.length) return null;
  const list = (
    <>
      <ul class="causes">
        {groups.slice(0, SHOWN_CAUSES).map((group) => (
          <li key={group.filter}>
            <a href={to("jobs", undefined, { filter: group.filter })}>
              {count(group.count)} × {plain(group.cause)}
            </a>
            <span class="soft">
              {group.where && `${group.where}, `}
              {group.queues.join(", ")}
              {group.last_ms !== null && <>, last <Ago ms={group.last_ms} /></>}
            </span>
            {may("control") && (
              <button
                aria-label={`Retry ${count(group.count)} × ${plain(group.cause)}`}
                onClick={() => retryGroup(group).then((done) => done && changed())}
              >
                Retry
              </button>
            )}
          </li>
        ))}
      </ul>
      {groups.length > SHOWN_CAUSES && <p class="soft">{count(groups.length - SHOWN_CAUSES)} more causes are rarer.</p>}
    </>
  );
  if (within) return list;
  return (
    <section aria-labelledby="causes">
      <h2 id="causes">
        Causes <span class="soft">of {count(found.count)} failed jobs</span>
      </h2>
      {list}
    </section>
  );
}
const SHOWN_CAUSES = 8;

type Verb = "retry" | "cancel" | "delete";
/** The states of jobs to which something can be done, and those that it is done to if no state is given. */
const APPLIES: Record<Verb, readonly (typeof STATES)[number][]> = {
  retry: ["failed", "cancelled"],
  cancel: ["queued", "running"],
  delete: ["done", "failed", "cancelled"],
};
const ALL_OF: Record<Verb, readonly (typeof STATES)[number][]> = { retry: ["failed"], cancel: ["queued"], delete: APPLIES.delete };
const SAYS: Record<Verb, [title: string, text: string, done: string]> = {
  retry: ["Retry", "They are queued again, and their counters are reset.", "queued again"],
  cancel: ["Cancel", "Queued jobs are cancelled at once; running jobs are asked to stop, and workers that do not stop are replaced.", "cancelled"],
  delete: ["Delete", "They are deleted with their history. This cannot be undone.", "deleted"],
};

interface Acting {
  filter: string;
  state: string;
  picked: Set<string>;
  /** The jobs on the page, whose states are known. */
  rows: JobRecord[];
  counts: Tally | null;
  changed: () => void;
  /** Picks no job any more. */
  clear: () => void;
}

/** What can be done to the picked jobs, or to all that match. */
function Actions({ filter, state, picked, rows, counts, changed, clear }: Acting) {
  void jobsTick.value;
  const [all, setAll] = useState(false);
  if (all && picked.size) setAll(false);
  const states = new Map(rows.map((row) => [row.id, (jobs.get(row.id)?.now.peek() ?? row).state]));
  const fitting = (verb: Verb): string[] =>
    [...picked].filter((id) => !states.has(id) || APPLIES[verb].some((name) => name === states.get(id)));
  const numbers = (verb: Verb): number => {
    if (!all || !counts) return fitting(verb).length;
    return state ? (APPLIES[verb].some((name) => name === state) ? sumOf(counts, [state as "done"]) : 0) : sumOf(counts, ALL_OF[verb]);
  };
  const matching = counts ? sumOf(counts, STATES.filter((name) => !state || name === state)) : 0;
  const act = async (verb: Verb) => {
    const body = all ? { filter, all: !filter } : { ids: fitting(verb) };
    if (await change(verb, body, numbers(verb))) {
      setAll(false);
      changed();
    }
  };
  return (
    <div class={`acting ${all || picked.size ? "on" : ""}`} role="group" aria-label="Actions for jobs">
      <span aria-live="polite">{all ? `All ${count(matching)} that match` : picked.size ? `${count(picked.size)} picked` : "Pick jobs, or"}</span>
      <button class="link" disabled={!matching} onClick={() => { setAll(!all); clear(); }}>
        {all ? "Only picked jobs" : `Select all ${count(matching)} that match`}
      </button>
      {(Object.keys(APPLIES) as Verb[]).map((verb) => (
        <button key={verb} disabled={!numbers(verb)} onClick={() => act(verb)}>
          {SAYS[verb][0]} {(all || numbers(verb) < picked.size) && numbers(verb) > 0 ? count(numbers(verb)) : ""}
        </button>
      ))}
    </div>
  );
}

/** Retries the jobs of a cause. Its filter may select others, too: of an error that is a number, what is common says little. */
async function retryGroup(group: Failures["groups"][number]): Promise<boolean> {
  const found = await post<BulkChanged>("api/v1/jobs/retry", { filter: group.filter, dry_run: true }).catch(() => null);
  const number = found?.count ?? group.count;
  const others = number > group.count ? ` ${count(number - group.count)} of them failed since, or with another error that the filter selects: ${group.filter}` : "";
  return change("retry", { filter: group.filter }, number, others);
}

/** Does something to many jobs, after a question with their number; the server is asked until all are done. */
async function change(verb: Verb, body: { ids?: string[]; filter?: string; all?: boolean }, number: number, note = ""): Promise<boolean> {
  const [title, text, done] = SAYS[verb];
  const question = { title: `${title} ${many(number, "job")}?`, text: text + note, button: `${title} ${many(number, "job")}`, danger: verb !== "retry" };
  if (!(await ask(question))) return false;
  return doing(title, async () => {
    let [sum, refused, after] = [0, 0, null as string | null];
    do {
      const part: BulkChanged = await post<BulkChanged>(`api/v1/jobs/${verb}`, { ...body, after });
      [sum, refused, after] = [sum + part.count, refused + (part.refused ?? 0), part.next ?? null];
    } while (after !== null);
    const left = body.ids ? body.ids.length - sum : refused;
    return [`${many(sum, "job")} ${done}`, ...(left > 0 ? [`${many(left, "job")} left: the key is taken, the state does not allow it, or the job was deleted`] : [])];
  });
}

/** j and k move from row to row, x picks the row, r retries the picked jobs or the row. */
function useKeys(pick: (ids: string[]) => void, retry: (id: string) => void): void {
  const use = useRef({ pick, retry });
  use.current = { pick, retry };
  useLayoutEffect(() => {
    const press = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      const typing = target.closest("input:not([type=checkbox]), textarea, select, dialog");
      if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      const rows = [...document.querySelectorAll<HTMLElement>("tr[data-job]")];
      const at = rows.indexOf(target.closest<HTMLElement>("tr[data-job]") ?? rows[-1]!);
      const id = rows[at]?.dataset.job;
      if (event.key === "j" || event.key === "k") {
        rows[Math.max(0, Math.min(rows.length - 1, at + (event.key === "j" ? 1 : -1)))]?.querySelector<HTMLElement>("td.name a")?.focus();
      } else if (event.key === "x" && id) use.current.pick([id]);
      else if (event.key === "r" && id && may("control")) use.current.retry(id);
      else return;
      event.preventDefault();
      event.stopImmediatePropagation(); // the keys of every page have the same letters
    };
    addEventListener("keydown", press, true);
    return () => removeEventListener("keydown", press, true);
  }, []);
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
    payload = parsed(said.payload ?? "null");
  } catch (error) {
    throw new Error(`The payload is not JSON: ${(error as Error).message}`);
  }
  const made = await post<{ id: string }>("api/v1/jobs", { crew: said.crew, payload, label: said.label || null });
  tell("New job", [made.id]);
  location.hash = to("job", made.id);
}

/** The fields of a filter that the page itself compares with jobs as they change. */
const KNOWN = ["queue", "tags", "flow", "state"];

/** A button that loads newer jobs, so that rows do not move while a user reads them. */
function Newer({ page, first, filter, look }: { page: Page | null; first: boolean; filter: string; look: () => void }) {
  void jobsTick.value;
  const shown = new Set(page?.jobs.map((job) => job.id));
  const newest = page?.jobs[0]?.id ?? "";
  const [ofQueue, ofTag, ofFlow, ofState] = KNOWN.map((name) => valueOf(filter, name)) as [string, string, string, string];
  const passed = useRef<{ page: Page | null; ids: Set<string> }>({ page: null, ids: new Set() });
  const found: string[] = [];
  if (page && first) {
    for (const [id, kept] of jobs) {
      const { queue, tags, flow, state } = kept.now.peek();
      const matches = (!ofQueue || queue === ofQueue) && (!ofFlow || flow === ofFlow) && (!ofTag || tags.includes(ofTag)) && (!ofState || state === ofState);
      if (!shown.has(id) && id > newest && matches) found.push(id);
    }
  }
  if (passed.current.page !== page) {
    // Only the server can judge the rest of a filter: what it has not answered with does not match.
    const judged = KNOWN.reduce((rest, name) => having(rest, name, ""), filter) === "";
    passed.current = { page, ids: new Set(judged ? [] : found) };
  }
  const newer = found.filter((id) => !passed.current.ids.has(id)).length;
  return (
    <p class="newer" aria-live="polite">
      <button class="link" disabled={!newer} onClick={look}>
        {newer ? `Show newer jobs (${count(newer)}${newer >= 100 ? " or more" : ""})` : "No newer jobs"}
      </button>
    </p>
  );
}

interface Picking {
  picked: Set<string>;
  pick: (ids: string[]) => void;
}

function Table({ rows, picked, pick, setPicked }: Picking & { rows: JobRecord[]; setPicked: (ids: Set<string>) => void }) {
  const last = useRef<string | null>(null);
  const all = rows.every((row) => picked.has(row.id));
  const choose = (id: string, range: boolean) => {
    const ids = rows.map((row) => row.id);
    const [from, until] = [ids.indexOf(last.current ?? ""), ids.indexOf(id)];
    const between = range && from >= 0 ? ids.slice(Math.min(from, until), Math.max(from, until) + 1) : [id];
    pick(between.filter((each) => each === id || picked.has(each) === picked.has(id)));
    last.current = id;
  };
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Jobs">
      <table class="jobs">
        <thead>
          <tr>
            {may("control") && (
              <th class="pick">
                <input type="checkbox" aria-label="Pick all jobs on this page" checked={all} onChange={() => setPicked(new Set(all ? [] : rows.map((row) => row.id)))} />
              </th>
            )}
            <th scope="col">State</th>
            <th scope="col">Job</th>
            <th scope="col">Queue</th>
            <th scope="col">Progress or error</th>
            <th scope="col" class="number">Failures</th>
            <th scope="col">Worker</th>
            <th scope="col">Created</th>
            <th scope="col" class="number">Took</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Row key={row.id} row={row} picked={picked.has(row.id)} choose={choose} />
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

function Row({ row, picked, choose }: { row: JobRecord; picked: boolean; choose: (id: string, range: boolean) => void }) {
  void jobsTick.value;
  const job = merged(row, jobs.get(row.id)?.now.value);
  const took = row.started_ms && row.finished_ms ? length((row.finished_ms - row.started_ms) / 1000) : "";
  return (
    <tr data-job={job.id} class={picked ? "picked" : undefined}>
      {may("control") && (
        <td class="pick">
          <input type="checkbox" aria-label={`Pick ${jobName(job)}`} checked={picked} onClick={(event) => choose(job.id, event.shiftKey)} />
        </td>
      )}
      <td class="is">
        <State state={job.state} word={job.state} />
      </td>
      <td class="name">
        <a href={to("job", job.id)} title={`${jobName(job)}\n${job.id}`}>
          {job.label || job.item ? jobName(job) : job.id.slice(-8)}
        </a>
        {(job.label || job.item) && <span class="soft ends">{job.id.slice(-8)}</span>} <Copy text={job.id} what="the id" />
        <Tags tags={job.tags} />
      </td>
      <td class="queue" title={job.queue}>{job.queue}</td>
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
            {brief(job.cause ?? "")}
          </span>
        )}
      </td>
      <td class="number">
        {job.failures}
        {job.crashes > 0 && <span class="warn"> +{job.crashes} crashed</span>}
      </td>
      <td>{job.worker && <WorkerLink component={job.worker} node={job.node} />}</td>
      <td class="created">
        <Ago ms={job.created_ms} />
      </td>
      <td class="number">{took}</td>
    </tr>
  );
}
