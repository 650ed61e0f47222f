// Layers as steps of the feature flow: where three tokens are after each layer, with the flow, and the cross-entropy there, or
// the error against the step.

import {
  axes,
  clamp,
  clipped,
  COLORS,
  curve,
  drawn,
  integrate,
  line,
  mark,
  MARKS,
  power,
  show,
  ticksUpTo,
} from "./common.js";
import { explorer } from "./shell.js";

const TOTAL = 2, BEYOND = 1e6, FAR = 100, COUNTS = [1, 2, 4, 8, 16, 32, 64], CLASSES = [[1, 0], [0, 1], [-1, -1]];
const bounded = (value, most = BEYOND) => (value <= most ? value : null);
const plus = (z, step, slope) => z.map((value, index) => value + step * slope[index]);

// Z holds three tokens' two features in turn, θ the rows to which they attend, and a matrix its rows in turn.
function attend(z, theta, softness) {
  const other = softness / 3, own = 1 - softness + other;
  const weights = new Array(9);
  let loss = 0;
  for (let s = 0; s < 3; s++) {
    const logit = (c) => z[2 * s] * theta[2 * c] + z[2 * s + 1] * theta[2 * c + 1], a = logit(0), b = logit(1), c = logit(2);
    const top = Math.max(a, b, c), [p, q, r] = [Math.exp(a - top), Math.exp(b - top), Math.exp(c - top)], total = p + q + r;
    [weights[3 * s], weights[3 * s + 1], weights[3 * s + 2]] = [p / total, q / total, r / total];
    loss += top + Math.log(total) - other * (a + b + c) - (own - other) * [a, b, c][s];
  }
  return { weights, loss };
}

const times = (matrix, rows, scale) =>
  rows.map((_, index) => {
    const s = index >> 1, f = index % 2;
    return scale * (matrix[3 * s] * rows[f] + matrix[3 * s + 1] * rows[2 + f] + matrix[3 * s + 2] * rows[4 + f]);
  });
const labelsOf = (softness) => [0, 1, 2].flatMap((s) => [0, 1, 2].map((c) => (s === c ? 1 - softness : 0) + softness / 3));
const pairs = (z) => [[z[0], z[1]], [z[2], z[3]], [z[4], z[5]]];
const near = (z) => pairs(z).map((pair) => (Math.hypot(...pair) <= FAR ? pair : [null, null]));

// A model's cross-entropy, its field in two parts (attention and labels), the exact flow of the second, and ‖θ‖².
function linear(scale, softness) {
  const theta = CLASSES.flat().map((value) => scale * value), drift = times(labelsOf(softness), theta, 1);
  const attention = (z) => times(attend(z, theta, softness).weights, theta, -1);
  const product = (f, g) => [0, 2, 4].reduce((sum, row) => sum + theta[row + f] * theta[row + g], 0);
  return {
    loss: (z) => attend(z, theta, softness).loss,
    attention,
    printed: attention,
    drift: () => drift,
    followLabels: (z, step) => plus(z, step, drift),
    norm: (product(0, 0) + product(1, 1)) / 2 + Math.hypot((product(0, 0) - product(1, 1)) / 2, product(0, 1)),
  };
}

function quadratic(scale, softness) {
  const theta = scale / 2,
    labels = labelsOf(softness),
    attendSelf = (z) => attend(z, z.map((value) => theta * value), softness);
  return {
    loss: (z) => attendSelf(z).loss,
    attention(z) {
      const { weights } = attendSelf(z);
      return times(weights.map((value, index) => value + weights[3 * (index % 3) + Math.floor(index / 3)]), z, -theta);
    },
    printed: (z) => times(attendSelf(z).weights, z, -2 * theta),
    drift: (z) => times(labels, z, 2 * theta),
    followLabels(z, step) { // C + Cᵀ has the eigenvalue 2 on the tokens' mean, and 2 (1 - softness) on what differs from it
      const mean = [0, 1].map((f) => (z[f] + z[2 + f] + z[4 + f]) / 3),
        [among, apart] = [2, 2 - 2 * softness].map((value) => Math.exp(step * theta * value));
      return z.map((value, index) => among * mean[index % 2] + apart * (value - mean[index % 2]));
    },
    norm: theta * theta,
  };
}

