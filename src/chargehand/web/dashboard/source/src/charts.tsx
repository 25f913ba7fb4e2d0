// Charts of the last minutes or hours, redrawn every second.

import { useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { sampled } from "./samples";
import { theme } from "./theme";

/** The minimum time range of a chart, in seconds. */
const LEAST = 60;
const HEIGHT = 110;

export interface Line {
  label: string;
  /** The name of a colour in the style sheet. */
  tone: string;
  scale: string;
  fill?: boolean;
  /** Distinguishes the line from the others without its colour. */
  dashed?: boolean;
}

function colour(tone: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${tone}`).trim() || "#888";
}

/** Returns the computed value of a colour: a canvas cannot evaluate light-dark(). */
function resolved(element: HTMLElement, tone: string): string {
  element.style.color = `var(--${tone})`;
  const found = getComputedStyle(element).color;
  element.style.color = "";
  return found || colour(tone);
}

const INCREMENTS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7];
const LEAST_TOP: Record<string, number> = { bytes: 1 << 26, time: 0.1 };

const pad = (n: number): string => String(n).padStart(2, "0");

/** Returns the time of day, without seconds if the ticks are a minute or more apart. */
function clockAt(tick: number, apart: number): string {
  const at = new Date(tick * 1000);
  const minutes = `${pad(at.getHours())}:${pad(at.getMinutes())}`;
  return apart >= 60 ? minutes : `${minutes}:${pad(at.getSeconds())}`;
}

interface Props {
  lines: Line[];
  data: () => uPlot.AlignedData;
  label: string;
  /** The maximum time range, in seconds. */
  reach: number;
  format?: (n: number) => string;
}

/** Shows the newest values in the legend while nobody points at others. */
function showLast(plot: uPlot | null): void {
  if (plot && plot.data[0].length && (plot.cursor.left ?? -1) < 0) plot.setLegend({ idx: plot.data[0].length - 1 });
}

/** Returns the width of a vertical axis in pixels, so that its longest text is not cut. */
const widthOf = (_u: uPlot, texts: string[] | null): number => Math.max(44, 10 + 6 * Math.max(0, ...(texts ?? []).map((text) => text.length)));

export function Chart(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    const element = box.current!;
    const grid = resolved(element, "line");
    const text = resolved(element, "muted");
    const scales = [...new Set(props.lines.map((line) => line.scale))];
    const made = new uPlot(
      {
        width: element.clientWidth || 300,
        height: HEIGHT,
        legend: { show: true, live: true },
        cursor: { y: false, points: { size: 6 }, drag: { setScale: false, x: false, y: false } },
        padding: [6, scales.length > 1 ? 0 : 24, 0, 0], // the last time of the axis is not cut
        scales: {
          x: { range: (_u, min, max) => [max - Math.min(Math.max(max - min, LEAST), props.reach), max] },
          ...Object.fromEntries(scales.map((scale) => [scale, { range: (_u: uPlot, _a: number, b: number): [number, number] => [0, Math.max((b ?? 0) * 1.15, LEAST_TOP[scale] ?? 1)] }])),
        },
        series: [
          { label: "at", value: (_u, at) => (at === null ? "–" : clockAt(at, 0)) },
          ...props.lines.map((line) => {
            const stroke = resolved(element, line.tone);
            return {
              label: line.label,
              scale: line.scale,
              stroke,
              spanGaps: true,
              value: (_u: uPlot, n: number | null) => (n === null ? "–" : (props.format ?? String)(n)),
              width: 1.5,
              points: { show: false },
              ...(line.dashed ? { dash: [5, 4] } : {}),
              ...(line.fill ? { fill: stroke.replace("rgb(", "rgba(").replace(")", ", 0.14)") } : {}),
            };
          }),
        ],
        axes: [
          {
            stroke: text, grid: { show: false }, ticks: { show: false }, size: 18, font: "10px system-ui", space: 80,
            values: (_u, ticks, _axis, _space, apart) => ticks.map((tick) => clockAt(tick, apart)),
          },
          ...scales.map((scale, at) => ({
            scale, stroke: text, side: (at === 0 ? 3 : 1) as uPlot.Axis.Side, size: widthOf, gap: 4, space: 28, font: "10px system-ui",
            ticks: { show: false },
            grid: { show: at === 0, stroke: grid, width: 1 },
            ...(scale === "jobs" ? { incrs: INCREMENTS } : {}),
            ...(props.format ? { values: (_u: uPlot, ticks: number[]) => ticks.map(props.format!) } : {}),
          })),
        ],
      },
      props.data(),
      element,
    );
    plot.current = made;
    showLast(made);
    element.addEventListener("mouseleave", () => setTimeout(() => showLast(plot.current)));
    const fit = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    fit.observe(element);
    return () => {
      fit.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [theme.value, props.reach, props.lines.map((line) => line.label).join()]);
  useSignalEffect(() => {
    void sampled.value;
    const data = props.data();
    plot.current?.setData(data);
    showLast(plot.current);
    if (box.current) box.current.dataset.since = String(data[0][0] ?? "");
  });
  return <div class="chart" ref={box} role="img" aria-label={props.label} />;
}
