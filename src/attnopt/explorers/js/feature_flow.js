// A plane that is the whole state: the cross-entropy over it, the flow from three starts, and the cross-entropy in time.

import {
  arrow, axes, clipped, COLOURS, contours, curve, drawn, integrate, levelSets, line, mark, MARKS, show, softmaxOf, ticksUpTo, tidy,
  WEIGHTS,
} from "./common.js";
import { explorer } from "./shell.js";

const HORIZON = 40;
const TIMES = Array.from({ length: 61 }, (_, k) => HORIZON * (k / 60) ** 2);
const softplus = (value) => Math.max(value, 0) + Math.log1p(Math.exp(-Math.abs(value)));
const logistic = (value) => 1 / (1 + Math.exp(-value));
const entropy = (distribution) => -distribution.reduce((sum, value) => sum + (value > 0 ? value * Math.log(value) : 0), 0);

// One token with two features, three classes: N = zθᵀ.
function linear({ label, softness }) {
  const target = [0, 1, 2].map((c) => (c === label ? 1 - softness : 0) + softness / 3);
  const attend = (z) => softmaxOf(WEIGHTS.map((weight) => weight[0] * z[0] + weight[1] * z[1]));
  const mean = target.reduce((sum, value, c) => [sum[0] + value * WEIGHTS[c][0], sum[1] + value * WEIGHTS[c][1]], [0, 0]);
  const gradient = (z) => {
    const { weights } = attend(z);
    return [0, 1].map((f) => weights.reduce((sum, value, c) => sum + value * WEIGHTS[c][f], -mean[f]));
  };
  return { loss: (z) => attend(z).lse - mean[0] * z[0] - mean[1] * z[1], gradient, formula: gradient, infimum: entropy(target) };
}

// Two tokens with one feature, θ = 1: N = zzᵀ, softmax over its columns; `other` is the weight of a token's label on the other.
function quadratic({ formula, exchanged, softness }) {
  const other = exchanged ? 1 - softness / 2 : softness / 2;
  const gaps = ([a, b]) => [a * (a - b), b * (b - a)];
  const excess = (z) => gaps(z).map((gap) => logistic(-gap) - other);  // attention to the other token, beyond the label
  const gradient = (z) => {
    const [first, second] = excess(z);
    return [-2 * first * z[0] + (first + second) * z[1], (first + second) * z[0] - 2 * second * z[1]];
  };
  const printed = (z) => {
    const [first, second] = excess(z), moved = 2 * (second * z[1] - first * z[0]);
    return [moved, -moved];
  };
  return {
    loss: (z) => gaps(z).reduce((sum, gap) => sum + softplus(-gap) + other * gap, 0),
    gradient,
    formula: formula === "printed" ? printed : gradient,
    infimum: 2 * entropy([Math.min(other, 0.5), 1 - Math.min(other, 0.5)]),
  };
}

const problem = (state) => (state.model === "linear" ? linear : quadratic)(state);
const kept = new Map();  // paths do not depend on the time shown, nor on each other

function remembered(key, make) {
  if (!kept.has(key)) {
    if (kept.size > 40) kept.clear();
    kept.set(key, make());
  }
  return kept.get(key);
}

const named = ({ model, formula, label, exchanged, softness }) => JSON.stringify([model, formula, label, exchanged, softness]);

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const { loss, gradient, formula, infimum } = problem(state), { time, starts } = state;
  const velocity = (z) => formula(z).map((value) => -value);
  const paths = starts.map((start) => remembered(`${named(state)} ${start}`, () => integrate(velocity, start, TIMES)));
  const before = TIMES.findLastIndex((value) => value <= time);
  const now = paths.map((path) => integrate(velocity, path[before], [time - TIMES[before]])[0]);
  return {
    times: TIMES, paths, now, infimum,
    losses: paths.map((path) => path.map(loss)),
    now_losses: now.map(loss),
    gradient_norms: now.map((z) => Math.hypot(...gradient(z))),
  };
}

