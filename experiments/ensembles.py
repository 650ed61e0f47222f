"""The training ensembles of Part III: hundreds of small transformers a setting, the raw record of each kept in .cache.

    python experiments/ensembles.py [NAME ...]

Trains those named, all unless named, one after another; what was finished or begun before is taken up. Chapters do not read
these records but the small results that other scripts here draw from them. On two cores a run of a thousand epochs at the
default settings takes about a second and a half.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import lab
import torch

from attnopt.clustering import PAPER, Models, Settings, Task, Training, Watch, ensemble, initial_models, load_training
from attnopt.clustering.training.record import join

CACHE = lab.CACHE / "ensembles"
EPOCHS, CHUNK = 1000, 100
EVERY_TENTH = [0, 1, 2, 5, *range(10, EPOCHS + 1, 10)]
FINAL = Watch(every=EPOCHS)  # only the outcome is of interest
ENDS = (0, EPOCHS)


class Plan(NamedTuple):
    """An ensemble: runs, settings, what is recorded, the ensemble whose models it goes on from, whether it is `nested`."""

    runs: int
    settings: Settings = PAPER
    watch: Watch = FINAL
    start: str | None = None
    nested: bool = False


def settings() -> dict[str, Plan]:
    """The plan of each ensemble."""
    found = {
        "main": Plan(200, watch=Watch(every=1, snapshots=EVERY_TENTH)),
        "full_batch": Plan(200, Settings(batch_size=2048), Watch(every=1, snapshots=EVERY_TENTH)),
        "unit": Plan(100, Settings(norm="unit"), Watch(every=1, snapshots=ENDS)),
        "clip": Plan(100, Settings(clip=0.1), Watch(every=1, snapshots=ENDS)),
        "decay": Plan(100, Settings(weight_decay=0.1), Watch(every=1, snapshots=ENDS)),
        "vocabulary_10": Plan(100, Settings(vocabulary=10)),
    }
    for p in range(3, 11):
        found[f"scratch_p{p}"] = Plan(100, Settings(Task(p)))
        found[f"tuned_p{p}"] = Plan(100, Settings(Task(p)), start="vocabulary_10")
        found[f"grown_p{p}"] = Plan(100, Settings(Task(p)), Watch(EPOCHS, snapshots=[0]), "main")
    for dim in (3, 4, 8, 16, 32, 64):
        found[f"dim_{dim}"] = Plan(20 if dim == 64 else 50, Settings(dim=dim), Watch(5, ENDS))
    for dim in (3, 64):
        found[f"full_batch_dim_{dim}"] = Plan(20, Settings(dim=dim, batch_size=2048), Watch(5, ENDS))
    for factor, values in {
        "learning_rate": (1e-4, 3e-4, 1e-3, 1e-2, 3e-2),
        "mlp_discount": (0.01, 0.1, 3.0, 10.0, 100.0),
        "width": (4, 8, 16, 64, 128),
        "batch_size": (512, 128, 64, 16, 8),
    }.items():
        found |= {f"{factor}_{value:g}": Plan(100, Settings(**{factor: value})) for value in values}
    found |= {f"nested_{width}": Plan(100, Settings(width=width), nested=True) for width in (8, 16, 64, 128)}
    return found


def seeded(seed: int) -> torch.Generator:
    """The generator of a model's new embeddings, apart from those of `train`.

    Of a seed the CPU's generator reads 32 bits, so that 2³² more would begin the same numbers again.
    """
    return torch.Generator().manual_seed(3 * 2**30 + seed)


def nested(seeds: Sequence[int], width: int) -> Models:
    """Models whose neurons are the first of those of the default width, further ones being added behind them.

    What an assembler is drawn from, uniform in ± 1/√width, shrinks with the width: its numbers are rescaled.
    """
    start, usual = initial_models(seeds), PAPER.width
    if width > usual:
        draws = [torch.Generator().manual_seed(5 * 2**29 + seed) for seed in seeds]
        sizes = PAPER.tokens, PAPER.task.length, PAPER.dim, width - usual
        more = [Models.random(1, *sizes, norm=PAPER.norm, generator=draw, biases=True) for draw in draws]
        more = Models.join(more).map(lambda value: value.to(torch.float32)).weights
    weights, scale = start.weights, (usual / width) ** 0.5
    neurons = {"receptors": 1, "receptor_biases": 1, "assemblers": 2}
    parts = {name: weights[name].narrow(axis, 0, min(width, usual)) for name, axis in neurons.items()}
    parts["assemblers"] = parts["assemblers"] * scale
    if width > usual:
        more["assemblers"] = more["assemblers"] * ((width - usual) / width) ** 0.5
        parts = {name: torch.cat([part, more[name]], neurons[name]) for name, part in parts.items()}
    return start.replace(**parts, assembler_bias=weights["assembler_bias"] * scale)


def record(name: str, progress: bool = False) -> Training:
    """The ensemble of that name, trained unless it has been."""
    plan, start = settings()[name], None
    if plan.nested:
        start = nested(range(plan.runs), plan.settings.width)
    if plan.start:
        start = record(plan.start).models[: plan.runs]
        tokens, missing = start.weights["token"][:, : plan.settings.tokens], plan.settings.tokens - start.vocabulary
        if missing > 0:  # a row that was never trained, N(0, 1) as at the start
            new = [torch.randn(missing, 2, generator=seeded(seed)) for seed in range(plan.runs)]
            tokens = torch.cat([tokens, torch.stack(new)], 1)
        start = start.replace(token=tokens)
    seeds = range(plan.runs)
    return ensemble(
        seeds, plan.settings, CACHE / name, watch=plan.watch, start=start, chunk=CHUNK, progress=progress, compiled=False
    )


def complete(name: str) -> bool:
    """Whether all runs of an ensemble are there."""
    return all(file.exists() for file in chunks(name))


def finished(name: str) -> Training | None:
    """The ensemble of that name, if it has been trained to the end."""
    return join([load_training(file) for file in chunks(name)]) if complete(name) else None


def chunks(name: str) -> list[Path]:
    """The files that an ensemble's runs are kept in, a hundred in each."""
    return [CACHE / name / f"chunk_{at:05d}.npz" for at in range(0, settings()[name].runs, CHUNK)]


def main() -> None:
    """Train the ensembles that were asked for."""
    known = settings()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    names = parser.parse_args().names
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"NAME must be one of {', '.join(known)}, got {', '.join(unknown)}")
    for name in names or known:
        print(name, flush=True)
        record(name, progress=True)


if __name__ == "__main__":
    lab.guarded(main)
