// Components that every page uses. Strings from the server are inserted as text only.

import { effect, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { filterIn, having } from "./filter";
import { addressOf, now } from "./live";
import { place, to } from "./route";
import { lookOf, SHAPES } from "./states.js";
import type { FlowCounts, Progress } from "./types";
import { ago, apart, count, dated, exact, plain, shortName, ticking } from "./words";

export function toneOf(state: string): string {
  return lookOf(state)[0];
}

export function Mark({ state }: { state: string }) {
  const [tone, shape] = lookOf(state);
  return (
    <svg class={`mark ${tone}`} viewBox="0 0 16 16" width="14" height="14" aria-hidden="true">
      <path fill-rule="evenodd" d={SHAPES[shape]} />
    </svg>
  );
}

/** A state in words, with its mark unless it is `bare`. */
export function State({ state, word, bare }: { state: string; word?: string | undefined; bare?: boolean }) {
  const [tone, , usual] = lookOf(state);
  return (
    <span class={`state ${tone}`}>
      {!bare && <Mark state={state} />}
      {word ?? usual ?? state}
    </span>
  );
}

/** A link to a worker; where several nodes share the store, with the name of its node. */
export function WorkerLink({ component, node }: { component: string; node: string | null | undefined }) {
  const address = addressOf(component, node ?? undefined);
  return (
    <a class="worker" href={to("worker", node ? `${component}@${node}` : component)}>
      {address === component ? shortName(component) : address}
    </a>
  );
}

export function Bar({ progress, label }: { progress: Progress | null; label: string }) {
  const total = progress?.total ?? null;
  const part = progress && total ? Math.min(1, (progress.done ?? 0) / total) : null;
  const percent = part === null ? undefined : Math.round(part * 100);
  return (
    <div
      class={`bar ${progress && part === null ? "unsure" : ""}`}
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={percent}
      aria-valuetext={progress ? progressWords(progress) : "no progress reported"}
    >
      <span style={{ transform: `scaleX(${part ?? 0})` }} />
    </div>
  );
}

/** The parts of a flow's jobs, in the order of the bar: the name of the count, its tone, and a label. */
const PARTS: [count: Exclude<keyof FlowCounts, "following">, tone: string, word: string][] = [
  ["done", "good", "done"],
  ["failed", "bad", "failed"],
  ["cancelled", "muted", "cancelled"],
  ["running", "busy", "running"],
  ["queued", "wait", "waiting"],
];

export const allOfCounts = (counts: FlowCounts): number => PARTS.reduce((sum, [name]) => sum + counts[name], 0);

/** Returns the numbers of a flow's jobs as text: `9 done, 2 running, 3 waiting`. */
export function countWords(counts: FlowCounts): string {
  const words = PARTS.filter(([name]) => counts[name]).map(([name, , word]) => `${count(counts[name])} ${word}`);
  return words.join(", ") || "no jobs";
}

/** A bar with a part for each state of a flow's jobs; parts that are not done differ in pattern, too. */
export function CountsBar({ counts }: { counts: FlowCounts }) {
  const sum = allOfCounts(counts) || 1;
  return (
    <div class="counts" role="img" aria-label={countWords(counts)} title={countWords(counts)}>
      {PARTS.map(
        ([name, tone]) =>
          counts[name] > 0 && <span key={name} class={tone} style={{ flexGrow: Math.max(counts[name] / sum, 0.01) }} />,
      )}
    </div>
  );
}

export function progressWords(progress: Progress): string {
  const done = progress.done === null ? null : count(progress.done);
  const far = progress.total ? `${done ?? "0"} of ${count(progress.total)}` : done;
  const texts = [progress.stage, progress.detail].map((text) => text && apart(plain(text)));
  return [texts[0], far, texts[1]].filter(Boolean).join(", ");
}

/** A moment as the time since it (or until it), updated as it passes; exact, with day and zone, on hover. */
export function Ago({ ms }: { ms: number }) {
  const time = useRef<HTMLTimeElement>(null);
  useLayoutEffect(() => {
    const counted = { element: time.current!, ms, format: ago };
    write(counted);
    counting.add(counted);
    return () => {
      counting.delete(counted);
    };
  }, [ms]);
  return <time ref={time} dateTime={exact(ms)} title={dated(ms)} />;
}

/**
 * The time since a moment, updated every second. A page may have thousands of them, so one loop writes those that are
 * visible; a signal for each would be slower.
 */
export function Since({ ms, roughly }: { ms: number; roughly?: boolean }) {
  const span = useRef<HTMLSpanElement>(null);
  useLayoutEffect(() => {
    const counted = { element: span.current!, ms, format: roughly ? rough : ticking };
    write(counted);
    counting.add(counted);
    return () => {
      counting.delete(counted);
    };
  }, [ms, roughly]);
  return <span ref={span} title={dated(ms)} />;
}

/** The time until a moment, updated every second. */
export function Until({ ms }: { ms: number }) {
  return <span>{ticking(Math.ceil(Math.max(0, ms - now.value) / 1000))}</span>;
}

interface Counted {
  element: HTMLElement;
  ms: number;
  /** Makes the text from the seconds since the moment. */
  format: (seconds: number) => string;
}
const rough = (seconds: number): string => ticking(seconds >= 60 ? seconds - (seconds % 60) : seconds);
const counting = new Set<Counted>();

function write({ element, ms, format }: Counted): void {
  const text = format((now.peek() - ms) / 1000);
  if (element.textContent !== text) element.textContent = text;
}

effect(() => {
  void now.value;
  // All reads before all writes: a read after a write would force a new layout each time.
  const seen = [...counting].filter((each) => each.element.checkVisibility({ contentVisibilityAuto: true }));
  seen.forEach(write);
});

/** Links to the jobs with a tag; in the list of jobs they keep its other filters. */
export function Tags({ tags }: { tags: string[] | null }) {
  if (!tags?.length) return null;
  const { page, query } = place.value;
  const filter = page === "jobs" ? filterIn(query) : "";
  return (
    <ul class="tags" aria-label="Tags">
      {tags.map((tag) => (
        <li key={tag}>
          <a class="chip" href={to("jobs", undefined, { filter: having(filter, "tags", tag) })} title={`Jobs with the tag ${plain(tag)}`}>
            {plain(tag)}
          </a>
        </li>
      ))}
    </ul>
  );
}

interface SearchProps {
  label: string;
  value: string;
  placeholder: string;
  change: (value: string) => void;
}

/** A search field that applies its value when no key was pressed for 250 ms. */
export function Search({ label, value, placeholder, change }: SearchProps) {
  const field = useRef<HTMLInputElement>(null);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const type = () => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => change(field.current?.value ?? ""), 250);
  };
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    if (field.current && field.current !== document.activeElement) field.current.value = value; // a link changed it
  }, [value]);
  return (
    <label class={label.toLowerCase()}>
      {label}
      <input type="search" ref={field} defaultValue={value} onInput={type} placeholder={placeholder} />
    </label>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Text({ children, label }: { children: string; label: string }) {
  return (
    <pre tabIndex={0} role="region" aria-label={label}>
      {plain(children)}
    </pre>
  );
}

/** A button that copies a text: an id, a payload, a command. Shows a tick for a moment. */
export function Copy({ text, what, label }: { text: string | (() => string); what: string; label?: string }) {
  const [state, setState] = useState("");
  const copy = async () => {
    const value = typeof text === "string" ? text : text();
    setState((await copied(value)) ? "done" : "failed");
    setTimeout(() => setState(""), 1500);
  };
  const says = { done: `Copied ${what}`, failed: `Cannot copy ${what}` }[state] ?? `Copy ${what}`;
  return (
    <button type="button" class={label ? "copy" : "copy plain"} title={says} aria-label={label ? undefined : says} onClick={copy}>
      <svg viewBox="0 0 16 16" width="13" height="13" aria-hidden="true">
        <path d={state === "done" ? SHAPES.tick : state ? SHAPES.cross : COPY} fill-rule="evenodd" />
      </svg>
      {label && (state === "done" ? "Copied" : state ? says : label)}
    </button>
  );
}

const COPY = "M5 2h8v9h-2v3H3V5h2zM6.3 3.3V5H11v4.7h.7V3.3zM4.3 6.3v6.4h5.4V6.3z";

/** Copies a text; without https the clipboard is not available, and a selection is copied instead. */
async function copied(text: string): Promise<boolean> {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  }
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "hidden";
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  return done;
}

