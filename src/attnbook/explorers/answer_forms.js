// A trained transformer on a regression that the reader draws: its answer after each part, and gradient descent's.

import { axes, bytesOf, clipped, COLORS, curve, drawn, line, show, sum } from "./common.js";
import { explorer } from "./shell.js";
import { beginning, readOut, standardModel, statesOf } from "./standard.js";

const LOW = -3, HIGH = 3, RATE = 0.8, NOISE = 0.5;
const GRID = Array.from({ length: 41 }, (_, k) => LOW + (HIGH - LOW) * k / 40);
const SIZES = { inputs: 2, outputs: 1, positions: 33, width: 32, layers: 3, heads: 4 };
const PARTS = ["the embedding", ...[1, 2, 3].flatMap((layer) => [`attention ${layer}`, `MLP ${layer}`])];
const SHORT = ["start", "A1", "M1", "A2", "M2", "A3", "M3"];

// What the page carries, unpacked once: the model, and the probe of each state, its last number the constant.
const unpacked = new WeakMap();
function unpack(data) {
  if (!unpacked.has(data)) {
    const numbers = (name) => Float64Array.from(new Float32Array(bytesOf(data[name]).buffer));
    const probes = numbers("probes"), size = SIZES.width + 1;
    unpacked.set(data, {
      model: standardModel(numbers("weights"), SIZES),
      probes: PARTS.map((_, part) => probes.subarray(part * size, (part + 1) * size)),
    });
  }
  return unpacked.get(data);
}
const reading = (probe, state) => sum([...state].map((value, i) => value * probe[i])) + probe[state.length];

// The numbers that the picture shows; the Python class computes the same.
export function compute({ points, query, part, steps, data }) {
  const { model, probes } = unpack(data), seen = beginning(model);
  for (const [x, y] of points) {
    statesOf(model, seen, [x, 0]);
    statesOf(model, seen, [0, y]);
  }
  const at = (x) => statesOf(model, seen, [x, 0], true), states = at(query);
  const square = sum(points.map(([x]) => x * x)), product = sum(points.map(([x, y]) => x * y));
  const bayes = product / (square + NOISE ** 2);
  let descent = 0;
  for (let step = 0; step < steps; step++) descent += RATE * (product - square * descent) / points.length;
  return {
    curve: GRID.map((x) => reading(probes[part], at(x)[part])),
    readings: states.map((state, i) => reading(probes[i], state)),
    output: readOut(model, states.at(-1))[0],
    descent,
    bayes,
    answers: [descent * query, bayes * query],
  };
}

const LEFT = [46, 34, 320, 308], RIGHT = [46, 34, 320, 308];
const X = { label: "x", low: LOW, high: HIGH, ticks: [-2, 0, 2] },
  Y = { label: "y", low: LOW, high: HIGH, ticks: [-2, 0, 2] };
const put = ([x, y]) => [
  LEFT[0] + (LEFT[2] - LEFT[0]) * (x - LOW) / (HIGH - LOW),
  LEFT[3] - (LEFT[3] - LEFT[1]) * (y - LOW) / (HIGH - LOW),
];
const back = (x, y) => [
  LOW + (HIGH - LOW) * (x - LEFT[0]) / (LEFT[2] - LEFT[0]),
  LOW + (HIGH - LOW) * (LEFT[3] - y) / (LEFT[3] - LEFT[1]),
];
const LOOKS = {
  model: { stroke: COLORS[0], "stroke-width": 3.5 },
  descent: { stroke: COLORS[1], "stroke-width": 2, "stroke-dasharray": "9 4" },
  bayes: { stroke: COLORS[2], "stroke-width": 2, "stroke-dasharray": "2 3" },
};

const DOT = (group) => drawn("circle", { r: 6, fill: "currentColor", stroke: "var(--ao-ground, white)" }, group);

const pictures = [
  { label: "Labeled points, and the answers at every x", box: "0 0 332 352" },
  { label: "The reading at the query after each part of the transformer", box: "0 0 332 352" },
];
const controls = [
  {
    trait: "part",
    label: "state after",
    text: (part) => PARTS[part],
  },
  { trait: "steps", label: "gradient steps" },
  { trait: "query", label: "query x" },
  ...Array.from({ length: 8 }, (_, i) => ({
    kind: "handle",
    trait: "points",
    at: i,
    label: `labeled point ${i + 1}`,
    place: put,
    from: back,
    mark: DOT,
  })),
];

