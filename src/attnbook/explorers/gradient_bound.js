// The gradient of a small clustering-head model, a true bound, and the paper's bound, as the weights are scaled.

import {
  axes,
  clamp,
  clipped,
  COLORS,
  curve,
  dot,
  drawn,
  gelu,
  line,
  mark,
  normalBelow,
  power,
  softmaxOf,
} from "./common.js";
import { explorer } from "./shell.js";

const MODELS = {
  solved: {
    token: [[-0.3, -0.8], [1.4, 2.8]],
    position: [[0.3, 0], [0.3, 0], [0.3, 0], [0.4, 1]],
    query: [0, -0.2],
    value: [[-0.5, -0.1], [-0.2, 0.7]],
    receptors: [[-1.2, 0.7], [2, -1.2], [0.9, 2.1], [-0.5, -1.4]],
    assemblers: [[-0.5, -0.9, 0.9, 0.5], [-1, -1.9, 1.8, 1.1]],
  },
  initial: {
    token: [[1.1, -0.1], [0.1, -0.9]],
    position: [[-0.1, 0.4], [-0.5, -0.2], [-0.2, 0.6], [0.9, 2.4]],
    query: [-0.1, 0],
    value: [[-0.2, -0.7], [0.4, 0.5]],
    receptors: [[0.6, -0.1], [0.6, 0.7], [-0.2, 0.1], [0.7, -0.4]],
    assemblers: [[-0.5, 0.4, 0.2, -0.2], [-0.1, 0.1, -0.4, -0.3]],
  },
};
const LENGTH = 4, COUNTED = 3, POINTS = 61;
const SLOPE = 1.1289041451202998; // the largest derivative of the GELU
const SEQUENCES = Array.from({ length: 16 }, (_, n) => [3, 2, 1, 0].map((bit) => (n >> bit) & 1));

const density = (x) => Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI);

// The largest singular value of a matrix with two rows, or with two columns.
function operatorNorm(matrix) {
  const rows = matrix.length === 2 ? matrix : [0, 1].map((f) => matrix.map((row) => row[f]));
  const product = (f, g) => rows[f].reduce((sum, value, k) => sum + value * rows[g][k], 0);
  const [a, b, c] = [product(0, 0), product(0, 1), product(1, 1)];
  return Math.sqrt((a + c) / 2 + Math.hypot((a - c) / 2, b));
}

