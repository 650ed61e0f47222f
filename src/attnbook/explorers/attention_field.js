// Three tokens, three classes, two features: the descent field of one token, steps along it, and the attention matrix.

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
  listed,
  mark,
  MARKS,
  minus,
  show,
  softmaxOf,
  ticksUpTo,
} from "./common.js";
import { explorer } from "./shell.js";

const STEPS = 60, FAR = 50, PAIRS = [[0, 1], [0, 2], [1, 2]];
const cross = ([a, b], [c, d]) => a * d - b * c;
const labelOf = ({ softness }, s) => [0, 1, 2].map((c) => (s === c ? 1 - softness : 0) + softness / 3);
const transposed = (matrix) => [0, 1, 2].map((column) => matrix.map((row) => row[column]));

// Attention, its output, gradient and cross-entropy at some tokens.
function at(tokens, state) {
  const { weights, axis } = state, logits = tokens.map((z) => weights.map((weight) => dot(z, weight)));
  const slices = (axis === "class" ? logits : transposed(logits)).map(softmaxOf),
    normalized = slices.map((slice) => slice.weights);
  const attention = axis === "class" ? normalized : transposed(normalized), labels = [0, 1, 2].map((s) => labelOf(state, s));
  const [output, target] = [attention, labels].map((rows) => rows.map((row) => averaged(row, weights)));
  const fit = labels.flat().reduce((sum, value, index) => sum + value * logits.flat()[index], 0);
  return {
    attention,
    output,
    target,
    gradient: output.map((row, s) => minus(row, target[s])),
    loss: slices.reduce((sum, slice) => sum + slice.lse, 0) - fit,
  };
}

// Whether a combination of vectors in the plane, all its coefficients positive, vanishes: by Stiemke's lemma, if no z has
// v·z ≥ 0 for all of them and > 0 for some; in the plane it is enough to ask those z along one of them or across it.
function balanced(vectors) {
  return vectors.every(([x, y]) =>
    [[x, y], [-x, -y], [-y, x], [y, -x]].every((z) => {
      const signs = vectors.map((v) => (Math.abs(dot(v, z)) <= 1e-12 * Math.hypot(...v) * Math.hypot(...z) ? 0 : dot(v, z)));
      return Math.min(...signs) < 0 || Math.max(...signs) <= 0;
    })
  );
}

// Whether the chosen token's field vanishes somewhere. The gradient is (p - c)θ, where the label is c and p > 0 sums to 1 over
// classes, and has entries in (0, 1) over tokens; the field vanishes if some such p makes it 0. A soft label does so itself.
// For a one-hot one p - c is a small positive combination of what is asked here.
function hasZero({ weights, softness, axis, selected }) {
  const own = weights[selected], rest = weights.filter((_, c) => c !== selected);
  return softness > 0 ||
    balanced(axis === "class" ? rest.map((weight) => minus(weight, own)) : [...rest, minus([0, 0], own)]);
}

