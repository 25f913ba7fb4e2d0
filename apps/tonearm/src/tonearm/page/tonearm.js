// Polls the server every two seconds. All values are inserted as text, never as markup.
import { signedIn, signInPage } from "/chargehand/dashboard/session.js";

let session = null;
const at = (id) => document.getElementById(id);
const chosen = { label: "", text: "" };

function make(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}
function row(...cells) {
  const made = make("tr");
  for (const cell of cells) {
    const place = make("td");
    place.append(cell === null || cell === undefined ? "" : cell);
    made.append(place);
  }
  return made;
}
function press(text, action) {
  const button = make("button", text, "link");
  button.type = "button";
  button.addEventListener("click", action);
  return button;
}
function part(share, kind) {
  const made = make("span", undefined, kind);
  made.style.width = `${100 * share}%`;
  return made;
}
async function ask(path, options) {
  const answer = await fetch(path, options);
  if (answer.status === 401) session = null; // it has ended
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).detail || answer.statusText);
  return answer.json();
}
function lasting(seconds) {
  if (seconds === null) return "the duration is estimated after the first songs";
  if (seconds < 90) return `about ${Math.round(seconds)} s left`;
  return seconds < 5400 ? `about ${Math.round(seconds / 60)} min left` : `about ${(seconds / 3600).toFixed(1)} h left`;
}
function doing(worker) {
  const step = worker.progress;
  if (!worker.doing) return worker.text || "";
  if (!step) return worker.song || "working";
  const share = step.total ? ` ${Math.round((100 * step.done) / step.total)} %` : step.done ? ` ${step.done}` : "";
  return `${worker.song ? `${worker.song}: ` : ""}${step.stage || "working"}${share}`;
}
const KINDS = { healthy: "good", crashed: "bad", failed: "bad", paused: "hold", stopped: "muted", asleep: "rest" };
async function progress() {
  const now = await ask("/api/progress");
  const all = now.tagged + now.waiting;
  const share = all ? now.tagged / all : 0;
  at("bar").firstElementChild.style.width = `${100 * share}%`;
  at("bar").setAttribute("aria-valuenow", Math.round(100 * share));
  const what = all ? `${now.tagged} of ${all} songs analysed` : "No songs yet";
  at("headline").textContent = now.waiting ? `${what}, ${lasting(now.eta)}` : what;
  const writing = now.folders.some((each) => each.mode !== "none") ? "labels are written into the files" : "no file is written";
  const written = now.written ? `${now.written} files have labels in their tags` : writing;
  const parts = [`${now.files} files in ${now.folders.map((each) => each.root).join(", ") || "no folder yet"}`, written];
  if (now.writes_waiting) parts.push(`${now.writes_waiting} to be written`);
  if (now.missing) parts.push(`${now.missing} missing`);
  if (now.trying) parts.push("trial: `tonearm try --go-on` analyses all songs");
  if (!now.working) parts.push("no workers are running: start `tonearm serve`");
  for (const reason of now.paused) parts.push(`paused: ${reason}`);
  if (now.label_file) parts.push(`no labels are derived until the label file is fixed: ${now.label_file}`);
  at("details").textContent = parts.join(" · ");
  at("certainty").textContent = now.certainty || "";
  at("workers").replaceChildren(...now.workers.map((worker) => row(worker.component.replace("worker:", ""),
    make("span", worker.doing ? "working" : worker.status, worker.doing ? "busy" : KINDS[worker.status] || "warn"),
    worker.pid ? make("span", `pid ${worker.pid}`, "muted") : "", doing(worker))));
}
async function labels() {
  const found = (await ask("/api/labels")).filter((label) => label.regular);
  const most = Math.max(1, ...found.map((label) => label.regular));
  const groups = Map.groupBy ? Map.groupBy(found, (label) => label.category) : new Map([["all", found]]);
  at("labels").replaceChildren(...[...groups].map(([category, some]) => {
    const group = make("section");
    group.append(make("h3", category), ...some.map((label) => {
      const line = make("div", undefined, "share");
      const bar = make("div", undefined, "bar");
      bar.append(part(label.strict / most, "strict"), part((label.regular - label.strict) / most, "regular"));
      line.title = `${label.name}: ${label.strict} strict, ${label.regular} regular`;
      line.append(press(label.name, () => choose({ label: label.name })), bar, make("span", label.regular));
      return line;
    }));
    return group;
  }));
  if (!found.length) at("labels").replaceChildren(make("p", "No song has a certain label yet.", "empty"));
}
function chips(some) {
  const list = make("ul", undefined, "chips");
  for (const label of some) {
    const entry = make("li", label.name, label.tier);
    entry.title = `${label.category}, ${label.tier}, ${label.score === null ? "set by you" : label.score.toFixed(2)}`;
    list.append(entry);
  }
  return list;
}
const certain = (some) => some.filter((label) => label.tier !== "loose");
const UNCERTAIN = "no certain label";
function choose(change) {
  Object.assign(chosen, { label: "" }, change);
  tracks();
}
async function tracks() {
  const found = await ask(`/api/tracks?${new URLSearchParams({ ...chosen, limit: "100" })}`);
  at("all").hidden = !chosen.label;
  at("all").textContent = `${chosen.label} ✕`;
  at("tracks").replaceChildren(...found.map((track) => {
    const sure = certain(track.labels);
    const state = track.state === "tagged" ? UNCERTAIN : track.state;
    return row(press(track.name, () => show(track.id)), sure.length ? chips(sure) : make("span", state, "muted"));
  }));
  if (!found.length) at("tracks").replaceChildren(row(make("span", "no tracks", "muted")));
}
async function show(id) {
  const track = await ask(`/api/tracks/${id}`);
  const place = at("track");
  const near = make("p", track.scores.length ? "searching for similar tracks …" : "", "soft");
  const title = make("h2", track.name);
  title.id = "h-track";
  const scored = make("p", track.scores.map((each) => `${each.name} ${each.score.toFixed(2)}`).join(", "), "soft");
  const sure = certain(track.labels);
  place.replaceChildren(title, make("p", track.path, "soft"),
    sure.length ? chips(sure) : make("p", track.state === "tagged" ? UNCERTAIN : track.state));
  if (track.scores.length) place.append(make("h3", "Scores"), scored);
  place.append(near);
  place.hidden = false;
  place.scrollIntoView({ block: "nearest" });
  if (!track.scores.length) return;
  try {
    const found = await ask(`/api/tracks/${id}/similar`);
    const list = make("ol");
    for (const other of found) {
      const entry = make("li");
      entry.append(press(other.name, () => show(other.id)), make("span", ` ${other.likeness.toFixed(2)}`, "muted"));
      list.append(entry);
    }
    near.replaceWith(make("h3", "Similar tracks"), found.length ? list : make("p", "no other track has been analysed yet", "soft"));
  } catch (error) {
    near.textContent = error.message;
  }
}
async function errors() {
  const found = await ask("/api/errors");
  at("trouble").hidden = !found.length;
  at("errors").replaceChildren(...found.map((wrong) => row(wrong.path, make("span", `${wrong.stage}: ${wrong.reason}`, "bad"))));
}
at("retry").addEventListener("click", async () => {
  const done = await ask("/api/errors/retry", { method: "POST", headers: { "X-CSRF-Token": session.csrf } });
  at("retried").textContent = `${done.retried} queued again`;
  await errors();
});
for (const form of ["m3u", "nsp"]) {
  at(form).addEventListener("click", async () => {
    const path = `/api/playlist?${new URLSearchParams({ rule: at("rule").value, form })}`;
    const answer = await fetch(path);
    at("ruled").textContent = answer.ok ? "" : (await answer.json()).detail;
    if (answer.ok) location.href = path;
  });
}
at("all").addEventListener("click", () => choose({}));
at("text").addEventListener("input", () => choose({ text: at("text").value, label: chosen.label }));

function signIn() {
  const link = make("a", "Sign in");
  link.href = signInPage;
  at("headline").replaceChildren(link, " to see the library");
  at("details").textContent = "or open the address that `tonearm serve` prints on its terminal";
}
async function look() {
  try {
    session ??= await signedIn();
    if (!session) return signIn();
    await progress();
    await Promise.all([labels(), tracks(), errors()]);
    document.querySelector("main").classList.remove("stale");
  } catch (error) {
    at("headline").textContent = `no answer: ${error.message}`;
    document.querySelector("main").classList.add("stale");
  }
  setTimeout(look, 2000);
}
look();
