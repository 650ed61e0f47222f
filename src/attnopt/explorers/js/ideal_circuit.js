// The ideal clustering head under strain: embeddings and query on the left, clusters over the classes' regions on the right.

import { arrow, axes, clipped, COLOURS, drawn, gelu, mark, show } from "./common.js";
import { explorer } from "./shell.js";

const REACH = 10, CELLS = 80, PREFIX = 5, LENGTH = 12;
const TIE = 1e-9;  // logits no further apart are equal: right in half of the cases
const SUFFIXES = Array.from({ length: 16 }, (_, number) => 37 * number % 128);
const NOISE = [
  [-2.3, -0.4], [-1.1, 1.0], [-0.9, -1.3], [-0.6, -0.9], [-1.3, 1.5], [0.3, 2.0], [-1.5, -0.7],
  [0.5, -1.0], [-0.1, 0.6], [0.0, -1.2], [-0.7, 0.1], [-1.7, 1.0], [0.7, 0.1], [-1.1, 1.9],
];
const VALUE = 10, RECEPTORS = [[-8, 20], [-16, 20], [-8, -20], [-16, -20]], ASSEMBLERS = [-2, 4.5, 2, -4.5];  // these in y only

function feedForward([x, y]) {
  const length = Math.hypot(x, y) || 1;
  return [x, RECEPTORS.reduce((sum, [u, v], i) => sum + ASSEMBLERS[i] * gelu((u * x + v * y) / length), y)];
}

