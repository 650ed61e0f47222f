// Training of a few linear layers: gradient flow on their exact loss in the step sizes, from starts that the reader drags.

import {
  axes,
  clamp,
  clipped,
  COLORS,
  curve,
  drawn,
  judged,
  line,
  listed,
  mark,
  power,
  show,
  small,
  sum,
  ticksUpTo,
  tidy,
} from "./common.js";
import { explorer } from "./shell.js";

const DEPTH = 4, MOMENTS = 121, FIRST = 0.1, POINTS = 121, CUTS = 120, PURPLE = "#CC79A7";
const rowOf = ({ table, dim, n_context: context }) => table[`${dim} ${context}`];
const residualAt = (sizes, value) => sizes.reduce((product, size) => product * (1 - size * value), 1);
// Where an axis of eigenvalues ends: beyond the Marchenko–Pastur interval and the best roots of that many layers.
const reach = (state, layers) =>
  Math.max(1.3 * (1 + Math.sqrt(state.dim / state.n_context)) ** 2, 1.15 / rowOf(state).optimal[layers - 1][0]);

// The flow of different sizes, each that of `counts` layers: minus the loss's derivative in one of them, and its Jacobian.
function flowOf({ nodes, weights }, counts, speed) {
  const groups = counts.map((_, g) => g), even = (factor, times) => (factor * factor) ** times;
  const velocity = (sizes) => {
    const found = groups.map(() => 0);
    nodes.forEach((node, q) => {
      const factors = sizes.map((size) => 1 - size * node), whole = factors.map((factor, g) => even(factor, counts[g]));
      for (const g of groups) {
        let left = factors[g] * even(factors[g], counts[g] - 1);
        for (const h of groups) if (h !== g) left *= whole[h];
        found[g] += 2 * speed * weights[q] * node * left;
      }
    });
    return found;
  };
  const jacobian = (sizes) =>
    groups.map((g) =>
      groups.map((h) =>
        -2 * speed * (2 * counts[h] - (g === h ? 1 : 0)) * sum(nodes.map((node, q) => {
          const left = groups.reduce(
            (product, i) => product * (1 - sizes[i] * node) ** (2 * counts[i] - (i === g ? 1 : 0) - (i === h ? 1 : 0)),
            1,
          );
          return weights[q] * node * node * left;
        }))
      )
    );
  return { velocity, jacobian };
}

// The solution of a small linear system, by elimination.
function solved(matrix, right) {
  const rows = matrix.map((row, i) => [...row, right[i]]), size = right.length;
  rows.forEach((row, i) => {
    for (let below = i + 1; below < size; below++) {
      const share = rows[below][i] / row[i];
      rows[below] = rows[below].map((value, column) => value - share * row[column]);
    }
  });
  return rows.reduceRight(
    (found, row, i) => [(row[size] - sum(found.map((value, j) => row[i + 1 + j] * value))) / row[i], ...found],
    [],
  );
}

// One step of the linearly implicit Euler method in 1, 2, … parts, extrapolated (Deuflhard, 1985), and what the last part
// changed: late in training the flow is stiff, and explicit steps would be many.
const PARTS = 8;
function stepped({ velocity, jacobian }, state, step) {
  const slopes = jacobian(state);
  let before = [];
  for (let parts = 1; parts <= PARTS; parts++) {
    const part = step / parts, matrix = slopes.map((row, i) => row.map((value, j) => (i === j ? 1 : 0) - part * value));
    let z = state;
    for (let k = 0; k < parts; k++) {
      const move = solved(matrix, velocity(z).map((value) => part * value));
      z = z.map((value, i) => value + move[i]);
    }
    const row = [z];
    before.forEach((older, j) =>
      row.push(row[j].map((value, i) => value + (value - older[i]) / (parts / (parts - j - 1) - 1)))
    );
    before = row;
  }
  return [before.at(-1), before.at(-2)];
}

