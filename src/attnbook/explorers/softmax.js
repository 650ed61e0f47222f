// Three scores and a temperature: softmax on the simplex, what a nudge of the scores does to it, log-sum-exp and the maximum.

import { arrow, clamp, clipped, COLORS, curve, dot, drawn, line, mark, minus, show, softmaxOf } from "./common.js";
import { explorer } from "./shell.js";

const ACROSS = [1 / Math.SQRT2, -1 / Math.SQRT2, 0], UP = [1, 1, -2].map((value) => value / Math.sqrt(6)); // basis of the plane sum = 0
const jacobian = (weights, v) => weights.map((weight, index) => weight * (v[index] - dot(weights, v))); // (diag s - s sᵀ) v

// The numbers that the picture shows; the Python class computes the same.
export function compute({ logits, before, temperature }) {
  const [{ weights, lse }, old] = [logits, before].map((scores) => softmaxOf(scores.map((score) => score / temperature)));
  const nudge = minus(logits, before),
    step = jacobian(old.weights, nudge).map((value) => value / temperature),
    [across, up] = [jacobian(weights, ACROSS), jacobian(weights, UP)];
  const [a, b, c] = [dot(ACROSS, across), dot(ACROSS, up), dot(UP, up)];
  const middle = (a + c) / 2, radius = Math.hypot((a - c) / 2, b), angle = 0.5 * Math.atan2(2 * b, a - c);
  const plane = [[Math.cos(angle), Math.sin(angle)], [-Math.sin(angle), Math.cos(angle)]];
  return {
    softmax: weights,
    start: old.weights,
    smooth_maximum: temperature * lse,
    rise: temperature * (lse - old.lse),
    slope: dot(old.weights, nudge),
    step,
    nudge,
    moved: Math.hypot(...minus(weights, old.weights)),
    first_order: Math.hypot(...step),
    excess: temperature * lse - Math.max(...logits),
    most: temperature * Math.log(3),
    eigenvalues: [middle + radius, middle - radius],
    eigenvectors: plane.map(([x, y]) => ACROSS.map((value, index) => x * value + y * UP[index])),
  };
}

const CLASSES = ["○", "△", "□"], PURPLE = "#CC79A7", BOX = [0, 0, 320, 244];
const PAPER = "var(--pst-color-background, var(--jp-layout-color0, Canvas))";
const total = (values) => dot(values, [1, 1, 1]);
const SIDE = 212, CENTRE = [160, 152], UNIT = SIDE / Math.SQRT2; // corners are √2 apart
// Class 1 left, 2 right, 3 on top; `flat` takes differences of weights.
const flat = (v) => [-UNIT * dot(ACROSS, v), UNIT * dot(UP, v)];
const place = (s) => flat(s).map((value, index) => CENTRE[index] + value);
const unplace = (x, y) => {
  const across = (CENTRE[0] - x) / UNIT, up = (y - CENTRE[1]) / UNIT;
  return [0, 1, 2].map((index) => 1 / 3 + across * ACROSS[index] + up * UP[index]);
};

const HIGH = 6.5, LOW = -3.2, BARS = [14, 222]; // scores, and where they are drawn
const height = (value) => BARS[1] - (BARS[1] - BARS[0]) * (value - LOW) / (HIGH - LOW);
const unheight = (y) => LOW + (HIGH - LOW) * (BARS[1] - y) / (BARS[1] - BARS[0]);
const middleOf = (index) => 72 + 56 * index;

// A nudge from where the scores are; what would leave the sliders is shifted down first, which softmax does not see.
const kept = (values) => values.map((value) => clamp(Number(value.toPrecision(12)), -3, 3));
const nudged = (by) => (state) => {
  const nudge = by(state),
    after = state.logits.map((value, index) => value + nudge[index]),
    excess = Math.max(0, Math.max(...after) - 3);
  return { before: kept(state.logits.map((value) => value - excess)), logits: kept(after.map((value) => value - excess)) };
};
const raise = [0, 1, 2].map((raised) => nudged(() => [0, 1, 2].map((index) => (index === raised ? Math.LN2 : 0))));

