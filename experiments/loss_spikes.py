"""What the chapter on loss spikes reports of the ensembles.

    python experiments/loss_spikes.py [SECTION ...]

Writes results/loss_spikes.json, section by section: those named, or else those that are missing, from the ensembles that
experiments/ensembles.py has finished (others are left out). Runs with spikes are trained again once up to epoch UNTIL; what
that leaves is kept in .cache/loss_spikes and taken up again.

Sections:
    counts      spikes [run, start, peak, end, low, height] (no end: a collapse), and per run the best and last accuracy on
                all sequences and the epochs from first crossing 0.9 on, for every ensemble
    detector    "main": spikes, runs with spikes, collapses for several thresholds
    gradients   norms around spikes of "main", relative to their median over epochs -20 to -3, with
                quartiles; and around epochs drawn at random from the same runs after crossing 0.9
    wider       the same for embeddings of width 3 and 64
    before      "main": what snapshots up to ten epochs before a spike have more of than others of the run at a like loss
    dissection  "main": each spike's steepest step, and how much it would have risen otherwise (`spikes.dissect`)
    onset       "main": the step that first takes the loss over the spike's threshold, dissected likewise, with the loss
                before and after it, how often it comes over the threshold within the two epochs, and the largest
                eigenvalue that Adam feels, in units of its edge, BACK steps before
    sharpness   before spikes of "main" and at like moments, and along full-batch runs
    states      of training before four spikes, for the chapter to go on from; base64 of float32
"""

import base64
import math
import random

import numpy as np
import torch
from ensembles import CACHE, finished
from lab import Record
from torch import Tensor

from attnopt.clustering import (
    Course,
    Models,
    Settings,
    Spike,
    State,
    Task,
    Training,
    Watch,
    dissect,
    ensemble,
    find_spikes,
)
from attnopt.clustering.model import marks
from attnopt.clustering.sharpness import sharpness
from attnopt.clustering.spikes import losses, stages

RECORD = Record("loss_spikes", digits=4, engine="plain")
OWN = CACHE.parent / "loss_spikes"
NAMES = ("main", "full_batch", "unit", "clip", "decay")
WIDER = {3: (20, 600), 64: (10, 200)}  # d: runs, epochs
ROOM = (20, 15)  # epochs before and after a spike that gradients are looked at
QUIET = 9  # epochs around a control without a spike
RATE, BETA = 3e-3, 0.9
TRACED = 8  # full-batch runs that are followed
UNTIL = 500  # epochs that runs with spikes are trained again
BACK = (1, 2, 3, 4, 16, 48)  # steps before a spike's first over the threshold
SHOWN = 4  # spikes that the chapter trains through


def crossing(training: Training) -> Tensor:
    """The first epoch with more than 0.9 of all sequences right, -1 where there is none."""
    right = training.history["accuracy_all"] > 0.9
    return torch.where(right.any(0), right.double().argmax(0), -1)


def total_gradient(training: Training) -> Tensor:
    """Norm over all parameters, (evaluations, M)."""
    squares = [value.double().square() for name, value in training.history.items() if name.startswith("gradient_")]
    return torch.stack(squares).sum(0).sqrt()


@RECORD.section
def counts() -> dict:
    """Spikes, and per run the best and last accuracy on all sequences and when it first crossed 0.9."""
    found = {}
    for name in NAMES:
        if (training := finished(name)) is not None:
            right, first = training.history["accuracy_all"], crossing(training)
            found[name] = {
                "spikes": [list(spike) for spike in find_spikes(training.history["loss"])],
                "best": right.amax(0),
                "last": right[-1],
                "crossing": first,
            }
    return found


@RECORD.section
def detector() -> list:
    """Spikes, runs with spikes and collapses of the main ensemble for several thresholds."""
    loss = finished("main").history["loss"]
    rows = []
    for factor in (1.5, 2.0, 3.0):
        for rise in (0.01, 0.02, 0.05):
            for window in (10, 20, 50):
                spikes = find_spikes(loss, factor, rise, window)
                back = [spike for spike in spikes if spike.end is not None]
                rows.append([factor, rise, window, len(back), len({s.model for s in back}), len(spikes) - len(back)])
    return rows


@RECORD.section
def gradients() -> dict:
    """Gradient norms around the main ensemble's spikes."""
    return around(finished("main"))


@RECORD.section
def wider() -> dict:
    """Gradient norms around the spikes of wider embeddings."""
    found = {}
    for dim, (runs, epochs) in WIDER.items():
        training = ensemble(
            range(runs), Settings(dim=dim, epochs=epochs), OWN / f"dim_{dim}", watch=Watch(every=1), chunk=runs, jobs=1,
            compiled=False,
        )  # fmt: skip
        found[f"dim_{dim}"] = around(training)
    return found


