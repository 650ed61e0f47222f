// The visual sandbox: a recorded training run, frame by frame, and all that the model does in the plane.
// A frame is its parameters; everything drawn is computed from them.

import {
  arrow, bytesOf, clamp, COLOURS, curve, dot, drawn, element, gelu, line, mark, show, softmaxOf, sum,
} from "./common.js";
import { explorer } from "./shell.js";

const CELLS = 24, FINE = 220, RING = 1440;  // cells a side of the tested map and of the drawn one; directions tabulated for it
const LAYERS = [["token", "E"], ["position", "P"], ["query", "q"], ["value", "V"], ["receptors", "W"], ["assemblers", "U"]];
const HUES = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"];
const rows = (flat, width) => Array.from({ length: flat.length / width }, (_, row) => Array.from(flat.subarray(row * width, (row + 1) * width)));

function normalised(norm, [x, y]) {
  if (norm !== "rms" && norm !== "unit") throw new Error(`the norm must be rms or unit, got ${norm}`);
  const length = Math.hypot(x, y), by = norm === "rms" ? length / Math.SQRT2 + 1e-5 : length || 1;
  return [x / by, y / by];
}

// A run as the page carries it, unpacked once: its parameters as integers and their step, its sentences, its planes' widths.
const unpacked = new WeakMap();
function unpack(run) {
  if (unpacked.has(run)) return unpacked.get(run);
  const count = run.epochs.length, parts = {};
  for (const [name, { step, values }] of Object.entries(run.params)) {
    const integers = new Int16Array(bytesOf(values).buffer);
    parts[name] = (frame) => Float64Array.from(integers.subarray(frame * integers.length / count, (frame + 1) * integers.length / count), (value) => value * step);
  }
  const at = (frame) => {
    const now = Object.fromEntries(Object.entries(parts).map(([name, part]) => [name, part(frame)]));
    return {
      token: rows(now.token, 2), position: rows(now.position, 2), query: [...now.query], value: rows(now.value, 2), receptors: rows(now.receptors, 2),
      assemblers: rows(now.assemblers, now.receptors.length / 2), thresholds: [...now.receptor_biases], shift: [...now.assembler_bias],
    };
  };
  const sentences = run.prefixes.flatMap((prefix) => run.suffixes.map((suffix) => [...prefix, ...suffix]));
  const found = { run, count, at, sentences, labels: run.prefixes.map((prefix) => sum(prefix) % run.p) };
  const extent = (vectors) => vectors.reduce((top, [x, y]) => Math.max(top, Math.abs(x), Math.abs(y)), 0);
  const extents = { embeddings: [], values: [], sequence: [], neurons: [] };
  for (let frame = 0; frame < count; frame++) {
    const params = at(frame), { values, sequence } = attend(found, params);
    extents.embeddings.push(extent([...params.token, ...params.position]));
    extents.values.push(extent(values.flat()));
    extents.sequence.push(extent(sequence));
    extents.neurons.push(Math.max(extent(params.receptors), ...params.assemblers.flat().map(Math.abs)));
  }
  found.reaches = Object.fromEntries(Object.entries(extents).map(([name, values]) => [name, slowly(values)]));
  const last = at(count - 1).receptors;
  found.hues = last.map(([x, y]) => `hsl(${(Math.atan2(y, x) * 180 / Math.PI + 360) % 360} 65% 50%)`);
  unpacked.set(run, found);
  return found;
}

function slowly(extents, window = 4) {
  const around = (index) => Array.from({ length: 2 * window + 1 }, (_, step) => clamp(index + step - window, 0, extents.length - 1));
  const tops = extents.map((_, index) => Math.max(...around(index).map((other) => extents[other])));
  return tops.map((_, index) => 1.15 * Math.max(sum(around(index).map((other) => tops[other])) / (2 * window + 1), 1e-6));
}

