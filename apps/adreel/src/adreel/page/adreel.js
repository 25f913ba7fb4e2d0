// The page of Adreel: uploads, the list of films, and one film. All values are inserted as text, never as markup.
import { signedIn, signInPage } from "/chargehand/dashboard/session.js";
import { lookOf, SHAPES } from "/chargehand/dashboard/states.js";

const at = (id) => document.getElementById(id);
const STATES = ["", "running", "queued", "done", "failed"];
const WORDS = { "": "All", running: "Running", queued: "Waiting", done: "Done", failed: "Failed", cancelled: "Cancelled", deleting: "Being deleted" };
const LOOKS = { deleting: "stopping", failed: "error" };
const STAGES = { ingest: "Check", frames: "Scenes", ocr: "Text", classify: "Category", persist: "Save" };
const chosen = { status: "", text: "", category: "" };
const shown = { id: null, view: null, result: null, scene: 0, stream: null };
const known = new Map(); // rows of the list by id: { element, json }
let session = null, limits = { max_upload: 2 ** 31, open: false }, shownCount = 50, clockSkew = 0;

// small helpers

function make(name, kind, ...inside) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  made.append(...inside.filter((each) => each !== null && each !== undefined && each !== ""));
  return made;
}
function press(text, kind, action, key) {
  const button = make("button", kind, text);
  button.type = "button";
  if (key) button.title = `${text} (${key})`;
  button.addEventListener("click", action);
  return button;
}
function mark(state) {
  const [tone, shape] = lookOf(LOOKS[state] ?? state);
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  for (const [name, value] of Object.entries({ class: `mark ${tone}`, viewBox: "0 0 16 16", width: "14", height: "14", "aria-hidden": "true" })) made.setAttribute(name, value);
  path.setAttribute("fill-rule", "evenodd");
  path.setAttribute("d", SHAPES[shape] ?? "");
  made.append(path);
  return made;
}
function stateOf(status, word) {
  const [tone] = lookOf(LOOKS[status] ?? status);
  return make("span", `state ${tone}`, mark(status), word ?? WORDS[status] ?? status);
}
function bar(part, label) {
  const made = make("div", part === null ? "bar unsure" : "bar", make("span"));
  made.setAttribute("role", "progressbar");
  made.setAttribute("aria-label", label);
  if (part !== null) made.setAttribute("aria-valuenow", String(Math.round(100 * part)));
  made.firstElementChild.style.transform = `scaleX(${part ?? 1})`;
  return made;
}
const scenesOf = (count) => `${count} ${count === 1 ? "scene" : "scenes"}`;
const percent = (part) => `${Math.round(100 * part)} %`;
function size(bytes) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1000 && unit < 4) (bytes /= 1000), unit++;
  return `${bytes >= 100 || unit === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[unit]}`;
}
function time(seconds, exact) {
  const whole = Math.floor(seconds), rest = exact ? `.${Math.floor((seconds - whole) * 10)}` : "";
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return h ? `${h}:${String(m).padStart(2, "0")}:${String(s).padStart(2, "0")}` : `${m}:${String(s).padStart(2, "0")}${rest}`;
}
function took(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  return ms < 100_000 ? `${(ms / 1000).toFixed(1)} s` : ms < 5_400_000 ? `${Math.round(ms / 60_000)} min` : `${(ms / 3_600_000).toFixed(1)} h`;
}
const now = () => Date.now() + clockSkew;
function ago(ms) {
  const s = Math.max(0, (now() - ms) / 1000);
  if (s < 5) return "just now";
  if (s < 60) return `${Math.floor(s)} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  return s < 86_400 ? `${Math.floor(s / 3600)} h ago` : `${Math.floor(s / 86_400)} d ago`;
}
function since(ms) {
  const made = make("time", "", ago(ms));
  made.dateTime = new Date(ms).toISOString();
  made.title = new Date(ms).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
  return made;
}
function toast(text, bad) {
  const made = make("div", bad ? "toast bad" : "toast", text);
  at("toasts").append(made);
  setTimeout(() => made.remove(), bad ? 9000 : 4000);
}
function ask(title, text, yes) {
  at("ask-title").textContent = title;
  at("ask-text").textContent = text;
  at("ask-yes").textContent = yes;
  const dialog = at("ask");
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}
const headers = () => (session?.csrf ? { "X-CSRF-Token": session.csrf } : {});
async function call(path, method = "GET") {
  const answer = await fetch(path, { method, headers: method === "GET" ? {} : headers() });
  if (answer.status === 401) session = null; // it has ended
  if (answer.headers.get("date")) clockSkew = Math.abs(Date.parse(answer.headers.get("date")) - Date.now()) > 5000 ? Date.parse(answer.headers.get("date")) - Date.now() : 0;
  if (!answer.ok) throw Object.assign(new Error((await answer.json().catch(() => ({}))).detail || answer.statusText), { status: answer.status });
  return answer.status === 204 ? null : answer.json();
}

// uploads

const waiting = [];
let sending = 0;
function submit(files) {
  for (const file of files) {
    const line = make("li");
    const cancel = press("✕", "plain", () => line.remove());
    cancel.setAttribute("aria-label", `Cancel the upload of ${file.name}`);
    line.append(make("span", "name", file.name), bar(0, `Upload of ${file.name}`), make("span", "soft", size(file.size)), cancel);
    at("sending").append(line);
    if (file.size > limits.max_upload) refuse(line, file.name, `larger than ${size(limits.max_upload)}`);
    else if (!file.size) refuse(line, file.name, "the file is empty");
    else waiting.push({ file, line });
  }
  send();
}
function refuse(line, name, why) {
  line.className = "bad";
  const close = press("✕", "plain", () => line.remove());
  close.setAttribute("aria-label", "Close");
  line.replaceChildren(make("span", "why", make("b", "", name), `: ${why}`), close);
}
function parsed(text) {
  try {
    return JSON.parse(text || "{}");
  } catch { // a proxy in between may answer with a page of its own
    return {};
  }
}
function send() {
  while (sending < 2 && waiting.length) {
    const { file, line } = waiting.shift();
    if (!line.isConnected) continue;
    sending++;
    const request = new XMLHttpRequest();
    const [, progress, left, cancel] = line.children;
    cancel.addEventListener("click", () => request.abort());
    request.upload.addEventListener("progress", (event) => {
      progress.firstElementChild.style.transform = `scaleX(${event.loaded / event.total})`;
      left.textContent = percent(event.loaded / event.total);
    });
    request.addEventListener("loadend", () => {
      sending--;
      send(); // first: the other films do not depend on this one
      const answer = parsed(request.responseText);
      if (request.status === 202) line.remove();
      else if (line.isConnected) refuse(line, file.name, answer.detail || (request.status ? `the server answered ${request.status}` : "the connection was lost"));
      if (request.status === 202 && window.innerWidth > 1100 && !shown.id) open(answer.id);
      refresh();
    });
    request.open("POST", `/jobs?name=${encodeURIComponent(file.name)}`);
    request.setRequestHeader("Content-Type", file.type.startsWith("video/") ? file.type : "application/octet-stream");
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.send(file);
  }
}
let depth = 0;
const carries = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
addEventListener("dragenter", (event) => carries(event) && (depth++, (at("veil").hidden = false)));
addEventListener("dragleave", (event) => carries(event) && --depth <= 0 && ((depth = 0), (at("veil").hidden = true)));
addEventListener("dragover", (event) => carries(event) && event.preventDefault());
addEventListener("drop", (event) => {
  if (!carries(event)) return;
  event.preventDefault();
  depth = 0;
  at("veil").hidden = true;
  submit(event.dataTransfer.files);
});
at("choose").addEventListener("click", () => at("files").click());
at("files").addEventListener("change", () => {
  submit(at("files").files);
  at("files").value = "";
});

// the list

function still(film, number = 1) {
  const place = make("span", "still");
  if (film.status === "done" || (film.scenes ?? 0) > 0) {
    const picture = make("img");
    picture.loading = "lazy";
    picture.alt = "";
    picture.src = `/jobs/${film.id}/frames/${number}`;
    picture.addEventListener("error", () => picture.replaceWith(blank()));
    place.append(picture);
  } else place.append(blank());
  return place;
}
function blank() {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  for (const [name, value] of Object.entries({ viewBox: "0 0 24 24", width: "26", height: "26", "aria-hidden": "true" })) made.setAttribute(name, value);
  path.setAttribute("fill", "currentColor");
  path.setAttribute("d", "M3 5h18v14H3zM5 7v2h2V7zm0 4v2h2v-2zm0 4v2h2v-2zm12-8v2h2V7zm0 4v2h2v-2zm0 4v2h2v-2z");
  made.append(path);
  return made;
}
function chip(category, confidence) {
  const made = make("span", category ? "chip sure" : "chip", category ?? "not sure");
  if (confidence !== undefined) made.title = `${category ?? "no category is certain"}, confidence ${percent(confidence)}`;
  return made;
}
function row(film) {
  const link = make("a");
  link.href = `#/${film.id}`;
  const line = make("span", "line");
  if (film.status === "done") line.append(chip(film.category, film.confidence), ...(film.brands ?? []).slice(0, 2).map((brand) => make("span", "", brand)));
  else if (film.status === "failed") line.append(make("span", "bad", film.error ?? "failed"));
  else if (film.status === "running") line.append(make("span", "", STAGES[film.stage] ? `${STAGES[film.stage]} …` : "waits for its next stage"));
  else if (film.status === "queued") line.append("waits for a worker");
  const facts = [film.seconds ? time(film.seconds) : null, film.scenes ? scenesOf(film.scenes) : null].filter(Boolean).join(" · ");
  link.append(still(film), make("span", "what", make("b", "", film.name), line),
    make("span", "right", stateOf(film.status), facts ? make("span", "", facts) : size(film.size), since(film.submitted_ms)));
  return make("li", "", link);
}
function draw(found) {
  const wanted = found.jobs.map((film) => {
    const json = JSON.stringify(film);
    const before = known.get(film.id);
    const focused = before && before.element.contains(document.activeElement);
    if (before && before.json === json) {
      const stamp = before.element.querySelector("time");
      stamp.textContent = ago(film.submitted_ms);
      return before.element;
    }
    const element = row(film);
    known.set(film.id, { element, json, film });
    if (focused) requestAnimationFrame(() => element.firstElementChild.focus());
    return element;
  });
  const list = at("list");
  if (wanted.length !== list.children.length || wanted.some((each, index) => each !== list.children[index])) list.replaceChildren(...wanted);
  for (const each of list.children) {
    const link = each.firstElementChild;
    if (link.hash === `#/${shown.id}`) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  at("more").hidden = !found.next;
  const filtered = chosen.status || chosen.text || chosen.category;
  at("none").hidden = found.jobs.length > 0;
  if (!found.jobs.length) {
    at("none").className = filtered ? "empty" : "card welcome";
    at("none").replaceChildren(...(filtered ? ["No film matches. ", press("Show all", "link", clear)]
      : [make("h2", "", "No films yet"), make("p", "soft", "Drop a film on this page, or use `adreel submit FILE`. Adreel finds its scenes, reads the text on screen and says what it advertises.")]));
  }
  states(found.counts);
  categories(found.categories);
}
function clear() {
  Object.assign(chosen, { status: "", text: "", category: "" });
  at("text").value = at("category").value = "";
  refresh();
}
function states(counts) {
  const all = Object.values(counts).reduce((sum, each) => sum + each, 0);
  const numbers = { "": all, done: counts.done, failed: counts.failed };
  const place = at("states");
  if (!place.children.length)
    place.append(...STATES.map((state) => press(WORDS[state], "", () => {
      chosen.status = state;
      refresh();
    })));
  STATES.forEach((state, index) => {
    const button = place.children[index];
    button.setAttribute("aria-pressed", String(chosen.status === state));
    button.replaceChildren(WORDS[state], numbers[state] ? make("span", "count", String(numbers[state])) : "");
  });
}
let categoriesKnown = "";
function categories(found) {
  const text = JSON.stringify(found);
  if (text === categoriesKnown) return;
  categoriesKnown = text;
  const first = make("option", "", "All categories");
  first.value = "";
  at("category").replaceChildren(first, ...Object.entries(found).map(([name, count]) => {
    const option = make("option", "", `${name} (${count})`);
    option.value = name;
    return option;
  }));
  at("category").value = chosen.category;
}

// one film

function open(id) {
  location.hash = id ? `#/${id}` : "#/";
}
addEventListener("hashchange", route);
function route() {
  const id = /^#\/([0-9a-f]{21})$/.exec(location.hash)?.[1] ?? null;
  if (id === shown.id) return;
  shown.stream?.close();
  Object.assign(shown, { id, view: null, result: null, scene: 0, stream: null });
  at("layout").classList.toggle("split", Boolean(id));
  at("film").hidden = !id;
  document.title = "Adreel";
  for (const link of at("list").querySelectorAll("a")) link.toggleAttribute("aria-current", link.hash === `#/${id}`);
  if (!id) return;
  at("film").replaceChildren(make("p", "soft", "…"));
  follow(id);
}
async function follow(id) {
  await load(id);
  if (shown.id !== id || !shown.view || ["done", "failed", "cancelled"].includes(shown.view.status)) return;
  const stream = (shown.stream = new EventSource(`/jobs/${id}/events`));
  stream.addEventListener("job", (event) => {
    if (shown.id !== id) return stream.close();
    shown.view = JSON.parse(event.data);
    if (["done", "failed", "cancelled"].includes(shown.view.status)) {
      stream.close();
      load(id);
      refresh();
    } else film();
  });
  stream.addEventListener("gone", () => {
    stream.close();
    if (shown.id === id) leave("The film was deleted.");
  });
}
function leave(text) {
  toast(text);
  open(null);
  refresh();
}
async function load(id) {
  try {
    const view = await call(`/jobs/${id}`);
    if (shown.id !== id) return;
    shown.result = view.result ?? null;
    shown.view = view;
    film();
  } catch (error) {
    if (shown.id === id) at("film").replaceChildren(press("← Films", "", () => open(null)), make("p", "trouble", error.status === 404 ? "There is no such film, or no longer." : error.message));
  }
}
function film() {
  const view = shown.view, result = shown.result, place = at("film");
  document.title = `${view.name} – Adreel`;
  const parts = [head(view)];
  if (view.status === "failed" || view.status === "cancelled") parts.push(why(view));
  const held = (view.stages ?? []).find((stage) => stage.state === "queued" && stage.detail);
  if (held) parts.push(make("div", "trouble", make("b", "", `“${STAGES[held.name]}” waits: no worker can run`), make("p", "", held.detail)));
  const stages = [make("h2", "", "Stages"), axis(view)];
  if (view.status !== "done") parts.push(...stages); // of a film that is done, what was found comes first
  if (result && view.status !== "done") parts.push(make("h2", "", "Earlier result"));
  if (result) parts.push(verdicts(view, result), ...reel(view, result));
  if (view.status === "done") parts.push(...stages);
  if (result) parts.push(links(view, result));
  const scrolled = [place.scrollTop, place.querySelector(".reel")?.scrollLeft ?? 0, place.querySelector(".texts")?.scrollTop ?? 0];
  const focus = document.activeElement?.dataset?.keep;
  place.replaceChildren(...parts);
  place.scrollTop = scrolled[0];
  if (place.querySelector(".reel")) place.querySelector(".reel").scrollLeft = scrolled[1];
  if (place.querySelector(".texts")) place.querySelector(".texts").scrollTop = scrolled[2];
  if (focus) place.querySelector(`[data-keep="${focus}"]`)?.focus();
}
function keep(button, name) {
  button.dataset.keep = name;
  return button;
}
function head(view) {
  const orders = make("div", "orders");
  const back = press("← Films", "", () => open(null));
  back.id = "back";
  orders.append(back);
  if (view.status === "failed" || view.status === "cancelled") orders.append(keep(press("Try again", "primary", () => act("retry"), "r"), "retry"));
  if (view.status === "done") orders.append(keep(press("Classify again", "", () => act("reanalyse"), "r"), "again"));
  if (view.status !== "deleting") orders.append(keep(press("Delete", "", remove, "d"), "delete"));
  const sub = make("div", "sub", stateOf(view.status), make("span", "", size(view.size)));
  if (view.seconds) sub.append(make("span", "", time(view.seconds)));
  sub.append(make("span", "", "submitted ", since(view.submitted_ms)));
  if (view.status === "done" && view.stages?.length) sub.append(make("span", "", spent(view.stages)));
  if (view.expired) sub.append(make("span", "hold", "the file has expired, the result is kept"));
  return make("header", "", make("div", "", make("h1", "", view.name), sub), orders);
}
function spent(stages) { // not the time since it was submitted: it may have been classified again, or tried again, days later
  const ms = stages.reduce((sum, each) => sum + (each.started_ms && each.finished_ms ? each.finished_ms - each.started_ms : 0), 0);
  return `${stages.some((each) => each.name === "ingest" && each.started_ms) ? "analysed" : "classified again"} in ${took(ms)}`;
}
const ADVICE = {
  "not-a-film": "Check that the file is a film, and export it again.", "no-video": "The file has no picture.", truncated: "The file ends too early: upload it again.",
  damaged: "Most of the file cannot be decoded: export it again.", unsupported: "Export the film as H.264 in MP4.", "too-long": "The limit is a setting of the server (ADREEL_MAX_SECONDS).",
  "too-many-pixels": "The limit is a setting of the server (ADREEL_MAX_PIXELS).", memory: "The film needs more memory than a worker may use (ADREEL_MAX_MEMORY).",
  categories: "The file is a setting of the server (ADREEL_CATEGORIES).",
  poison: "This film crashed its worker three times. It is set aside, and other films go on.", "timed out": "The stage took longer than it may.",
};
function why(view) {
  const stage = STAGES[view.stage] ? `Failed at “${STAGES[view.stage]}”` : "Failed";
  const box = make("div", "trouble", make("b", "", view.status === "cancelled" ? "Cancelled" : stage), make("p", "", view.error ?? ""));
  if (ADVICE[view.code]) box.append(make("p", "soft", ADVICE[view.code]));
  return box;
}
function sureness(confidence) {
  return make("div", "sureness", bar(confidence, "Confidence"), `${percent(confidence)} sure`);
}
function words(some) {
  return make("ul", "words", ...some.map((each) => make("li", "", make("span", "chip", each))));
}
function verdicts(view, result) {
  const { guess, brands, codes, probe, cut } = result;
  const place = make("div", "verdicts");
  const category = make("div", "", make("h3", "", "Category"), make("div", guess.category ? "big" : "big muted", guess.category ?? "Not sure"), sureness(guess.confidence));
  if (guess.runner_up && guess.confidence > 0 && guess.confidence < 0.8) category.append(make("p", "soft", `or ${guess.runner_up}`));
  place.append(category);
  place.append(make("div", "", make("h3", "", "Looks like a brand"), brands.length ? make("div", "big", brands[0].text) : make("div", "big muted", "–"), brands.length > 1 ? words(brands.slice(1, 6).map((each) => each.text)) : ""));
  if (codes.length) place.append(make("div", "", make("h3", "", codes.length > 1 ? "QR codes" : "QR code"), words(codes)));
  const facts = [`${probe.width} × ${probe.height}`, probe.frame_rate ? `${+probe.frame_rate.toFixed(2)} frames/s${cut.variable ? ", variable" : ""}` : null, `${probe.codec} in ${probe.container.split(",")[0]}`, cut.damaged ? `${cut.damaged} damaged packets` : null];
  place.append(make("div", "", make("h3", "", "Film"), make("div", "", `${time(cut.seconds, true)}, ${scenesOf(result.scenes.length)}`), make("div", "soft", facts.filter(Boolean).join(" · "))));
  return place;
}
function axis(view) {
  const place = make("div", "axis");
  const stages = view.stages ?? [];
  const again = stages.length && stages[0].name !== "ingest"; // classified again, perhaps days after it was submitted
  const begin = again ? (stages[0].started_ms ?? now()) : view.submitted_ms;
  const live = ["running", "queued", "deleting"].includes(view.status);
  const last = Math.max(begin + 1000, ...stages.map((each) => each.finished_ms ?? 0), live ? now() : (view.ended_ms ?? 0));
  const place_of = (ms) => `${Math.min(100, Math.max(0, (100 * (ms - begin)) / (last - begin)))}%`;
  let ready = begin;
  for (const stage of stages) {
    const track = make("div", "track");
    const started = stage.started_ms, ended = stage.finished_ms ?? (stage.state === "running" ? last : null);
    const part = stage.total ? Math.min(1, (stage.done ?? 0) / stage.total) : null;
    const waited = started ?? (stage.state === "queued" ? last : null);
    if (waited && waited - ready > 0.01 * (last - begin)) {
      const wait = make("div", "wait");
      wait.style.left = place_of(ready);
      wait.style.right = `calc(100% - ${place_of(waited)})`;
      wait.title = `waited ${took(waited - ready)} for a worker`;
      track.append(wait);
    }
    if (started && ended) {
      const span = make("div", `span ${stage.state}`);
      span.style.left = place_of(started);
      span.style.width = `calc(${place_of(ended)} - ${place_of(started)})`;
      if (stage.state === "running") {
        const inner = make("i");
        inner.style.width = `${100 * (part ?? 0)}%`;
        span.append(inner);
      }
      track.append(span);
    }
    const several = stage.jobs > 1 ? `, ${stage.jobs} jobs` : "";
    const text = stage.state === "running" ? (stage.jobs > 1 ? `${Math.floor(stage.done ?? 0)} of ${stage.jobs}` : part === null ? "running" : percent(part))
      : started && ended ? took(ended - started) : { waiting: "", queued: "waits", skipped: "not reached" }[stage.state] ?? stage.state;
    track.title = `${STAGES[stage.name] ?? stage.name}: ${stage.state}${started && ended ? `, ${took(ended - started)}` : ""}${several}${stage.worker ? `, ${stage.node ?? ""} ${stage.worker}` : ""}${stage.attempts ? `, ${stage.attempts} failed attempts` : ""}`;
    const label = make("span", ["waiting", "skipped"].includes(stage.state) ? "off" : "", STAGES[stage.name] ?? stage.name);
    place.append(label, track, make("span", `took${stage.state === "failed" ? " bad" : ""}`, text));
    if (stage.finished_ms) ready = stage.finished_ms;
  }
  if (stages.length) {
    const ticks = make("div", "ticks");
    for (const share of [0, 0.5, 1]) {
      const tick = make("span", "", share ? took(share * (last - begin)) : "0");
      tick.style.left = `${100 * share}%`;
      ticks.append(tick);
    }
    place.append(ticks);
  }
  return place;
}
const picture = (view, scene) => (scene.stills.length ? `/jobs/${view.id}/frames/${scene.stills[Math.floor(scene.stills.length / 2)].number}` : null);
function reel(view, result) {
  const scenes = result.scenes;
  const step = Math.ceil(scenes.length / 400);
  const list = make("ol");
  scenes.forEach((scene, index) => {
    if (index % step) return;
    const button = press("", "", () => select(index));
    const source = picture(view, scene);
    if (source) {
      const image = make("img");
      Object.assign(image, { src: source, alt: "", loading: "lazy" });
      image.addEventListener("load", () => image.classList.toggle("tall", image.naturalHeight > image.naturalWidth));
      button.append(image);
    }
    button.append(make("span", "at", time(scene.start)));
    button.title = `Scene ${scene.number}, ${time(scene.start, true)} to ${time(scene.end, true)}${scene.text.length ? `: ${scene.text.slice(0, 3).join(" / ")}` : ""}`;
    button.setAttribute("aria-label", button.title);
    button.setAttribute("aria-pressed", String(index === shown.scene));
    keep(button, `scene-${index}`);
    const item = make("li", "", button);
    item.style.flexGrow = String(Math.max(0.2, scene.end - scene.start));
    list.append(item);
  });
  const strip = make("div", "reel", list);
  const body = make("tbody");
  scenes.slice(0, 1000).forEach((scene, index) => {
    if (!scene.text.length && !scene.codes.length) return;
    const line = make("tr", "", make("td", "", time(scene.start, true)), make("td", "", [...scene.text, ...scene.codes].join(" · ")), make("td", "", chip(scene.guess.category, scene.guess.confidence)));
    line.setAttribute("aria-selected", String(index === shown.scene));
    line.addEventListener("click", () => select(index));
    body.append(line);
  });
  const caption = make("h2", "", `Scenes `, make("span", "soft", String(scenes.length)));
  const parts = [caption, strip, scenePart(view, scenes[shown.scene])];
  if (body.children.length) parts.push(make("h2", "", "Text on screen"), make("div", "scroll texts", make("table", "", body)));
  return parts;
}
function scenePart(view, scene) {
  const place = make("div", "scene");
  place.id = "scene";
  if (!scene) return place;
  const frame = make("div", "picture");
  const source = picture(view, scene);
  if (source) {
    const image = make("img");
    Object.assign(image, { src: source, alt: scene.text.length ? `Scene with the text ${scene.text.join(", ")}` : `Scene ${scene.number}` });
    frame.append(image);
  }
  const side = make("div", "", make("h3", "", `Scene ${scene.number}`), make("p", "soft", `${time(scene.start, true)} – ${time(scene.end, true)} (${(scene.end - scene.start).toFixed(1)} s)`));
  side.append(scene.text.length ? make("div", "read", scene.text.join("\n")) : make("p", "soft", "No text was read."));
  if (scene.codes.length) side.append(make("h3", "", "QR code"), words(scene.codes));
  if (scene.guess.category) side.append(make("p", "", chip(scene.guess.category, scene.guess.confidence)), sureness(scene.guess.confidence));
  else if (scene.text.length) side.append(make("p", "soft", "The text of this scene alone decides no category."));
  place.append(frame, side);
  return place;
}
function select(index) {
  const scenes = shown.result?.scenes ?? [];
  if (!scenes[index]) return;
  shown.scene = index;
  const place = at("film");
  place.querySelectorAll(".reel button").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.keep === `scene-${index}`)));
  place.querySelector(`[data-keep="scene-${index}"]`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
  at("scene").replaceWith(scenePart(shown.view, scenes[index]));
  place.querySelectorAll(".texts tr").forEach((line) => line.setAttribute("aria-selected", String(line.firstChild.textContent === time(scenes[index].start, true))));
}
function links(view, result) {
  const place = make("p", "links");
  for (const [text, path] of [["Result as JSON", `/jobs/${view.id}`], ["Chapters (WebVTT)", `/jobs/${view.id}/chapters.vtt`]]) {
    const link = make("a", "", text);
    link.href = path;
    place.append(link);
  }
  place.append(make("span", "", `id ${view.id}`), make("span", "", `categories ${result.categories}`));
  return place;
}
async function act(what) {
  try {
    shown.view = await call(`/jobs/${shown.id}/${what}`, "POST"); // the result stays until another one replaces it
    film();
    follow(shown.id);
    refresh();
  } catch (error) {
    toast(error.message, true);
  }
}
async function remove() {
  const { id, name, status } = shown.view;
  const stops = status === "running" ? " Its analysis is stopped." : "";
  if (!(await ask(`Delete “${name}”?`, `The film, its key frames and its result are removed.${stops} This cannot be undone.`, "Delete"))) return;
  try {
    const left = await call(`/jobs/${id}`, "DELETE");
    if (left === null) return leave("The film was deleted.");
    toast("The film is being deleted.");
    await load(id);
    follow(id);
    refresh();
  } catch (error) {
    toast(error.message, true);
  }
}

