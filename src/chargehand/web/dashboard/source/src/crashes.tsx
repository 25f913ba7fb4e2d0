// Crash reports of workers: the list, and one report.

import { useState } from "preact/hooks";
import { get } from "./api";
import { crashedAt, info } from "./live";
import { Ago, Copy, Empty, Failure, Skeleton, State, Text, Trouble, useAsked, WorkerLink } from "./parts";
import { place, to, toJob } from "./route";
import type { CrashDetail, CrashRecord as Crash } from "./types";
import { bytes, length, plain, shortId } from "./words";

interface Page {
  crashes: Crash[];
  next: string | null;
}

export function CrashesPage() {
  const crew = place.value.query.get("crew") || undefined;
  return (
    <>
      <h1 tabIndex={-1}>Crashes{crew && ` of ${crew}`}</h1>
      {crew && <p><a href={to("crashes")}>Crashes of all crews</a></p>}
      <Crashes key={crew} crew={crew} again={crashedAt.value} />
    </>
  );
}

interface Which {
  component?: string;
  crew?: string | undefined;
  node?: string;
  again?: number | undefined;
}

export function Crashes({ component, crew, node, again }: Which) {
  const [trail, setTrail] = useState<string[]>([]);
  const after = trail[trail.length - 1] ?? null;
  const [page, error] = useAsked<Page>(
    () => get("api/v1/crashes", { component, crew, node, limit: 20, after }),
    [component, crew, node, after, again],
  );
  return (
    <>
      <Trouble error={error} />
      {!page && !error && <Skeleton rows={3} />}
      {page && page.crashes.length === 0 && <Empty>No crashes recorded.</Empty>}
      {page && page.crashes.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Crash reports">
          <table class="stacked">
            <thead>
              <tr>
                <th scope="col">When</th>
                <th scope="col">Worker</th>
                <th scope="col">Reason</th>
                <th scope="col">Cause</th>
                <th scope="col">Action taken</th>
                <th scope="col">Job</th>
              </tr>
            </thead>
            <tbody>
              {page.crashes.map((crash) => (
                <tr key={crash.id}>
                  <td class="when"><Ago ms={crash.at_ms} /></td>
                  <td class="lead"><WorkerLink component={crash.component} node={crash.node} /></td>
                  <td><State state="crashed" word={crash.reason} /></td>
                  <td class="cause"><a class="short" href={to("crash", crash.id)} title={crash.cause}>{plain(crash.cause)}</a></td>
                  <td class="soft cause"><span class="short" title={crash.follows}>{plain(crash.follows)}</span></td>
                  <td class="job">{crash.job && <a href={toJob(crash.job)}>{shortId(crash.job)}</a>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {(trail.length > 0 || page?.next) && (
        <nav class="paging" aria-label="Pages of crash reports">
          <button disabled={!trail.length} onClick={() => setTrail(trail.slice(0, -1))}>Newer</button>
          <button disabled={!page?.next} onClick={() => page?.next && setTrail([...trail, page.next])}>Older</button>
        </nav>
      )}
    </>
  );
}

export function CrashPage({ id }: { id: string }) {
  const [crash, error] = useAsked<CrashDetail>(() => get(`api/v1/crashes/${encodeURIComponent(id)}`), [id]);
  if (!crash) return error ? <Trouble error={error} /> : <Skeleton />;
  return (
    <>
      <header class="top">
        <h1 tabIndex={-1}>{plain(crash.cause)}</h1>
        <Copy text={() => reportOf(crash)} what="a bug report" label="Copy as bug report" />
      </header>
      <dl class="facts">
        <div><dt>worker</dt><dd><WorkerLink component={crash.component} node={crash.node} /></dd></div>
        <div><dt>node</dt><dd>{crash.node ?? "–"}</dd></div>
        <div><dt>when</dt><dd><Ago ms={crash.at_ms} /></dd></div>
        <div><dt>reason</dt><dd>{crash.reason}</dd></div>
        <div><dt>process</dt><dd>{crash.pid ?? "–"}</dd></div>
        <div><dt>signal</dt><dd>{crash.signal ?? "–"}</dd></div>
        <div><dt>exit code</dt><dd>{crash.exit_code ?? "–"}</dd></div>
        <div><dt>uptime</dt><dd>{crash.uptime_ms === null ? "never ready" : length(crash.uptime_ms / 1000)}</dd></div>
        <div><dt>memory</dt><dd>{bytes(crash.memory)}</dd></div>
        <div class="wide"><dt>job</dt><dd>{crash.job ? <><a href={toJob(crash.job)}>{crash.job}</a> <Copy text={crash.job} what="the id" /></> : "none"}</dd></div>
        <div><dt>action taken</dt><dd>{crash.follows}</dd></div>
        <div><dt>counts toward the crash limit</dt><dd>{crash.charged ? "yes" : "no"}</dd></div>
      </dl>
      {crash.text !== crash.cause && (
        <section aria-label="Error">
          <h2>Error</h2>
          <Failure line={crash.cause} frames={crash.own_frames} text={crash.text} label="Error" />
        </section>
      )}
      <Part title="Stacks" text={crash.stacks} none="No stacks: the worker was killed, or exited before it could write them." />
      <Part title="Last log lines" text={crash.lines.join("\n")} none="No output." />
      {crash.frames.length > 0 && <Part title="Invalid messages to the node" text={crash.frames.join("\n")} none="" />}
    </>
  );
}

/** Returns a crash as text for a bug report: no payload, no environment. */
function reportOf(crash: CrashDetail): string {
  const version = info.value ? `Chargehand ${info.value.version}` : "Chargehand";
  const head = [`${version}: ${crash.cause}`, `reason: ${crash.reason}`, `signal: ${crash.signal ?? "none"}, exit code: ${crash.exit_code ?? "none"}`];
  const parts = [["Error", crash.text], ["Stacks", crash.stacks], ["Last log lines", crash.lines.join("\n")]];
  return [...head, ...parts.flatMap(([title, text]) => (text ? [`\n## ${title}\n\n\`\`\`\n${text.trim()}\n\`\`\``] : []))].join("\n");
}

function Part({ title, text, none }: { title: string; text: string; none: string }) {
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      {text ? <Text label={title}>{text}</Text> : <Empty>{none}</Empty>}
    </section>
  );
}
