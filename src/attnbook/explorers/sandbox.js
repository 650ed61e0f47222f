// The laboratory: recorded runs and trainings of the reader's own, frame by frame, and all that the model does in the plane.
// A frame is its weights; everything drawn is computed from them.

import { element, show, sum, tidy } from "./common.js";
import { button, explorer, numberIn, point } from "./shell.js";
import {
  asFile,
  Bench,
  benchOf,
  counts,
  curvesOf,
  editsOf,
  fits,
  fromFile,
  held,
  inRows,
  LAYERS,
  liveOf,
  offeredOf,
  OWN,
  rowsOf,
  settingsOf,
  SIZES,
  startOf,
  taskOf,
  told,
  typed,
  unpack,
} from "./bench.js";
import { drawPanels, panels, sentenceOf, spelled } from "./panels.js";
import { download } from "./picture.js";
import { openSeveral, stepsPerEpoch } from "./runner.js";
import { classify } from "./model.js";

const CELLS = 24, SEEDS = 20, MOST = 200, SUCCESS = 0.9, REPLAY = 300; // epochs per second at which what is trained is gone through
const PACES = [["as fast as possible", Infinity], ["25 epochs per second", 25], ["5 epochs per second", 5], [
  "1 epoch per second",
  1,
], ["10 steps per second", null]];
const SPLITS = [
  ["rate", "learning rate", "0.001"],
  ["decay", "weight decay", "0.1"],
  ["clip", "clipping of the gradient at", "1"],
  ["beta1", "β₁", "0"],
  ["beta2", "β₂", "0.9"],
  ["eps", "ε", "0.0001"],
  ["discount", "discount", "10"],
  ["order", "order of the batches (a seed)", "1"],
];
const USUAL = {
  p: 2,
  length: 12,
  k: 5,
  dim: 2,
  width: 32,
  count: 2048,
  batch: 32,
  rate: 3e-3,
  decay: 0,
  clip: 0,
  beta1: 0.9,
  beta2: 0.999,
  eps: 1e-8,
  discount: 1,
  norm: "rms",
  rule: "",
};
const NAMES = {
  p: "p",
  length: "L",
  k: "k",
  dim: "d",
  width: "neurons",
  count: "training sequences",
  batch: "batch",
  rate: "learning rate",
  decay: "weight decay",
  clip: "gradients clipped at",
  beta1: "β₁",
  beta2: "β₂",
  eps: "ε",
  discount: "discount",
  norm: "normalization",
  rule: "labels",
};
const TRAINED = ["seed", ...Object.keys(USUAL), "goal"];
const brief40 = (text) => (text.length > 40 ? `${text.slice(0, 40)}…` : text);
const each = (state) => stepsPerEpoch(settingsOf(state));
const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);
const percent = (value, digits = 1) => (value === null || Number.isNaN(value) ? "–" : `${show(100 * value, digits)}%`);
const power = (exponent) => `10${String(exponent).replace("-", "⁻").replace(/\d/g, (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit])}`;
const brief = (value) => Number(value.toPrecision(2)).toString();
const small = (
  value,
) => (value === 0 || (value >= 1e-3 && value < 1e6)
  ? brief(value)
  : `${brief(value / 10 ** Math.floor(Math.log10(value)))} × ${power(Math.floor(Math.log10(value)))}`);
const numeral = (epoch) => (Number.isInteger(epoch) ? String(epoch) : show(epoch, 2));

// The numbers that the picture shows; the Python class computes the same.
export function compute(state) {
  benchOf(state)?.sync(state);
  const now = held(state);
  if (!now) return null;
  const { through, reaches, evaluation, model } = now, { loss, train, unseen, all } = evaluation;
  const cell = (index) => ((index + 0.5) * 2 / CELLS - 1) * reaches.sequence,
    known = (value) => (value === undefined || Number.isNaN(value) ? null : value);
  const { embeddings, values, attention, sequence, probabilities } = through;
  return {
    embeddings,
    values,
    attention,
    sequence,
    probabilities,
    reaches,
    frame: now.frame,
    epoch: now.epoch,
    m: now.m,
    explained: now.explained,
    map: now.dim === 2
      ? Array.from(
        { length: CELLS ** 2 },
        (_, index) => classify(model, [cell(index % CELLS), cell(Math.floor(index / CELLS))]),
      )
      : [],
    loss: known(loss),
    accuracy: [train, unseen, all].map(known),
    suffix: known(evaluation.suffix),
    permutation: known(evaluation.permutation),
    parity: known(evaluation.parity),
    influences: evaluation.influences ?? null,
  };
}

// Changes: to a training of one's own from what is shown, from the start with another setting, and with an edit.
function continued(state) {
  const { run: name, data } = state, { run, frameAt } = unpack(data[name]);
  return {
    run: OWN,
    start: `${name}@${run.epochs[frameAt(state.epoch)]}`,
    p: run.p,
    length: run.length,
    k: run.k,
    dim: run.dim,
    width: run.width,
    norm: run.norm,
    rule: "",
    edits: "",
    fork: "",
    epoch: 0,
  };
}
const SHAPES = SIZES.filter((name) => name !== "k"); // what decides how many weights there are
const anew = (state, changes) => ({
  run: OWN,
  ...(state.rule && !("rule" in changes) && !suits({ ...state, ...changes }) ? { rule: "" } : {}),
  start: state.run === OWN && !SHAPES.some((name) => name in changes) ? state.start : "",
  edits: "",
  fork: "",
  epoch: 0,
  ...changes,
});
// Whether the labels are for these sequences.
function suits(state) {
  try {
    taskOf(state);
    return true;
  } catch {
    return false;
  }
}
// The step at which an edit is made: that of the frame shown, or of an edit whose frame has yet to come.
function stepOf(state) {
  if (state.run !== OWN) return 0;
  const wanted = Math.round(state.epoch * each(state));
  return editsOf(state.edits, state).some(({ step }) => step === wanted) ? wanted : held(state)?.frame ?? 0;
}
function edited(state, kind, at, values, { step = stepOf(state), added = false } = {}) {
  const begun = state.run === OWN ? {} : continued(state), after = { ...state, ...begun };
  const before = editsOf(after.edits, after).filter((one) => one.step <= step),
    same = before.findLastIndex((one) => one.step === step && one.kind === kind && one.at === at);
  if (same >= 0 && !added) before.splice(same, 1);
  return { ...begun, edits: told([...before, { step, kind, at, values }]), epoch: step / each(after), fork: "" };
}
// What a run has otherwise than usual: settings, and in words also where it starts and what is changed on its way.
const settingsSaid = (state, names = Object.keys(USUAL)) =>
  names.filter((name) => state[name] !== USUAL[name]).map((name) =>
    `${NAMES[name]} ${typeof state[name] === "string" ? brief40(state[name]) : tidy(state[name])}`
  );
