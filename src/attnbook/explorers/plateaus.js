// Plateaus of two or three linear layers in training, from steps that start almost equal: the time at which gradient flow
// tells them apart is said first, and the run follows.

import {
  axes,
  clamp,
  clipped,
  COLORS,
  curve,
  drawn,
  integrate,
  line,
  mark,
  power,
  powers,
  show,
  small,
  sum,
  ticksUpTo,
  tidy,
} from "./common.js";
import { explorer } from "./shell.js";

const MOMENTS = 401, SHARE = 0.1, TIGHTEST = -9, WIDEST = -2, REST = 9, PIECES = 400, AHEAD = "#CC79A7";
const rowOf = ({ table, dim, n_context: context }) => table[`${dim} ${context}`];
const lossAt = ({ nodes, weights }, sizes) =>
  sum(nodes.map((node, q) => weights[q] * sizes.reduce((product, size) => product * (1 - size * node), 1) ** 2));
const valueOf = (coefficients, at) => coefficients.reduceRight((total, coefficient) => total * at + coefficient, 0);

// Logarithms of the gaps between neighbors, from the smallest size up.
function gapsOf({ layers, pair }, spread) {
  const whole = spread * Math.LN10, odds = pair * Math.LN10;
  return layers === 2 ? [whole] : [whole - Math.log1p(Math.exp(-odds)), whole - Math.log1p(Math.exp(odds))];
}

// Sizes at increasing times. The smallest is followed, and the logarithms of the gaps, so that a gap of any size is exact.
function follow({ nodes, weights }, start, gaps, times) {
  const layers = gaps.length + 1;
  const sizesOf = ([first, ...logs]) => logs.reduce((sizes, log) => [...sizes, sizes.at(-1) + Math.exp(log)], [first]);
  const velocity = (state) => {
    const sizes = sizesOf(state), found = Array(layers).fill(0);
    nodes.forEach((node, q) => {
      const factors = sizes.map((size) => 1 - size * node), whole = factors.reduce((a, b) => a * b, 1);
      const without = (...left) =>
        factors.reduce((product, factor, layer) => (left.includes(layer) ? product : product * factor), 1);
      found[0] += 2 * weights[q] * node * whole * without(0);
      for (let gap = 1; gap < layers; gap++) found[gap] += 2 * weights[q] * node * node * whole * without(gap - 1, gap);
    });
    return found;
  };
  return integrate(velocity, [start, ...gaps], times).map(sizesOf);
}

// When a spread has grown to `reached`: by the flow of equal steps from their mean, with what uneven extremes add. All of it
// comes from the Taylor coefficients of the loss of equal steps at its minimum.
function tieBreaks(bends, away, spread, lean, layers, reached) {
  const odd = 2 * layers - 1, rate = 2 * bends[2] / (layers * odd), growth = Math.log(reached / spread);
  const slope = bends.slice(2).map((value, j) => (j + 2) * value),
    bend = bends.slice(3).map((value, j) => -((j + 3) * (j + 2) / 2) * value / bends[2]);
  const third = layers > 2 ? 6 * bends[3] / (layers * odd * (2 * layers - 2)) : 0,
    left = away * valueOf(slope, away) * Math.exp(-odd * growth);
  let [inner, outer] = [0, away];
  for (let k = 0; k < 80; k++) {
    const middle = (inner + outer) / 2;
    if (Math.abs(middle * valueOf(slope, middle)) < Math.abs(left)) inner = middle;
    else outer = middle;
  }
  const width = (away - inner) / PIECES, at = (j) => valueOf(bend, inner + j * width) / valueOf(slope, inner + j * width);
  const simpson = width / 3 *
    sum(Array.from({ length: PIECES + 1 }, (_, j) => at(j) * (j % PIECES === 0 ? 1 : j % 2 ? 4 : 2)));
  return growth / rate + third / rate ** 2 * lean * (reached - spread) + layers * simpson;
}

