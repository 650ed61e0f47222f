// The laboratory's panels: all that one model does with its sentences, its curves, and beside it a second model.

import { arrow, clamp, COLORS, curve, dot, drawn, element, line, mark, show, small, softmaxOf } from "./common.js";
import { movable } from "./shell.js";
import { counts, curvesOf, everySequence, inRows, LAYERS, OWN, ramp, stepped } from "./bench.js";
import { below, classify } from "./model.js";

const MARK = 12; // half the width of the largest mark
const FINE = 220, ROUGH = 56, RING = 1440, BINS = 240; // cells a side of the regions, directions tabulated for them, of curves
const HUES = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00"];
export const TOKENS = [...COLORS, "#CC79A7", "#56B4E9", "#E69F00", "#6b6b6b"];
const TINTS = TOKENS.map((color) => [1, 3, 5].map((start) => parseInt(color.slice(start, start + 2), 16)));
const INK = "rgb(110, 110, 110)";

const power = (exponent) => `10${String(exponent).replace("-", "⁻").replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit])}`;
const brief = (value) => Number(value.toPrecision(2)).toString();
export const spelled = (tokens) => tokens.join("");

// Fill a canvas cell by cell: `shade(x, y)` gives a color and its opacity, 0 to 255.
function paint(canvas, width, height, shade) {
  [canvas.width, canvas.height] = [width, height];
  const pen = canvas.getContext("2d"), image = pen.createImageData(width, height), { data } = image;
  for (let y = 0, at = 0; y < height; y++) {
    for (let x = 0; x < width; x++, at += 4) {
      const [color, opacity] = shade(x, y);
      [data[at], data[at + 1], data[at + 2]] = TINTS[color];
      data[at + 3] = opacity;
    }
  }
  pen.putImageData(image, 0, 0);
}

// The classes' regions: the class's color, the more transparent the less certain. In two dimensions the layer sees only a
// direction, up to the 1e-5 in its normalization, so one table of what each direction adds to the logits serves all cells.
function paintRegions(canvas, { model, dim, plane }, reach) {
  const { weights: { token, receptors, assemblers, receptor_biases: thresholds, assembler_bias: shift }, norm, neurons } =
      model,
    p = token.length;
  const told = (shares) => {
    const top = Math.max(...shares);
    return [shares.indexOf(top), 150 * (top - 1 / p) / (1 - 1 / p)];
  };
  if (dim !== 2) {
    const { axes: [u, w], middle } = plane,
      off = middle.map((part, f) => part - dot(middle, u) * u[f] - dot(middle, w) * w[f]);
    const cells = dim === 1 ? 1 : ROUGH;
    paint(canvas, ROUGH, cells, (column, row) => {
      const x = ((column + 0.5) * 2 / ROUGH - 1) * reach, y = dim === 1 ? 0 : (1 - (row + 0.5) * 2 / ROUGH) * reach;
      return told(classify(model, off.map((part, f) => part + x * u[f] + y * w[f])));
    });
    return;
  }
  const scale = norm === "rms" ? Math.SQRT2 : 1;
  const table = Array.from({ length: RING + 1 }, (_, index) => {
    const turn = 2 * Math.PI * index / RING, direction = [scale * Math.cos(turn), scale * Math.sin(turn)];
    const fired = receptors.map((row, i) => {
      const active = dot(row, direction) + thresholds[i];
      return neurons && !neurons[i] ? 0 : active * below(active);
    });
    const added = assemblers.map((row, f) => dot(row, fired) + shift[f]);
    return token.map((e) => dot(e, added));
  });
  paint(canvas, FINE, FINE, (column, row) => {
    const x = ((column + 0.5) * 2 / FINE - 1) * reach, y = (1 - (row + 0.5) * 2 / FINE) * reach;
    const turn = (Math.atan2(y, x) / (2 * Math.PI) + 1) % 1 * RING, low = Math.floor(turn), part = turn - low;
    const logits = token.map((e, v) => e[0] * x + e[1] * y + table[low][v] + part * (table[low + 1][v] - table[low][v]));
    return told(softmaxOf(logits).weights);
  });
}

