// Three tokens, three classes, two features: the descent field of one token, and the attention matrix on either axis.

import { arrow, COLOURS, drawn, line, mark, MARKS, show, softmaxOf } from "./common.js";
import { explorer } from "./shell.js";

// The numbers that the picture shows; the Python class computes the same.
export function compute({ tokens, weights, softness, axis }) {
  const logits = tokens.map((z) => weights.map((w) => z[0] * w[0] + z[1] * w[1]));
  const transpose = (matrix) => matrix[0].map((_, column) => matrix.map((row) => row[column]));
  const slices = (axis === "class" ? logits : transpose(logits)).map(softmaxOf);
  const normalised = slices.map((slice) => slice.weights);
  const attention = axis === "class" ? normalised : transpose(normalised);
  const labels = [0, 1, 2].map((s) => [0, 1, 2].map((c) => (s === c ? 1 - softness : 0) + softness / 3));
  const combine = (rows) => rows.map((row) => [0, 1].map((f) => row.reduce((sum, value, c) => sum + value * weights[c][f], 0)));
  const [output, target] = [combine(attention), combine(labels)];
  const lse = slices.reduce((sum, slice) => sum + slice.lse, 0);
  const fit = labels.flat().reduce((sum, value, index) => sum + value * logits.flat()[index], 0);
  return {
    attention, output, target,
    gradient: output.map((row, s) => row.map((value, f) => value - target[s][f])),
    loss: lse - fit,
  };
}

const REACH = 3, SIZE = 320;
const place = ([x, y]) => [SIZE / 2 * (1 + x / REACH), SIZE / 2 * (1 - y / REACH)];
const unplace = (x, y) => [REACH * (2 * x / SIZE - 1), REACH * (1 - 2 * y / SIZE)];

const pictures = [
  { label: "The feature plane: class weights, tokens, and the descent direction of the chosen token at each point", box: `0 0 ${SIZE} ${SIZE}` },
  { label: "The attention matrix, a row for each token and a column for each class, with its sums", box: "0 0 320 320" },
];
const controls = [
  ...[0, 1, 2].map((index) => ({
    trait: "tokens", at: index, kind: "handle", label: `Token ${index + 1}`, step: SIZE / REACH / 20, focus: { selected: index },
    mark: (node) => mark(node, index, [0, 0], 9, { fill: COLOURS[index], stroke: "currentColor", "stroke-width": 1.5 }),
    place, from: unplace, size: ({ selected }) => (index === selected ? 1.15 : 0.8),
  })),
  { trait: "selected", kind: "choice", label: "token", names: (index) => `${MARKS[index]} ${index + 1}` },
  { trait: "axis", kind: "choice", label: "softmax over", names: { class: "classes", sequence: "tokens" } },
  ...["first", "second"].map((name, f) => ({ trait: "tokens", at: ({ selected }) => [selected, f], label: `${name} feature` })),
  { trait: "softness", label: "label softness", step: 0.01 },
];

function draw([plane, cells], now, state) {
  const { tokens, weights, selected, axis } = state;

  line(plane, place([-REACH, 0]), place([REACH, 0]), { opacity: 0.25 });
  line(plane, place([0, -REACH]), place([0, REACH]), { opacity: 0.25 });
  drawn("text", { x: 2, y: SIZE / 2 - 5, class: "ao-small" }, plane, "first feature");
  drawn("text", { x: SIZE / 2 + 5, y: 9, class: "ao-small" }, plane, "second feature");
  for (let i = -5; i <= 5; i++) for (let j = -5; j <= 5; j++) {
    const point = [i * REACH / 5.5, j * REACH / 5.5];
    const there = compute({ ...state, tokens: tokens.map((old, other) => (other === selected ? point : old)) });
    const [gx, gy] = there.gradient[selected], length = Math.hypot(gx, gy), shown = 22 * length / (1 + length) / Math.max(length, 1e-12);
    const [x, y] = place(point);
    arrow(plane, [x, y], [x - shown * gx, y + shown * gy], { stroke: "currentColor", opacity: 0.45 });
  }
  drawn("polygon", { points: weights.map(place).join(" "), fill: "none", stroke: "currentColor", "stroke-dasharray": "3 4" }, plane);
  weights.forEach((weight, c) => {
    const [x, y] = place(weight);
    mark(plane, c, [x, y], 5, { fill: "none", stroke: COLOURS[c], "stroke-width": 2.5 });
    const [right, up] = weight.map((value) => 14 * value / (Math.hypot(...weight) || 1));  // outside the triangle
    drawn("text", { x: x + right, y: y - up + 4, "text-anchor": "middle" }, plane, `θ${"₁₂₃"[c]}`);
  });

  const [output, target] = [now.output[selected], now.target[selected]].map(place);
  arrow(plane, output, target, { stroke: COLOURS[selected], "stroke-width": 2.5 });
  drawn("circle", { cx: output[0], cy: output[1], r: 4, fill: "currentColor" }, plane);
  const start = place(tokens[selected]), [gx, gy] = now.gradient[selected], scale = SIZE / 2 / REACH;
  arrow(plane, start, [start[0] - scale * gx, start[1] + scale * gy], { stroke: COLOURS[selected], "stroke-width": 2.5 });

  const cell = 62, left = 52, top = 52;
  drawn("text", { x: left + 1.5 * cell, y: 14, "text-anchor": "middle" }, cells, "classes (rows of θ)");
  drawn("text", { x: 14, y: top + 1.5 * cell, "text-anchor": "middle", transform: `rotate(-90 14 ${top + 1.5 * cell})` }, cells, "tokens (rows of Z)");
  now.attention.forEach((row, s) => {
    drawn("text", { x: left - 10, y: top + (s + 0.5) * cell + 4, "text-anchor": "end", "font-weight": s === selected ? "bold" : "normal" }, cells, `${MARKS[s]} ${s + 1}`);
    drawn("text", { x: left + (s + 0.5) * cell, y: top - 10, "text-anchor": "middle" }, cells, `θ${"₁₂₃"[s]}`);
    row.forEach((value, c) => {
      drawn("rect", { x: left + c * cell, y: top + s * cell, width: cell - 2, height: cell - 2, fill: COLOURS[c], "fill-opacity": 0.08 + 0.55 * value, stroke: "currentColor", "stroke-width": s === selected ? 2 : 0.3 }, cells);
      drawn("text", { x: left + (c + 0.5) * cell, y: top + (s + 0.5) * cell + 4, "text-anchor": "middle" }, cells, show(value));
    });
    const rowSum = row.reduce((sum, value) => sum + value, 0), columnSum = now.attention.reduce((sum, other) => sum + other[s], 0);
    drawn("text", { x: left + 3 * cell + 8, y: top + (s + 0.5) * cell + 4, "font-weight": axis === "class" ? "bold" : "normal" }, cells, `Σ ${show(rowSum)}`);
    drawn("text", { x: left + (s + 0.5) * cell, y: top + 3 * cell + 20, "text-anchor": "middle", "font-weight": axis === "sequence" ? "bold" : "normal" }, cells, `Σ ${show(columnSum)}`);
  });

}

function say(now, { selected }) {
  return `Cross-entropy ${show(now.loss, 3)}; token ${selected + 1}: attention (${now.attention[selected].map((value) => show(value)).join(", ")}), `
    + `gradient norm ${show(Math.hypot(...now.gradient[selected]), 3)}.`;
}

export default explorer({ pictures, controls, compute, draw, say });
