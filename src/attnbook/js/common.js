// Shared by the explorers: elements, drawing, numbers as text, and what several of them compute.

export const COLORS = ["#0072B2", "#D55E00", "#009E73"]; // Okabe-Ito; class 1, 2, 3
export const MARKS = ["●", "▲", "■"]; // so that color is never the only sign
let groups = 0;

// A name that no other element of the page has.
export const unique = (kind) => `ao-${kind}-${++groups}-${Math.random().toString(36).slice(2, 8)}`;

export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

export function drawn(tag, attributes = {}, parent = null, text = null) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== null) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

export function line(parent, from, to, attributes = {}) {
  return drawn("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], stroke: "currentColor", ...attributes }, parent);
}

export function arrow(parent, from, to, attributes = {}) {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const length = Math.hypot(dx, dy);
  if (length < 0.5) return;
  const head = Math.min(6, 0.5 * length), [ux, uy] = [dx / length, dy / length];
  const back = [to[0] - head * ux, to[1] - head * uy];
  const corner = (side) => `${back[0] - side * 0.5 * head * uy},${back[1] + side * 0.5 * head * ux}`;
  line(parent, from, back, attributes);
  drawn("polygon", {
    points: `${to} ${corner(1)} ${corner(-1)}`,
    fill: attributes.stroke ?? "currentColor",
    opacity: attributes.opacity ?? 1,
  }, parent);
}

// The sign of class, token or start 1, 2, 3, as MARKS has it: circle, triangle, square.
export function mark(parent, index, [x, y], radius, attributes) {
  if (index === 0) return drawn("circle", { cx: x, cy: y, r: radius, ...attributes }, parent);
  const corners = index === 1 ? [[0, -1.2], [1.1, 0.8], [-1.1, 0.8]] : [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]];
  return drawn("polygon", {
    points: corners.map(([u, v]) => `${x + radius * u},${y + radius * v}`).join(" "),
    ...attributes,
  }, parent);
}

// A star, for the weights that made the labels.
export const star = (parent, [x, y], attributes = {}) =>
  drawn("polygon", {
    points: Array.from(
      { length: 10 },
      (_, k) => [x + (k % 2 ? 3.6 : 9) * Math.sin(k * Math.PI / 5), y - (k % 2 ? 3.6 : 9) * Math.cos(k * Math.PI / 5)],
    ).join(" "),
    fill: "currentColor",
    ...attributes,
  }, parent);

// A group whose drawing does not leave the box.
export function clipped(parent, [left, top, right, bottom]) {
  const id = unique("clip");
  const frame = drawn("clipPath", { id }, parent);
  drawn("rect", { x: left, y: top, width: right - left, height: bottom - top }, frame);
  return drawn("g", { "clip-path": `url(#${id})` }, parent);
}

// The frame of a plot. An axis is { label, low, high, ticks, scale, text }; returns the map from numbers to the picture.
export function axes(parent, [left, top, right, bottom], x, y) {
  const part = ({ low, high, scale = Number }, value) => (scale(value) - scale(low)) / (scale(high) - scale(low));
  const place = ([a, b]) => [left + (right - left) * part(x, a), bottom - (bottom - top) * part(y, b)];
  drawn("rect", {
    x: left,
    y: top,
    width: right - left,
    height: bottom - top,
    fill: "none",
    stroke: "currentColor",
    opacity: 0.5,
  }, parent);
  for (const value of x.ticks) {
    const [at] = place([value, y.low]);
    line(parent, [at, bottom], [at, bottom + 4], { opacity: 0.5 });
    drawn("text", { x: at, y: bottom + 16, "text-anchor": "middle", class: "ao-small" }, parent, (x.text ?? tidy)(value));
  }
  for (const value of y.ticks) {
    const [, at] = place([x.low, value]);
    line(parent, [left - 4, at], [left, at], { opacity: 0.5 });
    drawn("text", { x: left - 6, y: at + 4, "text-anchor": "end", class: "ao-small" }, parent, (y.text ?? tidy)(value));
  }
  drawn("text", { x: (left + right) / 2, y: bottom + 31, "text-anchor": "middle" }, parent, x.label);
  const middle = (top + bottom) / 2;
  drawn("text", { x: 11, y: middle, "text-anchor": "middle", transform: `rotate(-90 11 ${middle})` }, parent, y.label);
  return place;
}

// Segments of the level sets of values on a square grid, by marching squares; `ticks` are the places of its rows and columns.
// `cut` is where the values on the side of a square, between two corners, reach a level.
export const squares = (ticks, make) =>
  ticks.slice(1).flatMap((_, i) => ticks.slice(1).flatMap((_, j) => make([[i, j], [i + 1, j], [i + 1, j + 1], [i, j + 1]])));