/** An error: its one line, the frames of the application, and the whole text folded. */
export function Failure({ line, frames, text, label }: { line: string | null; frames: string[]; text: string; label: string }) {
  const rest = text.trim();
  const more = rest.includes("\n");
  return (
    <div class="failure">
      <p class="cause">
        <code>{plain(line ?? rest)}</code> <Copy text={plain(rest)} what={`the ${label.toLowerCase()}`} />
      </p>
      {frames.length > 0 && (
        <pre tabIndex={0} role="region" aria-label={`${label}: frames of the application`}>
          {plain(frames.join("\n"))}
        </pre>
      )}
      {more && (
        <details open={frames.length === 0 && rest.length < 2000}>
          <summary>{frames.length ? "Whole traceback, with frames of libraries and of Chargehand" : "Whole text"}</summary>
          <Text label={label}>{rest}</Text>
        </details>
      )}
    </div>
  );
}

/** Grey bars in the place of what is being fetched. */
export function Skeleton({ rows = 6 }: { rows?: number }) {
  return (
    <div class="skeleton" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, at) => (
        <i key={at} style={{ width: `${92 - ((at * 37) % 40)}%` }} />
      ))}
    </div>
  );
}

/** What is not there, and the command or code that makes it. */
export function Hint({ children, command }: { children: ComponentChildren; command: string }) {
  return (
    <div class="empty">
      <p>{children}</p>
      <p class="command">
        <code>{command}</code> <Copy text={command} what="the command" />
      </p>
    </div>
  );
}

