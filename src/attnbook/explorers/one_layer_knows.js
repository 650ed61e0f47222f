// The unexplained variance of a parity after n examples of one attention layer, by what its head can tell apart.

import { axes, clipped, COLORS, curve, drawn, line, power, show, small, sum } from "./common.js";
import { explorer } from "./shell.js";

const DECADES = 7, POINTS = 71, LEFT = 0.2, SHARPEST = 6, SOFTEST = 0.2, STEPS = 61, GRAY = "#6b6b6b", OURS = COLORS[2];
const NAMES = ["nothing", "sequences", "positions", "counts", "parity"];
const SHARPNESS = Array.from({ length: STEPS }, (_, j) => SOFTEST + (SHARPEST - SOFTEST) * j / (STEPS - 1));

function chosenOf(k) {
  const row = [1];
  for (let j = 1; j <= k; j++) row.push(row[j - 1] * (k - j + 1) / j);
  return row.map(Math.round);
}

// The cells that a head tells apart: [probability, how many have it].
function cellsOf(knows, k, length) {
  if (knows === "sequences") return [[0.5 ** length, 2 ** length]];
  if (knows === "positions") return [[0.5 ** k, 2 ** k]];
  return knows === "counts" ? chosenOf(k).map((ways) => [ways / 2 ** k, 1]) : [[0.5, 2]];
}
const unseen = (cells, n) => sum(cells.map(([share, count]) => count * share * (1 - share) ** n));

// ν at a sharpness.
function numberAt(length, k, beta) {
  const rho = Math.tanh(beta / 2);
  return Math.exp(length * Math.log1p(rho * rho) - 2 * k * Math.log(rho));
}

// The numbers that the picture shows; the Python class computes the same.
export function compute({ length, weight, sharpness, decades }) {
  const k = Math.min(weight, length), now = Math.round(10 ** decades), own = numberAt(length, k, sharpness);
  const numbers = Array.from({ length: POINTS }, (_, j) => Math.round(10 ** (DECADES * j / (POINTS - 1))));
  const kinds = Object.fromEntries(NAMES.slice(1).map((name) => [name, cellsOf(name, k, length)]));
  const left = (name, n) => (name === "nothing" ? (own - 1) / (n + own - 1) : unseen(kinds[name], n));
  const needed = (name) => {
    if (name === "nothing") return Math.ceil((own - 1) * (1 / LEFT - 1) - 1e-6);
    let low = 0, high = 1;
    while (unseen(kinds[name], high) > LEFT) [low, high] = [high, 2 * high];
    while (high - low > 1) {
      const middle = Math.floor((low + high) / 2);
      if (unseen(kinds[name], middle) > LEFT) low = middle;
      else high = middle;
    }
    return high;
  };
  const of = (part) => Object.fromEntries(NAMES.map((name) => [name, part(name)])), rest = length - k;
  const inner = k < rest, hypotheses = chosenOf(length)[k];
  return {
    numbers,
    now,
    hypotheses,
    number: own,
    cells: Object.fromEntries(Object.entries(kinds).map(([name, kind]) => [name, sum(kind.map(([, number]) => number))])),
    curves: of((name) => numbers.map((n) => left(name, n))),
    left: of((name) => left(name, now)),
    needed: of(needed),
    least: Math.max(0, 1 - now / hypotheses),
    best: inner ? (length / rest) ** length * (rest / k) ** k : 2 ** length,
    best_sharpness: inner ? 2 * Math.atanh(Math.sqrt(k / rest)) : null,
    valley: SHARPNESS.map((beta) => numberAt(length, k, beta)),
  };
}

const FIELD = [46, 26, 346, 262],
  BOX = "0 0 360 306",
  put = (
    [n, value],
  ) => [FIELD[0] + (FIELD[2] - FIELD[0]) * Math.log10(n) / DECADES, FIELD[3] - (FIELD[3] - FIELD[1]) * value];
const TITLES = {
  nothing: "all tokens (all examples vote)",
  sequences: "all tokens (exact matches vote)",
  positions: "the relevant tokens",
  counts: "the count",
  parity: "the parity",
};
const many = (
  value,
) => (value < 1e5
  ? value.toFixed(0).replace(/\B(?=(\d{3})+$)/g, ",")
  : value.toExponential(1).replace(/e\+?(\d+)/, (_, exponent) => `·${power(10 ** exponent)}`));
const isOpen = ({ knows }) => knows === "nothing";
const isBlind = ({ knows }) => knows === "nothing" || knows === "sequences";

