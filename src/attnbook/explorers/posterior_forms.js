// A standard transformer that predicts a masked word: the words that it reads, its belief after each part, the posterior.

import { axes, bytesOf, COLORS, drawn, line, show, small, softmaxOf, sum } from "./common.js";
import { explorer } from "./shell.js";
import { beginning, readOut, standardModel, statesOf } from "./standard.js";

const WORDS = 8, TOKENS = 8, TOPICS = 4;
const SIZES = { inputs: WORDS + 1, outputs: WORDS, positions: TOKENS + 1, width: 16, layers: 2, heads: 4 };
const PARTS = ["the embedding", "attention 1", "MLP 1", "attention 2", "MLP 2"];

// What the page carries, unpacked once.
const unpacked = new WeakMap();
function unpack(data) {
  if (!unpacked.has(data)) {
    const numbers = (name) => Float64Array.from(new Float32Array(bytesOf(data[name]).buffer)), flat = [...numbers("topics")];
    unpacked.set(data, {
      model: standardModel(numbers("weights"), SIZES),
      topics: Array.from({ length: TOPICS }, (_, c) => flat.slice(c * WORDS, (c + 1) * WORDS)),
    });
  }
  return unpacked.get(data);
}
const oneHot = (word) => Array.from({ length: WORDS + 1 }, (_, other) => Number(other === word));
const divergenceOf = (p, q) => sum(p.map((value, i) => value * Math.log(value / q[i])));

// The numbers that the picture shows; the Python class computes the same.
export function compute({ words, data }) {
  const { model, topics } = unpack(data), seen = beginning(model), shown = words.map((word) => rounded(word) - 1);
  for (const word of shown) statesOf(model, seen, oneHot(word));
  const states = statesOf(model, seen, oneHot(WORDS));
  const beliefs = states.map((state) => softmaxOf([...readOut(model, state)]).weights);
  const topic = softmaxOf(topics.map((row) => sum(shown.map((word) => Math.log(row[word]))))).weights;
  const posterior = topics[0].map((_, word) => sum(topics.map((row, c) => topic[c] * row[word])));
  return { beliefs, posterior, topics: topic, divergence: beliefs.map((belief) => divergenceOf(posterior, belief)) };
}

const BOX = "0 0 340 300",
  LEFT = [44, 34, 330, 254],
  ROW = (LEFT[3] - LEFT[1]) / WORDS,
  COLUMN = (LEFT[2] - LEFT[0]) / TOKENS;
const rounded = (word) => Math.floor(word + 0.5), xOf = (t) => LEFT[0] + COLUMN * (t + 0.5);
const yOf = (word) => LEFT[3] - ROW * (word - 0.5), RIGHT = [44, 34, 330, 254];

const pictures = [
  { label: "The eight words that are shown; drag a dot to change a word", box: BOX },
  { label: "Prediction and posterior of the masked word", box: BOX },
];
const controls = [
  { trait: "part", label: "prediction after", text: (part) => PARTS[part] },
  ...Array.from({ length: TOKENS }, (_, t) => ({
    kind: "handle",
    trait: "words",
    at: t,
    label: `word ${t + 1}`,
    step: ROW,
    place: (word) => [xOf(t), yOf(rounded(word))],
    from(x, y, { words }) {
      const word = rounded(words[t]), up = yOf(word) - y; // with a key, a step to the right is one up
      return Math.min(WORDS, Math.max(1, word + (Math.abs(up) > 1e-6 ? up : x - xOf(t)) / ROW));
    },
    mark: (node) => DOT(node),
  })),
];

const DOT = (node) => drawn("circle", { r: 8, fill: COLORS[2], stroke: "currentColor" }, node);
function draw([left, right], now, { part, words }, _, asking) {
  const side = (count, label) => ({
    label,
    low: 0.5,
    high: count + 0.5,
    ticks: Array.from({ length: count }, (_, i) => i + 1),
  });
  axes(left, LEFT, side(TOKENS, "position in the prompt"), side(WORDS, "word"));
  for (let word = 1; word <= WORDS; word++) line(left, [LEFT[0], yOf(word)], [LEFT[2], yOf(word)], { opacity: 0.15 });
  if (asking) { // no handles yet
    words.forEach((word, t) => DOT(drawn("g", { transform: `translate(${xOf(t)},${yOf(rounded(word))})` }, left)));
  }
  small(left, LEFT[0], 14, "the words that are shown (drag a dot up or down)");
  small(left, LEFT[0], 28, `posterior of the topics: ${now.topics.map((value) => show(value)).join(", ")}`);
  const place = axes(right, RIGHT, side(WORDS, "masked word"), {
    label: "probability",
    low: 0,
    high: 0.8,
    ticks: [0, 0.2, 0.4, 0.6, 0.8],
  });
  small(right, RIGHT[0], 14, asking ? "hollow: the posterior" : "filled: the model’s prediction; hollow: the posterior");
  now.posterior.forEach((value, word) => {
    const bar = (height, from, to, attributes) => {
      const [x, y] = place([word + 1 + from, height]), [end, ground] = place([word + 1 + to, 0]);
      drawn("rect", { x, y, width: end - x, height: Math.max(ground - y, 0.5), ...attributes }, right);
    };
    if (!asking) bar(now.beliefs[part][word], -0.35, 0.35, { fill: COLORS[0], "fill-opacity": 0.7 });
    bar(value, -0.4, 0.4, { fill: "none", stroke: COLORS[1], "stroke-width": 2 });
  });
}

const percent = (value) => `${show(100 * value, 0)}%`;
function say(now, { part }) {
  const word = now.posterior.indexOf(Math.max(...now.posterior));
  return `The posterior gives word ${word + 1} a probability of ${percent(now.posterior[word])}; after ${
    PARTS[part]
  }, the model gives it ${percent(now.beliefs[part][word])}. The prediction’s divergence from the posterior is ${
    show(now.divergence[part], 3)
  } nats${part === 4 ? "" : `; after the last layer, it is ${show(now.divergence[4], 3)}`}.`;
}

const OPTIONS = ["about half", "nearly all", "none"];
const guess = {
  prompt:
    "A two-layer transformer reads eight words and predicts a masked ninth; hollow bars show the posterior. How much of the prediction’s divergence from the posterior does the first layer remove?",
  options: OPTIONS,
  reveal: (guessed, { divergence }) =>
    `${guessed === OPTIONS[1] ? "Yes" : "No, nearly all"}: the divergence from the posterior falls from ${
      show(divergence[0], 3)
    } nats at the start to ${show(divergence[2], 3)} after the first layer.`,
};
const tour = [
  {
    set: { part: 0 },
    say: "Before the first layer, the state of the mask is the same in every prompt, and so is the prediction.",
  },
  {
    set: { part: 2, words: [4, 5, 6, 5, 7, 2, 6, 5] },
    say: ({ divergence }) =>
      `The first layer reduces the divergence from the posterior from ${show(divergence[0], 3)} to ${
        show(divergence[2], 3)
      } nats; this is not a small step.`,
  },
  {
    set: { part: 2, words: [8, 8, 8, 8, 8, 8, 8, 8] },
    say: ({ topics, divergence }) =>
      `If word 8 fills all eight positions, the third topic is nearly certain (posterior probability ${
        show(topics[2], 3)
      }). Even then, a divergence of ${show(divergence[2], 3)} nats remains after the first layer.`,
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