const startSaid = ({ start, data }) => {
  if (start.startsWith("w:")) return "from your file";
  const [name, epoch] = start.split("@");
  return start && `from the run “${data[name].title}” at ${data[name].axis} ${numeral(Number(epoch))}`;
};
const changesSaid = ({ edits }) => {
  const count = edits ? edits.split(";").length : 0;
  return count ? `${count} ${count === 1 ? "change" : "changes"}` : "";
};
const unusual = (state, names) =>
  [...settingsSaid(state, names), startSaid(state), changesSaid(state)].filter(Boolean).join(", ") || "the usual settings";
const without = (edits) => ({ edits: told(edits), fork: "" });

function whole(root, link) {
  const view = panels(root, link), bench = view.bench = new Bench(link.state().data, hear);
  view.snap = (epoch) => {
    const state = link.state();
    return state.run === OWN ? (bench.own?.at(epoch * each(state))?.steps ?? 0) / each(state) : Math.round(epoch);
  };
  view.reached = (state) =>
    Math.min(...[bench.own, state.fork ? bench.other : null].filter(Boolean).map(({ last }) => last)) / each(state);
  let due = null, idle = null;
  function hear(message, which) {
    if (message.kind === "error") link.warn(`The training stopped: ${message.message}.`);
    if (message.kind === "diverged") {
      link.update({ epoch: bench.own.last / each(link.state()) }, bench);
      link.warn(
        `The ${
          which === "other" ? "second " : ""
        }run diverged at epoch ${message.epoch}: its weights are no longer finite. Try a smaller learning rate.`,
      );
    }
    due ??= setTimeout(() => {
      due = null;
      const state = link.state();
      if (state.run !== OWN) return;
      if (bench.playing) { // what is trained already is gone through, and what is not is followed
        const reached = view.reached(state),
          now = performance.now(),
          passed = (now - view.told) / 1000;
        const pace = bench.speed === null ? 10 / each(state) : Math.min(bench.speed, REPLAY),
          epoch = Math.min(reached, state.goal, Math.max(state.epoch, state.epoch + pace * passed));
        const shown = epoch >= state.goal
          ? state.goal
          : (bench.own.at(Math.floor(epoch * each(state) + 1e-9))?.steps ?? 0) / each(state);
        if (shown >= state.goal) bench.playing = false;
        if (shown > state.epoch) view.told = now;
        link.update({ epoch: Math.max(shown, state.epoch) }, bench);
        if (bench.playing && reached > shown) hear({ kind: "goal" });
      } else if (view.catching && view.reached(state) > state.epoch) link.update({ epoch: view.reached(state) }, bench);
      else link.redraw();
      clearTimeout(idle);
      if (!link.name) {
        idle = setTimeout(() => {
          const now = held(link.state());
          if (now && link.state().run === OWN) link.update({ live: liveOf(link.state(), now) }, bench);
        }, 400); // Python listens
      }
    }, 40);
  }
  const seen = new IntersectionObserver(([{ isIntersecting }]) => {
    view.away = !isIntersecting;
    bench.rest(view.away || document.hidden);
  });
  const hidden = () => bench.rest(view.away || document.hidden);
  seen.observe(root);
  document.addEventListener("visibilitychange", hidden);
  view.leave = () => {
    seen.disconnect();
    document.removeEventListener("visibilitychange", hidden);
    clearTimeout(due);
    clearTimeout(idle);
    bench.close();
  };
  // One drag is one change, of the step at which it began, however far the training runs meanwhile; so are arrow keys pressed
  // one after the other at one step.
  view.move = (kind, at, values) => {
    const state = link.state(), held = root.querySelector(".ao-held"), now = stepOf(state), { gesture } = view;
    const on = gesture?.kind === kind && gesture.at === at && gesture.held === held && (held || gesture.step === now);
    if (!on) view.gesture = { kind, at, held, step: now };
    const { step } = view.gesture;
    link.update(edited(state, kind, at, values.map((value) => Number(value.toPrecision(4))), { step, added: !on }));
  };
  root.addEventListener("lostpointercapture", () => {
    view.gesture = null;
  });
  Object.assign(view, { link, former: [], told: 0, gesture: null, known: 0, catching: false });
  view.hear = hear;
  root.laboratory = view;
  return view;
}

