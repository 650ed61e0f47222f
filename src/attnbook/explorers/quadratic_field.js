// Two tokens with one feature, N = θzzᵀ, softmax over its columns: where the gradient and the paper's formula for it lead.

import {
  arrow,
  axes,
  clipped,
  COLORS,
  contours,
  curve,
  cut,
  drawn,
  integrate,
  levelSets,
  line,
  mark,
  show,
  squares,
  ticksUpTo,
} from "./common.js";
import { explorer } from "./shell.js";

const HORIZON = 20, VANISHING = 1e-9;
const TIMES = Array.from({ length: 61 }, (_, k) => HORIZON * (k / 60) ** 2);
const softplus = (value) => Math.max(value, 0) + Math.log1p(Math.exp(-Math.abs(value)));
const OTHERS = { identity: [0, 0], exchange: [1, 1], first: [0, 1], opposed: [1 / 4, 3 / 8] }; // what each column's label gives to the other token

// The cross-entropy, its gradient, and the paper's formula. Column j has the attention logistic(-gap) to the other token;
// σ - C has the columns (-x, x) and (y, -y), which the gradient adds to its transpose and the formula takes twice, C - Cᵀ
// being left over.
function problem({ theta, labels }) {
  const other = OTHERS[labels], left = other[1] - other[0];
  const gaps = ([a, b]) => [theta * a * (a - b), theta * b * (b - a)];
  const excess = (z) => gaps(z).map((gap, j) => 1 / (1 + Math.exp(gap)) - other[j]);
  return {
    loss: (z) => gaps(z).reduce((sum, gap, j) => sum + softplus(-gap) + other[j] * gap, 0),
    formulas: {
      true: (z) => {
        const [x, y] = excess(z);
        return [theta * ((x + y) * z[1] - 2 * x * z[0]), theta * ((x + y) * z[0] - 2 * y * z[1])];
      },
      paper: (z) => {
        const [x, y] = excess(z), moved = 2 * (y * z[1] - x * z[0]);
        return [theta * (moved + left * z[1]), -theta * (moved + left * z[0])];
      },
    },
  };
}

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const { loss, formulas } = problem(state), { point } = state;
  const [vectors, flows, losses] = [{}, {}, {}];
  for (const [name, formula] of Object.entries(formulas)) {
    vectors[name] = formula(point);
    flows[name] = integrate((z) => formula(z).map((value) => -value), point, TIMES);
    losses[name] = flows[name].map(loss);
  }
  const [first, second] = [vectors.true, vectors.paper].map((vector) => Math.hypot(...vector));
  const product = vectors.true[0] * vectors.paper[0] + vectors.true[1] * vectors.paper[1];
  return {
    loss: loss(point),
    ...vectors,
    cosine: Math.min(first, second) > VANISHING ? product / (first * second) : null,
    times: TIMES,
    flows,
    losses,
  };
}

const REACH = 3, FRAME = [42, 24, 346, 328], CELLS = 80;
const LEVELS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20];
const LOOKS = {
  true: { stroke: COLORS[0], dashes: "none", sign: 0, words: "down the gradient" },
  paper: { stroke: COLORS[1], dashes: "7 4", sign: 1, words: "by the paper’s formula" },
};
const TICKS = Array.from({ length: CELLS + 1 }, (_, index) => REACH * (2 * index / CELLS - 1));
const place = (
  [x, y],
) => [FRAME[0] + (FRAME[2] - FRAME[0]) * (1 + x / REACH) / 2, FRAME[1] + (FRAME[3] - FRAME[1]) * (1 - y / REACH) / 2];
const unplace = (
  x,
  y,
) => [REACH * (2 * (x - FRAME[0]) / (FRAME[2] - FRAME[0]) - 1), REACH * (1 - 2 * (y - FRAME[1]) / (FRAME[3] - FRAME[1]))];

const pictures = [
  {
    label:
      "The plane of the two features: contours of the cross-entropy, and the flows along the negative gradient and the negative of the paper’s formula",
    box: "0 0 360 364",
  },
  { label: "The cross-entropy in time along both flows", box: "0 0 360 364" },
];
const controls = [
  {
    trait: "point",
    kind: "handle",
    label: "Start",
    step: (FRAME[2] - FRAME[0]) / REACH / 40,
    mark: (node) => drawn("circle", { r: 6.5, fill: "currentColor" }, node),
    place,
    from: unplace,
  },
  {
    trait: "labels",
    kind: "choice",
    label: "correct class",
    names: {
      identity: "the token itself",
      exchange: "the other token",
      first: "token 1 for both",
      opposed: "soft: (6, 2)/8 and (3, 5)/8",
    },
  },
  { trait: "theta", label: "θ" },
  ...[0, 1].map((at) => ({ trait: "point", at, label: `feature z${"₁₂"[at]}` })),
];