const VIEW = 4, FRAME = [38, 20, 312, 286];
const LEVELS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50];

const TIPS = WEIGHTS.map((weight) => weight.map((value) => 1.22 * value));

const TICKS = Array.from({ length: 41 }, (_, index) => VIEW * (index / 20 - 1));

function drawLandscape(parent, state, paths) {
  const { loss } = problem(state), values = () => TICKS.map((x) => TICKS.map((y) => loss([x, y])));
  const sets = remembered(`levels ${named({ ...state, formula: "" })}`, () => levelSets(TICKS, values(), LEVELS));
  const taken = [...state.starts, ...(state.model === "linear" ? TIPS : []), ...paths.flatMap((path) => path.filter((_, k) => k % 3 === 0))];
  contours(parent, sets, LEVELS, { place, reach: VIEW, taken });
}

const pictures = [
  { label: "The plane of states: contours of the cross-entropy, and the flow from three starts", box: "0 0 320 320" },
  { label: "The cross-entropy in time for the three starts", box: "0 0 320 320" },
];
const place = ([x, y]) => [FRAME[0] + (FRAME[2] - FRAME[0]) * (1 + x / VIEW) / 2, FRAME[1] + (FRAME[3] - FRAME[1]) * (1 - y / VIEW) / 2];
const unplace = (x, y) => [VIEW * (2 * (x - FRAME[0]) / (FRAME[2] - FRAME[0]) - 1), VIEW * (1 - 2 * (y - FRAME[1]) / (FRAME[3] - FRAME[1]))];
const controls = [
  ...[0, 1, 2].map((index) => ({
    trait: "starts", at: index, kind: "handle", label: `Start ${index + 1}`, step: (FRAME[2] - FRAME[0]) / VIEW / 20, focus: { selected: index },
    mark: (node) => mark(node, index, [0, 0], 8, { fill: COLOURS[index], stroke: "currentColor", "stroke-width": 1.5 }),
    place, from: unplace, size: ({ selected }) => (index === selected ? 1.15 : 0.85),
  })),
  { trait: "model", kind: "choice", label: "model" },
  { trait: "formula", kind: "choice", label: "formula", names: { true: "gradient", printed: "as printed" }, disabled: ({ model }) => model === "linear" },
  { trait: "label", kind: "choice", label: "class of the token", names: (label) => String(label + 1), hidden: ({ model }) => model !== "linear" },
  { trait: "exchanged", kind: "choice", label: "labels", names: { false: "each its own", true: "exchanged" }, hidden: ({ model }) => model === "linear" },
  { trait: "selected", kind: "choice", label: "start", names: (index) => `${MARKS[index]} ${index + 1}` },
  { trait: "time", label: "time", scale: "sqrt" },
  { trait: "softness", label: "label softness", step: 0.01 },
  ...["horizontal", "vertical"].map((name, f) => ({ trait: "starts", at: ({ selected }) => [selected, f], label: `start, ${name}` })),
];

