// Plain steps beside GD++: what k layers leave of the error over the spectrum, and the loss by depth or the eigenvalues carried.

import { axes, clamp, clipped, COLOURS, curve, drawn, line, mark, power, show, ticksUpTo } from "./common.js";
import { explorer } from "./shell.js";

const DIM = 5, POINTS = 181, REACH = 1.5, BEYOND = 1e30, DEPTHS = [1, 2, 3, 4];
const METHODS = {
  constant: { name: "one step size", stroke: COLOURS[0], "stroke-dasharray": "2 4" },
  plain: { name: "optimal steps", stroke: COLOURS[2], "stroke-dasharray": "9 4" },
  gdpp: { name: "GD++", stroke: COLOURS[1], "stroke-dasharray": "none" },
};
const bounded = (value) => (value <= BEYOND ? value : null);

// What k layers do to one eigenvalue: the residual after them, and the eigenvalue before each.
function follow(here, method, k, start) {
  const steps = here[method][k - 1], curvatures = method === "gdpp" ? here.curvatures[k - 1] : [];
  let residual = 1, value = start;
  const seen = [];
  for (let layer = 0; layer < k; layer++) {
    seen.push(value);
    residual *= 1 + steps[layer] * value;
    if (layer + 1 < k) value *= (1 + (curvatures[layer] ?? 0) * value) ** 2;
  }
  return { residual, seen };
}

// The numbers that the picture shows; the Python class computes the same.
export function compute({ context, layers, scale, table }) {
  const here = table[context], total = here.weights.reduce((sum, weight) => sum + weight, 0);
  const kept = here.nodes.filter((_, index) => here.weights[index] / total >= 1e-4).map((node) => scale ** 2 * node);
  const grid = Array.from({ length: POINTS }, (_, index) => REACH * kept.at(-1) * index / (POINTS - 1));
  const perMethod = (value) => Object.fromEntries(Object.keys(METHODS).map((name) => [name, value(name)]));
  const loss = (name, k) => here.nodes.reduce((sum, node, index) => sum + here.weights[index] * follow(here, name, k, scale ** 2 * node).residual ** 2, 0) / DIM;
  const carried = kept.map((node) => follow(here, "gdpp", layers, node).seen);
  return {
    grid,
    nodes: kept,
    spread: [kept[0], kept.at(-1)],
    residuals: perMethod((name) => grid.map((value) => follow(here, name, layers, value).residual)),
    losses: perMethod((name) => DEPTHS.map((k) => bounded(loss(name, k)))),
    carried: Array.from({ length: layers }, (_, layer) => carried.map((seen) => seen[layer])),
  };
}

const FRAME = [56, 34, 312, 268];
const worded = (value) => (value === null ? "beyond 10³⁰" : value >= 1e4 || value < 1e-4 ? value.toExponential(value < 1 ? 2 : 1).replace("e+", " · 10^").replace("e-", " · 10^−") : String(Number(value.toPrecision(3))));

function legend(parent, y = 17) {
  Object.values(METHODS).forEach(({ name, ...look }, index) => {
    const x = [34, 142, 258][index];
    line(parent, [x, y], [x + 22, y], { ...look, "stroke-width": 2.4 });
    drawn("text", { x: x + 26, y: y + 4, class: "ao-small" }, parent, name);
  });
}

const pictures = [
  { label: "What the layers leave of the error, over the eigenvalue, for three methods", box: "0 0 320 304" },
  { label: "The loss against the number of layers, or the eigenvalues before each layer", box: "0 0 320 304" },
];
const controls = [
  { trait: "context", label: "examples n", digits: 0 },
  { trait: "layers", label: "layers k" },
  { trait: "scale", label: "scale s", step: 0.01 },
  { trait: "view", kind: "choice", label: "right", names: { loss: "loss", eigenvalues: "eigenvalues in GD++" } },
];