// From the parameters to the sequence embeddings of the sentences.
function attend({ run, sentences }, { token, position, query, value }) {
  const embeddings = token.map((e) => position.map((p) => normalised(run.norm, [e[0] + p[0], e[1] + p[1]])));
  const values = embeddings.map((row) => row.map((z) => value.map((part) => dot(part, z))));
  const scores = embeddings.map((row) => row.map((z) => dot(z, query) / Math.SQRT2));
  const attention = sentences.map((tokens) => softmaxOf(tokens.map((x, t) => scores[x][t])).weights);
  const sequence = sentences.map((tokens, n) => [0, 1].map((axis) => sum(tokens.map((x, t) => attention[n][t] * values[x][t][axis]))));
  return { embeddings, values, attention, sequence };
}

// What the feed-forward layer adds to a sequence embedding of a normalised direction.
function fired({ receptors, assemblers, thresholds, shift }, direction) {
  const active = receptors.map((row, index) => gelu(dot(row, direction) + thresholds[index]));
  return assemblers.map((row, axis) => row.reduce((total, weight, index) => total + weight * active[index], shift[axis]));
}

const decide = (token, [x, y]) => softmaxOf(token.map((e) => e[0] * x + e[1] * y)).weights;
function classify(run, params, xi) {
  const added = fired(params, normalised(run.norm, xi));
  return decide(params.token, [xi[0] + added[0], xi[1] + added[1]]);
}

const frameAt = (epochs, epoch) => Math.max(0, epochs.findLastIndex((other) => other <= epoch));

// The numbers that the picture shows; the Python class computes the same.
export function compute({ data, run: name, epoch }) {
  const run = data[name], held = unpack(run), frame = frameAt(run.epochs, epoch), params = held.at(frame), stages = attend(held, params);
  const reaches = Object.fromEntries(Object.entries(held.reaches).map(([plane, values]) => [plane, values[frame]]));
  const cell = (index) => ((index + 0.5) * 2 / CELLS - 1) * reaches.sequence;
  const then = run.history.epoch.indexOf(run.epochs[frame]);
  return {
    ...stages,
    frame,
    epoch: run.epochs[frame],
    probabilities: stages.sequence.map((xi) => classify(run, params, xi)),
    map: Array.from({ length: CELLS ** 2 }, (_, index) => classify(run, params, [cell(index % CELLS), cell(Math.floor(index / CELLS))])),
    reaches,
    loss: run.history.loss[then],
    accuracy: ["train", "unseen", "all"].map((which) => run.history[which][then]),
    suffix: run.frames.suffix[frame],
    permutation: run.frames.permutation[frame],
  };
}

const rgb = (colour) => [1, 3, 5].map((start) => parseInt(colour.slice(start, start + 2), 16));
const TINTS = COLOURS.map(rgb);
const spelled = (tokens) => tokens.join("");
const percent = (value, digits = 0) => `${show(100 * value, digits)} %`;
const power = (exponent) => `10${String(exponent).replace("-", "⁻").replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit])}`;
const brief = (value) => Number(value.toPrecision(2)).toString();
const small = (value) => (value === 0 || value >= 1e-3 ? brief(value) : `${brief(value / 10 ** Math.floor(Math.log10(value)))} × ${power(Math.floor(Math.log10(value)))}`);

// Fill a canvas cell by cell: `shade(x, y)` gives the index of a colour and its opacity, 0 to 255.
function paint(canvas, width, height, shade) {
  [canvas.width, canvas.height] = [width, height];
  const pen = canvas.getContext("2d"), image = pen.createImageData(width, height), { data } = image;
  for (let y = 0, at = 0; y < height; y++) {
    for (let x = 0; x < width; x++, at += 4) {
      const [colour, opacity] = shade(x, y);
      [data[at], data[at + 1], data[at + 2]] = TINTS[colour];
      data[at + 3] = opacity;
    }
  }
  pen.putImageData(image, 0, 0);
}

