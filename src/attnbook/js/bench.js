// What the laboratory holds: recorded runs as the page carries them, a training of the reader's own with its edits, a second
// one that differs in one setting, and what of them is shown. Nothing is drawn here.

import { bytesOf, clamp, dot, spelledWeights, sum } from "./common.js";
import { numberIn } from "./shell.js";
import { open, sizesOf, stepsPerEpoch } from "./runner.js";
import { stages } from "./model.js";
import { countingForm, flatten, labelOf, random, unflatten } from "./trainer.js";

export const OWN = "own", LISTED = 8192, SAMPLE = 2048, PREFIXES = 40, FEW = 32;
export const LAYERS = [["token", "E"], ["position", "P"], ["query", "q"], ["value", "V"], ["receptors", "W"], [
  "assemblers",
  "U",
]];
export const SIZES = ["p", "length", "k", "dim", "width"];
const SHARES = ["loss", "train", "unseen", "all", "suffix", "permutation", "parity"];
const PARTS = ["token", "position", "query", "value", "receptors", "receptor_biases", "assemblers", "assembler_bias"]; // as `flatten` has them
const RAMP = ["#CC79A7", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00"];

const mixed = (from, to, part) => from.map((one, index) => one + part * (to[index] - one));
const rgb = (color) => [1, 3, 5].map((start) => parseInt(color.slice(start, start + 2), 16));
const hex = (parts) => `#${parts.map((one) => Math.round(one).toString(16).padStart(2, "0")).join("")}`;
export function ramp(share) {
  const at = clamp(share, 0, 1) * (RAMP.length - 1), low = Math.min(Math.floor(at), RAMP.length - 2);
  return mixed(rgb(RAMP[low]), rgb(RAMP[low + 1]), at - low);
}

// The task's sentences that are shown, as `sentence_parts` has them, and a color for each prefix.
const known = new Map();
export function sentencesOf({ p, length, k, rule = null }) {
  const key = `${p} ${length} ${k} ${rule}`;
  if (known.has(key)) return known.get(key);
  let multisets = [[]];
  for (let t = 0; t < k; t++) {
    multisets = multisets.flatMap((row) =>
      Array.from({ length: p - (row.at(-1) ?? 0) }, (_, x) => [...row, x + (row.at(-1) ?? 0)])
    );
  }
  const gap = Math.ceil(multisets.length / PREFIXES),
    prefixes = [],
    colors = [],
    kinds = multisets.filter((_, index) => index % gap === 0);
  kinds.forEach((row, number) => {
    const turned = [row, [...row].reverse(), [...row.slice(2), ...row.slice(0, 2)], [...row.slice(3), ...row.slice(0, 3)]];
    const orders = [...new Map(turned.map((order) => [order.join(), order])).values()].slice(0, p === 2 ? 3 : 2);
    orders.forEach((order, index) => {
      prefixes.push(order);
      colors.push(
        hex(
          mixed(
            ramp(kinds.length > 1 ? number / (kinds.length - 1) : 0),
            [[0, 0, 0], [255, 255, 255], [0, 0, 0]][index],
            [0, 0.3, 0.25][index],
          ),
        ),
      );
    });
  });
  const rest = Array.from({ length: length - k }, (_, t) => (t * (t + 1) / 2) % p);
  const wanted = [rest, rest.map((x) => (x + 1) % p), rest.map(() => 0), rest.map(() => p - 1)].slice(0, p === 2 ? 4 : 2);
  const suffixes = [...new Map(wanted.map((suffix) => [suffix.join(), suffix])).values()];
  const sentences = prefixes.flatMap((prefix) => suffixes.map((suffix) => [...prefix, ...suffix]));
  const found = { prefixes, suffixes, colors, sentences, labels: sentences.map(labelOf({ p, length, k, rule })) };
  known.set(key, found);
  return found;
}

// The sequences that have a row and a mark: all where they are few, the sample otherwise, and one that the reader has typed.
// `chosen` is the number of that one, `hues` has a color for each.
const rows = new Map();
export function rowsOf(task, sequence = "") {
  const { p, length, k, rule = null } = task, key = `${p} ${length} ${k} ${rule} ${sequence}`;
  if (rows.has(key)) return rows.get(key);
  const few = p ** length <= FEW, base = few ? everyRow(task) : sentencesOf(task), many = base.suffixes.length;
  const found = {
    ...base,
    total: p ** length,
    chosen: null,
    hues: base.sentences.map((_, n) => base.colors[Math.floor(n / many)]),
  };
  if (typed(sequence, task)) {
    const tokens = [...sequence].map(Number);
    found.chosen = base.sentences.findIndex((row) => row.join("") === sequence);
    if (found.chosen < 0) {
      found.chosen = base.sentences.length;
      found.sentences = [...base.sentences, tokens];
      found.labels = [...base.labels, labelOf(task)(tokens)];
      found.hues.push("#6b6b6b");
    }
  }
  rows.set(key, found);
  return found;
}
// Whether a text is a sequence of a task.
export const typed = (text, { p, length }) => text.length === length && [...text].every((one) => /\d/.test(one) && one < p);
const everyPart = (p, size) =>
  Array.from(
    { length: p ** size },
    (_, n) => Array.from({ length: size }, (__, t) => Math.floor(n / p ** (size - 1 - t)) % p),
  );
const kindOf = (row) => [...row].sort().join(""); // which tokens it has, in any order
const byKind = (parts) => parts.sort((a, b) => kindOf(a).localeCompare(kindOf(b)));
// The prefixes and suffixes that can be chosen: all where they are few, those of the sample otherwise.
export function offeredOf(task) {
  const { p, length, k } = task, sample = rowsOf(task);
  return {
    prefixes: p ** k <= FEW ? byKind(everyPart(p, k)) : sample.prefixes,
    suffixes: p ** (length - k) <= FEW ? everyPart(p, length - k) : sample.suffixes,
  };
}
function everyRow(task) {
  const { p, length, k } = task, prefixes = byKind(everyPart(p, k)), suffixes = everyPart(p, length - k);
  const kinds = [...new Set(prefixes.map(kindOf))];
  const sentences = prefixes.flatMap((prefix) => suffixes.map((suffix) => [...prefix, ...suffix]));
  const place = (row) => (kinds.length > 1 ? kinds.indexOf(kindOf(row)) / (kinds.length - 1) : 0);
  return {
    prefixes,
    suffixes,
    sentences,
    colors: prefixes.map((row) => hex(ramp(place(row)))),
    labels: sentences.map(labelOf(task)),
  };
}

// What is shown with what it does at these sequences.
export function inRows(now, { sequence }) {
  const found = rowsOf(now.task, sequence);
  if (now.rows?.found !== found) now.rows = { found, through: stages(now.model, found.sentences) };
  return now.rows;
}

// All sequences in lexicographic order as one array, with their labels, or a sample where they are too many to be listed.
const lists = new Map();
export function everySequence({ p, length, k, rule = null }) {
  const key = `${p} ${length} ${k} ${rule}`;
  if (lists.has(key)) return lists.get(key);
  const complete = p ** length <= LISTED,
    count = complete ? p ** length : SAMPLE,
    tokens = new Uint8Array(count * length),
    labels = new Uint8Array(count);
  const { below: draw } = random(0, 0), label = labelOf({ p, length, k, rule });
  for (let n = 0; n < count; n++) {
    for (let t = length - 1, rest = n; t >= 0; t--, rest = Math.floor(rest / p)) {
      tokens[n * length + t] = complete ? rest % p : draw(p);
    }
    labels[n] = label(tokens.subarray(n * length, (n + 1) * length));
  }
  lists.set(key, { count, tokens, labels, complete });
  return lists.get(key);
}

// ξ of these sequences, from the pairs' scores and values.
function everyXi(task, { scores, values }, positions) {
  const all = everySequence(task), { length } = task, dim = values[0][0].length;
  const on = scores[0].map((_, t) => t).filter((t) => !positions || positions[t]);
  const top = on.map((t) => Math.max(...scores.map((row) => row[t]))), highest = Math.max(...top);
  const powers = scores.map((row) => row.map((score) => Math.exp(score - highest))),
    xi = new Float64Array(all.count * dim),
    total = new Float64Array(dim);
  for (let n = 0; n < all.count; n++) {
    let mass = 0;
    total.fill(0);
    for (const t of on) {
      const x = all.tokens[n * length + t], power = powers[x][t];
      mass += power;
      for (let f = 0; f < dim; f++) total[f] += power * values[x][t][f];
    }
    for (let f = 0; f < dim; f++) xi[n * dim + f] = mass > 0 ? total[f] / mass : 0;
  }
  return xi;
}

// Two unit vectors of the plane that is shown: the axes for d = 2, the principal axes of ξ for more.
function planeFor(dim, xi) {
  if (dim === 1) return { axes: [[1], [0]], middle: [0] };
  if (dim === 2) return { axes: [[1, 0], [0, 1]], middle: [0, 0] };
  const count = xi.length / dim,
    middle = Array.from({ length: dim }, (_, f) => {
      let total = 0;
      for (let n = 0; n < count; n++) total += xi[n * dim + f];
      return total / count;
    });
  const spread = Array.from({ length: dim }, (_, f) =>
    Array.from({ length: dim }, (__, g) => {
      let total = 0;
      for (let n = 0; n < count; n++) total += (xi[n * dim + f] - middle[f]) * (xi[n * dim + g] - middle[g]);
      return total / count;
    }));
  const axes = [];
  for (let which = 0; which < 2; which++) {
    let axis = Array.from({ length: dim }, (_, f) => 1 + 0.1 * f * (f + which));
    for (let round = 0; round < 200; round++) {
      let next = spread.map((row) => dot(row, axis));
      for (const other of axes) {
        const share = dot(next, other);
        next = next.map((part, f) => part - share * other[f]);
      }
      const length = Math.hypot(...next);
      if (!(length > 0)) break;
      axis = next.map((part) => part / length);
    }
    const length = Math.hypot(...axis),
      sign = Math.sign(axis.reduce((top, part) => (Math.abs(part) > Math.abs(top) ? part : top), 0)) || 1;
    axes.push(axis.map((part) => sign * part / length));
  }
  return { axes, middle };
}

const extent = (vectors) =>
  vectors.reduce((top, v) => Math.max(top, v.length === 2 ? Math.max(Math.abs(v[0]), Math.abs(v[1])) : Math.hypot(...v)), 0);
const neuronsOf = (
  { receptors, assemblers },
) => [...receptors, ...receptors.map((_, index) => assemblers.map((row) => row[index]))];
const extents = (weights, { values, sequence }) => ({
  embeddings: extent([...weights.token, ...weights.position]),
  values: extent(values.flat()),
  sequence: extent(sequence),
  neurons: extent(neuronsOf(weights)),
});
export const stepped = (size) => 10 ** (Math.ceil(10 * Math.log10(1.05 * Math.max(size, 1e-6))) / 10);
function slowly(sizes, window = 4) {
  const around = (index) =>
    Array.from({ length: 2 * window + 1 }, (_, step) => clamp(index + step - window, 0, sizes.length - 1));
  const tops = sizes.map((_, index) => Math.max(...around(index).map((other) => sizes[other])));
  return tops.map((_, index) => 1.15 * Math.max(sum(around(index).map((other) => tops[other])) / (2 * window + 1), 1e-6));
}

// A run as the page carries it, unpacked once.
const unpacked = new WeakMap();
export function unpack(run) {
  if (unpacked.has(run)) return unpacked.get(run);
  const count = run.epochs.length,
    task = { p: run.p, length: run.length, k: run.k },
    sizes = { vocabulary: run.p, length: run.length, dim: run.dim, width: run.width };
  const parts = PARTS.map((name) => {
    const { step, values, kind } = run.params[name];
    const { buffer } = bytesOf(values),
      numbers = kind === "f4" ? new Float32Array(buffer) : new Int16Array(buffer),
      size = numbers.length / count;
    return (frame) => Float64Array.from(numbers.subarray(frame * size, (frame + 1) * size), (value) => value * step);
  });
  const flat = (frame) => Float64Array.from(parts.flatMap((part) => [...part(frame)])), frames = new Map();
  const at = (frame) => {
    if (!frames.has(frame)) frames.set(frame, unflatten(flat(frame), sizes));
    return frames.get(frame);
  };
  const found = {
    run,
    task,
    count,
    at,
    flat,
    frameAt: (epoch) => Math.max(0, run.epochs.findLastIndex((other) => other <= epoch)),
  };
  const measured = Array.from(
    { length: count },
    (_, frame) => extents(at(frame), stages({ weights: at(frame), norm: run.norm }, sentencesOf(task).sentences)),
  );
  found.reaches = Object.fromEntries(
    Object.keys(measured[0]).map((name) => [name, slowly(measured.map((one) => one[name]))]),
  );
  unpacked.set(run, found);
  return found;
}

// Settings, the weights to start from and the edits, as a state tells them.
export const taskOf = ({ p, length, k, rule }) => ({ p, length, k, rule: rule ? ruleOf(rule, { p, length }) : null });
// A rule as a reader writes it: L weights with spaces between, or, of short sequences, all pᴸ labels, with spaces or without.
const TABLE = 1024;
function ruleOf(text, { p, length }) {
  const parts = text.trim().split(/[\s,;]+/), size = p ** length;
  const joined = parts.join(""), digits = /^\d+$/.test(joined), labels = digits ? [...joined].map(Number) : [];
  if (size <= TABLE && labels.length === size && labels.every((label) => label < p)) return labels;
  // Groups of digits, some of which begin with zero, are a table of another size, not weights.
  if (digits && length > 1 && (parts.length === 1 || parts.some((part) => /^0\d/.test(part)))) {
    if (size > TABLE) throw new RangeError(`A table of labels is for at most ${TABLE} sequences; these are ${p}^${length}.`);
    if (labels.length !== size) {
      throw new RangeError(`The table must have ${p}^${length} = ${size} labels, got ${labels.length}.`);
    }
    if (labels.some((label) => label >= p)) throw new RangeError(`The table’s labels must be 0 to ${p - 1}.`);
    return labels;
  }
  const weights = parts.map((part) => Number(part.replace("−", "-")));
  if (weights.length !== length) {
    throw new RangeError(`There must be ${length} weights, one per position, not ${weights.length}.`);
  }
  if (!weights.every((weight) => Number.isInteger(weight) && Math.abs(weight) < 1e6)) {
    throw new RangeError("The weights must be whole numbers.");
  }
  return weights;
}
export const settingsOf = (state) => ({
  task: taskOf(state),
  dim: state.dim,
  norm: state.norm,
  width: state.width,
  learningRate: state.rate,
  betas: [state.beta1, state.beta2],
  eps: state.eps,
  weightDecay: state.decay,
  clip: state.clip || Infinity,
  batchSize: state.batch,
  discount: state.discount,
  count: state.count,
  seed: state.seed,
});
const sizeOf = ({ p, length, dim, width }) => (p + length + 1 + dim) * dim + 2 * width * dim + width + dim;

export function startOf(state) {
  const { start, data } = state;
  if (!start) return null;
  let flat = null;
  if (start.startsWith("w:")) {
    try {
      flat = Float64Array.from(new Float32Array(bytesOf(start.slice(2).replaceAll("-", "+").replaceAll("_", "/")).buffer));
    } catch {
      throw new RangeError("The weights to start from cannot be read.");
    }
  } else {
    const [name, epoch] = start.split("@");
    if (!Object.hasOwn(data, name) || !(Number(epoch) >= 0)) {
      throw new RangeError(`There is no run “${start.slice(0, 40)}” to start from.`);
    }
    const run = unpack(data[name]);
    flat = run.flat(run.frameAt(Number(epoch)));
  }
  const wanted = sizeOf(state);
  if (flat.length !== wanted) {
    throw new RangeError(`These settings need ${wanted} weights, but the run would start from ${flat.length}.`);
  }
  if (!flat.every(Number.isFinite)) throw new RangeError("The weights to start from must be finite numbers.");
  return Array.from(flat);
}

// Edits as text, "step kind at values", divided by semicolons.
const FORKED = ["rate", "beta1", "beta2", "eps", "decay", "clip", "discount", "order"]; // what a second run may have otherwise
const ALONE = ["query", ...FORKED];
const NUMBERED = { token: "p", position: "length", neuron: "width", place: "length" };
export function editsOf(text, state) {
  const found = text.split(";").filter(Boolean).map((one) => {
    const bad = (why) => {
      throw new RangeError(`The change “${one.slice(0, 40)}” cannot be made: ${why}.`);
    };
    const [step, kind, ...rest] = one.trim().split(" "), values = rest.map(Number), numbered = Object.hasOwn(NUMBERED, kind);
    if (!(Number.isInteger(Number(step)) && Number(step) >= 0)) bad("it must begin with a step");
    if (!numbered && !ALONE.includes(kind)) bad(`there is no ${kind}`);
    if (!values.every(Number.isFinite)) bad("its numbers must be finite");
    const at = numbered ? values.shift() : null;
    if (numbered && !(Number.isInteger(at) && at >= 0 && at < state[NUMBERED[kind]])) {
      bad(`its number must be from 0 to ${state[NUMBERED[kind]] - 1}`);
    }
    if (values.length !== (kind === "token" || kind === "position" ? state.dim : 1)) bad("it has another number of values");
    const [value] = values;
    if ((kind === "neuron" || kind === "place") && value !== 0 && value !== 1) bad("it must be 0 or 1");
    if (["rate", "eps", "discount"].includes(kind) && !(value > 0)) bad("it must be positive");
    if (["beta1", "beta2"].includes(kind) && !(value >= 0 && value < 1)) bad("it must be at least 0 and below 1");
    if (["decay", "clip"].includes(kind) && !(value >= 0)) bad("it must be at least 0");
    if (kind === "order" && !(Number.isInteger(value) && value >= 0 && value < 2 ** 32)) bad("it must be a seed");
    return { step: Number(step), kind, at, values };
  });
  if (found.some((one, index) => index && one.step < found[index - 1].step)) {
    throw new RangeError("The changes must be in the order of their steps.");
  }
  const off = new Set();
  for (const { kind, at, values: [value] } of found) if (kind === "place") off[value ? "delete" : "add"](at);
  if (off.size >= state.length) throw new RangeError("At least one position must stay on.");
  return found;
}
export const told = (edits) =>
  edits.map(({ step, kind, at, values }) => [step, kind, ...(at === null ? [] : [at]), ...values].join(" ")).join(";");

// What is wrong with a state, in a sentence.
export function fits(state, bounds) {
  for (const name of ["p", "length", "dim", "width"]) {
    const { wrong, given } = numberIn(String(state[name]), bounds[name]);
    if (wrong) return `${name} ${wrong}, got ${given}.`;
  }
  if (!/^\d*$/.test(state.sequence)) return `The sequence must be digits, got “${state.sequence.slice(0, 40)}”.`;
  if (state.k > state.length) return `The prefix length k = ${state.k} must not exceed the length L = ${state.length}.`;
  try {
    taskOf(state);
    startOf(state);
    editsOf(state.edits, state);
    const forks = editsOf(state.fork, state);
    if (forks.length > 1 || forks.some(({ kind }) => !FORKED.includes(kind))) {
      return "A second run differs in one setting; it cannot change the model.";
    }
  } catch (error) {
    return error.message;
  }
  return null;
}

// One training: what it was asked for last, and the frames that have come of it.
class Slot {
  constructor(hear) {
    this.runner = open((message) => this.take(message, hear));
    Object.assign(this, { plan: null, text: "", id: 0, frames: [], goal: 0, pace: Infinity, size: 0 });
  }

  take(message, hear) {
    if ("id" in message && message.id !== this.id) return;
    if (message.kind === "diverged") this.goal = null; // it may be asked to go on, which says so again
    if (message.kind === "rows") {
      if (message.cut < Infinity) this.frames = this.frames.filter(({ steps }) => steps < message.cut);
      for (const row of message.rows) {
        while (this.frames.length && this.frames.at(-1).steps >= row.steps) this.frames.pop();
        this.frames.push(row);
      }
      if (this.frames.filter(({ weights }) => weights).length * this.size > 4e6) {
        this.frames.forEach((row, index) => {
          if (index % 2 && index < this.frames.length - 1) row.weights = null;
        });
      }
    }
    hear(message);
  }

  // Asks the runner for a plan up to a goal, where these are others than before.
  want(plan, goal, pace) {
    const text = JSON.stringify(plan);
    if (text !== this.text) {
      if (
        !this.plan || JSON.stringify([plan.settings, plan.start]) !== JSON.stringify([this.plan.settings, this.plan.start])
      ) {
        this.id += 1;
        this.frames = [];
      } else {
        let first = 0;
        while (first < plan.edits.length && JSON.stringify(plan.edits[first]) === JSON.stringify(this.plan.edits[first])) {
          first += 1;
        }
        const changed = Math.min(plan.edits[first]?.step ?? Infinity, this.plan.edits[first]?.step ?? Infinity);
        this.frames = this.frames.filter(({ steps }, index) =>
          steps < changed || (steps === changed && index === this.frames.length - 1)
        );
      }
      this.size = sizeOf({ ...plan.settings.task, ...plan.settings });
      [this.plan, this.text, this.goal] = [plan, text, goal];
      this.runner.post({ kind: "plan", plan, goal, id: this.id });
      if (pace !== this.pace) this.runner.post({ kind: "goal", goal, pace });
    } else if (goal !== this.goal || pace !== this.pace) {
      this.goal = goal;
      this.runner.post({ kind: "goal", goal, pace });
    }
    this.pace = pace;
  }

  at(steps) {
    return this.frames.findLast((row) => row.weights && row.steps <= steps) ?? this.frames.find((row) => row.weights) ??
      null;
  }
  get last() {
    return this.frames.at(-1)?.steps ?? 0;
  }
}

// The trainings of one explorer, by the data that it carries.
const benches = new WeakMap();
export const benchOf = (state) => benches.get(state.data) ?? null;
export class Bench {
  constructor(data, hear) {
    Object.assign(this, { hear, own: null, other: null, playing: false, speed: Infinity, error: "" });
    benches.set(data, this);
  }
  slot(which) {
    return this[which] ??= new Slot((message) => {
      if (message.kind === "error") this.error = message.message;
      if (message.kind === "error" || message.kind === "diverged") this.playing = false;
      this.hear(message, which);
    });
  }

  // What a state asks for: its plan up to the epoch shown, or, while playing, up to the goal.
  sync(state) {
    if (state.run !== OWN) return;
    const settings = settingsOf(state),
      each = stepsPerEpoch(settings),
      edits = editsOf(state.edits, state),
      [fork] = editsOf(state.fork, state);
    const shown = Math.round(state.epoch * each),
      goal = this.playing ? Math.max(shown, state.goal * each) : shown,
      start = startOf(state);
    const pace = this.speed === null ? 10 : this.speed * each; // in steps per second
    this.slot("own").want({ settings, start, edits }, goal, pace);
    if (fork) {
      return this.slot("other").want(
        {
          settings,
          start,
          edits: [...edits.filter(({ step }) => step <= fork.step), fork],
        },
        goal,
        pace,
      );
    }
    this.other?.runner.close();
    this.other = null;
  }
  rest(on) {
    for (const slot of [this.own, this.other]) slot?.runner.post({ kind: "rest", on });
    this.many?.post({ kind: "rest", on });
  }
  close() {
    for (const slot of [this.own, this.other]) slot?.runner.close();
    this.many?.close();
  }
}

// What is shown: the model, its task and what is known of it. `which` is "own" or "other" of a training of one's own.
const last = new WeakMap();
export function held(state, which = "own") {
  if (state.run === OWN) {
    const slot = benchOf(state)?.[which],
      each = stepsPerEpoch(settingsOf(state)),
      row = slot?.at(Math.round(state.epoch * each)) ?? null;
    if (row) {
      const kept = last.get(row);
      if (kept) return kept;
      const model = { weights: unflatten(row.weights, sizesOf(settingsOf(state))), norm: state.norm, ...row.masks };
      const found = described({
        model,
        task: taskOf(state),
        epoch: row.steps / each,
        frame: row.steps,
        evaluation: row.evaluation,
      });
      last.set(row, found);
      return found;
    }
    return which === "own" && Object.keys(state.live ?? {}).length ? fromLive(state.live) : null;
  }
  const run = unpack(state.data[state.run]), frame = run.frameAt(state.epoch), kept = last.get(run);
  if (kept?.frame === frame) return kept;
  const { history, frames } = run.run, then = history.epoch.indexOf(run.run.epochs[frame]);
  const of = (name) => (history[name] ? history[name][then] : frames[name] ? frames[name][frame] : null);
  const model = { weights: run.at(frame), norm: run.run.norm, neurons: null, positions: null };
  const found = described({
    model,
    task: run.task,
    epoch: run.run.epochs[frame],
    frame,
    evaluation: {
      ...Object.fromEntries(SHARES.map((name) => [name, of(name)])),
      influences: frames.influences?.[frame] ?? null,
    },
  });
  if (frames.m) Object.assign(found, { m: frames.m[frame], explained: frames.explained[frame] });
  found.reaches = Object.fromEntries(Object.entries(run.reaches).map(([name, sizes]) => [name, sizes[frame]]));
  last.set(run, found);
  return found;
}
function fromLive(live) {
  if (!last.has(live)) {
    last.set(
      live,
      described({
        model: { weights: live.weights, norm: live.norm, neurons: live.neurons, positions: live.positions },
        task: taskOf(live),
        epoch: live.epoch,
        frame: live.frame,
        evaluation: live.evaluation,
      }),
    );
  }
  return last.get(live);
}

function described({ model, task, epoch, frame, evaluation }) {
  const { sentences } = sentencesOf(task),
    through = stages(model, sentences),
    dim = model.weights.query.length,
    xi = everyXi(task, through, model.positions);
  const count = task.p === 2 && everySequence(task).complete ? countingForm(xi, task) : { m: null, explained: null },
    size = extents(model.weights, through);
  return {
    model,
    task,
    dim,
    epoch,
    frame,
    evaluation,
    through,
    xi,
    ...count,
    plane: planeFor(dim, xi),
    reaches: Object.fromEntries(Object.entries(size).map(([name, value]) => [name, stepped(value)])),
  };
}

// Whether integers read off describe anything: large ones fit any data.
export const counts = (m) => m.some(Boolean) && Math.max(...m.map(Math.abs)) <= 9;

// The curves of a run: columns by name against the epoch; `readings` are those of the frames.
export function curvesOf(state, which = "own") {
  if (state.run !== OWN) {
    const { history, epochs, frames, axis } = state.data[state.run];
    return {
      axis,
      epoch: history.epoch,
      ...history,
      readings: { epoch: epochs, parity: frames.parity, influences: frames.influences },
    };
  }
  const frames = benchOf(state)?.[which]?.frames ?? [],
    each = stepsPerEpoch(settingsOf(state)),
    column = (pick) => frames.map(({ evaluation }) => pick(evaluation));
  const epoch = frames.map(({ steps }) => steps / each);
  return {
    axis: "epoch",
    epoch,
    ...Object.fromEntries(SHARES.map((name) => [name, column((one) => one[name])])),
    ...Object.fromEntries(LAYERS.map(([name]) => [name, column((one) => one.gradients[name])])),
    readings: { epoch, parity: column((one) => one.parity), influences: column((one) => one.influences) },
  };
}

// What Python hears of a training of one's own.
export const liveOf = (state, now) => ({
  ...taskOf(state),
  rule: state.rule,
  norm: state.norm,
  epoch: now.epoch,
  frame: now.frame,
  weights: now.model.weights,
  neurons: now.model.neurons,
  positions: now.model.positions,
  evaluation: now.evaluation,
});

// What is shown as a file: weights as the package's JSON has them, with the task, which neurons and positions are on, and of
// a training of one's own its settings.
const SAVED = ["seed", "rate", "decay", "clip", "beta1", "beta2", "eps", "discount", "count", "batch"];
export function asFile({ model: { norm, weights, neurons, positions }, task: { rule, ...sizes } }, state) {
  const task = { ...sizes, ...(rule ? { rule } : {}) };
  const switches = Object.fromEntries(Object.entries({ neurons, positions }).filter(([, mask]) => mask?.includes(0)));
  return JSON.stringify({
    norm,
    dtype: "float64",
    task,
    ...(state.run === OWN ? { settings: Object.fromEntries(SAVED.map((name) => [name, state[name]])) } : {}),
    ...switches,
    weights: Object.fromEntries(Object.entries(weights).map(([name, value]) => [name, [value]])),
  });
}

// A state from such a file, with what is wrong in a sentence. Files that the package wrote name no task: k stays.
export function fromFile(text, state) {
  let said = null;
  try {
    said = JSON.parse(text);
  } catch {
    throw new RangeError("This file is not JSON.");
  }
  const { norm, weights } = said ?? {};
  if (norm !== "rms" && norm !== "unit") {
    throw new RangeError(
      `This file holds no model that can be shown here: its norm must be "rms" or "unit", got ${
        JSON.stringify(norm) ?? "none"
      }.`,
    );
  }
  if (typeof weights !== "object" || weights === null) throw new RangeError("This file holds no weights.");
  const firsts = Object.fromEntries(
    Object.entries(weights).map(([name, value]) => {
      if (!Array.isArray(value) || !value.length) {
        throw new RangeError(`The file’s ${name} must be a list with one entry per model.`);
      }
      return [name, value[0]];
    }),
  );
  const width = firsts.receptors?.length ?? 0, dim = firsts.query?.length ?? 0;
  const filled = { receptor_biases: Array(width).fill(0), assembler_bias: Array(dim).fill(0), ...firsts };
  let flat = null;
  try {
    flat = flatten(filled);
  } catch (error) {
    throw new RangeError(`This file holds no model that can be shown here: ${error.message}.`);
  }
  const sizes = { p: filled.token.length, length: filled.position.length, dim, width };
  const task = said.task ?? { p: sizes.p, length: sizes.length, k: Math.min(state.k, sizes.length) };
  if (
    task.p !== sizes.p || task.length !== sizes.length ||
    !(Number.isInteger(task.k) && task.k >= 1 && task.k <= sizes.length)
  ) {
    throw new RangeError(
      `The file’s task must be { p: ${sizes.p}, length: ${sizes.length}, k: 1 … ${sizes.length} }, got ${
        JSON.stringify(said.task)
      }.`,
    );
  }
  const edits = Object.entries({ neurons: "neuron", positions: "place" }).flatMap(([name, kind]) => {
    const mask = said[name] ?? [], count = { neurons: width, positions: sizes.length }[name];
    if (!Array.isArray(mask) || (said[name] && mask.length !== count) || !mask.every((one) => one === 0 || one === 1)) {
      throw new RangeError(`The file’s ${name} must be ${count} zeros and ones.`);
    }
    return mask.flatMap((on, at) => (on ? [] : [{ step: 0, kind, at, values: [0] }]));
  });
  const rule = !task.rule
    ? ""
    : Array.isArray(task.rule)
    ? task.rule.join(task.rule.length === sizes.length ? " " : "")
    : "?";
  try {
    taskOf({ ...sizes, k: task.k, rule });
  } catch (error) {
    throw new RangeError(`The file’s rule cannot be read: ${error.message}`);
  }
  return {
    ...sizes,
    k: task.k,
    rule,
    norm,
    ...Object.fromEntries(SAVED.filter((name) => name in (said.settings ?? {})).map((name) => [name, said.settings[name]])),
    start: spelledWeights(flat),
    edits: told(edits),
    models: weights.token.length,
    untold: !said.task,
  };
}
