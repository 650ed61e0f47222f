// Steps of plain layers: roots of the residual polynomial, dragged over the mean spectrum, and the exact loss by its Gauss rule.

import { axes, clamp, clipped, COLORS, curve, drawn, line, mark, show, ticksUpTo, tidy } from "./common.js";
import { explorer } from "./shell.js";

const DEPTH = 4, POINTS = 121, CUTS = 120, PURPLE = "#CC79A7", GRAY = "#6b6b6b";
const rowOf = ({ table, dim, n_context: context }) => table[`${dim} ${context}`];
// Where an axis of eigenvalues ends: beyond the Marchenko–Pastur interval and the best roots of that many layers.
const reach = (state, layers) =>
  Math.max(1.3 * (1 + Math.sqrt(state.dim / state.n_context)) ** 2, 1.15 / rowOf(state).optimal[layers - 1][0]);
const residualAt = (sizes, value) => sizes.reduce((product, size) => product * (1 - size * value), 1);

function sizesOf(state, scheme, layers) {
  const row = rowOf(state), ratio = state.dim / state.n_context;
  if (scheme === "own") return state.own.slice(0, layers);
  if (scheme === "optimal") return row.optimal[layers - 1];
  if (scheme === "constant") return Array(layers).fill(row.constant[layers - 1]);
  return Array.from(
    { length: layers },
    (_, j) => 1 / (1 + ratio + 2 * Math.sqrt(ratio) * Math.cos((2 * j + 1) * Math.PI / (2 * layers))),
  );
}

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  if (!rowOf(state)) return null; // a kernel adds the row when it is asked for
  const { nodes, weights, density } = rowOf(state), end = reach(state, state.layers), far = reach(state, DEPTH);
  const loss = (sizes) => nodes.reduce((sum, node, q) => sum + weights[q] * residualAt(sizes, node) ** 2, 0);
  const sizes = sizesOf(state, state.scheme, state.layers);
  const grid = Array.from({ length: POINTS }, (_, k) => end * k / (POINTS - 1));
  const places = Array.from({ length: CUTS }, (_, k) => far * ((k + 1) / CUTS) ** 2);
  const byDepth = (name) => Array.from({ length: DEPTH }, (_, k) => loss(sizesOf(state, name, k + 1)));
  const optimal = sizesOf(state, "optimal", state.layers),
    [reached, best] = [sizes, optimal].map(loss),
    equal = byDepth("constant");
  return {
    sizes,
    best,
    loss: reached,
    roots: sizes.map((size) => 1 / size),
    best_roots: optimal.map((size) => 1 / size),
    shares: { own: reached / state.dim, best: best / state.dim, constant: equal[state.layers - 1] / state.dim },
    ratio: reached / best,
    above: reached / best - 1,
    grid,
    residual: grid.map((value) => residualAt(sizes, value)),
    places,
    density,
    left: places.map((value, k) => density[k] * residualAt(sizes, value) ** 2),
    losses: { optimal: byDepth("optimal"), constant: equal, chebyshev: byDepth("chebyshev") },
  };
}

const UPPER = [50, 26, 312, 158], LOWER = [50, 172, 312, 288], FRAME = [50, 26, 312, 288], HIGH = 1.2;
const ZERO = (UPPER[1] + UPPER[3]) / 2, WIDTH = UPPER[2] - UPPER[0], BOX = "0 0 320 324";
const STYLES = {
  optimal: { name: "optimal", stroke: COLORS[0], "stroke-dasharray": "none", sign: 0 },
  constant: { name: "best equal", stroke: COLORS[1], "stroke-dasharray": "9 4", sign: 1 },
  chebyshev: { name: "Chebyshev", stroke: COLORS[2], "stroke-dasharray": "2 5", sign: 2 },
};
const colorOf = (scheme) => STYLES[scheme]?.stroke ?? PURPLE;
const number = (
  value,
) => (value < 1e-3 || value >= 1e4
  ? value.toExponential(2).replace("e+", "e").replace("-", "−")
  : String(Number(value.toPrecision(4))));
