// A recorded training run: the influences of the five relevant tokens, the parity coefficient with its factors and its cost,
// and the loss, over the epochs and, as bars to be dragged, at one of them.

import { axes, clamp, clipped, COLORS, curve, drawn, line, listed, power, powers, show, small, tidy } from "./common.js";
import { margin, pairsOf } from "./model.js";
import { explorer } from "./shell.js";

const LENGTH = 12, PREFIX = 5, ALL = 2 ** LENGTH, PURPLE = "#CC79A7", GREEN = COLORS[2], BLUE = COLORS[0], FLOOR = 1e-15;
const frameOf = ({ run, epoch, record }) => record[run].epochs.findLastIndex((one) => one <= epoch);
const ones = (number) => number.toString(2).replace(/0/g, "").length;

// log cosh(m/2), by its series where the formula would cancel.
function logCoshHalf(m) {
  const size = Math.abs(m);
  return size < 0.01 ? m * m / 8 - m ** 4 / 192 : Math.log1p(Math.exp(-size)) + size / 2 - Math.LN2;
}

// What token x at position t adds to the two sums whose ratio is ξ: the weight, and the weighted value.
function sumsOf(model) {
  const { scores, values } = pairsOf(model);
  return scores.map((row, x) => row.map((score, t) => [1, ...values[x][t]].map((part) => Math.exp(score) * part)));
}

// How far each influence at the chosen epoch can be multiplied: to twice what it is, or to what it is at the end of the run.
function reaches(state) {
  const { influences } = state.record[state.run], end = influences.at(-1);
  return influences[frameOf(state)].map((value, t) => Math.max(2, end[t] / value));
}

// The numbers that the picture shows; the Python class computes the same. The last ones are kept.
let kept = { key: null };
export function compute(state) {
  const { run, record } = state,
    frame = frameOf(state),
    most = reaches(state),
    factors = state.factors.map((factor, t) => Math.min(factor, most[t]));
  const key = [run, frame, ...factors].join();
  if (kept.key === key && kept.record === record) return kept.numbers;
  const weights = Object.fromEntries(Object.entries(record[run].weights).map(([name, values]) => [name, values[frame]]));
  const model = { weights, norm: "rms" }, sums = sumsOf(model);
  const halves = sums[0].map((low, t) =>
    low.map((part, axis) => (t < PREFIX ? factors[t] : 1) * (sums[1][t][axis] - part) / 2)
  );
  const ends = [-1, 1].map((sign) =>
    sums[0].map((low, t) => low.map((part, axis) => (part + sums[1][t][axis]) / 2 + sign * halves[t][axis]))
  );
  let parity = 0, cost = 0;
  for (let number = 0; number < ALL; number++) {
    let a = 0, b = 0, c = 0;
    for (let t = 0; t < LENGTH; t++) {
      const part = ends[(number >> (LENGTH - 1 - t)) & 1][t];
      a += part[0];
      b += part[1];
      c += part[2];
    }
    const m = margin(model, [b / a, c / a]);
    parity += ones(number >> (LENGTH - PREFIX)) % 2 ? m : -m;
    cost += 2 * logCoshHalf(m);
  }
  parity /= ALL;
  cost /= ALL;
  const influences = halves.slice(0, PREFIX).map((half) => 2 * Math.hypot(...half)),
    [product, grown] = [influences, factors].map((values) => values.reduce((all, value) => all * value, 1));
  const before = record[run].parity[frame], change = grown && Math.abs(before) > FLOOR ? parity / before : 0;
  const numbers = {
    influences,
    product,
    readout: product ? parity / product : 0,
    parity,
    cost,
    loss: Math.LN2 + (cost - parity) / 2,
    changes: [grown, grown ? change / grown : 0, change],
    times: influences.map((size, t) => size / record[run].influences[frame][t]),
  };
  kept = { key, record, numbers };
  return numbers;
}

const UPPER = [46, 18, 312, 120], MIDDLE = [46, 152, 312, 222], LOWER = [46, 242, 312, 284], BOX = "0 0 320 318";
const INFLUENCE = { label: "influence", low: 0.003, high: 8, ticks: [0.01, 0.1, 1], scale: Math.log, text: String };
const PARITY = { label: "", low: 1e-11, high: 1000, ticks: [1e-10, 1e-7, 1e-4, 0.1, 100], scale: Math.log, text: power };
const LOSS = { label: "loss", low: 0, high: 0.85, ticks: [0, 0.4, 0.8], text: tidy };
const DASHES = ["none", "7 3", "2 3", "9 3 2 3", "14 3"];
const lastOf = ({ run, record }) => record[run].epochs.at(-1);
const across = (epoch, state) => UPPER[0] + (UPPER[2] - UPPER[0]) * epoch / lastOf(state);
const height = ({ low, high, scale = Number }, [, top, , bottom]) => (value) =>
  bottom - (bottom - top) * (scale(clamp(value, low, high)) - scale(low)) / (scale(high) - scale(low));
