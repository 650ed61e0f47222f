// The transformer of Part V, forward and token by token: each token sees those before it. The weights come as one array in
// PyTorch's order: positions, embedding, for each layer LayerNorm, attention, LayerNorm, MLP, and LayerNorm and readout.

import { below } from "./model.js";

// The matrices of one array; `sizes` has inputs, outputs, positions, width, layers, heads.
export function standardModel(flat, sizes) {
  const { inputs, outputs, positions, width, layers } = sizes;
  let at = 0;
  const take = (count) => flat.subarray(at, at += count);
  const linear = (rows, columns) => ({ rows, columns, weight: take(rows * columns), bias: take(rows) });
  const norm = () => ({ weight: take(width), bias: take(width) });
  const position = take(positions * width), embedding = linear(width, inputs);
  const blocks = Array.from({ length: layers }, () => ({
    first: norm(),
    qkv: linear(3 * width, width),
    out: linear(width, width),
    second: norm(),
    up: linear(4 * width, width),
    down: linear(width, 4 * width),
  }));
  return { ...sizes, embedding, position, blocks, last: norm(), readout: linear(outputs, width) };
}

function applied({ rows, columns, weight, bias }, x) {
  const y = new Float64Array(rows);
  for (let i = 0; i < rows; i++) {
    let sum = bias[i];
    for (let j = 0; j < columns; j++) sum += weight[i * columns + j] * x[j];
    y[i] = sum;
  }
  return y;
}

function normed({ weight, bias }, x) {
  const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
  const by = 1 / Math.sqrt(x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length + 1e-5);
  return x.map((value, i) => (value - mean) * by * weight[i] + bias[i]);
}

export const readOut = (model, state) => applied(model.readout, normed(model.last, state));

// Keys and values of the tokens so far, layer by layer.
export const beginning = (model) => model.blocks.map(() => ({ keys: [], values: [] }));

// The states of one more token, after the embedding and after each part; with `stay` it is not remembered. Their property
// `attention` has for each layer and head the attention of this token.
export function statesOf(model, seen, token, stay = false) {
  const { width, heads, blocks, position } = model, size = width / heads, place = seen[0].keys.length;
  let state = applied(model.embedding, token).map((value, i) => value + position[place * width + i]);
  const states = [state];
  states.attention = blocks.map(() => []);
  const add = (more) => states.push(state = state.map((value, i) => value + more[i]));
  blocks.forEach(({ first, qkv, out, second, up, down }, layer) => {
    const both = applied(qkv, normed(first, state)), query = both.subarray(0, width);
    const keys = [...seen[layer].keys, both.subarray(width, 2 * width)],
      values = [...seen[layer].values, both.subarray(2 * width)];
    if (!stay) seen[layer] = { keys, values };
    const mixed = new Float64Array(width);
    for (let from = 0; from < width; from += size) {
      const scores = keys.map((key) => {
        let sum = 0;
        for (let i = from; i < from + size; i++) sum += query[i] * key[i];
        return sum / Math.sqrt(size);
      });
      const top = Math.max(...scores),
        powers = scores.map((score) => Math.exp(score - top)),
        total = powers.reduce((sum, value) => sum + value, 0);
      states.attention[layer].push(powers.map((value) => value / total));
      values.forEach((value, t) => {
        for (let i = from; i < from + size; i++) mixed[i] += powers[t] / total * value[i];
      });
    }
    add(applied(out, mixed));
    add(applied(down, applied(up, normed(second, state)).map((value) => value * below(value))));
  });
  return states;
}