function draw([plane, front], now, state) {
  const { time } = state, isLinear = state.model === "linear";

  const side = { low: -VIEW, high: VIEW, ticks: [-4, -2, 0, 2, 4] };
  const named = isLinear ? ["first feature", "second feature"] : ["feature of token 1", "feature of token 2"];
  axes(plane, FRAME, { ...side, label: named[0] }, { ...side, label: named[1] });
  const inside = clipped(plane, FRAME);
  if (isLinear) {
    WEIGHTS.forEach((weight, c) => {
      arrow(inside, place([0, 0]), place(weight), { "stroke-width": c === state.label ? 2.5 : 1.2, opacity: 0.75 });
      const [x, y] = place(TIPS[c]);
      drawn("text", { x, y: y + 4, "text-anchor": "middle", "font-weight": c === state.label ? "bold" : "normal" }, inside, `θ${"₁₂₃"[c]}`);
    });
  } else {
    line(inside, place([-VIEW, -VIEW]), place([VIEW, VIEW]), { "stroke-dasharray": "2 4", opacity: 0.7 });
  }
  drawLandscape(inside, state, now.paths);
  drawn("text", { x: FRAME[2], y: 13, "text-anchor": "end", class: "ao-small" }, plane, "numbered lines: equal cross-entropy");
  now.paths.forEach((path, index) => {
    const gone = path.filter((_, k) => TIMES[k] < time);
    curve(inside, path.map(place), { stroke: COLOURS[index], "stroke-width": 1.2, opacity: 0.8 });
    curve(inside, [...gone, now.now[index]].map(place), { stroke: COLOURS[index], "stroke-width": 3.5 });
    mark(inside, index, place(now.now[index]), 4, { fill: COLOURS[index], stroke: "currentColor", "stroke-width": 1.5 });
  });

  const top = 1.08 * Math.max(...now.losses.flat(), now.infimum, isLinear ? 0 : 2 * Math.LN2);
  const put = axes(front, FRAME,
    { label: "time (square-root scale)", low: 0, high: HORIZON, scale: Math.sqrt, ticks: [0, 1, 5, 10, 20, 40] },
    { label: "cross-entropy", low: 0, high: top, ticks: ticksUpTo(top) });
  const level = (value, name, dash, below) => {
    line(front, put([0, value]), put([HORIZON, value]), { "stroke-dasharray": dash, opacity: 0.8 });
    drawn("text", { x: FRAME[2] - 4, y: put([0, value])[1] + (below ? 14 : -5), "text-anchor": "end", class: "ao-small ao-halo" }, front, name);
  };
  const tie = !isLinear && 2 * Math.LN2 - now.infimum > 0.02 * top;
  if (tie) level(2 * Math.LN2, "equal tokens: 2 log 2", "2 4", false);
  line(front, put([time, 0]), put([time, top]), { opacity: 0.5 });
  now.losses.forEach((losses, index) => {
    const points = losses.map((value, k) => put([TIMES[k], value])), at = put([time, now.now_losses[index]]);
    curve(front, points, { stroke: COLOURS[index], "stroke-width": 1.2, opacity: 0.8 });
    curve(front, [...points.filter((_, k) => TIMES[k] < time), at], { stroke: COLOURS[index], "stroke-width": 3 });
    mark(front, index, at, 5, { fill: COLOURS[index], stroke: "currentColor", "stroke-width": 1 });
  });
  level(now.infimum, `infimum ${tidy(Number(now.infimum.toFixed(3)))}`, "6 4", put([0, now.infimum])[1] < FRAME[3] - 18);
}

function say(now, { model, formula, time, starts, selected }) {
  const risen = [0, 1, 2].filter((index) => {
    const seen = [...now.losses[index].filter((_, k) => TIMES[k] < time), now.now_losses[index]];
    return seen.some((value, k) => k > 0 && value > seen[k - 1] + 1e-7 * (1 + value));
  });
  const away = now.now.filter((z) => Math.max(...z.map(Math.abs)) > VIEW).length;
  const followed = model === "linear" ? "Minus the gradient (both formulas agree)" : formula === "true" ? "Minus the gradient" : "Minus the formula as printed";
  const pair = (z) => z.map((value) => show(value)).join(", ");
  return `${followed}, time ${show(time)}: cross-entropy `
    + `${now.now_losses.map((value, index) => `${show(value, 3)} from start ${index + 1}`).join(", ")}; infimum ${show(now.infimum, 3)}. `
    + `Start ${selected + 1} at (${pair(starts[selected])}) has come to (${pair(now.now[selected])}), gradient norm ${show(now.gradient_norms[selected], 3)}. `
    + (risen.length ? `The cross-entropy has risen from start ${risen.map((index) => index + 1).join(" and ")}.` : "The cross-entropy has only fallen.")
    + (away ? ` Outside the picture: ${away} of 3.` : "");
}

export default explorer({ pictures, controls, compute, draw, say });
