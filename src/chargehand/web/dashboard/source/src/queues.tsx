// All queues in one table, a line for each.

import { memo } from "preact/compat";
import { crews, isGone, pauses, queueNames, queues, workerKeys, workers, workersTick } from "./live";
import { Hint, Mark, Since, toneOf, Until } from "./parts";
import { to } from "./route";
import { rates, sampled } from "./samples";
import { count, length, perMinute, waiting } from "./words";
import { stateOf } from "./workers";

/** More queues than this take lower rows, so that thirty fit on one screen. */
const TALL_ROWS = 12;
/** Workers of a crew that have a mark of their own. */
const MARKS = 8;
const PARTS = 30;

export function QueuesPage() {
  return (
    <>
      <h1 tabIndex={-1} class="hidden">Queues</h1>
      <QueueTable />
    </>
  );
}

export function QueueTable() {
  const names = queueNames.value;
  return (
    <section aria-labelledby="queues">
      <h2 id="queues">
        Queues <span class="soft">{names.length > 0 && count(names.length)}</span>
      </h2>
      {names.length === 0 && <Hint command="hand.crew(&quot;tag&quot;, &quot;music:Tag&quot;)">No queue has jobs or a crew yet. A crew serves the queue of its name:</Hint>}
      {names.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Queues">
          <table class={`queue-table ${names.length > TALL_ROWS ? "dense" : ""}`}>
            <thead>
              <tr>
                <th scope="col">Queue</th>
                <th scope="col" class="number">Waiting</th>
                <th scope="col" class="number">Running</th>
                <th scope="col" class="number wide">Oldest</th>
                <th scope="col" class="number wide">Ended</th>
                <th scope="col" class="wide">Last 5 min</th>
                <th scope="col" class="number wide" title="95 % of the jobs started in the last five minutes had waited no longer">Wait p95</th>
                <th scope="col" class="number wide" title="95 % of the attempts that ended in the last five minutes took no longer">Run p95</th>
                <th scope="col" class="number">Failed</th>
                <th scope="col">Workers</th>
              </tr>
            </thead>
            <tbody>
              {names.map((name) => (
                <Row key={name} name={name} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

const Row = memo(function Row({ name }: { name: string }) {
  const queue = queues.get(name)?.now.value;
  if (!queue) return null;
  const waits = waiting(queue);
  const time = (seconds: number | null | undefined) => (seconds == null ? "–" : length(seconds));
  const open = () => (location.hash = to("queue", name));
  return (
    <tr data-queue={name} onClick={open}>
      <th scope="row">
        <a href={to("queue", name)} onClick={(event) => event.stopPropagation()}>{name}</a>
        {queue.rate_next_ms !== null && (
          <span class="paced"> limited by rate, next in <Until ms={queue.rate_next_ms} /></span>
        )}
      </th>
      <td class="number">
        {count(waits)}
        {queue.future + queue.following > 0 && <span class="soft" title={`${count(queue.future)} scheduled for later, ${count(queue.following)} wait for other jobs`}> +{count(queue.future + queue.following)}</span>}
      </td>
      <td class="number">{count(queue.running)}</td>
      <td class="number wide">{queue.oldest_ms === null ? "–" : <Since ms={queue.oldest_ms} />}</td>
      <td class="number wide" title={queue.eta_s !== null && waits > 0 ? `${length(queue.eta_s)} left at this rate` : undefined}>{perMinute(queue.rate)}</td>
      <td class="wide spark-cell"><Spark name={name} /></td>
      <td class="number wide">{time(queue.wait_p95_s)}</td>
      <td class="number wide">{time(queue.run_p95_s)}</td>
      <td class="number">
        {queue.failed ? <a class="bad" href={to("jobs", undefined, { queue: name, state: "failed" })} onClick={(event) => event.stopPropagation()}>{count(queue.failed)}</a> : <span class="soft">0</span>}
      </td>
      <td><Crew queue={name} /></td>
    </tr>
  );
});

/** The rate of a queue in the last five minutes. */
export function Spark({ name }: { name: string }) {
  void sampled.value;
  const values = rates(name, PARTS);
  const most = Math.max(...values.map((each) => each ?? 0));
  const points = values.map((each, at) => [at, each] as const).filter(([, each]) => each !== null);
  if (!points.length) return <svg class="spark" viewBox={`0 0 ${PARTS} 10`} preserveAspectRatio="none" aria-hidden="true" />;
  const line = points.map(([at, each]) => `${at + 0.5} ${(9.5 - ((each ?? 0) / (most || 1)) * 8.5).toFixed(1)}`);
  const [first, last] = [points[0]![0] + 0.5, points[points.length - 1]![0] + 0.5];
  return (
    <svg class="spark" viewBox={`0 0 ${PARTS} 10`} preserveAspectRatio="none" role="img" aria-label={`at most ${perMinute(most)} in the last five minutes`}>
      <title>{`at most ${perMinute(most)} in the last five minutes`}</title>
      <path class="area" d={`M${first} 10L${line.join("L")}L${last} 10z`} />
      <path class="line" d={`M${line.join("L")}`} />
    </svg>
  );
}

/** The crews that serve a queue: a mark for each worker, or for each state with its number. */
function Crew({ queue }: { queue: string }) {
  void workersTick.value;
  const serving = crews.value.filter((crew) => crew.queue === queue).map((crew) => crew.name);
  const states = workerKeys.value.flatMap((key) => {
    const worker = workers.get(key)?.now.peek();
    return worker && serving.includes(worker.crew) && !isGone(worker.node) ? [stateOf(worker)] : [];
  });
  const pause = pauses.value.find((each) => each.scope === "*" || serving.includes(each.scope));
  const counts = new Map<string, number>();
  for (const state of states) counts.set(state, (counts.get(state) ?? 0) + 1);
  const words = [...counts].map(([state, n]) => `${n} ${state}`).join(", ") || (serving.length ? "no workers" : "no crew");
  const title = pause ? `${words}; paused by ${pause.who}: ${pause.reason ?? "no reason given"}` : words;
  return (
    <span class="marks" role="img" aria-label={title} title={title}>
      {states.length === 0 && <span class="soft">{words}</span>}
      {states.length <= MARKS
        ? states.map((state, at) => <Mark key={at} state={state} />)
        : [...counts].map(([state, n]) => (
            <span key={state} class={toneOf(state)}>
              <Mark state={state} /> {count(n)}
            </span>
          ))}
    </span>
  );
}