const dot = (a, b) => a[0] * b[0] + a[1] * b[1];
const squared = (a, b) => (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2;
const ones = (number) => { let count = 0; for (; number; number >>= 1) count += number & 1; return count; };

function meanOf(points) {
  const sum = points.reduce(([x, y], [u, v]) => [x + u, y + v], [0, 0]);
  return [sum[0] / points.length, sum[1] / points.length];
}

// The numbers that the picture shows; the Python class computes the same.
export function compute({ length, angle, split, noise }) {
  const turn = angle * Math.PI / 180, query = [length * Math.cos(turn), length * Math.sin(turn)];
  const token = [0, 1].map((v) => [noise * NOISE[v][0], 2 * v - 1 + noise * NOISE[v][1]]);
  const position = Array.from({ length: LENGTH }, (_, t) => {
    const y = t < PREFIX ? (t - 2) / 2 : (t - PREFIX - 3) / 3;
    return [(t < PREFIX ? 1 : -1) + noise * NOISE[2 + t][0], split * y + noise * NOISE[2 + t][1]];
  });
  const embeddings = token.map((e) => position.map((p) => {
    const sum = [e[0] + p[0], e[1] + p[1]], size = Math.hypot(...sum) || 1;
    return [sum[0] / size, sum[1] / size];
  }));
  const scores = embeddings.map((row) => row.map((z) => dot(z, query) / Math.SQRT2)), weights = scores.map((row) => row.map(Math.exp));
  const decide = token[1].map((value, axis) => value - token[0][axis]);

  const all = [], byCount = [[], [], [], [], [], []];
  let right = 0;
  for (let number = 0; number < 2 ** LENGTH; number++) {
    let total = 0, x = 0, y = 0;
    for (let t = 0; t < LENGTH; t++) {
      const v = number >> (LENGTH - 1 - t) & 1, weight = weights[v][t], z = embeddings[v][t];
      total += weight;
      x += weight * z[0];
      y += weight * z[1];
    }
    const xi = [VALUE * x / total, VALUE * y / total], count = ones(number >> (LENGTH - PREFIX));
    const lead = (count % 2 ? 1 : -1) * dot(decide, feedForward(xi));
    right += Math.abs(lead) < TIE ? 0.5 : lead > 0;
    all.push(xi);
    byCount[count].push(xi);
  }
  const mean = meanOf(all), spread = all.reduce((sum, xi) => sum + squared(xi, mean), 0) / all.length;
  const prefixes = Array.from({ length: 2 ** PREFIX }, (_, number) => all.slice(128 * number, 128 * (number + 1)));
  const means = prefixes.map(meanOf), centres = byCount.map(meanOf);
  const within = prefixes.reduce((sum, points, number) => sum + points.reduce((part, xi) => part + squared(xi, means[number]), 0), 0) / all.length;
  const orders = means.reduce((sum, point, number) => sum + squared(point, centres[ones(number)]), 0) / means.length;
  const share = (part) => (spread > 1e-30 * VALUE ** 2 ? 1 - part / spread : 1);
  const least = [0, 0], most = [0, 0];  // attention sums of the prefix and of the rest, when the rest has little or much
  for (let t = 0; t < LENGTH; t++) {
    const [low, high] = [Math.min(weights[0][t], weights[1][t]), Math.max(weights[0][t], weights[1][t])], rest = t < PREFIX ? 0 : 1;
    least[rest] += rest ? low : high;
    most[rest] += rest ? high : low;
  }
  let gap = Infinity;
  for (let i = 0; i < 6; i++) for (let j = 0; j < i; j++) gap = Math.min(gap, Math.sqrt(squared(centres[i], centres[j])));
  const cell = (index) => (index + 0.5) * 2 * REACH / CELLS - REACH;
  return {
    embeddings,
    accuracy: right / all.length,
    suffix: share(within),
    permutation: share(orders),
    least: least[1] / (least[0] + least[1]),
    most: most[1] / (most[0] + most[1]),
    clusters: prefixes.map((points) => SUFFIXES.map((suffix) => points[suffix])),
    gap,
    radius: Math.max(...byCount.flatMap((points, count) => points.map((xi) => Math.sqrt(squared(xi, centres[count]))))),
    map: Array.from({ length: CELLS ** 2 }, (_, index) => dot(decide, feedForward([cell(index % CELLS), cell(Math.floor(index / CELLS))]))),
  };
}

const FRAME = [50, 34, 304, 288];

const pictures = [
  { label: "Normalised embeddings of both tokens at all positions, with the query", box: "0 0 320 326" },
  { label: "Sequence embeddings over the regions of the two classes", box: "0 0 320 326" },
];
const controls = [
  { trait: "length", label: "query length", step: 0.1, digits: 1 },
  { trait: "angle", label: "query angle", step: 1, digits: 0 },
  { trait: "split", label: "split positions", step: 0.01 },
  { trait: "noise", label: "noise", step: 0.01 },
];
function legend(parent, entries) {
  for (const [x, draw, text] of entries) {
    draw(parent, x);
    drawn("text", { x: x + 10, y: 21, class: "ao-small" }, parent, text);
  }
}

function draw([left, right], now, state) {

  const put = axes(left, FRAME, { label: "embeddings Z and query q", low: -1.25, high: 1.25, ticks: [-1, 0, 1] }, { label: "", low: -1.25, high: 1.25, ticks: [-1, 0, 1] });
  const [cx, cy] = put([0, 0]);
  drawn("circle", { cx, cy, r: put([1, 0])[0] - cx, fill: "none", stroke: "currentColor", opacity: 0.4 }, left);
  now.embeddings.forEach((row, v) => row.forEach((z, t) => {
    mark(left, t < PREFIX ? 0 : 2, put(z), t < PREFIX ? 6 : 5, { fill: COLOURS[v], stroke: "currentColor", "fill-opacity": 0.8 });
  }));
  const turn = state.angle * Math.PI / 180;
  arrow(left, [cx, cy], put([state.length / 16 * Math.cos(turn), state.length / 16 * Math.sin(turn)]), { "stroke-width": 2.5 });
  const dots = (index, colour) => (parent, x) => mark(parent, index, [x, 17], 5, { fill: colour, stroke: "currentColor" });
  legend(left, [[38, dots(0, "none"), "first 5"], [98, dots(2, "none"), "the rest"], [164, dots(0, COLOURS[0]), "token 0"], [232, dots(0, COLOURS[1]), "token 1"]]);

  const at = axes(right, FRAME, { label: "sequence embeddings ξ", low: -REACH, high: REACH, ticks: [-10, -5, 0, 5, 10] }, { label: "", low: -REACH, high: REACH, ticks: [-10, -5, 0, 5, 10] });
  const size = (FRAME[2] - FRAME[0]) / CELLS, fields = drawn("g", { "fill-opacity": 0.3, "shape-rendering": "crispEdges" }, right);
  for (let row = 0; row < CELLS; row++) {
    for (let start = 0, end = 1; start < CELLS; start = end, end += 1) {  // runs of one class
      const above = now.map[CELLS * row + start] > 0;
      while (end < CELLS && now.map[CELLS * row + end] > 0 === above) end += 1;
      drawn("rect", { x: FRAME[0] + size * start, y: FRAME[3] - size * (row + 1), width: size * (end - start), height: size, fill: COLOURS[above ? 1 : 0] }, fields);
    }
  }
  const inside = clipped(right, FRAME), seen = new Set();
  now.clusters.forEach((points, number) => points.forEach((xi) => {
    const odd = ones(number) % 2, [x, y] = at(xi), key = `${odd} ${Math.round(2 * x)} ${Math.round(2 * y)}`;
    if (!seen.has(key)) mark(inside, odd, [x, y], 4, { fill: COLOURS[odd], stroke: "currentColor", "stroke-width": 0.7 });
    seen.add(key);
  }));
  legend(right, [[56, dots(0, COLOURS[0]), "sum even"], [138, dots(1, COLOURS[1]), "sum odd"]]);
}

function say(now) {
  const per = (value, digits = 1) => `${show(100 * value, digits)} %`;
  return `Right on ${per(now.accuracy)} of the 4096 sequences. Suffix invariance ${show(now.suffix, 3)}, permutation invariance ${show(now.permutation, 3)}. `
    + `Spurious tokens get ${[...new Set([per(now.least, 2), per(now.most, 2)])].join(" to ")} of the attention. `
    + `Clusters reach ${show(now.radius)} from their centres, which are at least ${show(now.gap)} apart${2 * now.radius < now.gap ? "" : ": they may overlap"}.`;
}

export default explorer({ pictures, controls, compute, draw, say });