const pictures = [
  { label: "Unexplained variance against the number of examples, for five heads", box: BOX },
  {
    label:
      "What the head sees: the number ν against the inverse temperature, or the cells and how likely the examples fill them",
    box: BOX,
  },
];
const controls = [
  { trait: "knows", kind: "choice", label: "the head compares", top: true, names: TITLES },
  {
    trait: "decades",
    kind: "handle",
    label: "The number of examples",
    step: (FIELD[2] - FIELD[0]) / DECADES / 20,
    place: (decades, now, { knows }) => [put([10 ** decades, 0])[0], put([1, now ? now.left[knows] : 1])[1]],
    from(x, y, state) {
      const now = compute(state), [here, height] = [put([10 ** state.decades, 0])[0], put([1, now.left[state.knows]])[1]];
      const moved = Math.abs(x - here) < 1e-6 ? y - height : x - here; // up the curve, with a key, is to fewer examples
      return state.decades + DECADES * moved / (FIELD[2] - FIELD[0]);
    },
    mark: (node) => drawn("circle", { r: 7, fill: OURS, stroke: "currentColor", "stroke-width": 1.5 }, node),
  },
  { trait: "decades", label: "examples n", step: 0.05, text: (value) => many(Math.round(10 ** value)) },
  { trait: "length", label: "tokens L", digits: 0 },
  { trait: "weight", label: "relevant tokens k", digits: 0, text: (value, { length }) => String(Math.min(value, length)) },
  { trait: "sharpness", label: "inverse temperature β", step: 0.01, hidden: (state) => !isOpen(state) },
];

function drawCurves(picture, now, { knows }, asking) {
  const x = {
    low: 1,
    high: 10 ** DECADES,
    scale: Math.log10,
    ticks: [1, 100, 1e4, 1e6],
    text: (value) => (value < 1000 ? String(value) : power(value)),
    label: "examples n",
  };
  axes(picture, FIELD, x, { low: 0, high: 1, ticks: [0, 0.2, 0.5, 1], label: "unexplained variance" });
  line(picture, put([1, LEFT]), put([10 ** DECADES, LEFT]), { "stroke-dasharray": "2 4", opacity: 0.7 });
  if (asking) {
    drawn("text", { x: 196, y: 140, "text-anchor": "middle" }, picture, "how many examples until 20%?");
    return;
  }
  const inside = clipped(picture, [FIELD[0], FIELD[1] - 3, FIELD[2], FIELD[3] + 3]);
  for (const name of NAMES.filter((other) => other !== knows)) {
    curve(
      inside,
      now.numbers.map((n, j) => put([n, now.curves[name][j]])),
      { stroke: GRAY, "stroke-width": 1.2 },
    );
  }
  if (isBlind({ knows })) {
    curve(inside, now.numbers.map((n) => put([n, Math.max(0, 1 - n / now.hypotheses)])), { "stroke-dasharray": "6 4" });
  }
  curve(inside, now.numbers.map((n, j) => put([n, now.curves[knows][j]])), { stroke: OURS, "stroke-width": 3 });
  const level = 0.46, first = now.curves[knows].findIndex((value) => value < level);
  if (first >= 0) {
    const [x, y] = put([now.numbers[first], level]), last = x > FIELD[2] - 90;
    drawn(
      "text",
      {
        x: last ? x - 8 : x + 8,
        y: y + 4,
        "text-anchor": last ? "end" : "start",
        class: "ao-small ao-halo",
        "font-weight": "bold",
      },
      picture,
      "this head",
    );
  }
  small(
    picture,
    FIELD[0],
    16,
    isBlind({ knows }) ? "gray: other heads; dashed: bound, averaged over rules" : "gray: heads that compare something else",
  );
}

function drawValley(picture, now, { sharpness }) {
  const high = Math.ceil(Math.log10(Math.max(...now.valley.filter((value) => value < 1e9), now.number, 10))),
    ticks = Array.from({ length: high + 1 }, (_, j) => 10 ** j).filter((_, j) => high < 6 || j % 2 === 0);
  const place = axes(picture, FIELD, {
    low: SOFTEST,
    high: SHARPEST,
    ticks: [1, 2, 3, 4, 5, 6],
    label: "inverse temperature β",
  }, {
    low: 1,
    high: 10 ** high,
    scale: Math.log10,
    ticks,
    text: (value) => (value < 1000 ? String(value) : power(value)),
    label: "ν",
  });
  const inside = clipped(picture, FIELD);
  curve(inside, SHARPNESS.map((beta, j) => place([beta, now.valley[j]])), { stroke: OURS, "stroke-width": 3 });
  line(inside, place([SOFTEST, now.hypotheses]), place([SHARPEST, now.hypotheses]), { "stroke-dasharray": "6 4" });
  const [cx, cy] = place([sharpness, now.number]);
  drawn("circle", { cx, cy, r: 5, fill: OURS, stroke: "currentColor" }, inside);
  small(picture, FIELD[0], 16, `dashed: number of rules, ${many(now.hypotheses)}`);
}