const pictures = [
  {
    label: "The simplex of three weights with softmax as a point, the path it has taken, and the ellipse of its Jacobian",
    box: BOX.join(" "),
  },
  { label: "Three scores as bars, with their maximum and the smooth maximum as lines", box: BOX.join(" ") },
];
const controls = [
  {
    trait: "logits",
    kind: "handle",
    label: "The weights, a point of the simplex",
    mark: (node) => mark(node, 0, [0, 0], 9, { fill: COLORS[0], stroke: "currentColor", "stroke-width": 1.5 }),
    place: (_, { softmax }) => place(softmax),
    from(x, y, { logits, temperature }) {
      const logs = unplace(x, y).map((value) => temperature * Math.log(Math.max(value, 1e-4)));
      const shift = (total(logits) - total(logs)) / 3; // softmax does not see the mean: keep it
      return logs.map((value) => value + shift);
    },
  },
  ...[0, 1, 2].map((index) => ({
    trait: "logits",
    at: index,
    kind: "handle",
    picture: 1,
    label: `Score of class ${index + 1}`,
    mark: (node) => mark(node, index, [0, 0], 7, { fill: PAPER, stroke: COLORS[index], "stroke-width": 2.5 }),
    place: (value) => [middleOf(index), height(value)],
    from: (x, y, { logits }) => unheight(y === height(logits[index]) ? y - x + middleOf(index) : y), // also the keys ← and →
  })),
  {
    trait: "before",
    kind: "actions",
    label: "nudge by log 2",
    place: "ao-tokens",
    top: true,
    acts: {
      ...Object.fromEntries(CLASSES.map((name, index) => [`raise ${name}`, raise[index]])),
      "raise all": nudged(() => [Math.LN2, Math.LN2, Math.LN2]),
      "along the longer axis": nudged((state) => compute(state).eigenvectors[0].map((value) => Math.LN2 * value)),
      "make this the start": ({ logits }) => ({ before: logits }),
    },
  },
  ...[0, 1, 2].map((index) => ({ trait: "logits", at: index, label: `score ${index + 1} ${CLASSES[index]}` })),
  { trait: "temperature", label: "temperature" },
];

const moved = ({ logits, before }) => Math.max(...minus(logits, before).map(Math.abs)) > 1e-9;

function drawSimplex(picture, { softmax, start, step, eigenvalues, eigenvectors }, state, asking) {
  const inside = clipped(picture, BOX),
    corners = [[1, 0, 0], [0, 1, 0], [0, 0, 1]].map(place),
    at = place(softmax),
    from = place(start);
  drawn("polygon", { points: corners.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.2 }, inside);
  corners.forEach(([x, y], index) =>
    mark(picture, index, [x + [-14, 14, 0][index], y + [8, 8, -14][index]], 7, {
      fill: "none",
      stroke: COLORS[index],
      "stroke-width": 2.5,
    })
  );
  if (asking) {
    drawn(
      "text",
      { x: CENTRE[0], y: 241, "text-anchor": "middle", class: "ao-small" },
      picture,
      "at a corner, one class has all the weight",
    );
    mark(picture, 0, from, 9, { fill: COLORS[0], stroke: "currentColor", "stroke-width": 1.5 });
    return;
  }
  drawn("circle", {
    cx: at[0],
    cy: at[1],
    r: UNIT / 2,
    fill: "none",
    stroke: "currentColor",
    "stroke-dasharray": "3 4",
    opacity: 0.7,
  }, inside);
  const [longer, shorter] = eigenvectors.map((vector, index) => flat(vector).map((value) => value * eigenvalues[index]));
  const ellipse = Array.from({ length: 73 }, (_, k) => {
    const [cos, sin] = [Math.cos(k * Math.PI / 36), Math.sin(k * Math.PI / 36)];
    return at.map((value, index) => value + cos * longer[index] + sin * shorter[index]);
  });
  curve(inside, ellipse, { fill: "currentColor", "fill-opacity": 0.1, opacity: 0.6 });
  for (const axis of [longer, shorter]) {
    line(inside, minus(at, axis), at.map((value, index) => value + axis[index]), { opacity: 0.6 });
  }
  if (moved(state)) {
    const way = Array.from(
      { length: 41 },
      (_, k) => state.before.map((old, index) => (old + k / 40 * (state.logits[index] - old)) / state.temperature),
    );
    arrow(inside, from, flat(step).map((value, index) => from[index] + value), { stroke: PURPLE, "stroke-width": 5 });
    curve(inside, way.map((scores) => place(softmaxOf(scores).weights)), { "stroke-width": 2 });
    mark(inside, 0, from, 5, { fill: COLORS[0], stroke: "currentColor" });
  }
  drawn(
    "text",
    { x: CENTRE[0], y: 241, "text-anchor": "middle", class: "ao-small ao-halo" },
    picture,
    "ellipse: nudges of length T; circle: radius ½",
  );
}

