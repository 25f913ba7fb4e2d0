// The dashboard's header for a page of an application: navigation, theme and connection state. It fills the page's
// <header class="bar-top">, or creates one. Served unchanged, next to chargehand.css. Strings are inserted as text only.

import { lookOf, SHAPES } from "./states.js";

const base = new URL("..", import.meta.url);
const PAGES = { "": "Overview", jobs: "Jobs", crashes: "Crashes", operations: "Operations", doctor: "Diagnosis" };
const THEME = "chargehand-theme";

/** Creates an element with a class, text and children. @param {string} name @param {string} [kind] @param {...(string | Node)} inside */
export function make(name, kind, ...inside) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  made.append(...inside);
  return made;
}

/** Creates the icon of a state: `healthy`, `busy`, `queued`, `done`, `failed`, … @param {string} state */
export function mark(state) {
  const [tone, shape] = lookOf(state);
  const space = "http://www.w3.org/2000/svg";
  const made = document.createElementNS(space, "svg");
  const path = document.createElementNS(space, "path");
  for (const [name, value] of Object.entries({ class: `mark ${tone}`, viewBox: "0 0 16 16", width: "14", height: "14", "aria-hidden": "true" }))
    made.setAttribute(name, value);
  path.setAttribute("fill-rule", "evenodd");
  path.setAttribute("d", SHAPES[shape] ?? "");
  made.append(path);
  return made;
}

/** Creates a state as the dashboard shows it: icon and label. @param {string} state @param {string} [word] */
export function state(state, word) {
  const [tone, , usual] = lookOf(state);
  return make("span", `state ${tone}`, mark(state), word ?? usual ?? state);
}

/** Creates a progress bar. `part` is from 0 to 1; null if unknown. @param {number | null} part @param {string} label */
export function progress(part, label) {
  const made = make("div", `bar ${part === null ? "unsure" : ""}`, make("span"));
  made.setAttribute("role", "progressbar");
  made.setAttribute("aria-label", label);
  made.setAttribute("aria-valuemin", "0");
  made.setAttribute("aria-valuemax", "100");
  if (part !== null) made.setAttribute("aria-valuenow", String(Math.round(part * 100)));
  /** @type {HTMLElement} */ (made.firstElementChild).style.transform = `scaleX(${part ?? 0})`;
  return made;
}

function colours() {
  const select = /** @type {HTMLSelectElement} */ (make("select"));
  for (const name of ["auto", "light", "dark"]) {
    const option = /** @type {HTMLOptionElement} */ (make("option", "", name.charAt(0).toUpperCase() + name.slice(1)));
    option.value = name;
    select.append(option);
  }
  const show = () => {
    document.documentElement.dataset.theme = select.value;
  };
  try {
    select.value = localStorage.getItem(THEME) ?? "auto";
  } catch {
    select.value = "auto"; // storage is disabled
  }
  select.addEventListener("change", () => {
    show();
    try {
      localStorage.setItem(THEME, select.value);
    } catch {
      // the choice lasts until the page is closed
    }
  });
  show();
  return make("label", "theme", make("span", "hidden", "Theme"), select);
}

/** @param {string} title @param {string} url @param {string} [kind] */
function link(title, url, kind) {
  const made = /** @type {HTMLAnchorElement} */ (make("a", kind, title));
  made.href = url;
  if (new URL(made.href).pathname === location.pathname) made.setAttribute("aria-current", "page");
  return made;
}

async function draw() {
  const header = document.querySelector("header.bar-top") ?? make("header", "bar-top");
  if (!header.isConnected) document.body.prepend(header);
  const brand = make("strong", "brand", mark("unknown"), " Chargehand");
  const nav = make("nav", "", ...Object.entries(PAGES).map(([page, title]) => link(title, `${base}dashboard#/${page}`)));
  nav.setAttribute("aria-label", "Pages");
  const live = make("span", "connection soft");
  live.setAttribute("role", "status");
  header.replaceChildren(brand, nav, make("div", "who", live, colours()));
  const answer = await fetch(new URL("api/v1/info", base)).catch(() => null);
  if (answer?.status === 401) nav.append(link("Sign in", `${base}dashboard`));
  if (!answer?.ok) return;
  for (const page of (await answer.json()).pages) nav.append(link(page.title, page.url, "own"));
  listen(brand, live);
}

/** @param {HTMLElement} brand @param {HTMLElement} live */
function listen(brand, live) {
  const source = new EventSource(new URL("api/events?topics=system:health", base));
  const show = (/** @type {string} */ state, /** @type {string} */ word) => live.replaceChildren(mark(state), word);
  source.onopen = () => show("healthy", "live");
  source.onerror = () => show("error", "Connection lost");
  source.addEventListener("health_update", (event) => {
    const { health } = JSON.parse(event.data);
    brand.firstElementChild?.replaceWith(mark(health.status));
    brand.title = health.errors.join("\n");
  });
}

void draw();