const influenceAt = height(INFLUENCE, UPPER), parityAt = height(PARITY, MIDDLE), lossAt = height(LOSS, LOWER);
const valueAt = (y) => INFLUENCE.low * (INFLUENCE.high / INFLUENCE.low) ** ((UPPER[3] - y) / (UPPER[3] - UPPER[1]));
const column = (t) => UPPER[0] + (t + 0.5) * (UPPER[2] - UPPER[0]) / PREFIX;
const nearest = (x, state) => {
  const { epochs } = state.record[state.run];
  return epochs.reduce(
    (best, epoch) => (Math.abs(across(epoch, state) - x) < Math.abs(across(best, state) - x) ? epoch : best),
    epochs[0],
  );
};
const PLAIN = [1, 1, 1, 1, 1], KEY = 7.3, CHANGE = 4;

const pictures = [
  {
    label:
      "Over the epochs of a run: five influences, their product, the readout factor, the parity coefficient with its cost, and the loss; a click chooses an epoch",
    box: BOX,
    click: (x, y, state) => (x >= UPPER[0] - 4 ? { epoch: nearest(x, state) } : {}),
  },
  {
    label:
      "The same at the chosen epoch: five influences as bars that can be dragged, their product, the readout factor, the parity coefficient, its cost, and the loss",
    box: BOX,
  },
];
const NAMES = {
  three: "three start small",
  two: "two stay small for long",
  none: "none starts small, yet it waits",
  never: "never escapes",
};
const controls = [
  {
    trait: "epoch",
    kind: "handle",
    label: "The epoch on the curve of the loss",
    step: KEY,
    mark: (node) => drawn("circle", { r: 6, fill: "currentColor" }, node),
    place: (
      _,
      now,
      state,
    ) => [
      across(state.record[state.run].epochs[frameOf(state)], state),
      lossAt(state.record[state.run].loss[frameOf(state)]),
    ],
    from(x, y, state) { // a key goes to the next frame, up and down as right and left
      const { epochs, loss } = state.record[state.run],
        frame = frameOf(state),
        dx = x - across(epochs[frame], state),
        dy = lossAt(loss[frame]) - y;
      const key = [dx, dy].find((part, index) => Math.abs(Math.abs(part) - KEY) < 1e-6 && Math.abs([dy, dx][index]) < 1e-6);
      return key === undefined ? nearest(x, state) : epochs[clamp(frame + Math.sign(key), 0, epochs.length - 1)];
    },
  },
  ...PLAIN.map((_, t) => ({
    trait: "factors",
    at: t,
    kind: "handle",
    picture: 1,
    label: `The influence of token ${t + 1}`,
    step: CHANGE,
    mark: (node) => drawn("circle", { r: 6, fill: PURPLE, stroke: "currentColor" }, node),
    place: (_, { influences }) => [column(t), influenceAt(influences[t])],
    from(x, y, state) {
      const base = state.record[state.run].influences[frameOf(state)][t],
        dx = x - column(t),
        by = Math.abs(Math.abs(dx) - CHANGE) < 1e-6 ? dx : 0;
      return y - by > UPPER[3] - 1 ? 0 : clamp(valueAt(y - by) / base, 0, reaches(state)[t]);
    },
  })),
  { trait: "epoch", label: "epoch", values: ({ run, record }) => record[run].epochs },
  {
    trait: "run",
    kind: "select",
    label: "run",
    names: NAMES,
    put: (run) => ({ run, epoch: START[run], factors: PLAIN }),
  },
  {
    trait: "factors",
    kind: "actions",
    place: "ao-tokens",
    label: "influences (or drag a dot)",
    acts: {
      "halve each": ({ factors }) => ({ factors: factors.map((factor) => factor / 2) }),
      "drop the least": (state) => {
        const { influences } = compute(state), least = influences.indexOf(Math.min(...influences));
        return { factors: state.factors.map((factor, t) => (t === least ? 0 : factor)) };
      },
      "final influences": (state) => {
        const { influences } = state.record[state.run], here = influences[frameOf(state)];
        return { factors: influences.at(-1).map((value, t) => value / here[t]) };
      },
      "as trained": () => ({ factors: PLAIN }),
    },
  },
];
const START = { three: 142, two: 216, none: 269, never: 497 };

const log2 = (parent, inside) =>
  line(inside, [LOWER[0], lossAt(Math.LN2)], [LOWER[2], lossAt(Math.LN2)], { "stroke-dasharray": "4 3", opacity: 0.6 });

