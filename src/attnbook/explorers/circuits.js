// The 200 trained models as points, and the circuit of the one that is chosen: its integers, embeddings, and clusters.

import {
  arrow,
  axes,
  bytesOf,
  COLORS,
  curve,
  dot,
  drawn,
  line,
  mark,
  show,
  small,
  spelledWeights,
  tidy,
  title,
} from "./common.js";
import { attended, flatOf, margin, pairsOf, weightsIn } from "./model.js";
import { explorer } from "./shell.js";

const LENGTH = 12, PREFIX = 5, ALL = 2 ** LENGTH, MOST = 60, NEURONS = 32, MODELS = 200;
const SUCCESS = 0.9, FITS = 0.95, LEARNED = 0.55, NONE = 100;
const SHAPES = {
  token: [2, 2],
  position: [LENGTH, 2],
  query: [2],
  value: [2, 2],
  receptors: [NEURONS, 2],
  assemblers: [2, NEURONS],
  receptor_biases: [NEURONS],
  assembler_bias: [2],
};
const bitOf = (number, t) => (number >> (LENGTH - 1 - t)) & 1;
const LABELS = Array.from({ length: ALL }, (_, number) => [0, 1, 2, 3, 4].reduce((sum, t) => sum + bitOf(number, t), 0) % 2);

// The weights of a seed, from the page's one text.
let texts = new Map();
function weightsOf({ weights }, seed) {
  if (!texts.has(weights)) texts = new Map([[weights, new Float32Array(bytesOf(weights).buffer)]]);
  const all = texts.get(weights);
  return weightsIn(all, SHAPES, all.length / MODELS * seed);
}

// What each level of M holds, and ξ of all sequences; the last one is kept.
let kept = {};
function overAll({ data, seed }) {
  if (kept.data === data && kept.seed === seed) return kept;
  const params = weightsOf(data, seed), m = data.m[seed], model = { weights: params, norm: "rms" }, pairs = pairsOf(model);
  const points = [], of = [], groups = new Map();
  for (let number = 0; number < ALL; number++) {
    const tokens = m.map((_, t) => bitOf(number, t)),
      level = dot(m, tokens),
      { sequence } = attended(model, pairs, tokens),
      [x, y] = sequence;
    points.push(sequence);
    of.push(level);
    const [count, right, up] = groups.get(level) ?? [0, 0, 0];
    groups.set(level, [count + 1, right + x, up + y]);
  }
  const levels = [...groups].sort((a, b) => a[0] - b[0]).map((
    [level, [count, x, y]],
  ) => [level, count / ALL, x / count, y / count]);
  const means = new Map(levels.map(([level, , x, y]) => [level, [x, y]]));
  return (kept = {
    data,
    seed,
    model,
    params,
    m,
    table: pairs.embeddings,
    points,
    levels,
    means: of.map((level) => means.get(level)),
    of,
  });
}

// How often the answers to points are right; a tie is answered with 0.
function share({ model }, points) {
  const known = new Map(),
    answer = (xi) => {
      if (!known.has(xi)) known.set(xi, Number(margin(model, xi) > 0));
      return known.get(xi);
    };
  return points.reduce((sum, xi, number) => sum + Number(answer(xi) === LABELS[number]), 0) / ALL;
}

// How many models are right, how many of these count on the suffix, and how many of those by even integers alone.
function successes({ m, accuracy }) {
  const won = m.filter((_, seed) => accuracy[seed] > SUCCESS),
    some = won.filter((one) => one.slice(PREFIX).some((value) => value));
  return [won, some, some.filter((one) => one.slice(PREFIX).every((value) => value % 2 === 0))].map((models) =>
    models.length
  );
}

// The numbers that the pictures show; the Python class computes the same.
export function compute(state) {
  const all = overAll(state), shown = state.shown === "levels" ? all.means : all.points;
  all.trained ??= share(all, all.points);
  all.held ??= share(all, all.means);
  return {
    m: all.m,
    table: all.table,
    query: all.params.query,
    sequence: shown.filter((_, number) => number % Math.floor(ALL / 15) === 0),
    count: all.levels.length,
    levels: all.levels.length <= MOST ? all.levels : [],
    trained: all.trained,
    accuracy: state.shown === "levels" ? all.held : all.trained,
    successful: successes(state.data),
  };
}