// The sizes at increasing times, by steps that are as long as their error allows; a step that fails is tried again, shorter.
function follow(flow, start, times, relative = 1e-9, absolute = 1e-11) {
  let state = start, now = 0, wanted = 1e-3 / Math.max(1e-3, ...flow.jacobian(start).flat().map(Math.abs));
  return times.map((time) => {
    while (now < time && wanted > 1e-15 * time) {
      const rest = time - now, step = Math.min(wanted, rest), [next, other] = stepped(flow, state, step);
      const error = Math.max(
        ...next.map((value, i) => Math.abs(value - other[i]) / (absolute + relative * Math.abs(value))),
      );
      if (error <= 1) [state, now] = [next, step === rest ? time : now + step];
      wanted = step * (Number.isFinite(error) ? clamp(0.8 * error ** (-1 / PARTS), 0.1, 5) : 0.1);
    }
    return state;
  });
}

const startsOf = ({ starts, layers, tied }) => (tied ? Array(layers).fill(starts[0]) : starts.slice(0, layers));
const bendOf = ({ dim }) => FIRST / dim;
const timeAt = (state, share) =>
  bendOf(state) * Math.expm1(share * Math.log1p(rowOf(state).horizon[state.layers - 1] / bendOf(state)));

// Layers that start equal are followed as one, so that nothing parts them but a difference.
function training(state) {
  const starts = startsOf(state),
    sizes = [...new Set(starts)],
    counts = sizes.map((size) => starts.filter((other) => other === size).length);
  const flow = flowOf(rowOf(state), counts, state.tied ? state.layers : 1);
  const spread = (found) => starts.map((start) => found[sizes.indexOf(start)]);
  const times = Array.from({ length: MOMENTS }, (_, k) => timeAt(state, k / (MOMENTS - 1))),
    way = follow(flow, sizes, times);
  return {
    times,
    way: way.map(spread),
    at(time) {
      const before = times.findLastIndex((other) => other <= time);
      return spread(follow(flow, way[before], [time - times[before]])[0]);
    },
  };
}

const kept = new Map(); // the way does not depend on the moment that is shown
function trained(state) {
  const key = `${state.dim} ${state.n_context} ${state.tied} ${startsOf(state)}`;
  if (!kept.has(key)) {
    if (kept.size > 40) kept.clear();
    kept.set(key, training(state));
  }
  return kept.get(key);
}

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const row = rowOf(state), k = state.layers;
  if (!row) return null; // a kernel adds the row when it is asked for
  const { nodes, weights, density } = row,
    { times, way, at } = trained(state),
    best = row.optimal[k - 1],
    equal = row.constant[k - 1];
  const loss = (sizes) => sum(nodes.map((node, q) => weights[q] * residualAt(sizes, node) ** 2));
  const all = Array(k).fill(equal), [[own, other]] = flowOf(row, Array(k).fill(1), 1).jacobian(all);
  const moment = timeAt(state, state.time), now = at(moment), end = reach(state, k), far = reach(state, DEPTH);
  const grid = Array.from({ length: POINTS }, (_, j) => end * j / (POINTS - 1)),
    places = Array.from({ length: CUTS }, (_, j) => far * ((j + 1) / CUTS) ** 2);
  const losses = way.map(loss), [here, floor, level] = [now, best, all].map(loss);
  // What each layer leads to: the optimal sizes in the order of the starts.
  const goals = state.tied
    ? all
    : startsOf(state).map((start, layer, starts) =>
      best[starts.filter((other, i) => other < start || (other === start && i < layer)).length]
    );
  return {
    times,
    moment,
    now,
    best,
    equal,
    grid,
    places,
    density,
    goals,
    losses,
    floor,
    level,
    sizes: now.map((_, layer) => way.map((sizes) => sizes[layer])),
    loss: here,
    away: now.map((size, layer) => Math.abs(size - goals[layer])),
    rate: k > 1 ? own - other : null,
    tenfold: k > 1 ? Math.LN10 / (own - other) : null,
    times_floor: { now: here / floor, equal: level / floor, end: losses.at(-1) / floor },
    residual: grid.map((value) => residualAt(now, value)),
    left: places.map((value, j) => density[j] * residualAt(now, value) ** 2),
  };
}