function drawRun(picture, state, asking) {
  const { epochs, influences, parity, cost, loss } = state.record[state.run], last = epochs.at(-1), frame = frameOf(state);
  const unit = [50, 100, 200, 250].find((one) => last / one <= 6),
    ticks = Array.from({ length: Math.floor(last / unit) + 1 }, (_, k) => k * unit);
  const bare = { label: "", low: 0, high: last, ticks: [] };
  axes(picture, UPPER, bare, INFLUENCE);
  axes(picture, MIDDLE, bare, PARITY);
  axes(picture, LOWER, { ...bare, label: "epoch", ticks }, LOSS);
  small(picture, UPPER[0], 12, "influences ‖δₜ‖ of the relevant tokens 1 to 5");
  const least = influences[frame].indexOf(Math.min(...influences[frame])),
    fields = [UPPER, MIDDLE, LOWER].map((field) => clipped(picture, field));
  PLAIN.forEach((_, t) => {
    curve(fields[0], influences.map((row, at) => [across(epochs[at], state), influenceAt(row[t])]), {
      stroke: PURPLE,
      "stroke-width": t === least ? 3.2 : 1.7,
      "stroke-dasharray": DASHES[t],
    });
  });
  PLAIN.forEach((_, t) => { // a number on each curve, at places of its own
    const at = Math.min(epochs.length - 1, Math.round((0.06 + 0.09 * t) * (epochs.length - 1))),
      [x, y] = [across(epochs[at], state), influenceAt(influences[at][t])];
    drawn("circle", {
      cx: x,
      cy: y,
      r: 7,
      style: "fill: var(--pst-color-background, var(--jp-layout-color0, Canvas))",
      stroke: PURPLE,
      "stroke-width": 1.5,
    }, picture);
    small(picture, x, y + 4, String(t + 1), "middle");
  });
  if (asking) {
    for (const [, top, , bottom] of [MIDDLE, LOWER]) {
      drawn("text", { x: (UPPER[0] + UPPER[2]) / 2, y: (top + bottom) / 2 + 5, "text-anchor": "middle" }, picture, "?");
    }
    return;
  }
  line(picture, [across(epochs[frame], state), UPPER[1]], [across(epochs[frame], state), LOWER[3]], {
    "stroke-dasharray": "3 4",
    opacity: 0.7,
  });
  const product = influences.map((row) => row.reduce((all, value) => all * value, 1)),
    at = (values) => values.map((value, index) => [across(epochs[index], state), parityAt(Math.abs(value))]);
  curve(fields[1], at(cost), { "stroke-dasharray": "5 3", opacity: 0.7, "stroke-width": 1.6 });
  curve(fields[1], at(product), { stroke: PURPLE, "stroke-width": 1.7 });
  curve(fields[1], at(parity.map((value, index) => value / product[index])), { stroke: BLUE, "stroke-width": 1.7 });
  curve(fields[1], at(parity), { stroke: GREEN, "stroke-width": 2.8 });
  [["product", PURPLE], ["× |readout|", BLUE], ["= |π|", GREEN], ["cost", "currentColor"]].forEach(
    ([text, stroke], index) => {
      const x = UPPER[0] + [0, 64, 146, 198][index];
      line(picture, [x, 143], [x + 13, 143], {
        stroke,
        "stroke-width": 2.4,
        "stroke-dasharray": text === "cost" ? "5 3" : "none",
      });
      small(picture, x + 16, 147, text);
    },
  );
  log2(picture, fields[2]);
  curve(fields[2], loss.map((value, at) => [across(epochs[at], state), lossAt(value)]), { "stroke-width": 2 });
  small(picture, UPPER[0], 237, "loss over all sequences, and log 2 (dashed)");
}

