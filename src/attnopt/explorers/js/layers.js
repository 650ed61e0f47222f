// Layers as steps of the feature flow: the cross-entropy layer by layer beside the flow, and the error against the step.

import {
  axes, clamp, clipped, COLOURS, curve, drawn, integrate, line, mark, power, show, ticksUpTo, WEIGHTS,
} from "./common.js";
import { explorer } from "./shell.js";

const TOKENS = [-0.9, 0.9, 1.4, 1.6, -0.2, -1.9];
const SOFTNESS = 0.3, TOTAL = 2, BEYOND = 1e6, COUNTS = [1, 2, 4, 8, 16, 32, 64];
const OWN = 1 - SOFTNESS + SOFTNESS / 3, OTHER = SOFTNESS / 3;
const bounded = (value) => (value <= BEYOND ? value : null);
const plus = (z, step, slope) => z.map((value, index) => value + step * slope[index]);

// Z holds three tokens' two features in turn, θ the rows to which they attend, and a matrix its rows in turn.
function attend(z, theta) {
  const weights = new Array(9);
  let loss = 0;
  for (let s = 0; s < 3; s++) {
    const logit = (c) => z[2 * s] * theta[2 * c] + z[2 * s + 1] * theta[2 * c + 1], a = logit(0), b = logit(1), c = logit(2);
    const top = Math.max(a, b, c), [p, q, r] = [Math.exp(a - top), Math.exp(b - top), Math.exp(c - top)], total = p + q + r;
    [weights[3 * s], weights[3 * s + 1], weights[3 * s + 2]] = [p / total, q / total, r / total];
    loss += top + Math.log(total) - OTHER * (a + b + c) - (OWN - OTHER) * [a, b, c][s];
  }
  return { weights, loss };
}

const times = (matrix, rows, scale) => rows.map((_, index) => {
  const s = index >> 1, f = index % 2;
  return scale * (matrix[3 * s] * rows[f] + matrix[3 * s + 1] * rows[2 + f] + matrix[3 * s + 2] * rows[4 + f]);
});
const labels = [0, 1, 2].flatMap((s) => [0, 1, 2].map((c) => (s === c ? OWN : OTHER)));

// A model's cross-entropy, its field in two parts (attention and labels), the exact flow of the second, and ‖θ‖².
function linear(scale) {
  const theta = WEIGHTS.flat().map((value) => scale * value), drift = times(labels, theta, 1);
  const attention = (z) => times(attend(z, theta).weights, theta, -1);
  const product = (f, g) => [0, 2, 4].reduce((sum, row) => sum + theta[row + f] * theta[row + g], 0);
  return {
    loss: (z) => attend(z, theta).loss,
    attention, printed: attention,
    drift: () => drift,
    followLabels: (z, step) => plus(z, step, drift),
    norm: (product(0, 0) + product(1, 1)) / 2 + Math.hypot((product(0, 0) - product(1, 1)) / 2, product(0, 1)),
  };
}

function quadratic(scale) {
  const theta = scale / 2, attendSelf = (z) => attend(z, z.map((value) => theta * value));
  return {
    loss: (z) => attendSelf(z).loss,
    attention(z) {
      const { weights } = attendSelf(z);
      return times(weights.map((value, index) => value + weights[3 * (index % 3) + Math.floor(index / 3)]), z, -theta);
    },
    printed: (z) => times(attendSelf(z).weights, z, -2 * theta),
    drift: (z) => times(labels, z, 2 * theta),
    followLabels(z, step) {  // C + Cᵀ has the eigenvalue 2 on the tokens' mean, and 2 (1 - softness) on what differs from it
      const mean = [0, 1].map((f) => (z[f] + z[2 + f] + z[4 + f]) / 3), [among, apart] = [2, 2 - 2 * SOFTNESS].map((value) => Math.exp(step * theta * value));
      return z.map((value, index) => among * mean[index % 2] + apart * (value - mean[index % 2]));
    },
    norm: theta * theta,
  };
}

function followAttention(problem, z, step) {
  const first = problem.attention(z), second = problem.attention(plus(z, step / 2, first));
  const third = problem.attention(plus(z, step / 2, second)), fourth = problem.attention(plus(z, step, third));
  return z.map((value, index) => value + step / 6 * (first[index] + 2 * second[index] + 2 * third[index] + fourth[index]));
}

