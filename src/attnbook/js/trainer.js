// Trains one small transformer on sparse modular addition, in double precision: forward pass, gradients and Adam written out.
// Nothing is drawn and nothing asked of a page, so it runs in a worker as well. Weights have the names and shapes of the
// Python package's `Models`, for one model; as one array they follow the order of `shapes`.

import { sum } from "./common.js";
import { below, checkNorm, density, weightsIn } from "./model.js";

const LISTED = 2 ** 13, SAMPLE = 2 ** 11; // up to so many sequences all are judged, beyond them a sample of so many
const SPREAD = 600; // scores further apart than this are exponentiated sequence by sequence
const STREAMS = { weights: 0, data: 1, order: 2, sample: 3 };
const SETTINGS = [
  "task",
  "vocabulary",
  "dim",
  "norm",
  "width",
  "learningRate",
  "betas",
  "eps",
  "weightDecay",
  "clip",
  "batchSize",
  "discount",
  "count",
  "weights",
  "data",
  "order",
  "seed",
];
const GROUPS = ["token", "position", "query", "value", "receptors", "assemblers"]; // of gradients; biases with their matrix

// Errors say which argument, what was expected and what came.
const told = (
  value,
) => (typeof value === "number" || typeof value === "string" || value === null || value === undefined
  ? String(value)
  : Array.isArray(value) || ArrayBuffer.isView(value)
  ? `${value.length} values`
  : typeof value);
function whole(name, value, least, most = Infinity) {
  if (!Number.isInteger(value)) throw new TypeError(`${name} must be a whole number, got ${told(value)}`);
  if (value < least || value > most) {
    throw new RangeError(`${name} must be ${most < Infinity ? `in ${least} … ${most}` : `at least ${least}`}, got ${value}`);
  }
  return value;
}
function positive(name, value) {
  if (typeof value !== "number") throw new TypeError(`${name} must be a number, got ${told(value)}`);
  if (!(value > 0 && value < Infinity)) throw new RangeError(`${name} must be positive and finite, got ${value}`);
  return value;
}
function listed(name, value, size = null) {
  if (!Array.isArray(value) && !(ArrayBuffer.isView(value) && "length" in value)) {
    throw new TypeError(`${name} must be a list, got ${told(value)}`);
  }
  if (size !== null && value.length !== size) throw new RangeError(`${name} must have ${size} entries, got ${value.length}`);
  return value;
}
function given(name, value, known) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new TypeError(`${name} must be an object, got ${told(value)}`);
  }
  for (const key of Object.keys(value)) {
    if (!known.includes(key)) throw new RangeError(`${name} may hold ${known.join(", ")}, got ${key}`);
  }
  return value;
}
function checkTask(task) {
  const { p, length, k, rule = null } = given("task", task, ["p", "length", "k", "rule"]);
  whole("task.p", p, 2);
  whole("task.length", length, 1);
  whole("task.k", k, 1, length);
  if (rule === null) return { p, length, k, rule };
  const labels = listed("task.rule", rule).length !== length;
  if (labels && rule.length !== p ** length) {
    throw new RangeError(`task.rule must have ${length} weights or ${p}^${length} labels, got ${rule.length} numbers`);
  }
  return {
    p,
    length,
    k,
    rule: Array.from(rule, (one, at) => whole(`task.rule[${at}]`, one, labels ? 0 : -Infinity, labels ? p - 1 : Infinity)),
  };
}

// What a task calls a sequence: the sum of its first k tokens modulo p, or, by a rule, their sum with weights, or what a table
// of all sequences in lexicographic order says.
export function labelOf({ p, length, k, rule = null }) {
  if (rule === null) return (tokens) => sum(tokens.slice(0, k)) % p;
  if (rule.length !== length) return (tokens) => rule[tokens.reduce((at, token) => at * p + token, 0)];
  const weights = rule.map((weight) => (weight % p + p) % p);
  return (tokens) => tokens.reduce((total, token, t) => total + weights[t] * token, 0) % p;
}
const RATES = {
  learningRate: positive,
  eps: positive,
  weightDecay: (name, value) => (value === 0 ? value : positive(name, value)),
  clip: (name, value) => (value === Infinity ? value : positive(name, value)), // the longest gradient of a step
  discount: positive,
  batchSize: (name, value) => whole(name, value, 1),
  betas: (name, value) =>
    [...listed(name, value, 2)].map((beta, index) => {
      if (typeof beta !== "number") throw new TypeError(`${name}[${index}] must be a number, got ${told(beta)}`);
      if (!(beta >= 0 && beta < 1)) throw new RangeError(`${name}[${index}] must be at least 0 and below 1, got ${beta}`);
      return beta;
    }),
};
const checkRates = (rates) =>
  Object.fromEntries(Object.entries(rates).map(([name, value]) => [name, RATES[name](name, value)]));