function draw([left, right], now, state, bounds, asking) {
  axes(left, LEFT, X, Y);
  const inside = clipped(left, LEFT);
  for (const name of ["bayes", "descent"]) curve(inside, [LOW, HIGH].map((x) => put([x, now[name] * x])), LOOKS[name]);
  if (asking) state.points.forEach((point) => DOT(drawn("g", { transform: `translate(${put(point)})` }, left))); // no handles yet
  else curve(inside, now.curve.map((y, k) => put([GRID[k], y])), LOOKS.model);
  line(left, put([state.query, LOW]), put([state.query, HIGH]), { opacity: 0.6, "stroke-dasharray": "1 3" });
  [["model", `reading after ${PARTS[state.part]}`, 46], ["bayes", "Bayes’ rule", 236]].forEach(([name, text, x]) => {
    line(left, [x, 14], [x + 24, 14], LOOKS[name]);
    drawn("text", { x: x + 29, y: 18, class: "ao-small" }, left, text);
  });

  const far = Math.max(...[...now.readings, now.output, now.bayes * state.query].map(Math.abs)),
    top = Math.ceil(Math.max(1, far));
  const place = axes(right, RIGHT, { label: "state of the query after", low: -0.5, high: 6.5, ticks: [] }, {
    label: "answer at the query",
    low: -top,
    high: top,
    ticks: [-top, 0, top],
  });
  SHORT.forEach((text, part) => {
    const [x] = place([part, 0]);
    drawn("text", { x, y: RIGHT[3] + 16, "text-anchor": "middle", class: "ao-small" }, right, text);
  });
  const within = clipped(right, RIGHT);
  for (const name of ["bayes", "descent"]) {
    curve(within, [-0.5, 6.5].map((part) => place([part, now[name] * state.query])), LOOKS[name]);
  }
  line(right, place([-0.5, 0]), place([6.5, 0]), { opacity: 0.4 });
  if (!asking) {
    curve(right, now.readings.map((value, part) => place([part, value])), { ...LOOKS.model, "stroke-width": 1.5 });
    now.readings.forEach((value, part) => {
      const [x, y] = place([part, value]), chosen = part === state.part;
      drawn("circle", {
        cx: x,
        cy: y,
        r: chosen ? 7 : 4,
        fill: COLORS[0],
        stroke: "currentColor",
        "stroke-width": chosen ? 2 : 0.5,
      }, right);
    });
  }
  line(right, [46, 14], [70, 14], LOOKS.descent);
  drawn(
    "text",
    { x: 75, y: 18, class: "ao-small" },
    right,
    `gradient descent, ${state.steps} ${state.steps === 1 ? "step" : "steps"}`,
  );
}

function say(now, { query, part, steps }) {
  const [answer, best] = now.answers, times = `${steps} ${steps === 1 ? "step" : "steps"}`;
  const descent = Math.abs(now.descent) > 100
    ? `Gradient descent has diverged after ${times}`
    : `Gradient descent’s answer after ${times} is ${show(answer)}`;
  return `At x = ${show(query)}, a probe reads ${show(now.readings[part])} from the query’s state after ${
    PARTS[part]
  }; the model’s output is ${show(now.output)}. ${descent}; Bayes’ rule answers ${show(best)}.`;
}

const guess = {
  prompt:
    "A three-layer transformer reads eight labeled points and then a query x. After which layer can a linear probe first read most of the answer from the query’s state?",
  options: ["the first", "the second", "the third"],
  reveal: (guessed) =>
    `${
      guessed === "the second" ? "Right" : "Not quite"
    }: over many prompts, a probe explains little of the answer after the first layer, and most of it after the second, although it can overshoot on a single prompt, as it does here.`,
};
const tour = [
  {
    set: { part: 2, steps: 0 },
    say:
      "After the first layer, the reading does not follow the points; presumably, this layer copies each point to the token of its label.",
  },
  {
    set: { part: 4, steps: 1 },
    say:
      "After the second layer, the reading has the right sign, but on this prompt it is too steep and curved; one gradient step happens to do better.",
  },
  {
    set: { part: 6, steps: 4 },
    say: "After the third layer, the reading lies closer to Bayes’ rule; four gradient steps nearly reach it.",
  },
  {
    set: {
      part: 6,
      steps: 4,
      points: [[-2.7, -1.9], [-1.9, -2.2], [-1.2, -0.3], [-0.5, -1], [0.7, 1], [1.4, 0.5], [2, 2.4], [2.9, 1.9]],
    },
    say:
      "The points are farther apart now. Four gradient steps of the same size diverge; the transformer’s output is still close to Bayes’ rule.",
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