// Where it vanishes, by Newton's method with steps that descend (Sun and Tran-Dinh, 2019); Python's docstring says more.
function zeroOf(tokens, state) {
  const { weights, axis, selected } = state, label = labelOf(state, selected);
  if (!hasZero(state)) return null;
  const others = tokens.filter((_, s) => s !== selected);
  const offered = weights.map((weight) => softmaxOf(others.map((z) => dot(z, weight))).lse);
  const spans = axis === "class" ? PAIRS.map(([a, b]) => minus(weights[a], weights[b])) : weights,
    lengths = spans.map((span) => Math.hypot(...span));
  const areas = PAIRS.map(([a, b]) => cross(spans[a], spans[b])), reach = Math.max(...lengths);
  const flat = PAIRS.every(([a, b], pair) => Math.abs(areas[pair]) <= 1e-9 * lengths[a] * lengths[b]);
  const slope = (z) => {
    const scores = weights.map((weight) => dot(z, weight));
    if (axis === "class") {
      const { weights: belief } = softmaxOf(scores);
      return [averaged(belief.map((p, c) => p - label[c]), weights), PAIRS.map(([a, b]) => belief[a] * belief[b])];
    }
    const belief = scores.map((score, c) => 1 / (1 + Math.exp(offered[c] - score)));
    return [
      averaged(belief.map((p, c) => p - label[c]), weights),
      scores.map((score, c) => belief[c] / (1 + Math.exp(score - offered[c]))),
    ];
  };
  let z = tokens[selected];
  for (let round = 0; round < 100; round++) {
    const [gradient, shares] = slope(z),
      [[xx, xy], [, yy]] = [0, 1].map((f) => averaged(shares.map((share, k) => share * spans[k][f]), spans));
    const determinant = PAIRS.reduce((sum, [a, b], pair) => sum + shares[a] * shares[b] * areas[pair] ** 2, 0);
    const curvature = dot(gradient, [dot([xx, xy], gradient), dot([xy, yy], gradient)]);
    let step = [0, 0];
    if (flat && curvature > 0) step = gradient.map((value) => -value * dot(gradient, gradient) / curvature);
    if (!flat && determinant > 0) step = [[-yy, xy], [xy, -xx]].map((row) => dot(row, gradient) / determinant);
    const long = reach * Math.hypot(...step), share = long > 0 ? Math.log1p(long) / long : 1;
    z = z.map((value, f) => value + share * step[f]);
  }
  return Math.hypot(...slope(z)[0]) < 1e-9 && Math.hypot(...z) < FAR ? z : null;
}

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const path = [state.tokens], losses = [];
  let now = at(state.tokens, state);
  for (let step = 0; step < state.steps; step++) {
    losses.push(now.loss);
    path.push(path[step].map((z, s) => minus(z, now.gradient[s])));
    now = at(path[step + 1], state);
  }
  return { ...now, path, losses: [...losses, now.loss], zero: zeroOf(path.at(-1), state) };
}

const REACH = 3, SIZE = 360;
const place = ([x, y]) => [SIZE / 2 * (1 + x / REACH), SIZE / 2 * (1 - y / REACH)];
const unplace = (x, y) => [REACH * (2 * x / SIZE - 1), REACH * (1 - 2 * y / SIZE)];
const emphasis = (index, { selected }) => (index === selected ? 1.15 : 0.8);

const pictures = [
  {
    label: "The feature plane: class weights, tokens, and the descent direction of the chosen token at each point",
    box: `0 0 ${SIZE} ${SIZE}`,
  },
  {
    label:
      "The attention matrix, a row for each token and a column for each class, with its sums; below it the cross-entropy over the steps",
    box: `0 0 ${SIZE} ${SIZE}`,
  },
];
const controls = [
  ...[0, 1, 2].map((index) => ({
    trait: "tokens",
    at: index,
    kind: "handle",
    label: `Token ${index + 1}`,
    step: SIZE / REACH / 20,
    focus: { selected: index },
    mark: (node) => mark(node, index, [0, 0], 9, { fill: COLORS[index], stroke: "currentColor", "stroke-width": 1.5 }),
    place,
    from: unplace,
    size: (state) => (state.steps ? 0.65 : emphasis(index, state)),
  })),
  ...[0, 1, 2].map((index) => ({
    trait: "weights",
    at: index,
    kind: "handle",
    label: `Weight of class ${index + 1}`,
    step: SIZE / REACH / 20,
    mark: (node) => mark(node, index, [0, 0], 6, { fill: "none", stroke: COLORS[index], "stroke-width": 2.5 }),
    place,
    from: unplace,
  })),
  {
    kind: "actions",
    label: "gradient descent",
    acts: { "take a step": ({ steps }) => ({ steps: Math.min(steps + 1, STEPS) }) },
    place: "ao-tokens",
    top: true,
    disabled: ({ steps }) => steps === STEPS,
  },
  {
    trait: "steps",
    kind: "play",
    values: () => Array.from({ length: STEPS + 1 }, (_, step) => step),
    stops: ["steps"],
    place: "ao-tokens",
    top: true,
  },
  { trait: "steps", label: "steps", place: "ao-tokens", top: true },
  { trait: "selected", kind: "choice", label: "token", names: (index) => `${MARKS[index]} ${index + 1}` },
  { trait: "axis", kind: "choice", label: "softmax over", names: { class: "classes", sequence: "tokens" } },
  ...["first", "second"].map((name, f) => ({
    trait: "tokens",
    at: ({ selected }) => [selected, f],
    label: `${name} feature at the start`,
  })),
  { trait: "softness", label: "label softness", step: 0.01 },
];

