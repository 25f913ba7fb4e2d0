// The nodes that share the store, and the workers of each.

import { useComputed } from "@preact/signals";
import { may } from "./api";
import { acting, isGone, nodeNames, nodes, pauses, workerKeys, workers, workersTick } from "./live";
import { allOf, named, order, Orders } from "./orders";
import { Held, List } from "./workers";
import { Ago, Empty, Since, State } from "./parts";
import type { NodeBody as Node } from "./types";
import { many, plain } from "./words";

export function Nodes() {
  const names = nodeNames.value;
  const gone = names.filter(isGone).length;
  return (
    <>
      <h1 tabIndex={-1}>
        Nodes <span class="count soft">{many(names.length, "node")}{gone > 0 && `, ${gone} gone`}</span>
      </h1>
      {names.length === 0 && <Empty>Only one node can use this store: nodes share a store on PostgreSQL.</Empty>}
      {names.length > 0 && <NodeTable names={names} />}
      {names.map((name) => (
        <NodeSection key={name} name={name} />
      ))}
    </>
  );
}

function NodeTable({ names }: { names: string[] }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Nodes">
      <table class="nodes stacked">
        <thead>
          <tr>
            <th scope="col">Node</th>
            <th scope="col">Status</th>
            <th scope="col">Machine</th>
            <th scope="col">Version</th>
            <th scope="col">Process</th>
            <th scope="col">Up</th>
            <th scope="col">Last heartbeat</th>
            <th scope="col">Workers, by crew</th>
          </tr>
        </thead>
        <tbody>
          {names.map((name) => (
            <NodeRow key={name} name={name} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function NodeRow({ name }: { name: string }) {
  const node = nodes.get(name)?.now.value;
  if (!node) return null;
  return (
    <tr data-node={name} data-state={node.status}>
      <th scope="row" class="lead">{name}</th>
      <td class="when">
        <State state={node.drain ? "stopping" : node.status} word={node.drain ?? undefined} />
        {node.reason && <div class="why">{plain(node.reason)}</div>}
      </td>
      <td class="wide">{node.machine ?? "–"}</td>
      <td class="wide">{node.version ?? "–"}</td>
      <td class="wide">{node.pid ?? "–"}</td>
      <td class="wide">{node.started_ms && node.status !== "gone" ? <Since ms={node.started_ms} roughly /> : "–"}</td>
      <td class="beat">{node.last_beat_ms ? <Ago ms={node.last_beat_ms} /> : "–"}</td>
      <td>{crewWords(node)}</td>
    </tr>
  );
}

/** Returns the numbers of workers; a crew that this node does not run is left out. */
function crewWords(node: Node): string {
  const each = node.crews.filter((crew) => crew.configured || crew.live).map((crew) => {
    const gone = node.status === "gone";
    const busy = crew.busy && !gone ? ` (${crew.busy} busy)` : "";
    return `${crew.crew} ${gone ? 0 : crew.live} of ${crew.configured}${busy}`;
  });
  return each.join(", ") || "–";
}

function NodeSection({ name }: { name: string }) {
  const node = nodes.get(name)?.now.value;
  const byCrew = new Map<string, string[]>();
  for (const key of workerKeys.value) {
    const worker = workers.get(key)?.now.peek();
    if (worker?.node === name) byCrew.set(worker.crew, [...(byCrew.get(worker.crew) ?? []), key]);
  }
  return (
    <section class="crew" aria-labelledby={`node-${name}`}>
      <header>
        <h2 id={`node-${name}`}>
          {name} <span class="soft">{node?.machine && node.machine !== name && `on ${node.machine}`}</span>
        </h2>
        {node?.status === "gone" && (
          <p class="gone">
            <State state="gone" /> It disappeared without having been stopped. Its jobs go to other nodes.
          </p>
        )}
        {node && node.status !== "gone" && <NodeOrders node={node} keys={[...byCrew.values()].flat()} />}
      </header>
      {node && node.status !== "gone" && may("control") && acting.value && byCrew.size > 0 && (
        <p class="buttons scales">
          {[...byCrew.keys()].map((crew) => (
            <button
              key={crew}
              onClick={() => order("scale", `${name}/${crew}`, configured(node, crew))}
              aria-label={`Scale ${named(`${name}/${crew}`)}`}
            >
              Scale {crew}
            </button>
          ))}
        </p>
      )}
      {byCrew.size === 0 && <Empty>This node has no workers.</Empty>}
      {byCrew.size > 0 && <List keys={[...byCrew.values()].flat()} />}
    </section>
  );
}

/** The pause of a whole node, if there is one, and the operations on all its workers. */
function NodeOrders({ node, keys }: { node: Node; keys: string[] }) {
  const pause = pauses.value.find((each) => each.scope === allOf(node.name) || each.scope === "*");
  const down = useComputed(() => {
    void workersTick.value;
    return keys.some((key) => ["failed", "crashed"].includes(workers.get(key)?.now.peek().status ?? ""));
  });
  return (
    <>
      {pause && <Held pause={pause} />}
      <Orders scope={allOf(node.name)} paused={pause !== undefined} down={down.value} drained={node.drain !== null} />
    </>
  );
}

const configured = (node: Node, crew: string): number => node.crews.find((each) => each.crew === crew)?.configured ?? 0;
