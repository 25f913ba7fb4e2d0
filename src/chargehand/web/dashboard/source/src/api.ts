// Requests to the server of this page, under any URL prefix.

import { signal } from "@preact/signals";
import { takeToken } from "./session.js";
import type { ProblemDocument, SignedIn as Session } from "./types";
import { exactly, learnClock, parsed } from "./words";

const here = import.meta.url;
/** The URL prefix of the server. */
export const base = new URL("..", here);

export const session = signal<Session | null>(null);
/** Why no user is signed in; null before the first answer, or while a user is signed in. */
export const refused = signal<Refusal | null>(null);

export const may = (scope: string): boolean => session.value?.scopes.includes(scope) ?? false;

export class Refusal extends Error {
  constructor(
    message: string,
    readonly status: number,
    /** The last part of the problem's type, such as `key-needed`; empty if the server sent no problem document. */
    readonly kind = "",
  ) {
    super(message);
  }
}

async function send<T>(method: string, path: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (session.value?.csrf) headers["X-CSRF-Token"] = session.value.csrf;
  let response: Response;
  try {
    response = await fetch(new URL(path, base), {
      method,
      headers,
      credentials: "same-origin",
      body: body === undefined ? null : JSON.stringify(body, exactly),
    });
  } catch {
    throw new Refusal("the server cannot be reached", 0);
  }
  learnClock(response.headers.get("date"));
  const text = await response.text();
  let found: unknown = null;
  try {
    found = parsed(text);
  } catch {
    // not JSON, such as an error page of a proxy: the status is used
  }
  if (response.ok) return found as T;
  const problem = found as Partial<ProblemDocument> | null;
  const detail = problem?.detail ?? `the server answered ${response.status}`;
  const refusal = new Refusal(detail, response.status, problem?.type?.split(":").pop());
  if (response.status === 401 && session.value) {
    session.value = null;
    refused.value = refusal;
  }
  throw refusal;
}

type Query = Record<string, string | number | null | undefined>;

export function get<T>(path: string, query: Query = {}): Promise<T> {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== null && value !== undefined && value !== "") words.set(name, String(value));
  }
  const tail = words.toString();
  return send<T>("GET", tail ? `${path}?${tail}` : path);
}

export const post = <T>(path: string, body: unknown = {}): Promise<T> => send<T>("POST", path, body);
export const remove = <T>(path: string): Promise<T> => send<T>("DELETE", path);
export const postNothing = <T>(path: string): Promise<T> => send<T>("POST", path);

// Taken when this module is loaded: before the router reads the address.
let token = takeToken();

/** Fetches the session, or signs in with the token of the address. A refusal (401, 403, 429) is stored in `refused`;
 * other errors are thrown. */
export async function whoAmI(): Promise<void> {
  try {
    const found = await (token ? send<Session>("POST", "api/web/session", { key: token }) : send<Session>("GET", "api/web/session"));
    token = null;
    session.value = found;
    refused.value = null;
  } catch (error) {
    const refusal = error as Refusal;
    if (token && refusal.status === 401) {
      token = null; // it has ended: this browser may be signed in otherwise
      return whoAmI();
    }
    if ([401, 403, 429].includes(refusal.status)) {
      token = null;
      session.value = null;
      refused.value = refusal;
    } else throw error;
  }
}

// An address with a token that is opened in a tab that shows the dashboard already changes only the fragment.
addEventListener("hashchange", () => {
  token = takeToken();
  if (token) void whoAmI();
});

export async function signIn(key: string): Promise<void> {
  session.value = await send<Session>("POST", "api/web/session", { key });
  refused.value = null;
}

export async function signOut(): Promise<void> {
  await send("DELETE", "api/web/session");
  session.value = null;
  refused.value = new Refusal("You have signed out.", 0);
}
