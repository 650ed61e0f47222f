// Three logits and a temperature: softmax on the simplex, its Jacobian's axes, log-sum-exp against the maximum.

import {
  clamp, COLOURS, connect, drawn, element, handle, line, picture, readout, show, slider, softmaxOf, stage,
} from "./common.js";

const ACROSS = [1 / Math.SQRT2, -1 / Math.SQRT2, 0], UP = [1, 1, -2].map((value) => value / Math.sqrt(6));  // basis of the plane sum = 0
const dot = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);

// The numbers that the picture shows; the Python class computes the same.
export function compute({ logits, temperature }) {
  const { weights, lse } = softmaxOf(logits.map((logit) => logit / temperature));
  const image = (v) => weights.map((weight, index) => weight * (v[index] - dot(weights, v)));  // (diag s - s s^T) v
  const [a, b, c] = [dot(ACROSS, image(ACROSS)), dot(ACROSS, image(UP)), dot(UP, image(UP))];
  const middle = (a + c) / 2, radius = Math.hypot((a - c) / 2, b), angle = 0.5 * Math.atan2(2 * b, a - c);
  const plane = [[Math.cos(angle), Math.sin(angle)], [-Math.sin(angle), Math.cos(angle)]];
  return {
    softmax: weights,
    smooth_maximum: temperature * lse,
    eigenvalues: [middle + radius, middle - radius],
    eigenvectors: plane.map(([x, y]) => ACROSS.map((value, index) => x * value + y * UP[index])),
  };
}

const SIDE = 190, CENTRE = [160, 128], LIMIT = 3;
// Isometric up to the scale SIDE / sqrt 2; class 1 left, 2 right, 3 on top.
const place = (s) => [CENTRE[0] - SIDE * (dot(ACROSS, s) / Math.SQRT2), CENTRE[1] + SIDE * (dot(UP, s) / Math.SQRT2)];
const unplace = (x, y) => {
  const across = (CENTRE[0] - x) * Math.SQRT2 / SIDE, up = (y - CENTRE[1]) * Math.SQRT2 / SIDE;
  return [0, 1, 2].map((index) => 1 / 3 + across * ACROSS[index] + up * UP[index]);
};