// keyboard, theme, refreshing

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches?.("input, select, textarea");
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const rows = [...at("list").querySelectorAll("a")];
  const index = rows.findIndex((link) => link.hash === `#/${shown.id}`);
  const actions = {
    "/": () => at("text").focus(),
    j: () => rows[Math.min(rows.length - 1, index + 1)] && (location.hash = rows[Math.min(rows.length - 1, index + 1)].hash),
    k: () => rows[Math.max(0, index - 1)] && (location.hash = rows[Math.max(0, index - 1)].hash),
    ArrowRight: () => shown.result && select(shown.scene + 1),
    ArrowLeft: () => shown.result && select(shown.scene - 1),
    u: () => at("files").click(),
    r: () => at("film").querySelector('[data-keep="retry"], [data-keep="again"]')?.click(),
    d: () => at("film").querySelector('[data-keep="delete"]')?.click(),
    Escape: () => shown.id && open(null),
    "?": () => at("keys").showModal(),
  };
  if (actions[event.key]) {
    event.preventDefault();
    actions[event.key]();
  }
});
at("help").addEventListener("click", () => at("keys").showModal());
const THEME = "chargehand-theme";
function theme(value) {
  document.documentElement.dataset.theme = value;
  at("theme").value = value;
}
try {
  theme(localStorage.getItem(THEME) ?? "auto");
} catch {
  theme("auto"); // storage is disabled
}
at("theme").addEventListener("change", () => {
  theme(at("theme").value);
  try {
    localStorage.setItem(THEME, at("theme").value);
  } catch {
    // the choice lasts until the page is closed
  }
});
at("more").addEventListener("click", () => ((shownCount += 50), refresh()));
let typed = 0;
at("text").addEventListener("input", () => {
  chosen.text = at("text").value;
  clearTimeout(typed);
  typed = setTimeout(refresh, 150);
});
at("category").addEventListener("change", () => ((chosen.category = at("category").value), refresh()));