const RULES = {
  euler: (problem, z, step) => plus(plus(z, step, problem.attention(z)), step, problem.drift(z)),
  printed(problem, z, step) {
    const attended = plus(z, step, problem.printed(z));
    return plus(attended, step, problem.drift(attended));
  },
  lie: (problem, z, step) => problem.followLabels(followAttention(problem, z, step), step),
  strang: (problem, z, step) => problem.followLabels(followAttention(problem, problem.followLabels(z, step / 2), step), step / 2),
};

function unroll(problem, scheme, layers, step) {
  const seen = [TOKENS];
  for (let layer = 0; layer < layers; layer++) seen.push(RULES[scheme](problem, seen[layer], step));
  return seen;
}

let latest = {};  // the errors do not depend on step and layers
function errorsOf(problem, velocity, key) {
  if (latest.key !== key) {
    const [final] = integrate(velocity, TOKENS, [TOTAL], { relative: 1e-12, absolute: 1e-13 });
    const error = (scheme, count) => Math.hypot(...unroll(problem, scheme, count, TOTAL / count)[count].map((value, index) => value - final[index]));
    const errors = Object.fromEntries(Object.keys(RULES).map((scheme) => [scheme, COUNTS.map((count) => bounded(error(scheme, count)))]));
    latest = { key, errors };
  }
  return latest.errors;
}

// The numbers that the picture shows; the Python class computes the same.
export function compute({ model, scheme, step, layers, scale }) {
  const problem = (model === "linear" ? linear : quadratic)(scale);
  const velocity = (z) => plus(problem.attention(z), 1, problem.drift(z));
  const grid = Array.from({ length: 61 }, (_, k) => layers * step * (k / 60) ** 2);
  return {
    losses: unroll(problem, scheme, layers, step).map((z) => bounded(problem.loss(z))),
    times: grid,
    exact: integrate(velocity, TOKENS, grid, { relative: 1e-8 }).map((z) => bounded(problem.loss(z))),
    errors: errorsOf(problem, velocity, `${model} ${scale}`),
    operator_norm_squared: problem.norm,
  };
}

const FRAME = [50, 34, 312, 268], STEPS = COUNTS.map((count) => TOTAL / count);
const STYLES = {
  euler: { name: "Euler", stroke: COLOURS[0], "stroke-dasharray": "none" },
  printed: { name: "printed", stroke: COLOURS[1], "stroke-dasharray": "2 6" },
  lie: { name: "Lie", stroke: COLOURS[2], "stroke-dasharray": "9 4" },
  strang: { name: "Strang", stroke: "#CC79A7", "stroke-dasharray": "9 4 2 4" },
};

const pictures = [
  { label: "The cross-entropy after each layer, beside that of the exact flow", box: "0 0 320 304" },
  { label: "The distance between network and flow at time 2 against the step, for four kinds of layer", box: "0 0 320 304" },
];
const controls = [
  { trait: "model", kind: "choice", label: "model" },
  { trait: "scheme", kind: "choice", label: "layer", names: (value) => STYLES[value].name },
  { trait: "step", label: "step", scale: "log", digits: 3 },
  { trait: "layers", label: "layers" },
  { trait: "scale", label: "scale of θ" },
];