// Random numbers of a seed and a stream, both below 2³²: Doty-Humphrey's sfc32, which starts as in his PractRand. Integers are
// drawn by rejection, numbers in [0, 1) with 53 bits, normal ones by Box and Muller's formula, of which one of two is kept.
export function random(seed, stream) {
  const state = Uint32Array.of(0, seed, stream, 1);
  const bits = () => {
    const result = (state[0] + state[1] + state[3]) >>> 0;
    state[3] += 1;
    state[0] = state[1] ^ (state[1] >>> 9);
    state[1] = state[2] + (state[2] << 3);
    state[2] = ((state[2] << 21) | (state[2] >>> 11)) + result;
    return result;
  };
  for (let round = 0; round < 12; round++) bits();
  const uniform = () => ((bits() >>> 5) * 2 ** 26 + (bits() >>> 6)) / 2 ** 53;
  const below = (size) => {
    const limit = 2 ** 32 - 2 ** 32 % size;
    let value = bits();
    while (value >= limit) value = bits();
    return value % size;
  };
  const normal = () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
  const shuffle = (order) => {
    for (let at = order.length - 1; at > 0; at--) {
      const other = below(at + 1), kept = order[at];
      order[at] = order[other];
      order[other] = kept;
    }
    return order;
  };
  return { state, bits, uniform, below, normal, shuffle };
}

// The shapes of the weights of one model.
const shapes = ({ vocabulary, length, dim, width }) => ({
  token: [vocabulary, dim],
  position: [length, dim],
  query: [dim],
  value: [dim, dim],
  receptors: [width, dim],
  receptor_biases: [width],
  assemblers: [dim, width],
  assembler_bias: [dim],
});
const NAMES = Object.keys(shapes({}));
const numbers = (shape) => shape.reduce((product, size) => product * size, 1);

// The weights of one array as nested lists by name, and the way back.
export function unflatten(flat, sizes) {
  const shape = shapes(sizes), size = sum(Object.values(shape).map(numbers));
  if (flat.length !== size) throw new RangeError(`flat must have ${size} numbers, got ${flat.length}`);
  return weightsIn(flat, shape);
}

function sizesOf(weights) {
  given("weights", weights, NAMES);
  for (const name of NAMES) listed(`weights.${name}`, weights[name]);
  const { token, position, receptors } = weights;
  return {
    vocabulary: token.length,
    length: position.length,
    dim: listed("weights.token[0]", token[0]).length,
    width: receptors.length,
  };
}

export function flatten(weights) {
  const flat = [];
  for (const [name, [rows, columns]] of Object.entries(shapes(sizesOf(weights)))) {
    listed(`weights.${name}`, weights[name], rows);
    weights[name].forEach((row, at) =>
      flat.push(...columns === undefined ? [row] : listed(`weights.${name}[${at}]`, row, columns))
    );
    if (!flat.every(Number.isFinite)) {
      throw new RangeError(
        `weights.${name} must be finite numbers, got ${told(flat.find((value) => !Number.isFinite(value)))}`,
      );
    }
  }
  return Float64Array.from(flat);
}

// All sequences of a task in lexicographic order, and their labels.
export function allSequences(task) {
  const { p, length } = checkTask(task), size = p ** length;
  if (size > 2 ** 16) throw new RangeError(`task must have at most ${2 ** 16} sequences to be listed, got ${p}^${length}`);
  const tokens = Array.from(
    { length: size },
    (_, n) => Array.from({ length }, (_, t) => Math.floor(n / p ** (length - 1 - t)) % p),
  );
  return { tokens, targets: tokens.map(labelOf(task)) };
}

function dimOf(xi, { p, length }) {
  const dim = listed("xi", xi).length / p ** length;
  if (!(dim >= 1 && Number.isInteger(dim))) {
    throw new RangeError(`xi must have a multiple of ${p}^${length} numbers, those of all sequences, got ${xi.length}`);
  }
  return dim;
}

// The mean square of the points' distance from their mean.
function spread(xi, dim) {
  const count = xi.length / dim, mean = new Float64Array(dim);
  let squares = 0;
  for (let at = 0; at < xi.length; at++) mean[at % dim] += xi[at] / count;
  for (let at = 0; at < xi.length; at++) squares += (xi[at] - mean[at % dim]) ** 2;
  return squares / count;
}

// Which of the multisets of tokens each prefix of a task has, as numbers from 0.
function clustersOf({ p, k }) {
  const known = new Map();
  return Int32Array.from({ length: p ** k }, (_, prefix) => {
    const sorted = Array.from({ length: k }, (_, t) => Math.floor(prefix / p ** t) % p).sort((a, b) => a - b).join();
    if (!known.has(sorted)) known.set(sorted, known.size);
    return known.get(sorted);
  });
}