// Train, pause, one step, and how fast.
function player(parent, link, { status, root }) {
  const view = root.laboratory, { bench } = view, node = element("div", { class: "ao-buttons" });
  // A pause shows the last epoch reached, so that a change is made there. What is only gone through again stops where it is.
  const pause = () => {
    const state = link.state();
    bench.playing = false;
    status.setAttribute("aria-live", "polite");
    view.catching = state.epoch * each(state) >= view.known;
    if (view.catching) link.update({ epoch: view.reached(state) }, bench);
    else link.redraw();
  };
  const train = button("train", () => {
    const state = link.state();
    if (bench.playing) return pause();
    if (state.run !== OWN) link.update(continued(state), bench);
    else if (state.epoch >= state.goal) {
      return link.warn(`The run is trained to epoch ${state.goal}. To go on, raise “train to epoch” below.`);
    }
    bench.playing = true;
    view.known = bench.own?.last ?? 0;
    status.setAttribute("aria-live", "off");
    link.redraw();
    view.told = performance.now();
    view.hear({ kind: "goal" }); // it may be trained so far already
  }, { class: "ao-train" });
  const once = button("one step", () => {
    if (bench.playing) pause();
    const state = link.state();
    if (state.run !== OWN) return link.update(continued(state));
    link.update({ epoch: ((held(state)?.frame ?? 0) + 1) / each(state) });
  });
  const speed = element(
    "select",
    { "aria-label": "speed" },
    ...PACES.map(([name], index) => element("option", { value: index }, name)),
  );
  speed.addEventListener("change", () => {
    bench.speed = PACES[speed.selectedIndex][1];
    link.redraw();
  });
  link.watch((changes, source) => {
    if (source !== bench) view.catching = false;
    if (source === bench || !bench.playing || !("epoch" in changes) || ("edits" in changes && !("prefix" in changes))) {
      return;
    }
    bench.playing = false;
    status.setAttribute("aria-live", "polite");
  });
  const former = button("previous run", () => {
    const snapshot = view.former.pop();
    view.gesture = null;
    if (snapshot) link.update(snapshot, former);
  });
  // The step from which on two states have other changes.
  const changedAt = (old, now) => {
    const [some, others] = [old, now].map((one) => editsOf(one.edits, one)),
      same = (one, at) => told([one]) === told([others[at]].filter(Boolean));
    const first = some.findIndex((one, at) => !same(one, at)), at = first < 0 ? some.length : first;
    return Math.min(some[at]?.step ?? Infinity, others[at]?.step ?? Infinity);
  };
  // A run that is left can be gone back to: settings and edits make it again.
  const kept = (state) =>
    Object.fromEntries([...TRAINED, "run", "start", "edits", "fork", "epoch"].map((name) => [name, state[name]]));
  let latest = kept(link.state());
  link.watch((changes, source) => {
    const lost = [],
      state = link.state(),
      left = ["run", "start", ...TRAINED].some((name) => name !== "goal" && state[name] !== latest[name]);
    if (latest.run === OWN && state.run === OWN && latest.start && !state.start && SHAPES.some((name) => name in changes)) {
      lost.push("The weights that were given do not fit these sizes, so the run starts from random ones.");
    }
    const resized = SHAPES.filter((name) => name in changes).length === 1; // by its field
    if (resized && latest.rule && !state.rule) {
      lost.push(
        "The labels were for other sequences, so the field is empty now: the label is the sum of the first k tokens.",
      );
    }
    if (lost.length) link.warn(`${lost.join(" ")} “Previous run” restores the old run.`);
    if (left && source !== former && latest.run === OWN && (latest.epoch > 0 || lost.length)) {
      view.former = [...view.former.slice(-19), latest];
    }
    // A change deletes the epochs after it; those of a run that was trained further are kept with it.
    const end = bench.own?.last ?? 0, live = bench.playing && latest.epoch * each(latest) >= view.known;
    if (!left && source !== former && latest.run === OWN && !live && end > changedAt(latest, state)) {
      view.former = [...view.former.slice(-19), { ...latest, epoch: end / each(latest) }];
      link.warn(`The old run, to epoch ${numeral(end / each(latest))}, is kept: “previous run” restores it.`);
    }
    latest = kept(state);
  });
  node.append(train, once, speed, former);
  parent.append(node);
  return {
    node,
    stop: view.leave,
    set(state) {
      train.textContent = state.run !== OWN ? "train on from here" : bench.playing ? "❚❚ pause" : "▶ train";
      once.disabled = state.run !== OWN;
      former.disabled = !view.former.length;
      if (!bench.playing) status.setAttribute("aria-live", "polite");
    },
  };
}

// What belongs to prefix and suffix of a sequence, also in words; there may be no suffix.
const halves = (tokens, { k }) => ({ prefix: tokens.slice(0, k), suffix: tokens.slice(k) });
const inHalves = (list, task, write, between) => Object.values(halves(list, task)).map(write).filter(Boolean).join(between);

// One sequence, followed from its tokens to its answer: each stage lights up in turn and is described.
const STAGES = [
  [
    "attention",
    ({ tokens, task }) =>
      `The sequence ${inHalves(tokens, task, spelled, " ")} has ${task.length} tokens. Its row is framed.`,
  ],
  [
    "positions",
    () => "Each token has an embedding (diamonds), and each position has one (numbers). The model adds the two.",
  ],
  [
    "embeddings",
    () =>
      "The model normalizes each sum. The closer its direction is to that of the query (arrow), the more attention the position gets.",
  ],
  [
    "attention",
    ({ shares, task }) =>
      `Softmax turns the scores, the scaled products with the query, into attention: ${
        percent(sum(shares.slice(0, task.k)), 0)
      } on the first ${task.k} positions.`,
  ],
  [
    "values",
    () =>
      "The value matrix maps each normalized sum to a value. The average of the values, weighted by attention, is ξ (ring).",
  ],
  [
    "sequence",
    ({ xi }) => `ξ = (${xi.map((one) => show(one, 2)).join(", ")}) is all that the rest of the model sees of the sequence.`,
  ],
  [
    "neurons",
    () =>
      "Every neuron compares the direction of ξ (dashed line) with its receptor and adds its assembler in proportion to how strongly it fires.",
  ],
  [
    "regions",
    ({ logits, best, label }) =>
      `The model compares the result with the token embeddings. The logits are ${
        logits.map((one) => show(one, 2)).join(", ")
      }, so the answer is ${best}, ${best === label ? "which is right" : `but the label is ${label}`}.`,
  ],
];
function walk(parent, link, { root }) {
  const said = element("p", { class: "ao-stage", "aria-live": "polite" }), node = element("div", { class: "ao-buttons" });
  let at = -1;
  const tell = ([, say], state, now) => {
    const { found: sentences, through } = inRows(now, state), chosen = sentenceOf(sentences, state, null), { task } = now;
    const shares = through.probabilities[chosen];
    return say({
      task,
      tokens: sentences.sentences[chosen],
      shares: through.attention[chosen],
      xi: through.sequence[chosen],
      logits: through.logits[chosen],
      best: shares.indexOf(Math.max(...shares)),
      label: sentences.labels[chosen],
    });
  };
  const write = () => {
    const state = link.state(), now = held(state);
    if (now) said.textContent = `${at + 1} of ${STAGES.length}: ${tell(STAGES[at], state, now)}`;
  };
  // The room that the longest of the sentences takes, so that the panels stay where they are.
  const reserve = (state, now) => {
    said.style.minHeight = "";
    said.style.minHeight = `${
      Math.max(...STAGES.map((stage) => {
        said.textContent = `8 of ${STAGES.length}: ${tell(stage, state, now)}`;
        return said.offsetHeight;
      }))
    }px`;
  };
  const offer = () => {
    start.hidden = at >= 0;
    for (const one of [back, next, end, said]) one.hidden = at < 0;
    back.disabled = at <= 0;
    next.disabled = at === STAGES.length - 1;
    root.classList.toggle("ao-walking", at >= 0);
  };
  const go = (stage) => {
    const state = link.state(), now = held(state);
    if (!now) return;
    at = stage;
    offer();
    reserve(state, now);
    write();
    point(root, root.querySelector(`.ao-panel-${STAGES[at][0]}`), parent, "nearest");
  };
  const stop = () => {
    if (at < 0) return;
    const inside = node.contains(document.activeElement) || document.activeElement === document.body;
    at = -1;
    offer();
    point(root);
    if (inside) start.focus({ preventScroll: true });
  };
  const start = button("follow one sequence", () => {
    go(0);
    next.focus({ preventScroll: true });
  });
  const back = button("back", () => go(at - 1)), next = button("next", () => go(at + 1)), end = button("end", stop);
  const escape = ({ key }) => {
    if (key === "Escape") stop();
  };
  document.addEventListener("keydown", escape);
  link.watch((changes) => {
    if (["prefix", "suffix", "sequence", "run"].some((name) => name in changes)) stop();
  });
  node.append(start, back, next, end, said);
  parent.append(node);
  start.disabled = true; // until there is something to follow
  offer();
  return {
    node,
    stop() {
      document.removeEventListener("keydown", escape);
    },
    set() {
      start.disabled = !held(link.state());
      if (at < 0) return;
      write(); // of what is shown now
      root.querySelector(`.ao-panel-${STAGES[at][0]}`).classList.add("ao-lit");
    },
  };
}

