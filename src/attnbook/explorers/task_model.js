// A sequence of zeros and ones on its way through the model in the plane: embeddings, attention, ξ, neurons, logits, answer.

import {
  arrow,
  axes,
  clipped,
  COLORS,
  dot,
  drawn,
  line,
  mark,
  minus,
  pair,
  show,
  small,
  softmaxOf,
  spelledWeights,
  sum,
  ticksUpTo,
  tidy,
  title,
} from "./common.js";
import { answered, attended, flatOf, margin, pairsOf } from "./model.js";
import { explorer } from "./shell.js";

const LENGTH = 12, PREFIX = 5, ALL = 2 ** LENGTH, CELLS = 96, RING = 720;
const bitsOf = (number) => Array.from({ length: LENGTH }, (_, t) => (number >> (LENGTH - 1 - t)) & 1);
const labelOf = (tokens) => sum(tokens.slice(0, PREFIX)) % 2;

// The chosen model with its factors.
function scaled({ weights, model, query_scale, value_scale, neuron_scale }) {
  const chosen = weights[model], by = (factor, rows) => rows.map((row) => row.map((value) => factor * value));
  return {
    norm: "unit",
    weights: {
      ...chosen,
      query: chosen.query.map((value) => query_scale * value),
      value: by(value_scale, chosen.value),
      assemblers: by(neuron_scale, chosen.assemblers),
      receptor_biases: chosen.receptor_biases ?? chosen.receptors.map(() => 0),
      assembler_bias: chosen.assembler_bias ?? [0, 0],
    },
  };
}

// From a sequence to its answer.
function pass(params, pairs, tokens) {
  const { attention, sequence } = attended(params, pairs, tokens),
    { direction, fired, output, logits } = answered(params, sequence);
  return {
    embeddings: tokens.map((x, t) => pairs.embeddings[x][t]),
    attention,
    sequence,
    direction,
    activations: fired,
    output,
    logits,
  };
}
const answerOf = ([zero, one]) => Number(one - zero > 1e-12); // a tie is answered with 0, whatever its rounding

// What does not depend on the sequence: ξ and the answers of all of them. The last one is kept.
let kept = { key: null };
function overAll(state) {
  const key = [state.model, state.query_scale, state.value_scale, state.neuron_scale].join();
  if (kept.key === key && kept.weights === state.weights) return kept;
  const params = scaled(state), pairs = pairsOf(params), points = [];
  let right = 0;
  for (let number = 0; number < ALL; number++) {
    const tokens = bitsOf(number), { sequence, logits } = pass(params, pairs, tokens);
    points.push(sequence);
    if (answerOf(logits) === labelOf(tokens)) right += 1;
  }
  return (kept = { key, weights: state.weights, params, pairs, points, accuracy: right / ALL });
}

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const { tokens } = state,
    { params, pairs, accuracy } = overAll(state),
    found = pass(params, pairs, tokens),
    answer = answerOf(found.logits);
  const { token, assemblers } = params.weights,
    turned = tokens.map((_, t) => tokens.map((x, other) => (other === t ? 1 - x : x)));
  return {
    ...found,
    pushes: found.activations.map((value, index) =>
      value * dot(minus(token[1], token[0]), assemblers.map((row) => row[index]))
    ),
    probabilities: softmaxOf(found.logits).weights,
    label: labelOf(tokens),
    ones: sum(tokens.slice(0, PREFIX)),
    on_prefix: sum(found.attention.slice(0, PREFIX)),
    length: Math.hypot(...found.sequence),
    flips: turned.map((other) => Number(answerOf(pass(params, pairs, other).logits) !== answer)),
    accuracy,
  };
}