const tenth = (value) => (value >= 1 ? tidy(value) : value.toFixed(Math.max(0, -Math.round(Math.log10(value)))));
const percent = (value) => (value >= 1e4 ? number(value) : String(Number(value.toPrecision(3))));

// Where the root of a size is drawn, at the frame's end if it lies beyond.
const rootAt = (state, size) => UPPER[0] + WIDTH * Math.min(1 / (size * reach(state, state.layers)), 1);
// From a moved size on the steps are the reader's, starting from those shown.
function put(index) {
  return (size, state, bound) => {
    if (!rowOf(state)) return {};
    const own = [...state.own];
    sizesOf(state, state.scheme, state.layers).forEach((value, layer) => {
      own[layer] = bound ? clamp(value, bound.low, bound.high) : value;
    });
    own[index] = size;
    return { own, scheme: "own" };
  };
}

const pictures = [
  {
    label: "The residual polynomial with its roots, and below it the mean spectrum and the part of it that remains",
    box: BOX,
  },
  {
    label: "The loss per dimension for one to four layers; a click chooses their number",
    box: BOX,
    click: (x) => (x >= FRAME[0] ? { layers: columnAt(x) } : {}),
  },
];
const controls = [
  ...Array.from({ length: DEPTH }, (_, index) => ({
    trait: "own",
    kind: "handle",
    label: `Root ${index + 1}`,
    step: WIDTH / 100,
    hidden: ({ layers }) => index >= layers,
    mark(node) {
      drawn("circle", { r: 6.5, fill: "currentColor" }, node);
      node.dot = drawn("circle", { r: 5, fill: PURPLE }, node);
      node.classList.add("ao-marking"); // the question is where to put it
    },
    get: (_, now) => now?.sizes[index],
    put: put(index),
    place(size, now, state) {
      return size === undefined ? [UPPER[0], ZERO] : [rootAt(state, size), ZERO];
    },
    from(x, y, state) { // up and down keys do what right and left do
      const size = rowOf(state) ? sizesOf(state, state.scheme, state.layers)[index] : state.own[index];
      if (!rowOf(state)) return size;
      const place = Math.abs(x - rootAt(state, size)) < 1e-9 ? x + ZERO - y : x;
      return 1 / (reach(state, state.layers) * clamp((place - UPPER[0]) / WIDTH, 0.005, 1));
    },
  })),
  { trait: "dim", kind: "choice", label: "dimensions d" },
  { trait: "scheme", kind: "choice", label: "steps", names: (value) => STYLES[value]?.name ?? value },
  { trait: "n_context", label: "examples n", digits: 0 },
  { trait: "layers", label: "layers" },
  ...Array.from({ length: DEPTH }, (_, index) => ({
    trait: "own",
    label: `size of step ${index + 1}`,
    scale: "log",
    step: 0.005,
    figures: 4,
    digits: 3,
    hidden: ({ layers }) => index >= layers,
    get: (_, now) => now?.sizes[index],
    put: put(index),
  })),
];

const SIDE = { low: 0.5, high: DEPTH + 0.5 };
const columnAt = (x) => clamp(Math.round(SIDE.low + DEPTH * (x - FRAME[0]) / (FRAME[2] - FRAME[0])), 1, DEPTH);