// `variance_shares` of the package: the shares of the variance of ξ, of all sequences in lexicographic order, that a change of
// suffix, or of the prefix's order, leaves alone.
export function varianceShares(xi, task, clusters = clustersOf(checkTask(task))) {
  const dim = dimOf(xi, task),
    prefixes = clusters.length,
    each = xi.length / dim / prefixes,
    many = Math.max(...clusters) + 1;
  const means = new Float64Array(prefixes * dim), middles = new Float64Array(many * dim), sizes = new Float64Array(many);
  for (let n = 0, at = 0; n < prefixes; n++) {
    for (let m = 0; m < each; m++) for (let f = 0; f < dim; f++, at++) means[n * dim + f] += xi[at] / each;
    sizes[clusters[n]] += 1;
  }
  for (let n = 0; n < prefixes; n++) {
    for (let f = 0; f < dim; f++) middles[clusters[n] * dim + f] += means[n * dim + f] / sizes[clusters[n]];
  }
  let suffix = 0, permutation = 0, squares = 0;
  for (let n = 0, at = 0; n < prefixes; n++) {
    for (let m = 0; m < each; m++) {
      for (let f = 0; f < dim; f++, at++) {
        suffix += (xi[at] - means[n * dim + f]) ** 2;
        squares += xi[at] ** 2;
      }
    }
    for (let f = 0; f < dim; f++) permutation += (means[n * dim + f] - middles[clusters[n] * dim + f]) ** 2;
  }
  const count = prefixes * each, total = spread(xi, dim), varies = total > Number.EPSILON ** 2 * squares / count;
  return { suffix: varies ? 1 - suffix / count / total : 1, permutation: varies ? 1 - permutation / prefixes / total : 1 };
}

// The eigenvector of the largest eigenvalue of a symmetric matrix, by Jacobi's rotations.
function topEigenvector(matrix) {
  const size = matrix.length,
    a = matrix.map((row) => [...row]),
    vectors = a.map((row, i) => row.map((_, j) => (i === j ? 1 : 0)));
  for (let sweep = 0; sweep < 60; sweep++) {
    let off = 0, on = 0;
    a.forEach((row, i) => row.forEach((value, j) => (i === j ? on += value ** 2 : off += value ** 2)));
    if (off <= 1e-34 * on) break;
    for (let i = 0; i < size; i++) {
      for (let j = i + 1; j < size; j++) {
        if (a[i][j] === 0) continue;
        const ratio = (a[j][j] - a[i][i]) / (2 * a[i][j]),
          tan = (ratio < 0 ? -1 : 1) / (Math.abs(ratio) + Math.hypot(ratio, 1));
        const cos = 1 / Math.hypot(tan, 1), sin = tan * cos;
        for (let n = 0; n < size; n++) [a[n][i], a[n][j]] = [cos * a[n][i] - sin * a[n][j], sin * a[n][i] + cos * a[n][j]];
        for (let n = 0; n < size; n++) [a[i][n], a[j][n]] = [cos * a[i][n] - sin * a[j][n], sin * a[i][n] + cos * a[j][n]];
        for (let n = 0; n < size; n++) {
          [vectors[n][i], vectors[n][j]] = [
            cos * vectors[n][i] - sin * vectors[n][j],
            sin * vectors[n][i] + cos * vectors[n][j],
          ];
        }
      }
    }
  }
  const best = a.reduce((top, row, i) => (row[i] > a[top][top] ? i : top), 0);
  return vectors.map((row) => row[best]);
}

// `counting_form` of the package: the integers m for which ξ, of all sequences of two tokens in lexicographic order, is most
// nearly a function of Σ m_t x_t, and the share of its variance that the sum explains; both 0 where ξ does not vary.
export function countingForm(xi, task) {
  const { p, length, k } = checkTask(task), count = p ** length, dim = dimOf(xi, task);
  if (p !== 2) throw new RangeError(`task.p must be 2 for a counting form, got ${p}`);
  const total = spread(xi, dim);
  const differences = Array.from({ length }, () => new Array(dim).fill(0)), effects = new Array(length).fill(0);
  for (let t = 0; t < length; t++) {
    const far = 2 ** (length - 1 - t);
    for (let n = 0; n < count; n++) {
      if (n & far) continue;
      for (let f = 0; f < dim; f++) {
        const apart = xi[(n + far) * dim + f] - xi[n * dim + f];
        differences[t][f] += apart;
        effects[t] += apart ** 2 / (2 * count);
      }
    }
    effects[t] /= total;
  }
  const least = Math.min(...effects.slice(0, k));
  if (!(total > 0 && least > 1e-6)) return { m: effects.map(() => 0), explained: 0 };
  const axis = topEigenvector(
    Array.from(
      { length: dim },
      (_, f) => Array.from({ length: dim }, (_, g) => sum(differences.map((row) => row[f] * row[g]))),
    ),
  );
  const signs = differences.map((row) => Math.sign(sum(row.map((value, f) => value * axis[f]))));
  const m = effects.map((effect, t) => Math.round(Math.sqrt(effect / least)) * signs[t] * signs[0] || 0);
  const level = Array.from(
      { length: count },
      (_, n) => m.reduce((level, value, t) => (n & 2 ** (length - 1 - t) ? level + value : level), 0),
    ),
    sums = new Map();
  for (let n = 0; n < count; n++) {
    let entry = sums.get(level[n]);
    if (!entry) sums.set(level[n], entry = new Float64Array(dim + 1));
    for (let f = 0; f < dim; f++) entry[f] += xi[n * dim + f];
    entry[dim] += 1;
  }
  let within = 0;
  for (let n = 0; n < count; n++) {
    const entry = sums.get(level[n]);
    for (let f = 0; f < dim; f++) within += (xi[n * dim + f] - entry[f] / entry[dim]) ** 2;
  }
  return { m, explained: 1 - within / count / total };
}