function drawBars(picture, { softmax, start, smooth_maximum }, { logits, before, temperature }, asking) {
  const floor = height(0);
  line(picture, [40, floor], [216, floor], { opacity: 0.4 });
  drawn("text", { x: 34, y: floor + 4, "text-anchor": "end" }, picture, "0");
  drawn("text", { x: 4, y: 14, class: "ao-small" }, picture, "scores");
  drawn("text", { x: 4, y: 240, class: "ao-small" }, picture, "weight");
  (asking ? before : logits).forEach((score, index) => {
    const x = middleOf(index),
      bar = (value) => ({
        x: x - 18,
        y: height(Math.max(value, 0)),
        width: 36,
        height: Math.max(Math.abs(height(value) - floor), 1),
      });
    const weight = (asking ? start : softmax)[index];
    drawn("rect", { ...bar(score), fill: COLORS[index], "fill-opacity": 0.2 + 0.6 * weight }, picture);
    if (!asking && Math.abs(score - before[index]) > 1e-9) {
      drawn("rect", { ...bar(before[index]), fill: "none", stroke: "currentColor", "stroke-dasharray": "2 3" }, picture);
    }
    if (asking) mark(picture, index, [x, height(score)], 7, { fill: PAPER, stroke: COLORS[index], "stroke-width": 2.5 });
    drawn("text", { x, y: 240, "text-anchor": "middle" }, picture, `${CLASSES[index]} ${show(weight)}`);
  });
  if (asking) {
    arrow(picture, [middleOf(1), height(0) - 9], [middleOf(1), height(Math.LN2) - 20], { "stroke-width": 2.5 });
    drawn(
      "text",
      { x: middleOf(1), y: height(Math.LN2) - 26, "text-anchor": "middle", class: "ao-small" },
      picture,
      "+ log 2",
    );
    return;
  }
  const top = Math.max(...logits), limit = top + temperature * Math.log(3);
  for (const [value, look] of [[top, {}], [smooth_maximum, { "stroke-width": 3 }], [limit, { "stroke-dasharray": "3 4" }]]) {
    line(picture, [46, height(value)], [224, height(value)], look);
  }
  // Labels next to the lines, pushed apart where the lines are close.
  const low = height(top) + 4,
    middle = Math.min(height(smooth_maximum) + 4, low - 13),
    high = Math.min(height(limit) + 4, middle - 13);
  drawn("text", { x: 230, y: low, class: "ao-small" }, picture, "max");
  drawn("text", { x: 230, y: middle, class: "ao-small" }, picture, "T·LSE(a/T)");
  drawn("text", { x: 230, y: high, class: "ao-small" }, picture, "max + T log 3");
}

function draw([simplex, bars], now, state, bounds, asking) {
  drawSimplex(simplex, now, state, asking);
  drawBars(bars, now, state, asking);
}

const triple = (values) => `(${values.map((value) => show(value)).join(", ")})`;

// What a nudge does, in words; one of a single score or of all by the same amount has words of its own.
function course({ nudge, moved: distance, first_order: straight, rise, slope }, state) {
  if (!moved(state)) return "";
  const touched = nudge.flatMap((value, index) => (Math.abs(value) > 1e-9 ? index : []));
  const alike = Math.max(...nudge) - Math.min(...nudge) < 1e-9, [one] = touched;
  const way = alike
    ? "All scores have moved by the same amount, and the weights stay where they were. "
    : touched.length === 1
    ? `Only the score of ${CLASSES[one]} has moved, and the weights move straight ${
      nudge[one] > 0 ? "toward" : "away from"
    } its corner. `
    : "";
  return `${way}The scores have moved by ${triple(nudge)}, the weights by ${show(distance)} (to first order by ${
    show(straight)
  }, the purple line). ` +
    `Log-sum-exp has changed by ${show(rise, 3)}; to first order, by ${
      show(slope, 3)
    }, the average of the nudge’s entries weighted by the old weights. `;
}

function say(now, state) {
  const { softmax, excess, most, eigenvalues } = now;
  return `The weights are ${triple(softmax)}. ${course(now, state)}` +
    `Semi-axes of the ellipse: ${show(eigenvalues[0])} and ${show(eigenvalues[1])}, never above ½. ` +
    `T·LSE exceeds the maximum by ${show(excess, 3)}; the bound is ${show(most, 3)}.`;
}

const guess = {
  prompt:
    "The scores log 2, 0, −log 2 give the classes ○ △ □ the weights 4/7, 2/7, 1/7, which the point in the triangle shows. Now the score of △ rises by log 2. Where does the point go? Drag the cross.",
  picture: 0,
  start: place([0.2, 0.15, 0.65]),
  reveal(point, { softmax }) {
    const away = Math.hypot(...minus(unplace(...point), softmax));
    return `Your cross is ${show(away)} away from the new weights, ${
      triple(softmax)
    }. The point moves straight toward the corner △, because ○ and □ keep the ratio of their weights, 4 to 1.`;
  },
};

export default explorer({ pictures, controls, compute, draw, say, guess });