const OTHER = ["━", "second run", HUES[3]]; // in a key where there is one
const PANELS = [
  [
    "positions",
    "E and P: drag a token or a position",
    "Token embeddings, and position embeddings as numbers in circles (prefix) and squares (suffix)",
    {},
  ],
  [
    "embeddings",
    "normalized sums Z(x, t), query q",
    "Normalized embeddings of all tokens at all positions, with the query as an arrow",
    {},
  ],
  [
    "attention",
    "attention: one row per sequence, one column per position",
    "Attention of every sequence to its tokens; that of the chosen sequence in percent",
    { canvas: true },
  ],
  [
    "values",
    "values VZ(x, t), ◎ their weighted mean ξ",
    "Values V Z(x, t); those of the chosen sequence joined to its sequence embedding",
    {},
  ],
  [
    "sequence",
    "ξ of all sequences, by level M",
    "Sequence embeddings of all sequences, colored by their level; the chosen ones outlined",
    { canvas: true },
  ],
  [
    "regions",
    "answers: dots are sequences, ✕ marks wrong ones; the background shows the answer there",
    "Regions of the classes in the plane of sequence embeddings",
    { canvas: true },
  ],
  ["neurons", "receptors wᵢ ●, assemblers uᵢ ▲", "Receptors and assemblers; the two of a neuron have one color", {}],
  [
    "ladder",
    "ladder: level M against ξ",
    "The level of every sequence against its sequence embedding, along the line from the lowest to the highest level, colored by label",
    { canvas: true },
  ],
  [
    "count",
    "m, the weight of each position in the count",
    "The integer weight of each position, with a line between prefix and suffix",
    {},
  ],
  ["loss", "loss and accuracy", "Training loss and accuracy against the epoch", {
    key: [["━", "training", HUES[0]], ["╍", "unseen", HUES[1]], OTHER],
  }],
  [
    "influences",
    "influences ‖δ‖ (prefix bold), parity coefficient π",
    "Influence of each position, those of the prefix bold, and the parity coefficient against the epoch",
    { key: [OTHER] },
  ],
  ["gradients", "gradient norms", "Norms of the loss’s gradient, one curve per weight matrix or vector", {
    key: LAYERS.map(([, letter], index) => ["━", letter, HUES[index]]),
  }],
];
const FIRST = ["regions", "attention", "loss"]; // what a newcomer looks at; the others fold
const SECOND = ["sequence", "ladder", "count"];

// The panels, and what pointing at them does. What is drawn is kept here: the sentence under the mouse, sizes, handles.
export function panels(root, link) {
  root.classList.add("ao-sandbox");
  const about = element("p", { class: "ao-about" }), grid = element("div", { class: "ao-panels" }), layers = {};
  const beside = element("div", { class: "ao-beside" }, element("p", { class: "ao-about" })),
    second = element("div", { class: "ao-panels" });
  beside.append(second);
  const more = element("div", { class: "ao-panels" }),
    rest = element(
      "details",
      { class: "ao-fold ao-more" },
      element("summary", {}, `${PANELS.length - FIRST.length} more panels: embeddings, values, neurons, the count`),
      more,
    );
  rest.addEventListener("toggle", link.redraw); // its panels have a size now
  root.append(grid, rest, about, beside); // what changes its height stands below what is dragged
  const view = { root, about, layers, beside, hovered: null, built: "", shown: null, sentences: null, handles: "" };
  const panel = (parent, key, [name, title, label, { canvas = false, key: signs = [] }]) => {
    const plot = element("div", { class: "ao-plot" }), caption = element("div", { class: "ao-caption" }, title);
    for (const sign of signs) {
      const [line, text, color] = sign, said = element("span", { class: "ao-key" }, element("b", {}, line), text);
      if (sign === OTHER) said.classList.add("ao-second");
      if (color) said.firstChild.style.color = color;
      caption.append(" ", said);
    }
    const note = element("span");
    caption.append(note);
    parent.append(element("div", { class: `ao-panel ao-panel-${key}` }, caption, plot));
    const cloth = canvas ? element("canvas", { "aria-hidden": "true" }) : null;
    if (cloth) plot.append(cloth);
    const svg = drawn("svg", { role: name === "positions" ? "group" : "img", "aria-label": label }, plot);
    layers[key] = { plot, svg, cloth, note, behind: drawn("g", {}, svg), front: drawn("g", {}, svg), places: [] };
  };
  for (const name of FIRST) panel(grid, name, PANELS.find((one) => one[0] === name));
  for (const one of PANELS) if (!FIRST.includes(one[0])) panel(more, one[0], one);
  for (const name of SECOND) panel(second, `${name}-2`, PANELS.find((one) => one[0] === name));
  layers.positions.handles = drawn("g", {}, layers.positions.svg);

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
      return row >= 0 && row < view.sentences.sentences.length ? row : null;
    };
    const hover = (index) => {
      if (index === view.hovered) return;
      view.hovered = index;
      link.redraw();
    };
    layer.svg.addEventListener("pointermove", (event) => {
      if (event.pointerType === "mouse") hover(find(event));
    });
    layer.svg.addEventListener("pointerleave", () => hover(null));
    layer.svg.addEventListener("click", (event) => {
      const index = find(event), { prefixes, suffixes: { length: many } } = view.sentences;
      if (index !== null && index < prefixes.length * many) {
        link.update({ prefix: Math.floor(index / many), suffix: index % many, sequence: "" });
      }
    });
    layer.svg.classList.add("ao-pick");
  }
  for (const name of ["loss", "influences", "gradients"]) {
    const { svg } = layers[name];
    const seek = (event) => {
      if (!view.reach) return;
      const box = svg.getBoundingClientRect(), [left, right] = layers[name].span;
      const wanted = clamp((event.clientX - box.left - left) / (right - left), 0, 1) * view.reach;
      link.update({ epoch: view.snap(wanted) });
    };
    // A finger seeks by a tap or sideways; up or down it scrolls the page.
    svg.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse") seek(event);
    });
    svg.addEventListener("pointermove", (event) => {
      if (event.buttons && (event.pointerType === "mouse" || Math.abs(event.movementX) > Math.abs(event.movementY))) {
        seek(event);
      }
    });
    svg.addEventListener("click", seek);
    svg.classList.add("ao-seek");
  }
  return view;
}

