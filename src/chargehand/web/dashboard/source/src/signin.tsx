// The sign-in form: exchanges an API key for an HttpOnly session cookie.

import { useState } from "preact/hooks";
import { refused, signIn } from "./api";
import { Trouble } from "./parts";

export function SignIn() {
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    const key = String(new FormData(event.currentTarget as HTMLFormElement).get("key") ?? "").trim();
    setBusy(true);
    try {
      await signIn(key);
    } catch (refusal) {
      setError((refusal as Error).message);
    }
    setBusy(false);
  };
  return (
    <main class="signin" id="main">
      <h1 tabIndex={-1}>Sign in to Chargehand</h1>
      <p class="soft">{refused.value?.kind === "key-needed" ? null : refused.value?.message}</p>
      <p class="soft">
        While no key exists, <code>chargehand dashboard</code> prints the address of this page with a token that signs you
        in. <code>chargehand keys create NAME --scope read --scope control</code> creates a key and prints it once.
      </p>
      <form onSubmit={submit}>
        <label>
          Key or token
          <input name="key" type="password" autocomplete="current-password" required autofocus placeholder="ch_…" />
        </label>
        <Trouble error={error} />
        <button class="primary" disabled={busy}>
          Sign in
        </button>
      </form>
    </main>
  );
}
