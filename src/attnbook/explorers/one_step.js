// One prompt in two dimensions: one layer of linear attention predicts with the weights of one gradient step from 0.

import {
  arrow,
  axes,
  clamp,
  clipped,
  COLORS,
  curve,
  dot,
  drawn,
  ellipse,
  line,
  mark,
  pair,
  show,
  standardNormals,
  star,
} from "./common.js";
import { explorer } from "./shell.js";

const PROMPTS = 10, PURPLE = "#CC79A7", YELLOW = "#E69F00";

// The numbers that the picture shows; the Python class computes the same.
export function compute({ weights, query, examples: n, prompt, step, spread }) {
  const covariates = standardNormals(prompt, n).map(([u, v]) => [u, Math.sqrt(spread) * v]);
  const labels = covariates.map((x) => dot(weights, x)),
    mean = (part) => covariates.reduce((sum, x) => sum + part(x), 0) / n;
  const [a, b, c] = [mean(([u]) => u * u), mean(([u, v]) => u * v), mean(([, v]) => v * v)];
  const middle = (a + c) / 2,
    radius = Math.hypot((a - c) / 2, b),
    slope = [a * weights[0] + b * weights[1], b * weights[0] + c * weights[1]];
  const reached = slope.map((value) => step * value);
  const steps = [1, spread].map((value) => n / ((n + 1) * value + 1 + spread)),
    trained = slope.map((value, i) => steps[i] * value);
  const loss = (w) => covariates.reduce((sum, x, i) => sum + (dot(w, x) - labels[i]) ** 2, 0) / (2 * n);
  return {
    covariates,
    labels,
    reached,
    steps,
    trained,
    pushes: covariates.map((x, i) => x.map((value) => step / n * labels[i] * value)),
    gram: [a, b, c],
    curvatures: [middle + radius, Math.max(middle - radius, 0)],
    losses: { start: loss([0, 0]), reached: loss(reached), trained: loss(trained) },
    label: dot(weights, query),
    predictions: { reached: dot(reached, query), trained: dot(trained, query) },
    longest: 2 / (middle + radius),
    turned: Math.abs(Math.atan2(weights[0] * reached[1] - weights[1] * reached[0], dot(weights, reached) || 0)) * 180 /
      Math.PI,
  };
}

const FRAME = [44, 22, 312, 290];
// A square of numbers from -reach to reach in the frame, and back.
function plane(reach) {
  const unit = (FRAME[2] - FRAME[0]) / (2 * reach), [x, y] = [(FRAME[0] + FRAME[2]) / 2, (FRAME[1] + FRAME[3]) / 2];
  return {
    reach,
    unit,
    place: ([u, v]) => [x + unit * u, y - unit * v],
    back: (left, top) => [(left - x) / unit, (y - top) / unit],
  };
}
const COVARIATES = plane(3.5), WEIGHTS = plane(3);
const inside = (pair, { reach }) => Math.max(...pair.map(Math.abs)) <= reach;

const diamond = (parent, [x, y]) =>
  drawn("polygon", {
    points: `${x},${y - 7} ${x + 6},${y} ${x},${y + 7} ${x - 6},${y}`,
    fill: COLORS[2],
    stroke: "currentColor",
  }, parent);
const square = (parent, at) => mark(parent, 2, at, 7, { fill: YELLOW, stroke: "currentColor", "stroke-width": 1.5 });

const pictures = [
  { label: "The prompt: examples by the sign and size of their labels, and the query", box: "0 0 320 324" },
  { label: "The plane of weights: contours of the examples’ loss, the step from 0, the best layer", box: "0 0 320 324" },
];
const controls = [
  {
    trait: "query",
    kind: "handle",
    label: "The query",
    step: COVARIATES.unit / 10,
    mark: (node) => square(node, [0, 0]),
    place: COVARIATES.place,
    from: COVARIATES.back,
  },
  {
    trait: "weights",
    kind: "handle",
    picture: 1,
    label: "The weights of the labels",
    step: WEIGHTS.unit / 10,
    mark: (node) => star(node, [0, 0]),
    place: WEIGHTS.place,
    from: WEIGHTS.back,
  },
  { trait: "step", label: "step η", step: 0.05 },
  { trait: "examples", label: "examples n" },
  { trait: "spread", label: "eigenvalue 2", step: 0.05 },
  {
    trait: "prompt",
    kind: "actions",
    label: "covariates",
    place: "ao-tokens",
    acts: { "another prompt": ({ prompt }) => ({ prompt: (prompt + 1) % PROMPTS }) },
  },
];

