// The ideal clustering head under strain: embeddings and query on the left, clusters over the classes' regions on the right.

import { arrow, axes, clipped, COLORS, dot, drawn, gelu, line, mark, show } from "./common.js";
import { explorer } from "./shell.js";

const REACH = 10, CELLS = 80, PREFIX = 5, LENGTH = 12;
const TIE = 1e-9; // logits no further apart are equal: right in half of the cases
const SUFFIXES = Array.from({ length: 16 }, (_, number) => 37 * number % 128);
const NOISE = [
  [-2.3, -0.4],
  [-1.1, 1.0],
  [-0.9, -1.3],
  [-0.6, -0.9],
  [-1.3, 1.5],
  [0.3, 2.0],
  [-1.5, -0.7],
  [0.5, -1.0],
  [-0.1, 0.6],
  [0.0, -1.2],
  [-0.7, 0.1],
  [-1.7, 1.0],
  [0.7, 0.1],
  [-1.1, 1.9],
];
const VALUE = 10, RECEPTORS = [[-8, 20], [-16, 20], [-8, -20], [-16, -20]], ASSEMBLERS = [-2, 4.5, 2, -4.5]; // these in y only

function feedForward([x, y]) {
  const length = Math.hypot(x, y) || 1;
  return [x, RECEPTORS.reduce((sum, [u, v], i) => sum + ASSEMBLERS[i] * gelu((u * x + v * y) / length), y)];
}

