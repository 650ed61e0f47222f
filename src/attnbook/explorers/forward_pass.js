// Layers of linear attention on one prompt: the row of labels layer by layer, and the weights that it follows.

import {
  axes,
  clipped,
  COLORS,
  curve,
  dot,
  drawn,
  ellipse,
  judged,
  line,
  mark,
  pair,
  show,
  standardNormals,
  star,
} from "./common.js";
import { explorer } from "./shell.js";

const PROMPTS = 10, DEPTH = 8, PURPLE = "#CC79A7";

// The numbers that the picture shows; the Python class computes the same.
export function compute({ weights, query, examples: n, prompt, step, spread, mask }) {
  const covariates = standardNormals(prompt, n).map(([u, v]) => [u, Math.sqrt(spread) * v]), tokens = [...covariates, query];
  const y = covariates.map((x) => dot(weights, x)), seen = n + (mask === "off" ? 1 : 0);
  const labels = [[...y, 0]], path = [[0, 0]];
  for (let layer = 0; layer < DEPTH; layer++) {
    const row = labels.at(-1),
      moved = [0, 1].map((f) => step / n * tokens.slice(0, seen).reduce((sum, x, j) => sum + row[j] * x[f], 0));
    labels.push(row.map((entry, j) => entry - dot(moved, tokens[j])));
    path.push(path.at(-1).map((value, f) => value + moved[f]));
  }
  const mean = (part) => covariates.reduce((sum, x) => sum + part(x), 0) / n;
  const [a, b, c] = [mean(([u]) => u * u), mean(([u, v]) => u * v), mean(([, v]) => v * v)];
  const middle = (a + c) / 2, radius = Math.hypot((a - c) / 2, b);
  return {
    labels,
    path,
    losses: path.map((w) => covariates.reduce((sum, x, j) => sum + (dot(w, x) - y[j]) ** 2, 0) / (2 * n)),
    gram: [a, b, c],
    curvatures: [middle + radius, Math.max(middle - radius, 0)],
    label: dot(weights, query),
  };
}

const FRAME = [44, 22, 312, 290], REACH = 3, UNIT = (FRAME[2] - FRAME[0]) / (2 * REACH);
const place = ([u, v]) => [(FRAME[0] + FRAME[2]) / 2 + UNIT * u, (FRAME[1] + FRAME[3]) / 2 - UNIT * v];
const back = (left, top) => [(left - (FRAME[0] + FRAME[2]) / 2) / UNIT, ((FRAME[1] + FRAME[3]) / 2 - top) / UNIT];
const colorOf = (mask) => (mask === "on" ? COLORS[1] : PURPLE);

const pictures = [
  { label: "The plane of weights: contours of the examples’ loss, and the weights after each layer", box: "0 0 320 324" },
  { label: "The row of labels after each layer: the examples’ entries, and the query’s", box: "0 0 320 324" },
];
const controls = [
  {
    trait: "weights",
    kind: "handle",
    label: "The weights of the labels",
    step: UNIT / 10,
    mark: (node) => star(node, [0, 0]),
    place,
    from: back,
  },
  {
    trait: "layers",
    kind: "actions",
    label: "layers",
    place: "ao-tokens",
    top: true,
    acts: {
      "one more": ({ layers }) => ({ layers: Math.min(layers + 1, DEPTH) }),
      "one less": ({ layers }) => ({ layers: Math.max(layers - 1, 0) }),
    },
  },
  {
    trait: "mask",
    kind: "choice",
    label: "mask",
    place: "ao-tokens",
    top: true,
    names: { on: "on: the query is hidden", off: "off: tokens see the query" },
  },
  { trait: "layers", label: "layers" },
  { trait: "step", label: "step η", step: 0.05 },
  { trait: "query", at: 0, label: "query, first covariate", step: 0.1 },
  { trait: "query", at: 1, label: "query, second covariate", step: 0.1 },
  { trait: "examples", label: "examples n" },
  { trait: "spread", label: "second eigenvalue of the covariance", step: 0.05 },
  {
    trait: "prompt",
    kind: "actions",
    label: "examples",
    place: "ao-tokens",
    acts: { "another prompt": ({ prompt }) => ({ prompt: (prompt + 1) % PROMPTS }) },
  },
];

function drawWeights(picture, now, { weights, mask }, layers, asking) {
  const ticks = [-2, -1, 0, 1, 2];
  axes(picture, FRAME, { label: "first weight", low: -REACH, high: REACH, ticks }, {
    label: "second weight",
    low: -REACH,
    high: REACH,
    ticks,
  });
  const field = clipped(picture, FRAME);
  for (let k = 1; k <= 9; k++) {
    curve(field, ellipse(weights, now.gram, now.curvatures[0] / 8 * k * k).map(place), { opacity: 0.3 });
  }
  const path = now.path.slice(0, layers + 1), fill = colorOf(mask);
  curve(field, path.map(place), { stroke: fill, "stroke-width": 2.5 });
  path.forEach((w, layer) => {
    const [cx, cy] = place(w);
    drawn("circle", { cx, cy, r: layer === layers ? 5.5 : 4, fill, stroke: "currentColor" }, field);
    if (layer < 3) {
      drawn(
        "text",
        { x: cx + (w[0] <= 0 ? -9 : 9), y: cy + 14, "text-anchor": w[0] <= 0 ? "end" : "start", class: "ao-small ao-halo" },
        field,
        `w${"₀₁₂"[layer]}`,
      );
    }
  });
  if (asking) star(field, place(weights)); // its handle is hidden
  star(picture, [50, 10]);
  drawn("text", { x: 62, y: 14, class: "ao-small" }, picture, "true w⋆");
  drawn("circle", { cx: 116, cy: 10, r: 5, fill, stroke: "currentColor" }, picture);
  drawn("text", { x: 126, y: 14, class: "ao-small" }, picture, "w by layer; curves: equal loss");
}