function drawRoots(left, now, state, asking) {
  const { dim, n_context: context, layers, scheme } = state, color = colorOf(scheme), end = now.grid.at(-1);
  const place = axes(left, UPPER, { label: "", low: 0, high: end, ticks: [] }, {
    label: "r(λ)",
    low: -HIGH,
    high: HIGH,
    ticks: [-1, 0, 1],
  });
  const inside = clipped(left, UPPER);
  line(inside, place([0, 0]), place([end, 0]), { opacity: 0.5 });
  curve(inside, now.grid.map((value, k) => place([value, clamp(now.residual[k], -50, 50)])), {
    stroke: color,
    "stroke-width": 2.5,
  });
  if (!asking && scheme !== "optimal") {
    for (const size of sizesOf(state, "optimal", layers)) {
      const [x, y] = place([1 / size, 0]);
      line(inside, [x, y - 11], [x, y + 11], { stroke: COLORS[0], "stroke-width": 2.5 });
    }
  }
  drawn("circle", { cx: 56, cy: 10, r: 5, fill: color, stroke: "currentColor" }, left);
  drawn("text", { x: 66, y: 14, class: "ao-small" }, left, asking ? "roots, one per layer: drag them" : "roots: drag them");
  if (!asking && scheme !== "optimal") {
    line(left, [170, 2], [170, 18], { stroke: COLORS[0], "stroke-width": 2.5 });
    drawn("text", { x: 177, y: 14, class: "ao-small" }, left, "best roots");
  }

  const spectrum = axes(left, LOWER, { label: "eigenvalue λ", low: 0, high: end, ticks: ticksUpTo(end) }, {
    label: "spectrum",
    low: 0,
    high: 1,
    ticks: [],
  });
  const field = clipped(left, LOWER),
    shown = now.density.filter((_, k) => now.places[k] > 0.04 * end && now.places[k] < end);
  const top = 1.25 * Math.max(...shown);
  const area = (values, look) => {
    const points = [[0, 0], [0, values[0]], ...now.places.map((value, k) => [value, values[k]]), [now.places.at(-1), 0]];
    drawn("polygon", {
      points: points.map(([x, y]) => spectrum([x, clamp(y / top, 0, 50)]).map((value) => value.toFixed(2)).join(",")).join(
        " ",
      ),
      ...look,
    }, field);
  };
  area(now.density, { fill: "currentColor", opacity: 0.22 });
  area(now.left, { fill: color, "fill-opacity": 0.75, stroke: color });
  if (context < dim) drawn("rect", { x: LOWER[0], y: LOWER[1], width: 4, height: LOWER[3] - LOWER[1], fill: color }, field);
  const says = [["currentColor", 0.22, "mean spectrum of G"], [color, 0.75, "times r²: the loss"]];
  says.forEach(([fill, opacity, text], row) => {
    drawn("rect", { x: 176, y: 177 + 16 * row, width: 12, height: 11, fill, opacity }, left);
    drawn("text", { x: 193, y: 187 + 16 * row, class: "ao-small ao-halo" }, left, text);
  });
  drawn("text", { x: 193, y: 219, class: "ao-small ao-halo" }, left, `${percent(100 * now.loss / dim)}% is left`);
  if (context < dim) {
    drawn("text", { x: 193, y: 235, class: "ao-small ao-halo" }, left, `${dim - context} of ${dim} lie at 0`);
  }
}

function axesRight(right, now, { dim }, asking) {
  const all = [...asking ? [now.best] : Object.values(now.losses).flat(), now.loss].map((value) => value / dim);
  const low = 10 ** Math.floor(Math.log10(Math.min(...all, 0.9))),
    high = 10 ** clamp(Math.ceil(Math.log10(Math.max(...all))), 0, 2);
  const decades = Array.from({ length: Math.round(Math.log10(high / low)) + 1 }, (_, k) => low * 10 ** k);
  return axes(right, FRAME, { label: "layers: click to choose", ...SIDE, ticks: [1, 2, 3, 4] }, {
    label: "loss / d",
    low,
    high,
    scale: Math.log,
    ticks: decades,
    text: tenth,
  });
}

