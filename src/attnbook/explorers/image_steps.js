// An image moved by gradient steps z <- z + h (C - softmax(θz + b)) θ: what moves it, the picture or the supplied label C?

import { bytesOf, clamp, COLORS, drawn, element, judged, line, show, softmaxOf } from "./common.js";
import { explorer } from "./shell.js";

const SIDE = 28, PIXELS = SIDE * SIDE, COUNT = 10, ITERATIONS = 5;
const indices = (count) => Array.from({ length: count }, (_, index) => index);
const largest = (values) => values.indexOf(Math.max(...values));
const digits = (value, count) => value.toLocaleString("en", { maximumSignificantDigits: count, useGrouping: false });

// Packed arrays, decoded once for each base64 text.
const kept = new Map();
function unpack(name, text, decode) {
  if (kept.get(name)?.text !== text) {
    kept.set(name, { text, array: decode(new DataView(bytesOf(text).buffer)) });
  }
  return kept.get(name).array;
}
const floats = (view) => Float64Array.from({ length: view.byteLength / 4 }, (_, index) => view.getFloat32(4 * index, true));
const rows = (view) => indices(COUNT).map((row) => floats(new DataView(view.buffer, 4 * PIXELS * row, 4 * PIXELS)));
const grays = (view) =>
  indices(view.byteLength / PIXELS).map((index) => new Uint8Array(view.buffer, PIXELS * index, PIXELS));
const inner = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
const gramOf = (view) => rows(view).map((one, _, all) => all.map((other) => inner(one, other)));

// The chosen image with its noise; image 0 is black.
function startOf({ images, pattern, image, noise }) {
  const clean = image === 0 ? null : unpack("images", images, grays)[image - 1];
  return unpack("pattern", pattern, floats).map((value, pixel) => (clean ? clean[pixel] / 255 : 0) + noise * value);
}

// The class that a label names, given the probabilities at the start.
function classOf({ label, truth, image, classes }, probabilities) {
  if (label === "true") return image === 0 ? 0 : truth[image - 1]; // the black image has none: the first stands in
  return label === "predicted" ? largest(probabilities) : classes.indexOf(label);
}

// The numbers after 0..5 steps. The image moves by combinations aθ, so ten logits and the Gram matrix θθᵀ are enough.
function unroll(state) {
  const z = startOf(state), gram = unpack("gram", state.weights, gramOf), bias = unpack("bias", state.bias, floats);
  const first = unpack("weights", state.weights, rows).map((row, c) => inner(row, z) + bias[c]);
  const atStart = softmaxOf(first).weights;
  const imposed = state.label === "soft" ? atStart : indices(COUNT).map((c) => (c === classOf(state, atStart) ? 1 : 0));
  const probabilities = [], coefficients = [indices(COUNT).map(() => 0)];
  for (let logits = first, layer = 0; layer <= ITERATIONS; layer++) {
    const now = softmaxOf(logits).weights, change = now.map((value, c) => state.step * (imposed[c] - value));
    probabilities.push(now);
    logits = logits.map((value, c) => value + inner(change, gram[c]));
    if (layer < ITERATIONS) coefficients.push(coefficients[layer].map((value, c) => value + change[c]));
  }
  const moved = coefficients.map((a) => Math.sqrt(Math.max(inner(a, gram.map((row) => inner(row, a))), 0)));
  return {
    z,
    probabilities,
    predicted: probabilities.map(largest),
    imposed,
    moved,
    start_norm: Math.sqrt(inner(z, z)),
    coefficients,
  };
}

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const { z, coefficients, ...numbers } = unroll(state);
  const { moved, start_norm: norm } = numbers;
  return {
    ...numbers,
    difference: coefficients[state.iteration],
    shares: norm > 0 ? moved.map((value) => value / norm) : null,
  };
}

