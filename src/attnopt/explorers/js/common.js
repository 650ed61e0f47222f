// Shared by every explorer: elements, controls and colours. Prepended to each module, so no imports and no exports.

const COLOURS = ["#0072B2", "#D55E00", "#009E73"];  // Okabe-Ito; class 1, 2, 3
const MARKS = ["●", "▲", "■"];                      // so that colour is never the only sign
let groups = 0;

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function drawn(tag, attributes = {}, parent = null, text = null) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== null) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

// The root of an explorer. JupyterLab must leave the arrow keys to its controls instead of moving between cells.
const stage = () => element("div", { class: "ao", "data-lm-suppress-shortcuts": "true" });

// A picture with an accessible name; `box` is its viewBox.
function picture(label, box, parent) {
  return drawn("svg", { viewBox: box, role: "group", "aria-label": label }, parent);
}

function line(parent, from, to, attributes = {}) {
  return drawn("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], stroke: "currentColor", ...attributes }, parent);
}

function arrow(parent, from, to, attributes = {}) {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const length = Math.hypot(dx, dy);
  if (length < 0.5) return;
  const head = Math.min(6, 0.5 * length), [ux, uy] = [dx / length, dy / length];
  const back = [to[0] - head * ux, to[1] - head * uy];
  const corner = (side) => `${back[0] - side * 0.5 * head * uy},${back[1] + side * 0.5 * head * ux}`;
  line(parent, from, back, attributes);
  drawn("polygon", { points: `${to} ${corner(1)} ${corner(-1)}`, fill: attributes.stroke ?? "currentColor", opacity: attributes.opacity ?? 1 }, parent);
}

// A labelled range input with its value shown; `set` moves it without calling back.
function slider(parent, { label, min, max, step, digits, onInput }) {
  const input = element("input", { type: "range", min, max, step, "aria-label": label });
  const output = element("span", { class: "ao-value", "aria-hidden": "true" });
  parent.append(element("label", { class: "ao-slider" }, element("span", {}, label), input, output));
  const set = (value) => {
    input.value = value;
    output.textContent = show(Number(value), digits);
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => {
    set(input.value);
    onInput(Number(input.value));
  });
  return set;
}

// Radio buttons; `options` maps values to labels.
function choice(parent, { legend, options, onChoose }) {
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
  return (value) => { inputs.get(value).checked = true; };
}

// Make an SVG node draggable, and movable with the arrow keys: `move(x, y)` in viewBox units, `nudge(dx, dy)` in steps.
function handle(node, { label, move, nudge }) {
  const svg = node.ownerSVGElement;
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

function readout(parent) {
  const node = element("p", { class: "ao-readout", role: "status" });
  parent.append(node);
  return node;
}

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const show = (value, digits = 2) => value.toFixed(digits).replace("-", "−");

function softmaxOf(scores) {
  const top = Math.max(...scores);
  const exponentials = scores.map((score) => Math.exp(score - top));
  const total = exponentials.reduce((sum, value) => sum + value, 0);
  return { weights: exponentials.map((value) => value / total), lse: top + Math.log(total) };
}

// Read traits, write traits, and redraw on any change, from either side.
function connect(model, names, draw) {
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