// The query scaled, neurons and positions switched off.
function surgery(parent, link, { root }) {
  const node = element("div", { class: "ao-surgery" });
  const scale = element("input", { type: "range", min: 0, max: 2, step: 0.05, "aria-label": "query times" }),
    said = element("span", { class: "ao-value", "aria-hidden": "true" });
  scale.addEventListener("input", () => link.update(edited(link.state(), "query", null, [Number(scale.value)])));
  const neurons = element("fieldset", {}, element("legend", {}, "neurons")),
    places = element("fieldset", {}, element("legend", {}, "positions"));
  const take = (count) => {
    const state = link.state();
    root.laboratory.gesture = null;
    link.update(without(editsOf(state.edits, state).slice(0, -count)));
  };
  const undo = button("undo the last", () => take(1)), all = button("undo all", () => take(Infinity));
  const list = element("span", { class: "ao-told" });
  node.append(
    element("label", { class: "ao-slider" }, element("span", {}, "query"), scale, said),
    element("p", { class: "ao-about" }, "Press a number to switch a position or a neuron off, or on again:"),
    places,
    neurons,
    element("div", { class: "ao-buttons" }, undo, all, list),
  );
  parent.append(node);
  const fill = (box, count, kind, word) => {
    if (box.childElementCount - 1 === count) return;
    box.replaceChildren(
      box.firstChild,
      ...Array.from({ length: count }, (_, at) =>
        button(String(at + 1), () => {
          const state = link.state(), mask = held(state)?.model[kind === "neuron" ? "neurons" : "positions"];
          link.update(edited(state, kind, at, [mask && !mask[at] ? 1 : 0]));
        }, { "aria-label": `${word} ${at + 1}` })),
    );
  };
  const press = (box, mask) =>
    [...box.querySelectorAll("button")].forEach((one, at) =>
      one.setAttribute("aria-pressed", String(!mask || mask[at] === 1))
    );
  return {
    node,
    set(state) {
      const now = held(state);
      if (!now) return;
      fill(neurons, now.model.weights.receptors.length, "neuron", "neuron");
      fill(places, now.task.length, "place", "position");
      press(neurons, now.model.neurons);
      press(places, now.model.positions);
      const edits = state.run === OWN ? editsOf(state.edits, state) : [],
        at = stepOf(state),
        here = edits.find(({ kind, step }) => kind === "query" && step === at);
      if (document.activeElement !== scale || !here) scale.value = here ? here.values[0] : 1;
      said.textContent = show(here ? here.values[0] : 1, 2);
      scale.setAttribute("aria-valuetext", said.textContent);
      undo.disabled = all.disabled = !edits.length;
      list.textContent = edits.length
        ? `${edits.length} ${edits.length === 1 ? "change" : "changes"}, the last at epoch ${
          numeral(edits.at(-1).step / each(state))
        }`
        : "nothing changed";
    },
  };
}

// A second run from the present state, with one setting changed.
function split(parent, link) {
  const kind = element(
    "select",
    { "aria-label": "what differs" },
    ...SPLITS.map(([value, name]) => element("option", { value }, name)),
  );
  const value = element("input", {
    type: "text",
    inputmode: "decimal",
    value: SPLITS[0][2],
    "aria-label": "its value in the second run",
  });
  kind.addEventListener("change", () => {
    value.value = SPLITS[kind.selectedIndex][2];
  });
  const node = element(
    "div",
    { class: "ao-buttons" },
    element("span", {}, "second run with"),
    kind,
    value,
    button("split here", () => {
      const state = link.state(),
        begun = state.run === OWN ? {} : continued(state),
        { value: number, wrong, given } = numberIn(value.value, {});
      if (wrong) return link.warn(`The value in the second run ${wrong}; you entered ${given}.`);
      link.update({ ...begun, fork: `${state.run === OWN ? held(state)?.frame ?? 0 : 0} ${kind.value} ${number}` });
    }),
    button("end", () => link.update({ fork: "" })),
  );
  parent.append(node);
  return { node, set() {} };
}

