// A head attends to tokens in clusters: what it returns, what the query's classmates alone would say, and Part I's gradient.

import {
  arrow,
  averaged,
  bent,
  clamp,
  clipped,
  COLORS,
  curve,
  dot,
  drawn,
  line,
  mark,
  minus,
  pair,
  show,
  softmaxOf,
  uniforms,
} from "./common.js";
import { explorer } from "./shell.js";

const MOST = 2000, SHOWN = 500, VIEW = 2.7, GRAY = "#6b6b6b", LOOKS = [COLORS[0], COLORS[1], "#CC79A7"];
const NINE_IN_TEN = Math.sqrt(-2 * Math.log(0.1)), FIRST = [0.3, 0];
const kept = new Map();

// A number in (0, 1) and a pair of standard normal ones for each token, always the same for a draw, as Python has them.
function draws(number) {
  if (kept.has(number)) return kept.get(number);
  const all = uniforms(number, 4 * MOST);
  const found = Array.from(
    { length: MOST },
    (_, k) => ({ uniform: all[4 * k], noise: bent(all[4 * k + 2], all[4 * k + 3]) }),
  );
  if (kept.size > 8) kept.clear();
  kept.set(number, found);
  return found;
}

const plus = (a, b) => a.map((value, index) => value + b[index]);
const scaled = (share, vector) => vector.map((value) => share * value);
const outer = ([a, b]) => [a * a, a * b, a * b, b * b];
function contextOf({ means, axis: [a, b], clusters, tokens, number }) {
  return draws(number).slice(0, tokens).map(({ uniform, noise: [u, v] }) => {
    const own = Math.floor(clusters * uniform);
    return { own, point: plus(means[own], [a * u - b * v / 2, b * u + a * v / 2]) };
  });
}

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const { query, clusters, tokens, axis: [a, b] } = state,
    context = contextOf(state),
    theta = state.means.slice(0, clusters);
  const attend = (some) =>
    averaged(softmaxOf(some.map(({ point }) => dot(query, point))).weights, some.map(({ point }) => point));
  const { weights } = softmaxOf(context.map(({ point }) => dot(query, point))),
    own = context.filter((token) => token.own === 0);
  const shares = theta.map((_, k) => weights.reduce((total, weight, j) => total + (context[j].own === k ? weight : 0), 0));
  const everyone = averaged(weights, context.map(({ point }) => point)), mates = own.length ? attend(own) : null;
  const sigma = plus(outer([a, b]), scaled(1 / 4, outer([-b, a]))),
    within = [sigma[0] * query[0] + sigma[1] * query[1], sigma[2] * query[0] + sigma[3] * query[1]];
  const logits = theta.map((one) => dot(one, query)),
    once = softmaxOf(logits),
    twice = softmaxOf(scaled(2, logits)),
    between = averaged(once.weights, theta);
  const spread = clusters * Math.exp(twice.lse - 2 * once.lse + dot(query, within));
  const shift = plus(minus(averaged(twice.weights, theta), between), within);
  const covariance = theta.reduce(
    (total, one, k) => plus(total, scaled(twice.weights[k], outer(plus(minus(one, between), within)))),
    sigma,
  );
  return {
    everyone,
    mates,
    pull: mates && minus(everyone, mates),
    shares,
    belief: once.weights,
    between,
    within,
    limit: plus(between, within),
    gradient: minus(between, theta[0]),
    count: 1 / weights.reduce((total, weight) => total + weight * weight, 0),
    effective: tokens / spread,
    bias: scaled(-spread / tokens, shift),
    covariance: scaled(spread / tokens, covariance),
  };
}

