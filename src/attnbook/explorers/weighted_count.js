// A standard transformer that counts bits: its heads' attention, its count, and its answer, for a sequence that one changes.

import { axes, bytesOf, clipped, COLORS, drawn, line, show, small, sum } from "./common.js";
import { explorer } from "./shell.js";
import { beginning, readOut, standardModel, statesOf } from "./standard.js";

const LENGTH = 12, RELEVANT = 5, HEADS = 4;
const SIZES = { inputs: 3, outputs: 2, positions: LENGTH + 1, width: 16, layers: 1, heads: HEADS };
const NAMES = { plain: "weights 1 1 1 1 1", twos: "also 2 on bit 10" };

// What the page carries, unpacked once: of each model its weights, the reading of its count, and its levels.
const unpacked = new WeakMap();
function unpack(data) {
  if (!unpacked.has(data)) {
    const numbers = (name) => Float64Array.from(new Float32Array(bytesOf(data[name]).buffer));
    const one = (name) => {
      const levels = [...numbers(`${name}_levels`)];
      return {
        model: standardModel(numbers(`${name}_weights`), SIZES),
        reading: numbers(`${name}_reading`),
        levels: levels.filter((_, i) => i % 2 === 0).map((count, i) => [count, levels[2 * i + 1]]),
      };
    };
    unpacked.set(data, Object.fromEntries(Object.keys(NAMES).map((name) => [name, one(name)])));
  }
  return unpacked.get(data);
}

// The heads' attention at the last token, the count that its state after attention holds, and the margin.
function pass({ model, reading }, tokens) {
  const seen = beginning(model);
  for (const token of tokens) statesOf(model, seen, [1 - token, token, 0]);
  const states = statesOf(model, seen, [0, 0, 1]), logits = readOut(model, states[2]);
  return {
    attention: states.attention[0],
    count: sum([...states[1]].map((value, i) => value * reading[i])) + reading[states[1].length],
    margin: logits[1] - logits[0],
  };
}

// The numbers that the picture shows; the Python class computes the same.
export function compute({ tokens, model, data }) {
  const chosen = unpack(data)[model], here = pass(chosen, tokens);
  const flips = tokens.map((_, t) => pass(chosen, tokens.map((bit, other) => (other === t ? 1 - bit : bit))));
  return {
    ...here,
    flips: flips.map(({ count, margin }) => [count, margin]),
    shifts: flips.map(({ count }) => count - here.count),
    levels: chosen.levels,
  };
}

const BOX = "0 0 340 300", FRAME = [52, 34, 330, 258], CELL = 25, LEFT = 36, TOP = 78;
const xOf = (t) => LEFT + CELL * t + (t < RELEVANT ? 0 : 3);
const turned = (t) => ({ tokens }) => ({ tokens: tokens.map((bit, other) => (other === t ? 1 - bit : bit)) });

const pictures = [
  {
    label: "The twelve bits, and how much each head attends to them; a click on a bit flips it",
    box: BOX,
    click(x, y, state) {
      const t = state.tokens.findIndex((_, at) => y < 56 && x >= xOf(at) && x < xOf(at) + CELL);
      return t < 0 ? {} : turned(t)(state);
    },
  },
  { label: "The margin against the count", box: BOX },
];
const TOKENS = { trait: "tokens", place: "ao-tokens", top: true, kind: "toggles", name: "bit" };
const controls = [
  { ...TOKENS, label: "relevant", from: 0, to: RELEVANT },
  { ...TOKENS, label: "irrelevant", from: RELEVANT, to: LENGTH },
  { trait: "model", kind: "choice", place: "ao-tokens", top: true, label: "model", names: NAMES },
  { trait: "bit", label: "flip bit" },
];

function drawAttention(picture, { attention }, { tokens }) {
  small(picture, LEFT, 16, "bits: the first five are relevant (click to flip)");
  tokens.forEach((bit, t) => {
    drawn("rect", {
      x: xOf(t) + 1.5,
      y: 30,
      width: CELL - 3,
      height: 22,
      fill: bit ? COLORS[0] : "none",
      "fill-opacity": 0.35,
      stroke: "currentColor",
      class: "ao-pick",
    }, picture);
    drawn("text", { x: xOf(t) + CELL / 2, y: 46, "text-anchor": "middle", class: "ao-pick" }, picture, String(bit));
    small(picture, xOf(t) + CELL / 2, 66, String(t + 1), "middle");
  });
  attention.forEach((shares, head) => {
    const y = TOP + 8 + 40 * head;
    small(picture, LEFT - 8, y + 20, `H${head + 1}`, "end");
    shares.slice(0, LENGTH).forEach((share, t) => {
      const side = (CELL - 3) * Math.sqrt(Math.min(share / 0.5, 1));
      drawn("rect", {
        x: xOf(t) + (CELL - side) / 2,
        y: y + (CELL - side) / 2 + 3,
        width: side,
        height: side,
        fill: COLORS[t < RELEVANT ? 0 : 1],
      }, picture);
    });
  });
  line(picture, [xOf(RELEVANT) - 1.5, 26], [xOf(RELEVANT) - 1.5, 250], { "stroke-dasharray": "3 4", opacity: 0.7 });
  small(picture, LEFT, 270, "area: attention of each head (full square: 0.5 or more)");
}