const LEFT = [44, 26, 312, 288], UPPER = [44, 26, 312, 136], LOWER = [44, 182, 312, 288], BOX = "0 0 320 324", GAP = 20;
const HEIGHT = LEFT[3] - LEFT[1];
const LOOKS = [...COLORS, PURPLE];
const sign = (
  parent,
  layer,
  [x, y],
  radius,
  look,
) => (layer < 3 ? mark(parent, layer, [x, y], radius, look) : drawn("polygon", {
  points: `${x},${y - 1.25 * radius} ${x + 1.25 * radius},${y} ${x},${y + 1.25 * radius} ${x - 1.25 * radius},${y}`,
  ...look,
}, parent));
const filled = (parent, layer, at, radius) =>
  sign(parent, layer, at, radius, { fill: LOOKS[layer], stroke: "currentColor", "stroke-width": 1.2 });
const count = ({ layers, tied }) => (tied ? 1 : layers);
// Time begins behind the starts, each of which has a column of its own.
const zero = (state) => LEFT[0] + GAP * count(state) + 6;
const across = (state, share) => zero(state) + (LEFT[2] - zero(state)) * share;
function range(state) {
  const high = 1.3 * (rowOf(state)?.optimal[state.layers - 1].at(-1) ?? 1);
  return { low: -0.25 * high, high };
}
function heightOf(state, size) {
  const { low, high } = range(state);
  return clamp(LEFT[3] - HEIGHT * (size - low) / (high - low), LEFT[1], LEFT[3]);
}

const pictures = [
  {
    label: "The step sizes against time, from their starts on the left, with the optimal sizes and the best equal one",
    box: BOX,
  },
  {
    label: "Above, the loss against time; below, the mean spectrum and what the layers leave of it at the marked time",
    box: BOX,
  },
];
const FRAMES = Array.from({ length: 81 }, (_, k) => k / 80);
const free = (starts) => ({ starts, tied: false });
const controls = [
  ...Array.from({ length: DEPTH }, (_, layer) => ({
    trait: "starts",
    at: layer,
    kind: "handle",
    label: `Start of layer ${layer + 1}`,
    step: HEIGHT / 160,
    hidden: (state) => layer >= count(state),
    mark: (node) => filled(node, layer, [0, 0], 6.5),
    place: (size, now, state) => [LEFT[0] + GAP * (layer + 0.5), heightOf(state, size)],
    from(x, y, state) { // right and left keys do what up and down do
      const { low, high } = range(state),
        size = state.starts[layer],
        here = heightOf(state, size),
        beside = x - LEFT[0] - GAP * (layer + 0.5);
      const moved = Math.abs(y - here) < 1e-9 ? -beside : clamp(y, LEFT[1], LEFT[3]) - here;
      return Math.round(1e3 * (clamp(size, low, high) - moved * (high - low) / HEIGHT)) / 1e3;
    },
  })),
  {
    trait: "time",
    kind: "handle",
    label: "The moment",
    step: 2.4,
    mark: (node) => drawn("polygon", { points: "0,-9 6,3 -6,3", fill: "currentColor" }, node),
    place: (share, now, state) => [across(state, share), LEFT[3]],
    from(x, y, state) {
      const here = across(state, state.time), place = Math.abs(x - here) < 1e-9 ? x + LEFT[3] - y : x;
      return clamp((place - zero(state)) / (LEFT[2] - zero(state)), 0, 1);
    },
  },
  {
    trait: "time",
    kind: "play",
    place: "ao-player",
    values: () => FRAMES,
    stops: ["time", "starts", "dim", "n_context", "layers", "tied"],
  },
  {
    trait: "time",
    label: "time",
    place: "ao-player",
    step: 0.0125,
    text: (share, state) => (rowOf(state) ? clock(timeAt(state, share)) : ""),
  },
  { trait: "layers", kind: "choice", label: "layers" },
  {
    trait: "tied",
    kind: "choice",
    label: "train",
    names: { false: "a size for each layer", true: "one size for all" },
    hidden: ({ layers }) => layers === 1,
  },
  { trait: "dim", kind: "choice", label: "dimensions d" },
  { trait: "n_context", label: "examples n", digits: 0 },
  ...Array.from(
    { length: DEPTH },
    (_, layer) => ({
      trait: "starts",
      at: layer,
      label: `start ${layer + 1}`,
      step: 0.01,
      digits: 3,
      hidden: (state) => layer >= count(state),
    }),
  ),
  {
    trait: "starts",
    kind: "actions",
    label: "starts",
    place: "ao-tokens",
    hidden: ({ layers }) => layers === 1,
    acts: {
      "all equal": ({ starts: [first] }) => free(Array(DEPTH).fill(first)),
      "0.001 apart": ({ starts: [first] }) =>
        free(Array.from({ length: DEPTH }, (_, k) => Math.round(1e3 * Math.min(first, 2.9)) / 1e3 + k / 1e3)),
      "far apart": () => free([1.6, -0.3, 0.7, 0.1]),
    },
  },
];