function followAttention(problem, z, step) {
  const h = step / 4; // as many Runge–Kutta steps as `SUBSTEPS` of `attnopt.regression.blocks`
  for (let substep = 0; substep < 4; substep++) {
    const at = z, first = problem.attention(at), second = problem.attention(plus(at, h / 2, first));
    const third = problem.attention(plus(at, h / 2, second)), fourth = problem.attention(plus(at, h, third));
    z = at.map((value, index) => value + h / 6 * (first[index] + 2 * second[index] + 2 * third[index] + fourth[index]));
  }
  return z;
}

const RULES = {
  euler: (problem, z, step) => plus(plus(z, step, problem.attention(z)), step, problem.drift(z)),
  printed(problem, z, step) {
    const attended = plus(z, step, problem.printed(z));
    return plus(attended, step, problem.drift(attended));
  },
  lie: (problem, z, step) => problem.followLabels(followAttention(problem, z, step), step),
  strang: (problem, z, step) =>
    problem.followLabels(followAttention(problem, problem.followLabels(z, step / 2), step), step / 2),
};

function unroll(problem, tokens, scheme, layers, step) {
  const seen = [tokens];
  for (let layer = 0; layer < layers; layer++) seen.push(RULES[scheme](problem, seen[layer], step));
  return seen;
}

let latest = {}; // the errors do not depend on step and layers
function errorsOf(problem, tokens, velocity, key) {
  if (latest.key !== key) {
    const [final] = integrate(velocity, tokens, [TOTAL], { relative: 1e-12, absolute: 1e-13 });
    const error = (scheme, count) =>
      Math.hypot(
        ...unroll(problem, tokens, scheme, count, TOTAL / count)[count].map((value, index) => value - final[index]),
      );
    const errors = Object.fromEntries(
      Object.keys(RULES).map((scheme) => [scheme, COUNTS.map((count) => bounded(error(scheme, count), FAR))]),
    );
    latest = { key, errors };
  }
  return latest.errors;
}

// The numbers that the picture shows; the Python class computes the same.
export function compute({ model, scheme, step, layers, scale, softness, tokens }) {
  const problem = (model === "linear" ? linear : quadratic)(scale, softness), start = tokens.flat();
  const velocity = (z) => plus(problem.attention(z), 1, problem.drift(z));
  const grid = Array.from({ length: 61 }, (_, k) => layers * step * (k / 60) ** 2);
  const network = unroll(problem, start, scheme, layers, step), flow = integrate(velocity, start, grid, { relative: 1e-8 });
  return {
    path: network.map(near),
    flow: flow.map(near),
    rests: restsOf(model, scale, softness),
    losses: network.map((z) => bounded(problem.loss(z))),
    times: grid,
    exact: flow.map((z) => bounded(problem.loss(z))),
    errors: errorsOf(problem, start, velocity, `${model} ${scale} ${softness} ${start}`),
    operator_norm_squared: problem.norm,
    stretch: step * problem.norm,
  };
}

// Where belief is label: the class vectors' differences are (1, −1) and (2, 1), times the scale.
function restsOf(model, scale, softness) {
  if (model !== "linear" || softness === 0) return null;
  const labels = labelsOf(softness);
  return [0, 3, 6].map((row) => {
    const [p, q, r] = labels.slice(row, row + 3).map(Math.log), a = (p - q) / scale, b = (p - r) / scale;
    return [(a + b) / 3, (b - 2 * a) / 3];
  });
}