const kept = new Map(); // a run depends on what it starts from alone
function ran(state, spread, times) {
  const key = `${state.dim} ${state.n_context} ${state.layers} ${state.start} ${state.pair} ${spread} ${times.at(-1)}`;
  if (!kept.has(key)) {
    if (kept.size > 40) kept.clear();
    kept.set(key, follow(rowOf(state), state.start, gapsOf(state, spread), times));
  }
  return kept.get(key);
}

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const row = rowOf(state), { layers: k, start, pair } = state;
  if (!row) return null; // a kernel adds the row when it is asked for
  const best = row.optimal[k - 2],
    equal = row.equal[k - 2],
    bends = row.bends[k - 2],
    rate = 2 * bends[2] / (k * (2 * k - 1));
  const reached = SHARE * (best.at(-1) - best[0]),
    spread = 10 ** state.spread,
    low = Math.exp(gapsOf(state, state.spread)[0]);
  const mean = start + (k === 2 ? spread / 2 : (low + spread) / 3), lean = (2 * start + spread - 2 * mean) / spread;
  const first = tieBreaks(bends, equal - mean, spread, -lean, k, reached);
  const [pairRate, pairLevel] = k === 3 ? row.pairs[pair > 0 ? 1 : 0] : [null, null],
    wait = k === 3 ? Math.abs(pair) * Math.LN10 / pairRate : 0;
  const end = (Math.log(reached) - TIGHTEST * Math.LN10 + REST) / rate + wait;
  const times = Array.from({ length: MOMENTS }, (_, j) => end * j / (MOMENTS - 1)), way = ran(state, state.spread, times);
  const logs = way.map((sizes) => Math.log(sizes.at(-1) - sizes[0])),
    passed = logs.findIndex((log) => log >= Math.log(reached));
  const share = (Math.log(reached) - logs[passed - 1]) / (logs[passed] - logs[passed - 1]);
  return {
    times,
    best,
    equal,
    rate,
    reached,
    first,
    late: (WIDEST - state.spread) * Math.LN10 / rate,
    hundred: Math.log(100) / rate,
    sizes: best.map((_, layer) => way.map((sizes) => sizes[layer])),
    losses: way.map((sizes) => lossAt(row, sizes)),
    wide: ran(state, WIDEST, times).map((sizes) => lossAt(row, sizes)),
    floor: lossAt(row, best),
    level: lossAt(row, best.map(() => equal)),
    second: k === 3 ? first + wait : null,
    pair_rate: pairRate,
    pair_level: pairLevel,
    apart: times[passed - 1] + share * (times[passed] - times[passed - 1]),
  };
}

const BOX = "0 0 320 300", FIELD = [44, 26, 312, 262];
const pictures = [
  { label: "The loss against time, with the predicted time", box: BOX },
  { label: "The step sizes against time, with the optimal sizes and the best equal one", box: BOX },
];
const spelled = (exponent) => (Number.isInteger(exponent) ? power(10 ** exponent) : powers(10 ** exponent, 2, "·"));
const clock = (time) => String(Number(time.toPrecision(3)));
const three = (value) => show(value, 3);

const controls = [
  {
    trait: "spread",
    kind: "handle",
    label: "The time at which the steps separate",
    step: 2.7,
    mark: (node) => drawn("polygon", { points: "0,-9 7,3 -7,3", fill: AHEAD, stroke: "currentColor" }, node),
    place: (
      spread,
      now,
    ) => (now ? [FIELD[0] + (FIELD[2] - FIELD[0]) * now.first / now.times.at(-1), FIELD[3]] : [FIELD[0], FIELD[3]]),
    from(x, y, state) {
      const now = compute(state);
      if (!now) return state.spread;
      const here = FIELD[0] + (FIELD[2] - FIELD[0]) * now.first / now.times.at(-1),
        place = Math.abs(x - here) < 1e-9 ? x + FIELD[3] - y : x;
      const moved = (place - here) / (FIELD[2] - FIELD[0]) * now.times.at(-1);
      return Math.round(100 * clamp(state.spread - moved * now.rate / Math.LN10, TIGHTEST, WIDEST)) / 100;
    },
  },
  { trait: "layers", kind: "choice", label: "layers" },
  { trait: "spread", label: "initial range", step: 0.25, text: spelled },
  { trait: "pair", label: "lower gap / upper gap", step: 0.25, text: spelled, hidden: ({ layers }) => layers === 2 },
  { trait: "start", label: "smallest start", step: 0.05, digits: 2 },
  { trait: "dim", kind: "choice", label: "dimensions d" },
  { trait: "n_context", label: "examples n", digits: 0 },
];

function levels(picture, place, values, dashes, end, attributes = {}) {
  for (const value of values) {
    line(picture, place([0, value]), place([end, value]), {
      "stroke-dasharray": dashes,
      "stroke-width": 1.5,
      ...attributes,
    });
  }
}

function said(picture, place, now, low, high) {
  for (const moment of new Set([now.first, now.second ?? now.first])) {
    line(picture, place([moment, low]), place([moment, high]), { stroke: AHEAD, "stroke-width": 2 });
  }
}

function drawSizes(picture, now, asking) {
  const end = now.times.at(-1), high = 1.25 * now.best.at(-1);
  const place = axes(picture, FIELD, { label: "time", low: 0, high: end, ticks: ticksUpTo(end) }, {
    label: "step size",
    low: 0,
    high,
    ticks: ticksUpTo(high),
  });
  const inside = clipped(picture, FIELD);
  levels(inside, place, now.best, "7 4", end);
  levels(inside, place, [now.equal], "2 4", end);
  line(picture, [50, 10], [74, 10], { "stroke-dasharray": "7 4", "stroke-width": 1.5 });
  small(picture, 79, 14, "optimal sizes");
  line(picture, [178, 10], [202, 10], { "stroke-dasharray": "2 4", "stroke-width": 1.8 });
  small(picture, 207, 14, "best equal size");
  said(inside, place, now, 0, high);
  if (asking) return;
  now.sizes.forEach((way, layer) => {
    curve(inside, now.times.map((time, j) => place([time, way[j]])), { stroke: COLORS[layer], "stroke-width": 2.6 });
    const [x, y] = place([end, way.at(-1)]);
    mark(picture, layer, [x - 8, y], 6, { fill: COLORS[layer], stroke: "currentColor" });
    small(picture, x - 20, y - 7, `layer ${layer + 1}`, "end", "ao-halo");
  });
}

