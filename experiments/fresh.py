"""Ensembles on seeds that none of the book's statements was found on, and what the controls that use them share.

    python experiments/fresh.py

Trains RUNS models at the defaults, seeds FIRST, FIRST + 1 and so on; the statements that the controls put to the test were
found on the seeds 0 to 199. A control says in its docstring what it counts, on which runs, which comparisons it makes and by
which test, and was committed before it ran; several p-values are corrected by Holm's method.
"""

import time
from collections.abc import Callable

import lab
import numpy as np
import torch
from ensembles import EVERY_TENTH
from lab import guarded, provenance, rounded, store

from attnbook.printing import wilson
from attnopt.clustering import PAPER, Models, Settings, Training, Watch, ensemble

FIRST, RUNS = 1000, 300
SUCCESS, LEVEL = 0.9, 0.05


def trained(
    name: str,
    runs: int,
    settings: Settings = PAPER,
    watch: Watch = Watch(every=1),  # noqa: B008
    start: Models | None = None,
    first: int = FIRST,
    compiled: bool = False,
) -> Training:
    """An ensemble of these controls, trained unless it has been, on one core."""
    folder, seeds = lab.CACHE / "controls" / name, range(first, first + runs)
    how = {"chunk": 100, "jobs": 1, "progress": True, "compiled": compiled}
    return ensemble(seeds, settings, folder, watch=watch, start=start, **how)


def usual() -> Training:
    """The ensemble at the defaults that most controls start from."""
    return trained("usual", RUNS, watch=Watch(every=1, snapshots=EVERY_TENTH))


def holm(values: dict[str, float]) -> dict[str, float]:
    """P-values corrected for their number by Holm's method."""
    found, least = {}, 0.0
    for rank, name in enumerate(sorted(values, key=values.__getitem__)):
        least = max(least, min(1.0, (len(values) - rank) * values[name]))
        found[name] = least
    return {name: found[name] for name in values}


def share(count: int, of: int) -> list[float]:
    """A count, of how many, and Wilson's 95 % interval of the share."""
    return [int(count), int(of), *wilson(int(count), int(of))]


def resampled(values: np.ndarray, measure: Callable = np.median, times: int = 2000) -> list[float]:
    """A measure of independent values, and its 95 % interval from drawing them again."""
    rng = np.random.default_rng(0)
    again = [measure(values[rng.integers(0, len(values), len(values))]) for _ in range(times)]
    return [float(measure(values)), *map(float, np.quantile(again, (0.025, 0.975)))]


def report(script: str, measure: Callable[[], dict], engine: str = "plain") -> None:
    """Run a control and write its result; the engine is that of its own trainings."""

    def main() -> None:
        torch.set_num_threads(1)
        begun = time.perf_counter()
        found = rounded(measure())
        origin = provenance(f"python experiments/{script}.py", time.perf_counter() - begun, engine)
        store(lab.RESULTS / f"{script}.json", {"provenance": dict.fromkeys(found, origin)} | found)

    guarded(main)


if __name__ == "__main__":
    guarded(lambda: print(len(usual().models), "models are trained"))