// How many levels each model's count has, or NONE where none that knows the label fits; which kind it is.
let known = {};
function listed(data) {
  if (known.data === data) return known;
  const counts = data.m.map((m, seed) => {
    const knows = m.every((value, t) => Math.abs(value) % 2 === (t < PREFIX ? 1 : 0));
    if (!(knows && data.explained[seed] > FITS && data.accuracy[seed] > LEARNED)) return NONE;
    let found = new Set([0]);
    for (const value of m) found = new Set([...found, ...[...found].map((level) => level + value)]);
    return Math.min(found.size, NONE);
  });
  const kinds = data.m.map((m, seed) => {
    if (data.accuracy[seed] <= LEARNED) return "never";
    if (data.accuracy[seed] <= SUCCESS) return "part";
    if (m.some((value, t) => (t < PREFIX ? Math.abs(value) !== 1 : value !== 0))) return "other";
    return m.slice(0, PREFIX).every((value) => value === m[0]) ? "plain" : "signs";
  });
  return (known = { data, counts, kinds });
}
const next = (kind) => ({ data, seed }) => {
  const { kinds } = listed(data);
  for (let step = 1; step <= MODELS; step++) {
    if (kinds[(seed + step) % MODELS] === kind) return { seed: (seed + step) % MODELS };
  }
  return {};
};

const BOX = "0 0 320 264", FRAME = [52, 22, 308, 218];
const wide = {
  label: "number of levels (values of M)",
  low: 5,
  high: 130,
  ticks: [6, 10, 20, 40, NONE],
  scale: Math.log,
  text: (value) => (value === NONE ? "no count" : tidy(value)),
};
const tall = { label: "accuracy", low: 0.45, high: 1.03, ticks: [0.5, 0.6, 0.7, 0.8, 0.9, 1] };
const part = ({ low, high, scale = Number }, value) => (scale(value) - scale(low)) / (scale(high) - scale(low));
const shifted = (seed) => 1 + 0.05 * Math.sin(2.4 * seed); // so points do not hide each other
function spot(data, seed) {
  const { counts } = listed(data);
  return [
    FRAME[0] + (FRAME[2] - FRAME[0]) * part(wide, counts[seed] * shifted(seed)),
    FRAME[3] - (FRAME[3] - FRAME[1]) * part(tall, data.accuracy[seed]),
  ];
}

const pictures = [
  {
    label: "1: all 200 models, accuracy against the levels of the count; a click chooses the nearest",
    box: BOX,
    click(x, y, { data }) {
      const far = data.m.map((_, seed) => {
        const [u, v] = spot(data, seed);
        return Math.hypot(u - x, v - y);
      });
      const seed = far.indexOf(Math.min(...far));
      return far[seed] < 30 ? { seed } : {};
    },
  },
  { label: "2: the weights m of the count, one for each position", box: BOX },
  { label: "3: the normalized embeddings of both tokens at all positions, and the query", box: BOX },
  { label: "4: the sequence embeddings, with the levels of the count", box: BOX },
];
const controls = [
  {
    kind: "actions",
    label: "next model:",
    top: true,
    place: "ao-tokens",
    acts: {
      "plain count": next("plain"),
      "mixed signs": next("signs"),
      "larger weights": next("other"),
      "partly learned": next("part"),
      "at chance": next("never"),
    },
  },
  {
    trait: "shown",
    kind: "choice",
    label: "ξ",
    hidden: ({ data, seed, shown }) => shown === "trained" && listed(data).counts[seed] === NONE,
    names: { trained: "as trained", levels: "replaced by the mean of its level" },
  },
  { trait: "seed", label: "seed" },
];

function drawRuns(picture, { data, seed }) {
  title(picture, "1. All 200 models");
  axes(picture, FRAME, wide, tall);
  const [low] = [FRAME[3] - (FRAME[3] - FRAME[1]) * part(tall, SUCCESS)];
  line(picture, [FRAME[0], low], [FRAME[2], low], { "stroke-dasharray": "3 4", opacity: 0.6 });
  data.m.forEach((_, other) => {
    const won = data.accuracy[other] > SUCCESS;
    mark(picture, won ? 0 : 2, spot(data, other), won ? 3.4 : 2.8, {
      fill: won ? COLORS[2] : "currentColor",
      "fill-opacity": won ? 0.6 : 0.35,
      class: "ao-pick",
    });
  });
  const [x, y] = spot(data, seed);
  drawn("circle", { cx: x, cy: y, r: 7, fill: "none", stroke: "currentColor", "stroke-width": 2.5 }, picture);
  drawn("rect", {
    x: FRAME[0],
    y: FRAME[1],
    width: FRAME[2] - FRAME[0],
    height: FRAME[3] - FRAME[1],
    fill: "transparent",
    class: "ao-pick",
  }, picture);
  mark(picture, 0, [64, 190], 3.4, { fill: COLORS[2] });
  small(picture, 72, 194, "success");
  mark(picture, 2, [64, 206], 2.8, { fill: "currentColor", "fill-opacity": 0.5 });
  small(picture, 72, 210, "failure");
}

