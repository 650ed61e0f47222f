// One head, and a context that goes from fixed classes over a loose cloud to tight clusters: attention, and its potential.

import {
  arrow,
  averaged,
  axes,
  clipped,
  COLORS,
  contours,
  curve,
  dot,
  drawn,
  levelSets,
  line,
  mark,
  MARKS,
  pair,
  show,
  softmaxOf,
  sum,
} from "./common.js";
import { explorer } from "./shell.js";

const CLASSES = [[1, 0], [0, 1], [-1, -1]], CLOUD = [0.8, -0.4, 0.5], REACH = 2.4, SHARPEST = 6, PREFIX = 5, SUFFIX = 7;
const PURPLE = "#CC79A7", NAMES = ["I, fixed classes", "II, a wide cloud", "III, tight clusters"];
const LEVELS = Array.from({ length: 29 }, (_, k) => (k - 4) / 2),
  TICKS = Array.from({ length: 49 }, (_, k) => REACH * (k / 24 - 1));

function mixture({ context, ones }) {
  const loose = 1 - Math.abs(context - 1),
    near = Math.max(0, 2 * loose - 1),
    wide = Math.min(1, 2 * loose),
    sharp = Math.max(0, 2 * context - 3);
  return {
    shares: [PREFIX - ones, ones, SUFFIX].map((count) => (1 - sharp) / 3 + sharp * count / (PREFIX + SUFFIX)),
    centers: CLASSES.map((vector) => vector.map((value) => (1 - near) * value)),
    covariance: CLOUD.map((value) => wide ** 2 * value),
    sharpness: 1 + (SHARPEST - 1) * sharp,
  };
}
const through = ([a, b, c], [x, y]) => [a * x + b * y, b * x + c * y];
const softmaxAt = ({ shares, centers, sharpness }, query) =>
  softmaxOf(centers.map((center, c) => sharpness * dot(query, center) + Math.log(shares[c])));
const potential = (mix, query) =>
  softmaxAt(mix, query).lse / mix.sharpness + mix.sharpness * dot(query, through(mix.covariance, query)) / 2;

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const mix = mixture(state), { query } = state, { weights } = softmaxAt(mix, query);
  const between = averaged(weights, mix.centers),
    within = through(mix.covariance, query).map((value) => mix.sharpness * value);
  return {
    ...mix,
    weights,
    between,
    within,
    attention: between.map((value, f) => value + within[f]),
    potential: potential(mix, query),
  };
}

const FRAME = [44, 34, 344, 334], UNIT = (FRAME[2] - FRAME[0]) / (2 * REACH);
const place = ([x, y]) => [FRAME[0] + UNIT * (x + REACH), FRAME[1] + UNIT * (REACH - y)];
const unplace = (left, top) => [(left - FRAME[0]) / UNIT - REACH, REACH - (top - FRAME[1]) / UNIT];
const diamond = (parent, [x, y], attributes) =>
  drawn("polygon", {
    points: `${x},${y - 8} ${x + 7},${y} ${x},${y + 8} ${x - 7},${y}`,
    stroke: "currentColor",
    "stroke-width": 1.5,
    ...attributes,
  }, parent);
const queryOn = (picture) => ({
  trait: "query",
  kind: "handle",
  picture,
  label: picture ? "The query, on the right" : "The query",
  step: UNIT / 10,
  place,
  from: unplace,
  mark: (node) => diamond(node, [0, 0], { fill: "#E69F00" }),
});