const frameOf = (parent, [left, top_, right, bottom]) =>
  drawn("rect", {
    x: left,
    y: top_,
    width: right - left,
    height: bottom - top_,
    fill: "none",
    stroke: "currentColor",
    opacity: 0.35,
  }, parent);
const tiny = (parent, x, y, text, anchor = "middle", more = "") =>
  drawn("text", { x, y, "text-anchor": anchor, class: `ao-tiny ${more}` }, parent, text);
function cleared({ front }) {
  front.replaceChildren();
  return front;
}
// A square plane about the origin, and the map into it from vectors, which are seen along the plane's axes.
function planeOf(layer, reach, { axes: [u, w] }, note = `±${brief(reach)}${u.length > 2 ? ", principal axes of ξ" : ""}`) {
  const parent = cleared(layer), { size } = layer, half = size / 2;
  frameOf(parent, [0.5, 0.5, size - 0.5, size - 0.5]);
  line(parent, [0, half], [size, half], { opacity: 0.15 });
  line(parent, [half, 0], [half, size], { opacity: 0.15 });
  drawn("text", { x: size - 4, y: size - 5, "text-anchor": "end", class: "ao-small ao-halo", opacity: 0.8 }, parent, note);
  return [parent, (v) => [half + half * dot(v, u) / reach, half - half * dot(v, w) / reach]];
}

// Whether a label has room: far enough from all that were placed, among which it is then.
function placed(taken, [x, y], wide = 11, high = 10) {
  if (taken.some(([u, v]) => Math.abs(x - u) < wide && Math.abs(y - v) < high)) return false;
  return taken.push([x, y]);
}

// Of a curve with many points, the first, least and greatest of each bin.
function thinned(points) {
  if (points.length <= 3 * BINS) return points;
  const found = [], size = points.length / BINS;
  for (let bin = 0; bin < BINS; bin++) {
    const part = points.slice(Math.floor(bin * size), Math.floor((bin + 1) * size)),
      high = part.reduce((a, b) => (b[1] > a[1] ? b : a)),
      low = part.reduce((a, b) => (b[1] < a[1] ? b : a));
    found.push(...[...new Set([part[0], high, low])].sort((a, b) => a[0] - b[0]));
  }
  return [...found, points.at(-1)];
}