// The level sets of the cross-entropy, and the region where the formula leads uphill as polygons.
let kept = {};
function landscape(state) {
  const key = JSON.stringify([state.theta, state.labels]);
  if (kept.key === key) return kept;
  const { loss, formulas } = problem(state), values = TICKS.map((x) => TICKS.map((y) => loss([x, y])));
  const levels = levelSets(TICKS, values, LEVELS);
  const products = TICKS.map((x) =>
    TICKS.map((y) => formulas.true([x, y]).reduce((sum, value, f) => sum + value * formulas.paper([x, y])[f], 0))
  );
  const uphill = squares(TICKS, (corners) => {
    const polygon = corners.flatMap(([a, b], side) => {
      const next = corners[(side + 1) % 4], here = products[a][b] < 0 ? [[TICKS[a], TICKS[b]]] : [];
      return (products[a][b] < 0) === (products[next[0]][next[1]] < 0)
        ? here
        : [...here, cut(TICKS, products, [a, b], next, 0)];
    });
    return polygon.length ? [polygon] : [];
  });
  return kept = { key, levels, uphill };
}

function drawLandscape(parent, state, taken, asking) {
  const { levels, uphill } = landscape(state), rounded = (z) => place(z).map((value) => value.toFixed(2)).join(" ");
  const region = uphill.map((points) => `M${points.map(rounded).join("L")}Z`).join("");
  if (!asking) drawn("path", { d: region, fill: "currentColor", "fill-opacity": 0.16, class: "ao-uphill" }, parent);
  contours(parent, levels, LEVELS, { place, reach: REACH, taken });
}

function draw([plane, front], now, state, bounds, asking) {
  const { point } = state, names = asking ? [] : Object.keys(LOOKS);
  const side = { low: -REACH, high: REACH, ticks: [-3, -2, -1, 0, 1, 2, 3] };
  axes(plane, FRAME, { ...side, label: "feature z₁ of token 1" }, { ...side, label: "feature z₂ of token 2" });
  const inside = clipped(plane, FRAME);
  drawLandscape(inside, state, [point, ...names.flatMap((name) => now.flows[name].filter((_, k) => k % 3 === 0))], asking);
  line(inside, place([-REACH, -REACH]), place([REACH, REACH]), { "stroke-dasharray": "2 4", opacity: 0.6 });
  drawn(
    "text",
    { x: FRAME[0], y: 14, class: "ao-small" },
    plane,
    asking ? "contours of the cross-entropy" : "shaded: the negative of the formula leads uphill",
  );
  for (const name of names) {
    const { stroke, dashes, sign } = LOOKS[name], length = Math.hypot(...now[name]), [x, y] = place(point);
    curve(inside, now.flows[name].map(place), { stroke, "stroke-width": 2.5, "stroke-dasharray": dashes });
    const shown = 50 / (0.4 + length);
    if (length > VANISHING) {
      arrow(inside, [x, y], [x - shown * now[name][0], y + shown * now[name][1]], { stroke, "stroke-width": 3.2 });
    }
    mark(inside, sign, place(now.flows[name].at(-1)), 5.5, { fill: stroke, stroke: "currentColor", "stroke-width": 1.5 });
  }
  if (asking) drawn("circle", { cx: place(point)[0], cy: place(point)[1], r: 6.5, fill: "currentColor" }, inside);

  const equal = 2 * Math.LN2, top = 1.15 * Math.max(equal, now.loss, ...names.flatMap((name) => now.losses[name]));
  const put = axes(front, FRAME, {
    label: "time: step size × steps (square-root scale)",
    low: 0,
    high: HORIZON,
    scale: Math.sqrt,
    ticks: [0, 1, 5, 10, 20],
  }, { label: "cross-entropy", low: 0, high: top, ticks: ticksUpTo(top) });
  line(front, put([0, equal]), put([HORIZON, equal]), { "stroke-dasharray": "2 4", opacity: 0.8 });
  drawn("text", { x: FRAME[0] + 6, y: put([0, equal])[1] - 5, class: "ao-small ao-halo" }, front, "equal tokens: 2 log 2");
  names.forEach((name, index) => {
    const { stroke, dashes, sign, words } = LOOKS[name],
      points = now.losses[name].map((value, k) => put([TIMES[k], value])),
      x = [42, 184][index],
      [right, height] = points.at(-1);
    curve(front, points, { stroke, "stroke-width": 2.5, "stroke-dasharray": dashes });
    mark(front, sign, points.at(-1), 5.5, { fill: stroke, stroke: "currentColor", "stroke-width": 1.5 });
    line(front, [x, 10], [x + 22, 10], { stroke, "stroke-width": 2.5, "stroke-dasharray": dashes });
    drawn("text", { x: x + 27, y: 14, class: "ao-small" }, front, words);
    const other = names[1 - index], under = put([HORIZON, now.losses[other].at(-1)])[1]; // of two numbers close by, one above the other
    const raised = height < under || (height === under && index) ? Math.max(0, 13 - under + height) : 0;
    drawn(
      "text",
      { x: right - 8, y: height - 9 - raised, "text-anchor": "end", class: "ao-small ao-halo" },
      front,
      show(now.losses[name].at(-1), 3),
    );
  });
  drawn("circle", { cx: put([0, 0])[0], cy: put([0, now.loss])[1], r: 5, fill: "currentColor" }, front);
}