const REACH = 3.2, FRAME = [46, 34, 346, 334], STEPS = COUNTS.map((count) => TOTAL / count);
const STYLES = {
  euler: { name: "Euler", stroke: COLORS[0], "stroke-dasharray": "none" },
  printed: { name: "the paper’s", stroke: COLORS[1], "stroke-dasharray": "2 6" },
  lie: { name: "Lie", stroke: COLORS[2], "stroke-dasharray": "9 4" },
  strang: { name: "Strang", stroke: "#CC79A7", "stroke-dasharray": "9 4 2 4" },
};
const place = (
  [x, y],
) => [FRAME[0] + (FRAME[2] - FRAME[0]) * (1 + x / REACH) / 2, FRAME[1] + (FRAME[3] - FRAME[1]) * (1 - y / REACH) / 2];
const unplace = (
  x,
  y,
) => [REACH * (2 * (x - FRAME[0]) / (FRAME[2] - FRAME[0]) - 1), REACH * (1 - 2 * (y - FRAME[1]) / (FRAME[3] - FRAME[1]))];
const STEP = (FRAME[2] - FRAME[0]) / REACH / 20;
const filled = (node, index, at, radius) =>
  mark(node, index, at, radius, { fill: COLORS[index], stroke: "currentColor", "stroke-width": 1.5 });
const hollow = (node, index, at) => mark(node, index, at, 6, { fill: "none", stroke: COLORS[index], "stroke-width": 2.5 });
const isPair = ({ model }) => model !== "linear";

const pictures = [
  {
    label: "The plane of features: classes hollow, tokens filled, their paths along the flow and from layer to layer",
    box: "0 0 360 374",
  },
  {
    label: "The cross-entropy after each layer next to that of the flow, or the distance between the two by step size",
    box: "0 0 360 374",
  },
];
const controls = [
  ...[0, 1, 2].map((index) => ({
    trait: "tokens",
    at: index,
    kind: "handle",
    label: `Token ${index + 1}`,
    step: STEP,
    mark: (node) => filled(node, index, [0, 0], 8),
    place,
    from: unplace,
    size: 0.9,
  })),
  {
    trait: "scale",
    kind: "handle",
    label: "Vector of class 3, which scales all three",
    step: STEP,
    hidden: isPair,
    mark: (node) => hollow(node, 2, [0, 0]),
    place: (scale) => place([-scale, -scale]),
    size: 1.1,
    from: (x, y) => -unplace(x, y).reduce((sum, value) => sum + value, 0) / 2,
  },
  { trait: "layers", label: "layers" },
  { trait: "step", label: "step", scale: "log", digits: 3 },
  { trait: "scale", label: "scale of θ" },
  { trait: "softness", label: "label softness", step: 0.01 },
  { trait: "scheme", kind: "choice", label: "layer", names: (value) => STYLES[value].name },
  { trait: "shown", kind: "choice", label: "right picture", names: { loss: "cross-entropy", order: "error by step" } },
  { trait: "model", kind: "choice", label: "model" },
];

function drawPlane(plane, now, { scale, model, tokens }, asking) {
  const side = { low: -REACH, high: REACH, ticks: [-3, -2, -1, 0, 1, 2, 3] }, inside = clipped(plane, FRAME);
  axes(plane, FRAME, { ...side, label: "first feature" }, { ...side, label: "second feature" });
  if (model === "linear") {
    const corners = CLASSES.map((vector) => place(vector.map((value) => scale * value)));
    drawn("polygon", { points: corners.join(" "), fill: "none", stroke: "currentColor", "stroke-dasharray": "3 4" }, inside);
    corners.forEach((corner, index) => {
      if (asking || index < 2) hollow(plane, index, corner);
    });
  }
  const way = (points, attributes) => {
    const end = points.findIndex(([x]) => x === null), kept = end < 0 ? points : points.slice(0, end);
    curve(inside, kept.map(place), attributes);
    return kept;
  };
  [0, 1, 2].forEach((index) => {
    const flow = way(now.flow.map((state) => state[index]), { "stroke-width": 1.5 });
    if (now.rests) {
      const [x, y] = place(now.rests[index]);
      for (const turn of [1, -1]) {
        line(inside, [x - 5, y - 5 * turn], [x + 5, y + 5 * turn], { stroke: COLORS[index], "stroke-width": 2.5 });
      }
    } else if (flow.length) {
      const [x, y] = place(flow.at(-1));
      drawn("circle", { cx: x, cy: y, r: 2.5, fill: "currentColor" }, inside);
    }
    if (asking) {
      filled(plane, index, place(tokens[index]), 7);
      return;
    }
    const path = way(now.path.map((state) => state[index]), { stroke: COLORS[index], "stroke-width": 1, opacity: 0.75 });
    path.forEach((point, layer) => {
      const [cx, cy] = place(point), last = layer === now.path.length - 1;
      if (layer > 0) {
        drawn("circle", {
          cx,
          cy,
          r: last ? 5 : 2.8,
          fill: COLORS[index],
          stroke: "currentColor",
          "stroke-width": last ? 1.5 : 0.5,
        }, inside);
      }
    });
  });
  line(plane, [FRAME[0], 17], [FRAME[0] + 20, 17], { "stroke-width": 1.5 });
  drawn("text", { x: FRAME[0] + 25, y: 21, class: "ao-small" }, plane, "flow");
  line(plane, [FRAME[0] + 66, 17], [FRAME[0] + 92, 17], { stroke: COLORS[0] });
  drawn("circle", { cx: FRAME[0] + 79, cy: 17, r: 3, fill: COLORS[0] }, plane);
  drawn("text", { x: FRAME[0] + 97, y: 21, class: "ao-small" }, plane, "layers");
  if (now.rests) drawn("text", { x: FRAME[0] + 150, y: 21, class: "ao-small" }, plane, "×  where the flow rests");
}

