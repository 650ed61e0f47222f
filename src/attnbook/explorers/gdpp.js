// Plain steps and GD++: what its layers do to eigenvalues and errors, and the losses by depth.

import { axes, clamp, clipped, COLORS, curve, drawn, judged, line, mark, power, powers, show, ticksUpTo } from "./common.js";
import { explorer } from "./shell.js";

const DIM = 5, POINTS = 181, REACH = 1.5, BEYOND = 1e30, FAR = 14;
const METHODS = {
  constant: { name: "one step size", stroke: COLORS[1], "stroke-dasharray": "2 4", sign: 1 },
  plain: { name: "optimal steps", stroke: COLORS[0], "stroke-dasharray": "9 4", sign: 0 },
  gdpp: { name: "GD++", stroke: COLORS[2], "stroke-dasharray": "none", sign: 2 },
};
const bounded = (value) => (value <= BEYOND ? value : null);

// What k layers do to one eigenvalue: the residual after 0 … k of them, and the eigenvalue before each.
function follow(here, method, k, start) {
  const steps = here[method][k - 1], curvatures = method === "gdpp" ? here.curvatures[k - 1] : [];
  let value = start;
  const seen = [], kept = [1];
  for (let layer = 0; layer < k; layer++) {
    seen.push(value);
    kept.push(kept[layer] * (1 + steps[layer] * value));
    if (layer + 1 < k) value *= (1 + (curvatures[layer] ?? 0) * value) ** 2;
  }
  return { kept, seen };
}

function bulkOf({ nodes, weights }) {
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return nodes.filter((_, index) => weights[index] / total >= 1e-4);
}

// The numbers that the picture shows; the Python class computes the same.
export function compute({ context, layers, scale, table }) {
  const here = table[context], chosen = bulkOf(here).map((node) => scale ** 2 * node);
  const grid = Array.from({ length: POINTS }, (_, index) => REACH * chosen.at(-1) * index / (POINTS - 1));
  const perMethod = (value) => Object.fromEntries(Object.keys(METHODS).map((name) => [name, value(name)]));
  const loss = (name, k) =>
    here.nodes.reduce(
      (sum, node, index) => sum + here.weights[index] * follow(here, name, k, scale ** 2 * node).kept[k] ** 2,
      0,
    ) / DIM;
  const losses = perMethod((name) => here[name].map((_, index) => bounded(loss(name, index + 1)))),
    reached = losses.gdpp[layers - 1];
  const ways = chosen.map((node) => follow(here, "gdpp", layers, node)),
    turned = (rows) => rows[0].map((_, column) => rows.map((row) => row[column]));
  return {
    grid,
    nodes: chosen,
    spread: [chosen[0], chosen.at(-1)],
    residuals: perMethod((name) => grid.map((value) => follow(here, name, layers, value).kept[layers])),
    losses,
    worth: losses.plain.findIndex((value) => reached === null || (value !== null && value <= (1 + 1e-6) * reached)) + 1,
    carried: turned(ways.map(({ seen }) => seen)),
    kept: turned(ways.map(({ kept }) => kept)),
    roots: here.gdpp[layers - 1].map((step) => -1 / step),
  };
}

const FRAME = [50, 34, 312, 284], BOX = "0 0 320 322", DECADES = 3;
const scientific = (value) => powers(value, 2, " · ");
const worded = (
  value,
) => (value === null
  ? "beyond 10³⁰"
  : value >= 1e4 || value < 1e-4
  ? scientific(value)
  : String(Number(value.toPrecision(3))));

// The left axes do not move with s: from the largest eigenvalue that the sliders allow, down.
const highest = ({ table, context }) => 1.25 * 1.5 ** 2 * bulkOf(table[context]).at(-1);
const heightOf = (value, state) =>
  FRAME[3] - (FRAME[3] - FRAME[1]) * clamp(1 + Math.log10(value / highest(state)) / DECADES, 0, 1);
const columnOf = (layer, layers) => FRAME[0] + (FRAME[2] - FRAME[0]) * (layer + 0.5) / layers;
const topOf = ({ scale, ...state }) => heightOf(scale ** 2 * bulkOf(state.table[state.context]).at(-1), state);

// The right picture, in which a click chooses the number of layers of GD++.
const SIDE = { low: 0.3, high: FAR + 0.7, ticks: [1, 2, 3, 4, 6, 8, 10, 12, 14] };
function pick(x) {
  const layers = Math.round(SIDE.low + (SIDE.high - SIDE.low) * (x - FRAME[0]) / (FRAME[2] - FRAME[0]));
  return layers >= 1 && layers <= 4 ? { layers } : {};
}

