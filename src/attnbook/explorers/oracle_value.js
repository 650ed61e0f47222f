// What an oracle's labels are worth, in a world of three tokens: the parts of the label's worth, and the gain of a step.

import {
  arrow,
  averaged,
  axes,
  clipped,
  COLORS,
  curve,
  dot,
  drawn,
  line,
  mark,
  minus,
  show,
  softmaxOf,
  sum,
  ticksUpTo,
} from "./common.js";
import { explorer } from "./shell.js";

const CLASSES = [[1, 0], [0, 1], [-1, -1]], REACH = 2.4, LONGEST = 3, POINTS = 61, GRAY = "#6b6b6b";
const three = [0, 1, 2], squared = (v) => dot(v, v), times = (share, v) => v.map((value) => share * value);
const scoresOf = (z) => CLASSES.map((theta) => dot(z, theta));
const entropy = (p) => -sum(p.map((value) => (value > 0 ? value * Math.log(value) : 0)));

// The probability of each answer of the oracle, by class.
function channelOf({ oracle, reliability: sure }) {
  if (oracle === "witness") return three.map((c) => three.map((o) => (1 - sure) / 3 + (c === o ? sure : 0)));
  if (oracle === "hint") return three.map((c) => [0, 1].map((o) => (1 - sure) / 2 + ((c === 2) === (o === 1) ? sure : 0)));
  return three.map(() => [1]);
}

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const { oracle, temperature, truth, step, tokens } = state,
    channel = channelOf(state),
    answers = channel[0].map((_, o) => o);
  const worlds = tokens.map((z) => {
    const scores = scoresOf(z),
      belief = softmaxOf(scores).weights,
      real = softmaxOf(scores.map((value) => value / truth)).weights;
    const joint = answers.map((o) => real.map((p, c) => p * channel[c][o])), shares = joint.map(sum);
    const posterior = joint.map((row, o) => row.map((value) => value / shares[o]));
    const labels = oracle === "own" ? [softmaxOf(scores.map((value) => value / temperature)).weights] : posterior;
    const moves = labels.map((row) => averaged(minus(row, belief), CLASSES));
    return { z, belief, real, shares, posterior, labels, moves };
  });
  const mean = (part) => sum(worlds.map(part)) / 3,
    over = (part) => mean((world) => sum(answers.map((o) => world.shares[o] * part(world, o))));
  const away = (world, row) => averaged(minus(world.belief, row), CLASSES);
  const loss = ({ posterior, z, moves }, o, h) => {
    const scores = scoresOf(z.map((value, f) => value + h * moves[o][f]));
    return softmaxOf(scores).lse - dot(posterior[o], scores);
  };
  const gain = (h) => over((world, o) => loss(world, o, 0) - loss(world, o, h));
  const label = mean((world) =>
    sum(three.map((c) => world.real[c] * squared(away(world, three.map((k) => Number(k === c))))))
  );
  const value = over((world, o) => squared(away(world, world.posterior[o]))),
    off = mean((world) => squared(away(world, world.real)));
  const remaining = over(({ posterior }, o) => entropy(posterior[o]));
  const slope = over((world, o) => -dot(away(world, world.posterior[o]), world.moves[o])),
    square = over((world, o) => squared(world.moves[o]));
  return {
    beliefs: worlds.map(({ belief }) => belief),
    shares: worlds.map(({ shares }) => shares),
    labels: worlds.map(({ labels }) => labels),
    ends: worlds.map(({ z, moves }) => moves.map((move) => z.map((one, f) => one + step * move[f]))),
    parts: [off, value - off, label - value],
    label,
    trace: mean((world) => {
      const middle = averaged(world.belief, CLASSES);
      return sum(world.belief.map((s, k) => s * squared(minus(CLASSES[k], middle))));
    }),
    slope,
    square,
    bounds: [step * slope - 0.625 * square * step * step, step * slope],
    gain: gain(step),
    gains: Array.from({ length: POINTS }, (_, k) => gain(LONGEST * k / (POINTS - 1))),
    limit: over(({ posterior, labels, belief }, o) =>
      sum(posterior[o].map((p, c) => (p > 0 ? p * Math.log(labels[o][c] / belief[c]) : 0)))
    ),
    entropies: [
      remaining,
      mean(({ real }) => entropy(real)) - remaining,
      mean(({ real, belief }) => sum(real.map((p, c) => p * Math.log(p / belief[c])))),
    ],
  };
}

const FRAME = [46, 34, 346, 334], PLOT = [50, 178, 346, 334], BARS = [50, 34, 346];
const place = (
  [x, y],
) => [FRAME[0] + (FRAME[2] - FRAME[0]) * (1 + x / REACH) / 2, FRAME[1] + (FRAME[3] - FRAME[1]) * (1 - y / REACH) / 2];
const unplace = (
  x,
  y,
) => [REACH * (2 * (x - FRAME[0]) / (FRAME[2] - FRAME[0]) - 1), REACH * (1 - 2 * (y - FRAME[1]) / (FRAME[3] - FRAME[1]))];
const STEP = (FRAME[2] - FRAME[0]) / REACH / 20;
const PARTS = [["miscalibration", COLORS[1]], ["the oracle", COLORS[0]], ["remainder", GRAY]];
const isOwn = ({ oracle }) => oracle === "own";

