"""Three readings of the paper's curriculum, p = 2 and then p = 3, beside training on p = 3 alone.

    python experiments/curriculum.py

Writes results/curriculum.json. Said before it was run:

Runs       100 each, seeds 1000 to 1099; the earlier finding (28 of 100 with a token added, 10 from scratch, 5 with a table
           of ten tokens) was made on the seeds 0 to 99, with the same threshold.
Readings   "added": two tokens during the first stage, then a row is drawn for the third (the paper's words, Figure 15).
           "three": a table of three tokens in both stages, the third unused in the first (the released grid).
           "ten": a table of ten in both. 1000 epochs a stage, Adam anew for the second.
Counted    successes: more than 0.9 of the 4096 test sequences of p = 3 right after the last epoch. Wilson's 95 % intervals.
Tests      each reading against "scratch", Fisher's exact test, two-sided; three comparisons, corrected by Holm's method, at
           0.05. Means and the first stage's successes are told, not tested.
Circuit    of the "added" runs that had solved p = 2: those whose first stage counts ones (weights 1 on the prefix, up to all
           signs, 0 behind it, explaining 0.95 of the variance of ξ) beside all others. Two tests, Fisher's, two-sided,
           corrected by Holm's method: success on p = 3 (on the old seeds 9 of 11 against 17 of 32), and never wrong on the
           test sequences (6 of 11 against 3 of 32).
"""

import torch
from circuits_in_the_wild import anatomy, in_parts
from ensembles import EPOCHS, seeded
from fresh import FIRST, SUCCESS, holm, report, share, trained, usual
from scipy.stats import fisher_exact
from torch import Tensor

from attnopt.clustering import Settings, Task, Training, Watch

RUNS, K, EXPLAINED = 100, 5, 0.95
FINAL = Watch(every=EPOCHS)
READINGS = {"added": None, "three": 3, "ten": 10}  # tokens with an embedding during the first stage


def first_stage(vocabulary: int | None) -> Training:
    """The models of p = 2."""
    return trained(f"two_{vocabulary}", RUNS, Settings(vocabulary=vocabulary), FINAL) if vocabulary else usual()


def second_stage(name: str, before: Training) -> Training:
    """Trained on p = 3 from these; where they know two tokens only, a third one's embedding is drawn."""
    start = before.models[:RUNS]
    if start.vocabulary == 2:
        new = torch.stack([torch.randn(1, 2, generator=seeded(seed)) for seed in range(FIRST, FIRST + RUNS)])
        start = start.replace(token=torch.cat([start.weights["token"], new], 1))
    return trained(f"three_after_{name}", RUNS, Settings(Task(3), vocabulary=start.vocabulary), FINAL, start)


def last(training: Training) -> Tensor:
    """Accuracies after the last epoch."""
    return training.history["accuracy_all"][-1, :RUNS].double()


def measure() -> dict:
    """What the module's description says."""
    scratch = last(trained("three_alone", RUNS, Settings(Task(3)), FINAL))
    found = {"scratch": told(scratch)}
    chances = {}
    for name, vocabulary in READINGS.items():
        before = first_stage(vocabulary)
        accuracy = last(second_stage(name, before))
        if name == "added":
            circuit = through_the_circuit(before, accuracy)
        table = [[int((one > SUCCESS).sum()), int((one <= SUCCESS).sum())] for one in (accuracy, scratch)]
        chances[name] = fisher_exact(table).pvalue
        found[name] = told(accuracy) | {"first_stage": share(int((last(before) > SUCCESS).sum()), RUNS), "p": chances[name]}
    for name, value in holm(chances).items():
        found[name]["corrected"] = value
    return found | {"circuit": circuit}


def through_the_circuit(before: Training, accuracy: Tensor) -> dict:
    """What becomes of models that count ones, beside other solutions of p = 2."""
    solved = last(before) > SUCCESS
    form = in_parts(before.models[:RUNS], anatomy)
    weights = form["weights"] * form["weights"][:, :1]
    ones = (weights == torch.tensor([1] * K + [0] * (weights.shape[1] - K))).all(1) & (form["explained"] > EXPLAINED)
    found = {}
    for name, reached in (("success", accuracy > SUCCESS), ("never_wrong", accuracy == 1)):
        groups = [[int((solved & kind & reached).sum()), int((solved & kind).sum())] for kind in (ones, ~ones)]
        chance = fisher_exact([[count, of - count] for count, of in groups]).pvalue
        found[name] = {"ones": share(*groups[0]), "others": share(*groups[1]), "p": float(chance)}
    for name, value in holm({name: entry["p"] for name, entry in found.items()}).items():
        found[name]["corrected"] = value
    return found


def told(accuracy: Tensor) -> dict:
    """Successes with an interval, and the mean."""
    return {"success": share(int((accuracy > SUCCESS).sum()), len(accuracy)), "mean": float(accuracy.mean())}


if __name__ == "__main__":
    report("curriculum", measure)