const pictures = [
  {
    label:
      "The eigenvalues before each layer of GD++ and their errors before and after it, or what three methods leave of the error over the eigenvalue",
    box: BOX,
  },
  { label: "The loss against the number of layers; a click on one to four chooses those of GD++", box: BOX, click: pick },
];
const controls = [
  {
    trait: "scale",
    kind: "handle",
    label: "Largest eigenvalue, which sets the scale of the covariates",
    step: 4,
    hidden: ({ view }) => view !== "eigenvalues",
    mark: (node) =>
      drawn("path", {
        d: "M-11,-5 L0,-12 L11,-5 M-11,5 L0,12 L11,5",
        fill: "none",
        stroke: "currentColor",
        "stroke-width": 2,
      }, node),
    place: (scale, now, state) => [columnOf(0, state.layers), topOf({ ...state, scale })],
    from(x, y, state) { // right and left keys do what up and down do
      const old = topOf(state), place = Math.abs(y - old) < 1e-9 ? y + columnOf(0, state.layers) - x : y;
      const value = highest(state) * 10 ** (DECADES * ((FRAME[3] - place) / (FRAME[3] - FRAME[1]) - 1));
      return clamp(Math.sqrt(Math.max(value, 1e-9) / bulkOf(state.table[state.context]).at(-1)), 0.5, 1.5);
    },
  },
  {
    trait: "view",
    kind: "choice",
    label: "left picture",
    names: { eigenvalues: "eigenvalues in GD++", residual: "remaining error" },
  },
  { trait: "layers", label: "layers k" },
  { trait: "context", label: "examples n", digits: 0 },
  { trait: "scale", label: "scale s", step: 0.01 },
];

function drawEigenvalues(left, now, state) {
  const { layers } = state, high = highest(state), low = high / 10 ** DECADES;
  const decades = Array.from({ length: 8 }, (_, index) => 10 ** (index - 5)).filter((value) => value > low && value < high);
  axes(left, FRAME, { label: "", low: 0, high: layers, ticks: [] }, {
    label: "eigenvalue λ",
    low,
    high,
    scale: Math.log,
    ticks: decades,
    text: power,
  });
  const inside = clipped(left, FRAME), at = (layer, value) => [columnOf(layer, layers), heightOf(value, state)];
  const green = METHODS.gdpp.stroke;
  now.nodes.forEach((_, index) =>
    curve(inside, now.carried.map((row, layer) => at(layer, row[index])), { stroke: green, "stroke-width": 1, opacity: 0.7 })
  );
  now.carried.forEach((row, layer) => {
    if (now.roots[layer] > 0) {
      const [x, y] = at(layer, now.roots[layer]);
      line(inside, [x - 24, y], [x + 24, y], { "stroke-width": 2.5 });
    }
    row.forEach((value, index) => {
      const [cx, cy] = at(layer, value);
      drawn("circle", {
        cx,
        cy,
        r: 7 * Math.min(Math.abs(now.kept[layer][index]), 1.6),
        fill: "none",
        stroke: green,
        "stroke-width": 1.2,
      }, inside);
      drawn(
        "circle",
        { cx, cy, r: Math.max(7 * Math.min(Math.abs(now.kept[layer + 1][index]), 1.6), 1), fill: green },
        inside,
      );
    });
    drawn(
      "text",
      { x: columnOf(layer, layers), y: FRAME[3] + 16, "text-anchor": "middle", class: "ao-small" },
      left,
      layers > 2 ? `layer ${layer}` : `before layer ${layer}`,
    );
  });
  const y = 9, below = 23;
  drawn("circle", { cx: 38, cy: y, r: 6, fill: "none", stroke: green, "stroke-width": 1.2 }, left);
  drawn("text", { x: 56, y: y + 4, class: "ao-small" }, left, "circle size: error before the layer");
  drawn("circle", { cx: 248, cy: y, r: 4, fill: green }, left);
  drawn("text", { x: 257, y: y + 4, class: "ao-small" }, left, "after it");
  line(left, [26, below], [50, below], { "stroke-width": 2.5 });
  drawn("text", { x: 56, y: below + 4, class: "ao-small" }, left, "eigenvalue whose error the layer removes");
}

function legend(parent) {
  Object.values(METHODS).forEach(({ name, sign, ...look }, index) => {
    const x = [26, 132, 244][index];
    line(parent, [x, 17], [x + 22, 17], { ...look, "stroke-width": 2.4 });
    mark(parent, sign, [x + 11, 17], 4, { fill: look.stroke });
    drawn("text", { x: x + 26, y: 21, class: "ao-small" }, parent, name);
  });
}

function drawResidual(left, now, { layers }) {
  const edge = now.grid.at(-1);
  const put = axes(left, FRAME, {
    label: "eigenvalue λ (marks: where most lie)",
    low: 0,
    high: edge,
    ticks: ticksUpTo(edge),
  }, {
    label: layers === 1 ? "error after 1 layer" : `error after ${layers} layers`,
    low: -1.1,
    high: 1.1,
    ticks: [-1, -0.5, 0, 0.5, 1],
  });
  line(left, put([0, 0]), put([edge, 0]), { opacity: 0.4 });
  const inside = clipped(left, FRAME);
  for (const [name, { name: _, sign: __, ...look }] of Object.entries(METHODS)) {
    const points = now.residuals[name].map((value, index) => put([now.grid[index], clamp(value, -4, 4)]));
    curve(inside, points, { ...look, "stroke-width": 2.4 });
  }
  for (const node of now.nodes) line(inside, put([node, -1.1]), put([node, -1.02]), { opacity: 0.8, "stroke-width": 1.5 });
  legend(left);
}

