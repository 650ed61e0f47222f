// Layers as steps on one prompt in the plane: the path of the weights, and the excess error for four preconditioners.

import { axes, clipped, COLORS, curve, dot, drawn, ellipse, judged, line, minus, power, show } from "./common.js";
import { explorer } from "./shell.js";

const PROMPTS = [
  [[1.2, 0.3], [-0.4, 1.1], [0.7, -0.9], [-1.5, 0.2], [0.1, 0.6]],
  [[0.9, 1.0], [-1.1, -0.7], [0.5, 0.2], [1.6, 1.3], [-0.3, 0.4]],
  [[-0.6, 0.5], [0.3, -0.4], [0.8, 0.1], [-0.2, -0.7], [0.4, 0.9]],
];
// The steps that minimize the in-context loss of 1, 2, … layers for two features and five examples.
const OPTIMAL = [
  [-0.625],
  [-0.341978824363, -1.00417502179],
  [-0.235601347252, -0.470663378078, -1.4198513461],
  [-0.178860764896, -0.309046451842, -0.595516510587, -1.84180557358],
  [-0.143666811641, -0.227754020129, -0.377239417234, -0.723741906598, -2.25429300638],
  [-0.119765523509, -0.178977439178, -0.272348483771, -0.44384106958, -0.857786055383, -2.65547228547],
  [-0.102509613737, -0.146657096485, -0.210823127423, -0.315182924349, -0.510141137344, -0.997650199054, -3.04830417791],
  [
    -0.0894889302771,
    -0.123783039079,
    -0.170707834908,
    -0.241156248791,
    -0.357139736491,
    -0.576788989115,
    -1.14202835651,
    -3.43590229308,
  ],
];
const LATENT = [0.9, 1.2], ANGLE = Math.PI / 6, METHODS = ["plain", "covariance", "optimal", "newton"];

const apply = ([[a, b], [c, d]], [x, y]) => [a * x + b * y, c * x + d * y];
const solve = ([[a, b], [c, d]], [x, y]) => [(d * x - b * y) / (a * d - b * c), (a * y - c * x) / (a * d - b * c)];

// The symmetric matrix with the given eigenvalues along axes turned by ANGLE.
function turned(first, second) {
  const [c, s] = [Math.cos(ANGLE), Math.sin(ANGLE)];
  return [[first * c * c + second * s * s, (first - second) * c * s], [
    (first - second) * c * s,
    first * s * s + second * c * c,
  ]];
}

function eigenvalues([[a, b], [, d]]) {
  const middle = (a + d) / 2, radius = Math.hypot((a - d) / 2, b);
  return [middle + radius, middle - radius];
}

function problem({ conditioning, prompt }) {
  const root = turned(1, conditioning ** -0.5), rows = PROMPTS[prompt].map((row) => apply(root, row));
  const entry = (f, g) => rows.reduce((sum, row) => sum + row[f] * row[g], 0) / rows.length;
  const gram = [[entry(0, 0), entry(0, 1)], [entry(1, 0), entry(1, 1)]];
  return { covariance: turned(1, 1 / conditioning), gram, target: apply(turned(1, conditioning ** 0.5), LATENT) };
}

function follow({ covariance, gram, target }, method, { layers, step }) {
  const base = { plain: [[1, 0], [0, 1]], newton: gram }[method] ?? covariance;
  const path = [[0, 0]];
  for (let layer = 0; layer < layers; layer++) {
    const size = method === "optimal" ? OPTIMAL[layers - 1][layer] : -step, now = path[layer];
    const [x, y] = solve(base, apply(gram, minus(now, target)));
    path.push([now[0] + size * x, now[1] + size * y]);
  }
  return path;
}

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const given = problem(state), { covariance, gram, target } = given, path = follow(given, state.method, state);
  const quadratic = (points, matrix) =>
    points.map((point) => dot(apply(matrix, minus(point, target)), minus(point, target)));
  const [large, small] = eigenvalues(gram);
  const losses = quadratic(path, gram).map((value) => value / 2);
  return {
    target,
    gram,
    path,
    losses,
    rise: losses.findIndex((value, layer) => layer > 0 && value > losses[layer - 1] * (1 + 1e-9) + 1e-15),
    errors: Object.fromEntries(METHODS.map((name) => [name, quadratic(follow(given, name, state), covariance)])),
    condition: large / small,
  };
}

const FRAME = [44, 40, 312, 308], BOTTOM = 1e-6;
const STYLES = {
  plain: { name: "−γ I", stroke: COLORS[0], "stroke-dasharray": "none" },
  covariance: { name: "−γ Σ⁻¹", stroke: COLORS[1], "stroke-dasharray": "9 4" },
  optimal: { name: "optimal", stroke: COLORS[2], "stroke-dasharray": "9 4 2 4" },
  newton: { name: "Newton", stroke: "#CC79A7", "stroke-dasharray": "2 4" },
};
const LABELS = { plain: "−γ I", covariance: "−γ Σ⁻¹", optimal: "optimal steps times Σ⁻¹", newton: "−γ H⁻¹ (Newton)" };
const worded = (
  value,
) => (value !== 0 && (value < 5e-4 || value >= 1e4) ? value.toExponential(1).replace("-", "−") : show(value, 3));

const pictures = [
  {
    label: "The plane of weights: ellipses of equal least-squares loss, and the weights after each layer",
    box: "0 0 320 344",
  },
  { label: "The excess error after each layer, for four preconditioners", box: "0 0 320 344" },
];
const controls = [
  { trait: "method", kind: "choice", label: "the layers' A", names: LABELS },
  { trait: "prompt", kind: "choice", label: "prompt", names: (prompt) => String(prompt + 1) },
  { trait: "layers", label: "layers" },
  { trait: "step", label: "step γ" },
  { trait: "conditioning", label: "condition number of Σ", scale: "log", digits: 1 },
];