function drawBars(picture, now, state, asking) {
  const { epochs, influences } = state.record[state.run],
    frame = frameOf(state),
    wide = 26,
    bare = { label: "", low: 0, high: 1, ticks: [] };
  axes(picture, UPPER, bare, { ...INFLUENCE, label: "" });
  small(picture, UPPER[0], 12, `influences at epoch ${epochs[frame]}${asking ? "" : " (dotted: last epoch)"}`);
  now.influences.forEach((value, t) => {
    const y = influenceAt(value), was = influenceAt(influences[frame][t]);
    drawn("rect", {
      x: column(t) - wide / 2,
      y,
      width: wide,
      height: Math.max(UPPER[3] - y, 0.5),
      fill: PURPLE,
      "fill-opacity": 0.55,
    }, picture);
    line(picture, [column(t) - wide / 2 - 4, was], [column(t) + wide / 2 + 4, was], { opacity: 0.8 });
    const end = influenceAt(influences.at(-1)[t]);
    if (!asking) {
      line(picture, [column(t) - wide / 2 - 8, end], [column(t) + wide / 2 + 8, end], {
        "stroke-dasharray": "2 3",
        "stroke-width": 2,
      });
    }
    small(picture, column(t), UPPER[3] + 13, String(t + 1), "middle");
  });
  if (asking) return;
  axes(picture, MIDDLE, bare, { ...PARITY, label: "" });
  axes(picture, LOWER, bare, { ...LOSS, label: "" });
  [["product", now.product, PURPLE], ["× readout", now.readout, BLUE], ["= π", now.parity, GREEN], [
    "cost",
    now.cost,
    "currentColor",
  ]].forEach(([text, value, fill], index) => {
    const x = MIDDLE[0] + (index + 0.5) * (MIDDLE[2] - MIDDLE[0]) / 4, y = parityAt(Math.abs(value));
    drawn("rect", { x: x - 20, y, width: 40, height: Math.max(MIDDLE[3] - y, 0.5), fill, "fill-opacity": 0.55 }, picture);
    small(picture, x, 147, text, "middle");
    small(picture, x, MIDDLE[3] + 13, index === 1 && !now.product ? "–" : worded(value), "middle");
  });
  const inside = clipped(picture, LOWER), y = lossAt(now.loss);
  log2(picture, inside);
  line(inside, [LOWER[0] + 60, y], [LOWER[2] - 60, y], { "stroke-width": 4 });
  const gap = now.loss - Math.LN2;
  small(
    picture,
    (LOWER[0] + LOWER[2]) / 2,
    LOWER[3] + 16,
    `loss ${show(now.loss, 4)}, log 2 ${gap < 0 ? "−" : "+"} ${show(Math.abs(gap), 4)}`,
    "middle",
  );
}

function draw([left, right], now, state, bounds, asking) {
  drawRun(left, state, asking);
  drawBars(right, now, state, asking);
}

// A number in a few figures: 0.12, or 3 × 10⁻⁴.
function worded(value, figures = 1) {
  const size = Math.abs(value);
  if (size < FLOOR) return "0";
  return size >= 0.1 ? show(value, 2) : powers(value, figures);
}

function say(now, state) {
  const { run, record, factors } = state,
    frame = frameOf(state),
    moved = factors.flatMap((factor, t) => (factor === 1 ? [] : [t]));
  const start = `Epoch ${record[run].epochs[frame]}: the influences are ${
    listed(now.influences.map((value) => (value < 0.1 ? show(value, 3) : show(value))))
  }. `;
  const blind = moved.filter((t) => factors[t] === 0).map((t) => String(t + 1)),
    times = (value) => (value >= 1000 || value < 0.01 ? worded(value, 2) : show(value, value < 0.1 ? 3 : 2));
  const those = moved.length > 2
      ? "these influences"
      : listed(moved.map((t) => `${times(now.times[t])} times that of token ${t + 1}`)),
    [product, readout, parity] = now.changes.map((
      value,
    ) => (value < 0 ? `changes sign and has ${times(-value)} times its size` : `is ${times(value)} times what it was`));
  const change = !moved.length
    ? ""
    : blind.length
    ? `Without the influence of token ${listed(blind)}, π is 0, whatever the others are. `
    : `With ${those}, the product ${product}, the readout ${readout}, and so π ${parity}. `;
  const factored = blind.length
    ? ""
    : `π = product × readout = ${worded(now.product, 2)} × ${
      now.readout < 0 ? `(${worded(now.readout, 2)})` : worded(now.readout, 2)
    } = ${worded(now.parity, 2)}. `;
  return `${start}${change}${factored}Its cost is ${worded(now.cost, 2)}: ${
    now.parity > now.cost
      ? "π exceeds it, so the loss is below log 2"
      : "π does not exceed it, so the loss is not below log 2"
  }.`;
}

const LAST = "only when the last one does";
const guess = {
  prompt: "The five relevant tokens gain influence at different times. When does the loss (still hidden) leave log 2?",
  options: ["when the first token gains influence", "when three tokens have it", LAST],
  tells: true,
  reveal(guessed) {
    return `${
      guessed === undefined ? "" : guessed === LAST ? "Right. " : "Not quite. "
    }Token 4 is the last to gain influence, between epochs 142 and 179, and then the loss falls, because π has all five influences as factors. ` +
      "But the influences are not enough: if the model at epoch 142 is given the influences of epoch 302, its readout becomes small and negative, and so does π. At epoch 162, these influences suffice.";
  },
};

export default explorer({ pictures, controls, compute, draw, say, guess });
