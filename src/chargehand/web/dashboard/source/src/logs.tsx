// The last log lines of a worker or of a job.

import { get } from "./api";
import { Empty, Trouble, useAsked, useEvery } from "./parts";
import type { LogLine } from "./types";
import { moment, plain } from "./words";

const EVERY_MS = 3000;

export function LogLines({ scope, job }: { scope?: string; job?: string }) {
  const [found, error, look] = useAsked<{ lines: LogLine[] }>(
    () => get("api/v1/logs", { scope, job, limit: 200 }),
    [scope, job],
  );
  useEvery(EVERY_MS, look, [scope, job]);
  return (
    <>
      <Trouble error={error} />
      {found && found.lines.length === 0 && <Empty>No log lines.</Empty>}
      {found && found.lines.length > 0 && (
        <pre class="log" tabIndex={0} role="log" aria-label="Log lines" aria-live="off">
          {found.lines.map((line, at) => (
            <span key={at} class={line.level}>
              <time>{moment(line.at_ms)}</time> {plain(line.text)}
              {"\n"}
            </span>
          ))}
        </pre>
      )}
    </>
  );
}