// A square of pixels with a heading above it and a scale below.
function screen(parent, heading, kind) {
  const canvas = element("canvas", { width: SIDE, height: SIDE, role: "img" });
  const ends = [element("span"), element("span")];
  parent.append(
    element(
      "div",
      { class: `ao-screen ao-${kind}` },
      element("div", {}, heading),
      canvas,
      element("div", { class: "ao-scale", "aria-hidden": "true" }, ends[0], element("i"), ends[1]),
    ),
  );
  return {
    canvas,
    scale(low, high) {
      [ends[0].textContent, ends[1].textContent] = [low, high];
    },
  };
}

// Paint a canvas: `color` gives red, green, blue and opacity (0 to 255) of a pixel's value.
function paint(canvas, values, color) {
  const pixels = new ImageData(SIDE, SIDE);
  values.forEach((value, index) => pixels.data.set(color(value), 4 * index));
  canvas.getContext("2d").putImageData(pixels, 0, 0);
}
const gray = (value) => [...Array(3).fill(255 * clamp(value, 0, 1)), 255];
const diverging =
  (reach) => (value) => [...(value < 0 ? [0, 114, 178] : [213, 94, 0]), reach ? 255 * Math.abs(value) / reach : 0];

// The small picture of an image.
function thumbnail(number, { images, truth, classes }) {
  const name = `${number}: ${number === 0 ? "black" : classes[truth[number - 1]]}`;
  return {
    key: `${name} ${images}`,
    make() {
      const canvas = element("canvas", { width: SIDE, height: SIDE, role: "img", "aria-label": name });
      paint(
        canvas,
        number === 0 ? Array(PIXELS).fill(0) : unpack("images", images, grays)[number - 1],
        (value) => gray(value / 255),
      );
      return canvas;
    },
  };
}

// The two screens in their column.
function screens(root) {
  const parent = element("div", { class: "ao-screens" });
  root.append(parent);
  const now = screen(parent, "the image now", "gray"), change = screen(parent, "its change so far", "diverging");
  now.scale("≤ 0", "≥ 1");
  return { now, change };
}
const pictures = [screens, {
  label: "The classifier’s ten probabilities as bars, with outlines for those at the start",
  box: "0 0 320 262",
}];

const truthOf = ({ image, truth, classes }) => (image === 0 ? null : classes[truth[image - 1]]);
const subjectOf = (state) => (state.image === 0 ? "image 0: black" : `image ${state.image}: ${truthOf(state)}`);
const after = ({ iteration }) => (iteration === 1 ? "1 block" : `${iteration} blocks`);
function nameOf(label, state, { predicted }) {
  if (label === "true") return truthOf(state) ? `true: ${truthOf(state)}` : `${state.classes[0]} (no true label)`;
  if (label === "predicted") return `predicted: ${state.classes[predicted[0]]}`;
  return label === "soft" ? "its own softmax" : label;
}
const controls = [
  { trait: "image", kind: "choice", place: "ao-strip", top: true, label: subjectOf, names: thumbnail },
  { trait: "label", kind: "select", label: "supplied label", names: nameOf },
  { trait: "noise", label: "noise" },
  { trait: "step", label: "step size" },
  { trait: "iteration", label: "blocks" },
];