// The classes' regions: the class's colour, the more transparent the less certain. The layer sees only a direction, up to
// the 1e-5 in its normalisation, so one table of what each direction adds to the logits serves all cells.
function paintRegions(canvas, params, reach, norm) {
  const scale = norm === "rms" ? Math.SQRT2 : 1, { token } = params, p = token.length;
  const table = Array.from({ length: RING + 1 }, (_, index) => {
    const turn = 2 * Math.PI * index / RING, added = fired(params, [scale * Math.cos(turn), scale * Math.sin(turn)]);
    return token.map((e) => dot(e, added));
  });
  paint(canvas, FINE, FINE, (column, row) => {
    const x = ((column + 0.5) * 2 / FINE - 1) * reach, y = (1 - (row + 0.5) * 2 / FINE) * reach;
    const turn = (Math.atan2(y, x) / (2 * Math.PI) + 1) % 1 * RING, low = Math.floor(turn), part = turn - low;
    const logits = token.map((e, v) => dot(e, [x, y]) + table[low][v] + part * (table[low + 1][v] - table[low][v]));
    const top = Math.max(...logits);
    let total = 0;
    for (const logit of logits) total += Math.exp(logit - top);
    return [logits.indexOf(top), 150 * (1 / total - 1 / p) / (1 - 1 / p)];
  });
}

// The nine panels, and what pointing at them does. What is drawn is kept here: the run shown, the sentence under the mouse.
function panels(root, link) {
  root.classList.add("ao-sandbox");
  const about = element("p", { class: "ao-about" }), grid = element("div", { class: "ao-panels" }), layers = {};
  root.append(about, grid);
  const view = { about, layers, shown: null, hovered: null, built: "" };
  const panel = (name, title, label, { canvas = false, key = [] } = {}) => {
    const plot = element("div", { class: "ao-plot" }), caption = element("div", { class: "ao-caption" }, title);
    for (const [sign, text, colour] of key) {
      const mark = element("span", { class: "ao-key" }, element("b", {}, sign), text);
      if (colour) mark.firstChild.style.color = colour;
      caption.append(" ", mark);
    }
    grid.append(element("div", { class: `ao-panel ao-panel-${name}` }, caption, plot));
    const cloth = canvas ? element("canvas", { "aria-hidden": "true" }) : null;
    if (cloth) plot.append(cloth);
    const svg = drawn("svg", { role: "img", "aria-label": label }, plot);
    layers[name] = { plot, svg, cloth, behind: drawn("g", {}, svg), front: drawn("g", {}, svg), places: [] };
  };
  panel("positions", "embeddings E and P", "Token embeddings, and position embeddings as numbers in circles (prefix) and squares (suffix)");
  panel("embeddings", "normalised: Z(x, t), query q", "Normalised embeddings of all tokens at all positions on a circle, with the query as an arrow");
  panel("attention", "attention, a row a sentence", "Attention of every sentence on its twelve tokens; those of the chosen sentence in percent", { canvas: true });
  panel("values", "values VZ(x, t), ◎ their mean ξ", "Transformed embeddings; those of the chosen sentence joined to its sequence embedding");
  panel("sequence", "sequence embeddings ξ", "Sequence embeddings of all sentences, coloured by prefix");
  panel("regions", "answers by ξ, ✕ wrong", "Regions of the classes in the plane of sequence embeddings", { canvas: true });
  panel("neurons", "receptors wᵢ ●, assemblers uᵢ ▲", "Receptors and assemblers; the two of a neuron have one colour");
  panel("loss", "loss, accuracy", "Training loss and accuracy against the epoch", { key: [["━", "training", HUES[0]], ["╍", "unseen", HUES[1]]] });
  panel("gradients", "gradient norms", "Norms of the loss's gradient, one curve a layer", { key: LAYERS.map(([, letter], index) => ["━", letter, HUES[index]]) });

  // The sentence under the pointer, if any is near, lights up; a tap or click chooses it.
  const nearest = (layer, event) => {
    const box = layer.svg.getBoundingClientRect(), at = [event.clientX - box.left, event.clientY - box.top];
    let best = null, least = 24 ** 2;
    layer.places.forEach(([x, y], index) => {
      const far = (x - at[0]) ** 2 + (y - at[1]) ** 2;
      if (far < least) [best, least] = [index, far];
    });
    return best;
  };
  for (const name of ["attention", "sequence", "regions"]) {
    const layer = layers[name];
    const find = (event) => {
      if (name !== "attention") return nearest(layer, event);
      const box = layer.svg.getBoundingClientRect(), row = Math.floor((event.clientY - box.top) / layer.rowHeight);
      return row >= 0 && row < view.shown.sentences.length ? row : null;
    };
    const hover = (index) => {
      if (index === view.hovered) return;
      view.hovered = index;
      link.redraw();
    };
    layer.svg.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") hover(find(event)); });
    layer.svg.addEventListener("pointerleave", () => hover(null));
    layer.svg.addEventListener("click", (event) => {
      const index = find(event), many = view.shown.run.suffixes.length;
      if (index !== null) link.update({ prefix: Math.floor(index / many), suffix: index % many });
    });
    layer.svg.classList.add("ao-pick");
  }
  for (const name of ["loss", "gradients"]) {
    const { svg } = layers[name];
    const seek = (event) => {
      const box = svg.getBoundingClientRect(), [left, right] = layers[name].span, last = view.shown.run.epochs.at(-1);
      link.update({ epoch: Math.round(clamp((event.clientX - box.left - left) / (right - left), 0, 1) * last) });
    };
    // A finger seeks by a tap or sideways; up or down it scrolls the page.
    svg.addEventListener("pointerdown", (event) => { if (event.pointerType === "mouse") seek(event); });
    svg.addEventListener("pointermove", (event) => { if (event.buttons && (event.pointerType === "mouse" || Math.abs(event.movementX) > Math.abs(event.movementY))) seek(event); });
    svg.addEventListener("click", seek);
    svg.classList.add("ao-seek");
  }
  return view;
}