// The corner and the side of the part of the plane that is drawn.
function frameOf([x, y]) {
  const size = Math.max(Math.abs(x), Math.abs(y));
  return { low: [(x < 0 ? -1.4 : -0.5) * size, -0.5 * size], span: 1.9 * size };
}

function draw([left, right], now, { method, layers }) {
  const style = STYLES[method], { target, path } = now;

  const { low, span } = frameOf(target);
  const gap = [0.5, 1, 2, 5].find((unit) => span / unit <= 6) ?? 5;
  const ticks = (from) =>
    Array.from({ length: 20 }, (_, k) => gap * (Math.ceil(from / gap) + k)).filter((value) => value <= from + span);
  const place = axes(left, FRAME, { label: "first weight", low: low[0], high: low[0] + span, ticks: ticks(low[0]) }, {
    label: "second weight",
    low: low[1],
    high: low[1] + span,
    ticks: ticks(low[1]),
  });
  const inside = clipped(left, FRAME);
  for (const share of [2, 1, 0.4, 0.1, 0.02]) {
    curve(inside, ellipse(target, [...now.gram[0], now.gram[1][1]], share * now.losses[0]).map(place), {
      opacity: share === 1 ? 0.7 : 0.35,
    });
  }
  curve(inside, path.map(place), { stroke: style.stroke, "stroke-width": 2.5 });
  path.forEach((point, layer) => {
    const [x, y] = place(point);
    drawn(
      "circle",
      { cx: x, cy: y, r: layer === path.length - 1 ? 5.5 : 3.5, fill: style.stroke, stroke: "currentColor" },
      inside,
    );
  });
  const [x, y] = place(target);
  for (const [dx, dy] of [[7, 7], [7, -7]]) line(inside, [x - dx, y - dy], [x + dx, y + dy], { "stroke-width": 2 });
  const [zx, zy] = place([0, 0]);
  drawn("text", { x: zx - 8, y: zy + 14, "text-anchor": "end", class: "ao-small ao-halo" }, left, "w₀");
  drawn("text", { x: x + 11, y: y - 6, class: "ao-small ao-halo" }, left, "w⋆");
  drawn(
    "text",
    { x: FRAME[2], y: 30, "text-anchor": "end", class: "ao-small" },
    left,
    "ellipses: equal loss on this prompt",
  );

  const all = Object.values(now.errors).flat(), high = 10 ** Math.ceil(Math.log10(Math.max(...all)) + 1e-9);
  const decades = Math.round(Math.log10(high / BOTTOM)), skip = Math.ceil(decades / 8);
  const at = axes(right, FRAME, {
    label: "layer",
    low: 0,
    high: layers,
    ticks: Array.from({ length: layers + 1 }, (_, k) => k),
  }, {
    label: "excess error",
    low: BOTTOM,
    high,
    scale: Math.log,
    ticks: Array.from({ length: Math.floor(decades / skip) + 1 }, (_, k) => BOTTOM * 10 ** (k * skip)),
    text: power,
  });
  const field = clipped(right, FRAME);
  METHODS.forEach((name, index) => {
    const { name: title, ...look } = STYLES[name], width = name === method ? 4 : 1.8;
    const points = now.errors[name].map((value, layer) => at([layer, Math.max(value, 1e-12)]));
    curve(field, points, { ...look, "stroke-width": width });
    if (name === method) {
      points.forEach(([cx, cy]) => drawn("circle", { cx, cy, r: 4, fill: look.stroke, stroke: "currentColor" }, field));
    }
    const from = [46, 108, 178, 250][index];
    line(right, [from, 26], [from + 18, 26], { ...look, "stroke-width": width });
    drawn("text", { x: from + 21, y: 30, class: "ao-small" }, right, title);
  });
}

function say(now, { method, layers }) {
  const { low, span } = frameOf(now.target), errors = now.errors[method];
  const outside = now.path.filter((point) => point.some((value, f) => value < low[f] || value > low[f] + span)).length;
  return `${LABELS[method]}, ${layers} ${layers === 1 ? "layer" : "layers"}: excess error ${
    worded(errors[0])
  } at the start, ${worded(errors[layers])} at the end` +
    ` (${
      METHODS.filter((name) => name !== method).map((name) => `${STYLES[name].name} ${worded(now.errors[name][layers])}`)
        .join(", ")
    }). ` +
    `The prompt’s H has condition number ${show(now.condition, 1)}. ` +
    (now.rise < 0
      ? "No layer raised the loss on this prompt."
      : `Layer ${now.rise} is the first to raise the loss on this prompt.`) +
    (outside ? ` Outside the picture: ${outside} of ${now.path.length} points.` : "");
}

const guess = {
  prompt: ({ conditioning }) =>
    `Σ now has condition number ${
      show(conditioning, 0)
    }. If it were 30, for which layers would the error after the last layer be different?`,
  tells: true,
  options: ["for −γ I only", "for all but Newton", "for all four"],
  of: (state) => ({ ...state, conditioning: 30 }),
  reveal(answer, now, state, then) {
    const [here, long] = [now, then].map(({ errors }) => METHODS.map((name) => worded(errors[name].at(-1))));
    return judged(answer, answer === "for −γ I only", "For −γ I only.") +
      ` Its error goes from ${here[0]} to ${long[0]}. The others keep theirs: ` +
      METHODS.slice(1).map((name, index) => `${STYLES[name].name} ${long[index + 1]}`).join(", ") + ".";
  },
};

export default explorer({ pictures, controls, compute, draw, say, guess });