function drawWeights(picture, { m }, { data, seed }, asking) {
  const fits = listed(data).counts[seed] !== NONE;
  const top = Math.max(3, ...m.map(Math.abs)), left = 40, unit = 22.5, zero = 112, scale = 76 / top;
  title(picture, "2. What it counts: M = Σ mₜ xₜ");
  if (!fits) {
    small(picture, left + unit * LENGTH / 2, zero - 30, "none with odd weights on the prefix, even on the suffix", "middle");
  }
  m.forEach((value, t) => {
    const x = left + unit * t, odd = Math.abs(value) % 2 === 1, size = Math.abs(value) * scale;
    small(picture, x + unit / 2, 222, String(t + 1), "middle");
    if (!fits) return;
    if (asking && t >= PREFIX) {
      small(picture, x + unit / 2, zero - 4, "?", "middle");
      return;
    }
    if (value) {
      drawn("rect", {
        x: x + 4,
        y: value > 0 ? zero - size : zero,
        width: unit - 8,
        height: size,
        fill: odd ? "currentColor" : "none",
        stroke: "currentColor",
        "stroke-width": 1.6,
      }, picture);
    }
    small(
      picture,
      x + unit / 2,
      value > 0 ? zero - size - 4 : value < 0 ? zero + size + 13 : zero - 4,
      tidy(value),
      "middle",
    );
  });
  line(picture, [left, zero], [left + unit * LENGTH, zero], { opacity: 0.5 });
  line(picture, [left + unit * PREFIX, 26], [left + unit * PREFIX, 206], { "stroke-dasharray": "3 4", opacity: 0.7 });
  small(picture, left + unit * PREFIX / 2, 246, "prefix", "middle");
  small(picture, left + unit * (PREFIX + LENGTH) / 2, 246, "suffix", "middle");
  drawn(
    "rect",
    { x: 196, y: 24, width: 9, height: 9, fill: "currentColor", stroke: "currentColor", "stroke-width": 1.6 },
    picture,
  );
  small(picture, 210, 32, "odd");
  drawn("rect", { x: 246, y: 24, width: 9, height: 9, fill: "none", stroke: "currentColor", "stroke-width": 1.6 }, picture);
  small(picture, 260, 32, "even");
}

function drawEmbeddings(picture, { table, query }) {
  const at = ([x, y]) => [150 + 68 * x, 126 - 68 * y];
  title(picture, "3. Embeddings Z and query q");
  drawn("circle", { cx: 150, cy: 126, r: 68 * Math.SQRT2, fill: "none", stroke: "currentColor", opacity: 0.4 }, picture);
  table.forEach((row, x) =>
    row.forEach((z, t) =>
      mark(picture, t < PREFIX ? 0 : 2, at(z), t < PREFIX ? 6 : 4.5, {
        fill: COLORS[x],
        "fill-opacity": t < PREFIX ? 0.8 : 0.45,
        stroke: "currentColor",
        "stroke-width": 0.8,
      })
    )
  );
  const size = Math.hypot(...query);
  if (size > 0) arrow(picture, [150, 126], at(query.map((value) => 1.1 * value / size)), { "stroke-width": 2.2 });
  ["token 0", "token 1"].forEach((text, x) => {
    mark(picture, 0, [252, 222 + 16 * x], 5, { fill: COLORS[x] });
    small(picture, 261, 226 + 16 * x, text);
    mark(picture, 2 * x, [12, 222 + 16 * x], 4.5, { fill: "none", stroke: "currentColor" });
    small(picture, 21, 226 + 16 * x, ["prefix", "suffix"][x]);
  });
}