// A text next to a point, on the side where it covers least of what is taken, { x, y, width, height } each.
function beside(parent, text, [x, y], taken) {
  const width = 5.7 * text.length, height = 13;
  const sides = [10, 26].flatMap((gap) => [
    [gap, -6.5],
    [-gap - width, -6.5],
    [-width / 2, -gap - height],
    [-width / 2, gap],
    [gap, gap / 2],
    [gap, -gap - 6.5],
    [-gap - width, gap / 2],
    [-gap - width, -gap - 6.5],
  ]);
  const shared = (one, other) =>
    Math.max(0, Math.min(one.x + one.width, other.x + other.width) - Math.max(one.x, other.x)) *
    Math.max(0, Math.min(one.y + one.height, other.y + other.height) - Math.max(one.y, other.y));
  const boxes = sides.map(([dx, dy]) => ({
    x: Math.min(Math.max(x + dx, 2), SIZE - 2 - width),
    y: Math.min(Math.max(y + dy, 2), SIZE - 2 - height),
    width,
    height,
  }));
  const covered = boxes.map((box) => taken.reduce((sum, other) => sum + shared(box, other), 0)),
    best = boxes[covered.indexOf(Math.min(...covered))];
  taken.push(best);
  const near = [Math.min(Math.max(x, best.x), best.x + width), Math.min(Math.max(y, best.y), best.y + height)];
  if (Math.hypot(near[0] - x, near[1] - y) > 12) line(parent, near, [x, y], { opacity: 0.5 }); // which point it names
  drawn("text", { x: best.x + width / 2, y: best.y + 10, "text-anchor": "middle", class: "ao-small ao-halo" }, parent, text);
}
// `font-weight` as an attribute would yield to the style sheet.
function words(parent, text, attributes, bold = false) {
  drawn("text", attributes, parent, text).style.fontWeight = bold ? "bold" : "normal";
}
const around = ([x, y], radius) => ({ x: x - radius, y: y - radius, width: 2 * radius, height: 2 * radius });