function drawLabels(picture, now, { mask }, layers, asking) {
  const rows = now.labels.slice(0, layers + 1), fill = colorOf(mask), aim = -now.label;
  const most = Math.max(1, Math.abs(aim), ...rows.flat().map(Math.abs)) * 1.08, gap = 10 ** Math.floor(Math.log10(most));
  const unit = [gap / 2, gap, 2 * gap].find((one) => most / one <= 4) ?? 5 * gap, ends = Math.floor(most / unit);
  const at = axes(picture, FRAME, {
    label: "layers",
    low: -0.3,
    high: DEPTH + 0.3,
    ticks: Array.from({ length: DEPTH + 1 }, (_, k) => k),
  }, {
    label: "entry of each token",
    low: -most,
    high: most,
    ticks: Array.from({ length: 2 * ends + 1 }, (_, k) => (k - ends) * unit),
  });
  line(picture, at([-0.3, 0]), at([DEPTH + 0.3, 0]), { opacity: 0.4 });
  for (
    const [level, name] of asking
      ? [[aim, "minus the query’s label"], [-aim, "the query’s label"]]
      : [[aim, "minus the query’s label"]]
  ) {
    const [from, to] = [at([-0.3, level]), at([DEPTH + 0.3, level])];
    line(picture, from, to, { "stroke-dasharray": "6 4", "stroke-width": 1.4 });
    drawn(
      "text",
      { x: to[0] - 4, y: to[1] + (level > 0 ? -6 : 15), "text-anchor": "end", class: "ao-small ao-halo" },
      picture,
      name,
    );
  }
  const n = rows[0].length - 1;
  for (let j = 0; j < n; j++) {
    const points = rows.map((row, layer) => at([layer, row[j]]));
    curve(picture, points, { stroke: COLORS[0], "stroke-width": 1.3, opacity: 0.85 });
    for (const [cx, cy] of points) drawn("circle", { cx, cy, r: 3, fill: COLORS[0] }, picture);
  }
  const points = rows.map((row, layer) => at([layer, row[n]]));
  curve(picture, points, { stroke: fill, "stroke-width": 2.8 });
  for (const point of points) mark(picture, 2, point, 5, { fill, stroke: "currentColor" });
  drawn("circle", { cx: 52, cy: 10, r: 4, fill: COLORS[0] }, picture);
  drawn("text", { x: 61, y: 14, class: "ao-small" }, picture, n === 1 ? "the example" : "examples");
  mark(picture, 2, [150, 10], 5, { fill, stroke: "currentColor" });
  drawn("text", { x: 160, y: 14, class: "ao-small" }, picture, "query");
}

function draw([weights, labels], now, state, bounds, asking) {
  const layers = asking ? 1 : state.layers;
  drawWeights(weights, now, state, layers, asking);
  drawLabels(labels, now, state, layers, asking);
}

const subscript = (value) => String(value).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]);

function say(now, { layers, mask, examples: n }) {
  const w = now.path[layers], name = `w${subscript(layers)}`, entry = now.labels[layers].at(-1);
  const out = w.some((value) => Math.abs(value) > REACH) ? ", outside the picture" : "";
  return `After ${layers} ${layers === 1 ? "layer" : "layers"}, the query’s entry is ${show(entry)}: the prediction is ${
    show(-entry)
  }, the label ${show(now.label)}. ` +
    `Each entry is its initial value minus ⟨${name}, x⟩, with ${name} = ${pair(w)}${out}. ` +
    `The loss on the ${n === 1 ? "example" : `${n} examples`} is ${show(now.losses[layers], 3)}${
      layers ? `; at w = 0, it was ${show(now.losses[0], 3)}` : ""
    }.` +
    (mask === "on"
      ? ""
      : " Without the mask, the query counts as an example whose label is 0, and the steps descend the loss with that example added.");
}

const guess = {
  prompt:
    "One layer has been applied. After many layers, the examples’ entries are near 0. Where is the query’s entry then?",
  tells: true,
  options: ["at 0", "at its label", "at minus its label"],
  of: (state) => ({ ...state, mask: "on" }),
  reveal(answer, now, state, { labels, label }) {
    return judged(answer, answer === "at minus its label", "At minus its label.") +
      ` Each layer acts like one gradient step on w: after any number of layers, a token’s entry is its initial value minus ⟨w, x⟩, with the token’s own x and the same w for all tokens. The examples’ entries start at their labels and end near 0, so ⟨w, x⟩ is close to their labels. Thus w is close to the true weights, so for the query’s x, too, ⟨w, x⟩ is close to the label. ` +
      `The query’s entry starts at 0, so it ends near minus this label, and we take minus the entry as the prediction. After ${DEPTH} layers, the prediction is ${
        show(-labels[DEPTH].at(-1))
      }, and the query’s label is ${show(label)}.`;
  },
};
const tour = [
  { set: { layers: 0 }, say: "Before the first layer, each example’s entry is its label, and the query’s entry is 0." },
  { set: { layers: 1 }, say: "One layer subtracts ⟨w₁, x⟩ from every entry, where w₁ is one gradient step from 0." },
  {
    set: { layers: 8 },
    say: "Eight layers: the examples’ entries are the residuals of w₈. The query’s entry is near minus its label.",
  },
  {
    set: { layers: 8, step: 1.6 },
    say:
      "The step is too large: the entries change sign at every layer and grow, because w overshoots along the steepest direction.",
  },
  {
    set: { layers: 8, mask: "off" },
    say:
      "Without the mask, the query counts as an example with the label 0: the path turns away from w⋆, and the prediction stays too small.",
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
