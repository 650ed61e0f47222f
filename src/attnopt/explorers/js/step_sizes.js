// Steps of plain layers: the residual polynomial over the mean spectrum, and the exact loss by the spectrum's Gauss rule.

import { axes, clamp, clipped, COLOURS, curve, drawn, line, mark, show, ticksUpTo, tidy } from "./common.js";
import { explorer } from "./shell.js";

const DEPTH = 4, POINTS = 121;
const reach = (dim, context) => 1.3 * (1 + Math.sqrt(dim / context)) ** 2;
const residualAt = (sizes, value) => sizes.reduce((product, size) => product * (1 - size * value), 1);
const rowOf = ({ table, dim, n_context: context }) => table[`${dim} ${context}`];

function sizesOf(state, scheme, layers) {
  const row = rowOf(state), ratio = state.dim / state.n_context;
  if (scheme === "own") return state.own.slice(0, layers);
  if (scheme === "optimal") return row.optimal[layers - 1];
  if (scheme === "constant") return Array(layers).fill(row.constant[layers - 1]);
  return Array.from({ length: layers }, (_, j) => 1 / (1 + ratio + 2 * Math.sqrt(ratio) * Math.cos((2 * j + 1) * Math.PI / (2 * layers))));
}

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  if (!rowOf(state)) return null;  // a kernel adds the row when it is asked for
  const { nodes, weights } = rowOf(state), end = reach(state.dim, state.n_context);
  const loss = (sizes) => nodes.reduce((sum, node, q) => sum + weights[q] * residualAt(sizes, node) ** 2, 0);
  const sizes = sizesOf(state, state.scheme, state.layers);
  const grid = Array.from({ length: POINTS }, (_, k) => end * k / (POINTS - 1));
  const byDepth = (name) => Array.from({ length: DEPTH }, (_, k) => loss(sizesOf(state, name, k + 1)));
  return {
    sizes,
    loss: loss(sizes),
    best: loss(sizesOf(state, "optimal", state.layers)),
    grid,
    residual: grid.map((value) => residualAt(sizes, value)),
    losses: { optimal: byDepth("optimal"), constant: byDepth("constant"), chebyshev: byDepth("chebyshev") },
  };
}

const FRAME = [50, 34, 312, 268];
const STYLES = {
  optimal: { name: "optimal", stroke: COLOURS[0], "stroke-dasharray": "none", sign: 0 },
  constant: { name: "best equal", stroke: COLOURS[1], "stroke-dasharray": "9 4", sign: 1 },
  chebyshev: { name: "Chebyshev", stroke: COLOURS[2], "stroke-dasharray": "2 5", sign: 2 },
};
const number = (value) => (value < 1e-3 || value >= 1e4 ? value.toExponential(2).replace("e+", "e").replace("-", "−") : String(Number(value.toPrecision(4))));
const tenth = (value) => (value >= 1 ? tidy(value) : value.toFixed(Math.max(0, -Math.round(Math.log10(value)))));

const pictures = [
  { label: "The residual polynomial over the mean spectrum of the Gram matrix", box: "0 0 320 304" },
  { label: "The loss per dimension for one to four layers", box: "0 0 320 304" },
];
const controls = [
  { trait: "dim", kind: "choice", label: "dimensions d" },
  { trait: "scheme", kind: "choice", label: "steps", names: (value) => STYLES[value]?.name ?? value },
  { trait: "n_context", label: "examples n", digits: 0 },
  { trait: "layers", label: "layers" },
  ...Array.from({ length: DEPTH }, (_, index) => ({
    trait: "own", label: `size of step ${index + 1}`, scale: "log", step: 0.005, figures: 4, digits: 3,
    hidden: ({ layers }) => index >= layers, get: (_, now) => now?.sizes[index],
    put(size, state, { low, high }) {  // from here on the steps are the reader's, starting from those shown
      if (!rowOf(state)) return {};
      const own = [...state.own];
      sizesOf(state, state.scheme, state.layers).forEach((value, layer) => { own[layer] = clamp(value, low, high); });
      own[index] = size;
      return { own, scheme: "own" };
    },
  })),
];

