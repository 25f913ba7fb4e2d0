// The recurring jobs: each with its schedule in words, the next and the last run, and how its newest jobs went.

import { get, may, post } from "./api";
import { doing } from "./orders";
import { Ago, ask, Hint, Mark, Skeleton, State, Trouble, useAsked, useEvery } from "./parts";
import { to } from "./route";
import type { Answer, JobRun, Recurrence } from "./types";
import { count, length, plain, serverNow } from "./words";

const EVERY_MS = 3000;
const BARS = 30;
/** The height of the shortest bar, in percent. */
const LEAST = 14;

export function RecurringPage() {
  const [found, error, look] = useAsked<{ recurring: Recurrence[] }>(() => get("api/v1/recurring"), []);
  useEvery(EVERY_MS, look);
  return (
    <>
      <h1 tabIndex={-1}>
        Recurring jobs {found && <span class="count soft">{count(found.recurring.length)}</span>}
      </h1>
      <Trouble error={error} />
      {!found && !error && <Skeleton rows={4} />}
      {found && found.recurring.length === 0 && (
        <Hint command={'hand.recurring("nightly", crew, cron="0 3 * * *")'}>
          No recurring job is declared. A node registers them when it starts:
        </Hint>
      )}
      {found && found.recurring.length > 0 && <Table rows={found.recurring} look={look} />}
    </>
  );
}

function Table({ rows, look }: { rows: Recurrence[]; look: () => void }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Recurring jobs">
      <table class="recurring">
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">Schedule</th>
            <th scope="col">Next</th>
            <th scope="col">Last</th>
            <th scope="col">Newest runs</th>
            <th scope="col">Queue</th>
            {may("control") && <th scope="col"><span class="hidden">Actions</span></th>}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Row key={row.name} row={row} look={look} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Row({ row, look }: { row: Recurrence; look: () => void }) {
  const paused = row.paused_ms ?? null;
  const last = row.runs?.[row.runs.length - 1];
  return (
    <tr data-recurring={row.name}>
      <th scope="row">{plain(row.name)}</th>
      <td class="schedule">{row.in_words}</td>
      <td class="next" data-label={paused === null ? "next" : undefined}>
        {paused === null ? (
          row.next_run_ms < serverNow() - 60_000 ? <>due <Ago ms={row.next_run_ms} /></> : <Ago ms={row.next_run_ms} />
        ) : (
          <span class="hold pause" title={`paused by ${row.paused_by}: ${plain(row.pause_reason ?? "no reason given")}`}>
            <Mark state="paused" /> paused by {row.paused_by} <Ago ms={paused} />
            {row.pause_reason && `: ${plain(row.pause_reason)}`}
          </span>
        )}
      </td>
      <td>{last ? <a href={to("job", last.id)}><State state={last.state} word={last.state} /> <Ago ms={last.created_ms} /></a> : <span class="soft">{row.last_job ? "no longer kept" : "never"}</span>}</td>
      <td><Runs runs={row.runs ?? []} /></td>
      <td class="queue"><a href={to("queue", row.queue)}>{row.queue}</a></td>
      {may("control") && (
        <td class="does">
          <button data-key="r" aria-label={`Run now: ${plain(row.name)}`} onClick={() => void runNow(row.name).then(look)}>Run now</button>
          {paused === null ? (
            <button data-key="p" aria-label={`Pause ${plain(row.name)}`} onClick={() => void pause(row.name).then(look)}>Pause</button>
          ) : (
            <button data-key="p" aria-label={`Resume ${plain(row.name)}`} onClick={() => void resume(row.name).then(look)}>Resume</button>
          )}
        </td>
      )}
    </tr>
  );
}

const took = (run: JobRun): number | null =>
  run.started_ms == null || run.finished_ms == null ? null : (run.finished_ms - run.started_ms) / 1000;

const wordsOf = (run: JobRun): string => {
  const seconds = took(run);
  return seconds === null ? run.state : `${run.state} after ${length(seconds)}`;
};

/** A bar for each of the newest runs: its height is how long it took, its colour and shape how it ended. */
function Runs({ runs }: { runs: JobRun[] }) {
  const shown = runs.slice(-BARS);
  const longest = Math.max(0, ...shown.map((run) => took(run) ?? 0));
  const failed = shown.filter((run) => run.state === "failed").length;
  const words = shown.length ? `${count(shown.length)} runs, ${count(failed)} failed, at most ${length(longest)}` : "no runs yet";
  if (!shown.length) return <span class="soft">–</span>;
  return (
    <span class="runs" role="img" aria-label={words}>
      {shown.map((run) => (
        <i
          key={run.id}
          class={run.state}
          title={wordsOf(run)}
          style={{ height: `${Math.max(LEAST, longest ? ((took(run) ?? 0) / longest) * 100 : LEAST)}%` }}
        />
      ))}
    </span>
  );
}

async function runNow(name: string): Promise<void> {
  await doing(`Run ${plain(name)}`, async () => {
    const { component } = await post<Answer>("api/v1/recurring/run", { name });
    return [`job ${component} is queued`];
  });
}

async function pause(name: string): Promise<void> {
  const said = await ask({
    title: `Pause ${plain(name)}`,
    text: "It skips its times until it is resumed; running jobs go on. The pause survives restarts.",
    button: "Pause",
    fields: [{ name: "reason", label: "Reason (shown to other users)", kind: "text" }],
  });
  if (!said) return;
  await doing(`Pause ${plain(name)}`, async () => [(await post<Answer>("api/v1/recurring/pause", { name, reason: said.reason || null })).text]);
}

async function resume(name: string): Promise<void> {
  await doing(`Resume ${plain(name)}`, async () => [(await post<Answer>("api/v1/recurring/resume", { name })).text]);
}