function drawLosses(front, now, { scheme, step, layers }, asking) {
  const total = step * layers, style = STYLES[scheme], seen = asking ? now.exact : [...now.losses, ...now.exact];
  const top = 1.08 * Math.min(Math.max(...seen.filter((value) => value !== null)), 3 * now.losses[0]);
  const put = axes(front, FRAME, { label: "time = step × layers", low: 0, high: total, ticks: ticksUpTo(total) }, {
    label: "cross-entropy",
    low: 0,
    high: top,
    ticks: ticksUpTo(top),
  });
  const inside = clipped(front, FRAME);
  curve(inside, now.exact.flatMap((value, k) => (value === null ? [] : [put([now.times[k], value])])), {
    "stroke-width": 1.5,
  });
  line(front, [52, 17], [72, 17], { "stroke-width": 1.5 });
  drawn("text", { x: 77, y: 21, class: "ao-small" }, front, "flow");
  if (asking) {
    drawn(
      "text",
      { x: (FRAME[0] + FRAME[2]) / 2, y: (FRAME[1] + FRAME[3]) / 2, "text-anchor": "middle" },
      front,
      "layers: ?",
    );
    return;
  }
  curve(inside, now.losses.map((value, layer) => put([step * layer, Math.min(value ?? BEYOND, 3 * top)])), {
    stroke: style.stroke,
    opacity: 0.5,
  });
  now.losses.forEach((value, layer) => {
    const [x, y] = put([step * layer, value ?? BEYOND]);
    if (y >= FRAME[1]) drawn("circle", { cx: x, cy: y, r: 4.5, fill: style.stroke, stroke: "currentColor" }, front);
    else mark(front, 1, [x, FRAME[1] + 6], 5, { fill: "none", stroke: style.stroke, "stroke-width": 2 });
  });
  drawn("circle", { cx: 122, cy: 17, r: 4.5, fill: style.stroke, stroke: "currentColor" }, front);
  drawn("text", { x: 132, y: 21, class: "ao-small" }, front, `${style.name} layers`);
  if (now.losses.some((value) => value === null || value > top)) {
    mark(front, 1, [252, 17], 5, { fill: "none", stroke: style.stroke, "stroke-width": 2 });
    drawn("text", { x: 262, y: 21, class: "ao-small" }, front, "above");
  }
}

