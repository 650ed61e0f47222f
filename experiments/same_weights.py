"""The same initial weights with other data: how far they decide success and the variant of the circuit.

    python experiments/same_weights.py

Writes results/same_weights.json. Said before it was run:

Runs       100 pairs. One of a pair has weights and data of a seed, 1000 to 1099, the other the same weights and the data of
           the seed 4000 higher. An earlier look on the seeds 0 to 99 found 24 pairs in which both succeed, where chance
           gives 16.8; its thresholds are used again.
Counted    success: more than 0.9 of all sequences right after the last epoch. Of pairs in which both succeed: the same kind
           of circuit (which of the two invariances hold within 5 % of the variance of ξ); the same signs of the counting
           form on the prefix, up to all of them; the same counting form altogether; and the rank correlation of the two
           final attentions. The same of all other pairings of one's first run with another's second.
Tests      five, corrected by Holm's method, at 0.05. Success: Fisher's exact test, with the conditional odds ratio and its
           95 % interval. The other four: how often one of 10,000 random pairings has as large a mean (one-sided). With some
           twenty pairs agreements of single pairs will be decided only if they are plain, and the interval says how far.
"""

import numpy as np
import torch
from circuits_in_the_wild import anatomy, in_parts
from ensembles import EPOCHS
from fresh import FIRST, SUCCESS, holm, report, resampled, share, trained, usual
from scipy.stats import fisher_exact, rankdata
from scipy.stats.contingency import odds_ratio
from torch import Tensor

from attnopt.clustering import Models, Watch, initial_models

PAIRS, APART, K, PAIRINGS, WITHIN = 100, 4000, 5, 10_000, 0.05


def seen(models: Models) -> dict[str, np.ndarray]:
    """Of each model: kind, signs on the prefix, counting form, ranks of the attention to each pair of token and position."""
    found = in_parts(models, anatomy)
    holds = torch.stack([found["suffix"], found["permutation"]], 1) > 1 - WITHIN
    ranks = rankdata(found["pairs"].flatten(1).numpy(), axis=1)
    ranks = ranks - ranks.mean(1, keepdims=True)
    return {
        "kind": holds.numpy(),
        "signs": found["weights"][:, :K].sign().numpy(),  # the first one is positive
        "form": found["weights"].numpy(),
        "attention": ranks / np.linalg.norm(ranks, axis=1, keepdims=True),
    }


def agreement(name: str, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """How far each of the first agrees with each of the second: 0 or 1, or for attention the rank correlation."""
    return one @ other.T if name == "attention" else (one[:, None] == other[None]).all(-1).astype(float)


def pairing(table: np.ndarray, times: int = PAIRINGS) -> dict:
    """The mean of a table's diagonal, with an interval, that of the others, and the p-value of the former."""
    count, rng = len(table), np.random.default_rng(0)
    own = table.diagonal()
    drawn = np.array([table[np.arange(count), rng.permutation(count)].mean() for _ in range(times)])
    return {
        "own": resampled(own, np.mean),
        "others": float(table[~np.eye(count, dtype=bool)].mean()),
        "p": float((1 + (drawn >= own.mean() - 1e-12).sum()) / (1 + times)),
    }


def measure() -> dict:
    """What the module's description says."""
    weights = range(FIRST, FIRST + PAIRS)
    one = usual()
    begun, final = initial_models(weights), Watch(every=EPOCHS)
    other = trained("other_data", PAIRS, watch=final, start=begun, first=FIRST + APART)
    models = [run.models[:PAIRS] for run in (one, other)]
    reached = [run.history["accuracy_all"][-1, :PAIRS] > SUCCESS for run in (one, other)]
    found = {"success": together(*reached)}
    both = (reached[0] & reached[1]).nonzero().flatten()
    ours, theirs = (seen(some[both]) for some in models)
    for name in ours:
        table = agreement(name, ours[name], theirs[name])
        found[name] = pairing(table)
        if name != "attention":
            found[name]["share"] = share(int(table.diagonal().sum()), len(table))
    for name, value in holm({name: entry["p"] for name, entry in found.items()}).items():
        found[name]["corrected"] = value
    return found


def together(one: Tensor, other: Tensor) -> dict:
    """Of two runs a pair, whether success goes together."""
    table = [[int((a & b).sum()) for b in (other, ~other)] for a in (one, ~one)]
    ratio = odds_ratio(np.array(table))
    interval = ratio.confidence_interval(0.95)
    return {
        "table": table,
        "expected": sum(table[0]) * (table[0][0] + table[1][0]) / len(one),
        "odds_ratio": [float(ratio.statistic), float(interval.low), float(interval.high)],
        "p": float(fisher_exact(table).pvalue),
    }


if __name__ == "__main__":
    report("same_weights", measure)
