// A sequence of zeros and ones on its way through the model in the plane: embeddings, attention, ξ, ψ, probabilities.

import {
  arrow, axes, clipped, COLOURS, curve, drawn, gelu, line, mark, power, show, softmaxOf, ticksUpTo, tidy,
} from "./common.js";
import { explorer } from "./shell.js";

const LENGTH = 12, PREFIX = 5;
const inner = (a, b) => a[0] * b[0] + a[1] * b[1];
const sum = (values) => values.reduce((total, value) => total + value, 0);
const normalised = (v) => (Math.hypot(...v) > 0 ? v.map((value) => value / Math.hypot(...v)) : [0, 0]);  // zero stays zero

// The chosen model with its factors.
function scaled({ weights, model, query_scale, value_scale, neuron_scale }) {
  const chosen = weights[model], by = (factor, rows) => rows.map((row) => row.map((value) => factor * value));
  return { ...chosen, query: chosen.query.map((value) => query_scale * value), value: by(value_scale, chosen.value), assemblers: by(neuron_scale, chosen.assemblers) };
}

// What the neurons add to ξ, given its direction.
function fired({ receptors, assemblers }, direction) {
  const activations = receptors.map((row) => gelu(inner(row, direction)));
  return assemblers.map((row) => row.reduce((total, value, index) => total + value * activations[index], 0));
}

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const { tokens } = state, params = scaled(state), { token, position, query, value } = params;
  const embeddings = tokens.map((x, t) => normalised(token[x].map((part, index) => part + position[t][index])));
  const attention = softmaxOf(embeddings.map((z) => inner(z, query) / Math.SQRT2)).weights;
  const mixture = [0, 1].map((index) => sum(embeddings.map((z, t) => attention[t] * z[index])));
  const sequence = value.map((row) => inner(row, mixture)), direction = normalised(sequence);
  const output = fired(params, direction).map((part, index) => sequence[index] + part);
  const logits = token.map((row) => inner(row, output));
  return { embeddings, attention, sequence, direction, output, logits, probabilities: softmaxOf(logits).weights, label: sum(tokens.slice(0, PREFIX)) % 2 };
}

const CENTRE = [160, 156], RADIUS = 94;
const place = ([x, y]) => [CENTRE[0] + RADIUS * x, CENTRE[1] - RADIUS * y];
const look = (t) => (t < PREFIX ? { fill: COLOURS[0], stroke: "currentColor" } : { fill: "none", stroke: COLOURS[1], "stroke-width": 2.5 });
const pair = (v) => `(${v.map((value) => show(value, Math.max(...v.map(Math.abs)) < 0.1 ? 4 : 2)).join(", ")})`;

// Positions as text, runs joined: 1-5, 8.
function ranges(numbers) {
  const runs = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    if (runs.length && number === runs.at(-1)[1] + 1) runs.at(-1)[1] = number;
    else runs.push([number, number]);
  }
  return runs.map(([first, last]) => (first === last ? `${first}` : `${first}–${last}`)).join(", ");
}

// Neighbours on the circle share a label: groups of [angle, t].
function neighbours(angles, width) {
  const sorted = angles.map((angle, t) => [angle, t]).sort((a, b) => a[0] - b[0]), found = [];
  for (const [angle, t] of sorted) {
    if (found.length && angle - found.at(-1).at(-1)[0] < width) found.at(-1).push([angle, t]);
    else found.push([[angle, t]]);
  }
  if (found.length > 1 && sorted[0][0] + 2 * Math.PI - sorted.at(-1)[0] < width) found[0].unshift(...found.pop().map(([angle, t]) => [angle - 2 * Math.PI, t]));
  return found;
}

const pictures = [
  { label: "The normalised embeddings of the twelve tokens on the unit circle, with the query", box: "0 0 320 304" },
  { label: "The attention that each token receives", box: "0 0 320 304" },
  { label: "The plane with the sequence embedding ξ, the output ψ and the feed-forward layer's curve", box: "0 0 320 304" },
  { label: "The probabilities of the two labels", box: "0 0 320 304" },
];
const TOKENS = { trait: "tokens", place: "ao-tokens", top: true };
const controls = [
  { ...TOKENS, kind: "toggles", label: "prefix", name: "token", from: 0, to: PREFIX },
  { ...TOKENS, kind: "toggles", label: "suffix", name: "token", from: PREFIX, to: LENGTH },
  {
    ...TOKENS, kind: "actions", label: "change", acts: {
      "rotate the prefix": ({ tokens }) => ({ tokens: [tokens[PREFIX - 1], ...tokens.slice(0, PREFIX - 1), ...tokens.slice(PREFIX)] }),
      "flip the suffix": ({ tokens }) => ({ tokens: tokens.map((x, t) => (t < PREFIX ? x : 1 - x)) }),
    },
  },
  { trait: "model", kind: "choice", label: "model", names: { random: "random", ideal: "built by hand" } },
  { trait: "query_scale", label: "factor of q" },
  { trait: "value_scale", label: "factor of V" },
  { trait: "neuron_scale", label: "factor of U" },
];

