// Workers in lists: the unwell first, each with its cause; the well folded by crew. And as tiles, one for each.

import { signal, useComputed } from "@preact/signals";
import { memo } from "preact/compat";
import { may } from "./api";
import { acting, crews, isGone, nodeless, now, pasts, pauses, several, workerKeys, workers, workersTick } from "./live";
import { order, Orders } from "./orders";
import { Ago, Bar, Empty, Hint, Mark, progressWords, Since, State, toneOf, WorkerLink } from "./parts";
import { to, toJob } from "./route";
import type { Pause, WorkerBody as Worker } from "./types";
import { bytes, count, gpuMemory, gpuName, many, plain, shortId, ticking } from "./words";

/** Busy workers up to this number are shown one by one, more of them by crew. */
const FEW = 8;
/** Unwell workers that are shown at first. */
const MOST = 40;

/** Returns the state to show: a node that is gone, or a flag (unresponsive, stalled), has priority over the status. */
export function stateOf(worker: Worker): string {
  if (isGone(worker.node)) return "gone";
  if (worker.flags.length) return "flagged";
  return worker.status === "healthy" && worker.current_job ? "busy" : worker.status;
}

export function wordOf(worker: Worker): string | undefined {
  if (isGone(worker.node)) return "node gone";
  if (worker.flags.length) return worker.flags.join(", ");
  return worker.status === "healthy" && !worker.current_job ? "idle" : undefined;
}

/** The order of states in a list: what needs a person first. */
const RANK = ["failed", "gone", "flagged", "crashed", "unknown", "stopped", "stopping", "starting", "paused", "busy", "healthy", "asleep"];
const rank = (state: string): number => (RANK.indexOf(state) + 1 || 5) - 1;
const UNWELL = RANK.indexOf("paused");
const WORDS: Record<string, string> = { healthy: "free", failed: "given up", busy: "at work", flagged: "stuck", gone: "on nodes that are gone" };

interface Line {
  state: string;
  crew: string;
  node: string;
  keys: string[];
}

/** Returns the lines of the list: one for each unwell worker and for few busy ones, one for the rest of a crew. */
function linesOf(keys: string[]): Line[] {
  void workersTick.value;
  const groups = new Map<string, Line>();
  for (const key of keys) {
    const worker = workers.get(key)?.now.peek();
    if (!worker) continue;
    const state = stateOf(worker);
    const node = several.value ? worker.node : "";
    const name = rank(state) < UNWELL ? key : `${state} ${worker.crew} ${node}`;
    const line = groups.get(name) ?? { state, crew: worker.crew, node, keys: [] };
    line.keys.push(key);
    groups.set(name, line);
  }
  const busy = [...groups.values()].reduce((sum, line) => sum + (line.state === "busy" ? line.keys.length : 0), 0);
  const lines = [...groups.values()].flatMap((line) =>
    line.state === "busy" && busy <= FEW ? line.keys.map((key) => ({ ...line, keys: [key] })) : [line],
  );
  return lines.sort((a, b) => rank(a.state) - rank(b.state) || a.crew.localeCompare(b.crew) || a.node.localeCompare(b.node));
}

const view = signal<"list" | "tiles">("list");
const onlyNode = signal("");
const unfolded = signal<ReadonlySet<string>>(new Set());

export function Workers({ crew, tiles }: { crew?: string; tiles?: boolean }) {
  const keys = workerKeys.value.filter((key) => {
    const worker = workers.get(key)?.now.peek();
    return worker && (!crew || worker.crew === crew) && (!onlyNode.value || worker.node === onlyNode.value);
  });
  const nodes = several.value ? [...new Set(workerKeys.value.map((key) => workers.get(key)?.now.peek().node ?? ""))].sort() : [];
  const all = crew ? false : tiles || view.value === "tiles";
  return (
    <section class="workers" aria-labelledby="workers">
      <header class="head">
        <h2 id="workers">
          Workers <Totals keys={keys} />
        </h2>
        {nodes.length > 1 && (
          <label class="soft">
            Node{" "}
            <select aria-label="Node" value={onlyNode.value} onChange={(event) => (onlyNode.value = event.currentTarget.value)}>
              <option value="">all</option>
              {nodes.map((node) => (
                <option key={node}>{node}</option>
              ))}
            </select>
          </label>
        )}
        {!crew && keys.length > 0 && (
          <div class="choice" role="group" aria-label="Show workers as">
            <button aria-pressed={!all} onClick={() => (tiles ? (location.hash = to("")) : (view.value = "list"))}>List</button>
            <button aria-pressed={all} onClick={() => (view.value = "tiles")}>Tiles</button>
          </div>
        )}
      </header>
      {keys.length === 0 && (nodeless.value !== null
        ? <Empty>No node runs, so there are no workers.</Empty>
        : <Hint command={crew ? `chargehand scale ${crew} 1` : "chargehand work APP"}>{crew ? "This crew has no workers; its jobs are not processed." : "No crew is registered. Define one with hand.crew(…), and start a node."}</Hint>)}
      {all ? <Crews /> : keys.length > 0 && <List keys={keys} />}
    </section>
  );
}