const pageOf = (most, after) => call(`/jobs?${new URLSearchParams({ ...chosen, after, limit: String(Math.min(200, most)) })}`);
async function pages(most) {
  const found = await pageOf(most, "");
  while (found.next && found.jobs.length < most) {
    const rest = await pageOf(most - found.jobs.length, found.next);
    found.jobs.push(...rest.jobs);
    found.next = rest.next;
  }
  return found;
}
let asking = 0, timer = 0;
async function refresh() {
  const mine = ++asking;
  clearTimeout(timer);
  let pause = 2000;
  try {
    if (!session && !limits.open) {
      session = await signedIn();
      if (!session) return signIn();
    }
    const found = await pages(shownCount);
    if (mine !== asking) return;
    draw(found);
    at("trouble").hidden = true;
    document.querySelector("main").classList.remove("stale");
    at("live").replaceChildren(mark("healthy"), "live");
    pause = found.jobs.some((each) => ["running", "queued", "deleting"].includes(each.status)) ? 1000 : 3000;
  } catch (error) {
    if (mine !== asking) return;
    at("live").replaceChildren(mark("error"), "no answer");
    at("trouble").hidden = false;
    at("trouble").textContent = error.status === 401 ? "The sign-in has ended." : `The server does not answer: ${error.message}`;
    document.querySelector("main").classList.add("stale");
  }
  timer = setTimeout(refresh, pause);
}
function signIn() {
  const link = make("a", "", "Sign in");
  link.href = signInPage;
  at("drop").hidden = true;
  document.querySelector(".tools").hidden = true;
  at("none").hidden = false;
  at("none").className = "card welcome";
  at("none").replaceChildren(make("h2", "", link, " to see the films"), make("p", "soft", "or open the address that `adreel serve` prints on its terminal."));
}
setInterval(() => {
  for (const stamp of at("film").querySelectorAll("header time")) stamp.textContent = ago(Date.parse(stamp.dateTime));
  const old = at("film").querySelector(".axis");
  if (old && shown.view && ["running", "queued"].includes(shown.view.status)) old.replaceWith(axis(shown.view));
}, 500);
(async () => {
  limits = await call("/page/about/limits").catch(() => limits);
  at("limits").textContent = `MP4, MOV, MKV, WebM, AVI, MPEG-TS; up to ${size(limits.max_upload)} each`;
  await refresh();
  if (session || limits.open) route();
})();