function draw([left, right], now, state) {
  const { dim, n_context: context, layers, scheme } = state;
  const { nodes, weights } = rowOf(state), colour = STYLES[scheme]?.stroke ?? "#CC79A7", end = reach(dim, context);

  const put = axes(left, FRAME, { label: "eigenvalue λ", low: 0, high: end, ticks: ticksUpTo(end) },
    { label: "residual R(λ)", low: -1.2, high: 1.2, ticks: [-1, -0.5, 0, 0.5, 1] });
  const inside = clipped(left, FRAME);
  const edges = [0, ...nodes.slice(1).map((node, q) => (node + nodes[q]) / 2), 2 * nodes.at(-1) - nodes.at(-2)];
  const heights = weights.map((weight, q) => weight / Math.max(edges[q + 1] - edges[q], 1e-9));
  const highest = Math.max(...(context < dim ? heights.slice(1) : heights));
  heights.forEach((height, q) => {
    const [x, y] = put([edges[q], -1.2 + Math.min(1.1 * height / highest, 2.4)]), [right] = put([edges[q + 1], 0]);
    drawn("rect", { x, y, width: Math.max(right - x - 0.6, 1.5), height: FRAME[3] - y, fill: "currentColor", opacity: 0.22 }, inside);
  });
  line(inside, put([0, 0]), put([end, 0]), { opacity: 0.5 });
  curve(inside, now.grid.map((value, k) => put([value, clamp(now.residual[k], -50, 50)])), { stroke: colour, "stroke-width": 2.5 });
  for (const size of now.sizes) if (1 / size <= end) {
    const [x, y] = put([1 / size, 0]);
    drawn("circle", { cx: x, cy: y, r: 4.5, fill: colour, stroke: "currentColor" }, inside);
  }
  drawn("circle", { cx: 54, cy: 17, r: 4.5, fill: colour, stroke: "currentColor" }, left);
  drawn("text", { x: 63, y: 21, class: "ao-small" }, left, "roots, 1 / size");
  drawn("rect", { x: 160, y: 11, width: 12, height: 12, fill: "currentColor", opacity: 0.22 }, left);
  drawn("text", { x: 178, y: 21, class: "ao-small" }, left, context < dim ? `spectrum, ${dim - context} of ${dim} at 0` : "mean spectrum of G");

  const all = [...Object.values(now.losses).flat(), now.loss].map((value) => value / dim);
  const low = 10 ** Math.floor(Math.log10(Math.min(...all))), high = 10 ** clamp(Math.ceil(Math.log10(Math.max(...all))), 0, 2);
  const decades = Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, k) => low * 10 ** k);
  const at = axes(right, FRAME, { label: "layers", low: 0.7, high: DEPTH + 0.3, ticks: [1, 2, 3, 4] },
    { label: "loss / d", low, high, scale: Math.log, ticks: decades, text: tenth });
  const field = clipped(right, FRAME);
  Object.entries(STYLES).forEach(([name, { name: title, sign, ...look }], index) => {
    const points = now.losses[name].map((value, k) => at([k + 1, Math.min(value / dim, 1e9)]));
    curve(field, points, { ...look, "stroke-width": name === scheme ? 3.5 : 1.8 });
    for (const point of points) mark(field, sign, point, 4, { fill: look.stroke });
    const x = [52, 130, 222][index];
    line(right, [x, 17], [x + 20, 17], { ...look, "stroke-width": 2 });
    mark(right, sign, [x + 10, 17], 4, { fill: look.stroke });
    drawn("text", { x: x + 25, y: 21, class: "ao-small" }, right, title);
  });
  const [x, y] = at([layers, now.loss / dim]);
  if (y >= FRAME[1]) drawn("circle", { cx: x, cy: y, r: 8.5, fill: "none", stroke: "currentColor", "stroke-width": 2.5 }, right);
  else mark(right, 1, [x, FRAME[1] + 7], 6, { fill: "none", stroke: "currentColor", "stroke-width": 2 });
}

function say(now, { dim, n_context: context, layers, scheme }) {
  if (!now) return `Python computes the spectrum for d = ${dim}, n = ${context} …`;
  const above = 100 * (now.loss / now.best - 1), share = 100 * now.loss / dim;
  return `d = ${dim}, n = ${context}, ${layers} ${layers === 1 ? "layer" : "layers"}, ${STYLES[scheme]?.name ?? "own"} steps of size ${now.sizes.map((size) => show(size, 3)).join(", ")}: `
    + `loss ${number(now.loss)}, ${number(share)} % of the loss without layers. `
    + (above < 0.005 ? "That is the optimum." : `The optimum is ${number(now.best)}; this is ${above < 1000 ? `${show(above, above < 10 ? 2 : 0)} % above` : `${number(now.loss / now.best)} times as much`}.`)
    + (context < dim ? ` No steps come below ${dim - context}: the examples leave as many directions unseen.` : "");
}

export default explorer({ pictures, controls, compute, draw, say });
