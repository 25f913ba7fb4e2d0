// The operator log: actor, action, target, time and origin.

import { useState } from "preact/hooks";
import { get } from "./api";
import { Ago, Hint, Skeleton, Trouble, useAsked, useEvery, WorkerLink } from "./parts";
import { to } from "./route";
import type { Operation } from "./types";
import { shortId, shortName } from "./words";

const EVERY_MS = 3000;

export function Operations() {
  const [trail, setTrail] = useState<string[]>([]);
  const after = trail[trail.length - 1] ?? null;
  const [page, error, look] = useAsked<{ operations: Operation[]; next: string | null }>(
    () => get("api/v1/operations", { limit: 50, after }),
    [after],
  );
  useEvery(EVERY_MS, () => !after && look(), [after]); // other users act, too
  return (
    <>
      <h1 tabIndex={-1}>Operations</h1>
      <p class="soft">Operator actions by user or key, newest first.</p>
      <Trouble error={error} />
      {!page && !error && <Skeleton rows={8} />}
      {page && page.operations.length === 0 && (
        <Hint command="chargehand pause --reason 'new model'">Nobody has done anything yet. What people and keys do is listed here, for example:</Hint>
      )}
      {page && page.operations.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Operations">
          <table class="stacked">
            <thead>
              <tr>
                <th scope="col">When</th>
                <th scope="col">User</th>
                <th scope="col">Action</th>
                <th scope="col">Target</th>
                <th scope="col">Detail</th>
                <th scope="col">Origin</th>
              </tr>
            </thead>
            <tbody>
              {page.operations.map((each) => (
                <tr key={each.id}>
                  <td class="when"><Ago ms={each.at_ms} /></td>
                  <td class="lead">{each.who}</td>
                  <td>{each.verb}</td>
                  <td><Target name={each.target} /></td>
                  <td class="what">{each.detail}</td>
                  <td class="soft origin">{each.origin}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      {(trail.length > 0 || page?.next) && (
        <nav class="paging" aria-label="Pages of operations">
          <button disabled={!trail.length} onClick={() => setTrail(trail.slice(0, -1))}>Newer</button>
          <button disabled={!page?.next} onClick={() => page?.next && setTrail([...trail, page.next])}>Older</button>
        </nav>
      )}
    </>
  );
}

function Target({ name }: { name: string }) {
  const [kind, ...rest] = name.split(":");
  const what = rest.join(":");
  if (kind === "job") return <a href={to("job", what)}>job {shortId(what)}</a>;
  if (kind === "worker") return <a href={to("worker", name)}>{shortName(name)}</a>;
  if (kind === "recurring") return <a href={to("recurring")}>{what}</a>;
  if (kind === "key") return <a href={to("keys")}>key {what}</a>;
  if (kind === "queue") return <a href={to("jobs", undefined, { queue: what })}>queue {what}</a>;
  const [, node, scope] = /^(?!key:)(.+)\/(.+)$/.exec(name) ?? [];
  if (scope === "*") return <a href={to("nodes")}>node {node}</a>;
  if (scope?.startsWith("worker:")) return <WorkerLink component={scope} node={node} />;
  return <>{name === "*" ? "all workers" : name}</>;
}
