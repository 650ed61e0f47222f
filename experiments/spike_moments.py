r"""Loss spikes and Adam's second moments: other β and ε, moments altered before a spike, and what foretells one.

    python experiments/spike_moments.py [SECTION ...]

Writes results/spike_moments.json. Bai and others (2025, arXiv:2506.04805) put spikes of Adam down to its second moments v:
where these decay and no longer follow the squared gradients, the Hessian as Adam feels it,

    Ĥ = (1 - β₁)/(1 + β₁) · 1/(1 - β₁ᵗ) · diag(1/(√v̂ + ε)) H,

stays beyond 2/η, and a spike comes where λ = gᵀĤg/gᵀg, its curvature along the gradient g, exceeds 2/η. On mini-batches
single steps are noisy and the crossing is to last; for how long we have not seen, and take three steps in a row.

Said before any of it was run, but for a look at 24 seeds and 500 epochs, in which few runs solved the task (spikes in 1000
epochs after success: 3.7 by default, 1.0 with β₂ = 0.99, 7.5 with 0.9, 2.6 with ε = 1e-4, 1.7 with 1e-3):

ensembles      RUNS models of EPOCHS epochs each, seeds FIRST and so on, which nothing else here uses: β₂, ε and β₁ one at a
               time from Adam's usual values, with the same seeds, data and order of mini-batches. Hundred runs take about
               three minutes of a core; nine ensembles are what half an hour of one allows (β₂ = 0.995 and ε = 1e-6, meant
               to be there at first, were left out before any but the usual ensemble was looked at).
    Counted    spikes that begin after success, over the epochs since (`smooth_normalisation.rates`): rates, with intervals
               from drawing runs again; successes, and the share of successful runs with spikes, by Wilson.
    Tests      of each against the usual values, over seeds that succeed with both: Wilcoxon's signed ranks of the runs'
               rates; and of successes the exact sign test. Eight of each kind, corrected by Holm's method, at 0.05.
    Foretold   if v that lags is the cause: fewer spikes with smaller β₂ (a ratio below 1/2 at 0.99 and 0.95), more with
               0.9995; fewer with ε of 1e-3 and more (below 1/2); more with β₁ = 0, whose threshold is 19 times lower.
               After the first look we expect no fewer with β₂ = 0.9, which that cause alone does not explain.

interventions  The spikes of experiments/spike_controls.py, one a run, 96; those that begin after success. Runs are followed
               from their seeds in single precision, as there, and trained through the spike in double precision from BEFORE
               epochs before it. T is the first step of the last two of these epochs that takes the loss on the
               training set over the spike's threshold. From LEADS steps before T on v is altered, for so many
               steps and ROOM more:
                   floor F     √v is F or more wherever it divides
                   frozen      v stays what it is (a run whose step is longer than LONGEST is stopped and counts as LOST)
                   restored    v is what it was at the end of that of the last CALM epochs (up to BEFORE before the
                               spike) in which its sum was largest: before the quiet; then it follows the gradients
               The step of an altered v differs in direction and in length from that of the v there is at that moment.
               Each is also taken alone: "length", the usual direction and the altered length, the control that shortens the
               step by the same factor; "direction", the altered direction and the usual length.
    Counted    spikes whose loss stays at or below the threshold after every step, by Wilson, and the median share of the
               height above the low that is left, with intervals from drawing spikes again.
    Tests      four, with the lead of 16 steps: for each alteration, spikes that "length" takes away and "direction" does not
               against the reverse, by the exact sign test; corrected by Holm's method.
    Foretold   restoring takes more than half of the spikes away, its length alone no fewer, its direction alone fewer than
               half; freezing takes none away, since a large gradient then finds no larger v.

predictor      Before the same T, at each of the last WINDOW steps, with the v that the step divides by: λ·η/2 of the
               mini-batch and of the training set; the largest eigenvalue of Ĥ, likewise; how short the median ξ of the
               training sequences is; the length of the step; the norm of the mini-batch's gradient. At controls the same, up
               to a random step of an epoch without a rise near (QUIET epochs): "same run", 10 to 60 epochs before the spike,
               after success; "same age", another of the runs, as many epochs after its success as the spike has. Controls
               in whose window the loss exceeds their epoch's threshold, unseen at the ends of epochs, are left out and
               counted.
    Counted    the largest value within three windows: the step onto the threshold (1 step before), 2 to 16, and 17 to 64
               steps before; areas under the ROC curve between spikes and controls, and for λ and the eigenvalue shares
               beyond the threshold, of spikes (foretold) and of controls (false alarms), with intervals from drawing runs
               again.
    Foretold   λ of the mini-batch is beyond the threshold at the step itself for more than half of the spikes, and in more
               than a fifth of the calm windows of 64 steps; 17 to 64 steps before nothing has an area above 0.75, and the
               length of the step does as well as λ.

decay          Not planned: the root of the sum of v, BEFORE epochs before a spike and before a control of the same age, over
               what it was before the quiet. What only decays is left with β₂ to the power CALM · STEPS / 2, 0.04.

alarms         Not planned either: how often λ of the mini-batch is beyond the threshold in calm epochs, EACH of every run,
               drawn at random after success; and in how many of these the loss exceeds the epoch's threshold, unseen.
               Beside it the spikes of these runs.
"""

