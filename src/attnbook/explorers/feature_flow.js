// The flow of three tokens, or of a pair of tokens from three starts: their paths in the plane, and how far they are, or how high
// the cross-entropy is, in time.

import {
  averaged,
  axes,
  clamp,
  clipped,
  COLORS,
  contours,
  curve,
  dot,
  drawn,
  integrate,
  levelSets,
  line,
  mark,
  MARKS,
  minus,
  power,
  show,
  softmaxOf,
  ticksUpTo,
} from "./common.js";
import { explorer } from "./shell.js";

const FIRST = 0.1, HORIZON = 1000, FLAT = 1e-6;
const TIMES = [0, ...Array.from({ length: 61 }, (_, k) => FIRST * 10 ** (k / 15))];
const softplus = (value) => Math.max(value, 0) + Math.log1p(Math.exp(-Math.abs(value)));
const logistic = (value) => 1 / (1 + Math.exp(-value));
const entropy = (distribution) => -distribution.reduce((sum, value) => sum + (value > 0 ? value * Math.log(value) : 0), 0);
const labelOf = (token, softness) => [0, 1, 2].map((c) => (c === token ? 1 - softness : 0) + softness / 3);
const area = ([first, second, third]) =>
  (second[0] - first[0]) * (third[1] - first[1]) - (second[1] - first[1]) * (third[0] - first[0]);

// One token with two features, three classes: N = zθᵀ.
function linear({ weights, softness }, token) {
  const target = averaged(labelOf(token, softness), weights),
    attend = (z) => softmaxOf(weights.map((weight) => dot(weight, z)));
  const gradient = (z) => minus(averaged(attend(z).weights, weights), target);
  return { loss: (z) => attend(z).lse - dot(target, z), gradient, formula: gradient };
}

// Two tokens with one feature, θ = 1: N = zzᵀ, softmax over its columns; `other` is the weight of a token's label on the other.
function quadratic({ formula, exchanged, softness }) {
  const other = exchanged ? 1 - softness / 2 : softness / 2;
  const gaps = ([a, b]) => [a * (a - b), b * (b - a)];
  const excess = (z) => gaps(z).map((gap) => logistic(-gap) - other); // attention to the other token, beyond the label
  const gradient = (z) => {
    const [first, second] = excess(z);
    return [-2 * first * z[0] + (first + second) * z[1], (first + second) * z[0] - 2 * second * z[1]];
  };
  const papers = (z) => {
    const [first, second] = excess(z), moved = 2 * (second * z[1] - first * z[0]);
    return [moved, -moved];
  };
  return {
    loss: (z) => gaps(z).reduce((sum, gap) => sum + softplus(-gap) + other * gap, 0),
    gradient,
    formula: formula === "paper" ? papers : gradient,
    infimum: 2 * entropy([Math.min(other, 0.5), 1 - Math.min(other, 0.5)]),
  };
}

// Of a class vector the nearest point between the two others.
function nearest(weights, token) {
  const [from, to] = weights.filter((_, c) => c !== token), way = minus(to, from), length = dot(way, way);
  const part = length > 0 ? clamp(dot(minus(weights[token], from), way) / length, 0, 1) : 0;
  return from.map((value, f) => value + part * way[f]);
}

// Of the linear model: margins of one-hot labels; where soft ones come to rest, and how fast in the end.
function fates({ model, weights, softness }) {
  const none = { margins: null, growth: null, rests: null, rest_distances: null, rates: null };
  if (model !== "linear" || (softness > 0 && Math.abs(area(weights)) <= FLAT)) return none;
  if (softness === 0) {
    const margins = [0, 1, 2].map((token) => Math.hypot(...minus(weights[token], nearest(weights, token))));
    return { ...none, margins, growth: Math.min(...margins) > 0.05 ? margins.map((margin) => Math.LN10 / margin) : null };
  }
  const [u, v] = [minus(weights[0], weights[1]), minus(weights[0], weights[2])],
    labels = [0, 1, 2].map((token) => labelOf(token, softness));
  const rests = labels.map(([p, q, r]) => {
    const [a, b] = [Math.log(p / q), Math.log(p / r)], determinant = u[0] * v[1] - u[1] * v[0];
    return [(a * v[1] - b * u[1]) / determinant, (b * u[0] - a * v[0]) / determinant];
  });
  return {
    ...none,
    rests,
    rest_distances: rests.map((rest) => Math.hypot(...rest)),
    rates: labels.map((label) => {
      const middle = averaged(label, weights), off = weights.map((weight) => minus(weight, middle));
      const [xx, xy, yy] = [[0, 0], [0, 1], [1, 1]].map(([f, g]) =>
        label.reduce((sum, share, c) => sum + share * off[c][f] * off[c][g], 0)
      );
      return (xx + yy) / 2 - Math.hypot((xx - yy) / 2, xy);
    }),
  };
}

