// Light or dark: as the system says, unless the person says otherwise.

import { effect, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";
const NAME = "chargehand-theme";

function stored(): Theme {
  try {
    const found = localStorage.getItem(NAME);
    return found === "light" || found === "dark" ? found : "auto";
  } catch {
    return "auto"; // storage is switched off
  }
}

export const choice = signal<Theme>(stored());
const system = matchMedia("(prefers-color-scheme: dark)");
/** What is shown. */
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
    // it holds until the page is left
  }
});
