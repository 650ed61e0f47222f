// The shell of every explorer: controls by mouse, touch and keyboard, the address, reset and link, a question put first, a
// tour, and redrawing. A module calls it with
//   pictures  each { label, box } for an SVG, with `click`, if a click on it sets something: (x, y, state) => changes; or a
//             function (root, link) that makes something else and returns its layer
//   controls  a table, see below
//   compute   (state) => numbers, or null while Python has yet to answer
//   draw      (layers, numbers, state, bounds, asking): draws into the layers, those of SVGs emptied before
//   say       (numbers, state, layers) => the sentence that says what is drawn
//   guess     { prompt, reveal: (guess, numbers, state) => sentence } with `options`, or with a point to mark in a picture:
//             { picture, start: [x, y] }; prompt and options may be functions of the state; with `tells`, reveal answers
//             without a guess, too; with `of`, a function of the state, reveal is also given the numbers of the state that this
//             returns; until it is answered or passed over, draw is called with `asking`
//   tour      a list of steps { set, say, light }: values of traits where they are not those at the start, a sentence, or a
//             function of the numbers that is one, and the class of what is meant, which is framed; or a function of the state
//   fits      (state, bounds) => what is wrong with a state whose values do not go together, or nothing
//   titled    (state) => the line with which a saved picture begins
//   kept      names of further traits that the address tells
//   elsewhere { label, to: (state) => address }: a link to another page of the book, from its root
// A row of the table has
//   kind      one of KINDS, "slider" unless said
//   trait, at       what it sets, and the place in a list: a number, a path, or a function of the state
//   get, put        (state, numbers) => value and (value, state, bound) => changes, where that is not all
//   label           of a choice or a slider also a function of the state
//   step, scale, figures    of a slider: "log" and "sqrt" scales have steps of their share, and round to some figures
//   values          what a slider offers, if not the bounds say it: a function of the state
//   digits, text    how a slider says its value: digits behind the point, or (value, state) => text
//   broad           of a number, whose label needs a row of its own
//   bound           of a number: (state, bound) => bounds that depend on the state
//   names           what a choice calls its values
//   hidden, disabled    functions of the state
//   place, top, fold    the class of the box it stands in, whether this is above the pictures, and what it folds under
// Handles, toggles, actions and play say below what else they have. The traits' names and bounds come from Python:
// { low, high, whole } or { values }.

import { clamp, drawn, element, line, show, tidy, unique } from "./common.js";
import { save } from "./picture.js";

const BENDS = { log: [Math.log, Math.exp], sqrt: [Math.sqrt, (root) => root * root] };
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const called = (value, ...given) => (typeof value === "function" ? value(...given) : value);
const range = (low, high) => Array.from({ length: high - low + 1 }, (_, index) => low + index);
const valuesOf = ({ values, low, high }) => values ?? range(low, high);

// What a row shows, and what it changes; `at` is the place in a list, or in a list of lists.
const found = (value, path) => path.reduce((inner, index) => inner[index], value);
const put = (
  value,
  [index, ...path],
  part,
) => (index === undefined ? part : value.map((old, other) => (other === index ? put(old, path, part) : old)));
const pathOf = (row, state) => [called(row.at, state) ?? []].flat();
const valueOf = (row, state, numbers) => (row.get ? row.get(state, numbers) : found(state[row.trait], pathOf(row, state)));
const changed = (
  row,
  value,
  state,
  bound,
) => (row.put ? row.put(value, state, bound) : { [row.trait]: put(state[row.trait], pathOf(row, state), value) });

// A slider's own numbers: those of its trait, their logarithms or roots as a share, or places in a list.
function positions(row, bound, state) {
  let values = row.values?.(state) ?? bound.values;
  const { low, high, whole } = bound, bend = BENDS[row.scale];
  if (bend && whole) values = [...new Set(range(0, 120).map((part) => Math.round(low * (high / low) ** (part / 120))))];
  if (values) {
    return {
      min: 0,
      max: values.length - 1,
      step: 1,
      to: (value) => Math.max(0, values.findLastIndex((other) => other <= value)),
      from: (index) => values[index],
    };
  }
  if (!bend) return { min: low, max: high, step: row.step ?? (whole ? 1 : 0.05), to: Number, from: Number };
  const [bent, straight] = bend, [first, last] = [bent(low), bent(high)];
  return {
    min: 0,
    max: 1,
    step: row.step ?? 0.01,
    to: (value) => (bent(value) - first) / (last - first),
    from: (part) => clamp(Number(straight(first + part * (last - first)).toPrecision(row.figures ?? 3)), low, high),
  };
}