const problems = (state) => [0, 1, 2].map((index) => (state.model === "linear" ? linear(state, index) : quadratic(state)));
const kept = new Map(); // paths do not depend on the time shown, nor on each other

function remembered(key, make) {
  if (!kept.has(key)) {
    if (kept.size > 40) kept.clear();
    kept.set(key, make());
  }
  return kept.get(key);
}

const named = ({ model, formula, weights, exchanged, softness }, index) =>
  JSON.stringify(model === "linear" ? [weights, softness, index] : [formula, exchanged, softness]);

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const three = problems(state), { time, starts, model, weights, softness } = state;
  const velocities = three.map(({ formula }) => (z) => formula(z).map((value) => -value));
  const paths = starts.map((start, index) =>
    remembered(`${named(state, index)} ${start}`, () => integrate(velocities[index], start, TIMES))
  );
  const before = TIMES.findLastIndex((value) => value <= time);
  const now = paths.map((path, index) => integrate(velocities[index], path[before], [time - TIMES[before]])[0]);
  const own = Math.abs(area(weights)) > FLAT ? entropy(labelOf(0, softness)) : null;
  return {
    times: TIMES,
    paths,
    now,
    losses: paths.map((path, index) => path.map(three[index].loss)),
    now_losses: now.map((z, index) => three[index].loss(z)),
    gradient_norms: now.map((z, index) => Math.hypot(...three[index].gradient(z))),
    infimum: model === "linear" ? own : three[0].infimum,
    distances: now.map((z) => Math.hypot(...z)),
    ...fates(state),
  };
}

const REACH = 3, FRAME = [46, 24, 346, 324];
const LEVELS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50];
const TICKS = Array.from({ length: 41 }, (_, index) => REACH * (index / 20 - 1));
const STARTS = { linear: [[Math.LN2, 0], [0, 0], [0, Math.LN2]], quadratic: [[2.5, 2.3], [2, 0.25], [-0.5, -1.2]] };
const place = (
  [x, y],
) => [FRAME[0] + (FRAME[2] - FRAME[0]) * (1 + x / REACH) / 2, FRAME[1] + (FRAME[3] - FRAME[1]) * (1 - y / REACH) / 2];
const unplace = (
  x,
  y,
) => [REACH * (2 * (x - FRAME[0]) / (FRAME[2] - FRAME[0]) - 1), REACH * (1 - 2 * (y - FRAME[1]) / (FRAME[3] - FRAME[1]))];
const tip = (weight) => weight.map((value) => value * (1 + 0.3 / Math.max(0.3, Math.hypot(...weight))));
const filled = (node, index, at, radius) =>
  mark(node, index, at, radius, { fill: COLORS[index], stroke: "currentColor", "stroke-width": 1.5 });
const hollow = (node, index, at) => mark(node, index, at, 6, { fill: "none", stroke: COLORS[index], "stroke-width": 2.5 });

