// The model of Part III, forward: from a sentence to its probabilities, written as it is read. A model is
//   weights    lists by the names of the package's `Models`, for one model
//   norm       "rms" or "unit", which leaves 0 as it is
//   neurons, positions    masks of zeros and ones, if some are off
// The trainer has this pass once more, with its derivative, in loops over one array.

import { dot, normalBelow, softmaxOf } from "./common.js";

// Φ and its density φ: tabulated at every 256th from -9 to 9, between these by Taylor's formula, whose terms are Hermite
// polynomials; the error is of the size of rounding. Beyond 9 Φ is 0 or 1 and φ 0.
const FINE = 256, END = 9;
const BELOW = Float64Array.from({ length: 2 * END * FINE + 1 }, (_, index) => normalBelow(index / FINE - END));
const DENSITY = Float64Array.from(
  { length: 2 * END * FINE + 1 },
  (_, index) => Math.exp(-((index / FINE - END) ** 2) / 2) / Math.sqrt(2 * Math.PI),
);

export function below(x) {
  if (!(x > -END && x < END)) return x >= END ? 1 : x <= -END ? 0 : NaN;
  const node = (x * FINE + END * FINE + 0.5) | 0, at = node / FINE - END, step = x - at, square = at * at;
  return BELOW[node] +
    DENSITY[node] * step *
      (1 -
        step *
          (at / 2 - step * ((square - 1) / 6 - step * (at * (square - 3) / 24 - step * ((square - 6) * square + 3) / 120))));
}

export function density(x) {
  if (!(x > -END && x < END)) return x === x ? 0 : NaN;
  const node = (x * FINE + END * FINE + 0.5) | 0, at = node / FINE - END, step = x - at, square = at * at;
  return DENSITY[node] *
    (1 - step * (at - step * ((square - 1) / 2 - step * (at * (square - 3) / 6 - step * ((square - 6) * square + 3) / 24))));
}

export function checkNorm(norm) {
  if (norm !== "rms" && norm !== "unit") throw new RangeError(`norm must be "rms" or "unit", got ${String(norm)}`);
  return norm;
}
export function normalized(norm, vector) {
  const length = Math.sqrt(dot(vector, vector)),
    by = checkNorm(norm) === "rms" ? length / Math.sqrt(vector.length) + 1e-5 : length || 1;
  return vector.map((value) => value / by);
}

// The weights as one array, in the trainer's order.
const ORDER = ["token", "position", "query", "value", "receptors", "receptor_biases", "assemblers", "assembler_bias"];
export const flatOf = (weights) => ORDER.map((name) => weights[name]).flat(2);

// The weights of one array, from a place on, in the order of their shapes.
export function weightsIn(flat, shapes, at = 0) {
  const row = (count) => Array.from(flat.slice(at, at += count));
  return Object.fromEntries(
    Object.entries(shapes).map((
      [name, [rows, columns]],
    ) => [name, columns === undefined ? row(rows) : Array.from({ length: rows }, () => row(columns))]),
  );
}

// Of all pairs of token and position the normalized embeddings, values Vz and scores.
export function pairsOf({ weights: { token, position, query, value }, norm }) {
  const embeddings = token.map((e) => position.map((at) => normalized(norm, e.map((part, f) => part + at[f]))));
  const values = embeddings.map((row) => row.map((z) => value.map((part) => dot(part, z))));
  return { embeddings, values, scores: embeddings.map((row) => row.map((z) => dot(query, z) / Math.sqrt(query.length))) };
}

// The attention of a sentence, and ξ, the mean of the values under it.
export function attended({ positions }, { scores, values }, tokens) {
  const attention = tokens.map((x, t) => (!positions || positions[t] ? scores[x][t] : -Infinity)),
    top = Math.max(...attention);
  const sequence = values[0][0].map(() => 0);
  let mass = 0;
  for (let t = 0; t < tokens.length; t++) mass += attention[t] = Math.exp(attention[t] - top);
  for (let t = 0; t < tokens.length; t++) {
    attention[t] /= mass;
    for (let f = 0; f < sequence.length; f++) sequence[f] += attention[t] * values[tokens[t]][t][f];
  }
  return { attention, sequence };
}

// From ξ through the neurons to the logits: `activations` are those before the GELU, `fired` those after it. The layer reads
// the direction of ξ, or another one that is given.
export function answered(
  { weights: { token, receptors, receptor_biases: thresholds, assemblers, assembler_bias: shift }, norm, neurons },
  xi,
  direction = normalized(norm, xi),
) {
  const activations = receptors.map((row, i) => dot(row, direction) + thresholds[i]);
  const fired = activations.map((value, i) => (neurons && !neurons[i] ? 0 : value * below(value)));
  const output = xi.map((value, f) => value + dot(assemblers[f], fired) + shift[f]);
  return { direction, activations, fired, output, logits: token.map((e) => dot(e, output)) };
}

// Of a model with two labels, by how much the logit of label 1 exceeds that of label 0.
export function margin(model, xi, direction) {
  const [zero, one] = model.weights.token, { output } = answered(model, xi, direction);
  return output.reduce((total, value, f) => total + (one[f] - zero[f]) * value, 0);
}

// The probabilities of the labels at one ξ.
export const classify = (model, xi) => softmaxOf(answered(model, xi).logits).weights;

// What each stage holds on the way from sentences to probabilities.
export function stages(model, tokens) {
  const pairs = pairsOf(model),
    found = tokens.map((row) => {
      const { attention, sequence } = attended(model, pairs, row), { activations, logits } = answered(model, sequence);
      return { attention, sequence, activations, logits, probabilities: softmaxOf(logits).weights };
    });
  return {
    ...pairs,
    ...Object.fromEntries(Object.keys(found[0] ?? {}).map((name) => [name, found.map((one) => one[name])])),
  };
}