function drawPlane(parent, now, state) {
  const { weights, selected, steps } = state, tokens = now.path.at(-1), color = COLORS[selected];
  const plane = clipped(parent, [0, 0, SIZE, SIZE]), middle = SIZE / 2;

  line(plane, [0, middle], [SIZE, middle], { opacity: 0.25 });
  line(plane, [middle, 0], [middle, SIZE], { opacity: 0.25 });
  for (let i = -5; i <= 5; i++) {
    for (let j = -5; j <= 5; j++) {
      const point = [i * REACH / 5.5, j * REACH / 5.5],
        there = at(tokens.map((old, other) => (other === selected ? point : old)), state);
      const [gx, gy] = there.gradient[selected],
        length = Math.hypot(gx, gy),
        shown = 24 * length / (1 + length) / Math.max(length, 1e-12);
      const [x, y] = place(point);
      arrow(plane, [x, y], [x - shown * gx, y + shown * gy], { stroke: "currentColor", opacity: 0.4 });
    }
  }
  drawn(
    "polygon",
    { points: weights.map(place).join(" "), fill: "none", stroke: "currentColor", "stroke-dasharray": "3 4" },
    plane,
  );
  [0, 1, 2].forEach((s) => curve(plane, now.path.map((step) => place(step[s])), { stroke: COLORS[s], "stroke-width": 2 }));
  if (steps <= 20) {
    now.path.slice(1, -1).forEach((step) =>
      step.forEach((z, s) => {
        const [x, y] = place(z);
        drawn("circle", { cx: x, cy: y, r: 2, fill: COLORS[s] }, plane);
      })
    );
  }

  const [output, target] = [now.output[selected], now.target[selected]].map(place);
  const start = place(tokens[selected]), end = place(minus(tokens[selected], now.gradient[selected]));
  const taken = [...tokens, ...state.tokens, ...weights].map((point) => around(place(point), 10));
  for (const [from, to] of [[output, target], [start, end]]) {
    for (let part = 0; part <= 8; part++) {
      taken.push(around([from[0] + part * (to[0] - from[0]) / 8, from[1] + part * (to[1] - from[1]) / 8], 4));
    }
    arrow(plane, from, to, { stroke: color, "stroke-width": 2.5 });
  }
  taken.push({ x: 0, y: middle - 15, width: 62, height: 14 }, { x: middle, y: 0, width: 85, height: 14 }, {
    x: 0,
    y: SIZE - 32,
    width: 160,
    height: 32,
  });
  weights.forEach((weight, c) => {
    const [x, y] = place(weight), [right, up] = weight.map((value) => 16 * value / (Math.hypot(...weight) || 1)); // outside the triangle
    drawn("text", { x: x + right, y: y - up + 4, "text-anchor": "middle", class: "ao-halo" }, plane, `θ${"₁₂₃"[c]}`);
    taken.push(around([x + right, y - up], 8));
  });
  drawn("circle", { cx: output[0], cy: output[1], r: 4.5, fill: "currentColor" }, plane);
  if (steps) {
    tokens.forEach((z, s) =>
      mark(plane, s, place(z), 9 * emphasis(s, state), { fill: COLORS[s], stroke: "currentColor", "stroke-width": 1.5 })
    );
  }
  taken.push(around(output, 7), around(target, 7));
  if (now.zero) {
    const [x, y] = place(now.zero);
    for (const side of [1, -1]) {
      line(plane, [x - 6, y - 6 * side], [x + 6, y + 6 * side], { "stroke-width": 3, class: "ao-zero" });
    }
    taken.push(around([x, y], 9));
    if (Math.max(...now.zero.map(Math.abs)) < REACH) {
      beside(plane, `token ${state.selected + 1} would rest here`, [x, y], taken);
    }
  }
  const [belief, label] = state.axis === "class"
    ? ["attention’s average", "label’s average"]
    : ["attention’s sum", "label’s sum"]; // a token's shares need not sum to 1
  beside(plane, belief, output, taken);
  beside(plane, label, target, taken);
  drawn("text", { x: 2, y: middle - 5, class: "ao-small" }, plane, "first feature");
  drawn("text", { x: middle + 5, y: 10, class: "ao-small" }, plane, "second feature");
  drawn(
    "text",
    { x: 2, y: SIZE - 5, class: "ao-small ao-halo" },
    plane,
    `filled: tokens${steps ? " (small: before)" : ""}; hollow: classes`,
  );
}

function drawMatrix(parent, { attention }, { selected, axis }) {
  const [width, height, left, top] = [70, 36, 58, 42], byClass = axis === "class";
  drawn(
    "text",
    { x: left + 1.5 * width, y: 13, "text-anchor": "middle" },
    parent,
    `attention: ${byClass ? "each row" : "each column"} sums to 1`,
  );
  attention.forEach((row, s) => {
    const y = top + (s + 0.5) * height + 4, x = left + (s + 0.5) * width;
    words(parent, `${MARKS[s]} ${s + 1}`, { x: left - 8, y, "text-anchor": "end" }, s === selected);
    drawn("text", { x, y: top - 8, "text-anchor": "middle" }, parent, `θ${"₁₂₃"[s]}`);
    row.forEach((value, c) => {
      drawn("rect", {
        x: left + c * width,
        y: top + s * height,
        width: width - 2,
        height: height - 2,
        fill: COLORS[c],
        "fill-opacity": 0.08 + 0.55 * value,
        stroke: "currentColor",
        "stroke-width": s === selected ? 2 : 0.3,
      }, parent);
      drawn("text", { x: left + (c + 0.5) * width, y, "text-anchor": "middle", class: "ao-cell" }, parent, show(value));
    });
    const sum = (values) => `sum ${show(values.reduce((total, value) => total + value, 0))}`;
    words(parent, sum(row), { x: left + 3 * width + 6, y }, byClass);
    words(
      parent,
      sum(attention.map((other) => other[s])),
      { x, y: top + 3 * height + 15, "text-anchor": "middle" },
      !byClass,
    );
  });
}

