// The API keys: what each allows, when it was made and last used; make one, which is shown once; revoke one.

import { useState } from "preact/hooks";
import { get, may, post, remove, session, signIn } from "./api";
import { doing } from "./orders";
import { Ago, ask, Copy, Hint, Skeleton, State, tell, Trouble, useAsked } from "./parts";
import type { Answer, KeyFacts, MadeKey } from "./types";
import { count, plain } from "./words";

const SCOPES = ["read", "enqueue", "control"] as const;
const MEANS: Record<(typeof SCOPES)[number], string> = {
  read: "read: see everything", enqueue: "enqueue: create jobs", control: "control: change anything else",
};
const STATES: Record<string, string> = { "in use": "healthy", expired: "stopped", revoked: "cancelled" };

export function KeysPage() {
  const [made, setMade] = useState<MadeKey | null>(null);
  const [found, error, look] = useAsked<{ keys: KeyFacts[] }>(() => get("api/v1/keys"), []);
  if (!may("control")) {
    return <><h1 tabIndex={-1}>API keys</h1><p class="trouble">This key does not have the scope control.</p></>;
  }
  return (
    <>
      <header class="top">
        <h1 tabIndex={-1}>
          API keys {found && <span class="count soft">{count(found.keys.filter((key) => key.state === "in use").length)} in use</span>}
        </h1>
        <div class="orders"><button onClick={() => void create().then((key) => key && (setMade(key), look()))}>New key</button></div>
      </header>
      <Trouble error={error} />
      {made && (
        <section class="card made" aria-labelledby="made">
          <h2 id="made">The key {plain(made.name)}</h2>
          <p>It is shown only now: the store keeps a digest of it.</p>
          <p class="command"><code>{made.key}</code> <Copy text={made.key} what="the key" label="Copy" /> <button onClick={() => setMade(null)}>Done</button></p>
        </section>
      )}
      {!found && !error && <Skeleton rows={3} />}
      {found && found.keys.length === 0 && (
        <Hint command="chargehand keys create NAME --scope read">
          No key exists yet: only the token of this machine opens the dashboard. The first key replaces it. On the command line:
        </Hint>
      )}
      {found && found.keys.length > 0 && <Table rows={found.keys} look={look} />}
    </>
  );
}

function Table({ rows, look }: { rows: KeyFacts[]; look: () => void }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="API keys">
      <table class="api-keys">
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col">State</th>
            <th scope="col">Scopes</th>
            <th scope="col">Made</th>
            <th scope="col">Last used</th>
            <th scope="col">Expires</th>
            <th scope="col"><span class="hidden">Actions</span></th>
          </tr>
        </thead>
        <tbody>
          {[...rows].reverse().map((key) => (
            <tr key={key.id} data-key-name={key.name}>
              <th scope="row">{plain(key.name)}</th>
              <td><State state={STATES[key.state] ?? "stopped"} word={key.state} /></td>
              <td>{key.scopes.join(", ")}</td>
              <td data-label="made"><Ago ms={key.created_ms} /></td>
              <td data-label="last used">{key.used_ms == null ? <span class="soft">never</span> : <Ago ms={key.used_ms} />}</td>
              <td data-label="expires">{key.expires_ms == null ? <span class="soft">never</span> : <Ago ms={key.expires_ms} />}</td>
              <td class="does">
                {key.state === "in use" && (
                  <button aria-label={`Revoke ${plain(key.name)}`} onClick={() => void revoke(key).then(look)}>Revoke</button>
                )}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

async function create(): Promise<MadeKey | null> {
  let made: MadeKey | null = null;
  const own = SCOPES.filter((scope) => may(scope));
  await ask({
    title: "New key",
    text: "A key allows what its scopes say, at most what the key of this session allows.",
    button: "Create",
    fields: [
      { name: "name", label: "Name: who or what uses it", kind: "text", required: true },
      ...own.map((scope) => ({ name: scope, label: MEANS[scope], kind: "check" as const, value: scope === "read" ? "on" : "" })),
      { name: "days", label: "Days until it expires (empty: never)", kind: "number", min: 1, max: 3650 },
    ],
    send: async (said) => {
      const scopes = own.filter((scope) => said[scope]);
      if (!scopes.length) throw new Error("Pick at least one scope.");
      const expires_s = said.days ? Number(said.days) * 86_400 : null;
      made = await post<MadeKey>("api/v1/keys", { name: said.name, scopes, expires_s });
      // The first key ends the token, and with it this session.
      if (session.peek()?.kind === "token") {
        if (scopes.includes("read")) await signIn(made.key);
        else tell("The token has ended", ["Sign in with a key that has the scope read."]);
      }
    },
  });
  return made;
}

async function revoke(key: KeyFacts): Promise<void> {
  const own = session.peek()?.name === key.name ? " It is the key of this session: you are signed out." : "";
  const text = `Requests with it are refused within a second, and its sessions end. This cannot be undone.${own}`;
  if (!(await ask({ title: `Revoke the key ${plain(key.name)}?`, text, button: "Revoke", danger: true }))) return;
  await doing("Revoke", async () => [`${plain(key.name)} ${(await remove<Answer>(`api/v1/keys/${encodeURIComponent(key.id)}`)).text}`]);
}