function draw([first, second, third, fourth], now, state) {
  const { tokens } = state, params = scaled(state), { embeddings, attention, sequence, output, probabilities, label } = now;

  drawn("text", { x: 160, y: 14, "text-anchor": "middle" }, first, "embeddings z and query q");
  drawn("circle", { cx: CENTRE[0], cy: CENTRE[1], r: RADIUS, fill: "none", stroke: "currentColor", opacity: 0.5 }, first);
  embeddings.forEach((z, t) => mark(first, tokens[t], place(z), 4 + 12 * Math.sqrt(attention[t]), { ...look(t), "fill-opacity": 0.75 }));
  for (const group of neighbours(embeddings.map(([x, y]) => Math.atan2(y, x)), 0.16)) {
    const angle = sum(group.map(([value]) => value)) / group.length, [x, y] = place([1.19 * Math.cos(angle), 1.19 * Math.sin(angle)]);
    drawn("text", { x, y: y + 4, "text-anchor": Math.abs(Math.cos(angle)) < 0.5 ? "middle" : Math.cos(angle) > 0 ? "start" : "end", class: "ao-small ao-halo" }, first, ranges(group.map(([, t]) => t + 1)));
  }
  const length = Math.hypot(...params.query), reach = length > 0 ? 0.85 * (1 - Math.exp(-length)) / length : 0;
  if (length > 0) arrow(first, CENTRE, place(params.query.map((part) => reach * part)), { "stroke-width": 2.5 });
  [["0, prefix", 0, 0], ["1, prefix", 1, 0], ["0, suffix", 0, PREFIX], ["1, suffix", 1, PREFIX]].forEach(([text, kind, t], index) => {
    mark(first, kind, [14 + 78 * index, 296], 5, look(t));
    drawn("text", { x: 24 + 78 * index, y: 300, class: "ao-small" }, first, text);
  });

  const top = Math.max(0.2, ...attention) * 1.1, [left, high, right, low] = [46, 34, 312, 252];
  drawn("text", { x: 160, y: 14, "text-anchor": "middle" }, second, "attention s");
  const unit = (right - left) / LENGTH, height = (value) => low - (low - high) * value / top;
  line(second, [left, low], [right, low], { opacity: 0.5 });
  for (const value of ticksUpTo(top)) {
    line(second, [left - 4, height(value)], [left, height(value)], { opacity: 0.5 });
    drawn("text", { x: left - 6, y: height(value) + 4, "text-anchor": "end", class: "ao-small" }, second, tidy(value));
  }
  attention.forEach((value, t) => {
    const x = left + unit * t + 3;
    drawn("rect", { x, y: height(value), width: unit - 6, height: Math.max(low - height(value), 0.5), ...look(t), "stroke-width": t < PREFIX ? 1 : 2.5 }, second);
    drawn("text", { x: x + unit / 2 - 3, y: low + 16, "text-anchor": "middle" }, second, String(tokens[t]));
  });
  line(second, [left + PREFIX * unit, high], [left + PREFIX * unit, low + 22], { "stroke-dasharray": "3 4", opacity: 0.6 });
  const onPrefix = sum(attention.slice(0, PREFIX));
  [["prefix", onPrefix, PREFIX / 2], ["suffix", 1 - onPrefix, (PREFIX + LENGTH) / 2]].forEach(([text, value, at]) => {
    drawn("text", { x: left + unit * at, y: low + 36, "text-anchor": "middle" }, second, `${text} ${show(100 * value)} %`);
  });

  const ring = Array.from({ length: 721 }, (_, index) => fired(params, [Math.cos(Math.PI * index / 360), Math.sin(Math.PI * index / 360)]));
  const extent = (points) => Math.max(...points.flat().map(Math.abs)), own = Math.max(0.1, extent([sequence, output]));
  const span = 1.15 * Math.max(own, extent(ring)), frame = [46, 30, 286, 270];
  drawn("text", { x: 166, y: 14, "text-anchor": "middle" }, third, "ξ, and ψ = ξ + Uσ(Wξ̄)");
  const positive = span < 3 ? [ticksUpTo(span).at(-1)] : Array.from({ length: Math.floor(Math.log10(span)) + 1 }, (_, power) => 10 ** power);
  const axis = { label: "", low: -span, high: span, ticks: [...positive.map((value) => -value), 0, ...positive], scale: span < 3 ? Number : Math.asinh };
  const put = axes(third, frame, axis, axis);
  const inside = clipped(third, frame), difference = params.token[1].map((part, index) => part - params.token[0][index]);
  const across = normalised([-difference[1], difference[0]]), along = Array.from({ length: 121 }, (_, index) => Math.sinh((index / 60 - 1) * Math.asinh(2 * span)));
  curve(inside, along.map((length) => put(across.map((part) => length * part))), { "stroke-dasharray": "6 4", opacity: 0.7 });
  curve(inside, ring.map(put), { opacity: 0.6, "stroke-width": 1.5 });
  arrow(inside, put(sequence), put(output), { "stroke-width": 1.5, opacity: 0.8 });
  mark(inside, 0, put(sequence), 6, { fill: COLOURS[0], stroke: "currentColor" });
  mark(inside, 2, put(output), 6, { fill: COLOURS[2], stroke: "currentColor" });
  for (const v of [0, 1]) {
    const [x, y] = normalised(difference).map((part, f) => (frame[f] + frame[f + 2]) / 2 + (f ? -1 : 1) * (2 * v - 1) * [88, 104][f] * part);
    drawn("text", { x, y: y + 4, "text-anchor": "middle", class: "ao-halo" }, third, `answer ${v}`);
  }
  mark(third, 0, [92, 296], 5, { fill: COLOURS[0], stroke: "currentColor" });
  drawn("text", { x: 102, y: 300, class: "ao-small" }, third, "ξ");
  mark(third, 2, [132, 296], 5, { fill: COLOURS[2], stroke: "currentColor" });
  drawn("text", { x: 142, y: 300, class: "ao-small" }, third, "ψ");
  line(third, [170, 296], [192, 296], { opacity: 0.6, "stroke-width": 1.5 });
  drawn("text", { x: 198, y: 300, class: "ao-small" }, third, "Uσ(W·)");

  drawn("text", { x: 160, y: 14, "text-anchor": "middle" }, fourth, "probabilities");
  probabilities.forEach((value, v) => {
    const x = 80 + 100 * v, y = 250 - 200 * value;
    drawn("rect", { x, y: 50, width: 60, height: 200, fill: "none", stroke: "currentColor", opacity: 0.3 }, fourth);
    drawn("rect", { x, y, width: 60, height: 250 - y, fill: COLOURS[2], opacity: 0.85 }, fourth);
    drawn("text", { x: x + 30, y: 42, "text-anchor": "middle" }, fourth, show(value, 4));
    drawn("text", { x: x + 30, y: 270, "text-anchor": "middle" }, fourth, v === label ? `${v} ★` : `${v}`);
  });
  line(fourth, [66, 150], [254, 150], { "stroke-dasharray": "3 4", opacity: 0.6 });
  drawn("text", { x: 160, y: 296, "text-anchor": "middle", class: "ao-small" }, fourth, "★ the label");
}

function say({ attention, sequence, output, probabilities, label }, { tokens }) {
  const onPrefix = sum(attention.slice(0, PREFIX)), count = sum(tokens.slice(0, PREFIX)), lead = probabilities[label] - 0.5;
  return `Label ${label}: the prefix holds ${count} ${count === 1 ? "one" : "ones"}. Attention on the prefix ${show(100 * onPrefix)} %. `
    + `ξ = ${pair(sequence)}, length ${show(Math.hypot(...sequence), 3)}; ψ = ${pair(output)}. Answer 1 with probability ${show(probabilities[1], 4)}, so the model is ${Math.abs(lead) < 1e-12 ? "undecided" : lead > 0 ? "right" : "not right"}.`;
}

export default explorer({ pictures, controls, compute, draw, say });