// toasts: the outcome of an operation, shown for some seconds

interface Told {
  id: number;
  bad: boolean;
  title: string;
  lines: string[];
}
const told = signal<Told[]>([]);
let number = 0;

export function tell(title: string, lines: string[] = [], bad = false): void {
  const id = ++number;
  told.value = [...told.value.slice(-3), { id, bad, title, lines }];
  setTimeout(() => dismiss(id), bad ? 20_000 : 8_000);
}

function dismiss(id: number): void {
  told.value = told.value.filter((each) => each.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {told.value.map((each) => (
        <div key={each.id} class={`toast ${each.bad ? "bad" : "good"}`}>
          <button class="plain" aria-label="Dismiss" onClick={() => dismiss(each.id)}>
            ×
          </button>
          <strong>{each.title}</strong>
          {each.lines.slice(0, 4).map((line, at) => (
            <div key={at}>{line}</div>
          ))}
          {each.lines.length > 4 && <div>… and {each.lines.length - 4} more</div>}
        </div>
      ))}
    </div>
  );
}

// the dialog: a confirmation, or a form

export interface Field {
  name: string;
  label: string;
  kind: "text" | "number" | "area" | "choice" | "check";
  value?: string;
  choices?: string[];
  required?: boolean;
  min?: number;
  max?: number;
}
interface Question {
  title: string;
  text: string;
  button: string;
  danger?: boolean;
  fields?: Field[];
  /** Sends the values; if it throws, the dialog stays open with the values and the error. */
  send?: (values: Record<string, string>) => Promise<void>;
  answer: (values: Record<string, string> | null) => void;
}
const question = signal<Question | null>(null);