export function cut(ticks, values, [a, b], [c, d], level) {
  const share = (values[a][b] - level) / (values[a][b] - values[c][d]);
  return [ticks[a] + share * (ticks[c] - ticks[a]), ticks[b] + share * (ticks[d] - ticks[b])];
}
export function levelSets(ticks, values, levels) {
  return levels.map((level) =>
    squares(ticks, (corners) => {
      const cuts = corners.map((one, side) => [one, corners[(side + 1) % 4]]).filter(([[a, b], [c, d]]) =>
        (values[a][b] < level) !== (values[c][d] < level)
      )
        .map(([one, other]) => cut(ticks, values, one, other, level));
      return cuts.length === 4 ? [cuts.slice(0, 2), cuts.slice(2)] : cuts.length ? [cuts] : [];
    })
  );
}

// The level sets with their numbers, on a plane that reaches from -`reach` to `reach` both ways; a number stands near the
// antidiagonal, far from the others, and hides none of the points that are taken.
export function contours(parent, sets, levels, { place, reach, taken }) {
  const labels = [];
  sets.forEach((segments, index) => {
    if (!segments.length) return;
    const path = segments.map((ends) =>
      `M${ends.map((end) => place(end).map((value) => value.toFixed(2)).join(" ")).join("L")}`
    ).join("");
    drawn("path", { d: path, fill: "none", stroke: "currentColor", opacity: 0.4 }, parent);
    let best = null, most = 0.19 * reach;
    for (const [[x, y]] of segments) {
      if (
        Math.max(Math.abs(x), Math.abs(y)) > 0.9 * reach ||
        taken.some(([u, v]) => Math.abs(x - u) < reach / 6 && Math.abs(y - v) < 0.09 * reach)
      ) continue;
      const room = Math.min(0.5 * reach, ...labels.map(([u, v]) => Math.hypot(x - u, 1.6 * (y - v)))) -
        0.1 * Math.abs(x + y);
      if (room > most) [best, most] = [[x, y], room];
    }
    if (!best) return;
    labels.push(best);
    const [x, y] = place(best);
    drawn("text", { x, y: y + 4, "text-anchor": "middle", class: "ao-small ao-halo" }, parent, tidy(levels[index]));
  });
}

// Round numbers from 0 to at most `high`.
export function ticksUpTo(high) {
  const unit = 10 ** Math.floor(Math.log10(high / 6)),
    gap = unit * [1, 2, 5, 10].find((factor) => 6 * factor * unit >= high * (1 - 1e-9));
  return Array.from({ length: Math.floor(high / gap + 1e-9) + 1 }, (_, index) => index * gap);
}

export function curve(parent, points, attributes = {}) {
  const places = points.map(([x, y]) => `${x.toFixed(2)},${y.toFixed(2)}`).join(" ");
  return drawn("polyline", {
    points: places,
    fill: "none",
    stroke: "currentColor",
    "stroke-linejoin": "round",
    ...attributes,
  }, parent);
}

// A line of small text, and the title of a picture 320 wide.
export const small = (parent, x, y, text, anchor = "start", more = "") =>
  drawn("text", { x, y, "text-anchor": anchor, class: `ao-small ${more}` }, parent, text);
export const title = (parent, text) => drawn("text", { x: 160, y: 13, "text-anchor": "middle" }, parent, text);

// The bytes of a base64 text.
export const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

// Numbers as single precision in a base64 that an address can hold, as the laboratory reads weights.
export const spelledWeights = (flat) =>
  `w:${
    btoa(String.fromCharCode(...new Uint8Array(Float32Array.from(flat).buffer))).replaceAll("+", "-").replaceAll("/", "_")
      .replace(/=+$/, "")
  }`;

export const sum = (values) => values.reduce((total, value) => total + value, 0);

// Of vectors: the inner product, the difference, and the average under shares.
export const dot = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);
export const minus = (a, b) => a.map((value, index) => value - b[index]);
export const averaged = (shares, vectors) =>
  vectors[0].map((_, f) => shares.reduce((sum, share, c) => sum + share * vectors[c][f], 0));

// Points of the ellipse around a middle on which half the quadratic form of a matrix, its entries 11, 12 and 22, has a level.
export function ellipse([x, y], [a, b, c], level) {
  const middle = (a + c) / 2,
    radius = Math.hypot((a - c) / 2, b),
    turn = Math.atan2(2 * b, a - c) / 2,
    [cos, sin] = [Math.cos(turn), Math.sin(turn)];
  const short = Math.sqrt(2 * level / Math.max(middle + radius, 1e-9)),
    long = Math.min(Math.sqrt(2 * level / Math.max(middle - radius, 1e-9)), 60);
  return Array.from({ length: 181 }, (_, k) => {
    const [p, q] = [short * Math.cos(k * Math.PI / 90), long * Math.sin(k * Math.PI / 90)];
    return [x + cos * p - sin * q, y + sin * p + cos * q];
  });
}