// Sizes, and the curves.
function build(view, state) {
  const { layers } = view;
  for (const layer of Object.values(layers)) {
    layer.size = layer.plot.clientWidth || 230;
    layer.svg.setAttribute("viewBox", `0 0 ${layer.size} ${layer.size}`);
    layer.behind.replaceChildren();
  }
  const own = curvesOf(state), other = state.run === OWN && state.fork ? curvesOf(state, "other") : null;
  const reach = view.reach = Math.max(own.epoch.at(-1) ?? 0, other?.epoch.at(-1) ?? 0) || 1, dots = own.axis === "model";
  const curves = (name, series, top_, bottom, { log = false, low, high, ticks, text, epochs = false }) => {
    const { behind, size } = layers[name], [left, right] = [34, size - 6], scale = log ? Math.log10 : Number;
    layers[name].span = [left, right];
    const put = (
      [epoch, value],
    ) => [
      left + (right - left) * epoch / reach,
      bottom - (bottom - top_) * (scale(clamp(value, low, high)) - scale(low)) / (scale(high) - scale(low)),
    ];
    frameOf(behind, [left, top_, right, bottom]);
    for (const tick of ticks) {
      const y = put([0, tick])[1];
      line(behind, [left, y], [right, y], { opacity: 0.15 });
      drawn("text", { x: left - 4, y: y + 4, "text-anchor": "end", class: "ao-small" }, behind, text(tick));
    }
    if (epochs) {
      for (const tick of [0, 0.5, 1]) {
        drawn(
          "text",
          {
            x: put([tick * reach, low])[0],
            y: bottom + 14,
            "text-anchor": ["start", "middle", "end"][2 * tick],
            class: "ao-small",
          },
          behind,
          brief3(tick * reach),
        );
      }
    }
    for (const { epoch, values, color, dash, wide = 1.4, faint = 1 } of series) {
      if (!values) continue;
      const points = epoch.map((one, index) => [one, values[index]]).filter(([, value]) =>
        value !== null && Number.isFinite(value)
      );
      if (dots) {
        for (const point of points) {
          const [x, y] = put(point);
          drawn("circle", { cx: x, cy: y, r: 1.6, fill: color }, behind);
        }
      } else {curve(behind, thinned(points).map(put), {
          stroke: color,
          "stroke-width": wide,
          opacity: faint,
          ...(dash ? { "stroke-dasharray": dash } : {}),
        });}
    }
  };
  const decades = (lists) => {
    const positive = lists.flat().filter((value) => value > 0 && Number.isFinite(value));
    if (!positive.length) return { low: 0, high: 1, ticks: [], text: String };
    const ends = positive.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, 0]);
    const end = Math.max(Math.ceil(Math.log10(ends[1])), Math.floor(Math.log10(ends[1])) + 1),
      first = Math.min(end - 1, Math.max(Math.floor(Math.log10(ends[0])), end - 8));
    const gap = Math.ceil((end - first) / 4);
    return {
      log: true,
      low: 10 ** first,
      high: 10 ** end,
      ticks: Array.from({ length: Math.floor((end - first) / gap) + 1 }, (_, index) => 10 ** (first + gap * index)),
      text: (tick) => power(Math.round(Math.log10(tick))),
    };
  };
  const { size } = layers.loss,
    middle = size * 0.52,
    both = (make) => [make(own, 1), ...(other ? [make(other, 0.95)] : [])].flat();
  const faint = (one, share, extra) => ({ epoch: one.epoch, faint: share, ...extra });
  const losses = both((one, share) => faint(one, share, { values: one.loss, color: share < 1 ? HUES[3] : HUES[0] }));
  if (own.loss) curves("loss", losses, 6, middle - 6, decades(losses.map(({ values }) => values)));
  else layers.loss.span = [34, size - 6];
  const accuracies = both((one, share) => [
    faint(one, share, { values: one.train ?? one.all, color: share < 1 ? HUES[3] : HUES[0] }),
    faint(one, share, { values: one.unseen, color: share < 1 ? HUES[3] : HUES[1], dash: "5 2" }),
  ]);
  curves("loss", accuracies, own.loss ? middle + 6 : 6, size - 18, {
    low: 0,
    high: 1,
    ticks: [0, 0.5, 1],
    text: (tick) => tick === 0.5 ? "½" : String(tick),
    epochs: true,
  });
  const { readings } = own, some = readings.influences?.some(Boolean);
  if (some) {
    const columns = Array.from(
        { length: readings.influences.find(Boolean).length },
        (_, t) => readings.influences.map((row) => row?.[t] ?? null),
      ),
      k = view.shown.task.k;
    curves(
      "influences",
      columns.map((values, t) => ({
        epoch: readings.epoch,
        values,
        color: t < k ? TOKENS[0] : INK,
        wide: t < k ? 1.8 : 0.9,
        faint: t < k ? 0.9 : 0.6,
      })),
      6,
      middle - 6,
      decades(columns.map((values) => values.map((value) => (value > 1e-3 ? value : 0)))),
    );
    const top = Math.max(0.1, ...readings.parity.filter(Number.isFinite)),
      least = Math.min(0, ...readings.parity.filter(Number.isFinite));
    curves(
      "influences",
      [
        { epoch: readings.epoch, values: readings.parity, color: HUES[2] },
        ...(other?.readings.parity
          ? [{ epoch: other.readings.epoch, values: other.readings.parity, color: HUES[3], faint: 0.95 }]
          : []),
      ],
      middle + 6,
      size - 18,
      { low: least, high: top, ticks: [0, top], text: (tick) => (tick ? brief(tick) : "0"), epochs: true },
    );
    small(layers.influences.behind, 40, middle + 20, "π");
  } else {
    layers.influences.span = [34, size - 6];
    tiny(layers.influences.behind, size / 2, size / 2, "only for p = 2 and L ≤ 13");
  }
  const layered = LAYERS.map(([name]) => own[name]).filter(Boolean);
  if (layered.length) {
    curves(
      "gradients",
      LAYERS.map(([name], index) => ({ epoch: own.epoch, values: own[name], color: HUES[index] })),
      6,
      size - 18,
      { ...decades(layered), epochs: true },
    );
  } else {
    layers.gradients.span = [34, size - 6];
    tiny(layers.gradients.behind, size / 2, size / 2, "only for training runs");
  }
}
const brief3 = (value) => String(Number(value.toPrecision(3)));

// The number of the sentence that lights up: the one under the mouse, or the chosen one.
export function sentenceOf({ prefixes, suffixes, chosen }, { prefix, suffix }, hovered) {
  return hovered ?? chosen ??
    Math.min(prefix, prefixes.length - 1) * suffixes.length + Math.min(suffix, suffixes.length - 1);
}