// The plane of ξ: its reach, the regions of the answers as rows of cells, the points without those that cover each other,
// and the middles of the sequences with as many ones in the prefix, where these keep apart.
function planeOf(state) {
  const all = overAll(state);
  if (all.plane) return all.plane;
  const { points, params } = all,
    { token } = params.weights,
    difference = minus(token[1], token[0]),
    extent = Math.max(...points.flat().map(Math.abs));
  const reach = 1.15 * Math.max(extent / Math.min(1, Math.abs(state.value_scale) || 1), 1e-3);
  const turns = Array.from({ length: RING + 1 }, (_, index) => {
    const turn = 2 * Math.PI * index / RING;
    return margin(params, [0, 0], [Math.cos(turn), Math.sin(turn)]);
  });
  const lead = (xi) => {
    const turn = (Math.atan2(xi[1], xi[0]) / (2 * Math.PI) + 1) % 1 * RING, low = Math.floor(turn);
    return dot(difference, xi) + turns[low] + (turn - low) * (turns[low + 1] - turns[low]);
  };
  const cell = (index) => ((index + 0.5) * 2 / CELLS - 1) * reach, regions = [];
  for (let row = 0; row < CELLS; row++) {
    const ahead = Array.from({ length: CELLS }, (_, column) => Number(lead([cell(column), cell(row)]) > 0));
    for (let start = 0, end = 1; start < CELLS; start = end, end += 1) {
      while (end < CELLS && ahead[end] === ahead[start]) end += 1;
      regions.push([row, start, end, ahead[start]]);
    }
  }
  const shown = [new Map(), new Map()], groups = Array.from({ length: PREFIX + 1 }, () => []);
  points.forEach((xi, number) => {
    const ones = sum(bitsOf(number).slice(0, PREFIX));
    shown[ones % 2].set(xi.map((part) => Math.round(part / reach * 160)).join(), xi);
    groups[ones].push(xi);
  });
  const middles = groups.map((group) => [0, 1].map((axis) => sum(group.map((xi) => xi[axis])) / group.length));
  const apart = (one, other) => Math.hypot(...minus(one, other));
  const gap = Math.min(...middles.flatMap((one, i) => middles.slice(0, i).map((other) => apart(one, other))));
  const radius = Math.max(...groups.flatMap((group, i) => group.map((xi) => apart(xi, middles[i]))));
  return (all.plane = {
    reach,
    regions,
    shown: shown.map((some) => [...some.values()]),
    middles: 2 * radius < gap ? middles : [],
  });
}

const BOX = "0 0 320 238";
const CENTRE = [160, 122], RADIUS = 80;
const place = ([x, y]) => [CENTRE[0] + RADIUS * x, CENTRE[1] - RADIUS * y];
const BARS = { left: 40, right: 314, high: 34, low: 178 }, UNIT = (BARS.right - BARS.left) / LENGTH;
const FRAME = [60, 24, 252, 216];
const put = (reach) => ([x, y]) => [156 + 96 * x / reach, 120 - 96 * y / reach];
const kind = (t) => (t < PREFIX ? 0 : 2);
const look = (x) => ({ fill: COLORS[x], stroke: "currentColor" });
const turn = (t) => ({ tokens }) => ({ tokens: tokens.map((x, other) => (other === t ? 1 - x : x)) });

// The nearest of places, if it is near.
function nearest(places, [x, y], within) {
  let best = null, least = within;
  places.forEach(([u, v], index) => {
    const far = Math.hypot(u - x, v - y);
    if (far < least) [best, least] = [index, far];
  });
  return best;
}