const squared = (a, b) => (a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2;
const ones = (number) => {
  let count = 0;
  for (; number; number >>= 1) count += number & 1;
  return count;
};

function meanOf(points) {
  const sum = points.reduce(([x, y], [u, v]) => [x + u, y + v], [0, 0]);
  return [sum[0] / points.length, sum[1] / points.length];
}

// The numbers that the picture shows; the Python class computes the same.
export function compute({ query, rest, split, noise }) {
  const token = [0, 1].map((v) => [noise * NOISE[v][0], 2 * v - 1 + noise * NOISE[v][1]]);
  const position = Array.from({ length: LENGTH }, (_, t) => {
    const y = t < PREFIX ? (t - 2) / 2 : (t - PREFIX - 3) / 3;
    const [x, height] = t < PREFIX ? [1, 0] : rest;
    return [x + noise * NOISE[2 + t][0], height + split * y + noise * NOISE[2 + t][1]];
  });
  const embeddings = token.map((e) =>
    position.map((p) => {
      const sum = [e[0] + p[0], e[1] + p[1]], size = Math.hypot(...sum) || 1;
      return [sum[0] / size, sum[1] / size];
    })
  );
  const scores = embeddings.map((row) => row.map((z) => dot(z, query) / Math.SQRT2)),
    weights = scores.map((row) => row.map(Math.exp));
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
  const means = prefixes.map(meanOf), centers = byCount.map(meanOf);
  const within =
    prefixes.reduce((sum, points, number) => sum + points.reduce((part, xi) => part + squared(xi, means[number]), 0), 0) /
    all.length;
  const orders = means.reduce((sum, point, number) => sum + squared(point, centers[ones(number)]), 0) / means.length;
  const share = (part) => (spread > 1e-30 * VALUE ** 2 ? 1 - part / spread : 1);
  const least = [0, 0], most = [0, 0]; // attention sums of the prefix and of the rest, when the rest has little or much
  for (let t = 0; t < LENGTH; t++) {
    const [low, high] = [Math.min(weights[0][t], weights[1][t]), Math.max(weights[0][t], weights[1][t])],
      rest = t < PREFIX ? 0 : 1;
    least[rest] += rest ? low : high;
    most[rest] += rest ? high : low;
  }
  let gap = Infinity;
  for (let i = 0; i < 6; i++) for (let j = 0; j < i; j++) gap = Math.min(gap, Math.sqrt(squared(centers[i], centers[j])));
  const cell = (index) => (index + 0.5) * 2 * REACH / CELLS - REACH;
  return {
    embeddings,
    centers,
    accuracy: right / all.length,
    suffix: share(within),
    permutation: share(orders),
    least: least[1] / (least[0] + least[1]),
    most: most[1] / (most[0] + most[1]),
    clusters: prefixes.map((points) => SUFFIXES.map((suffix) => points[suffix])),
    gap,
    radius: Math.max(...byCount.flatMap((points, count) => points.map((xi) => Math.sqrt(squared(xi, centers[count]))))),
    map: Array.from(
      { length: CELLS ** 2 },
      (_, index) => dot(decide, feedForward([cell(index % CELLS), cell(Math.floor(index / CELLS))])),
    ),
  };
}

const FRAME = [50, 34, 304, 288], SPACE = 2.7, ARROW = 6, UNIT = (FRAME[2] - FRAME[0]) / (2 * SPACE);
const CENTRE = [(FRAME[0] + FRAME[2]) / 2, (FRAME[1] + FRAME[3]) / 2];
const place = ([x, y]) => [CENTRE[0] + UNIT * x, CENTRE[1] - UNIT * y];
const back = (left, top) => [(left - CENTRE[0]) / UNIT, (CENTRE[1] - top) / UNIT];
const tip = (query) => place(query.map((part) => part / ARROW));

const pictures = [
  {
    label: "The plane of embeddings: positions, normalized sums of both tokens with them, and the query",
    box: "0 0 320 326",
  },
  { label: "Sequence embeddings over the regions of the two classes", box: "0 0 320 326" },
];
const hollow = (parent, index, at) =>
  mark(parent, index, at, 6.5, { fill: "none", stroke: "currentColor", "stroke-width": 2 });
const controls = [
  {
    trait: "query",
    kind: "handle",
    label: "The query",
    step: UNIT / 5,
    mark: (node) => drawn("circle", { r: 6, fill: "currentColor" }, node),
    place: tip,
    from: (left, top) => back(left, top).map((part) => ARROW * part),
  },
  {
    trait: "rest",
    kind: "handle",
    label: "The positions of the suffix",
    step: UNIT / 5,
    mark: (node) => hollow(node, 2, [0, 0]),
    place,
    from: back,
  },
  { trait: "query", at: 0, label: "query, 1st entry", step: 0.1, digits: 1 },
  { trait: "query", at: 1, label: "query, 2nd entry", step: 0.1, digits: 1 },
  { trait: "rest", at: 0, label: "suffix position, 1st entry", step: 0.1, digits: 1 },
  { trait: "rest", at: 1, label: "suffix position, 2nd entry", step: 0.1, digits: 1 },
  { trait: "split", label: "spread of positions", step: 0.01 },
  { trait: "noise", label: "noise", step: 0.01 },
];
function legend(parent, entries) {
  for (const [x, draw, text] of entries) {
    draw(parent, x);
    drawn("text", { x: x + 10, y: 21, class: "ao-small" }, parent, text);
  }
}
const sign = (index, color) => (parent, x) => mark(parent, index, [x, 17], 5, { fill: color, stroke: "currentColor" });

function drawEmbeddings(picture, now, { query, rest, split, noise }, asking) {
  axes(picture, FRAME, {
    label: "positions P, normalized sums Z, q / 6",
    low: -SPACE,
    high: SPACE,
    ticks: [-2, -1, 0, 1, 2],
  }, {
    label: "",
    low: -SPACE,
    high: SPACE,
    ticks: [-2, -1, 0, 1, 2],
  });
  const field = clipped(picture, FRAME);
  drawn("circle", { cx: CENTRE[0], cy: CENTRE[1], r: UNIT, fill: "none", stroke: "currentColor", opacity: 0.4 }, field);
  [-1, 1].forEach((y, v) => {
    const [left, top] = place([noise * NOISE[v][0], y + noise * NOISE[v][1]]);
    line(field, [left - 4, top], [left + 4, top]);
    line(field, [left, top - 4], [left, top + 4]);
    drawn(
      "text",
      { x: left, y: top + (y > 0 ? -7 : 16), "text-anchor": "middle", class: "ao-small ao-halo" },
      field,
      `E(${v})`,
    );
  });
  for (let t = 0; t < LENGTH; t++) {
    const [x, height] = t < PREFIX ? [1, 0] : rest, y = split * (t < PREFIX ? (t - 2) / 2 : (t - PREFIX - 3) / 3);
    hollow(field, t < PREFIX ? 0 : 2, place([x + noise * NOISE[2 + t][0], height + y + noise * NOISE[2 + t][1]]))
      .setAttribute("opacity", 0.6);
  }
  now.embeddings.forEach((row, v) =>
    row.forEach((z, t) => {
      mark(field, t < PREFIX ? 0 : 2, place(z), t < PREFIX ? 6 : 5, {
        fill: COLORS[v],
        stroke: "currentColor",
        "fill-opacity": 0.8,
      });
    })
  );
  arrow(picture, CENTRE, tip(query), { "stroke-width": 2.5 });
  if (!asking) {
    const [x, y] = tip(query);
    drawn("text", { x: x + 10, y: y - 9, class: "ao-halo" }, picture, "q");
  }
  const outline = (index) => (parent, x) =>
    mark(parent, index, [x, 17], 5, { fill: "none", stroke: "currentColor", "stroke-width": 1.6 });
  legend(picture, [
    [30, sign(0, COLORS[0]), "token 0"],
    [98, sign(0, COLORS[1]), "token 1"],
    [166, outline(0), "first 5"],
    [230, outline(2), "the rest"],
  ]);
}

function drawClusters(picture, now, asking) {
  const scale = { low: -REACH, high: REACH, ticks: [-10, -5, 0, 5, 10] },
    at = axes(picture, FRAME, { label: "sequence embeddings ξ", ...scale }, { label: "", ...scale });
  if (asking) {
    drawn("text", { x: CENTRE[0], y: CENTRE[1], "text-anchor": "middle" }, picture, "4096 embeddings: where?");
    return;
  }
  const size = (FRAME[2] - FRAME[0]) / CELLS,
    fields = drawn("g", { "fill-opacity": 0.3, "shape-rendering": "crispEdges" }, picture);
  for (let row = 0; row < CELLS; row++) {
    for (let start = 0, end = 1; start < CELLS; start = end, end += 1) { // runs of one class
      const above = now.map[CELLS * row + start] > 0;
      while (end < CELLS && now.map[CELLS * row + end] > 0 === above) end += 1;
      drawn("rect", {
        x: FRAME[0] + size * start,
        y: FRAME[3] - size * (row + 1),
        width: size * (end - start),
        height: size,
        fill: COLORS[above ? 1 : 0],
      }, fields);
    }
  }
  const inside = clipped(picture, FRAME), seen = new Set();
  now.clusters.forEach((points, number) =>
    points.forEach((xi) => {
      const odd = ones(number) % 2, [x, y] = at(xi), key = `${odd} ${Math.round(2 * x)} ${Math.round(2 * y)}`;
      if (!seen.has(key)) mark(inside, odd, [x, y], 4, { fill: COLORS[odd], stroke: "currentColor", "stroke-width": 0.7 });
      seen.add(key);
    })
  );
  if (2 * now.radius < now.gap) {
    now.centers.forEach((center, count) => {
      const [x, y] = at(center);
      drawn("text", { x: x + 4 + UNIT * now.radius / 4 + 6, y: y + 4, class: "ao-small ao-halo" }, inside, String(count));
    });
  }
  legend(picture, [[46, sign(0, COLORS[0]), "sum even"], [122, sign(1, COLORS[1]), "sum odd"]]);
  drawn("text", { x: 304, y: 21, "text-anchor": "end", class: "ao-small" }, picture, "0 … 5: how many 1s");
}

function draw([embeddings, clusters], now, state, bounds, asking) {
  drawEmbeddings(embeddings, now, state, asking);
  drawClusters(clusters, now, asking);
}

function say(now) {
  const per = (value, digits = 1) => `${show(100 * value, digits)}%`, apart = 2 * now.radius < now.gap;
  return `Right on ${per(now.accuracy)} of the 4096 sequences. ` +
    (apart
      ? `Six clusters, one for each number of ones among the first five${
        now.accuracy === 1 ? ", each in a wedge of its own class. " : ", but not all in wedges of their own class. "
      }`
      : `Sequences lie up to ${show(now.radius)} from the centers of their clusters, and the centers are at least ${
        show(now.gap)
      } apart, so clusters may overlap. `) +
    `Suffix invariance ${show(now.suffix, 3)}, permutation invariance ${show(now.permutation, 3)}. ` +
    `The suffix receives ${[...new Set([per(now.least, 2), per(now.most, 2)])].join(" to ")} of the attention.`;
}

const guess = {
  prompt:
    "This head attends to the first five of twelve tokens, which are zeros and ones; the model must say whether the sum of the five is odd. How many clusters do the embeddings ξ of all 4096 sequences form?",
  tells: true,
  options: ["2, one for each label", "6, one for each number of ones", "32, one for each prefix"],
  reveal(answer) {
    return `${
      answer === undefined ? "There" : answer === "6, one for each number of ones" ? "Right: there" : "Not quite: there"
    } are six. Attention averages the first five tokens. The average keeps the number of ones but forgets their order and the tokens after the first five. ` +
      "It does not separate odd from even: the classes alternate along the line, and the feed-forward layer must assign a class to each cluster separately.";
  },
};
const tour = [
  {
    set: { query: [2, 0] },
    say: "A short query: the suffix receives about a sixth of the attention, and each cluster spreads out.",
  },
  {
    set: { query: [2, 0], rest: [0, 2] },
    say:
      "The same query, but the squares of the suffix coincide. Every suffix now adds the same vector, so the clusters are points again. They have moved, and the wedges of the feed-forward layer no longer fit.",
  },
  {
    set: { rest: [0, 2] },
    say:
      "With a long query and coinciding squares, the model is right on every sequence, and the head forgets the suffix exactly.",
  },
  {
    set: { split: 0.5 },
    say: "Positions of the prefix that differ: what a token adds now depends on its position, so the order matters.",
  },
  {
    set: { query: [0, 8] },
    say: "A query that prefers ones instead of positions: it attends to the suffix as well as to the prefix.",
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