const significant = (value, digits) => String(Number(value.toPrecision(digits))).replace("-", "−");
const number = (
  value,
) => (value < 1e-3 || value >= 1e5 ? value.toExponential(2).replace("e+", "e").replace("-", "−") : significant(value, 4));
const clock = (time) => significant(time, 3);
const three = (value) => show(value, 3);
const sizesOf = (values) => listed(values.map(three));

function timeAxis(state, label) {
  const bend = bendOf(state), last = Math.round(Math.log10(rowOf(state).horizon[state.layers - 1])), ticks = [0];
  for (let digit = -1; digit <= last; digit++) if (last < 4 || (last - digit) % 2 === 0) ticks.push(10 ** digit);
  return {
    label,
    low: 0,
    high: 10 ** last,
    scale: (time) => Math.log1p(time / bend),
    ticks,
    text: (time) => (time >= 1e4 ? power(time) : tidy(time)),
  };
}

function drawSizes(picture, now, state, asking) {
  const { low, high } = range(state),
    field = [zero(state), ...LEFT.slice(1)],
    starts = startsOf(state).slice(0, count(state));
  drawn(
    "rect",
    { x: LEFT[0], y: LEFT[1], width: field[0] - LEFT[0], height: HEIGHT, fill: "currentColor", opacity: 0.07 },
    picture,
  );
  const ticks = ticksUpTo(high), place = axes(picture, field, timeAxis(state, "time"), { label: "", low, high, ticks: [] });
  for (const value of ticks) small(picture, LEFT[0] - 5, heightOf(state, value) + 4, tidy(value), "end");
  drawn(
    "text",
    { x: 11, y: (LEFT[1] + LEFT[3]) / 2, "text-anchor": "middle", transform: `rotate(-90 11 ${(LEFT[1] + LEFT[3]) / 2})` },
    picture,
    "step size",
  );
  line(picture, [LEFT[0], heightOf(state, 0)], [LEFT[2], heightOf(state, 0)], { opacity: 0.25 });
  small(picture, starts.length > 1 ? LEFT[0] + 3 : LEFT[0] - 14, LEFT[3] + 16, "start");
  starts.forEach((start, layer) => {
    const x = LEFT[0] + GAP * (layer + 0.5), y = heightOf(state, start);
    line(picture, [x, y], [field[0], y], { stroke: LOOKS[layer], opacity: 0.6 });
    if (start > high || start < low) small(picture, x, y + (start > high ? 20 : -11), tidy(start), "middle", "ao-halo");
    if (asking) filled(picture, layer, [x, y], 6.5);
  });
  if (asking) {
    small(picture, 50, 14, "the sizes at the start");
    return;
  }
  const inside = clipped(picture, field),
    level = (size, dashes) =>
      line(inside, place([0, size]), place([now.times.at(-1), size]), { "stroke-dasharray": dashes, "stroke-width": 1.5 });
  for (const size of now.best) level(size, "7 4");
  line(picture, [50, 10], [74, 10], { "stroke-dasharray": "7 4", "stroke-width": 1.5 });
  small(picture, 79, 14, state.layers > 1 ? "optimal sizes" : "optimal size");
  if (state.layers > 1) {
    level(now.equal, "2 4");
    line(picture, [178, 10], [202, 10], { "stroke-dasharray": "2 4", "stroke-width": 1.8 });
    small(picture, 207, 14, "best equal size");
  }
  const [x] = place([now.moment, 0]);
  line(picture, [x, LEFT[1]], [x, LEFT[3]], { opacity: 0.55 });
  for (const [layer] of starts.entries()) {
    const points = now.times.map((time, k) => place([time, clamp(now.sizes[layer][k], -50, 50)]));
    curve(inside, points, { stroke: LOOKS[layer], "stroke-width": 2.6 });
  }
  for (const [layer] of starts.entries()) filled(inside, layer, place([now.moment, clamp(now.now[layer], -50, 50)]), 4.5);
}