const pictures = [
  {
    label: "The plane of features: classes hollow, tokens or starts filled, their paths, and contours of the cross-entropy",
    box: "0 0 360 364",
  },
  { label: "Distance from 0, or the cross-entropy, in time", box: "0 0 360 364" },
];
const STEP = (FRAME[2] - FRAME[0]) / REACH / 20;
const isLinear = ({ model }) => model === "linear", isPair = ({ model }) => model !== "linear";
const controls = [
  ...[0, 1, 2].map((index) => ({
    trait: "starts",
    at: index,
    kind: "handle",
    label: `Start ${index + 1}`,
    step: STEP,
    focus: { selected: index },
    mark: (node) => filled(node, index, [0, 0], 8),
    place,
    from: unplace,
    size: ({ selected }) => (index === selected ? 1 : 0.8),
  })),
  ...[0, 1, 2].map((index) => ({
    trait: "weights",
    at: index,
    kind: "handle",
    label: `Vector of class ${index + 1}`,
    step: STEP,
    hidden: isPair,
    mark: (node) => hollow(node, index, [0, 0]),
    place,
    from: unplace,
    size: 0.85,
  })),
  { trait: "softness", label: "label softness", step: 0.01 },
  { trait: "time", label: "time", scale: "log", digits: 1 },
  { trait: "shown", kind: "choice", label: "right picture", names: { distance: "distance from 0", loss: "cross-entropy" } },
  { trait: "selected", kind: "choice", label: "selected", names: (index) => `${MARKS[index]} ${index + 1}` },
  ...["horizontal", "vertical"].map((name, f) => ({
    trait: "starts",
    at: ({ selected }) => [selected, f],
    label: `start, ${name}`,
  })),
  {
    trait: "model",
    kind: "choice",
    label: "model",
    names: { linear: "linear: three tokens", quadratic: "quadratic: a pair" },
    put: (model) => ({ model, starts: STARTS[model], shown: model === "linear" ? "distance" : "loss" }),
  },
  {
    trait: "formula",
    kind: "choice",
    label: "move against",
    names: { true: "the gradient", paper: "the paper’s formula" },
    hidden: isLinear,
  },
  {
    trait: "exchanged",
    kind: "choice",
    label: "labels",
    names: { false: "each its own", true: "exchanged" },
    hidden: isLinear,
  },
];

function drawPlane(plane, now, state, asking) {
  const { time, weights, selected, starts } = state,
    small = { class: "ao-small" },
    halo = { "text-anchor": "middle", class: "ao-small ao-halo" };
  const side = { low: -REACH, high: REACH, ticks: [-3, -2, -1, 0, 1, 2, 3] };
  const [across, up] = isLinear(state) ? ["first feature", "second feature"] : ["feature of token 1", "feature of token 2"];
  axes(plane, FRAME, { ...side, label: across }, { ...side, label: up });
  const inside = clipped(plane, FRAME), paths = asking ? [] : now.paths;
  if (isLinear(state)) {
    drawn("polygon", {
      points: weights.map(place).join(" "),
      fill: "none",
      stroke: "currentColor",
      "stroke-dasharray": "3 4",
    }, inside);
    weights.forEach((weight, c) => {
      const [x, y] = place(tip(weight));
      drawn("text", { x, y: y + 4, ...halo }, inside, `θ${"₁₂₃"[c]}`);
      if (asking) hollow(inside, c, place(weight));
    });
  } else {
    line(inside, place([-REACH, -REACH]), place([REACH, REACH]), { "stroke-dasharray": "2 4", opacity: 0.7 });
  }
  if (asking) {
    starts.forEach((start, index) => filled(inside, index, place(start), 7));
    drawn(
      "text",
      { x: FRAME[0], y: 14, ...small },
      plane,
      isLinear(state) ? "filled: tokens; hollow: classes" : "filled: three starts of the pair",
    );
    return;
  }
  const { loss } = problems(state)[selected], key = `levels ${named({ ...state, formula: "" }, selected)}`;
  const sets = remembered(key, () => levelSets(TICKS, TICKS.map((x) => TICKS.map((y) => loss([x, y]))), LEVELS));
  const taken = [
    ...starts,
    ...(isLinear(state) ? [...weights, ...weights.map(tip)] : []),
    ...paths.flatMap((path) => path.filter((_, k) => k % 3 === 0)),
  ];
  contours(inside, sets, LEVELS, { place, reach: REACH, taken });
  drawn(
    "text",
    { x: FRAME[0], y: 14, ...small },
    plane,
    isLinear(state)
      ? `numbered lines: cross-entropy of token ${MARKS[selected]}`
      : "numbered lines: cross-entropy of the pair",
  );
  if (now.margins && now.margins[selected] > 0.05) {
    const [from, to] = [weights[selected], nearest(weights, selected)].map(place),
      [right, down] = minus(to, from),
      length = Math.hypot(right, down);
    line(inside, from, to, { stroke: COLORS[selected], "stroke-width": 2, "stroke-dasharray": "1 3" });
    const at = {
      x: to[0] + 14 * right / length,
      y: to[1] + 14 * down / length + 4,
      "text-anchor": right > 0 ? "start" : "end",
    };
    drawn("text", { ...halo, ...at }, inside, `margin ${show(now.margins[selected])}`);
  }
  paths.forEach((path, index) => {
    const gone = path.filter((_, k) => TIMES[k] < time);
    curve(inside, path.map(place), { stroke: COLORS[index], "stroke-width": 1.2, opacity: 0.8 });
    curve(inside, [...gone, now.now[index]].map(place), { stroke: COLORS[index], "stroke-width": 3.5 });
    filled(inside, index, place(now.now[index]), 4);
  });
  if (now.rests) {
    now.rests.forEach((rest, index) => {
      const [x, y] = place(rest);
      for (const turn of [1, -1]) {
        line(inside, [x - 5, y - 5 * turn], [x + 5, y + 5 * turn], { stroke: COLORS[index], "stroke-width": 2.5 });
      }
    });
  }
}