function drawLoss(picture, now, state, asking) {
  const end = now.times.at(-1),
    fall = now.level - now.floor,
    low = Math.max(0, now.floor - 0.5 * fall),
    high = now.level + 1.5 * fall,
    short = (value) => show(value, value < 0.1 ? 4 : 3);
  const step = ticksUpTo(high - low)[1];
  const place = axes(picture, FIELD, { label: "time", low: 0, high: end, ticks: ticksUpTo(end) }, {
    label: "loss",
    low,
    high,
    ticks: ticksUpTo(high - low).map((tick) => tick + Math.ceil(low / step) * step).filter((tick) => tick <= high),
  });
  const inside = clipped(picture, FIELD);
  levels(inside, place, [now.floor], "7 4", end);
  levels(inside, place, [now.level], "2 4", end);
  if (now.pair_level !== null && state.pair !== 0) levels(inside, place, [now.pair_level], "2 4", end, { opacity: 0.6 });
  const over = (value, text) => small(picture, FIELD[2] - 5, place([0, value])[1] - 5, text, "end", "ao-halo");
  over(now.level, `all equal ${short(now.level)}`);
  if (now.pair_level !== null && state.pair !== 0) {
    small(
      picture,
      FIELD[2] - 5,
      place([0, now.pair_level])[1] - 5,
      `a pair equal ${short(now.pair_level)}`,
      "end",
      "ao-halo",
    );
  }
  small(picture, FIELD[0] + 5, place([0, now.floor])[1] + 14, `optimum ${short(now.floor)}`, "start", "ao-halo");
  said(inside, place, now, low, high);
  line(picture, [50, 10], [74, 10], { stroke: AHEAD, "stroke-width": 2 });
  small(picture, 79, 14, "predicted");
  line(picture, [190, 10], [214, 10], { opacity: 0.45, "stroke-width": 2 });
  small(picture, 219, 14, `start ${spelled(WIDEST)} apart`);
  const drop = (losses, look) =>
    curve(inside, now.times.map((time, j) => place([time, Math.min(losses[j], 2 * high)])), look);
  drop(now.wide, { opacity: 0.45, "stroke-width": 2 });
  if (asking) return;
  drop(now.losses, { "stroke-width": 2.6 });
}

function draw([loss, sizes], now, state, bounds, asking) {
  drawSizes(sizes, now, asking);
  drawLoss(loss, now, state, asking);
}

function say(now, state) {
  if (!now) return `Python computes the spectrum for d = ${state.dim}, n = ${state.n_context} …`;
  const { dim, n_context: context, layers, pair } = state, { late } = now;
  const counted = `${layers === 2 ? "Two" : "Three"} layers, d = ${dim}, n = ${context}, start ${
    spelled(state.spread)
  } apart.`;
  const stays = layers === 3 && Math.abs(pair) >= 0.5
    ? ` The ${pair < 0 ? "lower" : "upper"} gap starts ${spelled(-Math.abs(pair))} times as large as the ${
      pair < 0 ? "upper" : "lower"
    } one. While only this gap is small, it grows at rate ${three(now.pair_rate)}, and its steps separate at about time ${
      clock(now.second)
    }.`
    : "";
  return `${counted} Equal steps would come to rest at a loss of ${
    three(now.level)
  }; near that point, differences grow like exp(${three(now.rate)} t). ` +
    `Predicted time for the steps to be ${three(now.reached)} apart, a tenth of their final range: ${
      clock(now.first)
    }. Measured: ${clock(now.apart)}.` +
    (late > 0.005 ? ` This is ${clock(late)} later than for the gray curve, which starts ${spelled(WIDEST)} apart.` : "") +
    stays;
}

const OPTIONS = ["after a hundred times as long", "later by a fixed amount", "at the same time"];
const guess = {
  prompt: (state) =>
    `${state.layers === 2 ? "Two" : "Three"} step sizes start ${
      spelled(state.spread)
    } apart. The pink line shows when we predict that their gap will reach a tenth of its final value. If they start a hundred times closer together, when will they separate? (Gray, for comparison: the loss if they start ${
      spelled(WIDEST)
    } apart.)`,
  options: OPTIONS,
  tells: true,
  reveal: (told, now) =>
    `${
      told === undefined ? "" : told === OPTIONS[1] ? "Yes. " : "No. "
    }Starting a hundred times closer together moves the pink line to the right by log(100) / ${three(now.rate)} = ${
      show(now.hundred, 2)
    }, wherever it was, because differences grow at rate ${three(now.rate)}. Drag the pink triangle to see it.`,
};

export default explorer({ pictures, controls, compute, draw, say, guess });