// Many seeds with the same settings, and how many succeed.
function many(parent, link, { root }) {
  const { bench } = root.laboratory,
    node = element("div", {}),
    list = element("div", { class: "ao-lists" }),
    about = element(
      "p",
      { class: "ao-about" },
      `The first seed is the one set above. Each run is trained to the epoch set above, with the changes made so far. If your own run started from a file or a recorded run, so does each of these. A run succeeds if it is right on more than ${
        percent(SUCCESS, 0)
      } of all sequences at the end. “From 28” means that the run left the plateau at epoch 28, when its loss first fell below 87% of log p.`,
    ),
    said = element("p", { class: "ao-about", "aria-live": "polite" });
  const size = element("input", { type: "text", inputmode: "numeric", value: SEEDS, "aria-label": "number of seeds" });
  let results = [], wanted = null, turn = 0, row = null, seeds = SEEDS, begun = 0, running = false;
  const shares = new Map(); // the share of its epochs that is done, of each seed that is being trained
  let peak = 1; // how many of them there have been at once
  const tell = () => {
    const wins = results.filter(({ accuracy }) => accuracy > SUCCESS).length, n = results.length;
    const z = 1.96,
      middle = (wins + z * z / 2) / (n + z * z),
      half = z / (n + z * z) * Math.sqrt(wins * (n - wins) / n + z * z / 4);
    const done = n + sum([...shares.values()]),
      idle = shares.size ? peak / shares.size : 1, // toward the end some workers have nothing left to do
      seconds = idle * (seeds - done) * (performance.now() - begun) / 1000 / done,
      left = seconds < 60 ? `${Math.ceil(seconds)} s` : `${Math.round(seconds / 60)} min`;
    const parts = [
      n
        ? `${wins} of ${n} succeed: ${percent(wins / n, 0)} (95% interval ${percent(Math.max(0, middle - half), 0)} to ${
          percent(Math.min(1, middle + half), 0)
        })`
        : "",
      n === seeds
        ? ""
        : `${n} of ${seeds} done${
          running
            ? (n
              ? `, about ${left} left`
              : `, seed ${wanted.seed} is at ${percent(shares.get(wanted.seed) ?? 0, 0)} of its epochs`)
            : ", then stopped"
        }`,
    ].filter(Boolean);
    const text = `${parts.join("; ")}.${n ? " Click a run to open it." : ""}`;
    if (text !== said.textContent) said.textContent = text; // which is read aloud
    stop.disabled = !running;
  };
  const stop = button("stop", () => {
    bench.many?.post({ kind: "stop" });
    running = false;
    tell();
  }, { disabled: "" });
  const start = button("train them", () => {
    const state = link.state(), { value, wrong, given } = numberIn(size.value, { low: 1, high: MOST, whole: true });
    link.warn(wrong ? `The number of seeds ${wrong}; you entered ${given}.` : "");
    if (wrong) return;
    seeds = value;
    const own = state.run === OWN;
    wanted = {
      ...Object.fromEntries(TRAINED.map((name) => [name, state[name]])),
      start: own ? state.start : "",
      edits: own ? state.edits : "",
    };
    results = [];
    shares.clear();
    peak = 1;
    row = element("div", { class: "ao-seeds" }, element("span", {}, `${unusual(wanted)}, to epoch ${wanted.goal}:`));
    list.prepend(row);
    while (list.childElementCount > 6) list.lastChild.remove();
    bench.many ??= openSeveral((message) => {
      if (message.kind === "error") {
        if ((message.id ?? turn) !== turn) return;
        bench.many.post({ kind: "stop" });
        running = false;
        stop.disabled = true;
        return link.warn(`The training stopped: ${message.message}.`);
      }
      if (message.kind !== "one" || message.id !== turn) return;
      shares.set(message.seed, message.share);
      peak = Math.max(peak, shares.size);
      if (message.evaluation) {
        const { seed, escaped, evaluation: { all: accuracy } } = message, opened = wanted;
        shares.delete(seed);
        const place = (one) => (one + 2 ** 32 - opened.seed) % 2 ** 32, // seeds of several workers come in another order
          before = results.filter((result) => place(result.seed) < place(seed)).length;
        results.push({ seed, accuracy });
        const one = button(`${seed}: ${percent(accuracy, 0)}${escaped === null ? "" : `, from ${escaped}`}`, () => {
          link.update({ ...opened, run: OWN, seed, fork: "", epoch: opened.goal });
          root.scrollIntoView();
        });
        one.classList.toggle("ao-won", accuracy > SUCCESS);
        row.insertBefore(one, row.children[before + 1] ?? null);
      }
      running &&= results.length < seeds;
      if (running || message.evaluation) tell();
    });
    turn += 1;
    bench.many.post({
      kind: "many",
      id: turn,
      settings: settingsOf(state),
      start: startOf({ ...state, ...wanted }),
      edits: editsOf(wanted.edits, state),
      seeds: Array.from({ length: seeds }, (_, index) => (state.seed + index) % 2 ** 32),
      epochs: state.goal,
    });
    [begun, running] = [performance.now(), true];
    tell();
  });
  node.append(
    element(
      "div",
      { class: "ao-buttons" },
      element("label", {}, "number of seeds ", size),
      start,
      stop,
    ),
    about,
    said,
    list,
  );
  parent.append(node);
  return { node, set() {} };
}

// The curves as a table: a row for each evaluation.
function tableOf({ epoch, axis, readings, ...columns }) {
  const shown = Object.entries({ ...columns, ...(readings.parity?.length === epoch.length ? readings : {}) })
    .filter(([name, values]) => name !== "epoch" && values?.some((value) => value !== null && value !== undefined));
  const wide = shown.flatMap(([name, values]) => {
    const several = values.find(Array.isArray)?.length;
    return several
      ? Array.from({ length: several }, (_, t) => [`${name} ${t + 1}`, values.map((row) => row?.[t])])
      : [[LAYERS.some(([layer]) => layer === name) ? `gradient ${name}` : name, values]];
  });
  const text = (value) => (value === null || value === undefined || Number.isNaN(value) ? "" : String(value));
  const rows = epoch.map((one, at) => [one, ...wide.map(([, values]) => values[at])].map(text).join(","));
  return [[axis, ...wide.map(([name]) => name)].join(","), ...rows, ""].join("\n");
}

