// Labeled points in the plane and a query: what layers make of them if the query's label is masked, or supplied.

import { axes, clamp, clipped, COLORS, dot, drawn, line, mark, show, standardNormals } from "./common.js";
import { explorer } from "./shell.js";

const TOKENS = 9, TOSSES = 400, REACH = 3, GRAY = "#6b6b6b", QUERY = TOKENS - 1;
let kept = null;
const tosses = () =>
  kept ??= Array.from({ length: TOSSES }, (_, toss) => {
    const drawnPairs = standardNormals(10 + toss, 2 * TOKENS);
    return { points: drawnPairs.slice(0, TOKENS), labels: drawnPairs.slice(TOKENS).map(([u]) => Number(u > 0)) };
  });

const similarity = (
  { kernel, width },
) => (kernel === "linear" ? dot : (a, b) => Math.exp(-((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) / (2 * width * width)));

// What each example has added to every token per unit of similarity, and the log-odds of all tokens, after the layers. For
// class vectors -½ and ½ the push (σ - C)θ is the probability of label 1 minus the label.
function layered(points, labels, shown, { step, layers, ...rest }) {
  const close = similarity(rest),
    near = points.map((x) => points.slice(0, shown).map((y) => close(x, y))),
    pull = new Array(shown).fill(0);
  let odds = points.map(() => 0);
  for (let layer = 0; layer < layers; layer++) {
    for (let l = 0; l < shown; l++) pull[l] += step / shown * (labels[l] - 1 / (1 + Math.exp(-odds[l])));
    odds = near.map((row) => dot(row, pull));
  }
  return { pull, odds };
}

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const { points, labels, mask, kernel, layers } = state, shown = TOKENS - (mask === "hidden" ? 1 : 0);
  const { odds } = layered(points, labels, shown, state), right = odds.map((value, j) => value > 0 === (labels[j] === 1));
  const share = (seen) =>
    tosses().filter((toss) => layered(toss.points, toss.labels, seen, state).odds[QUERY] > 0 === (toss.labels[QUERY] === 1))
      .length / TOSSES;
  return {
    odds,
    shown,
    chance: 1 / (1 + Math.exp(-odds[QUERY])),
    own: right.slice(0, shown).filter(Boolean).length,
    right: right[QUERY],
    shares: { "put in": share(TOKENS), hidden: share(QUERY) },
    exact: kernel === "linear" && layers === 1 ? (1 + 1 / Math.sqrt(TOKENS)) / 2 : null,
  };
}

const FRAME = [12, 22, 312, 322], UNIT = (FRAME[2] - FRAME[0]) / (2 * REACH), BARS = [16, 22, 304, 290];
const place = ([u, v]) => [(FRAME[0] + FRAME[2]) / 2 + UNIT * u, (FRAME[1] + FRAME[3]) / 2 - UNIT * v];
const back = (left, top) => [(left - (FRAME[0] + FRAME[2]) / 2) / UNIT, ((FRAME[1] + FRAME[3]) / 2 - top) / UNIT];
const LOOKS = [{ fill: COLORS[0], stroke: "currentColor" }, { fill: COLORS[1], stroke: "currentColor" }];

const pictures = [
  {
    label: "The plane: labeled points, the query in a ring, and where the layers say label 0 or label 1",
    box: "0 0 320 330",
  },
  {
    label: "How often the layers are right about the query over 400 prompts whose labels are coin flips",
    box: "0 0 320 330",
  },
];