function drawOrders(front, now, { scheme, step }) {
  const found = Object.values(now.errors).flat().filter((value) => value !== null && value > 0);
  const low = 10 ** clamp(Math.floor(Math.log10(Math.min(...found))), -9, -2),
    high = 10 ** clamp(Math.ceil(Math.log10(Math.max(...found))), 0, 2);
  const decades = Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, k) => low * 10 ** k);
  const at = axes(front, FRAME, {
    label: "step",
    low: 0.028,
    high: 2.25,
    scale: Math.log,
    ticks: [0.03125, 0.125, 0.5, 2],
    text: (value) => show(value, value < 0.5 ? 3 : 1),
  }, { label: "distance to the flow at time 2", low, high, scale: Math.log, ticks: decades, text: power });
  const field = clipped(front, FRAME);
  for (const order of [1, 2]) {
    const guide = STEPS.map((value) => at([value, 0.5 * high * (value / 2) ** order]));
    curve(field, guide, { opacity: 0.5 });
  }
  if (step >= STEPS.at(-1) && step <= TOTAL) {
    line(field, at([step, low]), at([step, high]), { opacity: 0.6, "stroke-dasharray": "1 3" });
  }
  Object.entries(STYLES).forEach(([name, { name: title, ...look }], index) => {
    const width = name === scheme ? 4 : 1.8;
    const points = now.errors[name].map((value, k) => [STEPS[k], value]).filter(([, value]) => value !== null);
    curve(field, points.map(([h, value]) => at([h, Math.max(value, 1e-16)])), { ...look, "stroke-width": width });
    const x = [46, 112, 208, 268][index];
    line(front, [x, 17], [x + 20, 17], { ...look, "stroke-width": width });
    drawn("text", { x: x + 24, y: 21, class: "ao-small" }, front, title);
  });
  for (const order of [1, 2]) {
    const [x, y] = at([STEPS.at(-1), 0.5 * high * (STEPS.at(-1) / 2) ** order]);
    drawn("text", { x, y: y + (order === 1 ? -6 : 16), class: "ao-small ao-halo" }, front, `order ${order}`);
  }
}

function draw([plane, front], now, state, bounds, asking) {
  drawPlane(plane, now, state, asking);
  if (state.shown === "loss") drawLosses(front, now, state, asking);
  else drawOrders(front, now, state);
}

const firstRise = (losses) =>
  losses.findIndex((value, layer) => layer > 0 && (value === null || value > losses[layer - 1] + 1e-9 * (1 + value)));

function say(now, { model, scheme, step, layers, tokens }) {
  const style = STYLES[scheme], rise = firstRise(now.losses);
  const worded = (value) => (value === null ? "beyond a million" : show(value, 3));
  const ends = now.path.at(-1).map((end, index) =>
    `${MARKS[index]} ${end[0] === null ? "far away" : `(${end.map((value) => show(value)).join(", ")})`}`
  ).join(", ");
  const bound = model === "linear" && ["euler", "printed"].includes(scheme)
    ? `; step × ‖θ‖² = ${show(now.stretch)} is ${
      now.stretch <= 4
        ? "at most 4, so no layer can raise the cross-entropy"
        : "above 4, so a layer may raise the cross-entropy"
    }`
    : "";
  return `${style.name}, ${layers} ${layers === 1 ? "layer" : "layers"} of step ${show(step, 3)}, time ${
    show(now.times.at(-1))
  }: cross-entropy ${worded(now.losses.at(-1))}; exact flow ${worded(now.exact.at(-1))}. ` +
    `‖θ‖² = ${show(now.operator_norm_squared)}${bound}. ` +
    `${rise < 0 ? "No layer raised the cross-entropy." : `Layer ${rise} is the first to raise the cross-entropy.`} ` +
    `From ${
      tokens.map((token, index) => `${MARKS[index]} (${token.map((value) => show(value)).join(", ")})`).join(", ")
    } to ${ends}.`;
}

const OUTCOMES = ["also come to rest", "jump back and forth", "escape to infinity"];
const guess = {
  prompt:
    "The curves show the flow: with soft labels (0.8 for a token’s own class, 0.1 for each other class), every token comes to rest at the cross of its color. A layer takes a step of size 1 instead. What do the tokens do after many layers?",
  options: OUTCOMES,
  reveal(guessed, now) {
    const [last, before] = [now.path.at(-1), now.path.at(-2)];
    const away = last.some(([x]) => x === null),
      moving = !away && last.some((end, index) => Math.hypot(end[0] - before[index][0], end[1] - before[index][1]) > 0.05);
    const found = OUTCOMES[away ? 2 : moving ? 1 : 0];
    return `${found === guessed ? "Right" : "Not quite"}: they ${found}. ` +
      (moving
        ? "The steps are too long for class vectors of this length. Drag the hollow square toward 0 until the tokens come to rest."
        : "");
  },
};

export default explorer({ pictures, controls, compute, draw, say, guess });