// The lines of Python that make the same run: weights, data, and batches come from the page's generator.
function pythonOf(state) {
  const { task: { p, length, k, rule } } = settingsOf(state), lines = [];
  const says = (name, value, usual) => (value === usual ? [] : [`${name}=${value}`]);
  const task = [
    ...says("p", p, 2),
    ...says("length", length, 12),
    ...says("k", k, 5),
    ...(rule ? [`rule=[${rule.join(", ")}]`] : []),
  ];
  const betas = state.beta1 === USUAL.beta1 && state.beta2 === USUAL.beta2 ? [] : [`betas=(${state.beta1}, ${state.beta2})`];
  const settings = [
    ...(task.length ? [`task=Task(${task.join(", ")})`] : []),
    ...says("dim", state.dim, USUAL.dim),
    ...says("norm", `"${state.norm}"`, `"${USUAL.norm}"`),
    ...says("width", state.width, USUAL.width),
    ...says("n_train", state.count, USUAL.count),
    `epochs=${state.goal}`,
    ...says("batch_size", state.batch, USUAL.batch),
    ...says("learning_rate", state.rate, USUAL.rate),
    ...says("weight_decay", state.decay, USUAL.decay),
    ...says("clip", state.clip, USUAL.clip),
    ...betas,
    ...says("eps", state.eps, USUAL.eps),
    ...says("mlp_discount", state.discount, USUAL.discount),
    `draws="laboratory"`,
  ];
  const names = ["Settings", ...(task.length ? ["Task"] : []), "train"], from = [];
  if (state.start.startsWith("w:")) {
    names.unshift("Models");
    from.push(`start=Models.load("model-epoch-0.json")`);
    lines.push("# model-epoch-0.json: the weights at the start, as “save weights” writes them at epoch 0");
  } else if (state.start) {
    const [name, epoch] = state.start.split("@");
    names.push("load_run");
    from.push(`start=load_run("${name}").at(${epoch})`);
  }
  if (state.edits) {
    lines.push(
      "# without the changes made by hand: " +
        editsOf(state.edits, state).map(({ kind, step }) => `${kind} at step ${step}`).join(", "),
    );
  }
  return [
    "import torch",
    "",
    `from attnopt.clustering import ${names.sort().join(", ")}`,
    "",
    ...lines,
    `settings = Settings(${settings.join(", ")})`,
    `training = train([${state.seed}], settings, ${[...from, "dtype=torch.float64"].join(", ")})`,
    `print(training.history["loss"][-1].item(), training.history["accuracy_all"][-1].item())`,
    "",
  ].join("\n");
}

// Weights to a file and from one, curves as a table, and the run as Python.
function files(parent, link, { bounds, root }) {
  const input = element("input", { type: "file", accept: ".json,application/json", "aria-label": "open weights" }),
    code = element(
      "div",
      { class: "ao-code", hidden: "" },
      element("pre", { tabindex: "0", "aria-label": "Python" }),
      element(
        "p",
        { class: "ao-about" },
        "At first, the page and Python agree up to rounding, but training magnifies rounding errors, so after a few dozen epochs they can differ.",
      ),
    );
  code.append(button("copy", async ({ target }) => {
    try {
      await navigator.clipboard.writeText(code.firstChild.textContent);
      target.textContent = "copied";
    } catch {
      getSelection().selectAllChildren(code.firstChild);
      target.textContent = "press Ctrl+C";
    }
    setTimeout(() => {
      target.textContent = "copy";
    }, 3000);
  }));
  link.watch(() => {
    code.hidden = true; // it was of another run
  });
  const node = element(
    "div",
    { class: "ao-buttons" },
    button("save weights", () => {
      const now = held(link.state());
      if (!now) return;
      download(
        new Blob([asFile(now, link.state())], { type: "application/json" }),
        `model-epoch-${numeral(now.epoch)}.json`,
      );
    }),
    button("save curves (CSV)", () => {
      if (!held(link.state())) return;
      download(new Blob([tableOf(curvesOf(link.state()))], { type: "text/csv" }), "curves.csv");
    }),
    button("this run as Python", () => {
      const state = link.state();
      if (state.run !== OWN) return link.warn("This is a recorded run; in the package, load_run(…) loads it.");
      code.firstChild.textContent = pythonOf(state);
      code.hidden = false;
    }),
    element("label", {}, "open weights ", input),
    code,
  );
  input.addEventListener("change", async () => {
    const [file] = input.files;
    if (!file) return;
    try {
      if (file.size > 4e6) throw new RangeError("This file is larger than 4 MB.");
      const { models, untold, ...found } = fromFile(await file.text(), link.state());
      for (const name of TRAINED.filter((one) => one in found && "low" in bounds[one])) {
        const { wrong, given } = numberIn(String(found[name]), bounds[name]);
        if (wrong) throw new RangeError(`The model’s ${name} ${wrong}, got ${given}.`);
      }
      if (link.update({ run: OWN, ...found, fork: "", epoch: 0 })) {
        const more = [
          ...(models > 1 ? [`The file holds ${models} models; the first is shown.`] : []),
          ...(untold ? [`The file names no task: the label is the sum of the first k = ${found.k} tokens.`] : []),
        ];
        if (more.length) link.warn(more.join(" "));
      }
    } catch (error) {
      link.warn(`${error.message} Nothing was changed.`);
    }
    input.value = "";
  });
  parent.append(node);
  return { node, set() {} };
}

// Labels of one's own, and what a change of the settings does.
function labels(parent, link) {
  const input = element("input", { type: "text", class: "ao-long", autocomplete: "off", spellcheck: "false" });
  const node = element(
    "div",
    { class: "ao-wide" },
    element("label", {}, "labels ", input),
    element(
      "p",
      { class: "ao-about" },
      "If the field is empty, the label is the sum of the first k tokens modulo p. If it holds L whole numbers, such as 1 2 0 1 …, the label is the sum of the tokens with these weights, modulo p. If there are at most 1024 sequences (for p = 2, L ≤ 10), you can also use any other rule: enter all pᴸ labels as digits, with spaces or without, in the lexicographic order of the sequences. For a task of your own, try several seeds, and begin with a small L.",
    ),
    element(
      "p",
      { class: "ao-about" },
      "Changing a setting, even during training, starts a new run at epoch 0; “previous run” restores the old one. To change the learning rate or a similar setting in the middle of a run, use “Compare” below. Changing “train to epoch” does not start a new run.",
    ),
  );
  let shown = null;
  input.addEventListener("change", () => {
    link.update(anew(link.state(), { rule: input.value.trim().replace(/\s+/g, " ") })); // a rule that is refused stays, to be corrected
  });
  link.watch((changes) => {
    if ("rule" in changes) shown = null;
  });
  parent.append(node);
  return {
    node,
    set({ rule }) {
      if (rule !== shown) input.value = shown = rule;
    },
  };
}