// A token's sign depends on its label, which the handle is told when the state changes.
function token(at) {
  let node = null;
  return {
    trait: "points",
    at,
    kind: "handle",
    label: at === QUERY ? "The query" : `Point ${at + 1}`,
    step: UNIT / 10,
    from: back,
    mark(parent) {
      node = drawn("g", {}, parent);
    },
    place(point, numbers, { labels }) {
      node.replaceChildren();
      if (at === QUERY) drawn("circle", { r: 11, fill: "none", stroke: "currentColor", "stroke-width": 1.8 }, node);
      mark(node, labels[at], [0, 0], 6, LOOKS[labels[at]]);
      return place(point);
    },
  };
}
const fresh = (state, number) => {
  const pairs = standardNormals(number, 2 * TOKENS),
    short = (value) => clamp(Number(value.toFixed(2)), -REACH + 0.2, REACH - 0.2);
  return {
    points: pairs.slice(0, TOKENS).map((one) => one.map(short)),
    labels: pairs.slice(TOKENS).map(([u]) => Number(u > 0)),
  };
};
let next = 1000;
const controls = [
  ...Array.from({ length: TOKENS }, (_, at) => token(at)),
  {
    trait: "mask",
    kind: "choice",
    label: "the query’s label",
    place: "ao-tokens",
    top: true,
    names: { hidden: "masked", "put in": "supplied" },
  },
  { trait: "labels", kind: "toggles", label: "labels", name: "label of point", place: "ao-tokens", from: 0, to: QUERY },
  {
    trait: "labels",
    kind: "toggles",
    label: "of the query",
    name: "label of point",
    place: "ao-tokens",
    from: QUERY,
    to: TOKENS,
  },
  { kind: "actions", label: "coin flips", place: "ao-tokens", acts: { "toss again": (state) => fresh(state, next++) } },
  {
    trait: "kernel",
    kind: "choice",
    label: "𝒦",
    place: "ao-tokens",
    names: { linear: "inner products", gaussian: "Gaussian kernel" },
  },
  { trait: "layers", label: "layers" },
  { trait: "step", label: "step h", step: 0.05 },
  { trait: "width", label: "kernel width", step: 0.05, hidden: ({ kernel }) => kernel === "linear" },
];

const CELLS = 30;
function drawPlane(picture, state, asking) {
  const { points, labels, mask } = state, shown = TOKENS - (mask === "hidden" ? 1 : 0), field = clipped(picture, FRAME);
  if (!asking) {
    const { pull } = layered(points, labels, shown, state),
      close = similarity(state),
      size = (FRAME[2] - FRAME[0]) / CELLS,
      paths = {};
    for (let i = 0; i < CELLS; i++) {
      for (let j = 0; j < CELLS; j++) {
        const at = [FRAME[0] + (i + 0.5) * size, FRAME[1] + (j + 0.5) * size], x = back(...at);
        const value = pull.reduce((sum, one, l) => sum + one * close(x, points[l]), 0),
          sure = Math.abs(1 / (1 + Math.exp(-value)) - 0.5);
        const key = `${Number(value > 0)} ${Math.min(4, Math.floor(10 * sure))}`;
        paths[key] = `${paths[key] ?? ""}M${(at[0] - size / 2).toFixed(1)} ${
          (at[1] - size / 2).toFixed(1)
        }h${size}v${size}h${-size}z`;
      }
    }
    for (const [key, d] of Object.entries(paths)) {
      const [label, shade] = key.split(" ").map(Number);
      drawn("path", { d, fill: COLORS[label], "fill-opacity": 0.1 + 0.09 * shade, class: "ao-region" }, field);
    }
  }
  drawn("rect", {
    x: FRAME[0],
    y: FRAME[1],
    width: FRAME[2] - FRAME[0],
    height: FRAME[3] - FRAME[1],
    fill: "none",
    stroke: "currentColor",
    opacity: 0.5,
  }, picture);
  const [x, y] = place([0, 0]);
  line(field, [x - 5, y], [x + 5, y], { opacity: 0.7 });
  line(field, [x, y - 5], [x, y + 5], { opacity: 0.7 });
  if (asking) points.forEach((point, at) => mark(field, labels[at], place(point), 6, LOOKS[labels[at]]));
  const [qx, qy] = place(points[QUERY]);
  if (asking) drawn("circle", { cx: qx, cy: qy, r: 11, fill: "none", stroke: "currentColor", "stroke-width": 1.8 }, field);
  drawn(
    "text",
    { x: clamp(qx, 40, 284), y: qy > FRAME[1] + 34 ? qy - 15 : qy + 24, "text-anchor": "middle", class: "ao-small ao-halo" },
    field,
    mask === "hidden" ? "query, label masked" : "query, label supplied",
  );
  ["label 0", "label 1"].forEach((name, label) => {
    mark(picture, label, [20 + 76 * label, 10], 5, LOOKS[label]);
    drawn("text", { x: 29 + 76 * label, y: 14, class: "ao-small" }, picture, name);
  });
  if (!asking) drawn("text", { x: 312, y: 14, "text-anchor": "end", class: "ao-small" }, picture, "shaded: what layers say");
}