// How high, or how far, with what the theorems say about it dashed.
function drawFront(front, now, state, asking) {
  const { time, shown } = state, far = shown === "distance", small = { class: "ao-small ao-halo" };
  const values = far ? now.paths.map((path) => path.map((z) => Math.hypot(...z))) : now.losses;
  const rests = far && now.rests ? now.rests.map((rest) => Math.hypot(...rest)) : [];
  const ticks = [0.1, 1, 10, 100, 1000],
    most = Math.max(...values.flat()),
    top = far ? 1.12 * Math.max(most, ...rests, 1) : Math.max(10, 1.5 * most);
  const x = { label: "time (logarithmic)", low: FIRST, high: HORIZON, scale: Math.log10, ticks };
  const put = axes(
    front,
    FRAME,
    x,
    far ? { label: "distance from 0", low: 0, high: top, ticks: ticksUpTo(top) } : {
      label: "cross-entropy (logarithmic)",
      low: 1e-4,
      high: top,
      scale: Math.log10,
      ticks: [1e-4, 1e-3, 0.01, 0.1, 1, 10],
      text: power,
    },
  );
  if (asking) {
    drawn("text", { x: (FRAME[0] + FRAME[2]) / 2, y: (FRAME[1] + FRAME[3]) / 2, "text-anchor": "middle" }, front, "?");
    return;
  }
  const inside = clipped(front, FRAME), seen = TIMES.map((_, k) => k).slice(1);
  const guide = (index, height) =>
    curve(inside, seen.map((k) => put([TIMES[k], height(TIMES[k])])), {
      stroke: COLORS[index],
      "stroke-width": 1.4,
      "stroke-dasharray": "5 4",
    });
  const level = (value, name, dash) => {
    line(inside, put([FIRST, value]), put([HORIZON, value]), { "stroke-dasharray": dash, opacity: 0.8 });
    drawn("text", { x: FRAME[0] + 6, y: put([FIRST, value])[1] - 5, ...small }, front, name);
  };
  let dashed = "";
  if (now.margins) {
    now.margins.forEach((margin, index) => {
      if (margin <= 0.05) return;
      dashed = far ? "dashed: slope 1/margin" : "dashed: 1/(margin² · time)";
      guide(index, far ? (t) => values[index].at(-1) - Math.log(HORIZON / t) / margin : (t) => 1 / (margin ** 2 * t));
    });
  }
  rests.forEach((rest, index) => {
    dashed = "dashed: where each token comes to rest";
    guide(index, () => rest);
  });
  if (!far && isPair(state)) level(2 * Math.LN2, "equal tokens: 2 log 2", "2 4");
  if (!far && now.infimum > 1e-3 && Math.abs(now.infimum - 2 * Math.LN2) > 0.1) {
    level(now.infimum, `infimum ${show(now.infimum, 3)}`, "6 4");
  }
  drawn("text", { x: FRAME[0], y: 14, class: "ao-small" }, front, dashed);
  const [at] = put([time, far ? 0 : 1]);
  line(front, [at, FRAME[1]], [at, FRAME[3]], { opacity: 0.5 });
  const present = far ? now.now.map((z) => Math.hypot(...z)) : now.now_losses;
  values.forEach((one, index) => {
    const points = seen.map((k) => put([TIMES[k], Math.max(one[k], 1e-12)])),
      here = put([time, Math.max(present[index], 1e-12)]);
    curve(inside, points, { stroke: COLORS[index], "stroke-width": 1.2, opacity: 0.8 });
    curve(inside, [...points.filter((_, k) => TIMES[k + 1] < time), here], { stroke: COLORS[index], "stroke-width": 3 });
    filled(inside, index, here, 5);
  });
}