const SETTINGS = "Train with your own settings";
const field = (trait, label) => ({
  kind: "number",
  trait,
  label,
  place: "ao-fields",
  fold: SETTINGS,
  put: (value, state) => anew(state, { [trait]: value }),
});
const taskShown = (
  state,
) => (state.run === OWN ? { p: state.p, length: state.length, k: state.k } : unpack(state.data[state.run]).task);
function choiceOf(state) {
  const task = taskShown(state), rows = rowsOf(task, state.sequence);
  return { tokens: rows.sentences[sentenceOf(rows, state, null)], task };
}
// Another sequence: by the numbers that it has in the sample, or else as if it were typed.
function choosing(tokens, state) {
  const { sentences, prefixes, suffixes: { length: many } } = rowsOf(taskShown(state)), text = spelled(tokens);
  const at = sentences.slice(0, prefixes.length * many).findIndex((row) => spelled(row) === text);
  return at < 0 ? { sequence: text } : { prefix: Math.floor(at / many), suffix: at % many, sequence: "" };
}
const sentence = (trait, list) => ({
  trait,
  // With labels of one's own, k decides nothing.
  label: (state) => (state.run === OWN && state.rule ? { prefix: "first k", suffix: "others" }[trait] : trait),
  hidden: (state) => trait === "suffix" && taskShown(state).k === taskShown(state).length,
  values: (state) => offeredOf(taskShown(state))[list].map((_, index) => index),
  get(state) {
    const { tokens, task } = choiceOf(state), own = spelled(halves(tokens, task)[trait]);
    return Math.max(0, offeredOf(task)[list].findIndex((one) => spelled(one) === own));
  },
  put(value, state) {
    const { tokens, task } = choiceOf(state),
      { prefix, suffix } = { ...halves(tokens, task), [trait]: offeredOf(task)[list][value] };
    return choosing([...prefix, ...suffix], state);
  },
  text(_, state) {
    const { tokens, task } = choiceOf(state);
    return spelled(halves(tokens, task)[trait]) || "none";
  },
});
// Any sequence, typed.
function typing(parent, link) {
  const input = element("input", {
    type: "text",
    class: "ao-digits",
    inputmode: "numeric",
    autocomplete: "off",
    "aria-label": "sequence",
  });
  const node = element("label", { class: "ao-number" }, element("span", {}, "sequence"), input);
  let shown = "";
  input.addEventListener("change", () => {
    const { p, length } = taskShown(link.state()), sequence = input.value.replace(/\s/g, "");
    if (typed(sequence, { p, length })) return link.update({ sequence });
    link.warn(
      `The sequence must be ${length} digits from 0 to ${p - 1}; you entered ${
        sequence ? `“${brief40(sequence)}”` : "nothing"
      }. It stays ${shown}.`,
    );
    input.value = shown;
  });
  parent.append(node);
  return {
    node,
    set(state) {
      const now = spelled(choiceOf(state).tokens);
      if (now !== shown || document.activeElement !== input) input.value = shown = now;
    },
  };
}
const framesOf = (state) => {
  if (state.run !== OWN) return state.data[state.run].epochs;
  const found = (benchOf(state)?.own?.frames ?? []).filter(({ weights }) => weights).map(({ steps }) => steps / each(state));
  return found.length ? found : [state.live?.epoch ?? 0];
};
const epochs = { trait: "epoch", place: "ao-player", top: true, values: framesOf };
const controls = [
  {
    trait: "run",
    kind: "choice",
    top: true,
    label: "show",
    names: (run, { data }) => (run === OWN ? "a run of your own" : data[run].title),
    put: (run, state) => ({
      run,
      prefix: 0,
      suffix: 0,
      sequence: "",
      epoch: run === OWN ? 0 : state.data[run].epochs.at(-1),
    }),
  },
  { kind: "part", make: player, place: "ao-player", top: true },
  { ...epochs, kind: "play", stops: ["epoch", "run"], hidden: ({ run }) => run === OWN },
  { ...epochs, label: "epoch", get: ({ epoch }, now) => now?.epoch ?? epoch, text: numeral },
  { kind: "part", make: walk, place: "ao-walk", top: true },
  sentence("prefix", "prefixes"),
  sentence("suffix", "suffixes"),
  { kind: "part", make: typing },
  field("seed", "seed"),
  field("p", "tokens p"),
  field("length", "length L"),
  { ...field("k", "prefix length k"), bound: ({ length }, bound) => ({ ...bound, high: length }) },
  field("dim", "dimension d"),
  field("width", "neurons"),
  field("count", "training sequences"),
  field("batch", "batch"),
  field("rate", "learning rate"),
  field("decay", "weight decay"),
  field("clip", "clip gradients at (0: never)"),
  field("beta1", "β₁"),
  field("beta2", "β₂"),
  field("eps", "ε"),
  { ...field("discount", "divide the feed-forward layer’s learning rate by"), broad: true },
  { kind: "number", trait: "goal", label: "train to epoch", place: "ao-fields", fold: SETTINGS },
  {
    kind: "select",
    trait: "norm",
    label: "normalization",
    place: "ao-fields",
    fold: SETTINGS,
    names: { rms: "rms", unit: "unit" },
    put: (norm, state) => anew(state, { norm }),
  },
  { kind: "part", make: labels, place: "ao-fields", fold: SETTINGS },
  { kind: "part", make: surgery, place: "ao-folded", fold: "Change the model: query, positions, neurons" },
  { kind: "part", make: split, place: "ao-folded", fold: "Compare: the same state with one setting changed" },
  { kind: "part", make: many, place: "ao-folded", fold: "Many seeds" },
  { kind: "part", make: files, place: "ao-folded", fold: "Save, open, and repeat in Python" },
];

