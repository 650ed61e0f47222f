// One loss spike, step by step: the loss and the length of Adam's steps, and the plane of sequence embeddings.

import { axes, bytesOf, clamp, clipped, COLORS, curve, drawn, line, power, powers, show, sum } from "./common.js";
import { attended, margin, normalized, pairsOf, weightsIn } from "./model.js";
import { explorer } from "./shell.js";

const LAST = 64,
  PEAK = 32,
  TURNS = 240,
  LENGTH = 12,
  PREFIX = 5,
  RATE = 3e-3,
  PURPLE = "#CC79A7",
  GRAY = "#8a8a8a",
  GREEN = COLORS[2];
const SHAPES = {
  token: [2, 2],
  position: [12, 2],
  query: [2],
  value: [2, 2],
  receptors: [32, 2],
  assemblers: [2, 32],
  receptor_biases: [32],
  assembler_bias: [2],
};
const COUNT = sum(Object.values(SHAPES).map(([rows, columns = 1]) => rows * columns)),
  LAYER = ["receptors", "assemblers", "receptor_biases", "assembler_bias"];
const bits = (number, length) => Array.from({ length }, (_, t) => (number >> (length - 1 - t)) & 1);

// The sentences of the picture: every count in up to three orders, each with four suffixes.
const SUFFIXES = (() => {
  const mixed = Array.from({ length: LENGTH - PREFIX }, (_, t) => t * (t + 1) / 2 % 2);
  return [mixed, mixed.map((token) => 1 - token), mixed.map(() => 0), mixed.map(() => 1)];
})();
const PREFIXES = Array.from({ length: PREFIX + 1 }, (_, ones) => {
  const sorted = Array.from({ length: PREFIX }, (_, t) => (t < PREFIX - ones ? 0 : 1)),
    from = (t) => [...sorted.slice(t), ...sorted.slice(0, t)];
  return [...new Map([sorted, [...sorted].reverse(), from(2), from(3)].map((prefix) => [String(prefix), prefix])).values()]
    .slice(0, 3);
}).flat();
const SHOWN = PREFIXES.flatMap((prefix) => SUFFIXES.map((suffix) => [...prefix, ...suffix])),
  LABELS = SHOWN.map((tokens) => sum(tokens.slice(0, PREFIX)) % 2);

// What the page carries, unpacked once: weights after every step, and the training sequences with their shares.
const unpacked = new WeakMap();
function unpack(data) {
  if (unpacked.has(data)) return unpacked.get(data);
  const counts = bytesOf(data.counts), total = sum([...counts]);
  const found = {
    flat: new Float32Array(bytesOf(data.weights).buffer),
    set: [...counts].flatMap((count, number) => (count ? [{ tokens: bits(number, LENGTH), share: count / total }] : [])),
    loss: data.loss,
  };
  found.set.forEach((one) => {
    one.label = sum(one.tokens.slice(0, PREFIX)) % 2;
  });
  found.lengths = Array.from({ length: LAST }, (_, step) => {
    let squares = 0;
    for (let index = 0; index < COUNT; index++) {
      squares += ((found.flat[(step + 1) * COUNT + index] - found.flat[step * COUNT + index]) / RATE) ** 2;
    }
    return Math.sqrt(squares / COUNT);
  });
  unpacked.set(data, found);
  return found;
}

const modelAfter = ({ flat }, step) => ({ norm: "rms", weights: weightsIn(flat, SHAPES, step * COUNT) });

const embedded = (model, sequences) => {
  const pairs = pairsOf(model);
  return sequences.map((tokens) => attended(model, pairs, tokens).sequence);
};
const softplus = (value) => Math.max(value, 0) + Math.log1p(Math.exp(-Math.abs(value)));
const crossEntropy = (lead, label) => softplus(label ? -lead : lead);

// The change of ξ since `held`, carried out as if vectors shorter than 1 had been of length 1.
const kept = (held, xi) => {
  const by = Math.max(1, 1 / Math.hypot(...held));
  return normalized("rms", [by * held[0] + xi[0] - held[0], by * held[1] + xi[1] - held[1]]);
};
function turned([a, b], [c, d]) {
  return Math.abs(Math.atan2(a * d - b * c, a * c + b * d)) * 180 / Math.PI;
}