// A labeled range input with its value shown: `digits` behind the point, or as `text` says it.
function slider(row, { parent, bounds, link }) {
  const input = element("input", { type: "range" }),
    output = element("span", { class: "ao-value", "aria-hidden": "true" }),
    label = element("span");
  const node = element("label", { class: "ao-slider" }, label, input, output), bound = bounds[row.trait];
  parent.append(node);
  input.addEventListener("input", () => {
    const state = link.state();
    link.update(changed(row, positions(row, bound, state).from(Number(input.value)), state, bound));
  });
  return {
    node,
    set(state, numbers) {
      const { min, max, step, to } = positions(row, bound, state), value = valueOf(row, state, numbers);
      if (value === undefined) return;
      label.textContent = called(row.label, state);
      input.setAttribute("aria-label", label.textContent);
      Object.assign(input, { min, max, step });
      input.value = to(value);
      output.textContent = row.text ? row.text(value, state) : show(value, row.digits ?? (bound.whole ? 0 : 2));
      input.setAttribute("aria-valuetext", output.textContent);
    },
  };
}

const numeral = (value) => (Number.isInteger(value) ? String(value).replace("-", "−") : tidy(value));

// A number within its bounds, or what is wrong with a text and the text as a message quotes it.
export function numberIn(text, { low = -Infinity, high = Infinity, whole = false }) {
  const value = Number(text.trim().replace("−", "-").replace(",", "."));
  if (text.trim() && Number.isFinite(value) && value >= low && value <= high && (!whole || Number.isInteger(value))) {
    return { value };
  }
  const ends = Number.isFinite(low) && Number.isFinite(high)
    ? ` from ${numeral(low)} to ${numeral(high)}`
    : Number.isFinite(low)
    ? ` of at least ${numeral(low)}`
    : "";
  return {
    wrong: `must be a ${whole ? "whole " : ""}number${ends}`,
    given: text.trim() ? `“${text.trim().slice(0, 40)}”` : "nothing",
  };
}

// A labeled field for a number. A message names a value that is refused, and the last good value stays.
function number(row, { parent, bounds, link }) {
  const input = element("input", { type: "text", inputmode: "decimal", autocomplete: "off", "aria-label": row.label });
  const node = element(
    "label",
    { class: row.broad ? "ao-number ao-broad" : "ao-number" },
    element("span", {}, row.label),
    input,
  );
  let shown = "";
  input.addEventListener("change", () => {
    const bound = bounds[row.trait],
      { value, wrong, given } = numberIn(input.value, row.bound?.(link.state(), bound) ?? bound);
    if (!wrong && link.update(changed(row, value, link.state()))) return;
    if (wrong) link.warn(`${row.label} ${wrong}; you entered ${given}. It stays ${shown}.`);
    input.value = shown;
  });
  parent.append(node);
  return {
    node,
    set(state, numbers) {
      const now = numeral(valueOf(row, state, numbers));
      if (now !== shown || document.activeElement !== input) input.value = shown = now;
    },
  };
}

// What a value is called: `names` is a function, or by value. It gives text, or { key, make } for an element.
const nameOf = ({ names = String }, value, ...now) => (typeof names === "function" ? names(value, ...now) : names[value]);
function fill(node, content) {
  const key = content.key ?? content;
  if (node.shown !== key) node.replaceChildren(content.make?.() ?? content);
  node.shown = key;
}

// Radio buttons.
function choice(row, { parent, bounds, link }) {
  const name = unique("choice"), legend = element("legend"), node = element("fieldset", { class: "ao-choice" }, legend);
  const options = valuesOf(bounds[row.trait]).map((value) => {
    const input = element("input", { type: "radio", name, value }), title = element("span");
    input.addEventListener("change", () => link.update(changed(row, value, link.state())));
    node.append(element("label", {}, input, title));
    return { value, input, title };
  });
  parent.append(node);
  return {
    node,
    set(state, numbers) {
      fill(legend, called(row.label, state));
      const now = valueOf(row, state, numbers);
      for (const { value, input, title } of options) {
        fill(title, nameOf(row, value, state, numbers));
        input.checked = value === now;
      }
    },
  };
}