function draw([view], _, state) {
  const now = held(state), second = state.run === OWN && state.fork ? held(state, "other") : null;
  view.about.textContent = state.run === OWN ? described(state) : state.data[state.run].description;
  view.beside.toggleAttribute("hidden", !second);
  if (second) {
    const [step, kind, value] = state.fork.split(" "),
      from = Number(step) / each(state),
      { epoch, evaluation: { loss, all } } = second;
    view.beside.firstChild.textContent = `Second run, ${SPLITS.find(([name]) => name === kind)[1]} ${value} from epoch ${
      numeral(from)
    } on (pink curves); ${
      epoch < from - 1e-9
        ? `repeating the common part, now at epoch ${numeral(epoch)}.`
        : `at epoch ${numeral(epoch)}: loss ${small(loss)}, right on ${percent(all)} of all sequences.`
    }`;
  }
  drawPanels(view, now, state, view.link, view.move, second);
}

function described(state) {
  const slot = benchOf(state)?.own, from = startSaid(state), changes = changesSaid(state);
  const settings = `A run of your own: seed ${state.seed}, ${settingsSaid(state).join(", ") || "the usual settings"}.`,
    way = from
      ? ` Starts ${[from, changes].filter(Boolean).join(", ")}; Adam’s state starts at zero.`
      : ` Weights, data, and the order of the batches are drawn from the seed${changes && `; the run has ${changes}`}.`;
  const waits = slot && slot.last < Math.round(state.epoch * each(state))
    ? ` Repeating the run up to epoch ${numeral(state.epoch)} …`
    : "";
  return settings + way + waits;
}

// What a saved picture is of.
function titled(state) {
  const { p, length, k } = taskShown(state),
    where = numeral(held(state)?.epoch ?? state.epoch),
    task = `p = ${p}, L = ${length}, k = ${k}`;
  if (state.run !== OWN) {
    const { title, axis, description } = state.data[state.run];
    return `Run “${title}”: ${task}; ${axis} ${where}. ${description}`;
  }
  return `Seed ${state.seed}: ${task}; ${
    unusual(state, Object.keys(USUAL).filter((name) => !["p", "length", "k"].includes(name)))
  }; epoch ${where}.`;
}

function say(numbers, state, [view]) {
  const now = held(state);
  view.root.classList.toggle("ao-waiting", !now);
  if (!now) return view.bench?.error || "The training begins.";
  const { epoch, evaluation: { loss, train, unseen, all, suffix, permutation, parity }, m, explained, task } = now,
    { found: sentences, through } = inRows(now, state);
  const chosen = sentenceOf(sentences, state, view.hovered),
    tokens = sentences.sentences[chosen],
    shares = through.attention[chosen],
    answers = through.probabilities[chosen],
    logits = through.logits[chosen];
  const label = sentences.labels[chosen],
    best = answers.indexOf(Math.max(...answers));
  const { axis } = state.run === OWN ? {} : state.data[state.run],
    where = `${axis === "model" ? "Model" : "Epoch"} ${numeral(epoch)}`;
  const right = loss === null
    ? `right on ${percent(all)} of all sequences`
    : `loss ${small(loss)}; right on ${percent(train)} of the training set${
      known(unseen) ? `, ${percent(unseen)} of unseen,` : ""
    } and ${percent(all)} of all sequences${known(unseen) ? "" : " (no unseen sequences)"}`;
  const count = m
    ? ` ${
      counts(m)
        ? `Integer weights fitted to ξ: m = ${
          inHalves(m, task, (part) => part.map((one) => show(one, 0)).join(" "), " | ")
        }, and the level M = Σ mₜxₜ explains ${percent(explained)} of ξ's variance`
        : "No count with small integer weights describes ξ here"
    }${parity === null || parity === undefined ? "" : `; parity coefficient π = ${show(parity, 2)}`}.`
    : "";
  return `${where}: ${right}.${
    suffix === null || suffix === undefined
      ? ""
      : ` Invariance of ξ: suffix ${show(suffix, 3)}, permutation ${show(permutation, 3)}.`
  }${count} ` +
    `Sequence ${inHalves(tokens, task, spelled, " ")}: ${percent(sum(shares.slice(0, task.k)))} of its attention on ${
      task.rule ? `the first ${task.k} tokens` : "the prefix"
    }; label ${label}, logits ${logits.map((value) => show(value, 2)).join(", ")}, ` +
    `answer ${best} with probability ${show(answers[best], 3)}${answers[label] < answers[best] ? ", wrong" : ""}.`;
}

const STEPS = [
  {
    set: { run: "success", epoch: 0 },
    light: "ao-panel-sequence",
    say:
      "Before training. Each dot is one of the 4096 sequences, at its sequence embedding ξ. The model’s answer depends on where a dot lies, and dots of both labels are still mixed.",
  },
  {
    set: { run: "success", epoch: 1000 },
    light: "ao-panel-sequence",
    say:
      "After training, there are six clusters, one for each number of ones in the prefix: the model counts, and all dots of a cluster get the same answer.",
  },
  {
    set: { run: "success", epoch: 1000 },
    light: "ao-panel-ladder",
    say:
      "The ladder shows the level of each sequence against its ξ. The label alternates from rung to rung, so counting is enough.",
  },
  {
    set: { run: "partial_invariance", epoch: 1000 },
    light: "ao-panel-count",
    say:
      "Another success: m has a −1 in the prefix and two −2s in the suffix. The weights are odd in the prefix and even in the suffix, so the parity is still right.",
  },
  {
    set: { run: "failure", epoch: 1000 },
    light: "ao-panel-ladder",
    say: "A failure: after the same number of epochs, no small integers m describe ξ, and half of the answers are wrong.",
  },
  {
    set: { run: OWN, epoch: 0 },
    light: "ao-train",
    say: "Your turn. Press train. Change a setting below, or open the other panels and drag a token while the model trains.",
  },
];
const tour = ({ data }) => (STEPS.every(({ set: { run } }) => run === OWN || run in data) ? STEPS : null);

export default explorer({
  pictures: [whole],
  controls,
  compute,
  draw,
  say,
  tour,
  fits,
  kept: ["start", "edits", "fork", "rule", "sequence"],
  titled,
});