function draw([plane, front], now, state, bounds, asking) {
  drawPlane(plane, now, state, asking);
  drawFront(front, now, state, asking);
}

const each = (values, digits = 2) => values.map((value, index) => `${MARKS[index]} ${show(value, digits)}`).join(", ");

function sayLinear(now, { time, starts, selected }) {
  const distances = `${MARKS[selected]} starts at (${starts[selected].map((value) => show(value)).join(", ")}). At time ${
    show(time, 1)
  } the distances from 0 are ${each(now.distances)}; cross-entropies ${each(now.now_losses, 3)}. `;
  if (now.rests) {
    return `${distances}Soft labels: each token comes to rest, at the distances ${
      each(now.rest_distances)
    }. In the end, the remaining distance shrinks like e^(−λt), with λ = ${each(now.rates, 3)}.`;
  }
  if (!now.margins) return `${distances}The class vectors lie on a line.`;
  if (!now.growth) {
    return `${distances}One-hot labels, margins ${each(now.margins)}: a class vector lies (almost) between the two others.`;
  }
  return `${distances}One-hot labels: no token comes to rest. In the end, each tenfold increase in time adds log(10)/margin to the distance: ${
    each(now.growth)
  }.`;
}

function sayPair(now, { formula, time, starts, selected }) {
  const risen = [0, 1, 2].filter((index) => {
    const seen = [...now.losses[index].filter((_, k) => TIMES[k] < time), now.now_losses[index]];
    return seen.some((value, k) => k > 0 && value > seen[k - 1] + 1e-7 * (1 + value));
  });
  const pair = (z) => z.map((value) => show(value)).join(", ");
  return `At time ${show(time, 1)}, moving against the ${
    formula === "true" ? "gradient" : "paper’s formula"
  } has brought the cross-entropy to ${each(now.now_losses, 3)} (infimum ${show(now.infimum, 3)}). ` +
    `${MARKS[selected]} has moved from (${pair(starts[selected])}) to (${
      pair(now.now[selected])
    }), where the gradient has norm ${show(now.gradient_norms[selected], 3)}. ` +
    (risen.length
      ? `The cross-entropy has risen at some time for ${risen.map((index) => MARKS[index]).join(" and ")}.`
      : "The cross-entropy has fallen at all times.");
}

const say = (now, state) => (isLinear(state) ? sayLinear : sayPair)(now, state);

const FATES = {
  tokens: ["all come to rest", "all leave for infinity", "some rest, some leave"],
  pairs: ["all merge", "all separate", "some merge, some separate"],
};
const guess = {
  prompt: (
    state,
  ) => (isLinear(state)
    ? "Each token has its own class as a one-hot label and follows the negative gradient. Where do the three filled shapes end?"
    : "Each shape is a pair of tokens, and each token’s label is itself. Each pair follows the negative gradient. How many pairs merge on the diagonal?"),
  options: (state) => FATES[isLinear(state) ? "tokens" : "pairs"],
  reveal(guessed, now, state) {
    const rest =
      now.paths.filter((path, index) => Math.hypot(...problems(state)[index].gradient(path.at(-1))) < 1e-7).length;
    const [all, none, some] = FATES[isLinear(state) ? "tokens" : "pairs"], found = rest === 3 ? all : rest ? some : none;
    const verdict = `${found === guessed ? "Right" : "Not quite"}: ${found}.`;
    if (!isLinear(state)) {
      return `${verdict} A pair that has merged stays merged; the tokens of the other pairs drift apart forever.`;
    }
    return rest
      ? `${verdict} A soft label lets its token come to rest.`
      : `${verdict} Their distances grow like the logarithm of time, a straight line in the right picture. Now soften the labels.`;
  },
};

export default explorer({ pictures, controls, compute, draw, say, guess });