// The numbers that the picture shows; the Python class computes the same.
export function compute({ data, step }) {
  const held = unpack(data),
    { set, loss, lengths } = held,
    model = modelAfter(held, step),
    sequences = set.map(({ tokens }) => tokens);
  const mean = (part) => set.reduce((total, { share }, index) => total + share * part(index), 0);
  const meanLoss = (other, xis, directions = []) =>
    mean((index) => crossEntropy(margin(other, xis[index], directions[index]), set[index].label));
  const xi = embedded(model, sequences),
    sizes = xi.map(([x, y]) => Math.hypot(x, y)),
    shown = embedded(model, SHOWN),
    size = mean((index) => sizes[index]);
  const found = {
    loss: loss[step],
    wrong: mean((index) => Number((margin(model, xi[index]) > 0) !== (set[index].label === 1))),
    length: size,
    shortest: Math.min(...sizes),
    sequence: shown,
    answers: shown.map((one) => Number(margin(model, one) > 0)),
    ring: Array.from({ length: TURNS }, (_, k) => {
      const angle = (k + 0.5) * 2 * Math.PI / TURNS, point = [size * Math.cos(angle), size * Math.sin(angle)];
      return Number(margin(model, point) > 0);
    }),
  };
  if (step === 0) {
    return {
      ...found,
      loss_before: null,
      step_length: null,
      turn: null,
      largest: null,
      far: null,
      layer: null,
      others: null,
    };
  }
  const before = modelAfter(held, step - 1),
    old = embedded(before, sequences),
    turns = xi.map((one, index) => turned(old[index], one));
  const mixed = (first, { weights }) => ({
    ...first,
    weights: { ...first.weights, ...Object.fromEntries(LAYER.map((name) => [name, weights[name]])) },
  });
  return {
    ...found,
    loss_before: loss[step - 1],
    step_length: lengths[step - 1],
    turn: mean((index) => turns[index]),
    largest: Math.max(...turns),
    far: meanLoss(model, xi, xi.map((one, index) => kept(old[index], one))),
    layer: meanLoss(mixed(before, model), old),
    others: meanLoss(mixed(model, before), xi),
  };
}

const UPPER = [48, 22, 314, 152], LOWER = [48, 172, 314, 288], ACROSS = (UPPER[2] - UPPER[0]) / LAST;
const LOSS = { label: "loss", low: 1e-5, high: 2, ticks: [1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1], scale: Math.log, text: power };
const STRIDE = { label: "length of step", low: 0.01, high: 5, ticks: [0.01, 0.1, 1], scale: Math.log, text: String };
const TICKS = [0, 16, 32, 48, 64];
const across = (step) => UPPER[0] + ACROSS * step, stepAt = (x) => clamp(Math.round((x - UPPER[0]) / ACROSS), 0, LAST);
const lossAt = (value) => UPPER[3] - (UPPER[3] - UPPER[1]) * Math.log(value / LOSS.low) / Math.log(LOSS.high / LOSS.low);
const CENTRE = [160, 152], REACH = 0.66, RING = 128, UNIT = 116 / REACH;
const place = ([x, y]) => [CENTRE[0] + UNIT * x, CENTRE[1] - UNIT * y];

const pictures = [
  {
    label: "The loss and the length of Adam’s step, each on its own scale, over 64 steps; a click chooses a step",
    box: "0 0 320 324",
    click: (x) => (x >= UPPER[0] - 4 ? { step: stepAt(x) } : {}),
  },
  {
    label:
      "The plane of sequence embeddings: clusters in the colors of their labels, and a ring that shows the answer in each direction",
    box: "0 0 320 324",
  },
];
const steps = Array.from({ length: LAST + 1 }, (_, step) => step);
const controls = [
  {
    trait: "step",
    kind: "handle",
    label: "The step on the curve of the loss",
    step: ACROSS,
    mark: (node) => drawn("circle", { r: 6, fill: "currentColor" }, node),
    place: (step, now) => [across(step), lossAt(now.loss)],
    from(x, y, { step, data }) { // up and down keys do what right and left do
      const here = across(step), level = lossAt(unpack(data).loss[step]);
      return stepAt(Math.abs(x - here) < 1e-9 && Math.abs(Math.abs(y - level) - ACROSS) < 1e-6 ? here + level - y : x);
    },
  },
  { trait: "step", kind: "play", place: "ao-player", values: () => steps, stops: ["step"] },
  { trait: "step", label: "step", place: "ao-player" },
];