function randomWeights(sizes, { uniform, normal }) {
  const { dim, width } = sizes,
    inputs = { query: dim, value: dim, receptors: dim, receptor_biases: dim, assemblers: width, assembler_bias: width };
  const draw = (name) => () => (name in inputs ? (2 * uniform() - 1) / Math.sqrt(inputs[name]) : normal());
  return Float64Array.from(
    Object.entries(shapes(sizes)).flatMap(([name, shape]) => Array.from({ length: numbers(shape) }, draw(name))),
  );
}

function checkData(data, { p, length }, vocabulary) {
  const { tokens, targets } = given("data", data, ["tokens", "targets"]);
  if (!listed("data.tokens", tokens).length) throw new RangeError("data.tokens must hold at least one sequence, got none");
  tokens.forEach((row, n) =>
    listed(`data.tokens[${n}]`, row, length).forEach((token, t) => whole(`data.tokens[${n}][${t}]`, token, 0, p - 1))
  );
  listed("data.targets", targets, tokens.length).forEach((target, n) =>
    whole(`data.targets[${n}]`, target, 0, vocabulary - 1)
  );
  return { tokens: tokens.map((row) => [...row]), targets: [...targets] };
}

function checkMask(name, mask, size) {
  listed(name, mask, size).forEach((one, at) => whole(`${name}[${at}]`, one, 0, 1));
  if (name === "positions" && !mask.some(Boolean)) {
    throw new RangeError("positions must leave at least one position on, got none");
  }
  return mask;
}

// The neurons of a model with d = 2, forward and backward: what `think` and `learn` do for any d, with the two coordinates
// written out and the arrays as arguments, which makes training half as fast again. Weights begin at W, B and U.
function fireInPlane(flat, W, B, U, neurons, direction, output, fired, bent, learning) {
  const h = neurons.length, x = direction[0], y = direction[1];
  let left = output[0], right = output[1];
  for (let i = 0; i < h; i++) {
    const active = flat[B + i] + flat[W + 2 * i] * x + flat[W + 2 * i + 1] * y,
      share = neurons[i] * below(active),
      after = active * share;
    fired[i] = after;
    if (learning) bent[i] = share + neurons[i] * active * density(active);
    left += flat[U + i] * after;
    right += flat[U + h + i] * after;
  }
  output[0] = left;
  output[1] = right;
}
function learnInPlane(flat, W, B, U, slope, pull, direction, fired, bent, back) {
  const h = fired.length, left = pull[0], right = pull[1], x = direction[0], y = direction[1];
  let over = 0, up = 0;
  for (let i = 0; i < h; i++) {
    const hidden = (left * flat[U + i] + right * flat[U + h + i]) * bent[i];
    slope[U + i] += left * fired[i];
    slope[U + h + i] += right * fired[i];
    slope[B + i] += hidden;
    slope[W + 2 * i] += hidden * x;
    slope[W + 2 * i + 1] += hidden * y;
    over += hidden * flat[W + 2 * i];
    up += hidden * flat[W + 2 * i + 1];
  }
  back[0] = over;
  back[1] = up;
}