function draw([screens, bars], { probabilities, predicted, moved, imposed }, state, bounds, asking) {
  const { classes, label } = state,
    iteration = asking ? 0 : state.iteration,
    { z, coefficients } = unroll(state),
    weights = unpack("weights", state.weights, rows);
  const chosen = label === "soft" ? -1 : largest(imposed), { now, change } = screens, subject = subjectOf(state);

  const differences = coefficients.map((a) =>
    z.map((_, pixel) => a.reduce((sum, value, c) => sum + value * weights[c][pixel], 0))
  );
  const reach = Math.max(...differences.map((values) => values.reduce((top, value) => Math.max(top, Math.abs(value)), 0)));
  paint(now.canvas, z.map((value, pixel) => value + differences[iteration][pixel]), gray);
  paint(change.canvas, differences[iteration], diverging(reach));
  change.scale(reach ? `−${digits(reach, 2)}` : "none", reach ? `+${digits(reach, 2)}` : "");
  now.canvas.setAttribute("aria-label", `${subject}, after ${after({ iteration })}`);
  change.canvas.setAttribute(
    "aria-label",
    `change of ${subject}, after ${after({ iteration })}, norm ${digits(moved[iteration], 3)}`,
  );

  const left = 100, width = 166, height = 23;
  classes.forEach((name, c) => {
    const y = height * c, weight = `font-weight: ${c === chosen || c === predicted[iteration] ? "bold" : "normal"}`;
    const [before, value] = [probabilities[0][c], probabilities[iteration][c]];
    drawn(
      "text",
      { x: left - 8, y: y + 16, "text-anchor": "end", style: weight },
      bars,
      `${c === chosen ? "★ " : ""}${name}`,
    );
    drawn(
      "rect",
      { x: left, y: y + 4, width: width * value, height: height - 7, fill: COLORS[c === chosen ? 1 : 0] },
      bars,
    );
    if (width * before >= 1) {
      drawn("rect", {
        x: left,
        y: y + 1.5,
        width: width * before,
        height: height - 2,
        fill: "none",
        stroke: "currentColor",
        "stroke-width": 1,
      }, bars);
    }
    drawn(
      "text",
      { x: left + width + 8, y: y + 16, style: weight },
      bars,
      `${show(value)}${c === predicted[iteration] ? " ◀" : ""}`,
    );
  });
  line(bars, [left, 0], [left, COUNT * height], { opacity: 0.5 });
  drawn(
    "text",
    { x: 160, y: COUNT * height + 22, "text-anchor": "middle", class: "ao-small" },
    bars,
    `${chosen < 0 ? "" : "★ supplied · "}◀ predicted · outline: at the start`,
  );
}

function say({ probabilities, predicted, moved, shares, start_norm: norm, imposed }, state) {
  const { classes, image, label, iteration } = state,
    chosen = label === "soft" ? -1 : largest(imposed),
    truth = truthOf(state);
  const source = {
    true: truth ? ", its true class" : "; a black image has no true class",
    predicted: ", predicted at the start",
  }[label] ?? "";
  const held = chosen < 0 ? "its own softmax at the start" : `${classes[chosen]}${source}`;
  const share = shares
    ? `, ${digits(100 * shares[iteration], 3)}% of the start’s norm ${show(norm)}`
    : "; its norm at the start was 0";
  const travel = chosen < 0
    ? `The label is the vector of the classifier’s own probabilities, so the update is exactly zero, and the image does not change (its norm stays ${
      show(norm)
    })`
    : `The image has moved by ${digits(moved[iteration], 3)}${share}`;
  return `Image ${image} after ${after(state)} (step size ${show(state.step)}): predicted ${
    classes[predicted[iteration]]
  } ` +
    `(probability ${show(probabilities[iteration][predicted[iteration]], 3)}); supplied: ${held}. ${travel}.`;
}

const guess = {
  prompt:
    "The bars show what the classifier sees in the image. Five blocks, given the starred label, now change the image. What does the classifier see then?",
  tells: true,
  options: ["what it sees now", "the starred label", "something else"],
  reveal(answer, { probabilities, predicted, imposed }, { classes, label }) {
    const ends = classes[predicted[ITERATIONS]], share = show(probabilities[ITERATIONS][predicted[ITERATIONS]], 2);
    if (label === "soft") {
      return judged(answer, answer === "what it sees now", `It sees ${ends} as before, because the image does not move.`);
    }
    const put = classes[largest(imposed)],
      right = ends === put ? "the starred label" : ends === classes[predicted[0]] ? "what it sees now" : "something else";
    const seen = ends === put
      ? `It sees the starred label, ${put}, with probability ${share}. `
      : `It sees ${ends}, with probability ${share}; the starred label is ${put}. `;
    return judged(answer, answer === right, seen) + `At the start, it saw ${classes[predicted[0]]}.`;
  },
};

export default explorer({ pictures, controls, compute, draw, say, guess });
