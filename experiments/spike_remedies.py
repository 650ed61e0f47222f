"""Remedies for loss spikes that the paper names beside the smoothed normalization: other norms, regularization, width.

    python experiments/spike_remedies.py

Writes results/spike_remedies.json. Said before it was run:

Runs       100 for each of REMEDIES, seeds 1000 to 1099, beside 100 at the defaults: the same seeds, data and order of
           mini-batches, one setting changed (128 neurons draw weights of their own).
Counted    as in smooth_normalisation.py: spikes that begin after success, over the epochs from there on; the ratio of the
           rates with a 95 % interval from drawing pairs again; successes with Wilson's interval, lost and won with the
           exact sign test.
Tests      none but the intervals of the ratios, and the sign tests, corrected by Holm's method for their number. A remedy
           that costs most successes is told as such, whatever its rate.
"""

import numpy as np
from fresh import SUCCESS, holm, report, share, trained
from scipy.stats import binomtest
from smooth_normalisation import rates, ratio

from attnopt.clustering import Settings

RUNS = 100
REMEDIES = {
    "unit": Settings(norm="unit"),
    "decay 0.01": Settings(weight_decay=0.01),
    "decay 0.1": Settings(weight_decay=0.1),
    "128 neurons": Settings(width=128),
}


def measure() -> dict:
    """What the module's description says."""
    plain = rates(trained("remedy_none", RUNS))
    found: dict = {"pairs": RUNS, "threshold": SUCCESS, "none": told(plain)}
    chances = {}
    for name, settings in REMEDIES.items():
        other = rates(trained(f"remedy_{name.replace(' ', '_')}", RUNS, settings))
        lost, won = (int((a["reached"] & ~b["reached"]).sum()) for a, b in ((plain, other), (other, plain)))
        found[name] = told(other) | {"ratio": ratio(plain, other), "lost": lost, "won": won}
        chances[name] = float(binomtest(lost, lost + won).pvalue) if lost + won else 1.0
    for name, value in holm(chances).items():
        found[name]["p"] = value
    return found


def told(entry: dict[str, np.ndarray]) -> dict:
    """Spikes after success, epochs there, runs with such spikes, and successes."""
    return {
        "late": int(entry["late"].sum()),
        "epochs": int(entry["epochs"].sum()),
        "runs_with_late": int((entry["late"] > 0).sum()),
        "reached": share(int(entry["reached"].sum()), RUNS),
    }


if __name__ == "__main__":
    report("spike_remedies", measure)