function select(row, { parent, bounds, link }) {
  const options = valuesOf(bounds[row.trait]).map((value) => [value, element("option", { value })]),
    list = element("select", { "aria-label": row.label }, ...options.map(([, option]) => option));
  const node = element("label", { class: "ao-select" }, element("span", {}, row.label), list);
  list.addEventListener("change", () => link.update(changed(row, options[list.selectedIndex][0], link.state())));
  parent.append(node);
  return {
    node,
    set(state, numbers) {
      for (const [value, option] of options) fill(option, nameOf(row, value, state, numbers));
      list.selectedIndex = options.findIndex(([value]) => value === valueOf(row, state, numbers));
    },
  };
}

export function button(label, act, attributes = {}) {
  const node = element("button", { type: "button", ...attributes }, label);
  node.addEventListener("click", act);
  return node;
}

// Buttons that turn the entries `from` to `to` of a list of zeros and ones.
function toggles(row, { parent, link }) {
  const buttons = range(row.from, row.to - 1).map((at) => [
    at,
    button("", () => {
      const state = link.state();
      link.update({ [row.trait]: put(state[row.trait], [at], 1 - state[row.trait][at]) });
    }, { "aria-label": `${row.name} ${at + 1}` }),
  ]);
  const node = element("fieldset", {}, element("legend", {}, row.label), ...buttons.map(([, one]) => one));
  parent.append(node);
  return {
    node,
    set(state) {
      for (const [at, one] of buttons) {
        one.textContent = String(state[row.trait][at]);
        one.setAttribute("aria-pressed", String(state[row.trait][at] === 1));
      }
    },
  };
}

// Buttons that change the state: `acts` maps their labels to functions of it.
function actions(row, { parent, link }) {
  const node = element(
    "fieldset",
    {},
    element("legend", {}, row.label),
    ...Object.entries(row.acts).map(([label, act]) => button(label, () => link.update(act(link.state())))),
  );
  parent.append(node);
  return { node, set() {} };
}

// A button that lets its trait run through its values; it stops where the reader changes one of the traits in `stops`.
function play(row, { parent, link, status, root }) {
  let timer = null;
  const place = (state) => positions(row, {}, state).to(valueOf(row, state)),
    at = (index, state) => ({ [row.trait]: row.values(state)[index] });
  const node = button("▶", () => {
    if (timer !== null) return pause();
    const state = link.state();
    if (place(state) === row.values(state).length - 1) link.update(at(0, state), node);
    offer("❚❚", "pause", "off");
    timer = setTimeout(step, 90);
  }, { class: "ao-play" });
  const offer = (sign, label, live) => {
    node.textContent = sign;
    node.setAttribute("aria-label", label);
    status.setAttribute("aria-live", live);
  };
  const pause = () => {
    clearTimeout(timer);
    timer = null;
    offer("▶", "play", "polite");
  };
  const step = () => {
    if (!root.isConnected) return pause();
    const state = link.state(), next = place(state) + 1, last = row.values(state).length - 1;
    if (next <= last) link.update(at(next, state), node);
    if (next >= last) return pause();
    timer = setTimeout(step, matchMedia("(prefers-reduced-motion: reduce)").matches ? 600 : 90);
  };
  parent.append(node);
  pause();
  link.watch((changes, source) => {
    if (timer !== null && source !== node && row.stops.some((name) => name in changes)) pause();
  });
  return { node, set() {}, stop: pause };
}

// Where an event is, in the units of an SVG.
const pointIn = (svg, { clientX, clientY }) => new DOMPoint(clientX, clientY).matrixTransform(svg.getScreenCTM().inverse());