// A level for each sequence, if what is counted is small, and a color for each level.
function levelsOf({ m, task }) {
  const all = everySequence(task);
  if (!m || !all.complete || !counts(m)) return null;
  const level = new Int16Array(all.count);
  for (let n = 0; n < all.count; n++) {
    for (let t = 0; t < task.length; t++) level[n] += m[t] * all.tokens[n * task.length + t];
  }
  const values = [...new Set(level)].sort((a, b) => a - b), index = new Map(values.map((value, at) => [value, at]));
  return { level, values, index, labels: all.labels, count: all.count };
}

// Dots on a canvas, at the screen's own resolution.
function dotted(layer, count, place, color, size = 2.2) {
  const scale = globalThis.devicePixelRatio || 1, { cloth } = layer;
  [cloth.width, cloth.height] = [layer.size * scale, layer.size * scale];
  const pen = cloth.getContext("2d");
  pen.scale(scale, scale);
  pen.globalAlpha = 0.55;
  for (let n = 0; n < count; n++) {
    const [x, y] = place(n);
    pen.fillStyle = color(n);
    pen.fillRect(x - size / 2, y - size / 2, size, size);
  }
}

// Half the width of a plane that holds ξ of all sequences, however it is turned.
function roomOf({ xi, dim, reaches: { sequence } }) {
  let top = 0;
  for (let at = 0; at < xi.length; at += dim) {
    let square = 0;
    for (let f = 0; f < dim; f++) {
      square += xi[at + f] ** 2;
      if (dim < 3) top = Math.max(top, Math.abs(xi[at + f]));
    }
    if (dim > 2) top = Math.max(top, Math.sqrt(square));
  }
  return Math.max(sequence, stepped(top));
}

// ξ of all sequences, its levels with their numbers, the ladder, and the integers.
function drawCount(layers, suffix, shown, state, chosen) {
  const { xi, dim, plane, task, m, explained } = shown,
    reach = roomOf(shown),
    levels = levelsOf(shown),
    { axes: [u, w] } = plane;
  const layer = layers[`sequence${suffix}`], [parent, put] = planeOf(layer, reach, plane), half = layer.size / 2;
  const at = (n) => {
    let [x, y] = [0, 0];
    for (let f = 0; f < dim; f++) {
      x += xi[n * dim + f] * u[f];
      y += xi[n * dim + f] * w[f];
    }
    return [x, y];
  };
  const all = everySequence(task),
    hues = levels?.values.map((_, index) =>
      `rgb(${ramp(levels.values.length > 1 ? index / (levels.values.length - 1) : 0).map(Math.round)})`
    );
  const color = (n) => (levels ? hues[levels.index.get(levels.level[n])] : TOKENS[all.labels[n]]);
  dotted(layer, all.count, (n) => {
    const [x, y] = at(n);
    return [half + half * x / reach, half - half * y / reach];
  }, color);
  layer.places = inRows(shown, state).through.sequence.map(put);
  layer.places.forEach(([x, y]) =>
    drawn("circle", { cx: x, cy: y, r: 3, fill: "none", stroke: "currentColor", "stroke-width": 0.5, opacity: 0.6 }, parent)
  );
  const [cx, cy] = layer.places[chosen];
  drawn("circle", { cx, cy, r: 9, fill: "none", stroke: "currentColor", "stroke-width": 2 }, parent);

  const ladder = layers[`ladder${suffix}`],
    group = cleared(ladder),
    { size } = ladder,
    [left, right, top, bottom] = [26, size - 6, 8, size - 20];
  frameOf(group, [left, top, right, bottom]);
  if (levels) {
    const sums = levels.values.map(() => [0, 0, 0]);
    for (let n = 0; n < levels.count; n++) {
      const [x, y] = at(n), one = sums[levels.index.get(levels.level[n])];
      one[0] += x;
      one[1] += y;
      one[2] += 1;
    }
    const centers = sums.map(([x, y, count]) => [x / count, y / count]);
    if (levels.values.length <= 24) {
      const taken = [], spot = ([x, y]) => [half + half * x / reach, half - half * y / reach];
      centers.forEach((center, index) => {
        const [x, y] = spot(center), look = { "text-anchor": "middle", class: "ao-small ao-halo" };
        if (placed(taken, [x, y], 16, 12)) drawn("text", { x, y: y - 6, ...look }, parent, show(levels.values[index], 0));
      });
    }
    // The main axis: from the lowest level's middle to the highest one's.
    const first = centers[0],
      end = centers.at(-1),
      length = Math.hypot(end[0] - first[0], end[1] - first[1]) || 1,
      axis = [(end[0] - first[0]) / length, (end[1] - first[1]) / length];
    const along = Float64Array.from({ length: levels.count }, (_, n) => {
      const [x, y] = at(n);
      return x * axis[0] + y * axis[1];
    });
    const ends = along.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]),
      wide = ends[1] - ends[0] || 1;
    const height = (index) => bottom - (bottom - top) * (index + 0.5) / levels.values.length;
    const thick = (bottom - top) / levels.values.length;
    levels.values.forEach((value, index) => {
      if (levels.values.length <= 18 || index % Math.ceil(levels.values.length / 18) === 0) {
        drawn("text", { x: left - 4, y: height(index) + 4, "text-anchor": "end", class: "ao-small" }, group, show(value, 0));
      }
    });
    dotted(
      ladder,
      levels.count,
      (
        n,
      ) => [
        left + 5 + (right - left - 10) * (along[n] - ends[0]) / wide,
        height(levels.index.get(levels.level[n])) + (((n * 2654435761) % 1024) / 1024 - 0.5) * 0.6 * thick,
      ],
      (n) => TOKENS[levels.labels[n]],
    );
    tiny(group, (left + right) / 2, size - 6, "ξ along the levels; color: label");
  } else {
    ladder.cloth.width = ladder.cloth.height = 1;
    tiny(group, (left + right) / 2, size / 2, m ? "no count with small integer weights" : "only for p = 2 and L ≤ 13");
  }

  const bars = layers[`count${suffix}`], box = cleared(bars), wide = bars.size;
  frameOf(box, [0.5, 0.5, wide - 0.5, wide - 0.5]);
  if (!m) return void tiny(box, wide / 2, wide / 2, "only for p = 2 and L ≤ 13");
  const most = Math.max(2, Math.min(9, Math.max(...m.map(Math.abs)))),
    unit = (wide - 12) / task.length,
    zero = wide / 2,
    tall = (wide / 2 - 40) / most;
  line(box, [6, zero], [wide - 6, zero], { opacity: 0.5 });
  line(box, [6 + task.k * unit, 18], [6 + task.k * unit, wide - 18], { "stroke-dasharray": "3 3", opacity: 0.6 });
  m.forEach((value, t) => {
    const x = 6 + unit * t, height = tall * clamp(value, -most, most);
    drawn("rect", {
      x: x + 2,
      y: Math.min(zero, zero - height),
      width: Math.max(1, unit - 4),
      height: Math.abs(height),
      fill: t < task.k ? TOKENS[0] : INK,
      "fill-opacity": Math.abs(value) > most ? 0.25 : 0.75,
    }, box);
    tiny(box, x + unit / 2, value < 0 ? zero - height + 13 : zero - height - 5, Math.abs(value) > 99 ? "…" : show(value, 0));
  });
  tiny(box, 6 + task.k * unit / 2, 14, task.rule ? "first k" : "prefix");
  if (task.k < task.length) tiny(box, 6 + (task.k + task.length) * unit / 2, 14, task.rule ? "others" : "suffix");
  const read = counts(m)
    ? [`explains ${show(100 * explained, 1)}% of ξ's variance`]
    : m.some(Boolean)
    ? ["pale bars (|m| > 9) mean nothing:", "large integers fit any data"]
    : ["no count with small integer weights"];
  read.forEach((text, at) => tiny(box, wide / 2, wide - 7 - 10 * (read.length - 1 - at), text));
}