const FRAME = [8, 24, 352, 368], UNIT = (FRAME[2] - FRAME[0]) / (2 * VIEW), BARS = [16, 46, 284, 250];
const place = ([u, v]) => [(FRAME[0] + FRAME[2]) / 2 + UNIT * u, (FRAME[1] + FRAME[3]) / 2 - UNIT * v];
const back = (left, top) => [(left - (FRAME[0] + FRAME[2]) / 2) / UNIT, ((FRAME[1] + FRAME[3]) / 2 - top) / UNIT];
const pictures = [
  { label: "The plane: tokens in clusters, the query, what attention returns and its limit", box: "0 0 360 376" },
  { label: "Attention on each cluster, and how many tokens count", box: "0 0 300 376" },
];

// The handle of the clusters' shape stands a little beyond the end of the half axis, so that it is free where there is none.
const beyond = (vector) => {
  const length = Math.hypot(...vector);
  return length > 1e-9 ? scaled(1 + FIRST[0] / length, vector) : FIRST;
};
const controls = [
  ...[2, 1, 0].map((k) => ({
    trait: "means",
    at: k,
    kind: "handle",
    label: `Class vector ${k + 1}`,
    step: UNIT / 10,
    from: back,
    hidden: ({ clusters }) => k >= clusters,
    mark(parent) {
      mark(parent, k, [0, 0], 7, { fill: "none", stroke: LOOKS[k], "stroke-width": 2.5 });
    },
    place: (value) => place(value),
  })),
  {
    trait: "axis",
    kind: "handle",
    label: "Half axis of the clusters",
    step: UNIT / 20,
    from(left, top, { means }) {
      const vector = minus(back(left, top), means[0]), length = Math.hypot(...vector);
      return length > FIRST[0] ? scaled(1 - FIRST[0] / length, vector) : [0, 0];
    },
    mark(parent) {
      drawn("circle", { r: 4.5, fill: "var(--ao-ground, #fff)", stroke: LOOKS[0], "stroke-width": 2 }, parent);
    },
    place: (value, numbers, { means }) => place(plus(means[0], beyond(value))),
  },
  {
    trait: "query",
    kind: "handle",
    label: "The query",
    step: UNIT / 10,
    from: back,
    mark(parent) {
      drawn("circle", { r: 7, fill: LOOKS[0], stroke: "currentColor", "stroke-width": 1.5 }, parent);
    },
    place: (value) => place(value),
  },
  { trait: "clusters", kind: "choice", label: "clusters", place: "ao-tokens", top: true },
  { trait: "tokens", label: "tokens n", scale: "log" },
  {
    kind: "actions",
    label: "context",
    place: "ao-tokens",
    acts: { "draw another": ({ number }) => ({ number: (number + 1) % 100 }) },
  },
];

// The ellipse around a middle of so many standard deviations.
function around(middle, [a, b, , c], deviations) {
  const mean = (a + c) / 2, radius = Math.hypot((a - c) / 2, b), turn = Math.atan2(2 * b, a - c) / 2;
  const [long, short] = [1, -1].map((sign) => deviations * Math.sqrt(Math.max(mean + sign * radius, 0)));
  return Array.from({ length: 73 }, (_, k) => {
    const [u, v] = [long * Math.cos(k * Math.PI / 36), short * Math.sin(k * Math.PI / 36)];
    return place(plus(middle, [u * Math.cos(turn) - v * Math.sin(turn), u * Math.sin(turn) + v * Math.cos(turn)]));
  });
}