/** Shows a dialog; resolves to the values of its fields, or null if it was cancelled. */
export function ask(about: Omit<Question, "answer">): Promise<Record<string, string> | null> {
  return new Promise((resolve) => {
    question.value = {
      ...about,
      answer: (values) => {
        question.value = null;
        resolve(values);
      },
    };
  });
}

export function Dialog() {
  const asked = question.value;
  const dialog = useRef<HTMLDialogElement>(null);
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  useLayoutEffect(() => {
    setError(null);
    setBusy(false);
    if (asked && dialog.current && !dialog.current.open) dialog.current.showModal();
  }, [asked]);
  if (!asked) return null;
  const submit = (event: Event) => {
    event.preventDefault();
    const values: Record<string, string> = {};
    new FormData(event.currentTarget as HTMLFormElement).forEach((value, name) => (values[name] = String(value)));
    if (!asked.send) return asked.answer(values);
    setBusy(true);
    asked.send(values).then(
      () => asked.answer(values),
      (refusal: Error) => {
        setError(refusal.message);
        setBusy(false);
      },
    );
  };
  return (
    <dialog ref={dialog} aria-labelledby="question" onCancel={() => asked.answer(null)}>
      <form onSubmit={submit}>
        <h2 id="question">{asked.title}</h2>
        <p>{asked.text}</p>
        {asked.fields?.map((field) => (
          <label key={field.name} class={field.kind === "check" ? "check" : undefined}>
            {field.kind !== "check" && field.label}
            <Input field={field} />
            {field.kind === "check" && field.label}
          </label>
        ))}
        <Trouble error={error} />
        <div class="buttons">
          <button type="button" onClick={() => asked.answer(null)}>
            Cancel
          </button>
          <button type="submit" disabled={busy} class={asked.danger ? "danger" : "primary"}>
            {asked.button}
          </button>
        </div>
      </form>
    </dialog>
  );
}

function Input({ field }: { field: Field }) {
  const { name, value, required } = field;
  switch (field.kind) {
    case "area":
      return <textarea name={name} rows={6} defaultValue={value} required={required} spellcheck={false} />;
    case "choice":
      return (
        <select name={name}>
          {field.choices?.map((choice) => (
            <option key={choice} selected={choice === value}>
              {choice}
            </option>
          ))}
        </select>
      );
    case "number":
      return <input name={name} type="number" defaultValue={value} required={required} min={field.min} max={field.max} />;
    case "check":
      return <input name={name} type="checkbox" defaultChecked={value === "on"} />;
    case "text":
      return <input name={name} type="text" defaultValue={value} required={required} />;
  }
}

/** Fetches data when a component is mounted and when `when` changes; returns data, error and a reload function. */
export function useAsked<T>(ask: () => Promise<T>, when: unknown[]): [T | null, string | null, () => void] {
  const [found, setFound] = useState<T | null>(null);
  const [error, setError] = useState<string | null>(null);
  const current = useRef(0);
  const look = () => {
    const mine = ++current.current;
    ask().then(
      (answer) => {
        if (mine === current.current) {
          setFound(answer);
          setError(null);
        }
      },
      (refusal: Error) => mine === current.current && setError(refusal.message),
    );
  };
  useEffect(() => {
    look();
    return () => {
      current.current++;
    };
  }, when);
  return [found, error, look];
}

/** Calls `work` periodically while the tab is visible. */
export function useEvery(ms: number, work: () => unknown, when: unknown[] = []): void {
  useEffect(() => {
    const timer = setInterval(() => document.visibilityState === "visible" && work(), ms);
    return () => clearInterval(timer);
  }, when);
}

export function Trouble({ error }: { error: string | null }) {
  return error ? (
    <p class="trouble" role="alert">
      {error}
    </p>
  ) : null;
}