// Norms of the four gradients, the true bounds and the paper's, with what the readout says beside.
function measure({ token, position, query, value, receptors, assemblers }) {
  const sums = { query: [0, 0], value: [0, 0, 0, 0], receptors: Array(8).fill(0), assemblers: Array(8).fill(0) };
  const add = (name, index, number) => {
    sums[name][index] += number / 16;
  };
  const norms = { value: operatorNorm(value), receptors: operatorNorm(receptors), assemblers: operatorNorm(assemblers) };
  const difference = [0, 1].map((f) => token[1][f] - token[0][f]), diameter = Math.hypot(...difference);
  let mean = 0, through = 0, square = 0, correct = 0, least = Infinity;
  for (const sequence of SEQUENCES) {
    const label = (sequence[0] + sequence[1] + sequence[2]) % 2;
    const z = sequence.map((x, t) => {
      const sum = [0, 1].map((f) => token[x][f] + position[t][f]), length = Math.hypot(...sum);
      return sum.map((number) => number / length);
    });
    const s = softmaxOf(z.map((column) => dot(column, query) / Math.SQRT2)).weights;
    const mixture = [0, 1].map((f) => z.reduce((sum, column, t) => sum + s[t] * column[f], 0));
    const xi = value.map((row) => dot(row, mixture)), length = Math.hypot(...xi), unit = xi.map((number) => number / length);
    const activations = receptors.map((row) => dot(row, unit));
    const fired = activations.map(gelu), slopes = activations.map((x) => normalBelow(x) + x * density(x));
    const psi = [0, 1].map((f) => xi[f] + assemblers[f].reduce((sum, u, i) => sum + u * fired[i], 0));
    const margin = (label ? 1 : -1) * dot(difference, psi), wrong = 1 / (1 + Math.exp(margin));
    const pull = difference.map((number) => (label ? -1 : 1) * wrong * number);
    const hidden = slopes.map((slope, i) => slope * (assemblers[0][i] * pull[0] + assemblers[1][i] * pull[1]));
    const back = [0, 1].map((f) => receptors.reduce((sum, row, i) => sum + row[f] * hidden[i], 0));
    const radial = dot(back, unit), onXi = pull.map((number, f) => number + (back[f] - radial * unit[f]) / length);
    const onMixture = [0, 1].map((f) => value[0][f] * onXi[0] + value[1][f] * onXi[1]), center = dot(mixture, onMixture);
    for (let f = 0; f < 2; f++) {
      add(
        "query",
        f,
        z.reduce((sum, column, t) => sum + s[t] * (dot(column, onMixture) - center) * column[f], 0) / Math.SQRT2,
      );
      for (let g = 0; g < 2; g++) add("value", 2 * f + g, onXi[f] * mixture[g]);
      for (let i = 0; i < 4; i++) {
        add("receptors", 2 * i + f, hidden[i] * unit[f]);
        add("assemblers", 4 * f + i, pull[f] * fired[i]);
      }
    }
    mean += wrong / 16;
    through += wrong * diameter * (1 + SLOPE * norms.receptors * norms.assemblers / length) / 16;
    square += (wrong * diameter) ** 2 / 16;
    correct += wrong < 0.5 ? 1 : 0;
    least = Math.min(least, length);
  }
  const { value: v, receptors: w, assemblers: u } = norms, size = Math.sqrt(square);
  const factors = [
    2 * LENGTH * Math.SQRT2 * v * (1 + Math.sqrt(2 / Math.PI) * w * w * u),
    Math.SQRT2 * (1 + 2 * w * u),
    2 * u,
    w,
  ];
  const largest = Math.max(...token.flat().map(Math.abs));
  const ours = [v * through / Math.SQRT2, through, SLOPE * u * mean * diameter, w * mean * diameter];
  const terms = [
    ["query", "value", "receptors", "assemblers"].map((name) => Math.hypot(...sums[name])),
    ours,
    factors.map((factor) => factor * size),
  ];
  const totals = [Math.hypot(...terms[0]), Math.hypot(...ours), Math.sqrt(8 * mean) * largest * Math.hypot(...factors)];
  const ratios = totals[0] > 0 ? totals.slice(1).map((bound) => bound / totals[0]) : null;
  return { terms, totals, ratios, distance: mean, correct, least_length: least };
}

function scaled(state) {
  const times = (matrix, factor) => matrix.map((row) => row.map((number) => number * factor)), base = MODELS[state.model];
  return {
    ...base,
    value: times(base.value, state.value * state.logits),
    receptors: times(base.receptors, state.receptors),
    assemblers: times(base.assemblers, state.assemblers * state.logits),
  };
}

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const factors = Array.from({ length: POINTS }, (_, k) => 10 ** (-3 + 4 * k / (POINTS - 1)));
  const along = factors.map((factor) => measure(scaled({ ...state, [state.along]: factor })).totals);
  return { factors, curves: [0, 1, 2].map((which) => along.map((totals) => totals[which])), ...measure(scaled(state)) };
}

const FRAME = [50, 34, 312, 268], FLOOR = 1e-16, NAMES = ["query", "value", "receptors", "assemblers"], PURPLE = "#CC79A7";
const SIGNS = { value: "V", receptors: "W", assemblers: "U", logits: "logits" };
const LOOKS = [
  { name: "gradient", stroke: "currentColor", "stroke-dasharray": "none", "stroke-width": 2.6 },
  { name: "our bound", stroke: COLORS[2], "stroke-dasharray": "none", "stroke-width": 1.8 },
  { name: "Odonnat et al.", stroke: PURPLE, "stroke-dasharray": "7 4", "stroke-width": 2.2 },
];
const written = (
  value,
) => (value === 0
  ? "0"
  : value >= 0.01 && value < 10000
  ? String(Number(value.toPrecision(3)))
  : value.toExponential(1).replace("-", "−"));

