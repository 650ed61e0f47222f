"""Which factor of the parity coefficient the plateau waits for: the product of the influences, or how the model reads it.

    python experiments/product_and_readout.py

Writes results/product_and_readout.json. The parity coefficient is π = P ρ with P the product of the influences ‖δ_t‖ of the
five counted tokens and ρ the readout factor. RUNS models at the defaults, seeds FIRST, FIRST + 1 and so on, on which nothing
was looked at before, are trained by the compiled steps for 1000 epochs, with a snapshot every fifth epoch. A run escapes in
the first epoch with a training loss below 0.6, and succeeds if it ends with more than 0.9 of all sequences right. All runs
that succeed are measured, at the start, at the first snapshot not before the escape, and in between. Said before it was run:

share      Of each run, the part that P has in the growth of log |π| from the start to the escape; the same for the second
           half of these epochs (from the snapshot nearest their middle). Reported are medians over runs with 95 % intervals
           from drawing the runs again. The plateau waits mainly for the product if the first interval lies above one half,
           mainly for the readout if it lies below, and for neither more than for the other if it contains one half. The same
           rule, apart, for the second half. On the seeds 0 to 199, where this was found, the medians were 0.46 and 0.59.
exchange   How many models of the start have π above its cost 2 E log cosh(m/2) once their influences are multiplied to what
           they are at the escape, all else as it is; and how many models of the escape still have it once their influences
           are put back to what they are at the start. Each factor is needed if both shares lie below 0.1 with their Wilson
           intervals.
first term Where influences are small, ρ is to leading order its limit ρ₀ as all five go to zero. Counted: models in which
           P ρ₀ is between half of π and twice π, at the start, in the middle and at the escape. No test.

Added after the run, to see what the first verdict depends on: the share from a tenth of the plateau on, and the share up to
the first snapshot at which π exceeds its cost, instead of to the escape; and how many runs start with π < 0 ("variants").
"""

import numpy as np
import torch
from fresh import report, resampled, share, trained
from torch import Tensor
from two_phase_learning import LEFT, SOLVED, TASK, first

from attnopt.clustering import Models, Watch, influences, log_cosh_half, margins, parity_coefficient

FIRST, RUNS, EVERY, PARTS = 5000, 400, 5, 10
SMALL = (0.1, 0.2)  # to which influences are multiplied for the limit; what is left of order ε² is extrapolated away


def multiplied(models: Models, factors: Tensor) -> Tensor:
    """Margins with the influences of the counted tokens multiplied, shape (M, 2ᴸ); factors (M, k) or (k,)."""
    rest = torch.ones(*factors.shape[:-1], models.length - factors.shape[-1], dtype=factors.dtype)
    return margins(models, torch.cat([factors, rest], -1))


def factors_of(models: Models, k: int) -> tuple[Tensor, Tensor]:
    """P and π of every model, shape (M,) each."""
    return influences(models)[:, :k].prod(1), parity_coefficient(margins(models), k)


def first_term(models: Models, k: int) -> Tensor:
    """P ρ₀, what π is to leading order in the influences, shape (M,)."""
    near, far = (parity_coefficient(multiplied(models, torch.full((k,), e).double()), k) / e**k for e in SMALL)
    return (near * SMALL[1] ** 2 - far * SMALL[0] ** 2) / (SMALL[1] ** 2 - SMALL[0] ** 2)


def pays(margin: Tensor, k: int) -> Tensor:
    """Whether π exceeds its cost, so that the loss is below log 2."""
    return parity_coefficient(margin, k) > 2 * log_cosh_half(margin).mean(1)