function drawBars(picture, { shares, exact }, { mask }, asking) {
  const put = axes(picture, BARS, { label: "share of prompts", low: 0, high: 1, ticks: [0, 0.25, 0.5, 0.75, 1] }, {
    label: "",
    low: 0,
    high: 1,
    ticks: [],
  });
  drawn("text", { x: 16, y: 14, class: "ao-small" }, picture, `right about the query, ${TOSSES} prompts of coin flips`);
  ["put in", "hidden"].forEach((name, row) => {
    const top = BARS[1] + 58 + 116 * row, [right] = put([shares[name], 0]), known = row ? 0.5 : exact;
    drawn(
      "text",
      { x: BARS[0] + 6, y: top - 8, class: "ao-small" },
      picture,
      row ? "its label masked" : "its label supplied",
    );
    if (asking) return drawn("text", { x: BARS[0] + 6, y: top + 24 }, picture, "?");
    drawn("rect", {
      x: BARS[0],
      y: top,
      width: right - BARS[0],
      height: 36,
      fill: name === mask ? COLORS[2] : GRAY,
      "fill-opacity": 0.75,
    }, picture);
    drawn("text", { x: BARS[0] + 6, y: top + 23, class: "ao-halo" }, picture, show(shares[name]));
    if (known === null) return;
    const [at] = put([known, 0]);
    line(picture, [at, top - 8], [at, top + 44], { "stroke-width": 2.5 });
    drawn("text", { x: at + 5, y: top + 54, class: "ao-small ao-halo" }, picture, row ? "expected ½" : "expected ⅔");
  });
}

function draw([plane, bars], now, state, bounds, asking) {
  drawPlane(plane, state, asking);
  drawBars(bars, now, state, asking);
}

function say({ shown, chance, own, right, shares, exact }, { labels, layers }) {
  return `The layer${layers === 1 ? " gives" : "s give"} the label 1 of the query the probability ${
    show(chance, 3)
  }. The true label is ${labels[QUERY]}, so the prediction is ${
    right ? "right" : "wrong"
  }. Of the ${shown} supplied labels, the layer${layers === 1 ? " predicts" : "s predict"} ${own} correctly. ` +
    `Over ${TOSSES} prompts of coin flips, ${
      layers === 1 ? "one layer is" : `${layers} layers are`
    } right about the query with frequency ${show(shares["put in"])} if its label is supplied${
      exact === null ? "" : " (expected: 2/3)"
    }, and ${show(shares.hidden)} if it is masked (expected: 1/2).`;
}

const guess = {
  prompt:
    "All nine labels are coin flips: there is nothing to learn. The query’s own label is supplied with the other eight, and one layer answers. How often is it right about that label?",
  options: ["1 time in 2", "2 times in 3", "9 times in 10"],
  reveal: (guessed, { shares, exact }) =>
    `${guessed === "2 times in 3" ? "Right" : "Not quite"}: one layer repeats the label 2 times in 3, exactly ½(1 + 1/√9).${
      exact === null ? "" : ` In the ${TOSSES} prompts here, the share is ${show(shares["put in"])}.`
    } Everything beyond ½ has leaked from the label itself.`,
};
const tour = [
  {
    set: {},
    say:
      "The query’s label is among the nine that are supplied. It pulls the answer toward itself: right in two thirds of all prompts, though labels are coin flips.",
  },
  {
    set: { mask: "hidden" },
    say: "The mask hides the query from all tokens. The layer is now right half of the time on average, as it must be.",
  },
  {
    set: { layers: 8, step: 2 },
    say: "More layers leak a little more: each step fits the supplied labels a little better.",
  },
  {
    set: { kernel: "gaussian", width: 0.3 },
    say:
      "With a narrow Gaussian kernel, each token receives almost only its own label. This is nearly the block of Part I, where 𝒦 is a multiple of the identity: it repeats the label.",
  },
  {
    set: { kernel: "gaussian", width: 0.3, mask: "hidden" },
    say: "The same layer with the query hidden: nearly no opinion, and right in half of the prompts.",
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
