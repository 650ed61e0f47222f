// Training from any start of a plane: gradient flow on the exact loss of one layer ends in one of two valleys.

import { axes, clamp, clipped, COLORS, curve, drawn, integrate, judged, line, mark, show, unique } from "./common.js";
import { explorer } from "./shell.js";

const REACH = 2, HORIZON = 1000, NEAR = 0.1, DEGREE = Math.PI / 180;
const TIMES = [0, ...Array.from({ length: 79 }, (_, k) => 0.01 * (HORIZON / 0.01) ** (k / 78))];
const ANGLES = Array.from({ length: 61 }, (_, k) => 1.5 * k);

// The loss in the family b = (b₁, 0, β), A₁ = diag(a₁, a₂), α = (α₁, 0) of d = 2, Σ = diag(1, λ), and minus its gradient.
function family({ second, examples: n }) {
  const trace = 1 + second, squares = 1 + second ** 2, stiff = [n + 1 + trace, (n + 1) * second + trace];
  const k1 = stiff[0] / n, k2 = second ** 2 * stiff[1] / n, s1 = -n / stiff[0], s2 = -n / stiff[1];
  const key = 1 + 2 / n, both = trace + 2 / n, label = (1 + 2 / n) * (trace ** 2 + 2 * squares), rest = second ** 2 / n;
  const floor = (1 + trace) / stiff[0] + second * (second + trace) / stiff[1];
  const loss = ([b, beta, a1, a2, alpha]) => {
    const p = a1 * b, q = beta * alpha;
    return floor + k1 * (beta * a1 + b * alpha - s1) ** 2 + k2 * (beta * a2 - s2) ** 2 +
      key * p * p + 2 * both * p * q + label * q * q + rest * (a2 * b) ** 2;
  };
  const velocity = ([b, beta, a1, a2, alpha]) => {
    const first = 2 * k1 * (beta * a1 + b * alpha - s1), other = 2 * k2 * (beta * a2 - s2), p = a1 * b, q = beta * alpha;
    const byP = 2 * (key * p + both * q), byQ = 2 * (both * p + label * q), byR = 2 * rest * a2 * b;
    return [
      -(first * alpha + byP * a1 + byR * a2),
      -(first * a1 + other * a2 + byQ * alpha),
      -(first * beta + byP * b),
      -(other * beta + byR * b),
      -(first * b + byQ * beta),
    ];
  };
  // The least loss at an angle θ, in radians, between b and e₃.
  const along = (angle) => {
    const c = Math.sin(angle) ** 2, e = Math.cos(angle) ** 2;
    const own = k1 * e + key * c, mixed = k1 + both, last = k1 * c + label * e;
    const removed = (e * last + c * own - 2 * c * e * mixed) / (own * last - c * e * mixed ** 2);
    return 1 - removed + second - n * second ** 2 * e / (stiff[1] * e + c);
  };
  return { loss, velocity, along, floor };
}

// The angle, in radians, and the loss of the last dip of `along` that is not at 0: on a grid, then by the golden section.
function dipOf(along, cuts = 60) {
  const golden = (1 + Math.sqrt(5)) / 2,
    grid = Array.from({ length: 257 }, (_, k) => Math.PI / 2 * k / 256),
    losses = grid.map(along);
  const dip = losses.findLastIndex((loss, k) => k > 0 && loss < losses[k - 1] && loss <= (losses[k + 1] ?? losses[255]));
  if (dip < 0) return null;
  if (dip === 256) return [grid[256], losses[256]];
  let [low, high] = [grid[dip - 1], grid[dip + 1]];
  for (let cut = 0; cut < cuts; cut++) {
    const [left, right] = [high - (high - low) / golden, low + (high - low) / golden];
    if (along(left) < along(right)) high = right;
    else low = left;
  }
  return [(low + high) / 2, along((low + high) / 2)];
}

