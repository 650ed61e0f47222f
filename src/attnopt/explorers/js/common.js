// Shared by every explorer: elements, controls and colours.

export const COLOURS = ["#0072B2", "#D55E00", "#009E73"];  // Okabe-Ito; class 1, 2, 3
export const MARKS = ["●", "▲", "■"];                      // so that colour is never the only sign
export const WEIGHTS = [[1.7, 0.3], [-1.0, 1.4], [-0.6, -1.5]];  // three classes with two features, where a module fixes them
let groups = 0;

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

// The root of an explorer. JupyterLab takes the arrow keys for itself unless the very control in focus says that it wants them.
export function stage() {
  const root = element("div", { class: "ao" });
  root.addEventListener("focusin", ({ target }) => target.setAttribute("data-lm-suppress-shortcuts", "true"));
  return root;
}

// A picture with an accessible name; `box` is its viewBox.
export function picture(label, box, parent) {
  return drawn("svg", { viewBox: box, role: "group", "aria-label": label }, parent);
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
  drawn("polygon", { points: `${to} ${corner(1)} ${corner(-1)}`, fill: attributes.stroke ?? "currentColor", opacity: attributes.opacity ?? 1 }, parent);
}

// The sign of class, token or start 1, 2, 3, as MARKS has it: circle, triangle, square.
export function mark(parent, index, [x, y], radius, attributes) {
  if (index === 0) return drawn("circle", { cx: x, cy: y, r: radius, ...attributes }, parent);
  const corners = index === 1 ? [[0, -1.2], [1.1, 0.8], [-1.1, 0.8]] : [[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]];
  return drawn("polygon", { points: corners.map(([u, v]) => `${x + radius * u},${y + radius * v}`).join(" "), ...attributes }, parent);
}

// A group whose drawing does not leave the box.
export function clipped(parent, [left, top, right, bottom]) {
  const id = `ao-clip-${++groups}-${Math.random().toString(36).slice(2, 8)}`;
  const frame = drawn("clipPath", { id }, parent);
  drawn("rect", { x: left, y: top, width: right - left, height: bottom - top }, frame);
  return drawn("g", { "clip-path": `url(#${id})` }, parent);
}

// The frame of a plot. An axis is { label, low, high, ticks, scale, text }; returns the map from numbers to the picture.
export function axes(parent, [left, top, right, bottom], x, y) {
  const part = ({ low, high, scale = Number }, value) => (scale(value) - scale(low)) / (scale(high) - scale(low));
  const place = ([a, b]) => [left + (right - left) * part(x, a), bottom - (bottom - top) * part(y, b)];
  drawn("rect", { x: left, y: top, width: right - left, height: bottom - top, fill: "none", stroke: "currentColor", opacity: 0.5 }, parent);
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

// Round numbers from 0 to at most `high`.
export function ticksUpTo(high) {
  const unit = 10 ** Math.floor(Math.log10(high / 6)), gap = unit * [1, 2, 5, 10].find((factor) => 6 * factor * unit >= high * (1 - 1e-9));
  return Array.from({ length: Math.floor(high / gap + 1e-9) + 1 }, (_, index) => index * gap);
}

export function curve(parent, points, attributes = {}) {
  const places = points.map(([x, y]) => `${x.toFixed(2)},${y.toFixed(2)}`).join(" ");
  return drawn("polyline", { points: places, fill: "none", stroke: "currentColor", "stroke-linejoin": "round", ...attributes }, parent);
}

// A labelled range input with its value shown; `set` moves it without calling back, and carries the `input`. `to` and
// `from` bend the scale: the input holds `to(value)`, and min, max and step are in its units.
export function slider(parent, { label, min, max, step, digits, text = (value) => show(value, digits), onInput, to = Number, from = Number }) {
  const input = element("input", { type: "range", min, max, step, "aria-label": label });
  const output = element("span", { class: "ao-value", "aria-hidden": "true" });
  parent.append(element("label", { class: "ao-slider" }, element("span", {}, label), input, output));
  const set = (value) => {
    input.value = to(value);
    output.textContent = text(value);
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => {
    const value = from(Number(input.value));
    set(value);
    onInput(value);
  });
  return Object.assign(set, { input });
}

// Radio buttons; `options` maps values to labels. The setter carries the `field`, to hide or disable it.
export function choice(parent, { legend, options, onChoose }) {
  const name = `ao-choice-${++groups}-${Math.random().toString(36).slice(2, 8)}`;
  const field = element("fieldset", { class: "ao-choice" }, element("legend", {}, legend));
  const inputs = new Map();
  for (const [value, label] of options) {
    const input = element("input", { type: "radio", name, value });
    input.addEventListener("change", () => onChoose(value));
    inputs.set(value, input);
    field.append(element("label", {}, input, label));
  }
  parent.append(field);
  const set = (value) => { inputs.get(value).checked = true; };
  return Object.assign(set, { field });
}

// Make a group of an SVG, drawn about its origin, draggable, and movable with the arrow keys: `move(x, y)` in viewBox units,
// `nudge(dx, dy)` in steps. A finger may miss the mark by a little.
export function handle(node, { label, move, nudge }) {
  const svg = node.ownerSVGElement;
  drawn("circle", { r: 16, class: "ao-reach" }, node);
  node.setAttribute("tabindex", "0");
  node.setAttribute("role", "button");
  node.setAttribute("aria-label", label);
  node.classList.add("ao-handle");
  node.addEventListener("pointerdown", (event) => {
    node.setPointerCapture(event.pointerId);
    node.focus();
    event.preventDefault();
  });
  node.addEventListener("pointermove", (event) => {
    if (!node.hasPointerCapture(event.pointerId)) return;
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    move(point.x, point.y);
  });
  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
  node.addEventListener("keydown", (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault();
    nudge(...steps[event.key]);
  });
}

export function readout(parent) {
  const node = element("p", { class: "ao-readout", role: "status" });
  parent.append(node);
  return node;
}

export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
export const show = (value, digits = 2) => value.toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", "−");

export const tidy = (value) => String(Number(value.toPrecision(6))).replace("-", "−");

export function softmaxOf(scores) {
  const top = Math.max(...scores);
  const exponentials = scores.map((score) => Math.exp(score - top));
  const total = exponentials.reduce((sum, value) => sum + value, 0);
  return { weights: exponentials.map((value) => value / total), lse: top + Math.log(total) };
}

// The state of ż = velocity(z) at each of the increasing times: Dormand and Prince's pair of orders 5 and 4, adaptive.
const STAGES = [
  [1 / 5], [3 / 40, 9 / 40], [44 / 45, -56 / 15, 32 / 9], [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
  [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656], [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
];
const DIFFERENCE = [71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40];

export function integrate(velocity, start, times, { relative = 1e-10, absolute = 1e-12 } = {}) {
  const size = start.length;
  const advanced = (step, weights, slopes) => state.map((value, index) => {
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
      wanted = fits && step < wanted ? Math.max(wanted, better) : better;  // a step cut short at `time` says little
    }
    return state;
  });
}

// Read traits, write traits, and redraw on any change, from either side.
export function connect(model, names, draw) {
  const state = () => Object.fromEntries(names.map((name) => [name, model.get(name)]));
  const redraw = () => draw(state());
  for (const name of names) model.on(`change:${name}`, redraw);
  redraw();
  return {
    state,
    update(changes) {
      for (const [name, value] of Object.entries(changes)) model.set(name, value);
      model.save_changes();
    },
    stop() { for (const name of names) model.off(`change:${name}`, redraw); },
  };
}