/** How many workers are in which state. */
function Totals({ keys }: { keys: string[] }) {
  void workersTick.value;
  const found = new Map<string, number>();
  for (const key of keys) {
    const worker = workers.get(key)?.now.peek();
    if (worker) found.set(stateOf(worker), (found.get(stateOf(worker)) ?? 0) + 1);
  }
  return (
    <span class="totals">
      <span class="soft">{count(keys.length)}</span>
      {[...found].sort(([a], [b]) => rank(a) - rank(b)).map(([state, n]) => (
        <span key={state} class={toneOf(state)}>
          <Mark state={state} /> {count(n)} {WORDS[state] ?? state}
        </span>
      ))}
    </span>
  );
}

export function List({ keys }: { keys: string[] }) {
  const [...lines] = linesOf(keys);
  const shown = lines.slice(0, Math.max(MOST, lines.findIndex((line) => line.keys.length > 1) + MOST));
  return (
    <ul class="rows" aria-label="Workers, the unwell first">
      {shown.map((line) => {
        const name = `${line.state} ${line.crew} ${line.node}`;
        return line.keys.length === 1 ? <Row key={line.keys[0]!} name={line.keys[0]!} /> : <Folded key={name} name={name} line={line} />;
      })}
      {lines.length > shown.length && <li class="soft">and {count(lines.length - shown.length)} more: see the tiles</li>}
    </ul>
  );
}

/** Workers of a crew in the same state, in one line; a press shows each. */
function Folded({ line, name }: { line: Line; name: string }) {
  const open = unfolded.value.has(name);
  const its = line.keys.map((key) => workers.get(key)?.now.peek()).filter((worker) => worker !== undefined);
  const sum = (of: (worker: Worker) => number) => its.reduce((all, worker) => all + of(worker), 0);
  const toggle = () => {
    const next = new Set(unfolded.value);
    if (!next.delete(name)) next.add(name);
    unfolded.value = next;
  };
  const memory = sum((worker) => worker.memory ?? 0) / its.length;
  return (
    <>
      <li class="folded">
        <Mark state={line.state} />
        <button class="link title" aria-expanded={open} onClick={toggle}>
          {line.node && `${line.node}/`}{line.crew} {ranges(its.map((worker) => worker.index ?? 0))}
        </button>
        <span class={`state ${toneOf(line.state)}`}>{count(its.length)} {WORDS[line.state] ?? line.state}</span>
        <span class="what soft"><PauseWords crew={line.crew} state={line.state} /></span>
        <span class="soft memory">{memory ? `${bytes(memory)} each` : ""}</span>
        <span class="soft jobs">{many(sum((worker) => worker.jobs), "job")}</span>
        <span />
      </li>
      {open && line.keys.map((key) => <Row key={key} name={key} />)}
    </>
  );
}

function PauseWords({ crew, state }: { crew: string; state: string }) {
  const pause = state === "paused" && pauses.value.find((each) => each.scope === crew || each.scope === "*");
  return pause ? <>by {pause.who}: {plain(pause.reason ?? "no reason given")}</> : null;
}