const runOf = ({ data, run }) => data[run];
const sentence = (trait, list) => ({
  trait, label: trait, values: (state) => runOf(state)[list].map((_, index) => index),
  get: (state) => Math.min(state[trait], runOf(state)[list].length - 1), text: (value, state) => spelled(runOf(state)[list][value]),
});
const epochs = { trait: "epoch", place: "ao-player", values: (state) => runOf(state).epochs };
const controls = [
  { trait: "run", kind: "choice", top: true, label: "run", names: (run, { data }) => data[run].title, put: (run) => ({ run, prefix: 0, suffix: 0 }) },
  { ...epochs, kind: "play", stops: ["epoch", "run"] },
  { ...epochs, label: "epoch", digits: 0, get: (_, { epoch }) => epoch },
  sentence("prefix", "prefixes"),
  sentence("suffix", "suffixes"),
];

const frameOf = (parent, [left, top_, right, bottom]) => drawn("rect", { x: left, y: top_, width: right - left, height: bottom - top_, fill: "none", stroke: "currentColor", opacity: 0.35 }, parent);
function cleared({ front }) {
  front.replaceChildren();
  return front;
}
// A square plane about the origin, and the map into it.
function planeOf(layer, reach, note = `±${brief(reach)}`) {
  const parent = cleared(layer), { size } = layer, half = size / 2;
  frameOf(parent, [0.5, 0.5, size - 0.5, size - 0.5]);
  line(parent, [0, half], [size, half], { opacity: 0.15 });
  line(parent, [half, 0], [half, size], { opacity: 0.15 });
  drawn("text", { x: size - 4, y: size - 5, "text-anchor": "end", class: "ao-small ao-halo", opacity: 0.8 }, parent, note);
  return [parent, ([x, y]) => [half + half * x / reach, half - half * y / reach]];
}
function numbered(parent, kind, at, radius, text, attributes, ink) {
  mark(parent, kind, at, radius, attributes);
  drawn("text", { x: at[0], y: at[1] + 3, "text-anchor": "middle", class: "ao-tiny", style: `fill: ${ink}` }, parent, text);
}