function lossAxis(now, { dim }) {
  const low = 0.8 * now.floor, high = clamp(1.25 * Math.max(...now.losses), 1.3 * now.level, 2 * dim), ticks = [];
  const decades = Math.log10(high / low), parts = decades < 2 ? [1, 2, 5] : [1], skip = decades > 6 ? 2 : 1;
  for (let digit = Math.floor(Math.log10(low)); digit <= Math.log10(high); digit++) {
    for (const part of parts) {
      const value = Number(`${part}e${digit}`);
      if (value >= low && value <= high && digit % skip === 0) ticks.push(value);
    }
  }
  return {
    label: "loss",
    low,
    high,
    scale: Math.log,
    ticks,
    text: (
      value,
    ) => (value >= 0.01 ? tidy(value) : parts.length > 1 ? value.toExponential(0).replace("-", "−") : power(value)),
  };
}

function drawLoss(picture, now, state, asking) {
  const place = axes(picture, UPPER, timeAxis(state, "time"), lossAxis(now, state)), field = clipped(picture, UPPER);
  if (asking) return;
  const level = (value, dashes, name, x, anchor) => {
    const [, y] = place([0, value]);
    line(field, [UPPER[0], y], [UPPER[2], y], { "stroke-dasharray": dashes, "stroke-width": 1.5 });
    small(picture, x, y - 5, `${name} ${number(value)}`, anchor, "ao-halo");
  };
  level(now.floor, "7 4", "optimum", UPPER[0] + 5, "start");
  if (state.layers > 1) level(now.level, "2 4", "equal sizes", UPPER[2] - 5, "end");
  const [x, y] = place([now.moment, now.loss]);
  line(picture, [x, UPPER[1]], [x, UPPER[3]], { opacity: 0.55 });
  curve(clipped(picture, UPPER), now.times.map((time, k) => place([time, Math.min(now.losses[k], 1e9)])), {
    "stroke-width": 2.4,
  });
  if (y >= UPPER[1] - 1) drawn("circle", { cx: x, cy: y, r: 5, fill: "currentColor" }, picture);
  else sign(picture, 1, [x, UPPER[1] + 7], 6, { fill: "currentColor" });
  small(picture, 50, 14, `loss ${number(now.loss)} at time ${clock(now.moment)}`);
}