const pictures = [
  {
    label:
      "The context: clusters around three class vectors, the query, and what attention returns, between the clusters and within them",
    box: "0 0 360 374",
  },
  {
    label: "The plane of queries: contours of the potential K, and attention as its gradient at the query",
    box: "0 0 360 374",
  },
];
const controls = [
  queryOn(0),
  queryOn(1),
  {
    trait: "context",
    kind: "play",
    place: "ao-player",
    values: () => Array.from({ length: 81 }, (_, k) => k / 40),
    stops: ["context"],
  },
  {
    trait: "context",
    label: "context",
    place: "ao-player",
    step: 0.025,
    text: (
      value,
    ) => (value % 1
      ? `${NAMES[Math.floor(value)].split(",")[0]} to ${NAMES[Math.ceil(value)].split(",")[0]}`
      : NAMES[value].split(",")[0]),
  },
  {
    kind: "actions",
    label: "go to",
    place: "ao-tokens",
    acts: Object.fromEntries(NAMES.map((name, context) => [name, () => ({ context })])),
  },
  {
    trait: "ones",
    label: `tokens at ${MARKS[1]} (of the five at ${MARKS[0]} and ${MARKS[1]})`,
    hidden: ({ context }) => context <= 1.5,
  },
];

function drawContext(picture, now, { context, ones, query }, asking) {
  const side = { low: -REACH, high: REACH, ticks: [-2, -1, 0, 1, 2] }, inside = clipped(picture, FRAME);
  axes(picture, FRAME, { ...side, label: "first feature" }, { ...side, label: "second feature" });
  const [a, b, c] = now.covariance,
    middle = (a + c) / 2,
    radius = Math.hypot((a - c) / 2, b),
    turn = Math.atan2(2 * b, a - c) / 2;
  const [long, short] = [Math.sqrt(middle + radius), Math.sqrt(Math.max(middle - radius, 0))];
  const ring = (at, size) =>
    Array.from({ length: 73 }, (_, k) => {
      const [p, q] = [size * long * Math.cos(k * Math.PI / 36), size * short * Math.sin(k * Math.PI / 36)];
      return place([at[0] + p * Math.cos(turn) - q * Math.sin(turn), at[1] + p * Math.sin(turn) + q * Math.cos(turn)]);
    });
  now.centers.forEach((center, index) => {
    const look = {
      stroke: COLORS[index],
      fill: COLORS[index],
      "fill-opacity": 0.07 + 0.25 * now.weights[index] * (asking ? 0 : 1),
      "stroke-width": 1.2,
    };
    if (long > 1e-6) {
      for (const size of [1, 2]) curve(inside, ring(center, size), { ...look, "stroke-opacity": size === 1 ? 0.9 : 0.4 });
    }
    mark(inside, index, place(center), 6, { fill: "none", stroke: COLORS[index], "stroke-width": 2.5 });
  });
  if (context > 1.5) {
    [PREFIX - ones, ones, SUFFIX].forEach((count, index) => {
      const [x, y] = place(now.centers[index]);
      drawn(
        "text",
        {
          x: x - (index === 1 ? 14 : -12),
          y: y + (index === 2 ? 20 : -12),
          "text-anchor": "middle",
          class: "ao-small ao-halo",
        },
        picture,
        `${count}×`,
      );
    });
  }
  drawn(
    "text",
    { x: FRAME[0], y: 14, class: "ao-small" },
    picture,
    asking ? "yellow: the query; hollow: the tokens" : "arrow: attention; dashed: between; dotted: within",
  );
  drawn(
    "text",
    { x: FRAME[0], y: 28, class: "ao-small" },
    picture,
    `${asking || context > 1.5 ? "" : "yellow: query; "}${
      long > 1e-6 ? "rings: 1 and 2 standard deviations" : `each ${context < 1 ? "class" : "cluster"} is a point`
    }${context > 1.5 ? "; n×: how many tokens" : ""}`,
  );
  if (asking) return void diamond(inside, place(query), { fill: "#E69F00" });
  line(inside, place([0, 0]), place(now.between), { "stroke-dasharray": "5 3", "stroke-width": 1.5 });
  line(inside, place(now.between), place(now.attention), { "stroke-dasharray": "2 3", "stroke-width": 2 });
  arrow(inside, place([0, 0]), place(now.attention), { stroke: PURPLE, "stroke-width": 2.5 });
}