function draw([left, right], now, state) {
  const { scheme, step, layers } = state, total = step * layers, style = STYLES[scheme];

  const shown = [...now.losses, ...now.exact].filter((value) => value !== null);
  const top = 1.08 * Math.min(Math.max(...shown), 3 * now.losses[0]);
  const put = axes(left, FRAME, { label: "time = step × layers", low: 0, high: total, ticks: ticksUpTo(total) },
    { label: "cross-entropy", low: 0, high: top, ticks: ticksUpTo(top) });
  const inside = clipped(left, FRAME);
  curve(inside, now.exact.map((value, k) => put([now.times[k], value])), { "stroke-width": 1.5 });
  const beyond = now.losses.some((value) => value === null || value > top);
  now.losses.forEach((value, layer) => {
    const [x, y] = put([step * layer, value ?? BEYOND]);
    if (y >= FRAME[1]) drawn("circle", { cx: x, cy: y, r: 4.5, fill: style.stroke, stroke: "currentColor" }, left);
    else mark(left, 1, [x, FRAME[1] + 6], 5, { fill: "none", stroke: style.stroke, "stroke-width": 2 });
  });
  drawn("circle", { cx: 52, cy: 17, r: 4.5, fill: style.stroke, stroke: "currentColor" }, left);
  drawn("text", { x: 62, y: 21, class: "ao-small" }, left, `${style.name} layers`);
  line(left, [152, 17], [172, 17], { "stroke-width": 1.5 });
  drawn("text", { x: 177, y: 21, class: "ao-small" }, left, "exact flow");
  if (beyond) {
    mark(left, 1, [252, 17], 5, { fill: "none", stroke: style.stroke, "stroke-width": 2 });
    drawn("text", { x: 262, y: 21, class: "ao-small" }, left, "above");
  }

  const found = Object.values(now.errors).flat().filter((value) => value !== null && value > 0);
  const low = 10 ** clamp(Math.floor(Math.log10(Math.min(...found))), -9, -2), high = 10 ** clamp(Math.ceil(Math.log10(Math.max(...found))), 0, 2);
  const decades = Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, k) => low * 10 ** k);
  const at = axes(right, FRAME, { label: "step", low: 0.028, high: 2.25, scale: Math.log, ticks: [0.03125, 0.125, 0.5, 2], text: (value) => show(value, value < 0.1 ? 3 : value < 0.5 ? 3 : 1) },
    { label: "distance to the flow at time 2", low, high, scale: Math.log, ticks: decades, text: power });
  const field = clipped(right, FRAME);
  for (const order of [1, 2]) {
    const guide = STEPS.map((value) => at([value, 0.5 * high * (value / 2) ** order]));
    curve(field, guide, { opacity: 0.5 });
  }
  if (step >= STEPS.at(-1) && step <= TOTAL) line(field, at([step, low]), at([step, high]), { opacity: 0.6, "stroke-dasharray": "1 3" });
  Object.entries(STYLES).forEach(([name, { name: title, ...look }], index) => {
    const width = name === scheme ? 4 : 1.8;
    const points = now.errors[name].map((value, k) => [STEPS[k], value]).filter(([, value]) => value !== null);
    curve(field, points.map(([h, value]) => at([h, Math.max(value, 1e-16)])), { ...look, "stroke-width": width });
    const x = [46, 110, 184, 234][index];
    line(right, [x, 17], [x + 22, 17], { ...look, "stroke-width": width });
    drawn("text", { x: x + 26, y: 21, class: "ao-small" }, right, title);
  });

  for (const order of [1, 2]) {
    const [x, y] = at([STEPS.at(-1), 0.5 * high * (STEPS.at(-1) / 2) ** order]);
    drawn("text", { x, y: y + (order === 1 ? -6 : 16), class: "ao-small ao-halo" }, right, `order ${order}`);
  }
}

function say(now, { model, scheme, step, layers }) {
  const total = step * layers, style = STYLES[scheme];
  const rise = now.losses.findIndex((value, layer) => layer > 0 && (value === null || value > now.losses[layer - 1] + 1e-9 * (1 + value)));
  const worded = (value) => (value === null ? "beyond a million" : show(value, 3)), stable = step * now.operator_norm_squared;
  return `${style.name}, ${layers} ${layers === 1 ? "layer" : "layers"} of step ${show(step, 3)}, time ${show(total)}: cross-entropy ${worded(now.losses.at(-1))}; exact flow ${worded(now.exact.at(-1))}. `
    + `‖θ‖² = ${show(now.operator_norm_squared)}${model === "linear" && ["euler", "printed"].includes(scheme) ? `, times the step ${show(stable)}: ${stable <= 4 ? "at most 4, so no Euler layer can climb" : "above 4, so an Euler layer may climb"}` : ""}. `
    + (rise < 0 ? "No layer raised the cross-entropy." : `Layer ${rise} is the first after which the cross-entropy has risen.`);
}

export default explorer({ pictures, controls, compute, draw, say });
