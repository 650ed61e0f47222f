// Trainings that go on beside the page: in a worker where one can be started, in slices of the page's own time otherwise.
//
// A plan is { settings, start, edits }: what `createTrainer` takes, the weights to begin with as one flat list or null, and
// what is changed on the way, in order: { step, kind, at, values }, done before that step of Adam.
//   query      its entries are multiplied by values[0]
//   token, position    number `at` gets the values as its embedding
//   neuron, place      number `at` is switched on (1) or off (0): a neuron, a position
//   rate, beta1, beta2, eps, decay, clip, discount    a setting has this value from then on; 0 for `clip` is none
//   order      from the next epoch on mini-batches are drawn as for this seed
// Messages in, by kind: plan { plan, goal, id }; goal { goal, pace }, in steps and steps per second; rest { on }; stop;
//   many { id, settings, start, edits, seeds, epochs }
// Messages out: rows { id, rows, cut }, states after whole epochs, after edits and at the goal, `cut` the step from which on
//   the rows sent before hold no more; one { id, seed, evaluation, share, escaped }, of many; error { id, message };
//   diverged { epoch }, in which the weights ceased to be finite: no later state is recorded, and training stops

import { createTrainer, random, unflatten } from "./trainer.js";

const BETWEEN = 10, MOST = 200; // epochs between states kept to go back to, and how many
const WORKERS = 8; // at most this many train seeds side by side: each holds its own copy of the scripts and the data
const SLOW = 20; // steps per second up to which each is reported
const SETTING = { rate: "learningRate", eps: "eps", decay: "weightDecay", discount: "discount" };

// Below such a loss of an epoch a run has left the plateau, as `escape_level` of the package says.
export const escapeLevel = (p) => 0.6 * Math.log2(p);

export const sizesOf = ({ task, dim, width }) => ({ vocabulary: task.p, length: task.length, dim, width });
export const stepsPerEpoch = ({ count, batchSize }) => Math.ceil(count / batchSize);

const made = (settings, start) =>
  createTrainer({ ...settings, ...(start ? { weights: unflatten(Float64Array.from(start), sizesOf(settings)) } : {}) });

// What is changed before a step is changed.
function apply(trainer, edits) {
  if (!edits.length) return;
  const weights = trainer.weights(),
    { neurons, positions } = trainer.masks,
    switched = { neurons: [...neurons], positions: [...positions] };
  for (const { kind, at, values } of edits) {
    if (kind === "query") weights.query = weights.query.map((part) => part * values[0]);
    else if (kind === "token" || kind === "position") weights[kind][at] = [...values];
    else if (kind === "neuron") switched.neurons[at] = values[0];
    else if (kind === "place") switched.positions[at] = values[0];
    else if (kind === "order") trainer.restore({ ...trainer.save(), generator: random(values[0], 2).state });
    else if (kind === "beta1") trainer.change({ betas: [values[0], trainer.settings.betas[1]] });
    else if (kind === "beta2") trainer.change({ betas: [trainer.settings.betas[0], values[0]] });
    else if (kind === "clip") trainer.change({ clip: values[0] || Infinity });
    else trainer.change({ [SETTING[kind]]: values[0] });
  }
  trainer.set({ weights, ...switched });
}

const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