// A group of an SVG, drawn about its origin, draggable and movable with the arrow keys: `move(x, y)` in the picture's units,
// by `step` of them a key. A finger may miss the mark by a little.
export function movable(node, { label, step, place, move }) {
  const svg = node.ownerSVGElement;
  drawn("circle", { r: 16, class: "ao-reach" }, node);
  for (
    const [name, value] of Object.entries({
      tabindex: "0",
      role: "button",
      "aria-label": `${label}: drag it or press the arrow keys`,
    })
  ) node.setAttribute(name, value);
  node.classList.add("ao-handle");
  node.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false }); // or the page scrolls instead
  node.addEventListener("pointerdown", (event) => {
    node.setPointerCapture(event.pointerId);
    node.classList.add("ao-held");
    node.focus();
    event.preventDefault();
  });
  node.addEventListener("lostpointercapture", () => node.classList.remove("ao-held"));
  node.addEventListener("pointermove", (event) => {
    if (!node.hasPointerCapture(event.pointerId)) return;
    const { x, y } = pointIn(svg, event);
    move(x, y);
  });
  node.addEventListener("keydown", (event) => {
    if (!(event.key in STEPS)) return;
    event.preventDefault();
    const [x, y] = place(), [dx, dy] = STEPS[event.key];
    move(x + step * dx, y - step * dy);
  });
}

// A point on the first picture, or on `picture`, its place among them: `place(value, numbers, state)` in its units, and
// `from(x, y, state)` back; `mark(group)` draws it.
function handle(row, { svgs, bounds, link }) {
  const node = drawn("g", {}, svgs[row.picture ?? 0]), { low, high } = bounds[row.trait];
  let at = [0, 0];
  const kept = (value) => (Array.isArray(value) ? value.map(kept) : clamp(Number(value.toPrecision(4)), low, high));
  row.mark(node);
  movable(node, {
    label: row.label,
    step: row.step ?? 4,
    place: () => at,
    move(x, y) {
      const state = link.state();
      link.update(changed(row, kept(row.from(x, y, state)), state));
    },
  });
  if (row.focus) node.addEventListener("focus", () => link.update(row.focus));
  return {
    node,
    set(state, numbers) {
      at = row.place(valueOf(row, state, numbers), numbers, state);
      node.setAttribute("transform", `translate(${at[0]} ${at[1]}) scale(${called(row.size, state) ?? 1})`);
    },
  };
}

// What a module makes itself: `make(parent, link, { status, root, bounds })` returns { node, set, stop }.
const part = (row, { parent, ...rest }) => row.make(parent, rest.link, rest);

const KINDS = { slider, number, part, choice, select, toggles, actions, play, handle };

// The state in the address, #NAME=trait:value;trait:1,2,3, as far as it is not the one at the start.
const written = (value) =>
  [value].flat(Infinity).map((one) => encodeURIComponent(typeof one === "number" ? Number(one.toPrecision(12)) : one)).join(
    ",",
  );
const spelled = (state, names) => names.map((name) => `${name}:${written(state[name])}`).join(";");
const addressed = (state, start) =>
  spelled(state, Object.keys(start).filter((name) => written(state[name]) !== written(start[name])));

// The changes that an address asks for, and the names of those that are not a value of any trait.
function asked(text, start, bounds) {
  const changes = {}, refused = [];
  for (const part of text.split(";")) {
    const [name, list = ""] = part.split(":"), texts = list.split(","), bound = bounds[name];
    if (!Object.hasOwn(start, name)) {
      if (part) refused.push(name);
      continue;
    }
    const read = (old) => {
      if (Array.isArray(old)) return old.map(read);
      const one = texts.shift() ?? "",
        value = typeof old === "string"
          ? decodeURIComponent(one)
          : typeof old === "boolean"
          ? one === "true"
          : one === ""
          ? NaN
          : Number(one);
      const known = bound.values ? bound.values.includes(value) : typeof old !== "number" ||
        (Number.isFinite(value) && value >= (bound.low ?? -Infinity) && value <= (bound.high ?? Infinity) &&
          !(bound.whole && value % 1));
      if (!known) throw new RangeError(name);
      return value;
    };
    try {
      const value = read(start[name]);
      if (texts.length) refused.push(name);
      else changes[name] = value;
    } catch (error) {
      if (!(error instanceof RangeError || error instanceof URIError)) throw error;
      refused.push(name);
    }
  }
  return { changes, refused };
}