function drawCount(picture, now, { tokens, bit }, asking) {
  const far = Math.max(...[...now.levels, ...now.flips, [0, now.margin]].map(([, margin]) => Math.abs(margin)));
  const top = Math.ceil(far / 5) * 5, most = now.levels.length - 1;
  const place = axes(picture, FRAME, {
    label: "count that the state holds",
    low: -0.7,
    high: most + 0.7,
    ticks: now.levels.map((_, level) => level),
  }, { label: "margin", low: -top, high: top, ticks: [-top, 0, top] });
  small(picture, FRAME[0], 14, "above 0: odd; below: even; hollow: level mean");
  small(picture, FRAME[0], 28, asking ? "filled: this sequence" : "filled: this sequence; dots: with one bit flipped");
  line(picture, place([-0.7, 0]), place([most + 0.7, 0]), { opacity: 0.5 });
  const inside = clipped(picture, FRAME);
  now.levels.forEach((level, index) => {
    const [cx, cy] = place(level);
    drawn("circle", { cx, cy, r: 7, fill: "none", stroke: COLORS[index % 2 ? 0 : 1], "stroke-width": 2 }, inside);
  });
  const [cx, cy] = place([now.count, now.margin]), odd = sum(tokens.slice(0, RELEVANT)) % 2;
  if (!asking) {
    now.flips.forEach((flip, t) => {
      const [x, y] = place(flip);
      line(inside, [cx, cy], [x, y], t === bit - 1 ? { "stroke-width": 2 } : { opacity: 0.25 });
      drawn(
        "circle",
        { cx: x, cy: y, r: t === bit - 1 ? 5 : 3, fill: COLORS[(odd === 1) === (t < RELEVANT) ? 1 : 0] },
        inside,
      );
    });
  }
  drawn("circle", { cx, cy, r: 6, fill: odd ? COLORS[0] : COLORS[1], stroke: "currentColor" }, inside);
}

function draw([left, right], now, state, _, asking) {
  drawAttention(left, now, state);
  drawCount(right, now, state, asking);
}

const answer = (margin) => (margin > 0 ? "odd" : "even");
function say(now, { bit }) {
  const [, there] = now.flips[bit - 1];
  return `The count is ${show(now.count)}. The margin (the logit of “odd” minus that of “even”) is ${
    show(now.margin, 1)
  }, so the model answers “${answer(now.margin)}”. If bit ${bit} is flipped, the count moves by ${
    show(now.shifts[bit - 1])
  }, and the answer ${answer(there) === answer(now.margin) ? "stays" : "changes"}.`;
}

const MOVES = ["it stays", "it moves by about 1", "it moves by about 2"];
const guess = {
  prompt:
    "A trained transformer says whether the first five of twelve bits contain an odd number of ones. It answers by counting. Bit 10 is irrelevant. What happens to this model’s count if bit 10 is flipped?",
  options: MOVES,
  tells: true,
  reveal(guessed, { shifts }) {
    const moved = Math.round(Math.abs(shifts[9]));
    return `${guessed === undefined ? "" : guessed === MOVES[moved] ? "Yes. " : "No. "}In this model, the count moves by ${
      show(shifts[9])
    }${
      moved === 2
        ? ", about two levels. Two levels away, the parity is the same, so the answer does not change."
        : "; the other model does otherwise, and is right as well."
    }`;
  },
};
const tour = [
  {
    set: { model: "plain", bit: 1 },
    say: ({ shifts }) =>
      `This model counts the relevant bits: flipping bit 1 moves the count by ${
        show(shifts[0])
      }, and the margin changes sign.`,
  },
  {
    set: { model: "twos", bit: 10 },
    say: ({ shifts }) =>
      `This one was trained in the same way from other initial weights. Flipping bit 10, which is irrelevant, moves its count by ${
        show(shifts[9])
      }; the answer stays the same.`,
  },
  {
    set: { model: "twos", tokens: [1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 0, 0] },
    say: ({ count }) => `With all five relevant bits and bit 10 equal to 1, the count is ${show(count)}, close to 5 + 2.`,
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