// What does not change from frame to frame: sizes and curves.
function build({ layers, shown }) {
  for (const layer of Object.values(layers)) {
    layer.size = layer.plot.clientWidth || 230;
    layer.svg.setAttribute("viewBox", `0 0 ${layer.size} ${layer.size}`);
    layer.behind.replaceChildren();
  }
  const { run } = shown, { history } = run, last = run.epochs.at(-1);
  const curves = (name, series, top_, bottom, { log = false, low, high, ticks, text, epochs = false }) => {
    const { behind, size } = layers[name], [left, right] = [34, size - 6], scale = log ? Math.log10 : Number;
    layers[name].span = [left, right];
    const put = ([epoch, value]) => [left + (right - left) * epoch / last, bottom - (bottom - top_) * (scale(clamp(value, low, high)) - scale(low)) / (scale(high) - scale(low))];
    frameOf(behind, [left, top_, right, bottom]);
    for (const tick of ticks) {
      const y = put([0, tick])[1];
      line(behind, [left, y], [right, y], { opacity: 0.15 });
      drawn("text", { x: left - 4, y: y + 4, "text-anchor": "end", class: "ao-small" }, behind, text(tick));
    }
    if (epochs) for (const tick of [0, 0.5, 1]) drawn("text", { x: put([tick * last, low])[0], y: bottom + 14, "text-anchor": ["start", "middle", "end"][2 * tick], class: "ao-small" }, behind, String(Math.round(tick * last)));
    for (const [values, colour, dashed] of series) curve(behind, history.epoch.map((epoch, index) => put([epoch, values[index]])), { stroke: colour, "stroke-width": 1.4, ...(dashed ? { "stroke-dasharray": "5 2" } : {}) });
  };
  const decades = (values) => {
    const positive = values.filter((value) => value > 0), ends = [Math.min(...positive), Math.max(...positive)];
    const [first, end] = [Math.max(Math.floor(Math.log10(ends[0])), Math.ceil(Math.log10(ends[1])) - 8), Math.ceil(Math.log10(ends[1]))];
    const gap = Math.ceil((end - first) / 4);
    return { log: true, low: 10 ** first, high: 10 ** end, ticks: Array.from({ length: Math.floor((end - first) / gap) + 1 }, (_, index) => 10 ** (first + gap * index)), text: (tick) => power(Math.round(Math.log10(tick))) };
  };
  const { size } = layers.loss, middle = size * 0.52;
  curves("loss", [[history.loss, HUES[0]]], 6, middle - 6, decades(history.loss));
  curves("loss", [[history.train, HUES[0]], [history.unseen, HUES[1], true]], middle + 6, size - 18, { low: 0, high: 1, ticks: [0, 0.5, 1], text: (tick) => tick === 0.5 ? "½" : String(tick), epochs: true });
  curves("gradients", LAYERS.map(([name], index) => [history[name], HUES[index]]), 6, size - 18, { ...decades(LAYERS.flatMap(([name]) => history[name])), epochs: true });
}

// The number of the sentence that lights up: the one under the mouse, or the chosen one.
function sentenceOf({ run: { prefixes, suffixes } }, { prefix, suffix }, hovered) {
  return hovered ?? Math.min(prefix, prefixes.length - 1) * suffixes.length + Math.min(suffix, suffixes.length - 1);
}