// The question put first: the answers as buttons, or a point to mark. `done` is called with the guess, or with nothing; what
// is returned leaves the question.
function question({ prompt, options, picture, start }, { root, svgs, done }) {
  const node = element("div", { class: "ao-guess" }, element("p", {}, prompt)),
    buttons = (options ?? []).map((option) => button(option, () => end(option)));
  let at = start, point = null;
  const end = (guess, elsewhere = false) => {
    node.remove();
    if (guess === undefined) point?.remove();
    for (const name of ["tabindex", "role", "aria-label"]) point?.removeAttribute(name); // it stays, and is moved no more
    point?.setAttribute("class", "ao-guessed");
    done(guess, elsewhere);
  };
  if (!options) {
    point = drawn("g", {}, svgs[picture ?? 0]);
    for (const side of [1, -1]) line(point, [-6, -6 * side], [6, 6 * side], { "stroke-width": 3 });
    const move = (x, y) => {
      const { x: left, y: top, width, height } = svgs[picture ?? 0].viewBox.baseVal;
      at = [clamp(x, left, left + width), clamp(y, top, top + height)];
      point.setAttribute("transform", `translate(${at})`);
    };
    movable(point, { label: "Your guess", step: 4, place: () => at, move });
    point.classList.add("ao-marking");
    point.addEventListener("keydown", (event) => {
      if (event.key === "Enter") end(at);
    });
    move(...start);
    buttons.push(button("that is my guess", () => end(at)));
  }
  node.append(...buttons, button("show me", () => end()));
  root.prepend(node);
  return end;
}

// The text after a guess, and at a step of a tour.
export const revealed = (guessed, compute, { reveal, of }, state) =>
  reveal(guessed, compute(state), state, of && compute(of(state)));
export const told = ({ say }, compute, state) => (typeof say === "function" ? say(compute(state), state) : say);

// Frames what is meant, unfolds it, and scrolls it into view below the bar that tells of it.
export function point(root, lit, bar, block) {
  for (const other of root.querySelectorAll(".ao-lit")) other.classList.remove("ao-lit");
  if (!lit) return;
  lit.closest("details")?.setAttribute("open", "");
  lit.classList.add("ao-lit");
  lit.style.scrollMargin = `${bar.offsetHeight + 6}px 0 8px`; // the theme's own padding keeps it clear of the header
  lit.scrollIntoView({ block });
}

// Back and next through the steps of a tour, each a state and a sentence.
function guide(steps, { link, reset, root, compute }) {
  let at = -1, before = null;
  const said = element("span", { "aria-live": "polite" }), node = element("div", { class: "ao-tour" });
  const dim = () => {
    for (const lit of root.querySelectorAll(".ao-lit")) lit.classList.remove("ao-lit");
  };
  link.watch((_, source) => {
    if (source !== node) dim();
  });
  const go = (step) => {
    if (at < 0 && step >= 0) before = Object.fromEntries(Object.keys(reset).map((name) => [name, link.state()[name]]));
    at = step;
    end.hidden = at < 0;
    node.classList.toggle("ao-touring", at >= 0);
    back.disabled = at <= 0;
    next.disabled = at === steps.length - 1;
    next.textContent = at < 0 ? "tour" : "next";
    if (at >= 0) link.update({ ...reset, ...steps[at].set }, node);
    said.textContent = at < 0 ? "" : `${at + 1} of ${steps.length}: ${told(steps[at], compute, link.state())}`;
    if (at >= 0) point(root, steps[at].light && root.querySelector(`.${steps[at].light}`), node, "start");
  };
  const back = button("back", () => go(at - 1)),
    next = button("tour", () => go(at + 1)),
    end = button("end", () => {
      go(-1);
      dim();
      link.update(before, node);
    });
  node.append(back, next, end, said);
  go(-1);
  return node;
}