// Positions as text, runs joined: 1–5, 8.
function ranges(numbers) {
  const runs = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    if (runs.length && number === runs.at(-1)[1] + 1) runs.at(-1)[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
}

// Neighbors on the circle share a label: groups of [angle, t].
function neighbors(angles, width) {
  const sorted = angles.map((angle, t) => [angle, t]).sort((a, b) => a[0] - b[0]), found = [];
  for (const [angle, t] of sorted) {
    if (found.length && angle - found.at(-1).at(-1)[0] < width) found.at(-1).push([angle, t]);
    else found.push([[angle, t]]);
  }
  if (found.length > 1 && sorted[0][0] + 2 * Math.PI - sorted.at(-1)[0] < width) {
    found[0].unshift(...found.pop().map(([angle, t]) => [angle - 2 * Math.PI, t]));
  }
  return found;
}

const pictures = [
  {
    label: "1: the normalized embeddings of the twelve tokens on the unit circle, with the query; a click changes a token",
    box: BOX,
    click(x, y, state) {
      const t = nearest(compute(state).embeddings.map(place), [x, y], 16);
      return t === null ? {} : turn(t)(state);
    },
  },
  {
    label: "2: the attention that each token receives; a click changes a token",
    box: BOX,
    click: (x, y, state) => (x >= BARS.left && x < BARS.right ? turn(Math.floor((x - BARS.left) / UNIT))(state) : {}),
  },
  {
    label:
      "3: the plane of sequence embeddings ξ with those of all sequences and the regions of the answers; a click chooses a sequence",
    box: BOX,
    click(x, y, state) {
      const { points } = overAll(state), number = nearest(points.map(put(planeOf(state).reach)), [x, y], 20);
      return number === null ? {} : { tokens: bitsOf(number) };
    },
  },
  { label: "4: the neurons’ activations and contributions, the logits and the answer", box: BOX },
];
const TOKENS = { trait: "tokens", place: "ao-tokens", top: true };
const controls = [
  { ...TOKENS, kind: "toggles", label: "prefix", name: "token", from: 0, to: PREFIX },
  { ...TOKENS, kind: "toggles", label: "suffix", name: "token", from: PREFIX, to: LENGTH },
  {
    ...TOKENS,
    kind: "actions",
    label: "change",
    acts: {
      "rotate the prefix": ({ tokens }) => ({
        tokens: [tokens[PREFIX - 1], ...tokens.slice(0, PREFIX - 1), ...tokens.slice(PREFIX)],
      }),
      "flip the suffix": ({ tokens }) => ({ tokens: tokens.map((x, t) => (t < PREFIX ? x : 1 - x)) }),
    },
  },
  {
    trait: "model",
    kind: "choice",
    place: "ao-tokens",
    top: true,
    label: "model",
    names: { trained: "trained", untrained: "before training", ideal: "ideal circuit" },
  },
  { trait: "query_scale", label: "scale of the query q" },
  { trait: "value_scale", label: "scale of the values V" },
  { trait: "neuron_scale", label: "scale of the neurons U" },
];

function drawEmbeddings(picture, { embeddings, attention }, { tokens }, { query }) {
  title(picture, "1. Embeddings z (numbers: positions), query q");
  drawn("circle", { cx: CENTRE[0], cy: CENTRE[1], r: RADIUS, fill: "none", stroke: "currentColor", opacity: 0.5 }, picture);
  embeddings.forEach((z, t) =>
    mark(picture, kind(t), place(z), 3 + 12 * Math.sqrt(attention[t]), {
      ...look(tokens[t]),
      "fill-opacity": 0.75,
      class: "ao-pick",
    })
  );
  for (const group of neighbors(embeddings.map(([x, y]) => Math.atan2(y, x)), 0.2)) {
    const angle = sum(group.map(([value]) => value)) / group.length,
      [x, y] = place([1.2 * Math.cos(angle), 1.2 * Math.sin(angle)]);
    small(
      picture,
      x,
      y + 4,
      ranges(group.map(([, t]) => t + 1)),
      Math.abs(Math.cos(angle)) < 0.2 ? "middle" : Math.cos(angle) > 0 ? "start" : "end",
      "ao-halo",
    );
  }
  const length = Math.hypot(...query), reach = length > 0 ? 0.85 * (1 - Math.exp(-length)) / length : 0;
  if (length > 0) arrow(picture, CENTRE, place(query.map((part) => reach * part)), { "stroke-width": 2.5 });
  ["0", "1"].forEach((text, index) => {
    mark(picture, 0, [258, 216 + 16 * index], 5, look(index));
    small(picture, 267, 220 + 16 * index, `token = ${text}`);
    mark(picture, 2 * index, [10, 216 + 16 * index], 4.5, { fill: "none", stroke: "currentColor" });
    small(picture, 19, 220 + 16 * index, ["prefix", "suffix"][index]);
  });
}

function drawAttention(picture, { attention, flips }, { tokens }, asking) {
  const { left, right, high, low } = BARS,
    top = Math.max(0.15, ...attention) * 1.12,
    height = (value) => low - (low - high) * value / top;
  title(picture, "2. Attention s, in percent");
  line(picture, [left, low], [right, low], { opacity: 0.5 });
  for (const value of ticksUpTo(top)) {
    line(picture, [left - 4, height(value)], [left, height(value)], { opacity: 0.5 });
    small(picture, left - 6, height(value) + 4, tidy(100 * value), "end");
  }
  attention.forEach((value, t) => {
    const x = left + UNIT * t, middle = x + UNIT / 2;
    drawn("rect", {
      x: x + 3,
      y: height(value),
      width: UNIT - 6,
      height: Math.max(low - height(value), 0.5),
      ...look(tokens[t]),
    }, picture);
    small(picture, middle, height(value) - 4, show(100 * value, value < 0.095 ? 1 : 0), "middle");
    drawn("text", { x: middle, y: low + 15, "text-anchor": "middle" }, picture, String(tokens[t]));
    if (!asking && flips[t]) {
      drawn("rect", { x: x + 5, y: low + 19, width: UNIT - 10, height: 3, fill: COLORS[2] }, picture);
    }
    drawn("rect", { x, y: high, width: UNIT, height: low - high + 24, fill: "transparent", class: "ao-pick" }, picture);
  });
  line(picture, [left + PREFIX * UNIT, high - 8], [left + PREFIX * UNIT, low + 24], {
    "stroke-dasharray": "3 4",
    opacity: 0.7,
  });
  const onPrefix = sum(attention.slice(0, PREFIX));
  [["prefix", onPrefix, PREFIX / 2], ["suffix", 1 - onPrefix, (PREFIX + LENGTH) / 2]].forEach(([text, value, at]) => {
    drawn("text", { x: left + UNIT * at, y: low + 37, "text-anchor": "middle" }, picture, `${text} ${show(100 * value)}%`);
  });
  if (asking) return;
  drawn("rect", { x: left, y: 228, width: 14, height: 3, fill: COLORS[2] }, picture);
  small(picture, left + 20, 233, "changing this token changes the answer");
}

function drawPlane(picture, { sequence }, state) {
  const { reach, regions, shown, middles } = planeOf(state), at = put(reach), size = 192 / CELLS, [left, , , bottom] = FRAME;
  title(picture, "3. ξ of all sequences; this one is circled");
  const fields = drawn("g", { "fill-opacity": 0.22, "shape-rendering": "crispEdges" }, picture);
  for (const [row, start, end, ahead] of regions) {
    drawn("rect", {
      x: left + size * start,
      y: bottom - size * (row + 1),
      width: size * (end - start),
      height: size,
      fill: COLORS[ahead],
    }, fields);
  }
  const ticks = [-1, 0, 1].map((sign) => sign * ticksUpTo(0.9 * reach).at(-1)),
    axis = { label: "", low: -reach, high: reach, ticks };
  axes(picture, FRAME, axis, axis);
  const inside = clipped(picture, FRAME);
  for (const ends of [[[-reach, 0], [reach, 0]], [[0, -reach], [0, reach]]]) line(inside, ...ends.map(at), { opacity: 0.2 });
  shown.forEach((points, label) => {
    const path = points.map((xi) => `M${at(xi).map((value) => value.toFixed(1)).join(" ")}h0`).join("");
    drawn("path", {
      d: path,
      stroke: COLORS[label],
      "stroke-width": 4,
      "stroke-linecap": "round",
      fill: "none",
      opacity: points.length > 400 ? 0.45 : 0.9,
    }, inside);
  });
  const wide = (axis) => Math.max(...middles.map((xi) => xi[axis])) - Math.min(...middles.map((xi) => xi[axis])),
    upright = wide(1) > wide(0);
  middles.forEach((xi, ones) => {
    const [x, y] = at(xi);
    small(inside, upright ? x - 14 : x, upright ? y + 4 : y - 10, String(ones), "middle", "ao-halo");
  });
  const [x, y] = at(sequence);
  drawn("circle", { cx: x, cy: y, r: 7, fill: "none", stroke: "currentColor", "stroke-width": 2.5 }, picture);
  drawn("rect", { x: left, y: FRAME[1], width: 192, height: 192, fill: "transparent", class: "ao-pick" }, picture);
  ["label 0", "label 1"].forEach((text, label) => {
    mark(picture, 0, [264, 34 + 16 * label], 3, { fill: COLORS[label] });
    small(picture, 271, 38 + 16 * label, text);
    drawn("rect", { x: 260, y: 70 + 18 * label, width: 8, height: 8, fill: COLORS[label], "fill-opacity": 0.22 }, picture);
    small(picture, 271, 78 + 18 * label, `answer ${label}`);
  });
  if (!middles.length) return;
  small(picture, 260, 122, "0 … 5:");
  small(picture, 260, 136, "ones in");
  small(picture, 260, 150, "the prefix");
}

function drawNeurons(picture, now, { receptors }, asking) {
  const { activations, pushes, logits, label } = now,
    order = receptors.map(([x, y], index) => [Math.atan2(y, x), index]).sort((a, b) => a[0] - b[0]).map(([, index]) =>
      index
    );
  const [left, right] = [40, 314], unit = (right - left) / order.length, gap = Math.min(1, unit / 6);
  title(picture, `4. The ${order.length} neurons, the logits, the answer`);
  const strip = (values, zero, up, down, text, hue) => {
    const top = Math.max(...values, 0.05),
      least = Math.min(...values, 0),
      scale = Math.min(up / top, least < 0 ? down / -least : Infinity);
    order.forEach((index, at) => {
      const value = values[index] * scale;
      drawn("rect", {
        x: left + unit * at + gap,
        y: Math.min(zero, zero - value),
        width: unit - 2 * gap,
        height: Math.max(Math.abs(value), 0.5),
        fill: hue(pushes[index]),
      }, picture);
    });
    line(picture, [left, zero], [right, zero], { opacity: 0.5 });
    small(picture, left, zero - up - 3, text);
  };
  const hue = (push) => COLORS[push > 0 ? 1 : 0],
    most = Math.max(...activations),
    up = sum(pushes.filter((push) => push > 0)),
    down = sum(pushes) - up;
  const activity = most < 0.005
    ? "no neuron is active, so ξ is unchanged (ψ = ξ)"
    : `activation, up to ${show(most, most < 1 ? 2 : 1)}`;
  strip(activations, 70, 32, 6, activity, () => "currentColor");
  const added = most < 0.005
    ? "the neurons add nothing to the logits"
    : `contributions to ζ₁ − ζ₀: +${show(up, 1)} and ${show(down, 1)}`;
  strip(pushes, 124, 26, 26, added, hue);
  const widest = Math.max(...logits.map(Math.abs), 1e-9), middle = 195;
  line(picture, [middle, 158], [middle, 201], { opacity: 0.5 });
  logits.forEach((logit, v) => {
    const y = 163 + 20 * v, size = 70 * logit / widest;
    drawn("rect", {
      x: Math.min(middle, middle + size),
      y,
      width: Math.max(Math.abs(size), 0.5),
      height: 13,
      fill: COLORS[v],
    }, picture);
    drawn("text", { x: left, y: y + 11 }, picture, `ζ${"₀₁"[v]} = ${show(logit, Math.abs(logit) < 10 ? 2 : 1)}`);
  });
  const answer = answerOf(logits), undecided = Math.abs(logits[1] - logits[0]) < 1e-12;
  drawn("text", { x: left, y: 227 }, picture, `label ${label}, answer ${undecided ? "undecided" : answer}`);
  if (asking || undecided) return;
  const right_ = answer === label;
  drawn(
    "text",
    { x: 168, y: 227, "font-weight": 600, style: `fill: ${right_ ? COLORS[2] : "currentColor"}` },
    picture,
    right_ ? "✓ right" : "✗ wrong",
  );
}

function draw([first, second, third, fourth], now, state, bounds, asking) {
  const { params: { weights: params } } = overAll(state);
  drawEmbeddings(first, now, state, params);
  drawAttention(second, now, state, asking);
  drawPlane(third, now, state);
  drawNeurons(fourth, now, params, asking);
}

function which(flips) {
  const found = flips.flatMap((flip, t) => (flip ? [t + 1] : []));
  if (!found.length) return "No change of a single token changes the answer";
  const those = found.length === 1 ? `token ${found[0]}` : `any one of tokens ${ranges(found)}`;
  return `Changing ${those} changes the answer; changing ${found.length === 1 ? "any other token" : "any other"} does not`;
}

function say({ sequence, length, output, probabilities, label, ones, on_prefix: onPrefix, flips, accuracy }) {
  const lead = probabilities[label] - 0.5;
  return `The prefix contains ${ones} ${ones === 1 ? "one" : "ones"}, so the label is ${label}. Attention on the prefix: ${
    show(100 * onPrefix)
  }%. ` +
    `ξ = ${pair(sequence)}, length ${show(length, 3)}; after the feed-forward layer, ψ = ${pair(output)}. The model ${
      Math.abs(lead) < 1e-12
        ? "gives both answers the same probability"
        : `answers ${lead > 0 ? label : 1 - label} with probability ${show(0.5 + Math.abs(lead), 4)}, so it is ${
          lead > 0 ? "right" : "wrong"
        }`
    }. ` +
    `${which(flips)}. The model is right on ${show(100 * accuracy, accuracy === 1 ? 0 : 1)}% of all 4096 sequences.`;
}

const FIRST = "each of the first five, no others", TWELVE = "any of the twelve", SOME = "only some of the first five";
const guess = {
  prompt:
    "The label is 1 if the first five tokens, the prefix, contain an odd number of ones. You flip one of the twelve tokens. For which tokens does this change the answer?",
  options: [FIRST, TWELVE, SOME],
  tells: true,
  reveal(guessed, { flips, accuracy }) {
    const count = sum(flips),
      inside = sum(flips.slice(0, PREFIX)) === count,
      exact = inside && count === PREFIX,
      right = exact ? FIRST : count === LENGTH ? TWELVE : inside && count > 0 ? SOME : "none of these",
      verdict = guessed === undefined ? "" : guessed === right ? "Right. " : "Not quite. ";
    return `${verdict}${which(flips)}. ` +
      (accuracy === 1
        ? "The model is right on all sequences. Click tokens, bars, or dots to see how it does this."
        : "Click tokens, bars, or dots to see why.");
  },
};

const elsewhere = {
  label: "open it in the laboratory",
  to(state) {
    const { weights } = scaled(state), width = weights.receptors.length;
    return `laboratory.html#sandbox=run:own;norm:unit${width === 32 ? "" : `;width:${width}`};start:${
      encodeURIComponent(spelledWeights(flatOf(weights)))
    }`;
  },
};

export default explorer({ pictures, controls, compute, draw, say, guess, elsewhere });