// Decades that hold the numbers, but nothing below the floor.
function decades(numbers) {
  const shown = numbers.length ? numbers : [FLOOR]; // a solved task can leave no error that a computer can tell from 0
  const low = Math.floor(Math.log10(Math.max(FLOOR, Math.min(...shown)))),
    high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(...shown))));
  const gap = Math.ceil((high - low) / 8);
  return {
    low: 10 ** low,
    high: 10 ** high,
    scale: Math.log,
    text: power,
    ticks: Array.from({ length: Math.floor((high - low) / gap) + 1 }, (_, k) => 10 ** (low + gap * k)),
  };
}

// The handle sits on the gradient's curve; it moves along the axis of factors, and keys up and down do what right and left do.
const LOWEST = 0.001, HIGHEST = 10, WIDTH = FRAME[2] - FRAME[0];
const columnOf = (factor) => FRAME[0] + WIDTH * Math.log(factor / LOWEST) / Math.log(HIGHEST / LOWEST);
function heightOf(now) {
  const { low, high } = decades(now.curves.flat()), value = clamp(now.totals[0], low, high);
  return FRAME[3] - (FRAME[3] - FRAME[1]) * Math.log(value / low) / Math.log(high / low);
}
function factorAt(x, y, state) {
  const old = columnOf(state[state.along]), column = Math.abs(x - old) < 1e-9 ? old + heightOf(compute(state)) - y : x;
  return LOWEST * (HIGHEST / LOWEST) ** clamp((column - FRAME[0]) / WIDTH, 0, 1);
}

const pictures = [
  { label: "Gradient norm, our bound and the paper’s bound as one factor varies", box: "0 0 320 304" },
  { label: "Gradient, our bound, and the paper’s bound for query, value, receptors and assemblers", box: "0 0 320 304" },
];
const controls = [
  {
    trait: "value",
    kind: "handle",
    label: "The factor",
    step: WIDTH / 40,
    mark: (node) => drawn("circle", { r: 6.5, fill: "currentColor" }, node),
    get: (state) => state[state.along],
    put: (value, { along }) => ({ [along]: value }),
    place: (factor, now) => [columnOf(factor), heightOf(now)],
    from: factorAt,
  },
  { trait: "model", kind: "choice", label: "model", names: { solved: "solves the task", initial: "at initialization" } },
  { trait: "along", kind: "choice", label: "curves over", names: SIGNS },
  ...Object.entries(SIGNS).map(([trait, sign]) => ({ trait, label: `factor of ${sign}`, scale: "log", digits: 3 })),
];

function drawCurves(picture, now, state, asking) {
  const factor = state[state.along], edges = decades(now.curves.flat());
  const put = axes(picture, FRAME, {
    label: `factor of ${SIGNS[state.along]}`,
    low: LOWEST,
    high: HIGHEST,
    scale: Math.log,
    ticks: [0.001, 0.01, 0.1, 1, 10],
  }, { label: "norm", ...edges });
  const field = clipped(picture, asking ? [columnOf(factor), ...FRAME.slice(1)] : FRAME);
  line(picture, put([factor, edges.low]), put([factor, edges.high]), { opacity: 0.6, "stroke-dasharray": "1 3" });
  LOOKS.forEach(({ name, ...look }, which) => {
    curve(field, now.curves[which].map((value, k) => put([now.factors[k], Math.max(value, FLOOR / 10)])), look);
    const x = [46, 136, 232][which];
    line(picture, [x, 17], [x + 22, 17], look);
    drawn("text", { x: x + 26, y: 21, class: "ao-small" }, picture, name);
  });
  if (asking) {
    drawn(
      "text",
      { x: (FRAME[0] + columnOf(factor)) / 2, y: (FRAME[1] + FRAME[3]) / 2, "text-anchor": "middle" },
      picture,
      "and here?",
    );
  }
}

