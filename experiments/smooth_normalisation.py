r"""A normalization without the origin's steepness beside the usual one: does it take loss spikes away?

    python experiments/smooth_normalisation.py

Writes results/smooth_normalisation.json. Said before it was run:

Runs       RUNS pairs, seeds 1000 to 1299, the same seeds, data and order of mini-batches with the norms "rms" and "smooth",
           which divides by no length below 1 and has derivatives of every order, as the paper asks. An earlier 100 pairs on
           the seeds 0 to 99, with σ = r(2 - r), which has one continuous derivative, left it open: a ratio of rates of 0.68,
           interval 0.37 to 1.28.
Counted    spikes (`find_spikes`, as everywhere) that begin after the epoch in which more than 0.9 of all sequences are first
           right, over the epochs from there on: a rate for each norm, all its runs taken together.
Test       one: the ratio of the rates, with a 95 % interval from drawing pairs again (5000 times), by which spikes that
           bunch in few runs count as one. The proposal is borne out if the interval lies below 1, refuted if above.
Power      the log ratio's standard error in the earlier pairs, bunching included, is log(1.28/0.37)/3.92 = 0.32. To find a
           ratio of 0.68 with power 0.8 takes (0.32 (1.96 + 0.84)/log 0.68)² 100, about 530 pairs, 50 minutes of training. So
           many as RUNS take a third of an hour and have power 0.55: an interval about 1 will mean: undecided still.
Besides    successes lost and won, with the exact sign test; not part of the verdict.
"""

import numpy as np
from fresh import RUNS, SUCCESS, report, share, trained, usual
from scipy.stats import binomtest

from attnopt.clustering import Settings, Training, find_spikes

TIMES = 5000


def rates(training: Training) -> dict[str, np.ndarray]:
    """Of each run: spikes after its success, epochs since, spikes in all, whether it ever succeeds."""
    right = training.history["accuracy_all"].numpy() > SUCCESS
    reached, first = right.any(0), right.argmax(0)
    spikes = [spike for spike in find_spikes(training.history["loss"]) if spike.end is not None]
    late = [spike.model for spike in spikes if reached[spike.model] and spike.start > first[spike.model]]
    count = lambda models: np.bincount(np.array(models, dtype=int), minlength=len(reached))  # noqa: E731
    return {
        "late": count(late),
        "epochs": np.where(reached, len(right) - 1 - first, 0),
        "spikes": count([spike.model for spike in spikes]),
        "reached": reached,
    }


def ratio(one: dict[str, np.ndarray], other: dict[str, np.ndarray], times: int = TIMES) -> list[float]:
    """The other's rate over the one's, and its 95 % interval from drawing pairs again."""
    runs, rng = len(one["late"]), np.random.default_rng(0)

    def of(pick: np.ndarray) -> float:
        own, theirs = (entry["late"][pick].sum() / max(entry["epochs"][pick].sum(), 1) for entry in (one, other))
        return theirs / own if own else np.inf

    again = [of(rng.integers(0, runs, runs)) for _ in range(times)]
    return [float(of(np.arange(runs))), *map(float, np.quantile(again, (0.025, 0.975)))]


def measure() -> dict:
    """What the module's description says."""
    one, other = rates(usual()), rates(trained("smooth", RUNS, Settings(norm="smooth")))
    found: dict = {"pairs": RUNS, "ratio": ratio(one, other)}
    for name, entry in (("rms", one), ("smooth", other)):
        found[name] = {key: int(entry[key].sum()) for key in ("late", "epochs", "spikes")}
        found[name] |= {
            "runs_with_late": int((entry["late"] > 0).sum()),
            "reached": share(int(entry["reached"].sum()), RUNS),
        }
    lost, won = (int((a["reached"] & ~b["reached"]).sum()) for a, b in ((one, other), (other, one)))
    return found | {"lost": lost, "won": won, "sign_test": float(binomtest(lost, lost + won).pvalue)}


if __name__ == "__main__":
    report("smooth_normalisation", measure)