import json
import random
from functools import cache
from typing import NamedTuple

import fresh
import lab
import numpy as np
import torch
from fresh import SUCCESS, holm, share
from lab import Record
from loss_spikes import mean_loss
from scipy.stats import binomtest, wilcoxon
from smooth_normalisation import rates, ratio
from torch import Tensor

from attnopt.clustering import PAPER, Course, Settings, State, Watch, ensemble, find_spikes
from attnopt.clustering.sharpness import gradients, sharpness
from attnopt.clustering.spikes import stages
from attnopt.clustering.training.record import Evaluation
from attnopt.clustering.training.step import order_of

RECORD = Record("spike_moments", digits=4, engine="plain")
CACHE = lab.CACHE / "spike_moments"
FIRST, RUNS, EPOCHS = 5000, 100, 1000
BETA2, EPS, BETA1 = (0.9, 0.95, 0.99, 0.9995), (1e-4, 1e-3, 1e-2), (0.0,)
TIMES = 2000
STEPS = PAPER.n_train // PAPER.batch_size  # of an epoch
BEFORE, AFTER, LEADS, ROOM, CALM = 4, 55, (16, 64), 64, 100
FLOORS = (1e-3, 1e-2)
LONGEST, LOST = 1.0, 10.0  # the length of a step, and the loss of a run that it would drive off
ALTERATIONS = (*(f"floor {floor:g}" for floor in FLOORS), "frozen", "restored")
PARTS = ("whole", "length", "direction")
WINDOW, QUIET, NEAR, ROW, EACH = 64, 9, (10, 60), 3, 25
SPANS = {"1": (1, 1), "2 to 16": (2, 16), "17 to 64": (17, 64)}  # steps before
SPARSE = (1, 2, 4, 8, 16, 32, 64)  # those at which the training set's largest eigenvalue is computed
AT_A_TIME = 24


def points() -> dict[str, Settings]:
    """The settings of each ensemble, the usual ones first."""
    found = {"usual": Settings(epochs=EPOCHS)}
    found |= {f"beta2 {value:g}": Settings(epochs=EPOCHS, betas=(PAPER.betas[0], value)) for value in BETA2}
    found |= {f"eps {value:g}": Settings(epochs=EPOCHS, eps=value) for value in EPS}
    return found | {f"beta1 {value:g}": Settings(epochs=EPOCHS, betas=(value, PAPER.betas[1])) for value in BETA1}


def rate(counts: dict[str, np.ndarray], pick: np.ndarray) -> float:
    """Spikes in a thousand epochs after success, of the runs picked."""
    return 1000 * counts["late"][pick].sum() / max(counts["epochs"][pick].sum(), 1)


def summary(counts: dict[str, np.ndarray], times: int = TIMES) -> dict:
    """What is said of an ensemble."""
    runs, rng = len(counts["late"]), np.random.default_rng(0)
    again = [rate(counts, rng.integers(0, runs, runs)) for _ in range(times)]
    reached, some = int(counts["reached"].sum()), int((counts["late"] > 0).sum())
    return {
        "reached": share(reached, runs),
        "rate": [float(rate(counts, np.arange(runs))), *map(float, np.quantile(again, (0.025, 0.975)))],
        "with_spikes": share(some, reached) if reached else None,
        "late": counts["late"],
        "epochs": counts["epochs"],
    }