// Handles for the embeddings: as many as there are, kept while they are dragged.
function handlesFor(view, state, link, move) {
  const { layers: { positions: layer }, shown: { task } } = view, key = `${task.p} ${task.length}`;
  if (key !== view.handles) {
    view.handles = key;
    layer.handles.replaceChildren();
    layer.movable = [];
    const add = (kind, at, label) => {
      const node = drawn("g", {}, layer.handles), handle = { node, kind, at, place: [0, 0] };
      movable(node, { label, step: 4, place: () => handle.place, move: (x, y) => move(kind, at, handle.from(x, y)) });
      layer.movable.push(handle);
    };
    for (let t = 0; t < task.length; t++) add("position", t, `position ${t + 1}`);
    for (let x = 0; x < task.p; x++) add("token", x, `token ${x}`);
  }
}

export function drawPanels(view, now, state, link, move, second) {
  const { layers } = view,
    { task, dim, model, reaches, plane, epoch } = now,
    { found: sentences, through } = inRows(now, state);
  view.shown = now;
  view.sentences = sentences;
  for (const one of view.root.querySelectorAll(".ao-second")) one.hidden = !second;
  if (view.hovered >= sentences.sentences.length) view.hovered = null;
  const wanted = [
    state.run,
    state.fork,
    layers.loss.plot.clientWidth,
    layers.count.plot.clientWidth,
    ...(state.run === OWN
      ? ["own", "other"].flatMap((which) => {
        const { epoch, loss } = curvesOf(state, which);
        return [epoch.length, epoch.at(-1), loss.at(-1)]; // a change replaces the last
      })
      : []),
    Boolean(second),
  ].join();
  if (wanted !== view.built) build(view, state);
  view.built = wanted;
  const { sentences: list, labels, colors, hues } = sentences,
    { embeddings, values, attention, sequence, probabilities } = through,
    { weights } = model;
  const many = sentences.suffixes.length,
    label = (n) => labels[n],
    color = (n) => hues[n];
  const chosen = sentenceOf(sentences, state, view.hovered), tokens = list[chosen], shares = attention[chosen];
  const room = roomOf(now),
    kind = (t) => (t < task.k ? 0 : 2),
    wrong = probabilities.map((row, n) => row[label(n)] < Math.max(...row));
  const off = (t) => model.positions && !model.positions[t];

  {
    const { size } = layers.positions, inset = reaches.embeddings * size / (size - 2 * MARK); // so that marks stay in the frame
    const [parent, put] = planeOf(layers.positions, inset, plane);
    handlesFor(view, state, link, move);
    const { axes: [u, w] } = plane;
    for (const handle of layers.positions.movable) {
      const vector = weights[handle.kind][handle.at], at = handle.place = put(vector);
      handle.from = (x, y) => {
        const [dx, dy] = [
          (x - size / 2) * 2 * inset / size - dot(vector, u),
          (size / 2 - y) * 2 * inset / size - dot(vector, w),
        ];
        return vector.map((part, f) => part + dx * u[f] + dy * w[f]);
      };
      handle.node.setAttribute("transform", `translate(${at[0]} ${at[1]})`);
    }
    weights.position.forEach((vector, t) => {
      mark(parent, kind(t), put(vector), 6.5, {
        fill: "currentColor",
        "fill-opacity": off(t) ? 0 : t < task.k ? 0.85 : 0.12,
        stroke: "currentColor",
        "stroke-width": 0.8,
        ...(off(t) ? { "stroke-dasharray": "2 2" } : {}),
      });
    });
    weights.token.forEach((vector, x) => {
      const at = put(vector), r = 8;
      drawn("polygon", {
        points: `${at[0]},${at[1] - 1.3 * r} ${at[0] + 1.3 * r},${at[1]} ${at[0]},${at[1] + 1.3 * r} ${at[0] - 1.3 * r},${
          at[1]
        }`,
        fill: TOKENS[x],
        stroke: "currentColor",
        "stroke-width": 0.8,
      }, parent);
    });
    // Numbers after all marks, each where it covers no other.
    const taken = [];
    weights.token.forEach((vector, x) => {
      const at = put(vector), look = { class: "ao-small", style: "fill: #fff; font-weight: 600" };
      if (placed(taken, at, 16, 16)) {
        drawn("text", { x: at[0], y: at[1] + 4, "text-anchor": "middle", ...look }, parent, String(x));
      }
    });
    weights.position.forEach((vector, t) => {
      const at = put(vector), dark = t < task.k && !off(t);
      if (placed(taken, at, 13, 12)) {
        drawn(
          "text",
          {
            x: at[0],
            y: at[1] + 3,
            "text-anchor": "middle",
            class: "ao-tiny",
            style: `fill: ${dark ? "var(--ao-paper)" : "currentColor"}`,
          },
          parent,
          t + 1,
        );
      }
    });
  }

  // The embeddings of all tokens at all positions, those of the chosen sentence in full.
  const cloud = (parent, put, vectors, radius) => {
    for (const passing of [true, false]) {
      vectors.forEach((row, x) =>
        row.forEach((z, t) => {
          if ((tokens[t] !== x) !== passing) return;
          mark(parent, kind(t), put(z), passing ? 3 : radius(t), {
            fill: TOKENS[x],
            "fill-opacity": passing ? 0.35 : 0.9,
            stroke: "currentColor",
            "stroke-width": passing ? 0 : 0.9,
          });
        })
      );
    }
  };
  {
    const radius = model.norm === "rms" ? Math.sqrt(dim) : 1, length = Math.hypot(...weights.query);
    const [parent, put] = planeOf(layers.embeddings, 1.25 * radius, plane, `‖q‖ = ${show(length, 1)}`),
      [cx, cy] = [layers.embeddings.size / 2, layers.embeddings.size / 2];
    if (dim < 3) drawn("circle", { cx, cy, r: cx / 1.25, fill: "none", stroke: "currentColor", opacity: 0.35 }, parent);
    cloud(parent, put, embeddings, (t) => 3.5 + 7 * Math.sqrt(shares[t]));
    if (length > 0) {
      arrow(
        parent,
        [cx, cy],
        put(weights.query.map((part) => 0.85 * radius * (1 - Math.exp(-length)) * part / length)),
        { "stroke-width": 2.2 },
      );
    }
  }

  {
    const layer = layers.attention,
      parent = cleared(layer),
      { size, cloth } = layer,
      gutter = 12,
      strip = 40,
      height = size - strip,
      unit = (size - gutter) / task.length;
    layer.rowHeight = height / list.length;
    layer.note.textContent = list.length < sentences.total
      ? ` (a sample of ${list.length} of ${sentences.total} sequences)`
      : ` (all ${list.length} sequences)`;
    Object.assign(cloth.style, {
      left: `${gutter}px`,
      top: "0",
      width: `${size - gutter}px`,
      height: `${height}px`,
      imageRendering: "pixelated",
    });
    paint(cloth, task.length, list.length, (t, n) => [list[n][t], 255 * Math.sqrt(attention[n][t])]);
    frameOf(parent, [gutter + 0.5, 0.5, size - 0.5, height]);
    line(parent, [gutter + task.k * unit, 0], [gutter + task.k * unit, height], { "stroke-width": 1.5, opacity: 0.8 });
    colors.forEach((one, number) =>
      drawn("rect", {
        x: 2,
        y: layer.rowHeight * many * number + 0.5,
        width: 6,
        height: Math.max(0.5, layer.rowHeight * many - 1),
        fill: one,
      }, parent)
    );
    const top = Math.max(1, layer.rowHeight * chosen - 1); // of the first row, too
    drawn("rect", {
      x: 1,
      y: top,
      width: size - 2,
      height: layer.rowHeight * (chosen + 1) + 1 - top,
      fill: "none",
      stroke: "currentColor",
      "stroke-width": 2,
    }, parent);
    tokens.forEach((x, t) => {
      const left = gutter + unit * t + 0.5;
      drawn("rect", {
        x: left,
        y: height + 8,
        width: Math.max(1, unit - 1),
        height: 16,
        fill: TOKENS[x],
        "fill-opacity": Math.sqrt(shares[t]),
      }, parent);
      drawn("text", { x: left + unit / 2, y: height + 20, "text-anchor": "middle", class: "ao-small" }, parent, String(x));
      tiny(parent, left + unit / 2, height + 36, show(100 * shares[t], 0));
    });
    tiny(parent, 0, height + 36, "%", "start");
    line(parent, [gutter + task.k * unit, height + 6], [gutter + task.k * unit, size], {
      "stroke-width": 1.5,
      opacity: 0.8,
    });
  }

  {
    const [parent, put] = planeOf(layers.values, reaches.values, plane), end = put(sequence[chosen]);
    tokens.forEach((x, t) =>
      line(parent, put(values[x][t]), end, { "stroke-width": 0.3 + 5 * shares[t], opacity: 0.45, stroke: TOKENS[x] })
    );
    cloud(parent, put, values, (t) => 3.5 + 7 * Math.sqrt(shares[t]));
    drawn(
      "circle",
      { cx: end[0], cy: end[1], r: 6, fill: color(chosen), stroke: "currentColor", "stroke-width": 2 },
      parent,
    );
    drawn("circle", { cx: end[0], cy: end[1], r: 9.5, fill: "none", stroke: "currentColor", "stroke-width": 1 }, parent);
  }

  {
    const layer = layers.regions, [parent, put] = planeOf(layer, room, plane);
    layer.places = sequence.map(put);
    layer.places.forEach((at, n) => {
      mark(parent, label(n) % 3, at, 4, {
        fill: color(n),
        stroke: "currentColor",
        "stroke-width": 0.6,
        "fill-opacity": 0.9,
      });
      if (wrong[n]) {
        for (const side of [1, -1]) {
          line(parent, [at[0] - 5, at[1] - 5 * side], [at[0] + 5, at[1] + 5 * side], { "stroke-width": 1.4 });
        }
      }
    });
    const [x, y] = layer.places[chosen];
    drawn("circle", { cx: x, cy: y, r: 10, fill: "none", stroke: "currentColor", "stroke-width": 2 }, parent);
    paintRegions(layer.cloth, now, room);
  }

  {
    const [parent, put] = planeOf(layers.neurons, reaches.neurons, plane),
      { size } = layers.neurons,
      xi = put(sequence[chosen]).map((part) => part - size / 2),
      length = Math.hypot(...xi) || 1;
    line(parent, [size / 2, size / 2], xi.map((part) => size / 2 + size * part / length), {
      "stroke-dasharray": "4 3",
      opacity: 0.6,
    });
    const hue = (index) => {
      const [x, y] = put(weights.receptors[index]);
      return `hsl(${(Math.atan2(size / 2 - y, x - size / 2) * 180 / Math.PI + 360) % 360} 65% 50%)`;
    };
    weights.receptors.forEach((receptor, index) => {
      const on = !model.neurons || model.neurons[index],
        look = { fill: on ? hue(index) : "none", "fill-opacity": 0.85, stroke: "currentColor", "stroke-width": 0.5 };
      mark(parent, 0, put(receptor), 4, look);
      mark(parent, 1, put(weights.assemblers.map((row) => row[index])), 4, look);
    });
  }

  drawCount(layers, "", now, state, chosen);
  if (second) drawCount(layers, "-2", second, state, chosen);
  for (const name of ["loss", "influences", "gradients"]) {
    const parent = cleared(layers[name]),
      { span: [left, right], size } = layers[name],
      x = left + (right - left) * clamp(epoch / view.reach, 0, 1);
    line(parent, [x, 4], [x, size - 16], { "stroke-width": 1.6 });
  }
}
