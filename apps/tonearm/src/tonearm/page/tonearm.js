// Asks this machine, every two seconds, and sets texts; nothing from a file is ever taken for markup.
"use strict";
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
function press(text, action, kind) {
  const button = make("button", text, kind);
  button.type = "button";
  button.addEventListener("click", action);
  return button;
}
async function ask(path, options) {
  const answer = await fetch(path, options);
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).detail || answer.statusText);
  return answer.json();
}
function lasting(seconds) {
  if (seconds === null) return "time unknown until the first songs are heard";
  if (seconds < 90) return `about ${Math.round(seconds)} s left`;
  return seconds < 5400 ? `about ${Math.round(seconds / 60)} min left` : `about ${(seconds / 3600).toFixed(1)} h left`;
}
function doing(worker) {
  const step = worker.progress;
  if (!worker.doing) return worker.text || "";
  if (!step) return "at work";
  const share = step.total ? ` ${Math.round((100 * step.done) / step.total)} %` : "";
  return `${worker.song ? `${worker.song}: ` : ""}${step.stage || "at work"}${share}`;
}
async function progress() {
  const now = await ask("/api/progress");
  const all = now.tagged + now.waiting;
  at("bar").value = all ? now.tagged / all : 0;
  const parts = [`${now.files} files, ${now.tagged} heard, ${now.waiting} waiting`];
  if (now.waiting) parts.push(lasting(now.eta));
  if (now.trying) parts.push("trying some first");
  if (now.troubled) parts.push(`${now.troubled} with trouble`);
  if (!now.working) parts.push("nobody works: start `tonearm serve`");
  for (const reason of now.paused) parts.push(`paused: ${reason}`);
  at("headline").textContent = parts.join(" · ");
  at("workers").replaceChildren(...now.workers.map((worker) =>
    row(worker.component.replace("worker:", ""), worker.pid ? `pid ${worker.pid}` : "–", worker.status, doing(worker))));
}
async function labels() {
  const found = await ask("/api/labels");
  at("labels").replaceChildren(...found.map((label) => {
    const entry = make("li");
    entry.append(press(`${label.name} ${label.regular}/${label.loose}`, () => { chosen.label = label.name; tracks(); },
      label.strict ? "strict" : "loose"));
    entry.title = label.category;
    return entry;
  }));
}
async function tracks() {
  const query = new URLSearchParams({ ...chosen, limit: "100" });
  const found = await ask(`/api/tracks?${query}`);
  at("chosen").textContent = chosen.label;
  at("tracks").replaceChildren(...found.map((track) =>
    row(press(track.name, () => show(track.id)), track.labels.filter((l) => l.tier !== "loose").map((l) => l.name).join(", ") || track.state)));
}
async function show(id) {
  const track = await ask(`/api/tracks/${id}`);
  const labelled = make("ul");
  for (const label of track.labels) {
    const said = label.score === null ? "said by you" : label.score.toFixed(2);
    labelled.append(make("li", `${label.name} (${label.category}, ${label.tier}, ${said})`, label.tier));
  }
  const near = make("p", "looking for similar tracks …", "quiet");
  const scored = make("p", track.scores.map((s) => `${s.name} ${s.score.toFixed(2)}`).join(", "), "quiet");
  at("track").replaceChildren(make("h3", track.name), make("p", track.path, "quiet"), labelled, scored, near);
  try {
    const found = await ask(`/api/tracks/${id}/similar`);
    const list = make("ul");
    for (const other of found) {
      const entry = make("li");
      entry.append(press(`${other.name} ${other.likeness.toFixed(2)}`, () => show(other.id)));
      list.append(entry);
    }
    near.replaceWith(make("h3", "Sounds like"), list);
  } catch (error) {
    near.textContent = error.message;
  }
}
async function errors() {
  const found = await ask("/api/errors");
  at("errors").replaceChildren(...found.map((wrong) => row(wrong.path, make("span", `${wrong.stage}: ${wrong.reason}`, "bad"))));
}
at("retry").addEventListener("click", async () => {
  await ask("/api/errors/retry", { method: "POST", headers: { "X-Tonearm": "1" } });
  await errors();
});
for (const form of ["m3u", "nsp"]) {
  at(form).addEventListener("click", async () => {
    const path = `/api/playlist?${new URLSearchParams({ rule: at("rule").value, form })}`;
    const answer = await fetch(path);
    if (answer.ok) location.href = path;
    else at("ruled").textContent = (await answer.json()).detail;
  });
}
at("all").addEventListener("click", () => { chosen.label = ""; chosen.text = at("text").value = ""; tracks(); });
at("text").addEventListener("input", () => { chosen.text = at("text").value; tracks(); });

async function look() {
  try {
    await progress();
    await Promise.all([labels(), tracks(), errors()]);
  } catch (error) {
    at("headline").textContent = `no answer: ${error.message}`;
  }
  setTimeout(look, 2000);
}
look();
