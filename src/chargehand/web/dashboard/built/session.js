// Signs a page in with the token of its address (`#token=…`), and knows the session. Served unchanged, next to
// chargehand.css, for the pages of an application: `const session = await signedIn()`.

const here = import.meta.url;
const base = new URL("..", here);

/** Takes the token out of the address bar and of the history. @returns {string | null} */
export function takeToken() {
  const found = /^#token=([\w-]+)$/.exec(location.hash);
  if (!found) return null;
  history.replaceState(null, "", location.pathname + location.search);
  return found[1] ?? null;
}

/**
 * Signs in with the token of the address, if it has one. Returns the session, whose `csrf` requests that change
 * something must send as X-CSRF-Token; null if nobody is signed in.
 * @returns {Promise<{ name: string, scopes: string[], csrf: string | null } | null>}
 */
export async function signedIn() {
  const token = takeToken();
  const url = new URL("api/web/session", base);
  const made = token && (await fetch(url, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ key: token }) }));
  const answer = made && made.ok ? made : await fetch(url);
  return answer.ok ? answer.json() : null;
}

/** The page on which a person signs in. */
export const signInPage = String(new URL("dashboard", base));