const square2 = (axis, reach) => ({
  label: axis,
  low: -reach,
  high: reach,
  ticks: [-3, -2, -1, 0, 1, 2, 3].filter((value) => Math.abs(value) < reach),
});

function drawPrompt(picture, now, { weights, query }, asking) {
  const { place, reach } = COVARIATES;
  axes(picture, FRAME, square2("first covariate", reach), square2("second covariate", reach));
  const field = clipped(picture, FRAME);
  // Where labels, or predictions, change their sign; each is named at one of its ends, these on two sides.
  const border = (normal, side, name, look) => {
    const size = Math.max(...normal.map(Math.abs));
    if (size < 1e-9) return;
    const end = [-side * normal[1], side * normal[0]].map((value) => value / size * reach);
    line(field, place(end), place(end.map((value) => -value)), look);
    const [x, y] = place(end.map((value) => 0.84 * value));
    drawn(
      "text",
      { x: clamp(x, FRAME[0] + 38, FRAME[2] - 38), y: y - 4, "text-anchor": "middle", class: "ao-small ao-halo" },
      field,
      name,
    );
  };
  border(weights, 1, "label 0", { "stroke-dasharray": "6 4" });
  if (!asking) border(now.reached, -1, "prediction 0", { stroke: COLORS[1], "stroke-width": 2, "stroke-dasharray": "2 3" });
  now.covariates.forEach((x, i) => {
    const radius = 3 + 3 * Math.sqrt(Math.abs(now.labels[i])), positive = now.labels[i] >= 0;
    mark(
      field,
      positive ? 0 : 1,
      place(x),
      radius,
      positive ? { fill: COLORS[0], opacity: 0.85 } : { fill: "none", stroke: PURPLE, "stroke-width": 2.2 },
    );
  });
  if (asking) square(field, place(query));
  const [x, y] = place(query), above = y > FRAME[3] - 44;
  const says = asking
    ? [`label ${show(now.label)}`]
    : [`predicted ${show(now.predictions.reached)}`, `label ${show(now.label)}`];
  says.forEach((text, row) =>
    drawn(
      "text",
      {
        x: clamp(x, FRAME[0] + 46, FRAME[2] - 46),
        y: above ? y - 13 * (says.length - row) : y + 21 + 13 * row,
        "text-anchor": "middle",
        class: "ao-small ao-halo",
      },
      picture,
      text,
    )
  );
  mark(picture, 0, [50, 10], 5, { fill: COLORS[0] });
  drawn("text", { x: 59, y: 14, class: "ao-small" }, picture, "label > 0");
  mark(picture, 1, [124, 11], 5, { fill: "none", stroke: PURPLE, "stroke-width": 2 });
  drawn("text", { x: 133, y: 14, class: "ao-small" }, picture, "label < 0");
  mark(picture, 2, [198, 10], 5, { fill: YELLOW, stroke: "currentColor" });
  drawn("text", { x: 208, y: 14, class: "ao-small" }, picture, "query");
}

function drawWeights(picture, now, { weights, step }, asking) {
  const { place, reach } = WEIGHTS;
  axes(picture, FRAME, square2("first weight", reach), square2("second weight", reach));
  const field = clipped(picture, FRAME),
    contour = (level, look) => curve(field, ellipse(weights, now.gram, level).map(place), look);
  for (let k = 1; k <= 9; k++) contour(now.curvatures[0] / 8 * k * k, { opacity: 0.3 });
  if (now.losses.start > 1e-9) contour(now.losses.start, { "stroke-dasharray": "6 4", "stroke-width": 1.4 });
  const [x, y] = place([0, 0]);
  line(picture, [x - 6, y], [x + 6, y], { "stroke-width": 2 });
  line(picture, [x, y - 6], [x, y + 6], { "stroke-width": 2 });
  drawn("text", { x: x - 8, y: y + 15, "text-anchor": "middle", class: "ao-halo" }, picture, "0");
  star(picture, [50, 10]);
  drawn("text", { x: 62, y: 14, class: "ao-small" }, picture, "w⋆");
  if (asking) {
    star(picture, place(weights));
    drawn("text", { x: 88, y: 14, class: "ao-small" }, picture, `lines: equal loss on the examples; η = ${show(step)}`);
    return;
  }
  const chain = [[0, 0]];
  for (const push of now.pushes) chain.push([chain.at(-1)[0] + push[0], chain.at(-1)[1] + push[1]]);
  if (now.pushes.length > 1) curve(field, chain.map(place), { stroke: COLORS[1], "stroke-width": 1.2, opacity: 0.75 });
  if (now.pushes.length > 1) {
    for (const [cx, cy] of chain.slice(1, -1).map(place)) {
      drawn("circle", { cx, cy, r: 1.8, fill: COLORS[1], opacity: 0.75 }, field);
    }
  }
  arrow(field, place([0, 0]), place(now.reached), { stroke: COLORS[1], "stroke-width": 3 });
  diamond(field, place(now.trained));
  const round = (parent, [cx, cy], r) => drawn("circle", { cx, cy, r, fill: COLORS[1], stroke: "currentColor" }, parent);
  round(field, place(now.reached), 5);
  round(picture, [92, 10], 5);
  drawn("text", { x: 101, y: 14, class: "ao-small" }, picture, "w₁, one step");
  diamond(picture, [182, 10]);
  drawn("text", { x: 193, y: 14, class: "ao-small" }, picture, "best layer");
}