function drawLosses(right, now, state, asking) {
  const { dim, layers, scheme } = state, column = (FRAME[2] - FRAME[0]) / DEPTH;
  for (let k = 1; k <= DEPTH; k++) {
    drawn("rect", {
      x: FRAME[0] + (k - 1) * column,
      y: FRAME[1],
      width: column,
      height: FRAME[3] - FRAME[1] + 20,
      fill: "currentColor",
      opacity: k === layers ? 0.09 : 0,
      class: "ao-pick",
    }, right);
  }
  const place = axesRight(right, now, state, asking), field = clipped(right, FRAME);
  if (!asking) {
    Object.entries(STYLES).forEach(([name, { name: title, sign, ...look }], index) => {
      const points = now.losses[name].map((value, k) => place([k + 1, Math.min(value / dim, 1e9)]));
      curve(field, points, { ...look, "stroke-width": name === scheme ? 3.5 : 1.8 });
      for (const point of points) mark(field, sign, point, 4, { fill: look.stroke });
      const x = [52, 130, 222][index];
      line(right, [x, 10], [x + 20, 10], { ...look, "stroke-width": 2 });
      mark(right, sign, [x + 10, 10], 4, { fill: look.stroke });
      drawn("text", { x: x + 25, y: 14, class: "ao-small" }, right, title);
    });
  } else drawn("text", { x: 62, y: 14, class: "ao-small" }, right, "ring: the loss with your roots");
  const [x, y] = place([layers, now.loss / dim]);
  if (y >= FRAME[1]) {
    drawn("circle", {
      cx: x,
      cy: y,
      r: 8.5,
      fill: "none",
      stroke: scheme === "own" ? PURPLE : "currentColor",
      "stroke-width": 3,
    }, right);
  } else mark(right, 1, [x, FRAME[1] + 7], 6, { fill: "none", stroke: "currentColor", "stroke-width": 2 });
}

function draw([left, right], now, state, bounds, asking) {
  for (const { dot } of left.ownerSVGElement.querySelectorAll(".ao-handle")) {
    dot.setAttribute("fill", colorOf(state.scheme));
  }
  drawRoots(left, now, state, asking);
  drawLosses(right, now, state, asking);
}

function say(now, { dim, n_context: context, layers, scheme }) {
  if (!now) return `Python computes the spectrum for d = ${dim}, n = ${context} …`;
  const above = 100 * now.above, roots = now.roots.map((root) => show(root)).join(", ");
  return `d = ${dim}, n = ${context}, ${layers} ${layers === 1 ? "layer" : "layers"}, ${
    STYLES[scheme]?.name ?? "your"
  } steps of size ${now.sizes.map((size) => show(size, 3)).join(", ")}: ` +
    `loss ${number(now.loss)}, which is ${number(100 * now.shares.own)}% of the loss without layers` +
    (above < 0.005
      ? ". That is the optimum. "
      : ` and ${above < 1000 ? `${show(above, above < 10 ? 2 : 0)}% above` : `${number(now.ratio)} times`} the optimum, ${
        number(now.best)
      }. `) +
    `Errors of curvature ${roots} (the ${layers === 1 ? "root" : "roots"}) are removed.` +
    (context < dim
      ? ` No steps reach a loss below ${dim - context} because the examples leave as many directions unseen.`
      : "");
}

const guess = {
  prompt:
    "An error component of curvature λ is multiplied by r(λ), the colored curve, which is 1 at 0. Drag its three roots, one per layer, until the colored area is as small as you can make it.",
  options: ["these are my roots"],
  tells: true,
  reveal(own, { roots, best_roots: best, shares }) {
    const sorted = (values) => [...values].sort((a, b) => a - b).map((value) => show(value)).join(", ");
    return `${own ? "Your roots" : "The roots"} ${sorted(roots)} leave ${
      percent(100 * shares.own)
    }% of the loss; the best roots, ${sorted(best)}, leave ${percent(100 * shares.best)}%. ` +
      `If all layers share one root, at least ${percent(100 * shares.constant)}% remains.`;
  },
};

export default explorer({ pictures, controls, compute, draw, say, guess });