function draw([view], now, state) {
  const { layers } = view, shown = unpack(runOf(state)), wanted = `${state.run} ${layers.loss.plot.clientWidth}`;
  view.shown = shown;
  view.about.textContent = shown.run.description;
  if (wanted !== view.built) build(view);
  view.built = wanted;
  const { run, sentences, labels, reaches, hues } = shown, { frame, embeddings, values, attention, sequence, probabilities } = now, params = shown.at(frame);
  const many = run.suffixes.length, label = (n) => labels[Math.floor(n / many)], colour = (n) => run.colours[Math.floor(n / many)];
  const chosen = sentenceOf(shown, state, view.hovered), tokens = sentences[chosen], weights = attention[chosen];
  const kind = (t) => (t < run.k ? 0 : 2), wrong = probabilities.map((row, n) => row[label(n)] < Math.max(...row));

  {
    const [parent, put] = planeOf(layers.positions, reaches.embeddings[frame]);
    params.position.forEach((p, t) => numbered(parent, kind(t), put(p), 6.5, t + 1, { fill: "currentColor", "fill-opacity": t < run.k ? 0.85 : 0.12, stroke: "currentColor", "stroke-width": 0.8 }, t < run.k ? "var(--ao-paper)" : "currentColor"));
    params.token.forEach((e, x) => {
      const at = put(e), size = 8;
      drawn("polygon", { points: `${at[0]},${at[1] - 1.3 * size} ${at[0] + 1.3 * size},${at[1]} ${at[0]},${at[1] + 1.3 * size} ${at[0] - 1.3 * size},${at[1]}`, fill: COLOURS[x], stroke: "currentColor", "stroke-width": 0.8 }, parent);
      drawn("text", { x: at[0], y: at[1] + 4, "text-anchor": "middle", class: "ao-small", style: "fill: #fff; font-weight: 600" }, parent, String(x));
    });
  }

  // The embeddings of all tokens at all positions, those of the chosen sentence in full.
  const cloud = (parent, put, vectors, radius) => {
    for (const passing of [true, false]) vectors.forEach((row, x) => row.forEach((z, t) => {
      if ((tokens[t] !== x) !== passing) return;
      mark(parent, kind(t), put(z), passing ? 3 : radius(t), { fill: COLOURS[x], "fill-opacity": passing ? 0.35 : 0.9, stroke: "currentColor", "stroke-width": passing ? 0 : 0.9 });
    }));
  };
  {
    const radius = run.norm === "rms" ? Math.SQRT2 : 1, length = Math.hypot(...params.query);
    const [parent, put] = planeOf(layers.embeddings, 1.25 * radius, `‖q‖ = ${show(length, 1)}`), [cx, cy] = put([0, 0]);
    drawn("circle", { cx, cy, r: put([radius, 0])[0] - cx, fill: "none", stroke: "currentColor", opacity: 0.35 }, parent);
    cloud(parent, put, embeddings, (t) => 3.5 + 7 * Math.sqrt(weights[t]));
    if (length > 0) arrow(parent, [cx, cy], put(params.query.map((part) => 0.85 * radius * (1 - Math.exp(-length)) * part / length)), { "stroke-width": 2.2 });
  }

  {
    const parent = cleared(layers.attention), layer = layers.attention, { size, cloth } = layer, gutter = 12, strip = 40, height = size - strip, unit = (size - gutter) / run.length;
    layer.rowHeight = height / sentences.length;
    Object.assign(cloth.style, { left: `${gutter}px`, top: "0", width: `${size - gutter}px`, height: `${height}px`, imageRendering: "pixelated" });
    paint(cloth, run.length, sentences.length, (t, n) => [sentences[n][t], 255 * Math.sqrt(attention[n][t])]);
    frameOf(parent, [gutter + 0.5, 0.5, size - 0.5, height]);
    line(parent, [gutter + run.k * unit, 0], [gutter + run.k * unit, height], { "stroke-width": 1.5, opacity: 0.8 });
    run.prefixes.forEach((_, number) => drawn("rect", { x: 2, y: height * number / run.prefixes.length + 0.5, width: 6, height: height / run.prefixes.length - 1, fill: run.colours[number] }, parent));
    drawn("rect", { x: 1, y: layer.rowHeight * chosen - 1, width: size - 2, height: layer.rowHeight + 2, fill: "none", stroke: "currentColor", "stroke-width": 2 }, parent);
    tokens.forEach((x, t) => {
      const left = gutter + unit * t + 0.5;
      drawn("rect", { x: left, y: height + 8, width: unit - 1, height: 16, fill: COLOURS[x], "fill-opacity": Math.sqrt(weights[t]) }, parent);
      drawn("text", { x: left + unit / 2, y: height + 20, "text-anchor": "middle", class: "ao-small" }, parent, String(x));
      drawn("text", { x: left + unit / 2, y: height + 36, "text-anchor": "middle", class: "ao-tiny" }, parent, show(100 * weights[t], 0));
    });
    drawn("text", { x: 0, y: height + 36, class: "ao-tiny" }, parent, "%");
    line(parent, [gutter + run.k * unit, height + 6], [gutter + run.k * unit, size], { "stroke-width": 1.5, opacity: 0.8 });
  }

  {
    const [parent, put] = planeOf(layers.values, reaches.values[frame]), end = put(sequence[chosen]);
    tokens.forEach((x, t) => line(parent, put(values[x][t]), end, { "stroke-width": 0.3 + 5 * weights[t], opacity: 0.45, stroke: COLOURS[x] }));
    cloud(parent, put, values, (t) => 3.5 + 7 * Math.sqrt(weights[t]));
    drawn("circle", { cx: end[0], cy: end[1], r: 6, fill: colour(chosen), stroke: "currentColor", "stroke-width": 2 }, parent);
    drawn("circle", { cx: end[0], cy: end[1], r: 9.5, fill: "none", stroke: "currentColor", "stroke-width": 1 }, parent);
  }

  for (const name of ["sequence", "regions"]) {
    const [parent, put] = planeOf(layers[name], reaches.sequence[frame]), layer = layers[name];
    layer.places = sequence.map(put);
    layer.places.forEach((at, n) => {
      mark(parent, label(n), at, 4, { fill: colour(n), stroke: "currentColor", "stroke-width": 0.6, "fill-opacity": 0.9 });
      if (name === "regions" && wrong[n]) for (const side of [1, -1]) line(parent, [at[0] - 5, at[1] - 5 * side], [at[0] + 5, at[1] + 5 * side], { "stroke-width": 1.4 });
    });
    const [x, y] = layer.places[chosen];
    mark(parent, label(chosen), [x, y], 5.5, { fill: colour(chosen), stroke: "currentColor", "stroke-width": 1.5 });
    drawn("circle", { cx: x, cy: y, r: 10, fill: "none", stroke: "currentColor", "stroke-width": 2 }, parent);
  }
  paintRegions(layers.regions.cloth, params, reaches.sequence[frame], run.norm);

  {
    const [parent, put] = planeOf(layers.neurons, reaches.neurons[frame]), size = layers.neurons.size, xi = sequence[chosen], length = Math.hypot(...xi) || 1;
    line(parent, [size / 2, size / 2], put(xi.map((part) => 3 * reaches.neurons[frame] * part / length)), { "stroke-dasharray": "4 3", opacity: 0.6 });
    params.receptors.forEach((w, index) => mark(parent, 0, put(w), 4, { fill: hues[index], "fill-opacity": 0.85, stroke: "currentColor", "stroke-width": 0.5 }));
    hues.forEach((hue, index) => mark(parent, 1, put([params.assemblers[0][index], params.assemblers[1][index]]), 4, { fill: hue, "fill-opacity": 0.85, stroke: "currentColor", "stroke-width": 0.5 }));
  }

  for (const name of ["loss", "gradients"]) {
    const parent = cleared(layers[name]), { span: [left, right], size } = layers[name], x = left + (right - left) * run.epochs[frame] / run.epochs.at(-1);
    line(parent, [x, 4], [x, size - 16], { "stroke-width": 1.6 });
  }
}

function say(now, state, [{ hovered }]) {
  const shown = unpack(runOf(state)), { run, labels } = shown, { epoch, loss, accuracy: [train, unseen, all] } = now;
  const chosen = sentenceOf(shown, state, hovered), tokens = shown.sentences[chosen], weights = now.attention[chosen], answers = now.probabilities[chosen];
  const label = labels[Math.floor(chosen / run.suffixes.length)], best = answers.indexOf(Math.max(...answers));
  return `Epoch ${epoch}: loss ${small(loss)}; right on ${percent(train, 1)} of the training set, `
    + `${percent(unseen, 1)} of unseen and ${percent(all, 1)} of all sequences. Invariance: suffix ${show(now.suffix, 3)}, permutation ${show(now.permutation, 3)}. `
    + `Sentence ${spelled(tokens.slice(0, run.k))} ${spelled(tokens.slice(run.k))}: ${percent(sum(weights.slice(0, run.k)), 1)} of its attention on the prefix; label ${label}, `
    + `answer ${best} with probability ${show(answers[best], 3)}${answers[label] < answers[best] ? ", wrong" : ""}.`;
}

export default explorer({ pictures: [panels], controls, compute, draw, say });