def measure(paths: list[list[Models]], k: int) -> dict:
    """What the module's description says, of runs given as models of one each at PARTS + 1 moments up to the escape."""
    logs = np.array([[torch.stack(factors_of(model, k)).abs().log()[:, 0].tolist() for model in path] for path in paths])
    product, parity = logs[..., 0], logs[..., 1]
    half = PARTS // 2
    spans = {"whole": (0, -1), "first half": (0, half), "second half": (half, -1)}
    result: dict = {"runs": len(paths), "parts": PARTS}
    for name, (a, b) in spans.items():
        grown, all_of_it = product[:, b] - product[:, a], parity[:, b] - parity[:, a]
        result[name] = {
            "product": [float(np.exp(value)) for value in resampled(grown)],
            "readout": [float(np.exp(value)) for value in resampled(all_of_it - grown)],
        }
        if name != "first half":  # in which some runs have no snapshot
            shares = grown / all_of_it
            result[name] |= {"share": resampled(shares), "quartiles": np.quantile(shares, (0.25, 0.75))}
    for name, values in (("product", product), ("readout", parity - product)):
        ends = values - values[:, :1]  # logarithms of how often as large as at the start
        result[f"{name} over time"] = np.quantile(ends, (0.25, 0.5, 0.75), axis=0)
    starts, ends = (Models.join([path[at] for path in paths]) for at in (0, -1))
    ratio = influences(ends)[:, :k] / influences(starts)[:, :k]
    result["exchange"] = {
        "start": share(int(pays(margins(starts), k).sum()), len(paths)),
        "escape": share(int(pays(margins(ends), k).sum()), len(paths)),
        "start with the influences of the escape": share(int(pays(multiplied(starts, ratio), k).sum()), len(paths)),
        "escape with the influences of the start": share(int(pays(multiplied(ends, 1 / ratio), k).sum()), len(paths)),
    }
    result["first term"] = {}
    for name, at in (("start", 0), ("middle", half), ("escape", -1)):
        models = Models.join([path[at] for path in paths])
        part = first_term(models, k) / factors_of(models, k)[1]
        result["first term"][name] = share(int(((part > 0.5) & (part < 2)).sum()), len(paths))
    return result


def variants(runs: list[Models], k: int) -> dict:
    """The share counted from later and to earlier, of runs given as the models of all snapshots up to the escape."""
    later, earlier, negative = [], [], 0
    for models in runs:
        product, parity = factors_of(models, k)
        grown, all_of_it, end = product.log().numpy(), parity.abs().log().numpy(), len(models) - 1
        paid = int(pays(margins(models), k).int().argmax()) or end
        if round(0.1 * end) < end:
            tenth = round(0.1 * end)
            later.append((grown[end] - grown[tenth]) / (all_of_it[end] - all_of_it[tenth]))
        earlier.append((grown[paid] - grown[0]) / (all_of_it[paid] - all_of_it[0]))
        negative += int(parity[0] < 0)
    return {
        "from a tenth": resampled(np.array(later)),
        "until π exceeds its cost": resampled(np.array(earlier)),
        "π < 0 at the start": share(negative, len(runs)),
    }


def whole() -> dict:
    """The ensemble, trained unless it has been, and what is measured of it."""
    watch = Watch(every=1, snapshots=range(0, 1001, EVERY))
    training = trained("product_and_readout", RUNS, watch=watch, first=FIRST, compiled=True)
    escape = first(training.history["loss"] < LEFT, training.history["epoch"])
    won = [run for run, accuracy in enumerate(training.history["accuracy_all"][-1]) if accuracy > SOLVED]
    paths, runs = [], []
    for run in won:
        end = -(-escape[run] // EVERY)
        runs.append(Models.join([training.snapshots[at * EVERY][[run]].double() for at in range(end + 1)]))
        moments = [round(end * part / PARTS) * EVERY for part in range(PARTS + 1)]
        paths.append([training.snapshots[epoch][[run]].double() for epoch in moments])
    left = sum(at is not None for at in escape)
    epochs = np.quantile([escape[run] for run in won], (0.1, 0.5, 0.9))
    found = {"trained": RUNS, "escaped": left, "escape": epochs} | measure(paths, TASK.k)
    return found | {"variants": variants(runs, TASK.k)}


if __name__ == "__main__":
    report("product_and_readout", whole, engine="compiled")
