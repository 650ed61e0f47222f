// Three logits and a temperature: softmax on the simplex, its Jacobian's axes, log-sum-exp against the maximum.

import { axes, COLOURS, drawn, line, show, softmaxOf } from "./common.js";
import { explorer } from "./shell.js";

const ACROSS = [1 / Math.SQRT2, -1 / Math.SQRT2, 0], UP = [1, 1, -2].map((value) => value / Math.sqrt(6));  // basis of the plane sum = 0
const dot = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);

// The numbers that the picture shows; the Python class computes the same.
export function compute({ logits, temperature }) {
  const { weights, lse } = softmaxOf(logits.map((logit) => logit / temperature));
  const image = (v) => weights.map((weight, index) => weight * (v[index] - dot(weights, v)));  // (diag s - s s^T) v
  const [a, b, c] = [dot(ACROSS, image(ACROSS)), dot(ACROSS, image(UP)), dot(UP, image(UP))];
  const middle = (a + c) / 2, radius = Math.hypot((a - c) / 2, b), angle = 0.5 * Math.atan2(2 * b, a - c);
  const plane = [[Math.cos(angle), Math.sin(angle)], [-Math.sin(angle), Math.cos(angle)]];
  return {
    softmax: weights,
    smooth_maximum: temperature * lse,
    eigenvalues: [middle + radius, middle - radius],
    eigenvectors: plane.map(([x, y]) => ACROSS.map((value, index) => x * value + y * UP[index])),
  };
}

const total = (values) => dot(values, [1, 1, 1]);
const SIDE = 190, CENTRE = [160, 128];
// Isometric up to the scale SIDE / sqrt 2; class 1 left, 2 right, 3 on top.
const place = (s) => [CENTRE[0] - SIDE * (dot(ACROSS, s) / Math.SQRT2), CENTRE[1] + SIDE * (dot(UP, s) / Math.SQRT2)];
const unplace = (x, y) => {
  const across = (CENTRE[0] - x) * Math.SQRT2 / SIDE, up = (y - CENTRE[1]) * Math.SQRT2 / SIDE;
  return [0, 1, 2].map((index) => 1 / 3 + across * ACROSS[index] + up * UP[index]);
};

const pictures = [
  { label: "The simplex of three probabilities with softmax as a point and the axes of its Jacobian", box: "0 0 320 240" },
  { label: "Three logits as bars, with their maximum and the smooth maximum as lines", box: "0 0 320 240" },
];
const controls = [
  {
    trait: "logits", kind: "handle", label: "Softmax, a point of the simplex",
    mark: (node) => drawn("circle", { r: 9, fill: COLOURS[1], stroke: "currentColor", "stroke-width": 1.5 }, node),
    place: (_, { softmax }) => place(softmax),
    from(x, y, { logits, temperature }) {
      const logs = unplace(x, y).map((value) => temperature * Math.log(Math.max(value, 1e-4)));
      const shift = (total(logits) - total(logs)) / 3;  // softmax does not see the mean: keep it
      return logs.map((value) => value + shift);
    },
  },
  ...[0, 1, 2].map((index) => ({ trait: "logits", at: index, label: `logit ${index + 1}` })),
  { trait: "temperature", label: "temperature" },
];

function draw([left, right], { softmax, smooth_maximum, eigenvalues, eigenvectors }, state) {
  const top = Math.max(...state.logits), corners = [[1, 0, 0], [0, 1, 0], [0, 0, 1]].map(place);
  drawn("polygon", { points: corners.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.2 }, left);
  corners.forEach(([x, y], index) => drawn("text", { x: x + [-14, 14, 0][index], y: y + [6, 6, -8][index], "text-anchor": "middle" }, left, String(index + 1)));

  const at = place(softmax), reach = 150;  // an eigenvalue of 1/2 reaches the dashed circle
  drawn("circle", { cx: at[0], cy: at[1], r: reach / 2, fill: "none", stroke: "currentColor", "stroke-dasharray": "3 4", opacity: 0.55 }, left);
  eigenvectors.forEach((vector, index) => {
    const direction = [-dot(ACROSS, vector), dot(UP, vector)].map((value) => value * reach * eigenvalues[index]);
    line(left, [at[0] - direction[0], at[1] - direction[1]], [at[0] + direction[0], at[1] + direction[1]],
      { stroke: COLOURS[index === 0 ? 0 : 2], "stroke-width": 4, "stroke-linecap": "round" });
  });

  const bottom = -3.2, height = (value) => 225 - 215 * (value - bottom) / (6.5 - bottom), floor = height(0);
  line(right, [30, floor], [310, floor], { opacity: 0.4 });
  drawn("text", { x: 24, y: floor + 4, "text-anchor": "end" }, right, "0");
  state.logits.forEach((logit, index) => {
    const x = 48 + 60 * index, [y0, y1] = [height(Math.max(logit, 0)), height(Math.min(logit, 0))];
    drawn("rect", { x, y: y0, width: 36, height: Math.max(y1 - y0, 1), fill: COLOURS[0], "fill-opacity": 0.25 + 0.75 * softmax[index], stroke: COLOURS[0] }, right);
    drawn("text", { x: x + 18, y: 238, "text-anchor": "middle" }, right, show(softmax[index]));
  });
  const limit = top + state.temperature * Math.log(3);
  for (const [value, dash, colour] of [[top, "none", "currentColor"], [smooth_maximum, "none", COLOURS[1]], [limit, "3 4", "currentColor"]]) {
    line(right, [40, height(value)], [226, height(value)], { stroke: colour, "stroke-width": 2, "stroke-dasharray": dash });
  }
  // Labels beside the lines, pushed apart where the lines are close.
  const low = height(top) + 4, mid = Math.min(height(smooth_maximum) + 4, low - 13), high = Math.min(height(limit) + 4, mid - 13);
  drawn("text", { x: 232, y: low, class: "ao-small" }, right, "max");
  drawn("text", { x: 232, y: mid, class: "ao-small" }, right, "T·LSE(x/T)");
  drawn("text", { x: 232, y: high, class: "ao-small" }, right, "max + T log 3");

}

function say({ softmax, smooth_maximum, eigenvalues }, { logits, temperature }) {
  const top = Math.max(...logits);
  return `softmax (${softmax.map((value) => show(value)).join(", ")}); T·LSE exceeds max by ${show(smooth_maximum - top, 3)}`
    + ` of at most ${show(temperature * Math.log(3), 3)}; eigenvalues of the Jacobian ${show(eigenvalues[0], 3)}, ${show(eigenvalues[1], 3)} and 0.`;
}

export default explorer({ pictures, controls, compute, draw, say });