function draw([prompt, weights], now, state, bounds, asking) {
  drawPrompt(prompt, now, state, asking);
  drawWeights(weights, now, state, asking);
}

const figures = (value) => (value < 0.0005 ? "0.000" : value < 1 ? show(value, 3) : String(Number(value.toPrecision(4))));

function say(now, { examples: n, step }) {
  const { start, reached, trained } = now.losses, beyond = step > now.longest;
  const moves = figures(reached) === figures(start)
    ? "leaves the loss on"
    : reached < start
    ? "lowers the loss on"
    : "raises the loss on";
  return `The layer predicts ${show(now.predictions.reached)} for the query; the label is ${show(now.label)}. ` +
    `It predicts with w₁ = ${pair(now.reached)}${
      inside(now.reached, WEIGHTS) ? "" : ", outside the picture"
    }: one step of size ${show(step)} from 0, which ${moves} the ${n === 1 ? "example" : `${n} examples`} ` +
    (figures(reached) === figures(start) ? `at ${figures(start)}. ` : `from ${figures(start)} to ${figures(reached)}. `) +
    (beyond
      ? `A step size beyond ${
        show(now.longest)
      }, which is two over the largest curvature, overshoots so far that the error in that direction grows. `
      : "") +
    `The best layer for prompts of this kind (Theorem 1) brings this loss to ${figures(trained)} and predicts ${
      show(now.predictions.trained)
    }. ` +
    (n === 1 ? "One example does not determine w⋆ in the direction across x₁." : "Least squares would find w⋆.");
}

const guess = {
  prompt:
    "The layer takes one gradient step of size η from 0 on half the mean squared error, whose contours are drawn. Which weights does it reach? Drag the cross.",
  picture: 1,
  start: WEIGHTS.place([-1, -1]),
  reveal(point, { reached, turned }, { weights }) {
    const marked = WEIGHTS.back(...point), away = Math.hypot(marked[0] - reached[0], marked[1] - reached[1]);
    return `Your cross at ${pair(marked)} is ${show(away)} away from w₁ = ${
      pair(reached)
    }. The step leaves 0 at a right angle to the contour, ${show(turned, 0)}° off the direction of w⋆ = ${pair(weights)}.`;
  },
};
const tour = [
  {
    set: { examples: 1 },
    say:
      "One example: w₁ lies on the line through 0 along x₁. Across x₁, along the contours, the example says nothing about the weights.",
  },
  {
    set: { examples: 30, spread: 1, step: 1 },
    say: "Thirty examples, Σ = I: w₁ = η H w⋆, and H is nearly I. A step of size 1 almost lands.",
  },
  {
    set: { examples: 30, spread: 1, step: 2.5 },
    say:
      "The step is too large: w₁ flies past w⋆ and leaves the dashed contour, on which the loss is the same as at 0. The loss has risen.",
  },
  {
    set: { examples: 30, spread: 0.1, step: 1 },
    say:
      "Unequal directions: the step that serves the first weight hardly moves the second. The step that would serve the second is too large for the first.",
  },
  {
    set: { examples: 30, spread: 0.1, step: 1, weights: [-1.4, 1.6] },
    say: ({ steps: [first, second] }) =>
      `The best layer (diamond) has a step for each direction, whatever w⋆ is: ${show(first)} along the first weight and ${
        show(second)
      } along the second.`,
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
