// The theme: light or dark, by the system setting unless the user selects one.

import { effect, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";
const NAME = "chargehand-theme";

function stored(): Theme {
  try {
    const found = localStorage.getItem(NAME);
    return found === "light" || found === "dark" ? found : "auto";
  } catch {
    return "auto"; // storage is disabled
  }
}

export const choice = signal<Theme>(stored());
const system = matchMedia("(prefers-color-scheme: dark)");
/** The theme that is shown. */
export const theme = signal<"light" | "dark">("light");

function show(): void {
  theme.value = choice.value === "auto" ? (system.matches ? "dark" : "light") : choice.value;
}

system.addEventListener("change", show);
effect(() => {
  document.documentElement.dataset.theme = choice.value;
  show();
  try {
    localStorage.setItem(NAME, choice.value);
  } catch {
    // the choice lasts until the page is closed
  }
});
