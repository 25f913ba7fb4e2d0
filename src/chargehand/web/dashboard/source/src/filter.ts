// The filter language of jobs, as far as the page composes it; the server parses it (model/job_query.py).

/** The fields that the filter line offers, each with the beginning of its values. */
export const FIELDS = [
  "queue:", "state:", "reason:", "error:", "cause:", "tags:", "since:", "until:", "older:", "worker:", "node:", "payload.", "label:~", "id:",
  "key:", "flow:", "share:", "sequence:", "item:~",
];
export const REASONS = ["raised", "timed-out", "gave-up", "poison", "no-progress", "retries-used-up", "predecessor"];
export const STATES = ["queued", "running", "done", "failed", "cancelled"] as const;

const WORD = /(?:([A-Za-z_][\w.]*):)?(~?(?:"(?:[^"\\]|\\.)*"|\S+))/g;

/** Returns a value as a filter has it: in quotes if it needs them. */
export function quoted(value: string): string {
  return /^[^\s":~][^\s"]*$/.test(value) ? value : `"${value.replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

function bare(value: string): string {
  return value.startsWith('"') ? value.slice(1, -1).replace(/\\(["\\])/g, "$1") : value;
}

/** Returns the value of a field in a filter; empty if it has none. */
export function valueOf(filter: string, name: string): string {
  const found = [...filter.matchAll(WORD)].find((word) => word[1] === name);
  return found ? bare(found[2] ?? "") : "";
}

/** Returns the filter with another value of a field; without the field if the value is empty. */
export function having(filter: string, name: string, value: string): string {
  const others = [...filter.matchAll(WORD)].filter((word) => word[1] !== name).map((word) => word[0]);
  return [...others, ...(value ? [`${name}:${quoted(value)}`] : [])].join(" ");
}

/** The parameters that links to the list of jobs may have instead of `filter`, and the fields that they are. */
const PARAMETERS: Record<string, string> = { queue: "queue", state: "state", tag: "tags", text: "text", flow: "flow" };

/** Returns the filter in an address. */
export function filterIn(query: URLSearchParams): string {
  const words = Object.entries(PARAMETERS)
    .filter(([name]) => query.get(name))
    .map(([name, field]) => `${field}:${quoted(query.get(name)!)}`);
  return [query.get("filter") ?? "", ...words].filter(Boolean).join(" ");
}

/** Returns whole filters that complete the last word. */
export function completions(text: string, queues: string[], workers: string[]): string[] {
  const at = text.search(/\S*$/);
  const [before, last] = [text.slice(0, at), text.slice(at)];
  const values: Record<string, readonly string[]> = {
    queue: queues, state: STATES, reason: REASONS, worker: workers, since: ["10m", "1h", "1d", "7d"], until: ["1h", "1d"], older: ["1d", "7d"],
  };
  const [, name] = /^(\w+):/.exec(last) ?? [];
  const offered = name ? (values[name] ?? []).map((value) => `${name}:${quoted(value)}`) : FIELDS;
  return offered.filter((word) => word.startsWith(last) && word !== last).map((word) => before + word);
}