function drawPlane(picture, now, state, asking) {
  const { means, axis, query, clusters } = state, field = clipped(picture, FRAME), [a, b] = axis;
  const sigma = plus(outer([a, b]), scaled(1 / 4, outer([-b, a]))), groups = {};
  const context = contextOf(state).slice(0, SHOWN),
    scores = context.map(({ point }) => dot(query, point)),
    top = Math.max(...scores);
  context.forEach(({ own, point }, j) => {
    const key = `${own} ${Math.max(1, Math.ceil(5 * Math.exp(scores[j] - top)))}`, [x, y] = place(point);
    groups[key] = `${groups[key] ?? ""}M${x.toFixed(1)} ${y.toFixed(1)}h0.01`;
  });
  for (const [key, d] of Object.entries(groups)) {
    const [own, shade] = key.split(" ").map(Number);
    drawn("path", {
      d,
      stroke: LOOKS[own],
      "stroke-width": 3 + 0.8 * shade,
      "stroke-linecap": "round",
      "stroke-opacity": 0.3 + 0.12 * shade,
      fill: "none",
    }, field);
  }
  means.slice(0, clusters).forEach((mean, k) => curve(field, around(mean, sigma, 1), { stroke: LOOKS[k], opacity: 0.8 }));
  line(field, place(plus(means[0], axis)), place(plus(means[0], beyond(axis))), { stroke: LOOKS[0], opacity: 0.7 });
  const [wx, wy] = place(plus(means[0], beyond(axis)));
  drawn("text", { x: wx + 8, y: wy - 6, class: "ao-small ao-halo" }, field, "width");
  drawn("rect", {
    x: FRAME[0],
    y: FRAME[1],
    width: FRAME[2] - FRAME[0],
    height: FRAME[3] - FRAME[1],
    fill: "none",
    stroke: "currentColor",
    opacity: 0.5,
  }, picture);
  const [qx, qy] = place(query);
  drawn(
    "text",
    { x: clamp(qx, 30, 330), y: qy > FRAME[1] + 30 ? qy - 12 : qy + 22, "text-anchor": "middle", class: "ao-small ao-halo" },
    field,
    "query",
  );
  if (asking) {
    means.slice(0, clusters).forEach((mean, k) =>
      mark(field, k, place(mean), 7, { fill: "none", stroke: LOOKS[k], "stroke-width": 2.5 })
    );
    drawn("circle", { cx: qx, cy: qy, r: 7, fill: LOOKS[0], stroke: "currentColor", "stroke-width": 1.5 }, field);
    return;
  }
  const { limit } = now, shifted = plus(means[0], now.within);
  for (const [from, to] of [[now.between, limit], [means[0], shifted]]) {
    line(field, place(from), place(to), { "stroke-dasharray": "2 3" });
  }
  drawn("polygon", {
    points: around(plus(limit, now.bias), now.covariance, NINE_IN_TEN).map((point) =>
      point.map((value) => value.toFixed(1)).join(",")
    ).join(" "),
    fill: "currentColor",
    "fill-opacity": 0.15,
    class: "ao-error",
  }, field);
  arrow(field, place(now.between), place(means[0]), { stroke: GRAY, "stroke-width": 3, class: "ao-first" });
  if (now.mates) {
    arrow(field, place(now.everyone), place(now.mates), { stroke: COLORS[2], "stroke-width": 3, class: "ao-pull" });
  }
  const [x, y] = place(now.everyone);
  drawn("circle", { cx: x, cy: y, r: 4, fill: COLORS[2] }, field);
  line(picture, [10, 12], [30, 12], { stroke: COLORS[2], "stroke-width": 3 });
  drawn("text", { x: 34, y: 16, class: "ao-small" }, picture, "from everyone to the classmates");
  line(picture, [222, 12], [242, 12], { stroke: GRAY, "stroke-width": 3 });
  drawn("text", { x: 246, y: 16, class: "ao-small" }, picture, "Part I’s step");
}