function drawCurves(picture, now, { data, step }, asking) {
  const { loss, lengths } = unpack(data), upper = axes(picture, UPPER, { label: "", low: 0, high: LAST, ticks: [] }, LOSS);
  const lower = axes(picture, LOWER, { label: "step", low: 0, high: LAST, ticks: TICKS }, STRIDE);
  line(picture, [across(step), UPPER[1]], [across(step), LOWER[3]], { "stroke-dasharray": "3 4", opacity: 0.6 });
  curve(clipped(picture, UPPER), loss.map((value, at) => upper([at, value])), { "stroke-width": 1.8 });
  curve(clipped(picture, LOWER), lengths.map((value, at) => lower([at + 1, value])), {
    stroke: PURPLE,
    "stroke-width": 2.2,
  });
  if (step > 0) {
    const [cx, cy] = lower([step, now.step_length]);
    drawn("circle", { cx, cy, r: 4.5, fill: PURPLE, stroke: "currentColor" }, picture);
  }
  drawn(
    "text",
    { x: LOWER[2] - 5, y: LOWER[3] - 8, "text-anchor": "end", class: "ao-small" },
    picture,
    "RMS per weight, in learning rates",
  );
  if (asking || step === 0) {
    drawn("text", { x: UPPER[0] + 6, y: 14, class: "ao-small" }, picture, "on the training set");
    return;
  }
  const [x, far] = upper([step, now.far]), layer = upper([step, now.layer])[1];
  drawn("polygon", {
    points: [[0, -5.5], [5.5, 0], [0, 5.5], [-5.5, 0]].map(([u, v]) => `${x + u},${far + v}`).join(" "),
    fill: "none",
    stroke: GREEN,
    "stroke-width": 2.2,
  }, picture);
  drawn(
    "rect",
    { x: x - 4.5, y: layer - 4.5, width: 9, height: 9, fill: "none", stroke: GRAY, "stroke-width": 2.2 },
    picture,
  );
  drawn("polygon", { points: "54,4 59.5,9.5 54,15 48.5,9.5", fill: "none", stroke: GREEN, "stroke-width": 2.2 }, picture);
  drawn("text", { x: 64, y: 14, class: "ao-small" }, picture, "with ξ at length 1 or more");
  drawn("rect", { x: 224, y: 5, width: 9, height: 9, fill: "none", stroke: GRAY, "stroke-width": 2.2 }, picture);
  drawn("text", { x: 238, y: 14, class: "ao-small" }, picture, "only the layer");
}

function drawPlane(picture, { sequence, answers, ring, shortest }, step) {
  const arc = (from, to) => {
    const [a, b] = [from, to].map((k) => 2 * Math.PI * k / TURNS),
      at = (angle) => `${CENTRE[0] + RING * Math.cos(angle)} ${CENTRE[1] - RING * Math.sin(angle)}`;
    return `M${at(a)}A${RING} ${RING} 0 ${b - a > Math.PI ? 1 : 0} 0 ${at(b)}`;
  };
  for (let from = 0, k = 1; k <= TURNS; k++) {
    if (k === TURNS || ring[k] !== ring[from]) {
      drawn("path", { d: arc(from, k), fill: "none", stroke: COLORS[ring[from]], "stroke-width": 12 }, picture);
      from = k;
    }
  }
  line(picture, [CENTRE[0] - 6, CENTRE[1]], [CENTRE[0] + 6, CENTRE[1]], { opacity: 0.9 });
  line(picture, [CENTRE[0], CENTRE[1] - 6], [CENTRE[0], CENTRE[1] + 6], { opacity: 0.9 });
  drawn("text", { x: CENTRE[0] + 5, y: CENTRE[1] + 15, class: "ao-small ao-halo" }, picture, "0");
  const nearest = sequence.reduce(
    (best, xi, index) => (Math.hypot(...xi) < Math.hypot(...sequence[best]) ? index : best),
    0,
  );
  sequence.forEach((xi, index) => {
    const at = place(xi),
      by = RING / (UNIT * Math.hypot(...xi)),
      end = place(xi.map((part) => by * part)),
      wrong = answers[index] !== LABELS[index];
    line(picture, at, end, { opacity: wrong ? 0.9 : 0.16, "stroke-width": wrong ? 1.4 : 1 });
    drawn("circle", {
      cx: end[0],
      cy: end[1],
      r: 4,
      fill: COLORS[LABELS[index]],
      stroke: wrong ? "currentColor" : "#fff",
      "stroke-width": wrong ? 2 : 0.8,
    }, picture);
    drawn("circle", {
      cx: at[0],
      cy: at[1],
      r: 5,
      fill: COLORS[LABELS[index]],
      stroke: "currentColor",
      "stroke-width": 0.8,
    }, picture);
    if (wrong) {
      for (const side of [1, -1]) {
        line(picture, [at[0] - 6, at[1] - 6 * side], [at[0] + 6, at[1] + 6 * side], { "stroke-width": 1.8 });
      }
    }
  });
  const [cx, cy] = place(sequence[nearest]);
  drawn(
    "circle",
    { cx, cy, r: 13, fill: "none", stroke: "currentColor", "stroke-width": 1.4, "stroke-dasharray": "4 3" },
    picture,
  );
  [`after step ${step}`, "dashed: the cluster nearest to 0", `shortest ξ (training set): ${show(shortest)}`].forEach(
    (text, row) =>
      drawn(
        "text",
        { x: CENTRE[0] + 4, y: CENTRE[1] + 46 + 15 * row, "text-anchor": "middle", class: "ao-small ao-halo" },
        picture,
        text,
      ),
  );
  [[4, COLORS[0], "label 0"], [74, COLORS[1], "label 1"]].forEach(([x, fill, text]) => {
    drawn("circle", { cx: x + 5, cy: 302, r: 5, fill, stroke: "currentColor", "stroke-width": 0.8 }, picture);
    drawn("text", { x: x + 14, y: 306, class: "ao-small" }, picture, text);
  });
  for (const side of [1, -1]) line(picture, [144, 302 - 5 * side], [154, 302 + 5 * side], { "stroke-width": 1.8 });
  drawn("text", { x: 159, y: 306, class: "ao-small" }, picture, "wrong");
  drawn("path", { d: "M208 306A24 24 0 0 1 226 296", fill: "none", stroke: COLORS[0], "stroke-width": 8 }, picture);
  drawn("text", { x: 232, y: 306, class: "ao-small" }, picture, "layer’s answer");
}