function draw([left, right], now, { layers, view }) {
  const edge = now.grid.at(-1);

  const put = axes(left, FRAME, { label: "eigenvalue λ (marks: the bulk)", low: 0, high: edge, ticks: ticksUpTo(edge) },
    { label: layers === 1 ? "residual after 1 layer" : `residual after ${layers} layers`, low: -1.1, high: 1.1, ticks: [-1, -0.5, 0, 0.5, 1] });
  line(left, put([0, 0]), put([edge, 0]), { opacity: 0.4 });
  const inside = clipped(left, FRAME);
  for (const [name, { name: _, ...look }] of Object.entries(METHODS)) {
    const points = now.residuals[name].map((value, index) => put([now.grid[index], clamp(value, -4, 4)]));
    curve(inside, points, { ...look, "stroke-width": 2.4 });
  }
  for (const node of now.nodes) line(inside, put([node, -1.1]), put([node, -1.02]), { opacity: 0.8, "stroke-width": 1.5 });
  legend(left);

  if (view === "loss") {
    const values = Object.values(now.losses).flat().filter((value) => value !== null);
    const bottom = 10 ** Math.floor(Math.log10(Math.max(Math.min(...values), 1e-9))), top = 10 ** clamp(Math.ceil(Math.log10(Math.max(...values))), 0, 6);
    const span = Math.round(Math.log10(top / bottom)), gap = span > 8 ? 2 : 1;
    const at = axes(right, FRAME, { label: "layers", low: 0.7, high: 4.3, ticks: DEPTHS },
      { label: "loss / d", low: bottom, high: top, scale: Math.log, ticks: Array.from({ length: Math.floor(span / gap) + 1 }, (_, k) => bottom * 10 ** (gap * k)), text: power });
    const field = clipped(right, FRAME);
    line(field, at([0.7, 1]), at([4.3, 1]), { opacity: 0.6, "stroke-dasharray": "1 3" });
    for (const [name, { name: _, ...look }] of Object.entries(METHODS)) {
      const places = now.losses[name].map((value, index) => at([index + 1, Math.min(value ?? BEYOND, 10 * top)]));
      curve(field, places, { ...look, "stroke-width": 1.6 });
      places.forEach((place, index) => mark(field, Object.keys(METHODS).indexOf(name), place, index + 1 === layers ? 6.5 : 4, { fill: look.stroke, stroke: "currentColor" }));
    }
    legend(right);
  } else {
    const relative = now.carried.map((row) => row.map((value) => Math.max(value / Math.max(...row), 1e-6)));
    const floor = 10 ** Math.floor(Math.log10(Math.min(...relative.flat())));
    const decades = Array.from({ length: Math.round(-Math.log10(floor)) + 1 }, (_, k) => floor * 10 ** k);
    const at = axes(right, FRAME, { label: "before layer", low: -0.3, high: layers - 0.7, ticks: DEPTHS.slice(0, layers).map((k) => k - 1) },
      { label: "eigenvalue / largest", low: floor, high: 1.2, scale: Math.log, ticks: decades, text: power });
    const field = clipped(right, FRAME);
    now.nodes.forEach((_, index) => {
      const places = relative.map((row, layer) => at([layer, row[index]]));
      curve(field, places, { stroke: COLOURS[1], "stroke-width": 1.2, opacity: 0.8 });
      for (const [cx, cy] of places) drawn("circle", { cx, cy, r: 3, fill: COLOURS[1] }, field);
    });
    drawn("text", { x: 184, y: 21, "text-anchor": "middle", class: "ao-small" }, right, "one line an eigenvalue (marks on the left)");
  }
}

function say(now, { context, layers, scale }) {
  const [low, high] = now.spread, at = layers - 1, losses = Object.entries(METHODS).map(([name, { name: title }]) => `${title} ${worded(now.losses[name][at])}`).join(", ");
  const harmful = Object.entries(METHODS).filter(([name]) => now.losses[name][at] === null || now.losses[name][at] > 1).map(([, { name }]) => name);
  return `n = ${context}, ${layers} ${layers === 1 ? "layer" : "layers"}, covariates times ${show(scale)}: loss / d of ${losses}. `
    + `Bulk of the eigenvalues from ${show(low, 3)} to ${show(high, 3)}. `
    + (harmful.length ? `Worse than predicting 0: ${harmful.join(", ")}.` : "All better than predicting 0.");
}

export default explorer({ pictures, controls, compute, draw, say });
