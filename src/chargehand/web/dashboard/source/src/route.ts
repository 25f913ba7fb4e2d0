// The current page, from the URL fragment, so that it works under any prefix.

import { signal } from "@preact/signals";

export interface Place {
  page: string;
  what: string;
  query: URLSearchParams;
}

function read(): Place {
  const [path = "", tail = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [page = "", ...rest] = path.split("/");
  let what = rest.join("/");
  try {
    what = decodeURIComponent(what);
  } catch {
    // invalid encoding: used unchanged
  }
  return { page, what, query: new URLSearchParams(tail) };
}

export const place = signal<Place>(read());
addEventListener("hashchange", () => (place.value = read()));

export const to = (page: string, what?: string, query?: Record<string, string>): string => {
  const words = new URLSearchParams(Object.entries(query ?? {}).filter(([, value]) => value)).toString();
  return `#/${page}${what === undefined ? "" : `/${encodeURIComponent(what)}`}${words ? `?${words}` : ""}`;
};

/** Returns the link to a job that a worker names by id or, for an item, as `crew/item`. */
export function toJob(name: string): string {
  const slash = name.indexOf("/");
  return slash < 0 ? to("job", name) : to("jobs", undefined, { text: name.slice(slash + 1) });
}