def against(usual: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> dict:
    """An ensemble beside the usual one, run by run."""
    both = usual["reached"] & other["reached"] & (usual["epochs"] > 0) & (other["epochs"] > 0)
    one, two = (counts["late"][both] / counts["epochs"][both] for counts in (usual, other))
    lost, won = (
        int((a & ~b).sum()) for a, b in ((usual["reached"], other["reached"]), (other["reached"], usual["reached"]))
    )
    return {
        "ratio": ratio(usual, other),
        "pairs": int(both.sum()),
        "fewer, more": [int((two < one).sum()), int((two > one).sum())],
        "p": float(wilcoxon(two, one).pvalue) if (one != two).any() else 1.0,
        "lost, won": [lost, won],
        "p of success": float(binomtest(lost, lost + won).pvalue) if lost + won else 1.0,
    }


@RECORD.section
def ensembles() -> dict:
    """Successes and spikes with other β and ε."""
    counts = {}
    for name, settings in points().items():
        folder = CACHE / name.replace(" ", "_")
        training = ensemble(
            range(FIRST, FIRST + RUNS), settings, folder, watch=Watch(every=1), chunk=RUNS, jobs=1, compiled=False
        )
        counts[name] = rates(training)
        print(name, {key: int(value.sum()) for key, value in counts[name].items()}, flush=True)
    found = {name: summary(entry) for name, entry in counts.items()}
    pairs = {name: against(counts["usual"], entry) for name, entry in counts.items() if name != "usual"}
    for kind in ("p", "p of success"):
        corrected = holm({name: pair[kind] for name, pair in pairs.items()})
        for name, pair in pairs.items():
            pair[f"corrected {kind}"] = corrected[name]
    return {"points": found, "pairs": pairs}


class Followed(NamedTuple):
    """Runs from their seeds on, (epochs + 1, M, …): weights, Adam's moments, the loss, the share of all sequences right."""

    rows: Tensor
    first: Tensor
    second: Tensor
    loss: Tensor
    right: Tensor

    def state(self, runs: list[int], epochs: list[int]) -> State:
        """After so many epochs of each, in double precision."""
        parts = (part[epochs, runs].double() for part in (self.rows, self.first, self.second))
        return State(*parts, torch.tensor(epochs) * STEPS)


class Moment(NamedTuple):
    """Where to look.

    ``kind``, "spike" or which control; ``spike``, which spike it belongs to; ``run``; ``epoch``, the spike's first or the
    control's; ``low`` and ``threshold`` of the loss.
    """

    kind: str
    spike: int
    run: int
    epoch: int
    low: float
    threshold: float


def follow(seeds: list[int], epochs: int) -> Followed:
    """Train runs as the ensembles were, and keep every epoch's end."""
    course = Course(seeds)
    evaluation = Evaluation(course.engine, course.settings.task, course.tokens)
    state, kept = course.initial(), []
    for epoch in range(epochs + 1):
        found = evaluation.of(state.rows)
        kept.append([*(part.clone() for part in state[:3]), found["loss"], found["accuracy_all"]])
        if epoch < epochs:
            for _ in course.epoch(state):
                pass
    return Followed(*(torch.stack(parts) for parts in zip(*kept, strict=True)))


@cache
def followed() -> tuple[list[int], list[int], Followed]:
    """The seeds of experiments/spike_controls.py, the epochs of their spikes, and their runs, kept in .cache."""
    stored = json.loads((lab.RESULTS / "spike_controls.json").read_text(encoding="utf-8"))
    seeds, starts, file = stored["runs"], stored["starts"], CACHE / "followed.npz"
    if not file.exists():
        arrays = {name: value.numpy() for name, value in follow(seeds, max(starts) + AFTER)._asdict().items()}
        CACHE.mkdir(parents=True, exist_ok=True)
        part = CACHE / "followed.part.npz"
        np.savez(part, **arrays)
        part.replace(file)
    with np.load(file, allow_pickle=False) as arrays:
        return seeds, starts, Followed(**{name: torch.from_numpy(arrays[name]) for name in Followed._fields})


def spike_moments(starts: list[int], runs: Followed) -> list[Moment]:
    """The spikes that begin after success, as they are met again."""
    met = {(spike.model, spike.start): spike for spike in find_spikes(runs.loss)}
    found, success = [], crossings(runs)
    for run, start in enumerate(starts):
        spike = met.get((run, start))
        if spike is not None and spike.end is not None and 0 <= success[run] < start:
            found.append(Moment("spike", run, run, start, spike.low, max(2 * spike.low, spike.low + 0.02)))
    return found


def crossings(runs: Followed) -> list[int]:
    """The first epoch of each run with more than SUCCESS of all sequences right, -1 where there is none."""
    right = runs.right > SUCCESS
    return torch.where(right.any(0), right.int().argmax(0), -1).tolist()


def calm_epochs(runs: Followed) -> list[set[int]]:
    """Of each run, those after success without a rise near."""
    found = []
    rises = find_spikes(runs.loss)
    for run, success in enumerate(crossings(runs)):
        near = [range(r.start - QUIET, (r.end or r.start + 50) + QUIET + 1) for r in rises if r.model == run]
        later = range(max(success, 20) + 1, len(runs.loss)) if success >= 0 else ()
        found.append(set(later).difference(*near))
    return found


def control_moments(spikes: list[Moment], runs: Followed) -> list[Moment]:
    """To each spike a calm epoch of the same run, and one of another run at the same age, where there are some."""
    success, rng, calm, found = crossings(runs), random.Random(0), calm_epochs(runs), []

    def moment(kind: str, spike: Moment, run: int, epoch: int) -> Moment:
        low = runs.loss[epoch - 20 : epoch, run].double().min().item()
        return Moment(kind, spike.spike, run, epoch, low, max(2 * low, low + 0.02))

    for spike in spikes:
        own = [epoch for epoch in range(spike.epoch - NEAR[1], spike.epoch - NEAR[0]) if epoch in calm[spike.run]]
        age = spike.epoch - success[spike.run]
        others = [
            (run, success[run] + age) for run in range(len(success)) if run != spike.run and success[run] + age in calm[run]
        ]
        if own:
            found.append(moment("same run", spike, spike.run, rng.choice(own)))
        if others:
            found.append(moment("same age", spike, *rng.choice(others)))
    return found


order = cache(order_of)  # of the training sequences in an epoch


def batches(course: Course, steps: list[int], runs: list[int] | None = None) -> tuple[Tensor, Tensor]:
    """Marks (M, B, pL) and labels (M, B, p) of the step after so many, of each of the course's runs or of those named."""
    size, runs = PAPER.batch_size, list(range(len(steps))) if runs is None else runs
    at = torch.stack([order(step // STEPS, PAPER.n_train)[step % STEPS * size :][:size] for step in steps])
    owner = torch.tensor(runs)[:, None]
    return course.marks[owner, at], course.truth[owner, at]


def move(first: Tensor, second: Tensor, steps: Tensor) -> Tensor:
    """The step of Adam with these moments, after so many steps, it included."""
    (slow, slower), counts = PAPER.betas, steps.double().unsqueeze(-1)
    return PAPER.learning_rate * first / (1 - slow**counts) / ((second / (1 - slower**counts)).sqrt() + PAPER.eps)


def altered(
    course: Course, state: State, count: int, kind: str = "", part: str = "whole", before: Tensor | None = None
) -> dict[str, Tensor]:
    """Train M runs on for so many steps with second moments that are altered, or not.

    Args:
        course: whose runs they are, in double precision.
        state: to go on from.
        count: of steps.
        kind: one of ALTERATIONS; none unless given.
        part: of the altered step: the "whole", its "length" in the usual direction, or its "direction" at the usual length.
        before: the second moments that are "restored", (M, n).

    Returns:
        ``loss`` on the training set and the state (``rows``, ``first``, ``second``) after 0, 1, … steps, (count + 1, M, …),
        and ``usual`` and ``taken``, the lengths of the usual steps there and of those taken, (count, M).
    """
    (slow, slower), state = PAPER.betas, State(*(part.clone() for part in state))
    own = before.clone() if kind == "restored" else state.second.clone()
    found = {name: [value.clone()] for name, value in zip(("rows", "first", "second"), state, strict=False)}
    found |= {"loss": [mean_loss(course, state.rows)], "usual": [], "taken": []}
    lost = torch.zeros(len(state.rows), dtype=torch.bool)
    for _ in range(count):
        gradient = gradients(course.layout, state.rows, *batches(course, state.steps.tolist()), course.norm)
        state.steps.add_(1)
        state.first.lerp_(gradient, 1 - slow)
        for second in (state.second, own) if kind == "restored" else (state.second,):
            second.mul_(slower).addcmul_(gradient, gradient, value=1 - slower)
        usual = taken = move(state.first, state.second, state.steps)
        if kind:
            floor = float(kind.split()[1]) ** 2 if kind.startswith("floor") else 0.0
            taken = move(state.first, state.second.clamp_min(floor) if floor else own, state.steps)
        lengths = usual.norm(dim=1, keepdim=True), taken.norm(dim=1, keepdim=True)
        if part == "length":
            taken = usual * (lengths[1] / lengths[0])
        if part == "direction":
            taken = taken * (lengths[0] / lengths[1])
        lost |= taken.norm(dim=1) > LONGEST
        state.rows.sub_(taken.masked_fill(lost.unsqueeze(1), 0.0))
        found["loss"].append(mean_loss(course, state.rows).masked_fill(lost, LOST))
        found["usual"].append(lengths[0].squeeze(1))
        found["taken"].append(taken.norm(dim=1))
        for name in ("rows", "first", "second"):
            found[name].append(getattr(state, name).clone())
    return {name: torch.stack(values) for name, values in found.items()}


def onset(loss: Tensor, thresholds: list[float], since: int = 0) -> list[int]:
    """Of losses after 0, 1, … steps, (steps + 1, M): the first later than ``since`` that comes over the threshold, or 0."""
    above = loss > torch.tensor(thresholds)
    over = above[1:] & ~above[:-1]
    over[:since] = False
    return torch.where(over.any(0), over.int().argmax(0) + 1, 0).tolist()


def quiet(runs: Followed, moment: Moment) -> Tensor:
    """The second moments before the quiet that a spike ends."""
    last = moment.epoch - BEFORE
    begin = max(0, last - CALM)
    return runs.second[begin + int(runs.second[begin : last + 1, moment.run].sum(1).argmax()), moment.run].double()


@cache
def onsets() -> list[tuple[Moment, int]]:
    """The spikes that come again in double precision, and after how many steps since BEFORE epochs before them."""
    seeds, starts, runs = followed()
    spikes, found = spike_moments(starts, runs), []
    for at in range(0, len(spikes), AT_A_TIME):
        part = spikes[at : at + AT_A_TIME]
        course = Course([seeds[spike.run] for spike in part], dtype=torch.float64)
        state = runs.state([spike.run for spike in part], [spike.epoch - BEFORE for spike in part])
        loss = altered(course, state, BEFORE * STEPS)["loss"]
        found += zip(part, onset(loss, [spike.threshold for spike in part], (BEFORE - 2) * STEPS), strict=True)
    return found


@RECORD.section
def interventions() -> dict:
    """Spikes whose second moments were altered some steps before."""
    seeds, starts, runs = followed()
    there = [(spike, step) for spike, step in onsets() if step > max(LEADS)]
    found: dict = {"of": len(starts), "after success": len(onsets()), "there": len(there)}
    found["decay"] = fresh.resampled(
        np.array([float((runs.second[s.epoch - BEFORE, s.run].sum() / quiet(runs, s).sum()).sqrt()) for s, _ in there])
    )
    for lead in LEADS:
        table: dict[str, list[Tensor]] = {}
        for at in range(0, len(there), AT_A_TIME):
            part, steps = zip(*there[at : at + AT_A_TIME], strict=True)
            course = Course([seeds[spike.run] for spike in part], dtype=torch.float64)
            state = runs.state([spike.run for spike in part], [spike.epoch - BEFORE for spike in part])
            steps = torch.tensor(steps) - lead
            track, many = altered(course, state, int(steps.max())), torch.arange(len(part))
            begun = State(*(track[name][steps, many] for name in State._fields[:3]), state.steps + steps)
            low, limit = (torch.tensor([getattr(spike, name) for spike in part]) for name in ("low", "threshold"))
            before = torch.stack([quiet(runs, spike) for spike in part])
            usual = altered(course, begun, lead + ROOM)
            for kind in ALTERATIONS:
                for piece in PARTS:
                    after = altered(course, begun, lead + ROOM, kind, piece, before)
                    peak, height = (entry["loss"][1:].amax(0) for entry in (after, usual))
                    shorter = (after["taken"] / usual["taken"])[:lead].median(0).values
                    for name, value in (
                        ("gone", peak <= limit),
                        ("left", (peak - low) / (height - low)),
                        ("steps", shorter),
                    ):
                        table.setdefault(f"{kind}, {piece}, {name}", []).append(value)
            print(f"lead {lead}: {at + len(part)} of {len(there)}", flush=True)
        whole = {name: torch.cat(values).numpy() for name, values in table.items()}
        entry: dict = {"gone": {}, "left": {}, "steps": {}, "against": {}}
        for name in (f"{kind}, {piece}" for kind in ALTERATIONS for piece in PARTS):
            entry["gone"][name] = share(int(whole[f"{name}, gone"].sum()), len(there))
            entry["left"][name] = fresh.resampled(whole[f"{name}, left"])
            entry["steps"][name] = float(np.median(whole[f"{name}, steps"]))
        for kind in ALTERATIONS:
            length, direction = (whole[f"{kind}, {piece}, gone"] for piece in ("length", "direction"))
            more, fewer = int((length & ~direction).sum()), int((direction & ~length).sum())
            p = float(binomtest(more, more + fewer).pvalue) if more + fewer else 1.0
            entry["against"][kind] = {"only length, only direction": [more, fewer], "p": p}
        corrected = holm({kind: value["p"] for kind, value in entry["against"].items()})
        for kind, value in entry["against"].items():
            value["corrected"] = corrected[kind]
        found[f"lead {lead}"] = entry
    return found


def signs(course: Course, track: dict[str, Tensor], run: int, begin: int) -> dict[str, np.ndarray]:
    """What may foretell a spike, at each of the steps of a run.

    Args:
        course: in double precision.
        track: of that run alone, as from `altered`: the states before the steps, (steps, n).
        run: which of the course's.
        begin: steps that the run had done before the first.

    Returns:
        ``λ`` and ``eigenvalue`` in units of the threshold 2/η, of the ``mini-batch`` and of the ``training set`` (the
        eigenvalue of the latter at the steps SPARSE from the end, elsewhere nan); ``short ξ``; ``step``; ``gradient``.
    """
    rows, layout = track["rows"], course.layout
    counts = torch.arange(begin, begin + len(rows))
    slow, slower = PAPER.betas
    batch = batches(course, counts.tolist(), [run] * len(rows))
    gradient = gradients(layout, rows, *batch, course.norm)
    first = torch.lerp(track["first"], gradient, 1 - slow)
    second = slower * track["second"] + (1 - slower) * gradient.square()
    scale = felt(second, counts + 1)
    whole = [part[run].expand(len(rows), -1, -1) for part in (course.marks, course.truth)]
    sparse = torch.tensor([len(rows) - back for back in SPARSE if back <= len(rows)])
    eigenvalue = torch.full((len(rows),), torch.nan, dtype=torch.double)
    eigenvalue[sparse] = in_parts(sharpness, layout, rows[sparse], *(part[sparse] for part in whole), scale[sparse])
    ahead = in_parts(gradients, layout, rows, *whole)
    found = {
        "λ, mini-batch": along(layout, rows, batch, gradient, scale),
        "λ, training set": along(layout, rows, whole, ahead, scale),
        "eigenvalue, mini-batch": sharpness(layout, rows, *batch, course.norm, scale, iterations=12),
        "eigenvalue, training set": eigenvalue,
    }
    found = {name: value * PAPER.learning_rate / 2 for name, value in found.items()}
    models = course.models(rows)
    lengths = [stages(models[[at]], whole[0][:1])["sequence"].norm(dim=-1).median() for at in range(len(rows))]
    found["short ξ"] = -torch.stack(lengths)
    found["step"] = move(first, second, counts + 1).norm(dim=1)
    found["gradient"] = gradient.norm(dim=1)
    return {name: value.numpy() for name, value in found.items()}


def in_parts(measure, layout, rows: Tensor, marked: Tensor, truth: Tensor, scale: Tensor | None = None) -> Tensor:
    """`gradients`, or `sharpness` with a preconditioner, a few states at a time, which is faster."""
    more = {} if scale is None else {"iterations": 12}
    return torch.cat(
        [
            measure(layout, rows[p], marked[p], truth[p], PAPER.norm, *(() if scale is None else (scale[p],)), **more)
            for p in torch.arange(len(rows)).split(8)
        ]
    )


def along(layout, rows: Tensor, data: tuple[Tensor, Tensor], gradient: Tensor, scale: Tensor) -> Tensor:
    """The curvature gᵀP⁻¹Hg/gᵀg along gradients, with the product by central differences, for the diagonal P."""
    length = 1e-5 * (1 + rows.norm(dim=1, keepdim=True)) / gradient.norm(dim=1, keepdim=True)
    up, down = (in_parts(gradients, layout, rows + sign * length * gradient, *data) for sign in (1, -1))
    product = (up - down) / (2 * length)
    return (gradient * product / scale).sum(1) / gradient.square().sum(1)


def lasting(values: np.ndarray) -> np.ndarray:
    """The least of ROW steps in a row, of which each is the last; the first steps have fewer before them."""
    return np.array([values[max(0, at + 1 - ROW) : at + 1].min() for at in range(len(values))])


def scores(found: dict[str, np.ndarray]) -> dict[str, dict[str, float]]:
    """The largest value of each sign within each of the SPANS."""
    found = found | {f"lasting {name}": lasting(found[name]) for name in ("λ, mini-batch", "λ, training set")}
    return {
        span: {name: float(np.nanmax(values[len(values) - far : len(values) - near + 1])) for name, values in found.items()}
        for span, (near, far) in SPANS.items()
    }


def area(spikes: np.ndarray, controls: np.ndarray) -> float:
    """Under the ROC curve: how often a spike scores more than a control."""
    difference = spikes[:, None] - controls
    return float((difference > 0).mean() + 0.5 * (difference == 0).mean())


def windows() -> dict[str, dict[int, dict[str, np.ndarray]]]:
    """The signs in the last WINDOW steps before each spike and at its controls, and controls that were left out."""
    seeds, _, runs = followed()
    spikes = [(spike, step) for spike, step in onsets() if step > max(LEADS)]
    found: dict = {"spike": {}, "same run": {}, "same age": {}, "rises unseen": {"same run": 0, "same age": 0}}
    rng = random.Random(1)
    where = [(spike, (spike.epoch - BEFORE) * STEPS + step) for spike, step in spikes]
    controls = control_moments([spike for spike, _ in spikes], runs)
    where += [(moment, (moment.epoch - 1) * STEPS + rng.randint(1, STEPS)) for moment in controls]
    for done, (moment, last) in enumerate(where):
        epoch = moment.epoch - BEFORE if moment.kind == "spike" else (last - WINDOW) // STEPS
        course = Course([seeds[moment.run]], dtype=torch.float64)
        track = altered(course, runs.state([moment.run], [epoch]), last - epoch * STEPS)
        if moment.kind != "spike" and track["loss"][-WINDOW:].max() > moment.threshold:
            found["rises unseen"][moment.kind] += 1
            continue
        track = {name: track[name][-WINDOW - 1 : -1, 0] for name in ("rows", "first", "second")}
        found[moment.kind][moment.spike] = signs(course, track, 0, last - WINDOW)
        if done % 20 == 0:
            print(f"signs of {done} of {len(where)}", flush=True)
    return found


@RECORD.section
def predictor() -> dict:
    """What foretells a spike."""
    found = windows()
    unseen = found.pop("rises unseen")
    scored = {kind: {at: scores(entry) for at, entry in entries.items()} for kind, entries in found.items()}
    result: dict = {"spikes": len(scored["spike"]), "rises unseen": unseen}
    names = list(next(iter(scored["spike"].values()))["1"])
    for kind in ("same run", "same age"):
        both = [at for at in scored["spike"] if at in scored[kind]]
        picks = [np.arange(len(both)), *np.random.default_rng(0).integers(0, len(both), (TIMES, len(both)))]
        entry: dict = {"pairs": len(both)}
        for span in SPANS:
            entry[span] = {}
            for name in names:
                case, control = (np.array([scored[k][at][span][name] for at in both]) for k in ("spike", kind))
                entry[span][name] = {"area": interval([area(case[pick], control[pick]) for pick in picks])}
                if "λ" in name or "eigenvalue" in name:
                    entry[span][name] |= {
                        "foretold": share(int((case > 1).sum()), len(both)),
                        "false alarms": share(int((control > 1).sum()), len(both)),
                    }
        result[kind] = entry
    result["median"] = {
        kind: {name: np.median([entry[name] for entry in entries.values()], 0) for name in names if "lasting" not in name}
        for kind, entries in found.items()
    }
    return result


@RECORD.section
def decay() -> dict:
    """How far second moments have decayed before spikes, and before calm epochs of runs as old."""
    _, starts, runs = followed()
    spikes = spike_moments(starts, runs)
    pairs = {moment.spike: moment for moment in control_moments(spikes, runs) if moment.kind == "same age"}
    left = lambda m: float((runs.second[m.epoch - BEFORE, m.run].sum() / quiet(runs, m).sum()).sqrt())  # noqa: E731
    one, other = (np.array([left(m) for m in kind]) for kind in ([s for s in spikes if s.spike in pairs], pairs.values()))
    alone = 1.05 * PAPER.betas[1] ** (CALM * STEPS / 2)
    return {
        "pairs": len(one),
        "spike": fresh.resampled(one),
        "same age": fresh.resampled(other),
        "alone": [share(int((values < alone).sum()), len(values)) for values in (one, other)],
        "p": float(wilcoxon(one, other).pvalue),
    }


@RECORD.section
def alarms() -> dict:
    """False alarms of λ of the mini-batch, an epoch."""
    seeds, _, runs = followed()
    calm, rng = calm_epochs(runs), random.Random(2)
    who = [run for run in range(len(seeds)) if len(calm[run]) >= EACH]
    epochs = torch.tensor([rng.sample(sorted(calm[run]), EACH) for run in who])
    course, high = Course([seeds[run] for run in who], dtype=torch.float64), []
    for at in range(EACH):
        state = runs.state(who, (epochs[:, at] - 1).tolist())
        track = unaltered(course, state, STEPS)
        high.append((track > 1).any(0))
    high = torch.stack(high, 1)
    unseen = 0
    for place, at in high.nonzero().tolist():
        run, epoch = who[place], int(epochs[place, at])
        low = runs.loss[epoch - 20 : epoch, run].double().min().item()
        alone = Course([seeds[run]], dtype=torch.float64)
        loss = altered(alone, runs.state([run], [epoch - 1]), STEPS)["loss"]
        unseen += int(loss.max() > max(2 * low, low + 0.02))
    by_run, success = high.double().mean(1).numpy(), crossings(runs)
    late = [s for s in find_spikes(runs.loss) if s.end is not None and 0 <= success[s.model] < s.start]
    return {
        "spikes, epochs since success": [len(late), sum(len(runs.loss) - 1 - first for first in success if first >= 0)],
        "runs": len(who),
        "epochs": high.numel(),
        "alarms": int(high.sum()),
        "rises unseen": unseen,
        "share": fresh.resampled(by_run, np.mean),
    }


def unaltered(course: Course, state: State, count: int) -> Tensor:
    """λ of the mini-batch at each of so many steps of M runs, in units of the threshold, (count, M)."""
    (slow, slower), state, found = PAPER.betas, State(*(part.clone() for part in state)), []
    for _ in range(count):
        batch = batches(course, state.steps.tolist())
        gradient = gradients(course.layout, state.rows, *batch, course.norm)
        state.steps.add_(1)
        state.first.lerp_(gradient, 1 - slow)
        state.second.mul_(slower).addcmul_(gradient, gradient, value=1 - slower)
        curvature = along(course.layout, state.rows, batch, gradient, felt(state.second, state.steps))
        found.append(curvature * PAPER.learning_rate / 2)
        state.rows.sub_(move(state.first, state.second, state.steps))
    return torch.stack(found)


def felt(second: Tensor, steps: Tensor) -> Tensor:
    """The diagonal P of P⁻¹H = Ĥ, after so many steps."""
    (slow, slower), counts = PAPER.betas, steps.double().unsqueeze(-1)
    return ((second / (1 - slower**counts)).sqrt() + PAPER.eps) * (1 - slow**counts) * (1 + slow) / (1 - slow)


def interval(values: list[float]) -> list[float]:
    """The first, and the 95 % interval of the others."""
    return [values[0], *map(float, np.quantile(values[1:], (0.025, 0.975)))]


if __name__ == "__main__":
    RECORD.main()