function drawBars(picture, { shares, belief, count, effective }, { clusters, tokens }, asking) {
  const wide = BARS[2] - BARS[0];
  drawn("text", { x: BARS[0], y: 16, class: "ao-small" }, picture, "attention on each cluster");
  shares.forEach((share, k) => {
    const top = 28 + 62 * k;
    mark(picture, k, [BARS[0] + 7, top + 8], 5, { fill: "none", stroke: LOOKS[k], "stroke-width": 2 });
    if (asking) return;
    drawn("text", { x: BARS[0] + 20, y: top + 12, class: "ao-small" }, picture, `${show(share)}, limit ${show(belief[k])}`);
    drawn(
      "rect",
      { x: BARS[0], y: top + 18, width: wide * share, height: 20, fill: LOOKS[k], "fill-opacity": 0.75 },
      picture,
    );
    line(picture, [BARS[0] + wide * belief[k], top + 14], [BARS[0] + wide * belief[k], top + 42], { "stroke-width": 2.5 });
  });
  if (asking) return;
  const top = 240, part = (value) => wide * Math.log(value) / Math.log(MOST);
  drawn("text", { x: BARS[0], y: top, class: "ao-small" }, picture, `tokens: ${tokens}`);
  drawn("rect", { x: BARS[0], y: top + 6, width: part(tokens), height: 16, fill: GRAY, "fill-opacity": 0.35 }, picture);
  drawn(
    "text",
    { x: BARS[0], y: top + 44, class: "ao-small" },
    picture,
    `tokens that count: ${show(count, 1)}, expected ${show(effective, 1)}`,
  );
  drawn(
    "rect",
    { x: BARS[0], y: top + 50, width: part(Math.max(1, count)), height: 16, fill: GRAY, "fill-opacity": 0.75 },
    picture,
  );
  const at = BARS[0] + part(Math.max(1, effective));
  line(picture, [at, top + 46], [at, top + 70], { "stroke-width": 2.5 });
  drawn("text", { x: BARS[0], y: top + 92, class: "ao-small" }, picture, "(gray bars: logarithmic scale)");
  if (clusters === 1) drawn("text", { x: BARS[0], y: 108, class: "ao-small" }, picture, "one cluster: linear attention");
}

function draw([plane, bars], now, state, bounds, asking) {
  drawPlane(plane, now, state, asking);
  drawBars(bars, now, state, asking);
}

function say({ everyone, limit, between, within, pull, gradient, count, effective }, { tokens }) {
  return `Attention returns ${pair(everyone)}. In a long context, the output is ${pair(limit)}: ${
    pair(between)
  } between the clusters and ${pair(within)} within them. ` +
    `${pull ? `Everyone minus the classmates is ${pair(pull)}` : "The query has no classmates here"}; Part I’s gradient is ${
      pair(gradient)
    }. ` +
    `The ${tokens} tokens count like ${show(count, 1)} equally weighted ones (${
      show(effective, 1)
    } expected). If the expected number is large, attention’s output lies in the shaded ellipse in about nine of ten contexts.`;
}

const guess = {
  prompt:
    "The query ● belongs to the class ○. Attention over all tokens returns one point; attention over only its classmates returns another. Suppose that every cluster becomes twice as wide. In a long context, what happens to the arrow from the first point to the second?",
  options: ["it grows", "it turns", "neither"],
  reveal: (guessed, { gradient }) =>
    `${
      guessed === "neither" ? "Right" : "Not quite"
    }: the arrow keeps its length and direction, because both ends move along the dotted lines by the same vector Σq, where Σ is the covariance of each cluster. In a long context, the arrow is Part I’s step for these class vectors, ${
      pair(scaled(-1, gradient))
    }, whatever Σ is.`,
};
const tour = [
  {
    set: {},
    say:
      "Three clusters. Gray: Part I’s step, from the average of the class vectors under the query’s belief to the vector of its class. Dotted: the shift Σq, the term within the clusters, which moves both ends. Green: the same arrow, computed from 200 tokens.",
  },
  {
    set: { axis: [0, 0], tokens: 2000 },
    say:
      "No spread: tokens are their class vectors, and only the number of tokens in each cluster counts. This is Part I’s attention, up to these counts.",
  },
  {
    set: { clusters: 1, tokens: 2000 },
    say:
      "One cluster: the belief is settled, and attention returns the mean plus Σq; the term Σq is Part II’s linear attention. There is nothing to learn from classmates.",
  },
  {
    set: { tokens: 2000, axis: [0.9, 0.1] },
    say: "Wide clusters and a long context: both ends have moved, but the arrow has nearly kept its length and direction.",
  },
  {
    set: { tokens: 2000, query: [2.4, 1.6] },
    say: "A long query listens to few tokens: of 2000, fewer than a hundred count, and the ellipse is wide.",
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