// One bar per cell, as wide as it is probable, filled as likely as it has been seen; the empty part is the unexplained variance.
function drawCells(picture, now, { knows, length, weight }, asking) {
  const k = Math.min(weight, length),
    place = axes(picture, FIELD, { low: 0, high: 1, ticks: [0, 0.5, 1], label: "cells (width: probability)" }, {
      low: 0,
      high: 1,
      ticks: [0, 0.5, 1],
      label: "probability that the cell was seen",
    });
  if (asking) return;
  let from = 0;
  cellsOf(knows, k, length).forEach(([share, count]) => {
    const parts = count <= 64 ? count : 1, width = share * count / parts, seen = 1 - (1 - share) ** now.now;
    for (let part = 0; part < parts; part++, from += width) {
      const [left, top] = place([from, seen]), [right, bottom] = place([from + width, 0]);
      drawn("rect", {
        x: left,
        y: top,
        width: Math.max(right - left, 0),
        height: bottom - top,
        fill: OURS,
        "fill-opacity": 0.55,
        stroke: "currentColor",
        "stroke-width": 0.6,
      }, picture);
    }
  });
  small(picture, FIELD[0], 16, "one bar per cell: sequences that look the same");
}

function draw([left, right], now, state, bounds, asking) {
  drawCurves(left, now, state, asking);
  if (isOpen(state)) drawValley(right, now, state);
  else drawCells(right, now, state, asking);
}

const KNOWN = {
  positions: "compares the relevant tokens",
  counts: "compares how many of these tokens are 1",
  parity: "compares only the parity",
};
const examples = (number) => (number === 1 ? "example" : "examples");
function say(now, { knows, length, weight, sharpness }) {
  const k = Math.min(weight, length), left = show(100 * now.left[knows], 1);
  const after = `After ${many(now.now)} ${examples(now.now)}, ${left}% of the variance remains unexplained`;
  const rules = now.hypotheses === 1
    ? `There is only one parity of ${k} of ${length} tokens. `
    : `There are ${many(now.hypotheses)} parities of ${k} of ${length} tokens. `;
  const bound = now.least > 0
    ? `; with any scores that ignore the labels, at least ${show(100 * now.least, 1)}% does, on average over these rules`
    : ` (the lower bound for scores that ignore the labels is 0 once there are ${many(now.hypotheses)} ${
      examples(now.hypotheses)
    })`;
  if (isOpen({ knows })) {
    const best = now.best_sharpness === null ? "the sharper the better" : `the best β is ${show(now.best_sharpness)}`;
    return `${rules}A head that counts matching tokens and divides by the expected sum has ν = ${many(now.number)} at β = ${
      show(sharpness)
    }; ${best}, with ν = ${many(now.best)}. ` +
      `${after}${bound}. To bring this to 20% or less, the head needs ${many(now.needed.nothing)} examples.`;
  }
  const count = now.cells[knows];
  if (knows === "sequences") {
    return `${rules}The head compares all tokens, so there are ${
      many(count)
    } cells; it answers correctly once it has seen the query itself. ${after}${bound}. To bring this to 20% or less, the head needs ${
      many(now.needed.sequences)
    } examples.`;
  }
  return `The head ${KNOWN[knows]}, so there are ${
    many(count)
  } cells; it answers correctly once it has seen the query’s cell. ` +
    `${after}. To bring this to 20% or less, the head needs ${
      many(now.needed[knows])
    } examples; a head that compares all tokens needs ${many(now.needed.sequences)}.`;
}

const guess = {
  prompt:
    "The label of 12 bits is the parity of 5 of them, up to an unknown sign. One attention layer sees labeled examples until its mean squared error falls to a fifth of what always answering 0 would give. How many examples does it need if it compares all 12 bits, and how many if an earlier head has counted the ones among the 5?",
  options: ["700 and 50", "7,000 and 7", "7,000 and 500"],
  reveal: (guessed, { needed }) =>
    `${guessed === "7,000 and 7" ? "Right" : "Not quite"}. With sharp scores, the layer needs ${
      many(needed.sequences)
    } examples if it compares all bits, but only ${needed.counts} if it compares counts. There are 4,096 sequences to see, but only six counts, and two of these are rare.`,
};
const tour = [
  {
    set: { knows: "sequences", decades: 3 },
    say:
      "The head compares all tokens: 4,096 cells. Even after 1,000 examples, although there are only 792 parities, most of the variance is unexplained.",
  },
  {
    set: { knows: "positions", decades: 1.7 },
    say: "It compares the five relevant tokens: 32 cells. After 50 examples it has seen most of them.",
  },
  {
    set: { knows: "counts", decades: 0.85 },
    say: "It compares counts of ones: six cells, two of them rare. After 7 examples, a fifth is unexplained.",
  },
  {
    set: { knows: "parity", decades: 0.5 },
    say: "It compares the parity, which is the label up to its sign: two cells, and 3 examples.",
  },
  {
    set: { knows: "nothing", length: 20, weight: 3, sharpness: 0.9, decades: 4 },
    say:
      "Here every example votes, with a weight that grows with the number of matching tokens. Three of 20 tokens matter. There are 1,140 parities, and ν, about the number of examples that explain half of the variance, is about four times as large. Sharper or softer scores raise ν.",
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