export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
// The answer to a guess begins with its verdict; without a guess it is the sentence alone.
export const judged = (guessed, right, sentence) =>
  guessed === undefined ? sentence : `${right ? "Right" : "Not quite"}: ${sentence[0].toLowerCase()}${sentence.slice(1)}`;

export const show = (value, digits = 2) => value.toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", "−");

export const pair = (values) => `(${values.map((value) => show(value)).join(", ")})`;
export const listed = (words) =>
  words.length < 3 ? words.join(" and ") : `${words.slice(0, -1).join(", ")}, and ${words.at(-1)}`;
export const tidy = (value) => String(Number(value.toPrecision(6))).replace("-", "−");
export const power = (value) =>
  `10${String(Math.round(Math.log10(value))).replace(/./g, (sign) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(sign)])}`;

// A number of some figures times a power of ten: 3.1 × 10⁻⁴, with another sign between them if one is given.
export function powers(value, figures, times = " × ") {
  const [digits, exponent] = value.toExponential(figures - 1).split("e");
  return `${digits.replace("-", "−")}${times}${power(10 ** exponent)}`;
}

export function softmaxOf(scores) {
  const top = Math.max(...scores);
  const exponentials = scores.map((score) => Math.exp(score - top));
  const total = exponentials.reduce((sum, value) => sum + value, 0);
  return { weights: exponentials.map((value) => value / total), lse: top + Math.log(total) };
}

// The standard normal distribution function, from a series whose terms have one sign; beyond 9 it is 0 or 1.
export function normalBelow(x) {
  if (Math.abs(x) > 9) return x > 0 ? 1 : 0;
  let term = x, total = x;
  for (let n = 3; Math.abs(term) > 1e-17 * Math.abs(total); n += 2) total += term *= x * x / n;
  return 0.5 + total * Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI);
}
export const gelu = (x) => x * normalBelow(x);

// The state of ż = velocity(z) at each of the increasing times: Dormand and Prince's pair of orders 5 and 4, adaptive.
const STAGES = [
  [1 / 5],
  [3 / 40, 9 / 40],
  [44 / 45, -56 / 15, 32 / 9],
  [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
  [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
  [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
];
const DIFFERENCE = [71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40];

export function integrate(velocity, start, times, { relative = 1e-10, absolute = 1e-12 } = {}) {
  const size = start.length;
  const advanced = (step, weights, slopes) =>
    state.map((value, index) => {
      let sum = 0;
      for (let stage = 0; stage < weights.length; stage++) sum += weights[stage] * slopes[stage][index];
      return value + step * sum;
    });
  let state = start, slope = velocity(start), now = 0, wanted = 0.01;
  return times.map((time) => {
    while (now < time && wanted > 1e-13) {
      const rest = time - now, step = Math.min(wanted, rest), slopes = [slope];
      let next = state;
      for (const weights of STAGES) slopes.push(velocity(next = advanced(step, weights, slopes)));
      const missed = advanced(step, DIFFERENCE, slopes);
      let error = 0;
      for (let index = 0; index < size; index++) {
        const unit = absolute + relative * Math.max(Math.abs(next[index]), Math.abs(state[index]));
        error += ((missed[index] - state[index]) / unit) ** 2 / size;
      }
      const fits = error <= 1, better = step * (Number.isFinite(error) ? clamp(0.9 * error ** -0.1, 0.2, 5) : 0.2);
      if (fits) [now, state, slope] = [step === rest ? time : now + step, next, slopes[6]];
      wanted = fits && step < wanted ? Math.max(wanted, better) : better; // a step cut short at `time` says little
    }
    return state;
  });
}

// Numbers in (0, 1), always the same for a draw, those of Python's `uniforms`: from a congruential generator whose products
// a float holds exactly.
export function uniforms(draw, count) {
  let state = 2654435769 * (draw + 3) % 2 ** 32;
  return Array.from({ length: count }, () => ((state = (1664525 * state + 1013904223) % 2 ** 32) + 0.5) / 2 ** 32);
}

// A pair of standard normal numbers from two in (0, 1), as Box and Muller bend them.
export function bent(first, second) {
  const radius = Math.sqrt(-2 * Math.log(first)), turn = 2 * Math.PI * second;
  return [radius * Math.cos(turn), radius * Math.sin(turn)];
}

// The first pairs of standard normal numbers of a prompt, those of Python's `standard_normals`.
export function standardNormals(prompt, count) {
  const found = uniforms(prompt, 2 * count);
  return Array.from({ length: count }, (_, index) => bent(found[2 * index], found[2 * index + 1]));
}