function drawLosses(parent, { losses }, { steps }) {
  const frame = [44, 196, 352, 322], last = Math.max(10, steps), top = 1.1 * Math.max(...losses, 1e-3);
  const put = axes(parent, frame, {
    label: "steps",
    low: 0,
    high: last,
    ticks: ticksUpTo(last).filter((tick) => tick % 1 === 0),
  }, {
    label: "cross-entropy",
    low: 0,
    high: top,
    ticks: ticksUpTo(top).filter((_, index, all) => all.length < 5 || index % 2 === 0),
  });
  const points = losses.map((loss, step) => put([step, loss]));
  curve(parent, points, { "stroke-width": 2 });
  drawn("circle", { cx: points.at(-1)[0], cy: points.at(-1)[1], r: 4.5, fill: "currentColor" }, parent);
  if (!steps) {
    drawn(
      "text",
      { x: (frame[0] + frame[2]) / 2, y: (frame[1] + frame[3]) / 2, "text-anchor": "middle", class: "ao-small" },
      parent,
      "no step taken yet",
    );
  }
}

function draw([plane, numbers], now, state) {
  drawPlane(plane, now, state);
  drawMatrix(numbers, now, state);
  drawLosses(numbers, now, state);
}

function say(now, state) {
  const { selected, axis, steps } = state,
    row = listed(now.attention[selected].map((value) => show(value))),
    token = `token ${selected + 1}`;
  const pair = (z) => `(${z.map((value) => show(value)).join(", ")})`;
  return `${steps ? `After ${steps} ${steps === 1 ? "step" : "steps"}` : "Before the first step"}, ${token} is at ${
    pair(now.path.at(-1)[selected])
  }, and the cross-entropy of all tokens together is ${show(now.loss, 3)}. ` +
    (axis === "class"
      ? `Token ${selected + 1} attends to the classes with weights ${row}.`
      : `${token[0].toUpperCase()}${
        token.slice(1)
      } receives the shares ${row} of the attention that the classes distribute.`) +
    (!now.zero && !hasZero(state) && !steps
      ? ""
      : `${axis === "class" ? " Its" : " If the other tokens stay fixed, its"} ${
        now.zero
          ? `step would be zero at × = ${pair(now.zero)}.`
          : hasZero(state)
          ? "step is zero only at a point farther out than 50."
          : "step is never zero: the token moves off to infinity, ever more slowly."
      }`);
}

const BY_HAND = {
  tokens: [[Math.log(2), 0], [0, 0], [0, Math.log(2)]],
  weights: [[1, 0], [0, 1], [-1, -1]],
  axis: "class",
  softness: 0,
  selected: 2,
  steps: 0,
};
const tour = [
  {
    set: BY_HAND,
    say:
      "By hand, with θ₁ = (1, 0), θ₂ = (0, 1), and θ₃ = (−1, −1): the logits of token 3 are 0, log 2, and −log 2, so its attention is (2, 4, 1)/7 and returns the dot (1, 3)/7. Its label selects θ₃, so the token moves parallel to the arrow from the dot to θ₃.",
  },
  {
    set: { ...BY_HAND, tokens: [[1.5, 1.2], [0, 0], [0, Math.log(2)]], selected: 0 },
    say:
      "Token 1 has been moved. With softmax over classes, rows 2 and 3 stay as they were, because no token affects another. Drag token 1 to check.",
  },
  {
    set: { ...BY_HAND, tokens: [[1.5, 1.2], [0, 0], [0, Math.log(2)]], selected: 0, axis: "sequence" },
    say:
      "The same tokens, with softmax over tokens. Each class now divides one unit of attention among the tokens, so what token 1 gains, the others lose. Drag it, and all rows change.",
  },
  {
    set: { ...BY_HAND, steps: 20 },
    say: ({ loss }) =>
      `Twenty steps with softmax over classes and one-hot labels: the tokens move off and never stop, and the cross-entropy falls like 1/steps: it is ${
        show(loss, 4)
      } at step 20 and about half of that at step 40. ▶ continues.`,
  },
  {
    set: { ...BY_HAND, softness: 0.1, selected: 0, steps: 10 },
    say:
      "Softer labels, (28, 1, 1)/30 for token 1: now there is a point at which this token would come to rest (×), and the steps lead there.",
  },
];

export default explorer({ pictures, controls, compute, draw, say, tour });
