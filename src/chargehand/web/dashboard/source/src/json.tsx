// JSON as a tree that folds. Numbers are shown as they were sent: large integers are not rounded.

import { useState } from "preact/hooks";
import { Text } from "./parts";
import { exactly, plain, pretty } from "./words";

/** Lists and objects open at first down to this depth, unless they are larger than MANY. */
const DEPTH = 2;
const MANY = 40;
/** Parts of a list or object that are added at a time. */
const PAGE = 200;
/** Values smaller than this are shown whole, as text. */
const SMALL = 400;

const isTree = (value: unknown): value is object => typeof value === "object" && value !== null;

export function Json({ value, label }: { value: unknown; label: string }) {
  if (!isTree(value)) return <Text label={label}>{pretty(value)}</Text>;
  const text = pretty(value);
  if (text.length < SMALL) return <Text label={label}>{text}</Text>;
  return (
    <div class="json" tabIndex={0} role="region" aria-label={label}>
      <Part value={value} depth={0} />
    </div>
  );
}

function Part({ name, value, depth }: { name?: string; value: unknown; depth: number }) {
  const key = name === undefined ? null : <span class="name">{plain(name)}: </span>;
  if (!isTree(value)) return <div class="leaf">{key}<Leaf value={value} /></div>;
  const list = Array.isArray(value);
  const parts = list ? value.map((each, at) => [String(at), each] as const) : Object.entries(value);
  const ends = list ? "[]" : "{}";
  if (!parts.length) return <div class="leaf">{key}{ends}</div>;
  return <Tree name={key} parts={parts} ends={ends} depth={depth} />;
}

function Tree({ name, parts, ends, depth }: { name: preact.ComponentChildren; parts: (readonly [string, unknown])[]; ends: string; depth: number }) {
  const [open, setOpen] = useState(depth < DEPTH && parts.length <= MANY);
  const [shown, setShown] = useState(PAGE);
  return (
    <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {name}
        {ends[0]}
        {!open && <span class="soft"> {preview(parts, ends === "[]")} </span>}
        {!open && ends[1]} <span class="soft">{parts.length}</span>
      </summary>
      {open && parts.slice(0, shown).map(([each, value]) => <Part key={each} name={each} value={value} depth={depth + 1} />)}
      {open && parts.length > shown && <button class="link" onClick={() => setShown(shown + PAGE)}>{parts.length - shown} more</button>}
      {open && ends[1]}
    </details>
  );
}

function preview(parts: (readonly [string, unknown])[], list: boolean): string {
  const words = parts.slice(0, 4).map(([name, value]) => (list ? "" : `${name}: `) + (isTree(value) ? "…" : short(value)));
  return plain(words.join(", ")) + (parts.length > 4 ? ", …" : "");
}

const short = (value: unknown): string => {
  const text = JSON.stringify(value, exactly) ?? "";
  return text.length > 30 ? `${text.slice(0, 29)}…` : text;
};

function Leaf({ value }: { value: unknown }) {
  const kind = value === null ? "null" : typeof value;
  const text = typeof value === "bigint" ? String(value) : JSON.stringify(value);
  return <span class={kind === "bigint" ? "number" : kind}>{plain(text ?? "")}</span>;
}
