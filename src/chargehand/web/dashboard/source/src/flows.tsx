// The list of flows: filters, pages, live updates of the rows shown.

import { useRef, useState } from "preact/hooks";
import { get } from "./api";
import { flows, flowsTick } from "./live";
import { Ago, allOfCounts, countWords, CountsBar, Empty, Hint, Search, Since, Skeleton, State, Trouble, useAsked } from "./parts";
import { place, to } from "./route";
import type { FlowBody, FlowPage, FlowRecord } from "./types";
import { count, length, plain } from "./words";

const STATES = ["running", "done", "failed", "cancelled"] as const;

function filterOf(query: URLSearchParams): { state: string; text: string } {
  return { state: query.get("state") ?? "", text: query.get("text") ?? "" };
}

export function Flows() {
  const filter = filterOf(place.value.query);
  const [trail, setTrail] = useState<string[]>([]);
  const after = trail[trail.length - 1];
  const which = JSON.stringify(filter);
  const before = useRef(which);
  if (before.current !== which) {
    before.current = which;
    if (trail.length) setTrail([]);
  }
  const [page, error, look] = useAsked<FlowPage>(
    () => get("api/v1/flows", { ...filter, limit: 50, after: after ?? null }),
    [which, after],
  );
  return (
    <>
      <header class="top">
        <h1 tabIndex={-1}>Flows</h1>
      </header>
      <Filters filter={filter} />
      <Trouble error={error} />
      <Newer page={page} first={!after && !filter.text && !filter.state} look={look} />
      {page && page.flows.length > 0 && <Table rows={page.flows} />}
      {!page && !error && <Skeleton rows={8} />}
      {page && page.flows.length === 0 && (
        filter.text || filter.state
          ? <Empty>No flows match the filter.</Empty>
          : <Hint command="with hand.flow(name) as flow: …">There are no flows. A flow is a group of jobs that belong together; this begins one:</Hint>
      )}
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

function go(changes: Partial<{ state: string; text: string }>): void {
  location.replace(to("flows", undefined, { ...filterOf(place.value.query), ...changes }));
}

function Filters({ filter: { state, text } }: { filter: { state: string; text: string } }) {
  return (
    <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
      <label>
        State
        <select value={state} onChange={(event) => go({ state: event.currentTarget.value })}>
          <option value="">all</option>
          {STATES.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <Search label="Text" value={text} placeholder="id or name" change={(value) => go({ text: value })} />
    </form>
  );
}

/** A button that loads newer flows, so that rows do not move while a user reads them. */
function Newer({ page, first, look }: { page: FlowPage | null; first: boolean; look: () => void }) {
  void flowsTick.value;
  const shown = new Set(page?.flows.map((flow) => flow.id));
  const newest = page?.flows[0]?.created_ms ?? 0;
  let newer = 0;
  if (page && first) {
    for (const [id, kept] of flows) if (!shown.has(id) && kept.now.peek().created_ms >= newest) newer++;
  }
  return (
    <p class="newer" aria-live="polite">
      <button class="link" disabled={!newer} onClick={look}>
        {newer ? `Show newer flows (${count(newer)})` : "No newer flows"}
      </button>
    </p>
  );
}

function Table({ rows }: { rows: FlowRecord[] }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Flows">
      <table class="stacked">
        <thead>
          <tr>
            <th scope="col">State</th>
            <th scope="col">Flow</th>
            <th scope="col">Jobs</th>
            <th scope="col" class="number">Done</th>
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

/** Returns a flow with what events have said of it since. */
export function mergedFlow<T extends FlowRecord>(row: T, live: FlowBody | undefined): T {
  if (!live) return row;
  const { state, counts, ended_ms, ends } = live;
  return { ...row, state, counts, ended_ms, ends };
}

function Row({ row }: { row: FlowRecord }) {
  void flowsTick.value;
  const flow = mergedFlow(row, flows.get(row.id)?.now.value);
  const all = allOfCounts(flow.counts);
  return (
    <tr data-flow={flow.id}>
      <td class="when">
        <State state={flow.state} word={flow.state} />
      </td>
      <td class="name lead">
        <a href={to("flow", flow.id)} title={flow.id}>
          {plain(flow.name)}
        </a>
      </td>
      <td class="parts">
        <CountsBar counts={flow.counts} />
        <span class="soft">{countWords(flow.counts)}</span>
      </td>
      <td class="number wide">
        {count(flow.counts.done)} of {count(all)}
      </td>
      <td>
        <Ago ms={flow.created_ms} />
      </td>
      <td class="number">
        {flow.ended_ms === null ? <Since ms={flow.created_ms} /> : length((flow.ended_ms - flow.created_ms) / 1000)}
      </td>
    </tr>
  );
}
