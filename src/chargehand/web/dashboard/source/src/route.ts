// Where we are, from the part of the address after `#`: it works under any prefix.

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
    // it is taken as it stands
  }
  return { page, what, query: new URLSearchParams(tail) };
}

export const place = signal<Place>(read());
addEventListener("hashchange", () => (place.value = read()));

export const to = (page: string, what?: string, query?: Record<string, string>): string => {
  const words = new URLSearchParams(Object.entries(query ?? {}).filter(([, value]) => value)).toString();
  return `#/${page}${what === undefined ? "" : `/${encodeURIComponent(what)}`}${words ? `?${words}` : ""}`;
};

/** A job as workers name it: by its id, or as the item that it is (`crew/item`). */
export function toJob(name: string): string {
  const slash = name.indexOf("/");
  return slash < 0 ? to("job", name) : to("jobs", undefined, { text: name.slice(slash + 1) });
}