def around(training: Training) -> dict:
    """Gradient norms around the spikes and around random epochs."""
    spikes = [spike for spike in find_spikes(training.history["loss"]) if spike.end is not None]
    norms = {name.removeprefix("gradient_"): v.double() for name, v in training.history.items() if "gradient_" in name}
    norms["all"] = total_gradient(training)
    before, after = ROOM
    epochs = len(norms["all"])
    first, rng = crossing(training), random.Random(0)
    usable = [spike for spike in spikes if before <= spike.start < epochs - after]
    controls = []
    for spike in usable:
        begin = max(before, int(first[spike.model]))
        if begin < epochs - after:
            controls.append((spike.model, rng.randrange(begin, epochs - after)))

    def profile(norm: Tensor, moments: list[tuple[int, int]]) -> list:
        courses = []
        for model, at in moments:
            usual = norm[at - before : at - 2, model].median()
            courses.append(norm[at - before : at + after, model] / usual.clamp_min(1e-300))
        return np.quantile(torch.stack(courses).numpy(), (0.25, 0.5, 0.75), axis=0).tolist()

    if not usable:
        return {"runs": norms["all"].shape[1], "learned": int((first >= 0).sum()), "spikes": len(spikes)}
    at_spikes = [(spike.model, spike.start) for spike in usable]
    everywhere = np.concatenate(
        [(norms["all"][at, m] / norms["all"][at - before : at - 2, m].median()).reshape(1) for m, at in at_spikes]
    )
    return {
        "runs": norms["all"].shape[1],
        "learned": int((first >= 0).sum()),
        "spikes": len(spikes),
        "aligned": len(usable),
        "doubled": float((everywhere > 2).mean()),
        "spike": {name: profile(norm, at_spikes) for name, norm in norms.items()},
        "control": profile(norms["all"], controls),
        "control_doubled": float(
            np.mean([norms["all"][at, m] > 2 * norms["all"][at - before : at - 2, m].median() for m, at in controls])
        ),
    }


def measures(training: Training, epoch: int, tokens: Tensor) -> dict[str, Tensor]:
    """What may foretell a spike, of every model after an epoch."""
    models = training.snapshots[epoch].double()
    now = stages(models, marks(tokens, 2, torch.double).expand(len(models), -1, -1))
    receptors, assemblers = models.weights["receptors"], models.weights["assemblers"]
    unit = receptors / receptors.norm(dim=-1, keepdim=True)
    answer = assemblers / assemblers.norm(dim=1, keepdim=True)
    off = 1 - torch.eye(receptors.shape[1], dtype=torch.double)
    mean_off = lambda gram: (gram.abs() * off).sum((1, 2)) / off.sum()  # noqa: E731
    logits = now["logits"]
    margin = (logits[..., 0] - logits[..., 1]).abs()
    return {
        "norm of W": receptors.flatten(1).norm(dim=1),
        "norm of U": assemblers.flatten(1).norm(dim=1),
        "largest receptor": receptors.norm(dim=-1).amax(1),
        "correlation of receptors": mean_off(unit @ unit.mT),
        "correlation of assemblers": mean_off(answer.mT @ answer),
        "least length of E + P": now["sums"].norm(dim=-1).amin(1),
        "median length of ξ": now["sequence"].norm(dim=-1).median(1).values,
        "least length of ξ": now["sequence"].norm(dim=-1).amin(1),
        "least margin": margin.amin(1),
        "norm of V": models.weights["value"].flatten(1).norm(dim=1),
    }


@RECORD.section
def before() -> dict:
    """What snapshots shortly before a spike have more of than others of the run at a like loss."""
    training = finished("main")
    loss = training.history["loss"].double()
    spikes = [spike for spike in find_spikes(loss) if spike.end is not None]
    runs = sorted({spike.model for spike in spikes})
    tokens = Task().all()[0]
    few = training._replace(snapshots={epoch: models[runs] for epoch, models in training.snapshots.items()})
    tens = range(10, 1000, 10)
    sample = torch.randperm(4096, generator=torch.Generator().manual_seed(0))[:512]
    table = {epoch: measures(few, epoch, tokens[sample]) for epoch in tens}
    pairs = []  # (run, epoch of a snapshot at most ten epochs before a spike, control epochs)
    for at, run in enumerate(runs):
        starts = [spike.start for spike in spikes if spike.model == run]
        cases = sorted({epoch for start in starts for epoch in tens if epoch < start <= epoch + 10})
        calm = [e for e in tens if all(not -10 < start - e <= 20 for start in starts)]
        for case in cases:
            like = [e for e in calm if 0.5 < (loss[e, run] + 1e-3) / (loss[case, run] + 1e-3) < 2 and abs(e - case) <= 150]
            if like:
                pairs.append((at, case, like))
    found = {"cases": len(pairs), "runs": len({at for at, _, _ in pairs})}
    for kind in ("all", "earlier"):
        found[kind] = {name: rank(table, pairs, name, kind == "earlier") for name in table[10]}
    return found | {"runs apart": between(training, spikes, tokens[sample])}