// The states at all times; what moves no more is followed no farther.
function follow(velocity, start) {
  let state = [...start, 0, 0, 0];
  return TIMES.map((time, k) => {
    if (k > 0 && Math.hypot(...velocity(state)) > 1e-11) [state] = integrate(velocity, state, [time - TIMES[k - 1]]);
    return state;
  });
}

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  const { loss, velocity, along, floor } = family(state), dip = dipOf(along);
  const states = follow(velocity, state.start), losses = states.map(loss), end = losses.at(-1);
  const near = NEAR * ((dip?.[1] ?? 2 * floor) - floor);
  return {
    times: TIMES,
    path: states.map(([b, beta]) => [b, beta]),
    losses,
    angles: ANGLES,
    along: ANGLES.map((angle) => along(DEGREE * angle)),
    floor,
    second_angle: dip && dip[0] / DEGREE,
    second_floor: dip && dip[1],
    times_floor: dip && dip[1] / floor,
    end_angle: Math.atan2(...states.at(-1).slice(0, 2)) / DEGREE,
    valley: end < floor + near ? 0 : dip && Math.abs(end - dip[1]) < near ? 1 : -1,
  };
}

// The line between the starts of one valley and of the other, column by column, by bisection. It takes some tenths of a
// second: it is found a few milliseconds at a time, kept, and drawn where it is shown now.
const COLUMNS = 21, CUTS = 8, kept = new Map();

function* dividing(state) {
  const { loss, velocity, floor, along } = family(state), [, other] = dipOf(along);
  let low = 0;
  for (let column = 0; column < COLUMNS; column++) {
    const b = 0.02 + (REACH - 0.02) * column / (COLUMNS - 1);
    let high = REACH + 0.1;
    for (let cut = 0; cut < CUTS; cut++) {
      const middle = (low + high) / 2;
      let at = [b, middle, 0, 0, 0], deep = false;
      for (let time = 1; time < HORIZON / 4 && !deep; time *= 2) {
        [at] = integrate(velocity, at, [time], { relative: 1e-5, absolute: 1e-7 });
        deep = loss(at) < other - NEAR * (other - floor); // from here the way leads down to the optimum
        if (Math.hypot(...velocity(at)) < 1e-4) break;
      }
      [low, high] = deep ? [low, middle] : [middle, high];
      yield null;
    }
    yield [b, (low + high) / 2];
  }
}

function divide(parent, state) {
  const key = `${state.second} ${state.examples}`;
  if (!kept.has(key)) {
    if (kept.size > 60) kept.clear();
    kept.set(key, { points: [[0, 0]], search: dividing(state), groups: new Set(), running: false, done: false });
  }
  const entry = kept.get(key), group = drawn("g", {}, parent);
  entry.groups.add(group);
  const paint = () => {
    for (const one of entry.groups) {
      one.replaceChildren();
      color(one, entry.points);
    }
  };
  const work = () => {
    entry.groups = new Set([...entry.groups].filter((one) => one.isConnected));
    entry.running = entry.groups.size > 0 && !entry.done;
    if (!entry.running) return; // nobody looks: the next drawing goes on
    for (const until = performance.now() + 8; performance.now() < until && !entry.done;) {
      const { value, done } = entry.search.next();
      if (value) entry.points.push(value);
      entry.done = done;
    }
    if (entry.done) paint();
    setTimeout(work, 4);
  };
  if (entry.done) paint();
  else if (!entry.running) {
    entry.running = true;
    setTimeout(work, 4);
  }
}

const FRAME = [44, 22, 312, 290], PURPLE = "#CC79A7";
const unit = (FRAME[2] - FRAME[0]) / REACH;
const place = ([b, beta]) => [FRAME[0] + unit * b, FRAME[3] - unit * beta];
const three = (value) => show(value, 3);