const pictures = [
  {
    label:
      "The plane of features: class vectors hollow, tokens filled, and where a step takes them, for each answer of the oracle",
    box: "0 0 360 374",
  },
  {
    label: "What the label is worth, in parts, beside the trace; and the gain of a step between its bounds",
    box: "0 0 360 374",
  },
];
const controls = [
  ...three.map((index) => ({
    trait: "tokens",
    at: index,
    kind: "handle",
    label: `Token ${index + 1}`,
    step: STEP,
    size: 0.9,
    place,
    from: unplace,
    mark: (node) => mark(node, index, [0, 0], 8, { fill: COLORS[index], stroke: "currentColor", "stroke-width": 1.5 }),
  })),
  {
    trait: "oracle",
    kind: "choice",
    label: "the oracle",
    place: "ao-tokens",
    top: true,
    names: { witness: "names the class", hint: "says whether it is □", own: "the token’s own belief" },
  },
  { trait: "reliability", label: "reliability", hidden: isOwn },
  { trait: "temperature", label: "temperature τ", hidden: (state) => !isOwn(state) },
  { trait: "step", label: "step h" },
  { trait: "truth", label: "classes drawn at temperature" },
];

function drawPlane(plane, now, { tokens }, asking) {
  const side = { low: -REACH, high: REACH, ticks: [-2, -1, 0, 1, 2] }, inside = clipped(plane, FRAME);
  axes(plane, FRAME, { ...side, label: "first feature" }, { ...side, label: "second feature" });
  CLASSES.forEach((vector, index) =>
    mark(plane, index, place(vector), 6, { fill: "none", stroke: COLORS[index], "stroke-width": 2.5 })
  );
  drawn(
    "text",
    { x: FRAME[0], y: 21, class: "ao-small" },
    plane,
    asking ? "hollow: class vectors; filled: tokens" : "arrows: one step per answer; thicker means likelier",
  );
  if (asking) {
    return tokens.forEach((token, index) =>
      mark(plane, index, place(token), 7.2, { fill: COLORS[index], stroke: "currentColor", "stroke-width": 1.5 })
    );
  }
  now.ends.forEach((ends, index) =>
    ends.forEach((end, o) =>
      arrow(inside, place(tokens[index]), place(end), {
        stroke: COLORS[index],
        "stroke-width": 0.8 + 5 * now.shares[index][o],
      })
    )
  );
}

function drawBars(picture, now, asking) {
  const [left, top, right] = BARS, unit = (right - left) / Math.max(now.label, now.trace, 1e-9);
  const bar = (row, from, length, fill) =>
    drawn("rect", {
      x: left + unit * from,
      y: top + 40 * row,
      width: Math.max(unit * length, 0),
      height: 22,
      fill,
      "fill-opacity": 0.8,
    }, picture);
  const says = (row, text) => drawn("text", { x: left, y: top + 40 * row - 5, class: "ao-small" }, picture, text);
  let from = 0;
  PARTS.forEach(([, color], index) => {
    if (!asking) bar(0, from, now.parts[index], color);
    from += now.parts[index];
  });
  if (asking) bar(0, 0, now.label, GRAY);
  says(0, `value of the true label (initial rate): ${show(now.label, 3)}`);
  bar(1, 0, now.trace, COLORS[2]);
  says(1, `trace of attention’s Jacobian: ${show(now.trace, 3)}`);
  if (asking) return;
  PARTS.forEach(([name, color], index) => {
    const x = left + [0, 160, 0][index], y = top + [72, 72, 90][index];
    drawn("rect", { x, y, width: 11, height: 11, fill: color, "fill-opacity": 0.8 }, picture);
    drawn("text", { x: x + 15, y: y + 10, class: "ao-small" }, picture, `${name} ${show(now.parts[index], 3)}`);
  });
}