function draw([curves, plane], now, state, bounds, asking) {
  drawCurves(curves, now, state, asking);
  const step = asking ? PEAK - 1 : state.step;
  drawPlane(plane, asking ? compute({ ...state, step }) : now, step);
}

function small(value) {
  if (value >= 1e-3) return show(value, value >= 0.1 ? 2 : 4);
  return powers(value, 2);
}
const percent = (
  value,
) => (value > 0 ? `${show(100 * value, value < 0.01 ? 1 : 0)}% of the answers are wrong` : "all answers are right");

function say(now, { step }) {
  const start = `After step ${step} the loss is ${small(now.loss)}`;
  const plane = `On the training set, ${percent(now.wrong)}; the mean length of ξ is ${show(now.length)}. `;
  if (step === 0) return `${start}. ${plane}The run has been quiet for a long time.`;
  return `${start}; before it, the loss was ${small(now.loss_before)}. ${plane}The step is ${
    show(now.step_length)
  } learning rates long; it turns the directions ξ/‖ξ‖ by ${show(now.turn, 1)}° on average, ` +
    `and by at most ${show(now.largest, 1)}°. If ξ had been kept at length 1 or more, the loss would be ${
      small(now.far)
    }; if only the layer’s weights had been updated, ${small(now.layer)}; if all other weights had been, ${
      small(now.others)
    }.`;
}

const guess = {
  prompt: "In step 32, the loss grows a hundredfold. Why?",
  tells: true,
  options: ["some ξ flip across the origin", "all ξ turn by a few degrees", "the layer moves its boundaries"],
  of: (state) => ({ ...state, step: PEAK }),
  reveal(answer, _, state, now) {
    const right = answer === "all ξ turn by a few degrees";
    return `${
      answer === undefined ? "A" : right ? "Right: a" : "Not quite: a"
    } few degrees are enough. Nothing flips: directions turn by ${show(now.turn, 1)}° on average and by at most ${
      show(now.largest, 1)
    }°, which takes some of them across a boundary of the layer. ` +
      `If only the layer’s weights had been updated, the loss would be ${small(now.layer)} instead of ${
        small(now.loss)
      }. If ξ had been kept at length 1 or more, where the same change turns it less, the loss would be ${small(now.far)}.`;
  },
};
const tour = [
  {
    set: { step: 1 },
    say:
      "Before the spike: all answers are right, and Adam’s first step is a fiftieth as long as the learning rate. All clusters are closer than 1 to the origin.",
  },
  {
    set: { step: 2 },
    say:
      "One mini-batch with larger gradients: the step is several times as long as the one before. The answers stay right.",
  },
  {
    set: { step: 26 },
    say:
      "By now, the steps are as long as the learning rate, and one cluster lies beyond the edge of its arc: the first wrong answers.",
  },
  {
    set: { step: 32 },
    say: "The loss jumps: one answer in ten is wrong, after a turn of less than three degrees on average.",
  },
  {
    set: { step: 33 },
    say:
      "One step later, all answers are right again. The steps stay long, and the loss goes up and down for tens of steps.",
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