function drawTerms(picture, now) {
  const y = decades(now.terms.flat().filter((value) => value > 0));
  const at = axes(picture, FRAME, {
    label: "gradient for",
    low: 0,
    high: 4,
    ticks: [0.5, 1.5, 2.5, 3.5],
    text: (value) => NAMES[value - 0.5],
  }, { label: "norm", ...y });
  NAMES.forEach((_, term) => {
    if (now.terms[0][term] < FLOOR) return; // the logits are so large that no error is left to draw
    const places = now.terms.map((values) => at([term + 0.5, Math.max(values[term], y.low)]));
    line(picture, places[0], places[1], { opacity: 0.4 });
    if (now.terms[2][term] < now.terms[0][term]) line(picture, places[0], places[2], { stroke: PURPLE, "stroke-width": 2 });
    [2, 1, 0].forEach((which) =>
      mark(picture, which, places[which], 5, { fill: LOOKS[which].stroke, stroke: "currentColor" })
    );
  });
  LOOKS.forEach(({ name, stroke }, which) => {
    const x = [56, 142, 236][which];
    mark(picture, which, [x, 17], 5, { fill: stroke, stroke: "currentColor" });
    drawn("text", { x: x + 10, y: 21, class: "ao-small" }, picture, name);
  });
}

function draw([curves, terms], now, state, bounds, asking) {
  drawCurves(curves, now, state, asking);
  drawTerms(terms, now);
}

function say(now) {
  const [gradient, ours, theirs] = now.totals,
    broken = NAMES.filter((_, term) => now.terms[2][term] < now.terms[0][term] * (1 - 1e-12))
      .map((name) => `the ${name === "value" ? "value matrix" : name}`);
  const beside = (bound) => (gradient > 0 ? ` (${written(now.ratios[bound])} times the gradient)` : "");
  return `${now.correct} of 16 sequences are classified correctly. Mean distance from the labels: ${
    written(now.distance)
  }; length of the shortest ξ: ${written(now.least_length)}. ` +
    `Gradient: ${written(gradient)}; our bound: ${written(ours)}${beside(0)}; the paper’s bound: ${written(theirs)}` +
    `${theirs < gradient ? " (violated)" : beside(1)}. ` +
    (broken.length
      ? `The paper’s ${broken.length === 1 ? "bound" : "bounds"} for ${broken.join(" and ")} ${
        broken.length === 1 ? "is" : "are"
      } violated.`
      : "None of the paper’s bounds on the four gradients is violated.");
}

const guess = {
  prompt:
    "This model classifies all 16 sequences correctly. Divide its value matrix V by 100: all answers stay right, with hardly less confidence. What does the gradient do?",
  tells: true,
  options: ["it shrinks with V", "it stays about as it is", "it grows"],
  of: (state) => ({ ...state, value: state.value / 100 }),
  reveal(answer, { totals: [from] }, state, { totals: [to] }) {
    return `${answer === undefined ? "It" : answer === "it grows" ? "Right: it" : "Not quite: it"} grows, from ${
      written(from)
    } to ${written(to)}. V determines ξ, and the feed-forward layer sees only the direction of ξ. ` +
      "The shorter ξ is, the more a small push turns it. The bound of Odonnat et al. (2025), the paper, depends on V only through the norm of V and the distance from the labels, so it does not follow the gradient.";
  },
};
const tour = [
  {
    set: { value: 0.01 },
    say:
      "V divided by 100: the whole gradient has almost reached the paper’s bound. The separate bound for V is already violated, and that for the query comes next: both gradients pass through the normalization of ξ.",
  },
  {
    set: { value: 0.001 },
    say:
      "V divided by 1000: the gradient is eight times the paper’s bound. Our bound contains 1/‖ξ‖ and stays above the gradient.",
  },
  {
    set: { along: "logits" },
    say:
      "Now V and U together, which scales the logits. The model is right at every factor, and its gradient falls (on these logarithmic axes, ever more steeply) but never reaches 0.",
  },
  {
    set: { along: "logits", logits: 4 },
    say: ({ totals: [gradient] }) =>
      `Four times the logits: the gradient has fallen to ${
        gradient.toFixed(5)
      } and is still not 0. Even larger logits would lower the loss further.`,
  },
  {
    set: { model: "initial", along: "logits" },
    say:
      "A model that is wrong on most sequences: larger logits make it wrong with more confidence, and the gradient grows.",
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
