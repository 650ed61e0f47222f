// One optimal layer: its step in every direction between Newton's method and gradient descent, and three exact losses.

import { axes, clipped, COLORS, curve, drawn, line, mark, MARKS, show } from "./common.js";
import { explorer } from "./shell.js";

const COUNTS = Array.from({ length: 31 }, (_, k) => Math.round(10 ** (k / 10)));
const total = (values) => values.reduce((sum, value) => sum + value, 0);

// The losses at n examples: of Theorem 1's layer, and of the best multiples of Σ⁻¹ and of I.
function lossesAt(spectrum, trace, n) {
  const moment = spectrum.map((value) => ((n + 1) * value * value + trace * value) / n); // E[H²] in the eigenbasis
  const multiple = (direction) => {
    const reach = total(spectrum.map((value, i) => value * value * direction[i]));
    return trace - reach * reach / total(spectrum.map((value, i) => moment[i] * direction[i] ** 2 * value));
  };
  return {
    optimal: total(spectrum.map((value) => value * (value + trace) / ((n + 1) * value + trace))),
    newton: multiple(spectrum.map((value) => 1 / value)),
    plain: multiple(spectrum.map(() => 1)),
  };
}

// The numbers that the picture shows; the Python class computes the same.
export function compute({ first, second, third, examples }) {
  const spectrum = [first, second, third], trace = total(spectrum);
  const steps = spectrum.map((value) => examples / ((examples + 1) * value + trace));
  const along = COUNTS.map((n) => lossesAt(spectrum, trace, n));
  return {
    trace,
    steps,
    of_newton: steps.map((step, i) => step * spectrum[i]),
    common: examples / trace,
    losses: lossesAt(spectrum, trace, examples),
    curves: Object.fromEntries(["optimal", "newton", "plain"].map((name) => [name, along.map((values) => values[name])])),
  };
}

const FRAME = [56, 60, 302, 288];
const LOOKS = {
  optimal: { stroke: COLORS[0], "stroke-dasharray": "none", "stroke-width": 3.5 },
  newton: { stroke: COLORS[1], "stroke-dasharray": "9 4", "stroke-width": 2 },
  plain: { stroke: COLORS[2], "stroke-dasharray": "9 4 2 4", "stroke-width": 2 },
};
const decades = (low, high) =>
  Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, k) => Number((low * 10 ** k).toPrecision(3)));
const figures = (value) => String(Number(value.toPrecision(3)));

function legend(parent, entries) {
  entries.forEach(([name, text, x, y]) => {
    line(parent, [x, y - 4], [x + 26, y - 4], LOOKS[name]);
    drawn("text", { x: x + 31, y, class: "ao-small" }, parent, text);
  });
}

const pictures = [
  { label: "The layer’s step against the eigenvalue, between Newton’s method and one common step", box: "0 0 320 324" },
  { label: "Exact losses against the number of examples, for three kinds of layer", box: "0 0 320 324" },
];
const NAMES = ["first", "second", "third"];
const controls = [
  ...NAMES.map((trait, i) => ({ trait, label: `eigenvalue ${i + 1}`, scale: "log", step: 0.005, digits: 3 })),
  { trait: "examples", label: "examples n", scale: "log" },
];

function draw([left, right], now, state, { first: { low, high } }) {
  const n = state.examples, spectrum = NAMES.map((name) => state[name]);

  const bottom = 10 ** Math.min(-2, Math.floor(Math.log10(n / ((n + 1) * high + now.trace))));
  const put = axes(left, FRAME, { label: "eigenvalue λ", low, high, ticks: decades(low, high), scale: Math.log }, {
    label: "step size",
    low: bottom,
    high: 300,
    ticks: decades(bottom, 100),
    scale: Math.log,
  });
  const inside = clipped(left, FRAME);
  const grid = Array.from({ length: 61 }, (_, k) => low * (high / low) ** (k / 60));
  curve(inside, grid.map((value) => put([value, 1 / value])), LOOKS.newton);
  curve(inside, grid.map((value) => put([value, now.common])), LOOKS.plain);
  curve(inside, grid.map((value) => put([value, n / ((n + 1) * value + now.trace)])), LOOKS.optimal);
  spectrum.forEach((value, i) =>
    mark(left, i, put([value, now.steps[i]]), 6, { fill: COLORS[0], stroke: "currentColor", "stroke-width": 1.5 })
  );
  legend(left, [["optimal", "optimal layer", 58, 18], ["newton", "Newton, 1/λ", 186, 18], [
    "plain",
    "common step, n / tr Σ",
    58,
    42,
  ]]);

  const all = Object.values(now.curves).flat(),
    floor = 10 ** Math.floor(Math.log10(Math.min(...all))),
    ceiling = 10 ** Math.ceil(Math.log10(Math.max(...all)));
  const at = axes(right, FRAME, { label: "examples n", low: 1, high: 1000, ticks: [1, 10, 100, 1000], scale: Math.log }, {
    label: "loss",
    low: floor,
    high: ceiling,
    ticks: decades(floor, ceiling),
    scale: Math.log,
  });
  line(right, at([n, floor]), at([n, ceiling]), { opacity: 0.7, "stroke-dasharray": "1 3" });
  for (const name of ["newton", "plain", "optimal"]) {
    curve(right, now.curves[name].map((value, k) => at([COUNTS[k], value])), LOOKS[name]);
    const [x, y] = at([n, now.losses[name]]);
    drawn("circle", { cx: x, cy: y, r: 4.5, fill: LOOKS[name].stroke, stroke: "currentColor" }, right);
  }
  legend(right, [["optimal", "optimal layer", 58, 18], ["newton", "best multiple of Σ⁻¹", 58, 42], [
    "plain",
    "best multiple of I",
    172,
    18,
  ]]);
}

function say(now, { examples: n }) {
  const shares = now.of_newton.map((share, i) => `${MARKS[i]} ${figures(now.steps[i])} (${show(100 * share, 0)}%)`).join(
    ", ",
  );
  const { newton, plain } = now.losses,
    tied = Math.abs(newton / plain - 1) < 1e-9
      ? ", which does as well as that of Σ⁻¹"
      : figures(newton) === figures(plain)
      ? "; the last two are equal to the digits shown"
      : "";
  const ahead = tied || (newton < plain ? ", which is worse than that of Σ⁻¹" : ", which beats that of Σ⁻¹");
  return `Step sizes (percent of Newton’s): ${shares}; the common step size is ${figures(now.common)}. ` +
    `With ${n} ${n === 1 ? "example" : "examples"}, the loss is ${figures(now.losses.optimal)} for the optimal layer, ${
      figures(now.losses.newton)
    } for the best multiple of Σ⁻¹, and ${figures(now.losses.plain)} for the best multiple of I${ahead}.`;
}

export default explorer({ pictures, controls, compute, draw, say });