function drawPotential(picture, now, { query }, asking) {
  const side = { low: -REACH, high: REACH, ticks: [-2, -1, 0, 1, 2] }, inside = clipped(picture, FRAME);
  axes(picture, FRAME, { ...side, label: "first coordinate of the query" }, { ...side, label: "second coordinate" });
  drawn(
    "text",
    { x: FRAME[0], y: 28, class: "ao-small" },
    picture,
    asking ? "contours of a function K: shown after you answer" : "contours of K; the arrow, its gradient, is attention",
  );
  if (asking) return;
  const tip = query.map((value, f) => value + now.attention[f]);
  contours(inside, levelSets(TICKS, TICKS.map((x) => TICKS.map((y) => potential(now, [x, y]))), LEVELS), LEVELS, {
    place,
    reach: REACH,
    taken: [query, tip],
  });
  arrow(inside, place(query), place(tip), { stroke: PURPLE, "stroke-width": 2.5 });
}

function draw([left, right], now, state, bounds, asking) {
  drawContext(left, now, state, asking);
  drawPotential(right, now, state, asking);
}

function say(now, { context, query, ones }) {
  const share = now.weights.map((value, index) => `${MARKS[index]} ${show(value)}`).join(", ");
  const parts = `Attention is ${pair(now.attention)}, the sum of ${pair(now.between)} between the clusters and ${
    pair(now.within)
  } within them; K is ${show(now.potential)}. `;
  if (context === 0) {
    return `${parts}The classes are points: attention is their weighted mean, with weights ${share}; K is a log-sum-exp, up to a constant.`;
  }
  if (context === 1) return `${parts}One normal cloud: attention is Σq, which is linear in the query, and K is quadratic.`;
  if (context < 2) {
    return `${parts}Weights of the clusters: ${share}; β is ${show(now.sharpness, 1)}.`;
  }
  const [first, second, third] = now.centers.map((center) => dot(query, center)),
    top = Math.max(first, second, third),
    tie = Math.abs(first - second) < 0.01 && top > third + 1;
  if (tie) {
    return `${parts}The query scores ${MARKS[0]} and ${MARKS[1]} equally, so their counts decide: ${
      PREFIX - ones
    } to ${ones}. The seven tokens at ${MARKS[2]} get ${
      now.weights[2] < 0.005 ? "almost no weight" : `the weight ${show(now.weights[2])}`
    }.`;
  }
  return `${parts}A large β favors the clusters with the highest scores; the weights are ${share}. K is a soft maximum of the scores.`;
}

const guess = {
  prompt:
    "Here the tokens are three class vectors. Suppose instead that there were many tokens, normally distributed around 0. What would attention be, as a function of the query?",
  options: ["always 0", "linear", "still an average of three points"],
  tells: true,
  reveal: (guessed) =>
    `${
      guessed === undefined ? "" : guessed === "linear" ? "Yes. " : "No. "
    }Attention to a normal cloud with covariance Σ is Σq, which is linear in the query: press II to see it. Between I and II, attention is the sum of two terms: an average of the centers (“between the clusters”) and a term that comes from the spread around them (“within”).`,
};
const tour = [
  {
    set: { context: 0 },
    say:
      "Part I. Each class is a point, and attention is the mean of the class vectors, weighted by their resemblance to the query. The contours of K are rounded triangles.",
  },
  {
    set: { context: 0.5 },
    say:
      "Halfway, each class is a normal cloud of the same shape. Attention is the sum of two terms, one between the clusters and one within them.",
  },
  {
    set: { context: 1 },
    say:
      "Part II. There is one cloud, so only the term within the clusters remains, and it is linear in the query. If the values are the examples’ labels instead of the tokens, attention returns the prediction after one gradient step on the examples. The contours are ellipses.",
  },
  {
    set: { context: 2 },
    say: ({ attention }) =>
      `Part III. The tokens of each cluster coincide, and the query scores two clusters equally: attention is ${
        pair(attention)
      }, which reveals the ratio 3 to 2 and almost nothing else.`,
  },
  {
    set: { context: 2, ones: 4 },
    say: ({ attention }) =>
      `Another sequence: of the five tokens at ● and ▲, four are at ▲, and attention is ${
        pair(attention)
      }. Such a head passes on the ratio of the counts at ● and ▲, and loses the order of the tokens and almost everything about ■.`,
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