function drawGain(picture, now, { step }, asking) {
  const top = Math.max(1.25 * Math.max(now.limit, ...now.gains), 0.02),
    low = Math.min(0, 1.1 * Math.min(...now.gains, now.limit > -top ? now.limit : 0));
  const put = axes(picture, PLOT, { label: "step h", low: 0, high: LONGEST, ticks: [0, 1, 2, 3] }, {
    label: "gain",
    low,
    high: top,
    ticks: ticksUpTo(top).filter((_, k) => k % 2 === 0),
  });
  if (asking) return drawn("text", { x: 198, y: 262, "text-anchor": "middle" }, picture, "gain: ?");
  const inside = clipped(picture, PLOT), steps = Array.from({ length: POINTS }, (_, k) => LONGEST * k / (POINTS - 1));
  line(inside, put([0, 0]), put([LONGEST, 0]), { opacity: 0.4 });
  curve(inside, steps.map((h) => put([h, now.slope * h])), { "stroke-width": 1.2 });
  curve(inside, steps.map((h) => put([h, now.slope * h - 0.625 * now.square * h * h])), { "stroke-width": 1.2 });
  line(inside, put([0, now.limit]), put([LONGEST, now.limit]), { "stroke-dasharray": "6 4" });
  curve(inside, steps.map((h, k) => put([h, now.gains[k]])), { stroke: COLORS[0], "stroke-width": 3 });
  const [cx, cy] = put([step, now.gain]);
  drawn("circle", { cx, cy, r: 5, fill: COLORS[0], stroke: "currentColor" }, inside);
  const limit = put([LONGEST, now.limit]);
  if (limit[1] < PLOT[3] - 4) {
    drawn(
      "text",
      { x: PLOT[2] - 5, y: limit[1] - 5, "text-anchor": "end", class: "ao-small ao-halo" },
      picture,
      `flow: ${show(now.limit, 3)}`,
    );
  }
  line(picture, [PLOT[0], 164], [PLOT[0] + 18, 164], { stroke: COLORS[0], "stroke-width": 3 });
  drawn("text", { x: PLOT[0] + 23, y: 168, class: "ao-small" }, picture, "gain");
  line(picture, [PLOT[0] + 66, 164], [PLOT[0] + 84, 164], { "stroke-width": 1.2 });
  drawn("text", { x: PLOT[0] + 89, y: 168, class: "ao-small" }, picture, "its bounds");
}

function draw([plane, right], now, state, bounds, asking) {
  drawPlane(plane, now, state, asking);
  drawBars(right, now, asking);
  drawGain(right, now, state, asking);
}

function say(now, { oracle, step, truth, temperature, reliability }) {
  const [off, own, left] = now.parts, calibrated = Math.abs(truth - 1) < 0.005;
  const who = oracle === "own"
    ? `The labels are the token’s own belief at temperature ${show(temperature)}, which is a function of the features. `
    : `With probability ${show(reliability)}, the oracle ${
      oracle === "witness"
        ? "names the class; otherwise, it names one"
        : "says whether the class is □; otherwise, it answers"
    } at random. `;
  const worth =
    (calibrated
      ? `The label is worth ${show(now.label, 3)}, which equals the trace. `
      : `The trace is ${show(now.trace, 3)}, but the label is worth ${
        show(now.label, 3)
      }, so the belief is not calibrated. `) +
    `Of the label’s value, the oracle supplies ${show(own, 3)} and correcting miscalibration ${show(off, 3)}; ${
      show(left, 3)
    } remains. `;
  const [low, high] = now.bounds.map((bound) => show(bound, 3)),
    between = oracle === "own" ? `between ${low} and ${high}` : `between h(1 − ⅝h)V = ${low} and hV = ${high}`;
  const falls = now.gain > -5e-4 ? "lowers" : "raises";
  return `${who}${worth}A step of ${show(step)} ${falls} the expected cross-entropy by ${
    show(Math.abs(now.gain), 3)
  }: the gain is ${between}. ` +
    `In the end, the flow gains ${show(now.limit, 3)}${
      oracle === "own"
        ? ""
        : `: ${show(now.entropies[1], 3)} from the oracle’s information and ${
          show(now.entropies[2], 3)
        } from correcting miscalibration`
    }.`;
}

const guess = {
  prompt:
    "Each token’s predicted probabilities are calibrated. An oracle computes its labels from the token’s own features, by a program as clever as you like. How much can a small step with these labels lower the mean cross-entropy, compared with a step with the true label?",
  options: ["just as much", "about half as much", "not at all"],
  reveal: (guessed, { label }) =>
    `${
      guessed === "not at all" ? "Right" : "Not quite"
    }: such labels gain nothing, because the belief already uses all that the features say. The true label is worth ${
      show(label, 3)
    }, and only information beyond the features can supply a part of it.`,
};
const tour = [
  {
    set: { oracle: "own", temperature: 0.5 },
    say:
      "Labels that are the belief itself, sharpened. The gain is negative for every step size: such labels add only false confidence.",
  },
  {
    set: { oracle: "hint", reliability: 1 },
    say: ({ parts: [, own], label }) =>
      `An oracle that says whether the class is □, always correctly. It is worth ${show(own, 3)} of ${
        show(label, 3)
      }; the rest is what it leaves open between ○ and △.`,
  },
  {
    set: { oracle: "witness", reliability: 1 },
    say:
      "The label itself. The oracle’s part is now the label’s whole value, which equals the trace. The flow removes the entire cross-entropy.",
  },
  {
    set: { oracle: "own", temperature: 2, truth: 2 },
    say:
      "The world is less certain than the belief: the two bars differ. Now the token’s own belief at temperature 2 is worth something, without an oracle, since it corrects the miscalibration.",
  },
  {
    set: { oracle: "witness", reliability: 0.6, step: 3 },
    say: "A step far beyond 2/L = 8/5: the lower bound is negative and no longer useful, and the gain is past its maximum.",
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
