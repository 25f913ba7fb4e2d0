// The look of each state on every page: a tone (a colour in the style sheet), a shape, and a label if it differs.
// Served unchanged, for the pages of an application.

/** @type {Record<string, string>} */
export const SHAPES = {
  circle: "M8 2.5a5.5 5.5 0 1 1 0 11a5.5 5.5 0 1 1 0 -11z",
  ring: "M8 2a6 6 0 1 1 0 12a6 6 0 1 1 0 -12zM8 4.5a3.5 3.5 0 1 0 0 7a3.5 3.5 0 1 0 0 -7z",
  play: "M4 2.5l9 5.5l-9 5.5z",
  bars: "M3.5 3h3v10h-3zM9.5 3h3v10h-3z",
  square: "M3 3h10v10h-10zM5 5v6h6v-6z",
  half: "M3 3h10v10h-10zM5 5v3h6v-3z",
  triangle: "M8 1.8l6.8 12.2h-13.6zM7.2 6v4h1.6v-4zM7.2 11v1.6h1.6v-1.6z",
  cross: "M4.2 2.5L8 6.3l3.8-3.8l1.7 1.7L9.7 8l3.8 3.8l-1.7 1.7L8 9.7l-3.8 3.8l-1.7-1.7L6.3 8L2.5 4.2z",
  diamond: "M8 1.5l6.5 6.5l-6.5 6.5l-6.5-6.5z",
  tick: "M2.5 8.5l2-2l2.3 2.3l5-5.3l2 2l-7 7.3z",
  moon: "M9.5 1.8a6.3 6.3 0 1 0 4.7 9.4a5.2 5.2 0 0 1 -4.7 -9.4z",
  clock: "M8 2a6 6 0 1 1 0 12a6 6 0 1 1 0 -12zM7.3 4.5v4.2l3 1.8l.8-1.3l-2.3-1.4v-3.3z",
};

/** @typedef {[tone: string, shape: string, word?: string]} Look */
/** @type {Look} */
const UNKNOWN = ["warn", "diamond"];

/** @type {Record<string, Look>} */
const LOOKS = {
  healthy: ["good", "circle"],
  busy: ["busy", "play"],
  starting: ["info", "ring"],
  paused: ["hold", "bars"],
  asleep: ["rest", "moon"],
  stopping: ["muted", "half"],
  stopped: ["muted", "square"],
  removed: ["muted", "square"],
  crashed: ["warn", "triangle"],
  restarted: ["warn", "triangle"],
  failed: ["bad", "cross", "given up"],
  flagged: UNKNOWN,
  unknown: UNKNOWN,
  queued: ["muted", "clock"],
  running: ["busy", "play"],
  done: ["good", "tick"],
  cancelled: ["muted", "square"],
  degraded: ["warn", "triangle"],
  error: ["bad", "cross"],
  gone: ["bad", "cross"],
  warning: ["warn", "triangle"],
  note: ["info", "ring"],
};

/** @param {string} state @returns {Look} */
export const lookOf = (state) => LOOKS[state] ?? UNKNOWN;
