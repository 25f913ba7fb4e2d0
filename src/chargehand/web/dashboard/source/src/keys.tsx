// The keyboard: search, pages, rows, and the likely orders.

import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { place, to } from "./route";

const GO: Record<string, [page: string, title: string]> = {
  o: ["", "Overview"], j: ["jobs", "Jobs"], f: ["flows", "Flows"], q: ["queues", "Queues"], w: ["workers", "Workers"],
  c: ["crashes", "Crashes"], s: ["recurring", "Recurring"], l: ["operations", "Operations"], d: ["doctor", "Diagnosis"],
};
const HELP: [keys: string, what: string][] = [
  ["/", "Search jobs"],
  ...Object.entries(GO).map(([key, [, title]]) => [`g ${key}`, title] as [string, string]),
  ["j  k", "Next, previous row"],
  ["Enter", "Open the row"],
  ["r", "Retry, reset or start: the button of the row, or the first on the page"],
  ["p", "Pause or resume"],
  ["Esc", "Close a question"],
  ["?", "This help"],
];
const AFTER_G_MS = 1200;
const ROWS = "main tbody tr, main .rows > li, main .problems li";

const helping = signal(false);
let gone = 0;

/** The rows that can be reached, each by its first link or button. */
function rows(): HTMLElement[] {
  return [...document.querySelectorAll<HTMLElement>(ROWS)].filter((row) => row.querySelector("a, button"));
}

const rowOf = (element: Element | null): HTMLElement | null => element?.closest<HTMLElement>(ROWS) ?? null;

function move(by: number): void {
  const all = rows();
  const at = all.indexOf(rowOf(document.activeElement) ?? document.body);
  const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, at + by))];
  next?.querySelector<HTMLElement>("a, button")?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

function press(key: string): void {
  const row = rowOf(document.activeElement);
  const buttons = (within: ParentNode) => [...within.querySelectorAll<HTMLButtonElement>(`button[data-key="${key}"]`)];
  const found = row ? buttons(row)[0] : buttons(document.querySelector("main") ?? document)[0];
  found?.click();
}

function search(): void {
  const focus = () => document.querySelector<HTMLInputElement>('main input[type="search"], main [data-search]')?.focus();
  if (document.querySelector("main input[type=search], main [data-search]")) return focus();
  location.hash = to("jobs");
  setTimeout(focus, 100);
}

function pressed(event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  const typing = target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);
  if (typing || event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
  const key = event.key;
  if (gone && performance.now() - gone < AFTER_G_MS && GO[key]) {
    gone = 0;
    location.hash = to(GO[key]![0]);
  } else if (key === "g") gone = performance.now();
  else if (key === "/") search();
  else if (key === "?") helping.value = true;
  else if (key === "j" || key === "k") move(key === "j" ? 1 : -1);
  else if ((key === "r" || key === "p") && !event.shiftKey) press(key);
  else return;
  event.preventDefault();
}

export function Keyboard() {
  const dialog = useRef<HTMLDialogElement>(null);
  // Layout effects run before the page is painted: a key that is pressed as soon as the page is seen is not lost.
  useLayoutEffect(() => {
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
  useLayoutEffect(() => {
    if (helping.value && !dialog.current?.open) dialog.current?.showModal();
  }, [helping.value]);
  useLayoutEffect(() => void (helping.value = false), [place.value]);
  if (!helping.value) return null;
  const close = () => (helping.value = false);
  return (
    <dialog ref={dialog} aria-labelledby="keys" onCancel={close} onClose={close}>
      <h2 id="keys">Keys</h2>
      <dl class="keys">
        {HELP.map(([keys, what]) => (
          <div key={keys}>
            <dt>{keys.split(" ").filter(Boolean).map((each) => <kbd key={each}>{each}</kbd>)}</dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <div class="buttons"><button onClick={close}>Close</button></div>
    </dialog>
  );
}
