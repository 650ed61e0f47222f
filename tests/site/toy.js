// Two numbers and their sum; a sum beyond 79 cannot be drawn.

import { drawn, element, show } from "./common.js";
import { button, explorer } from "./shell.js";

export function compute({ parts, factor }) {
  const sum = factor * (parts[0] + parts[1]);
  if (sum > 79) throw new Error("the sum is too large");
  return { sum };
}

const pictures = [{ label: "A line", box: "0 0 100 20" }];
function noted(parent, link) {
  const node = button("note it", () => link.update({ note: `${link.state().note}!` })), said = element("span", { class: "noted" });
  parent.append(node, said);
  return { node, set({ note }) { said.textContent = note; } };
}
const fits = ({ parts, factor, limit }) => (factor * (parts[0] + parts[1]) > limit ? `The sum must be at most ${limit}.` : null);
const controls = [
  { trait: "parts", at: 0, kind: "handle", label: "First number", mark: (node) => drawn("circle", { r: 5 }, node), place: (value) => [25 * value, 10], from: (x) => x / 25 },
  { trait: "parts", at: 1, label: "second number", step: 0.5 },
  { trait: "factor", label: "factor", scale: "log" },
  { trait: "rounds", kind: "number", label: "rounds", fold: "More" },
  { trait: "limit", kind: "choice", label: "at most", fold: "More" },
  { kind: "part", fold: "A note", make: noted },
];
const draw = ([line], { sum }, state, bounds, asking) => {
  if (!asking) drawn("circle", { cx: 12 * sum, cy: 10, r: 3, class: "sum" }, line);
};
const say = ({ sum }) => `The sum is ${show(sum)}.`;
const guess = {
  prompt: "Where is the sum?", picture: 0, start: [50, 10],
  reveal: ([x], { sum }) => `You said ${show(x / 12, 1)}; it is ${show(sum, 1)}.`,
};
const tour = [
  { set: { factor: 2 }, light: "ao-slider", say: "Twice as much." },
  { set: { parts: [0, 0] }, say: "Nothing." },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour, fits, kept: ["note"] });