// Answers messages by `post`; `slice` is for how many milliseconds it works before it looks for the next message.
export function serve(post, slice) {
  let trainer = null, plan = null, id = null, goal = 0, pace = Infinity;
  let kept = [], pending = [], cut = 0, done = -1, told = -1; // `done`: the step whose edits are done; `told`: the last recorded
  let diverged = false, resting = false, timer = null, many = null, posted = 0, since = 0, started = 0;

  const perEpoch = () => stepsPerEpoch(plan.settings);
  const starts = (edits) => edits.some(({ step }) => step === trainer.steps);

  function begin(next) {
    const { settings, start } = next;
    trainer = made(settings, start);
    [kept, pending, done, diverged] = [[], [], -1, false];
  }
  function keep() {
    if (kept.at(-1)?.steps === trainer.steps) return;
    kept.push({ steps: trainer.steps, saved: trainer.save() });
    if (kept.length > MOST) kept = kept.filter((_, index) => index % 2 === 0);
  }

  // Where the edits are others from some step on, back to the last state kept before it.
  function adopt(next) {
    if (!plan || !trainer || !same([plan.settings, plan.start], [next.settings, next.start])) {
      cut = 0;
      plan = next;
      return begin(next);
    }
    let first = 0;
    while (first < plan.edits.length && first < next.edits.length && same(plan.edits[first], next.edits[first])) first += 1;
    const changed = Math.min(plan.edits[first]?.step ?? Infinity, next.edits[first]?.step ?? Infinity);
    const before = plan;
    plan = next;
    if (changed > trainer.steps) return;
    cut = Math.min(cut, changed);
    pending = pending.filter(({ steps }) => steps < changed);
    done = -1;
    if (changed === trainer.steps && !before.edits.some(({ step }) => step === changed)) return keep();
    while (kept.length && kept.at(-1).steps > changed) kept.pop();
    diverged = false;
    if (kept.length) trainer.restore(kept.at(-1).saved);
    else begin(next);
  }

  // Before a step: what is changed then, and what is kept and told.
  function edit() {
    if (done === trainer.steps) return;
    const edited = starts(plan.edits), whole = trainer.steps % perEpoch() === 0;
    const recorded = edited || whole || trainer.steps === goal || pace <= SLOW;
    if (recorded && lost()) return;
    if (edited || (whole && (trainer.steps / perEpoch()) % BETWEEN === 0)) keep();
    if (edited) apply(trainer, plan.edits.filter(({ step }) => step === trainer.steps));
    done = trainer.steps;
    if (recorded) record();
  }
  function record() {
    pending.push({ steps: trainer.steps, weights: trainer.flat(), masks: trainer.masks, evaluation: trainer.evaluate() });
    told = trainer.steps;
  }
  // Weights whose fourth powers overflow are as good as infinite: what is computed from them would not be finite.
  function lost() {
    return diverged = !trainer.flat().every((weight) => Number.isFinite(weight ** 4));
  }

  function flush(force) {
    if (!pending.length || (!force && performance.now() - posted < 80)) return;
    posted = performance.now();
    post({ kind: "rows", id, rows: pending, cut });
    [pending, cut] = [[], Infinity];
  }

  function work() {
    timer = null;
    const end = performance.now() + slice;
    try {
      if (many) return advance(end);
      if (!trainer || resting) return;
      edit();
      while (
        !diverged && trainer.steps < goal && performance.now() < end &&
        trainer.steps - since < pace * (performance.now() - started) / 1000
      ) {
        trainer.step();
        edit();
      }
      if (trainer.steps >= goal && told !== trainer.steps && !diverged && !lost()) record(); // the goal was set later
      if (diverged) {
        flush(true);
        if (goal > told) post({ kind: "diverged", id, epoch: Math.ceil(trainer.steps / perEpoch()) });
        return;
      }
      flush(trainer.steps >= goal);
      if (trainer.steps < goal) again(pace === Infinity ? 0 : 15);
    } catch (error) {
      goal = trainer?.steps ?? 0;
      post({ kind: "error", id: many ? many.id : id, message: error.message });
      many = null;
    }
  }
  const again = (wait = 0) => {
    timer ??= setTimeout(work, wait);
  };
  const clock = () => {
    [since, started] = [trainer?.steps ?? 0, performance.now()];
  };

  // Many seeds one after the other, for how they end.
  function advance(end) {
    const { id: turn, settings, start, edits, seeds, epochs } = many;
    while (seeds.length && performance.now() < end) {
      many.trainer ??= made({ ...settings, seed: seeds[0] }, start);
      const one = many.trainer, upTo = (one.epochs + 1) * stepsPerEpoch(settings);
      let loss = 0;
      while (one.steps < upTo) {
        apply(one, edits.filter(({ step }) => step === one.steps));
        loss += one.step() / stepsPerEpoch(settings);
      }
      if (loss < escapeLevel(settings.task.p)) many.escaped ??= one.epochs;
      if (one.epochs >= epochs) {
        apply(one, edits.filter(({ step }) => step === one.steps));
        post({ kind: "one", id: turn, seed: seeds.shift(), evaluation: one.evaluate(), share: 1, escaped: many.escaped });
        [many.trainer, many.escaped] = [null, null];
      }
    }
    if (many.trainer) post({ kind: "one", id: turn, seed: seeds[0], evaluation: null, share: many.trainer.epochs / epochs });
    if (!seeds.length) many = null;
    else if (!resting) again();
  }

  return function receive(message) {
    if (message.kind === "plan") {
      ({ id, goal } = message);
      try {
        adopt(message.plan);
      } catch (error) {
        plan = trainer = null;
        post({ kind: "error", message: error.message });
        return;
      }
    } else if (message.kind === "goal") ({ goal, pace } = message);
    else if (message.kind === "rest") resting = message.on;
    else if (message.kind === "many") many = { ...message, seeds: [...message.seeds], trainer: null, escaped: null };
    else if (message.kind === "stop") [many, goal] = [null, trainer?.steps ?? 0];
    clock();
    again();
  };
}

// Opens a runner: `hear` gets its messages. A worker is tried where the page says where scripts are.
export function open(hear) {
  let worker = null, local = null, waiting = [], closed = false;
  const fall = () => {
    worker?.terminate();
    worker = null;
    if (closed || local) return;
    local = serve((message) => {
      if (!closed) hear(message);
    }, 9);
    for (const message of waiting.splice(0)) local(message);
  };
  const base = globalThis.attnopt?.base;
  try {
    if (!base || !globalThis.Worker || new URL(base).protocol === "file:") throw new Error("no worker here");
    worker = new Worker(new URL("worker.js", base));
    worker.onerror = fall;
    worker.onmessage = ({ data }) => {
      if (data.kind === "ready") {
        worker.onerror = (event) => hear({ kind: "error", message: event.message });
        for (const message of waiting.splice(0)) worker.postMessage(message);
        waiting = null;
      } else hear(data);
    };
  } catch {
    fall();
  }
  return {
    get beside() {
      return worker !== null;
    },
    post(message) {
      if (local) local(message);
      else if (waiting) waiting.push(message);
      else worker.postMessage(message);
    },
    close() {
      closed = true;
      worker?.terminate();
      local?.({ kind: "stop" });
    },
  };
}

// Opens runners for many seeds: one for each core, up to WORKERS, or one if the page already knows that it can start no
// worker. They share the seeds of a message.
export function openSeveral(hear) {
  const runners = [open(hear)];
  return {
    post(message) {
      if (message.kind !== "many") return runners.forEach((runner) => runner.post(message));
      const cores = runners[0].beside ? navigator.hardwareConcurrency ?? 1 : 1;
      while (runners.length < Math.min(cores, WORKERS, message.seeds.length)) runners.push(open(hear));
      runners.forEach((runner, at) =>
        runner.post({ ...message, seeds: message.seeds.filter((_, index) => index % runners.length === at) })
      );
    },
    close() {
      for (const runner of runners) runner.close();
    },
  };
}