export function explorer({ pictures, controls, compute, draw, say, guess, tour, fits, kept = [], titled, elsewhere }) {
  // In the page, `name` is what the explorer is called in the address; a kernel gives none.
  function render({ model, el, name }) {
    const root = element("div", { class: "ao" }),
      status = element("p", { class: "ao-readout", role: "status" }),
      alert = element("p", { class: "ao-alert", role: "alert" });
    // JupyterLab takes the arrow keys for itself unless the very control in focus says that it wants them.
    root.addEventListener("focusin", ({ target }) => target.setAttribute("data-lm-suppress-shortcuts", "true"));
    const names = Object.keys(model.get("_bounds")), watchers = [], module = name?.replace(/-\d+$/, "");
    const state = () => Object.fromEntries(names.map((one) => [one, model.get(one)]));
    let held = true,
      timer = null,
      asking = guess !== undefined,
      way = null,
      alone = null,
      parts = [],
      layers = [],
      svgs = [],
      width = null,
      leave = null;

    const link = {
      state,
      redraw,
      name,
      watch: (watcher) => watchers.push(watcher),
      warn(sentence) {
        alert.textContent = sentence;
      },
      update(changes, source = null) { // drawn once, whatever is changed; false if it may not be
        const wrong = fits?.({ ...state(), ...changes }, model.get("_bounds"));
        if (wrong || !source) alert.textContent = wrong ? `${wrong} Nothing was changed.` : "";
        if (wrong) {
          redraw(); // so that a control shows what is
          return false;
        }
        const before = held;
        held = true;
        for (const [one, value] of Object.entries(changes)) model.set(one, value);
        held = before;
        model.save_changes();
        for (const watcher of watchers) watcher(changes, source);
        redraw();
        clearTimeout(timer);
        timer = setTimeout(note, 400, location.hash); // browsers allow few changes of the address
        return true;
      },
    };

    function redraw() {
      if (held) return;
      const now = state(), bounds = model.get("_bounds");
      try {
        const numbers = compute(now);
        for (const { row, node, set } of parts) {
          set(now, numbers);
          node.toggleAttribute("hidden", Boolean(called(row.hidden, now)));
          node.toggleAttribute("disabled", Boolean(called(row.disabled, now)));
        }
        if (numbers !== null) {
          layers.forEach((layer, index) => {
            if (svgs[index]) layer.replaceChildren();
          });
          draw(layers, numbers, now, bounds, asking);
        }
        status.textContent = asking ? "" : say(numbers, now, layers);
        if (way) way.href = new URL(`../../${elsewhere.to(now)}`, globalThis.attnopt.base);
        if (alone) {
          alone.href = new URL(
            `../../embed/${module}.html#${module}=${spelled(now, Object.keys(start))}`,
            globalThis.attnopt.base,
          );
        }
      } catch (error) {
        console.error(error);
        status.textContent = `This cannot be drawn: ${error.message}.`;
      }
    }

    // All anew, at the start and where Python says that the bounds are others.
    function build() {
      for (const { stop } of parts) stop?.();
      watchers.length = 0;
      root.replaceChildren();
      const bounds = model.get("_bounds"), before = element("div"), boxes = new Map();
      const boxOf = ({ place = "ao-controls", top = false, fold }) => {
        const key = `${place} ${top} ${fold}`;
        if (!boxes.has(key)) {
          const box = element("div", { class: place });
          boxes.set(key, {
            box,
            outer: fold ? element("details", { class: "ao-fold" }, element("summary", {}, fold), box) : box,
          });
        }
        return boxes.get(key);
      };
      for (const row of controls) if (row.top) root.append(boxOf(row).outer);
      svgs = [];
      layers = pictures.map((one, index) => {
        if (typeof one === "function") return one(root, link);
        const svg = svgs[index] = drawn("svg", { viewBox: one.box, role: "group", "aria-label": one.label }, root);
        if (one.click) {
          svg.addEventListener("click", (event) => {
            const { x, y } = pointIn(svg, event);
            link.update(one.click(x, y, state()));
          });
        }
        return drawn("g", {}, svgs[index]);
      });
      for (const row of controls) if (!row.top && !row.fold && row.kind !== "handle") root.append(boxOf(row).outer);
      parts = controls.map((row) => ({
        row,
        ...KINDS[row.kind ?? "slider"](row, { parent: boxOf(row).box, svgs, bounds, link, status, root }),
      }));
      const foot = element("div", { class: "ao-foot" }, button("reset", () => link.update(start)));
      if (name) foot.append(button("copy link", copy, { "aria-live": "polite" }));
      const home = globalThis.attnopt?.base; // in the page: the scripts stand two folders below the book's root
      alone = name && home && !location.pathname.includes("/embed/")
        ? element("a", { title: "this explorer on a page of its own, for slides and course pages" }, "embed")
        : null;
      if (alone) foot.append(alone);
      for (const kind of ["svg", "png"]) {
        foot.append(button(kind.toUpperCase(), () => {
          save(root, name ?? "explorer", kind, titled?.(state())).catch((error) =>
            link.warn(`The picture cannot be saved: ${error.message}.`)
          );
        }, { "aria-label": `save the picture as ${kind.toUpperCase()}` }));
      }
      way = elsewhere && home ? element("a", {}, elsewhere.label) : null;
      if (way) foot.append(way);
      const steps = called(tour, state());
      if (steps) {
        const tourist = guide(steps, { link, reset: start, root, compute });
        if (steps.some(({ light }) => light)) root.prepend(tourist);
        else foot.prepend(tourist);
      }
      root.append(alert, status);
      for (const row of controls) if (row.fold) root.append(boxOf(row).outer);
      root.append(foot);
      if (asking) {
        leave = question({ ...guess, prompt: called(guess.prompt, state()), options: called(guess.options, state()) }, {
          root,
          svgs,
          done(guessed, elsewhere) {
            asking = false;
            root.classList.remove("ao-asking");
            redraw();
            if (guessed !== undefined || guess.tells) {
              root.prepend(
                element("p", { class: "ao-guess ao-guessed", role: "note" }, revealed(guessed, compute, guess, state())),
              );
            }
            const clear = () => {
              for (const one of root.querySelectorAll(".ao-guessed")) one.remove();
            }; // of another state it says nothing
            link.watch(
              () => (root.querySelector(".ao-held") ? addEventListener("pointerup", clear, { once: true }) : clear()),
            ); // nor moves the picture under a pointer
            if (elsewhere) {
              return;
            }
            status.tabIndex = -1; // the button that had the focus is gone
            status.focus({ preventScroll: true });
          },
        });
      }
      root.classList.toggle("ao-asking", asking);
      redraw();
    }

    const start = Object.fromEntries(
      [...controls.flatMap((row) => row.trait ?? []), ...kept].map((one) => [one, model.get(one)]),
    );
    const opening = `#${name}=`, address = () => `${location.href.split("#")[0]}${opening}${addressed(state(), start)}`;
    function note(hash) {
      if (!name || location.hash !== hash) return; // the reader has gone elsewhere since
      if (!addressed(state(), start) && !location.hash.startsWith(opening)) return;
      try {
        history.replaceState(history.state, "", address());
      } catch { /* too often, or not allowed here: the link can be copied */ }
    }
    function follow() {
      if (!name || !location.hash.startsWith(opening)) return;
      if (leave && asking) leave(undefined, true);
      asking = false;
      const { changes, refused } = asked(location.hash.slice(opening.length), start, model.get("_bounds"));
      const taken = link.update({ ...start, ...changes });
      if (refused.length) {
        link.warn(
          `${taken ? "" : alert.textContent} The address asks for something that cannot be here: ${
            refused.join(", ")
          }. It was left out.`.trim(),
        );
      }
    }
    async function copy({ target }) {
      try {
        await navigator.clipboard.writeText(address());
        target.textContent = "link copied";
      } catch {
        history.replaceState(history.state, "", address());
        target.textContent = "the link is in the address bar";
      }
      setTimeout(() => {
        target.textContent = "copy link";
      }, 3000);
    }

    follow();
    held = false;
    build();
    el.append(root);
    for (const one of names) model.on(`change:${one}`, redraw);
    model.on("change:_bounds", build);
    addEventListener("hashchange", follow);
    const watch = new ResizeObserver(() => { // SVGs fit themselves
      const fits = width === root.clientWidth || !pictures.some((one) => typeof one === "function");
      width = root.clientWidth;
      if (!fits) requestAnimationFrame(redraw); // not at once: changing a size while sizes are reported is an error in Firefox
    });
    watch.observe(root);
    return () => {
      for (const { stop } of parts) stop?.();
      for (const one of names) model.off(`change:${one}`, redraw);
      model.off("change:_bounds", build);
      removeEventListener("hashchange", follow);
      watch.disconnect();
      clearTimeout(timer);
    };
  }
  return { render, parts: { say, guess, tour } };
}