def between(training: Training, spikes: list[Spike], tokens: Tensor) -> dict:
    """Fifty epochs after success: how often a run with spikes later has more of a measure than one without."""
    first, rng = crossing(training), np.random.default_rng(0)
    at = {run: -(-(int(first[run]) + 50) // 10) * 10 for run in range(len(first)) if 0 <= first[run] < 900}
    snapshots = {epoch: measures(training, epoch, tokens) for epoch in sorted(set(at.values()))}
    spiky = {run: any(spike.model == run and spike.start > at[run] for spike in spikes) for run in at}
    found: dict = {"with": sum(spiky.values()), "without": len(at) - sum(spiky.values())}
    for name in next(iter(snapshots.values())):
        one, other = (np.array([snapshots[at[r]][name][r].item() for r in at if spiky[r] == kind]) for kind in (True, False))

        def more(a: np.ndarray, b: np.ndarray) -> float:
            return float((a[:, None] > b).mean() + 0.5 * (a[:, None] == b).mean())

        again = [more(rng.choice(one, len(one)), rng.choice(other, len(other))) for _ in range(2000)]
        found[name] = [more(one, other), *np.quantile(again, (0.025, 0.975))]
    return found


def rank(table: dict, pairs: list, name: str, earlier: bool) -> list[float]:
    """Mean share of control epochs with a smaller measure than the case, with an interval from drawing whole runs again."""
    ranks, owner, rng = [], [], np.random.default_rng(0)
    for at, case, like in pairs:
        if like := [epoch for epoch in like if epoch < case or not earlier]:
            own, others = table[case][name][at].item(), torch.stack([table[e][name][at] for e in like])
            ranks.append(((others < own).double().mean() + 0.5 * (others == own).double().mean()).item())
            owner.append(at)
    ranks, owner, resampled = np.array(ranks), np.array(owner), []
    for _ in range(2000):
        drawn = rng.choice(np.unique(owner), len(np.unique(owner)))
        resampled.append(np.concatenate([ranks[owner == run] for run in drawn]).mean())
    return [ranks.mean(), *np.quantile(resampled, (0.025, 0.975))]


def moments(training: Training) -> list[tuple[str, int, int]]:
    """Every spike's run and start, and a calm epoch 10 to 60 before it in the same run, where there is one."""
    rng, found = random.Random(0), []
    spikes = find_spikes(training.history["loss"])
    for spike in spikes:
        found.append(("spike", spike.model, spike.start))
        starts = [other.start for other in spikes if other.model == spike.model]
        calm = [
            at
            for at in range(spike.start - 60, spike.start - QUIET)
            if at >= 20 and all(abs(at - start) > QUIET for start in starts)
        ]
        if calm:
            found.append(("control", spike.model, rng.choice(calm)))
    return found


def states(training: Training) -> list[tuple[tuple[str, int, int], State]]:
    """What training needs to go on from two epochs before those moments: up to epoch UNTIL."""
    file = OWN / "states.pt"
    torch.serialization.add_safe_globals([State])
    kept = torch.load(file, weights_only=True) if file.exists() else {"found": [], "epoch": 0}
    kept["found"] = [(tuple(moment), State(*state)) for moment, state in kept["found"]]
    wanted = moments(training)
    runs = sorted({run for _, run, _ in wanted})
    if kept["epoch"] == UNTIL:
        return kept["found"]
    course = Course(runs)
    state = State(*kept["state"]) if "state" in kept else course.initial()
    for epoch in range(kept["epoch"], UNTIL):
        for moment in wanted:
            if max(moment[2] - 2, 0) == epoch:
                at = runs.index(moment[1])
                kept["found"].append((moment, State(*(part[at].clone() for part in state))))
        for _ in course.epoch(state):
            pass
        if (epoch + 1) % 100 == 0:
            OWN.mkdir(parents=True, exist_ok=True)
            plain = [(moment, tuple(found)) for moment, found in kept["found"]]
            part = file.with_suffix(".part")
            torch.save({"found": plain, "state": tuple(state), "epoch": epoch + 1}, part)
            part.replace(file)
    return kept["found"]


def stacked(chosen: list) -> tuple[list[tuple[str, int, int]], State]:
    """The moments and their states as one."""
    return [moment for moment, _ in chosen], State(
        *(torch.stack(parts) for parts in zip(*[s for _, s in chosen], strict=True))
    )


def mean_loss(course: Course, rows: Tensor) -> Tensor:
    """On the training set, in single precision."""
    models = Models(course.layout.views(rows), course.norm)
    return losses(stages(models, course.marks)["logits"], course.truth).mean(1)


@RECORD.section
def dissection(chunk: int = 12) -> dict:
    """Each spike's steepest step, and how much it would have risen otherwise."""
    training = finished("main")
    known = [entry for entry in states(training) if entry[0][0] == "spike"]
    found = []
    for at in range(0, len(known), chunk):
        chosen, state = stacked(known[at : at + chunk])
        course = Course([run for _, run, _ in chosen])
        for _ in course.epoch(state):
            pass
        rows, lengths = [state.rows.clone()], []
        for _ in course.epoch(state):  # the epoch at whose end the loss is high
            rows.append(state.rows.clone())
        loss = torch.stack([mean_loss(course, row) for row in rows])
        many = torch.arange(len(chosen))
        peak = loss.argmax(0)
        rises = torch.where(torch.arange(len(loss) - 1)[:, None] < peak, loss.diff(dim=0), -math.inf)
        top = rises.argmax(0)
        rows = torch.stack(rows)
        lengths = (rows.diff(dim=0) / RATE).square().sum(2).div(196).sqrt()
        first, then = rows[top, many], rows[top + 1, many]
        marked, truth = course.marks.double(), course.truth.double()
        ends = [course.models(rows) for rows in (first, then)]
        parts = dissect(*ends, marked, truth)
        one, other = (stages(models, marked) for models in ends)
        gain = losses(other["logits"], truth) - losses(one["logits"], truth)
        weight = gain.clamp_min(0)
        weight = weight / weight.sum(1, keepdim=True)

        def turned(name: str) -> Tensor:
            cosine = torch.cosine_similarity(one[name], other[name], dim=-1)  # noqa: B023
            return cosine.clamp(-1, 1).acos().rad2deg()

        span = one["sequence"] - one["sequence"].mean(1, keepdim=True)
        more = {
            "peak": loss.amax(0),
            "step": top,
            "length": lengths[top, many],
            "usual length": lengths.median(0).values,
            "ξ": (weight * one["sequence"].norm(dim=-1)).sum(1),
            "median ξ": one["sequence"].norm(dim=-1).median(1).values,
            "spread of ξ": span.square().sum(-1).mean(1).sqrt(),
            "move of ξ": (weight * (other["sequence"] - one["sequence"]).norm(dim=-1)).sum(1),
            "turn of ξ": (weight * turned("direction")).sum(1),
            "turn of table": turned("table").amax(1),
            "carriers": (weight.sort(1, descending=True).values.cumsum(1) < 0.9).double().mean(1),
        }
        for i, (_, run, start) in enumerate(chosen):
            found.append({"run": run, "start": start} | {k: v[i].item() for k, v in (parts | more).items()})
        print(f"dissected {len(found)} of {len(known)}", flush=True)
    spikes = sum(spike.end is not None for spike in find_spikes(training.history["loss"]))
    return {"spikes": found, "of": spikes}


@RECORD.section
def onset(chunk: int = 12) -> list:
    """The step that first takes the loss over a spike's threshold, dissected likewise."""
    training = finished("main")
    known = [entry for entry in states(training) if entry[0][0] == "spike"]
    spikes = {(spike.model, spike.start): spike for spike in find_spikes(training.history["loss"])}
    found = []
    for at in range(0, len(known), chunk):
        chosen, state = stacked(known[at : at + chunk])
        course = Course([run for _, run, _ in chosen])
        kept = [[part.clone() for part in (state.rows, state.second, state.steps)]]
        for _ in range(2):
            for _ in course.epoch(state):
                kept.append([part.clone() for part in (state.rows, state.second, state.steps)])
        rows, second, steps = (torch.stack(parts) for parts in zip(*kept, strict=True))
        loss = torch.stack([mean_loss(course, row) for row in rows])
        lows = torch.tensor([spikes[moment[1:]].low for moment in chosen])
        above = loss > torch.maximum(2 * lows, lows + 0.02)
        over = above[1:] & ~above[:-1]
        many, top = torch.arange(len(chosen)), over.int().argmax(0)
        first, then = rows[top, many], rows[top + 1, many]
        ends = [course.models(rows) for rows in (first, then)]
        parts = dissect(*ends, course.marks.double(), course.truth.double())
        felt = []
        for back in BACK:
            at = (top + 1 - back).clamp_min(0)
            scale = preconditioner(second[at, many], steps[at, many])
            value = sharpness(course.layout, rows[at, many], course.marks, course.truth, "rms", scale, iterations=12)
            felt.append(value * RATE * (1 - BETA) / (2 + 2 * BETA))
        more = {"before": loss[top, many], "after": loss[top + 1, many], "crossings": over.sum(0)} | parts
        for i, (_, run, start) in enumerate(chosen):
            own = {"felt": [value[i].item() for value in felt]} | {k: v[i].item() for k, v in more.items()}
            found.append({"run": run, "start": start} | own)
        print(f"onset {len(found)} of {len(known)}", flush=True)
    return found


def preconditioner(second: Tensor, steps: Tensor) -> Tensor:
    """√v + ε of Adam."""
    return (second.double() / (1 - 0.999 ** steps.double().unsqueeze(-1))).sqrt() + 1e-8


@RECORD.section
def sharpness_() -> dict:
    """The largest eigenvalues that Adam feels, before spikes and at like moments, and along full-batch runs."""
    found = {}
    training = finished("main")
    known = states(training)
    chosen = []
    for moment, state in known:
        if moment[0] == "control" and len(chosen) < 40:
            partner = next(
                (e for e in known if e[0][0] == "spike" and e[0][1] == moment[1] and 9 < e[0][2] - moment[2] <= 60), None
            )
            if partner:
                chosen += [partner, (moment, state)]
    rows = []
    for at in range(0, len(chosen), 8):
        part, state = stacked(chosen[at : at + 8])
        course = Course([run for _, run, _ in part])
        for _ in course.epoch(state):
            pass
        scale = preconditioner(state.second, state.steps)
        felt = sharpness(course.layout, state.rows, course.marks, course.truth, "rms", scale, iterations=12)
        for i, (kind, run, start) in enumerate(part):
            rows.append([kind, run, start, felt[i].item() * RATE * (1 - BETA) / (2 + 2 * BETA)])
        print(f"sharpness {len(rows)} of {len(chosen)}", flush=True)
    found["mini-batch"] = rows
    full = finished("full_batch")
    best = full.history["accuracy_all"].amax(0).argsort(descending=True)[:TRACED].tolist()
    course = Course(best, Settings(batch_size=2048))
    state, epochs, plain, felt, loss = course.initial(), [], [], [], []
    for epoch in range(1, 1001):
        for _ in course.epoch(state):
            pass
        if epoch in (10, 50) or epoch % 100 == 0:
            scale = preconditioner(state.second, state.steps)
            like = (course.layout, state.rows, course.marks, course.truth, "rms")
            epochs.append(epoch)
            plain.append((sharpness(*like, iterations=12) * RATE / 2).tolist())
            felt.append((sharpness(*like, scale, iterations=12) * RATE * (1 - BETA) / (2 + 2 * BETA)).tolist())
            loss.append(mean_loss(course, state.rows).tolist())
            print(f"full batch {epoch}", flush=True)
    found["full batch"] = {"runs": best, "epochs": epochs, "gradient descent": plain, "adam": felt, "loss": loss}
    return found


@RECORD.section
def states_() -> list:
    """What training needs to go on from before a few spikes, for the chapter."""
    training = finished("main")
    known = [entry for entry in states(training) if entry[0][0] == "spike"]
    spikes: dict[tuple[int, int], Spike] = {(s.model, s.start): s for s in find_spikes(training.history["loss"])}
    known.sort(key=lambda entry: -spikes[entry[0][1:]].height)
    chosen, seen = [], set()
    for entry in known:
        if entry[0][1] not in seen and len(chosen) < SHOWN:
            chosen.append(entry)
            seen.add(entry[0][1])
    text = lambda part: base64.b64encode(part.numpy().tobytes()).decode()  # noqa: E731
    loss = training.history["loss"]
    return [
        {
            "run": run,
            "start": start,
            "loss": loss[start - 2 : start + 2, run].tolist(),
            "curve": loss[:, run].tolist() if at == 0 else [],
            "gradient": total_gradient(training)[:, run].tolist() if at == 0 else [],
            "rows": text(state.rows),
            "first": text(state.first),
            "second": text(state.second),
            "steps": int(state.steps),
        }
        for at, ((_, run, start), state) in enumerate(chosen)
    ]


if __name__ == "__main__":
    RECORD.main()