function color(group, points) {
  const above = [...points, [REACH, REACH + 0.2], [0, REACH + 0.2]], below = [...points, [REACH, 0]];
  const id = unique("hatch"),
    pattern = drawn(
      "pattern",
      { id, width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      group,
    );
  line(pattern, [0, 0], [0, 8], { stroke: COLORS[1], "stroke-width": 2.4, opacity: 0.5 });
  drawn("polygon", { points: above.map(place).join(" "), fill: COLORS[0], opacity: 0.18, class: "first-valley" }, group);
  drawn("polygon", { points: below.map(place).join(" "), fill: COLORS[1], opacity: 0.14 }, group);
  drawn("polygon", { points: below.map(place).join(" "), fill: `url(#${id})`, class: "second-valley" }, group);
  curve(group, points.map(place), { "stroke-width": 1 });
}

const square = (parent, at) => mark(parent, 2, at, 7, { fill: PURPLE, stroke: "currentColor", "stroke-width": 1.5 });
const pictures = [
  {
    label: "The plane of starts, by the valley in which training ends, and the path from the marked start",
    box: "0 0 320 324",
  },
  {
    label: "The loss against the angle: the least at each angle, both floors, and the path of training",
    box: "0 0 320 324",
  },
];
const controls = [
  {
    trait: "start",
    kind: "handle",
    label: "The start of training",
    step: unit / 20,
    mark: (node) => square(node, [0, 0]),
    place,
    from: (x, y) => [(x - FRAME[0]) / unit, (FRAME[3] - y) / unit],
  },
  { trait: "second", label: "eigenvalue 2", step: 0.05 },
  { trait: "examples", label: "examples n", scale: "log" },
];
// The shape in which a way ends is that of its valley: a circle, a triangle, or a square for neither.
const last = (parent, now, at) =>
  mark(parent, now.valley < 0 ? 2 : now.valley, at, 6, {
    fill: now.valley < 0 ? "none" : COLORS[now.valley],
    stroke: "currentColor",
    "stroke-width": 1.5,
  });

function draw([starts, descent], now, state, bounds, asking) {
  const side = { low: 0, high: REACH, ticks: [0, 0.5, 1, 1.5, 2] };
  axes(starts, FRAME, { ...side, label: "b₁" }, { ...side, label: "β" });
  const field = clipped(starts, FRAME), turn = DEGREE * (now.second_angle ?? 0);
  const top = 1.12 * (1 + state.second);
  const put = axes(descent, FRAME, { label: "angle θ of b, in degrees", low: 0, high: 90, ticks: [0, 30, 60, 90] }, {
    label: "loss",
    low: 0,
    high: top,
    ticks: [0, 0.5, 1, 1.5, 2].filter((value) => value < top),
  });
  const way = now.path.map(([b, beta], k) => put([clamp(Math.atan2(b, beta) / DEGREE, 0, 90), now.losses[k]]));
  if (asking) {
    square(starts, place(state.start));
    square(descent, way[0]);
    drawn("text", { x: 178, y: 14, "text-anchor": "middle", class: "ao-small" }, starts, "the start: b = (b₁, 0, β), A = 0");
    return;
  }
  if (now.second_angle !== null) {
    divide(field, state);
    line(field, place([0, 0]), place([3 * Math.sin(turn), 3 * Math.cos(turn)]), {
      stroke: COLORS[1],
      "stroke-width": 2.2,
      "stroke-dasharray": "7 4",
    });
  }
  line(field, place([0, 0]), place([0, REACH]), { stroke: COLORS[0], "stroke-width": 5 });
  curve(field, now.path.map(place), { "stroke-width": 2.5 });
  const end = now.path.at(-1), share = Math.min(1, 1.02 * REACH / Math.max(...end, 1e-9)); // beyond the frame: where its ray leaves it
  last(starts, now, place(end.map((value) => clamp(share * value, 0, REACH))));
  const legend = [["ends at the optimum", 40, COLORS[0]], ["in the second valley", 182, COLORS[1]]];
  for (const [name, x, fill] of legend.slice(0, now.second_angle === null ? 1 : 2)) {
    drawn("rect", { x, y: 4, width: 13, height: 12, fill, "fill-opacity": 0.25, stroke: fill }, starts);
    if (x > 100) {
      for (const shift of [0, 6]) {
        line(starts, [x + shift, 10 + shift / 2 + 3], [x + shift + 7, 4 + shift / 2 + 2], {
          stroke: fill,
          "stroke-width": 1.8,
        });
      }
    }
    drawn("text", { x: x + 18, y: 14, class: "ao-small" }, starts, name);
  }

  const level = (value, name, stroke, place) => {
    line(descent, put([0, value]), put([90, value]), { "stroke-dasharray": "6 4", "stroke-width": 1.5, stroke });
    drawn("text", { class: "ao-small ao-halo", ...place }, descent, name);
  };
  curve(descent, now.angles.map((angle, k) => put([angle, now.along[k]])), { "stroke-width": 4, opacity: 0.45 });
  curve(descent, way, { "stroke-width": 2.2 });
  const [, height] = put([0, now.floor]), under = height < FRAME[3] - 18;
  if (now.second_floor !== null) {
    level(now.second_floor, `second valley ${three(now.second_floor)}`, COLORS[1], {
      x: FRAME[0] + 6,
      y: put([0, now.second_floor])[1] - 5,
    });
  }
  level(now.floor, `optimum ${three(now.floor)}`, COLORS[0], {
    x: FRAME[2] - 6,
    y: height + (under ? 14 : -5),
    "text-anchor": "end",
  });
  square(descent, way[0]);
  last(descent, now, way.at(-1));
  drawn(
    "text",
    { x: 178, y: 14, "text-anchor": "middle", class: "ao-small" },
    descent,
    "gray: least loss at each angle; other line: training",
  );
}

function times(now) {
  const ratio = now.times_floor;
  return show(ratio, ratio < 1.1 ? 2 : ratio < 9.95 ? 1 : 0);
}
const degrees = (value) => `${show(value, 1)}°`;

function ended(now, [b, beta]) {
  const end = now.losses.at(-1), angle = degrees(now.end_angle);
  if (b === 0 && beta === 0) {
    return `At b = 0 and A = 0, the gradient is 0: nothing moves, and the loss stays ${three(end)}. This is a saddle.`;
  }
  if (now.valley === 0) {
    return `Training ends at the optimum, ${three(end)}. ` +
      (now.second_floor === null
        ? "There is no second valley."
        : `The second valley’s floor, ${three(now.second_floor)}, is ${times(now)} times as high.`);
  }
  if (beta === 0 && now.second_angle !== null && now.second_angle < 90) {
    return `From β = 0, training ends at ${
      three(end)
    } and 90°: symmetry keeps β at 0. This point is a saddle; a start next to it leads to the second valley’s floor, ${
      three(now.second_floor)
    }.`;
  }
  if (now.valley === 1) {
    return `Training ends in the second valley, at ${three(end)} and ${angle}: ${times(now)} times the optimum, ${
      three(now.floor)
    }, although the loss is exact, without any noise.`;
  }
  return `At time ${HORIZON}, training has reached neither floor: the loss is ${three(end)}, the optimum ${
    three(now.floor)
  }.`;
}

function say(now, { start, second, examples: n }) {
  return `Eigenvalues 1 and ${show(second)}, ${n} ${n === 1 ? "example" : "examples"}, start at b₁ = ${
    show(start[0])
  }, β = ${show(start[1])} with loss ${three(now.losses[0])}. ${ended(now, start)}`;
}

const guess = {
  prompt:
    "Training starts at the mark, with A = 0, and follows the negative gradient of the exact loss, without noise, until it stops. Where does it end?",
  options: ["at the optimum", "somewhere else"],
  reveal: (said, now, { start }) => judged(said, (said === "at the optimum") === (now.valley === 0), ended(now, start)),
};
const tour = [
  { set: { start: [0.4, 1.2] }, say: "A start near the β axis: training ends at the optimum, where b₁ = 0." },
  {
    set: { start: [1.2, 0.4] },
    say:
      "A start near the b₁ axis: training ends on the dashed ray, in the second valley, where the layer hardly reads the second coordinate. A hill separates the two.",
  },
  {
    set: { start: [1.2, 0.4], second: 1 },
    say: ({ end_angle: angle }) =>
      `Equal eigenvalues: with two directions and 20 examples, the second valley remains, at ${degrees(angle)}.`,
  },
  {
    set: { examples: 200 },
    say: (now) =>
      `More examples lower both floors, but the optimum’s faster: the second valley is now ${
        times(now)
      } times as high as the optimum; with 20 examples, it was 2.9 times as high.`,
  },
];

export default explorer({ pictures, controls, compute, draw, say, guess, tour });