// A model in training. The seed gives its weights, its data and the order of these, each from a stream of its own, unless they
// are given: weights as nested lists, data as { tokens, targets }, the order as a list of batches of indices, one per step.
export function createTrainer({
  task: wanted,
  vocabulary = wanted?.p,
  dim = 2,
  norm = "rms",
  width = 32,
  learningRate = 3e-3,
  betas = [0.9, 0.999],
  eps = 1e-8,
  weightDecay = 0,
  clip = Infinity,
  batchSize = 32,
  discount = 1,
  count = 2048,
  weights: start,
  data: learned,
  order: batches,
  seed = 0,
  ...unknown
} = {}) {
  for (const name of Object.keys(unknown)) throw new RangeError(`settings may hold ${SETTINGS.join(", ")}, got ${name}`);
  const task = checkTask(wanted),
    { p, length } = task,
    v = whole("vocabulary", vocabulary, p),
    d = whole("dim", dim, 1),
    h = whole("width", width, 1);
  const sizes = { vocabulary: v, length, dim: d, width: h }, rms = checkNorm(norm) === "rms", root = Math.sqrt(d);
  whole("seed", seed, 0, 2 ** 32 - 1);
  let rates = checkRates({ learningRate, betas, eps, weightDecay, clip, batchSize, discount });

  // Where each weight starts, and where the groups end whose gradients are measured.
  const place = {};
  let size = 0;
  for (const [name, shape] of Object.entries(shapes(sizes))) [place[name], size] = [size, size + numbers(shape)];
  const { token: E, position: P, query: Q, value: V, receptors: W, receptor_biases: B, assemblers: U, assembler_bias: C } =
    place;
  const ends = Int32Array.of(P, Q, V, W, U, size);
  const fit = (weights) => {
    const found = sizesOf(weights);
    for (const [name, value] of Object.entries(sizes)) {
      if (found[name] !== value) {
        throw new RangeError(`weights must be of a model of ${name} ${value}, got ${found[name]}`);
      }
    }
    return flatten(weights);
  };
  const flat = start === undefined ? randomWeights(sizes, random(seed, STREAMS.weights)) : fit(start);
  const slope = new Float64Array(size), first = new Float64Array(size), second = new Float64Array(size);
  const squares = new Float64Array(GROUPS.length);
  let counted = 0, steps = 0, epochs = 0;

  // Training sequences as pairs of token and position, x·L + t, and in which order they come.
  const drawn = (total, stream) => {
    const { below: draw } = random(seed, stream),
      tokens = Array.from({ length: whole("count", total, 1) }, () => Array.from({ length }, () => draw(p)));
    return { tokens, targets: tokens.map(labelOf(task)) };
  };
  const data = learned === undefined ? drawn(count, STREAMS.data) : checkData(learned, task, v), total = data.tokens.length;
  const paired = (tokens) => Int32Array.from(tokens.flatMap((row) => row.map((x, t) => x * length + t)));
  const pairs = paired(data.tokens), targets = Int32Array.from(data.targets);
  const fixed = batches === undefined
    ? null
    : listed("order", batches).map((batch, at) =>
      Int32Array.from(listed(`order[${at}]`, batch), (index, n) => whole(`order[${at}][${n}]`, index, 0, total - 1))
    );
  if (fixed && !(fixed.length && fixed.every((batch) => batch.length))) {
    throw new RangeError(`order must be one or more batches, none empty, got ${fixed.length ? "an empty one" : "none"}`);
  }
  const shuffler = random(seed, STREAMS.order), order = new Int32Array(fixed ? 0 : total);
  let reached = 0; // in the order, or the number of the batch in a given one

  // Masks: which neurons add, and the positions that attention sees.
  const neurons = new Float64Array(h).fill(1), positions = new Uint8Array(length).fill(1);
  let seen = null;
  const look = () => {
    seen = Int32Array.from(positions.keys()).filter((t) => positions[t]);
  };
  look();

  // All pairs of token and position: their sums of embeddings, these normalized, values and exponentials, and gradients.
  const rows = p * length,
    added = new Float64Array(rows * d),
    table = new Float64Array(rows * d),
    values = new Float64Array(rows * d);
  const factors = new Float64Array(rows),
    bends = new Float64Array(rows),
    scores = new Float64Array(rows),
    powers = new Float64Array(rows);
  const lifts = new Float64Array(rows * d), drops = new Float64Array(rows);
  let far = false; // whether scores spread so much that each sequence subtracts its own largest

  // One sequence.
  const xi = new Float64Array(d),
    direction = new Float64Array(d),
    output = new Float64Array(d),
    logits = new Float64Array(v);
  const fired = new Float64Array(h),
    bent = new Float64Array(h),
    hidden = new Float64Array(h),
    pull = new Float64Array(d),
    back = new Float64Array(d);
  let mass = 0, highest = 0, factor = 0, bend = 0;

  const factorOf = (r) => (rms ? 1 / (r / root + 1e-5) : r > 0 ? 1 / r : 0);
  const bendOf = (r, by) => (r > 0 ? (rms ? -by * by / (root * r) : -by * by * by) : 0); // φ′(r)/r, where φ(r) is the factor

  function tabulate() {
    let top = -Infinity, bottom = Infinity;
    for (let x = 0, a = 0; x < p; x++) {
      for (let t = 0; t < length; t++, a++) {
        let square = 0, score = 0;
        for (let f = 0; f < d; f++) {
          const value = flat[E + x * d + f] + flat[P + t * d + f];
          added[a * d + f] = value;
          square += value * value;
        }
        const r = Math.sqrt(square), by = factorOf(r);
        factors[a] = by;
        bends[a] = bendOf(r, by);
        for (let f = 0; f < d; f++) {
          const value = added[a * d + f] * by;
          table[a * d + f] = value;
          score += flat[Q + f] * value;
        }
        for (let f = 0; f < d; f++) {
          let value = 0;
          for (let g = 0; g < d; g++) value += flat[V + f * d + g] * table[a * d + g];
          values[a * d + f] = value;
        }
        scores[a] = score /= root;
        if (positions[t] && score > top) top = score;
        if (positions[t] && score < bottom) bottom = score;
      }
    }
    far = top - bottom > SPREAD;
    for (let a = 0; a < rows; a++) powers[a] = Math.exp(scores[a] - top);
  }

  // The neurons, from the direction of ξ to the output, and back from the gradient in the output to that in the direction.
  function fire(learning) {
    for (let i = 0; i < h; i++) {
      let active = flat[B + i];
      for (let f = 0; f < d; f++) active += flat[W + i * d + f] * direction[f];
      const share = neurons[i] * below(active);
      fired[i] = active * share;
      if (learning) bent[i] = share + neurons[i] * active * density(active);
    }
    for (let f = 0, u = U; f < d; f++) {
      let value = output[f];
      for (let i = 0; i < h; i++, u++) value += flat[u] * fired[i];
      output[f] = value;
    }
  }
  function unfire() {
    hidden.fill(0);
    for (let f = 0, u = U; f < d; f++) {
      const one = pull[f];
      for (let i = 0; i < h; i++, u++) {
        hidden[i] += one * flat[u];
        slope[u] += one * fired[i];
      }
    }
    for (let i = 0; i < h; i++) slope[B + i] += hidden[i] *= bent[i];
    for (let f = 0; f < d; f++) {
      const one = direction[f];
      let value = 0;
      for (let i = 0, w = W + f; i < h; i++, w += d) {
        slope[w] += hidden[i] * one;
        value += hidden[i] * flat[w];
      }
      back[f] = value;
    }
  }

  // From the pairs of a sequence, which start at `from`, to ξ, and from ξ to the logits.
  function think(sequence, from, learning) {
    mass = 0;
    highest = -Infinity;
    xi.fill(0);
    if (far) { for (let j = 0; j < seen.length; j++) highest = Math.max(highest, scores[sequence[from + seen[j]]]); }
    for (let j = 0; j < seen.length; j++) {
      const a = sequence[from + seen[j]], power = far ? Math.exp(scores[a] - highest) : powers[a];
      mass += power;
      for (let f = 0; f < d; f++) xi[f] += power * values[a * d + f];
    }
    let square = 0;
    for (let f = 0; f < d; f++) {
      xi[f] /= mass;
      square += xi[f] * xi[f];
    }
    const r = Math.sqrt(square);
    factor = factorOf(r);
    bend = bendOf(r, factor);
    for (let f = 0; f < d; f++) {
      direction[f] = xi[f] * factor;
      output[f] = xi[f] + flat[C + f];
    }
    if (d === 2) fireInPlane(flat, W, B, U, neurons, direction, output, fired, bent, learning);
    else fire(learning);
    for (let x = 0; x < v; x++) {
      let logit = 0;
      for (let f = 0; f < d; f++) logit += flat[E + x * d + f] * output[f];
      logits[x] = logit;
    }
  }

  // The logarithm of the sum of the logits' exponentials.
  function partition() {
    let top = -Infinity, powersum = 0;
    for (let x = 0; x < v; x++) if (logits[x] > top) top = logits[x];
    for (let x = 0; x < v; x++) powersum += Math.exp(logits[x] - top);
    return top + Math.log(powersum);
  }

  // What the sequence in mind adds to the gradients, its pairs' share set down in `lifts` and `drops`; returns its loss.
  function learn(from, target, share) {
    const log = partition();
    pull.fill(0);
    back.fill(0);
    for (let x = 0; x < v; x++) {
      const surprise = (Math.exp(logits[x] - log) - (x === target ? 1 : 0)) * share;
      for (let f = 0; f < d; f++) {
        pull[f] += surprise * flat[E + x * d + f];
        slope[E + x * d + f] += surprise * output[f];
      }
    }
    for (let f = 0; f < d; f++) slope[C + f] += pull[f];
    if (d === 2) learnInPlane(flat, W, B, U, slope, pull, direction, fired, bent, back);
    else unfire();
    let along = 0, over = 0;
    for (let f = 0; f < d; f++) along += back[f] * xi[f];
    for (let f = 0; f < d; f++) {
      pull[f] = (pull[f] + factor * back[f] + bend * along * xi[f]) / mass;
      over += pull[f] * xi[f];
    }
    for (let j = 0; j < seen.length; j++) {
      const a = pairs[from + seen[j]], power = far ? Math.exp(scores[a] - highest) : 1;
      for (let f = 0; f < d; f++) lifts[a * d + f] += power * pull[f];
      drops[a] += power * over;
    }
    return log - logits[target];
  }

  // From the pairs' shares to the gradients of the embeddings, the query and the value matrix.
  function gather() {
    for (let x = 0, a = 0; x < p; x++) {
      for (let t = 0; t < length; t++, a++) {
        const power = far ? 1 : powers[a], at = a * d;
        if (!positions[t]) continue;
        let felt = -drops[a], along = 0;
        for (let f = 0; f < d; f++) {
          felt += values[at + f] * lifts[at + f];
          lifts[at + f] *= power;
        }
        felt *= power / root;
        for (let f = 0; f < d; f++) {
          let value = flat[Q + f] * felt;
          slope[Q + f] += felt * table[at + f];
          for (let g = 0; g < d; g++) {
            value += flat[V + g * d + f] * lifts[at + g];
            slope[V + g * d + f] += lifts[at + g] * table[at + f];
          }
          back[f] = value;
          along += value * added[at + f];
        }
        for (let f = 0; f < d; f++) {
          const value = back[f] * factors[a] + added[at + f] * bends[a] * along;
          slope[E + x * d + f] += value;
          slope[P + t * d + f] += value;
        }
      }
    }
  }

  // Adam's step, as PyTorch's AdamW makes it after `clip_grad_norm_`, and the squares of the gradients by group, unclipped.
  function adam() {
    steps += 1;
    const { learningRate: rate, betas: [slow, slower], eps: least, discount: by, weightDecay: decay, clip: longest } = rates;
    const unbias = rate / (1 - slow ** steps), scale = Math.sqrt(1 - slower ** steps);
    let long = 0;
    if (longest < Infinity) { for (let at = 0; at < size; at++) long += slope[at] * slope[at]; }
    const shorten = long > longest * longest ? longest / Math.sqrt(long) : 1;
    for (let group = 0, at = 0; group < ends.length; group++) {
      const pace = at >= W ? unbias / by : unbias, shrink = 1 - decay * (at >= W ? rate / by : rate);
      let total = 0;
      for (; at < ends[group]; at++) {
        total += slope[at] * slope[at];
        flat[at] *= shrink;
        const value = slope[at] * shorten,
          moment = first[at] += (1 - slow) * (value - first[at]),
          square = second[at] = slower * second[at] + (1 - slower) * value * value;
        flat[at] -= pace * moment / (Math.sqrt(square) / scale + least);
      }
      squares[group] += total;
    }
    counted += 1;
  }

  function step() {
    if (!fixed && reached === 0) {
      for (let at = 0; at < total; at++) order[at] = at;
      shuffler.shuffle(order);
    }
    const batch = fixed ? fixed[reached] : order,
      begin = fixed ? 0 : reached,
      end = fixed ? batch.length : Math.min(begin + rates.batchSize, total);
    slope.fill(0);
    lifts.fill(0);
    drops.fill(0);
    tabulate();
    let loss = 0;
    for (let n = begin; n < end; n++) {
      const from = batch[n] * length;
      think(pairs, from, true);
      loss += learn(from, targets[batch[n]], 1 / (end - begin));
    }
    gather();
    adam();
    reached = fixed ? (reached + 1) % fixed.length : end === total ? 0 : end;
    if (reached === 0) epochs += 1;
    return loss / (end - begin);
  }

  function epoch() {
    let loss = 0, made = 0;
    do {
      loss += step();
      made += 1;
    } while (reached > 0);
    return loss / made;
  }

  // What is judged: all sequences or a sample, and the training set, equal sequences with equal labels once. Of `judged`, the
  // first ones are tested; a training example is one of them where all are listed, and follows them otherwise.
  let judged = null;
  function examples() {
    const complete = p ** length <= LISTED, tested = complete ? allSequences(task) : drawn(SAMPLE, STREAMS.sample);
    const tokens = [...tested.tokens], known = new Map(), counts = new Map(), fresh = new Uint8Array(tokens.length).fill(1);
    if (complete) tokens.forEach((row, n) => known.set(row.join(), n));
    data.tokens.forEach((row, n) => {
      const key = row.join(), target = data.targets[n];
      if (!known.has(key)) known.set(key, tokens.push(row) - 1);
      const at = known.get(key);
      if (complete) fresh[at] = 0;
      counts.set(at * v + target, (counts.get(at * v + target) ?? 0) + 1);
    });
    return {
      complete,
      fresh,
      labels: Int32Array.from(tested.targets),
      pairs: paired(tokens),
      examples: Float64Array.from(counts.keys()),
      counts: Float64Array.from(counts.values()),
      logits: new Float64Array(tokens.length * v),
      logs: new Float64Array(tokens.length),
      xi: new Float64Array(tested.targets.length * d),
      clusters: complete ? clustersOf(task) : null,
    };
  }

  // Losses, accuracies, invariances and gradients of the model as it is; nothing of what training does next depends on it.
  function evaluate({ xi: kept = false } = {}) {
    judged ??= examples();
    tabulate();
    const { complete, fresh, labels, pairs: all, logits: found, logs, xi: points, examples: known, counts } = judged;
    for (let n = 0; n < logs.length; n++) {
      think(all, n * length, false);
      found.set(logits, n * v);
      logs[n] = partition();
      if (n < labels.length) points.set(xi, n * d);
    }
    const right = (n, label) => {
      for (let x = 0; x < v; x++) if (x !== label && !(found[n * v + label] > found[n * v + x])) return 0;
      return 1;
    };
    let loss = 0, train = 0, unseen = 0, unknown = 0, everywhere = 0, parity = 0;
    for (let n = 0; n < labels.length; n++) {
      const hit = right(n, labels[n]);
      everywhere += hit;
      unseen += fresh[n] * hit;
      unknown += fresh[n];
      if (v === 2) parity += (2 * labels[n] - 1) * (found[2 * n + 1] - found[2 * n]) / labels.length;
    }
    for (let at = 0; at < known.length; at++) {
      const n = Math.floor(known[at] / v), target = known[at] % v;
      loss += counts[at] * (logs[n] - found[n * v + target]);
      train += counts[at] * right(n, target);
    }
    const gradients = Object.fromEntries(
      GROUPS.map((name, group) => [name, Math.sqrt(squares[group] / Math.max(counted, 1))]),
    );
    squares.fill(0);
    counted = 0;
    return {
      loss: loss / total,
      train: train / total,
      unseen: unseen / unknown,
      all: everywhere / labels.length,
      ...complete ? varianceShares(points, task, judged.clusters) : { suffix: null, permutation: null },
      parity: v === 2 && complete ? parity : null,
      influences: v === 2 ? Array.from({ length }, (_, t) => influence(t)) : null,
      gradients,
      ...kept ? { xi: complete ? points.slice() : null } : {},
    };
  }

  // How much the two tokens at a position differ in what they add to numerator and denominator of ξ.
  function influence(t) {
    if (!positions[t]) return 0;
    const [zero, one] = [Math.exp(scores[t]), Math.exp(scores[length + t])];
    let square = (one - zero) ** 2;
    for (let f = 0; f < d; f++) square += (one * values[(length + t) * d + f] - zero * values[t * d + f]) ** 2;
    return Math.sqrt(square);
  }

  function set(wish) {
    const { weights: put, neurons: firing, positions: shown } = given("settings", wish, ["weights", "neurons", "positions"]);
    const next = put === undefined ? null : fit({ ...unflatten(flat, sizes), ...put });
    if (firing !== undefined) checkMask("neurons", firing, h);
    if (shown !== undefined) checkMask("positions", shown, length);
    if (next) flat.set(next);
    if (firing !== undefined) neurons.set(firing);
    if (shown !== undefined) positions.set(shown);
    look();
  }

  function change(wish) {
    rates = { ...rates, ...checkRates(given("settings", wish, Object.keys(RATES))) };
  }

  // All that changes while training, as copies; what the trainer was made of is not among it.
  const lasting = { weights: flat, first, second, squares, generator: shuffler.state, order, neurons, positions };
  const save = () => ({
    ...Object.fromEntries(Object.entries(lasting).map(([name, array]) => [name, array.slice()])),
    steps,
    epochs,
    reached,
    counted,
    rates: { ...rates, betas: [...rates.betas] },
  });
  function restore(state) {
    given("state", state, [...Object.keys(lasting), "steps", "epochs", "reached", "counted", "rates"]);
    for (const [name, array] of Object.entries(lasting)) listed(`state.${name}`, state[name], array.length);
    const before = ["steps", "epochs", "reached", "counted"].map((name) => whole(`state.${name}`, state[name], 0));
    change(given("state.rates", state.rates, Object.keys(RATES)));
    for (const [name, array] of Object.entries(lasting)) array.set(state[name]);
    [steps, epochs, reached, counted] = before;
    look();
  }

  return {
    step,
    epoch,
    evaluate,
    set,
    change,
    save,
    restore,
    weights: () => unflatten(flat, sizes),
    flat: () => flat.slice(),
    data: () => ({ tokens: data.tokens.map((row) => [...row]), targets: [...data.targets] }),
    get steps() {
      return steps;
    },
    get epochs() {
      return epochs;
    },
    get settings() {
      return {
        task: { ...task },
        vocabulary: v,
        dim: d,
        norm,
        width: h,
        count: total,
        seed,
        ...rates,
        betas: [...rates.betas],
      };
    },
    get masks() {
      return { neurons: Array.from(neurons), positions: Array.from(positions) };
    },
  };
}
