"""Ensembles on seeds that none of the book's statements was found on, and what the controls that use them share.

    python experiments/fresh.py

Trains RUNS models at the defaults, seeds FIRST, FIRST + 1 and so on; the statements that the controls put to the test were
found on the seeds 0 to 199. A control says in its docstring what it counts, on which runs, which comparisons it makes and by
which test, and was committed before it ran; several p-values are corrected by Holm's method.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from common import figures, guarded, provenance, store
from ensembles import CACHE, EPOCHS, EVERY_TENTH
from scipy.stats import binomtest

from attnopt.clustering.training import Training, ensemble

RESULTS = Path(__file__).resolve().parents[1] / "results"
FIRST, RUNS = 1000, 300
SUCCESS, LEVEL = 0.9, 0.05


def trained(name: str, runs: int, first: int = FIRST, **settings) -> Training:
    """An ensemble of these controls, trained unless it has been, on one core."""
    folder = CACHE.parent / "controls" / name
    return ensemble(range(first, first + runs), folder, chunk=100, jobs=1, epochs=EPOCHS, progress=True, **settings)


def usual() -> Training:
    """The ensemble at the defaults that most controls start from."""
    return trained("usual", RUNS, snapshots=EVERY_TENTH)


def holm(values: dict[str, float]) -> dict[str, float]:
    """P-values corrected for their number by Holm's method."""
    found, least = {}, 0.0
    for rank, name in enumerate(sorted(values, key=values.__getitem__)):
        least = max(least, min(1.0, (len(values) - rank) * values[name]))
        found[name] = least
    return {name: found[name] for name in values}


def share(count: int, of: int) -> list[float]:
    """A count, of how many, and Wilson's 95 % interval of the share."""
    return [int(count), int(of), *binomtest(int(count), int(of)).proportion_ci(method="wilson")]


def resampled(values: np.ndarray, measure: Callable = np.median, times: int = 2000) -> list[float]:
    """A measure of independent values, and its 95 % interval from drawing them again."""
    rng = np.random.default_rng(0)
    again = [measure(values[rng.integers(0, len(values), len(values))]) for _ in range(times)]
    return [float(measure(values)), *map(float, np.quantile(again, (0.025, 0.975)))]


def report(script: str, measure: Callable[[], dict]) -> None:
    """Run a control and write its result."""

    def main() -> None:
        torch.set_num_threads(1)
        begun = time.perf_counter()
        found = plain(measure())
        origin = provenance(f"{script}.py", time.perf_counter() - begun)
        store(RESULTS / f"{script}.json", {"provenance": origin} | found)

    guarded(main)


def plain(value: object) -> object:
    """Numbers to four digits, also in dictionaries."""
    return {str(key): plain(inner) for key, inner in value.items()} if isinstance(value, dict) else figures(value, 4)


if __name__ == "__main__":
    guarded(lambda: print(len(usual().params["token"]), "models are trained"))