function render({ model, el }) {
  const root = stage();
  const simplex = picture("The simplex of three probabilities with softmax as a point and the axes of its Jacobian", "0 0 320 240", root);
  const bars = picture("Three logits as bars, with their maximum and the smooth maximum as lines", "0 0 320 240", root);
  const controls = element("div", { class: "ao-controls" });
  root.append(controls);
  const status = readout(root);

  const corners = [[1, 0, 0], [0, 1, 0], [0, 0, 1]].map(place);
  drawn("polygon", { points: corners.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.2 }, simplex);
  corners.forEach(([x, y], index) => drawn("text", { x: x + [-14, 14, 0][index], y: y + [6, 6, -8][index], "text-anchor": "middle" }, simplex, String(index + 1)));
  const picture1 = drawn("g", {}, simplex), picture2 = drawn("g", {}, bars);
  const point = drawn("g", {}, simplex);
  drawn("circle", { r: 9, fill: COLOURS[1], stroke: "currentColor", "stroke-width": 1.5 }, point);
  const moveTo = (s) => {
    const { logits, temperature } = link.state();
    const logs = s.map((value) => temperature * Math.log(Math.max(value, 1e-4)));
    const shift = (dot(logits, [1, 1, 1]) - dot(logs, [1, 1, 1])) / 3;  // softmax does not see the mean: keep it
    link.update({ logits: logs.map((value) => clamp(value + shift, -LIMIT, LIMIT)) });
  };
  handle(point, {
    label: "Softmax, a point of the simplex: drag it or press the arrow keys",
    move: (x, y) => moveTo(unplace(x, y)),
    nudge: (dx, dy) => {
      const [x, y] = place(compute(link.state()).softmax);
      moveTo(unplace(x + 4 * dx, y - 4 * dy));
    },
  });
  const setLogit = [0, 1, 2].map((index) => slider(controls, {
    label: `logit ${index + 1}`, min: -LIMIT, max: LIMIT, step: 0.05, digits: 2,
    onInput: (value) => link.update({ logits: link.state().logits.map((old, other) => (other === index ? value : old)) }),
  }));
  const setTemperature = slider(controls, {
    label: "temperature", min: 0.1, max: 3, step: 0.05, digits: 2, onInput: (temperature) => link.update({ temperature }),
  });

  const link = connect(model, ["logits", "temperature"], (state) => {
    const { softmax, smooth_maximum, eigenvalues, eigenvectors } = compute(state);
    const top = Math.max(...state.logits);
    state.logits.forEach((logit, index) => setLogit[index](logit));
    setTemperature(state.temperature);

    picture1.replaceChildren();
    const at = place(softmax), reach = 150;  // an eigenvalue of 1/2 reaches the dashed circle
    drawn("circle", { cx: at[0], cy: at[1], r: reach / 2, fill: "none", stroke: "currentColor", "stroke-dasharray": "3 4", opacity: 0.55 }, picture1);
    eigenvectors.forEach((vector, index) => {
      const direction = [-dot(ACROSS, vector), dot(UP, vector)].map((value) => value * reach * eigenvalues[index]);
      line(picture1, [at[0] - direction[0], at[1] - direction[1]], [at[0] + direction[0], at[1] + direction[1]],
        { stroke: COLOURS[index === 0 ? 0 : 2], "stroke-width": 4, "stroke-linecap": "round" });
    });
    point.setAttribute("transform", `translate(${at})`);

    picture2.replaceChildren();
    const bottom = -3.2, height = (value) => 225 - 215 * (value - bottom) / (3 + 3.3 + 0.2 - bottom + 0), floor = height(0);
    line(picture2, [30, floor], [310, floor], { opacity: 0.4 });
    drawn("text", { x: 24, y: floor + 4, "text-anchor": "end" }, picture2, "0");
    state.logits.forEach((logit, index) => {
      const x = 48 + 60 * index, [y0, y1] = [height(Math.max(logit, 0)), height(Math.min(logit, 0))];
      drawn("rect", { x, y: y0, width: 36, height: Math.max(y1 - y0, 1), fill: COLOURS[0], "fill-opacity": 0.25 + 0.75 * softmax[index], stroke: COLOURS[0] }, picture2);
      drawn("text", { x: x + 18, y: 238, "text-anchor": "middle" }, picture2, show(softmax[index]));
    });
    const limit = top + state.temperature * Math.log(3);
    for (const [value, dash, colour] of [[top, "none", "currentColor"], [smooth_maximum, "none", COLOURS[1]], [limit, "3 4", "currentColor"]]) {
      line(picture2, [40, height(value)], [226, height(value)], { stroke: colour, "stroke-width": 2, "stroke-dasharray": dash });
    }
    // Labels beside the lines, pushed apart where the lines are close.
    const low = height(top) + 4, mid = Math.min(height(smooth_maximum) + 4, low - 13), high = Math.min(height(limit) + 4, mid - 13);
    drawn("text", { x: 232, y: low, class: "ao-small" }, picture2, "max");
    drawn("text", { x: 232, y: mid, class: "ao-small" }, picture2, "T·LSE(x/T)");
    drawn("text", { x: 232, y: high, class: "ao-small" }, picture2, "max + T log 3");

    status.textContent = `softmax (${softmax.map((value) => show(value)).join(", ")}); T·LSE exceeds max by ${show(smooth_maximum - top, 3)}`
      + ` of at most ${show(limit - top, 3)}; eigenvalues of the Jacobian ${show(eigenvalues[0], 3)}, ${show(eigenvalues[1], 3)} and 0.`;
  });
  el.append(root);
  return link.stop;
}

export default { render };