function drawSpectrum(picture, now, { dim, n_context: context, tied }, asking) {
  const end = now.grid.at(-1),
    shown = now.density.filter((_, k) => now.places[k] > 0.04 * end && now.places[k] < end),
    top = 1.25 * Math.max(...shown);
  const place = axes(picture, LOWER, { label: "eigenvalue λ", low: 0, high: end, ticks: ticksUpTo(end) }, {
    label: "spectrum",
    low: 0,
    high: 1,
    ticks: [],
  });
  const field = clipped(picture, LOWER),
    area = (values, look) => {
      const points = [[0, 0], [0, values[0]], ...now.places.map((value, k) => [value, values[k]]), [now.places.at(-1), 0]];
      drawn("polygon", {
        points: points.map(([x, y]) => place([x, clamp(y / top, 0, 50)]).map((value) => value.toFixed(2)).join(",")).join(
          " ",
        ),
        ...look,
      }, field);
    };
  area(now.density, { fill: "currentColor", opacity: 0.22 });
  if (context < dim) {
    drawn("rect", {
      x: LOWER[0],
      y: LOWER[1],
      width: 4,
      height: LOWER[3] - LOWER[1],
      fill: "currentColor",
      opacity: asking ? 0.22 : 0.75,
    }, field);
  }
  if (!asking) {
    area(now.left, { fill: "currentColor", "fill-opacity": 0.65, stroke: "currentColor" });
    const roots = tied ? now.now.slice(0, 1) : now.now;
    roots.forEach((size, layer) => {
      if (size > 1 / end) filled(picture, layer, place([1 / size, 0]), 4.5);
    });
  }
  const says = [[0.22, "mean spectrum of G"], ...asking ? [] : [[0.65, "the same times r²"]]];
  says.forEach(([opacity, text], row) => {
    drawn("rect", { x: 174, y: 187 + 16 * row, width: 12, height: 11, fill: "currentColor", opacity }, picture);
    small(picture, 191, 197 + 16 * row, text, "start", "ao-halo");
  });
  if (!asking) {
    drawn("circle", { cx: 180, cy: 225, r: 4.5, fill: LOOKS[0], stroke: "currentColor" }, picture);
    small(picture, 191, 229, "roots of r: 1/step size", "start", "ao-halo");
  }
  if (context < dim) small(picture, 191, asking ? 213 : 245, `${dim - context} of ${dim} lie at 0`, "start", "ao-halo");
}

function draw([left, right], now, state, bounds, asking) {
  drawSizes(left, now, state, asking);
  drawLoss(right, now, state, asking);
  drawSpectrum(right, now, state, asking);
}

const times = (ratio) => `${ratio < 1.0995 ? show(ratio, 3) : ratio < 100 ? significant(ratio, 3) : number(ratio)} times`;

// Where training ends, and by what it was held up.
function ended(now, state) {
  const { layers, tied } = state,
    starts = startsOf(state),
    end = now.sizes.map((sizes) => sizes.at(-1)),
    { goals, times_floor: above } = now;
  const slow = Math.max(...end.map((size, layer) => Math.abs(size - goals[layer]))) > 0.005;
  const horizon = clock(now.times.at(-1));
  if (layers === 1) return `One layer has one critical point: from every start it ends at ${three(now.equal)}, the optimum.`;
  if (tied) {
    return `From every start, the shared size ends at ${three(now.equal)}, with ${
      times(above.equal)
    } the loss of the best ${layers} sizes.`;
  }
  const different = new Set(starts).size;
  if (different === 1) {
    return `Equal layers have equal gradients and stay equal: they end at ${three(end[0])}, the best equal size, with ${
      times(above.equal)
    } the least loss. ` +
      `This point is a saddle: a difference between two layers grows there as exp(${significant(now.rate, 2)} t).`;
  }
  if (different < layers) {
    return `Layers that start equal stay equal: the sizes end at ${sizesOf(end)}, a saddle with ${
      times(above.end)
    } the least loss.`;
  }
  if (slow) return `At time ${horizon} the sizes are ${sizesOf(end)}, on their way to the optimum, ${sizesOf(goals)}.`;
  const stay = now.times.filter((_, k) => Math.abs(now.losses[k] / now.level - 1) < 0.05),
    held = stay.length > 1 && stay.at(-1) > 2 * stay[0] && now.level > 1.2 * now.floor;
  return `The sizes end at the optimum, ${sizesOf(goals)}; sizes that start apart keep their order. ` +
    (held
      ? `From time ${clock(stay[0])} to ${clock(stay.at(-1))} the loss is within 5% of ${
        number(now.level)
      }, the loss of the best equal size; at this saddle, differences grow as exp(${significant(now.rate, 2)} t).`
      : "");
}