/** Formats numbers: `0–3, 7`. */
export function ranges(numbers: number[]): string {
  const sorted = [...numbers].sort((a, b) => a - b);
  const parts: [number, number][] = [];
  for (const n of sorted) {
    const last = parts[parts.length - 1];
    if (last && n === last[1] + 1) last[1] = n;
    else parts.push([n, n]);
  }
  const words = parts.slice(0, 4).map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`));
  return words.join(", ") + (parts.length > 4 ? " …" : "");
}

const Row = memo(function Row({ name }: { name: string }) {
  const worker = workers.get(name)?.now.value;
  if (!worker) return null;
  const state = stateOf(worker);
  const scope = several.value ? `${worker.node}/${worker.component.replace(/^worker:/, "")}` : worker.component;
  const verb = { failed: "reset", crashed: "reset", stopped: "start", flagged: "restart" }[state] as "reset" | "start" | "restart" | undefined;
  return (
    <li data-worker={worker.component} data-state={state}>
      <Mark state={state} />
      <span class="title"><WorkerLink component={worker.component} node={worker.node} /></span>
      <State state={state} word={wordOf(worker)} bare />
      <Doing worker={worker} />
      <span class="soft memory" title="Memory">{bytes(worker.memory)}</span>
      <span class="soft jobs">{worker.restart_count ? many(worker.restart_count, "restart") : many(worker.jobs, "job")}</span>
      <span class="buttons">
        {verb && may("control") && acting.value && (
          <button data-key="r" onClick={() => order(verb, scope)} aria-label={`${verb} ${scope}`}>
            {verb.charAt(0).toUpperCase() + verb.slice(1)}
          </button>
        )}
      </span>
    </li>
  );
});

// tiles

function Crews() {
  const byCrew = useComputed(() => {
    const found = new Map<string, string[]>(crews.value.map((crew) => [crew.name, []]));
    for (const key of workerKeys.value) {
      const worker = workers.get(key)?.now.peek();
      if (onlyNode.value && worker?.node !== onlyNode.value) continue;
      const crew = worker?.crew ?? "?";
      found.set(crew, [...(found.get(crew) ?? []), key]);
    }
    return [...found.entries()].sort(([a], [b]) => a.localeCompare(b));
  });
  return (
    <>
      {byCrew.value.map(([crew, keys]) => (
        <CrewSection key={crew} crew={crew} keys={keys} />
      ))}
    </>
  );
}

function CrewSection({ crew, keys }: { crew: string; keys: string[] }) {
  const known = crews.value.find((each) => each.name === crew);
  return (
    <section class="crew" aria-labelledby={`crew-${crew}`}>
      <header>
        <h3 id={`crew-${crew}`}>
          {crew} <span class="soft">{many(keys.length, "worker")}{known && known.queue !== crew && `, queue ${known.queue}`}</span>
        </h3>
        <CrewOrders crew={crew} />
      </header>
      {keys.length === 0 && <Empty>This crew has no workers; its jobs are not processed.</Empty>}
      {(several.value ? byNode(keys) : [["", keys] as const]).map(([node, own]) => (
        <div key={node}>
          {node && (
            <h4 class="of">
              <a href={to("nodes")}>{node}</a> {isGone(node) && <State state="gone" />}
            </h4>
          )}
          <ul class="tiles">
            {own.map((key) => (
              <Tile key={key} name={key} />
            ))}
          </ul>
        </div>
      ))}
    </section>
  );
}

/** The pause of a crew, and the orders for all its workers. */
export function CrewOrders({ crew }: { crew: string }) {
  void workersTick.value;
  const keys = workerKeys.value.filter((key) => workers.get(key)?.now.peek().crew === crew);
  const known = crews.value.find((each) => each.name === crew);
  const pause = pauses.value.find((each) => each.scope === crew || each.scope === "*");
  const here = keys.filter((key) => !isGone(workers.get(key)?.now.peek().node ?? ""));
  // The number of workers is set for each node.
  const size = several.value ? (known?.scaled ?? known?.workers ?? here.length) : here.length;
  const down = keys.some((key) => ["failed", "crashed"].includes(workers.get(key)?.now.peek().status ?? ""));
  return (
    <>
      {pause && <Held pause={pause} />}
      {may("control") && <Orders scope={crew} paused={pause !== undefined} down={down} size={size} />}
    </>
  );
}

/** Who paused a crew or a node, why, and until when. */
export function Held({ pause }: { pause: Pause }) {
  return (
    <p class="held">
      <Mark state="paused" /> paused by {pause.who}: {plain(pause.reason ?? "no reason given")}, since <Ago ms={pause.since_ms} />
      {pause.until_ms && (
        <>
          , until <Ago ms={pause.until_ms} />
        </>
      )}
    </p>
  );
}

/** Groups the keys of workers by their nodes. */
function byNode(keys: string[]): [node: string, keys: string[]][] {
  const found = new Map<string, string[]>();
  for (const key of keys) {
    const node = workers.get(key)?.now.peek().node ?? "?";
    found.set(node, [...(found.get(node) ?? []), key]);
  }
  return [...found].sort(([a], [b]) => a.localeCompare(b));
}

export const Tile = memo(function Tile({ name }: { name: string }) {
  const worker = workers.get(name)?.now.value;
  if (!worker) return null;
  const state = stateOf(worker);
  return (
    <li class={`tile ${toneOf(state)}${worker.gpus?.length ? " gpus" : ""}`} data-worker={worker.component} data-state={state}>
      <a href={to("worker", name)}>
        <span class="index">
          <span class="hidden">Worker {worker.crew} </span>
          {worker.index ?? worker.component}
        </span>
        <State state={state} word={wordOf(worker)} />
      </a>
      <Doing worker={worker} />
      <div class="line soft">
        <span title="Memory">{bytes(worker.memory)}</span>
        <span title="Uptime">{worker.started_ms && worker.pid ? <>up <Since ms={worker.started_ms} roughly /></> : "–"}</span>
        <span title="Jobs done">{many(worker.jobs, "job")}</span>
      </div>
      {worker.gpus?.map((gpu) => (
        <div key={gpu.uuid} class="line soft" title={gpu.uuid}>
          <span>{gpuName(gpu)}</span>
          <span title="GPU memory in use by all processes">{gpuMemory(gpu)}</span>
          <span title="Share of the time in which the GPU was busy">{gpu.utilization === null ? "–" : `${gpu.utilization} %`}</span>
        </div>
      ))}
      <div class="line soft">
        <span title="Restarts, and the crashes left before the worker is given up: in the window / in total">
          {many(worker.restart_count, "restart")}
          {worker.budget && `, ${worker.budget.rapid_left}/${worker.budget.lifetime_left} left`}
        </span>
        <Strip name={name} />
      </div>
    </li>
  );
});

/** The scopes of pauses that are about this worker, or about all workers of its node. */
function scopesOf({ component, node, crew }: Worker): string[] {
  return [component, crew, "*", `${node}/${component}`, `${node}/${crew}`, `${node}/*`];
}

function Doing({ worker }: { worker: Worker }) {
  if (isGone(worker.node)) return <div class="doing why">{worker.text ?? `its node ${worker.node} is gone`}</div>;
  if (worker.current_job && worker.concurrency > 1) {
    const share = { done: worker.in_hand, total: worker.concurrency, stage: null, detail: null };
    return (
      <div class="doing">
        <div class="line"><span>{worker.in_hand} of {worker.concurrency} jobs</span></div>
        <Bar progress={share} label={`Jobs in hand of ${worker.component}`} />
      </div>
    );
  }
  if (worker.current_job) {
    const words = worker.progress ? progressWords(worker.progress) : shortId(plain(worker.current_job));
    return (
      <div class="doing">
        <div class="line">
          <a href={toJob(worker.current_job)} title={plain(worker.current_job)}>
            {words}
          </a>
          <span class="soft">{worker.job_since_ms && <Since ms={worker.job_since_ms} />}</span>
        </div>
        <Bar key={worker.current_job} progress={worker.progress} label={`Progress of ${plain(worker.current_job)}`} />
      </div>
    );
  }
  const back = worker.restart_at_ms ? `restart in ${ticking((worker.restart_at_ms - now.value) / 1000)}; ` : "";
  const held = worker.status === "paused" && pauses.value.find((pause) => scopesOf(worker).includes(pause.scope));
  const why = held ? `by ${held.who}: ${plain(held.reason ?? "no reason given")}` : plain(worker.cause ?? worker.text ?? worker.reason ?? "");
  const asleep = worker.status === "asleep" && !worker.shortage;
  const text = worker.status === "healthy" ? "" : asleep ? "the next job starts it" : back + why;
  return (
    <div class="doing why" title={text}>
      {text}
    </div>
  );
}

/** The last states of a worker, oldest first. */
function Strip({ name }: { name: string }) {
  const past = (pasts.get(name) ?? []).slice(-10);
  return (
    <span class="strip" role="img" aria-label={`Last states: ${past.map((each) => each.status).join(", ")}`}>
      {past.map((each, at) => (
        <i key={at} class={toneOf(each.job && each.status === "healthy" ? "busy" : each.status)} />
      ))}
    </span>
  );
}