function drawClusters(picture, { levels }, state) {
  const all = overAll(state),
    points = state.shown === "levels" ? all.means : all.points,
    [left, top, right, bottom] = [62, 22, 258, 218];
  const reach = 1.12 * Math.max(1e-6, ...all.points.map(([x, y]) => Math.max(Math.abs(x), Math.abs(y)))),
    middle = (left + right) / 2,
    half = (right - left) / 2;
  const at = ([x, y]) => [middle + half * x / reach, (top + bottom) / 2 - half * y / reach], seen = [new Map(), new Map()];
  title(
    picture,
    state.shown === "levels" ? "4. ξ, each the mean of its level" : "4. Embeddings ξ of all sequences, labeled by M",
  );
  drawn("rect", {
    x: left,
    y: top,
    width: right - left,
    height: bottom - top,
    fill: "none",
    stroke: "currentColor",
    opacity: 0.5,
  }, picture);
  line(picture, at([-reach, 0]), at([reach, 0]), { opacity: 0.2 });
  line(picture, at([0, -reach]), at([0, reach]), { opacity: 0.2 });
  points.forEach((xi, number) => seen[LABELS[number]].set(xi.map((value) => Math.round(value / reach * 150)).join(), xi));
  seen.forEach((group, label) => {
    const path = [...group.values()].map((xi) => `M${at(xi).map((value) => value.toFixed(1)).join(" ")}h0`).join("");
    drawn("path", {
      d: path,
      stroke: COLORS[label],
      "stroke-width": state.shown === "levels" ? 7 : 4,
      "stroke-linecap": "round",
      fill: "none",
      opacity: 0.6,
    }, picture);
  });
  if (levels.length <= 20 && listed(state.data).counts[state.seed] !== NONE) {
    if (listed(state.data).counts[state.seed] !== NONE) {
      curve(picture, levels.map(([, , x, y]) => at([x, y])), { opacity: 0.35 });
    }
    levels.forEach(([level, , x, y]) => small(picture, at([x, y])[0], at([x, y])[1] - 7, tidy(level), "middle", "ao-halo"));
  }
  ["label 0", "label 1"].forEach((text, label) => {
    mark(picture, 0, [266, 34 + 16 * label], 3.5, { fill: COLORS[label] });
    small(picture, 274, 38 + 16 * label, text);
  });
  small(picture, 62, 238, `axes from ${show(-reach)} to ${show(reach)}`);
}

function draw([first, second, third, fourth], now, state, bounds, asking) {
  drawRuns(first, state);
  drawWeights(second, now, state, asking);
  drawEmbeddings(third, now);
  drawClusters(fourth, now, state);
}

const percent = (value) => (value === 1 ? "100" : show(Math.min(100 * value, 99.9), 1));
function written(m) {
  const text = m.flatMap((
    value,
    t,
  ) => (value
    ? [
      `${value < 0 ? "− " : "+ "}${Math.abs(value) === 1 ? "" : Math.abs(value)}x${
        String(t + 1).replace(/\d/g, (digit) => "₀₁₂₃₄₅₆₇₈₉"[digit])
      }`,
    ]
    : [])
  ).join(" ");
  return text.replace(/^\+ /, "");
}
function say({ m, count, trained, accuracy }, { data, seed, shown }) {
  const fits = listed(data).counts[seed] !== NONE, explained = data.explained[seed];
  const first = `The model with seed ${seed} is right on ${percent(trained)}% of the sequences`;
  if (!fits) return `${first}. No count with odd weights on the prefix and even weights on the suffix describes its ξ.`;
  return `${first}. It counts M = ${written(m)}, with ${count} levels, and M explains ${
    percent(explained)
  }% of the variance of ξ. ` +
    (shown === "levels"
      ? `With every ξ replaced by the mean of its level, it is right on ${percent(accuracy)}%.`
      : `The suffix invariance is ${
        show(data.suffix[seed])
      } (it is 1 if ξ does not depend on the suffix), and the permutation invariance is ${
        show(data.permutation[seed])
      } (it is 1 if ξ does not depend on the order of the prefix).`);
}

const ZERO = "only 0", EVEN = "even weights", ANY = "any";
const guess = {
  prompt:
    "The circle in picture 1 marks the chosen model, and picture 2 shows its count, a sum of the bits with integer weights; the weights on the suffix (positions 6–12) are hidden. The label is the parity of the first five tokens. Which weights do the successful models have on the suffix?",
  options: [ZERO, EVEN, ANY],
  tells: true,
  reveal(guessed, { successful: [won, some, even] }) {
    const verdict = guessed === undefined ? "" : guessed === EVEN ? "Right. " : "Not quite. ";
    return `${verdict}Of the ${won} successful models, ${some} have nonzero weights on the suffix, ${
      even === some ? "and all these weights are even" : `and in ${even} of these models, all of them are even`
    }. Even weights do not change the parity of M. Click points to see their circuits.`;
  },
};

const elsewhere = {
  label: "open it in the laboratory",
  to: ({ data, seed }) =>
    `laboratory.html#sandbox=run:own;start:${encodeURIComponent(spelledWeights(flatOf(weightsOf(data, seed))))}`,
};

export default explorer({ pictures, controls, compute, draw, say, guess, elsewhere });