function say(now, state) {
  const { dim, n_context: context, layers, tied } = state, one = tied || layers === 1;
  if (!now) return `Python computes the spectrum for d = ${dim}, n = ${context} …`;
  const { away } = now, most = Math.max(...away);
  const shown = (values) => sizesOf(one ? values.slice(0, 1) : values),
    place = tied && layers > 1 ? "the best equal size" : "its optimal size";
  return `d = ${dim}, n = ${context}, ${layers} ${layers === 1 ? "layer" : "layers"}${
    tied && layers > 1 ? " with one step size" : ""
  }, started at ${shown(startsOf(state))}. ` +
    `At time ${clock(now.moment)} ${one ? "the size is" : "the sizes are"} ${shown(now.now)} and the loss is ${
      number(now.loss)
    }, ${times(now.times_floor.now)} the least loss; ` +
    (most < 5e-4
      ? `${one ? "it has" : "all have"} reached ${one ? place : "their optimal sizes"}. `
      : `${one ? "it" : `layer ${away.indexOf(most) + 1}`} is ${three(most)} from ${place}. `) +
    ended(now, state);
}

const WORDS = ["Two", "Three", "Four"];
const OPTIONS = ["together, at the best equal size", "apart, in the order of their starts", "apart, in the opposite order"];
const guess = {
  prompt: (state) =>
    `${
      state.layers === 1
        ? "One layer starts with the step size"
        : `${WORDS[state.layers - 2]} layers start with the step sizes`
    } ${sizesOf(startsOf(state))}, which ${
      state.layers === 1 ? "follows" : "follow"
    } the negative gradient of the exact loss. Where ${state.layers === 1 ? "does this size" : "do these sizes"} end?`,
  options: OPTIONS,
  reveal: (said, now, state) =>
    judged(
      said,
      said === OPTIONS[!state.tied && new Set(startsOf(state)).size === state.layers ? 1 : 0],
      ended(now, state),
    ),
};
const tour = [
  {
    set: { starts: [0.3, 0.3, 0.9, 0], time: 1 },
    say:
      "Equal starts: nothing distinguishes the layers, and they stay equal forever. Their sizes end on the dotted line, at a saddle.",
  },
  {
    set: { starts: [0.3, 0.301, 0.9, 0], time: 0.55 },
    say: ({ tenfold }) =>
      `The starts differ by a thousandth: the sizes first reach the same plateau, then they separate. With a tenth of the difference, the plateau would be longer by log 10 divided by the rate, that is, by ${
        show(tenfold)
      }.`,
  },
  {
    set: { layers: 3, starts: [2.1, -0.3, 0.7, 0.1], time: 0.2 },
    say:
      "Three layers start far apart, one of them with a negative step size: they end at the three best sizes, in the order in which they started.",
  },
  {
    set: { layers: 3, n_context: 100, starts: [0.3, 0.31, 0.32, 0], time: 0.7 },
    say:
      "With more examples, the spectrum is narrower: the best sizes lie closer together, differences matter less, and training takes longer to separate the layers.",
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