// What numbers in time do.
function course(values) {
  const moves = (sign) => values.some((value, k) => k > 0 && sign * (value - values[k - 1]) > 1e-6 * (1 + Math.abs(value)));
  if (moves(1) && moves(-1)) return "rises and falls";
  return moves(1) ? "rises" : moves(-1) ? "falls" : "stays as it is";
}
const ends = (losses) => [losses[0], losses.at(-1)].map((value) => show(value, 3));

function say(now, { point }) {
  const [gradient, formula] = [now.true, now.paper].map((vector) => Math.hypot(...vector) > VANISHING);
  const compared = now.cosine !== null
    ? `the cosine of the angle between the gradient and the paper’s formula is ${show(now.cosine, 3)}${
      now.cosine < 0 ? ", so a small step along the negative of the formula leads uphill" : ""
    }`
    : gradient
    ? "the paper’s formula vanishes, but the gradient does not"
    : formula
    ? "the gradient vanishes, but the paper’s formula does not"
    : "both the gradient and the paper’s formula vanish";
  return `At (${point.map((value) => show(value)).join(", ")}), the cross-entropy is ${
    show(now.loss, 3)
  }, and ${compared}. ` +
    `At time ${HORIZON}, the cross-entropy is ${ends(now.losses.true)[1]} along the negative gradient and ${
      ends(now.losses.paper)[1]
    } along the negative of the paper’s formula.`;
}

const guess = {
  prompt:
    "The two tokens now also serve as the classes, and the correct class of each token is the token itself. The score of a query and a key is θ times the product of their features, here with θ = 1, and softmax runs over the queries. If you take small steps from the dot along the negative of the paper’s formula, what does the cross-entropy do?",
  options: ["falls", "rises", "stays as it is"],
  tells: true,
  reveal(guessed, { losses }) {
    const [[before, after], gradient] = [ends(losses.paper), ends(losses.true)[1]];
    return `${
      guessed === undefined ? "The cross-entropy" : guessed === course(losses.paper) ? "Right: it" : "Not quite: it"
    } ${course(losses.paper)}, from ${before} to ${after} at time ${HORIZON}; along the negative gradient, it ${
      course(losses.true)
    } to ${gradient}.`;
  },
};

const tour = [
  {
    set: {},
    say: ({ losses }) =>
      `Along the negative gradient (blue), the cross-entropy falls from ${
        ends(losses.true).join(" to ")
      }; along the negative of the paper’s formula (orange, dashed), it climbs to that of equal tokens, 2 log 2 = ${
        ends(losses.paper)[1]
      }.`,
  },
  {
    set: { point: [0.5, -2] },
    say:
      "Here both lead down, but on different paths: the paper’s formula leaves z₁ + z₂ unchanged, and the gradient does not.",
  },
  {
    set: { point: [1.25, 1.15] },
    say: ({ cosine }) =>
      `Near this part of the diagonal, the gradient and the formula are both small and almost opposite, with cosine ${
        show(cosine, 3)
      }: the negative gradient moves the tokens apart, and the negative of the formula makes them equal.`,
  },
  {
    set: { point: [1, 0], theta: Math.log(3), labels: "opposed" },
    say:
      "By hand, with z = (1, 0) and θ = log 3: the columns of the attention are (3, 1)/4 and (1, 1)/2; the labels are (6, 2)/8 and (3, 5)/8. The gradient is log 3 · (0, 1/8), the paper’s formula log 3 · (0, −1/8): exactly opposite.",
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