function drawLosses(right, now, { layers }, asking) {
  const values = Object.values(now.losses).flat().filter((value) => value !== null), least = Math.min(...values);
  const bottom = 10 ** Math.floor(Math.log10(Math.max(least, 1e-9))),
    top = 10 **
      clamp(Math.ceil(Math.log10(Math.max(...Object.values(now.losses).map((row) => row[layers - 1] ?? 1)))), 0, 6);
  const span = Math.round(Math.log10(top / bottom)), gap = span > 8 ? 2 : 1;
  const at = axes(right, FRAME, { label: "layers: click 1 to 4", ...SIDE }, {
    label: "loss / d",
    low: bottom,
    high: top,
    scale: Math.log,
    ticks: Array.from({ length: Math.floor(span / gap) + 1 }, (_, k) => bottom * 10 ** (gap * k)),
    text: power,
  });
  const [from] = at([layers - 0.5, 1]), [to] = at([layers + 0.5, 1]);
  drawn(
    "rect",
    { x: from, y: FRAME[1], width: to - from, height: FRAME[3] - FRAME[1], fill: "currentColor", opacity: 0.1 },
    right,
  );
  const field = clipped(right, FRAME);
  if (top > 1) line(field, at([SIDE.low, 1]), at([SIDE.high, 1]), { opacity: 0.6, "stroke-dasharray": "1 3" });
  for (const [name, { name: _, sign, ...look }] of Object.entries(METHODS)) {
    if (asking && name === "gdpp") continue;
    const places = now.losses[name].map((value, index) => at([index + 1, Math.min(value ?? BEYOND, 10 * top)]));
    curve(field, places, { ...look, "stroke-width": 1.8 });
    places.forEach((place, index) =>
      mark(field, sign, place, name === "gdpp" && index + 1 === layers ? 6.5 : 3.6, {
        fill: look.stroke,
        stroke: "currentColor",
        "stroke-width": 0.8,
      })
    );
  }
  const reached = now.losses.gdpp[layers - 1];
  if (!asking && reached !== null && reached <= 1) {
    line(field, at([layers, reached]), at([now.worth || SIDE.high, reached]), { "stroke-dasharray": "5 4" });
    const [x, y] = at([now.worth || SIDE.high, reached]);
    if (layers > 1) {
      drawn(
        "text",
        {
          x: Math.min(x, FRAME[2]) - 8,
          y: y > FRAME[3] - 24 ? y - 8 : y + 16,
          "text-anchor": "end",
          class: "ao-small ao-halo",
        },
        right,
        now.worth ? `${now.worth} plain` : "more plain layers",
      );
    }
  }
  legend(right);
}

function draw([left, right], now, state, bounds, asking) {
  if (state.view === "eigenvalues") drawEigenvalues(left, now, state);
  else drawResidual(left, now, state);
  drawLosses(right, now, state, asking);
}

const layersOf = (count) => `${count} ${count === 1 ? "layer" : "layers"}`;
const plainWorth = (
  { worth },
) => (worth
  ? `It takes ${worth} optimal plain ${worth === 1 ? "layer" : "layers"} to be as good.`
  : `No ${FAR} optimal plain layers are as good.`);

function say(now, { context, layers, scale }) {
  const [low, high] = now.spread,
    at = layers - 1,
    losses = Object.entries(METHODS).map(([name, { name: title }]) => `${worded(now.losses[name][at])} for ${title}`).join(
      ", ",
    );
  const harmful = Object.entries(METHODS).filter(([name]) => now.losses[name][at] === null || now.losses[name][at] > 1).map((
    [, { name }],
  ) => name);
  return `n = ${context}, ${layersOf(layers)}, covariates times ${show(scale)}: the loss / d is ${losses}. ` +
    (now.losses.gdpp[at] !== null && now.losses.gdpp[at] <= 1 ? `${plainWorth(now)} ` : "") +
    `Most eigenvalues lie between ${show(low, 3)} and ${show(high, 3)}. ` +
    (harmful.length ? `Worse than predicting 0: ${harmful.join(", ")}.` : "All three are better than predicting 0.");
}

const RANGES = { "3 or 4": [3, 4], "5 to 8": [5, 8], "9 to 12": [9, 12], more: [13, Infinity] };
const guess = {
  tells: true,
  prompt:
    "The left picture shows layers that move the covariates: each removes the error in directions with eigenvalues near its bar and passes the rest on. How many plain layers, with the best steps, reach as small a loss?",
  options: Object.keys(RANGES),
  reveal(answer, now, { layers }) {
    const [low, high] = RANGES[answer] ?? [0, 0], worth = now.worth ?? FAR + 1;
    return judged(answer, low <= worth && worth <= high, plainWorth(now)) +
      ` With ${layersOf(layers)} of GD++, ${
        worded(100 * now.losses.gdpp[layers - 1])
      }% of the loss remains. Now drag the largest eigenvalue up, as if the covariates had grown after training.`;
  },
};

export default explorer({ pictures, controls, compute, draw, say, guess });
