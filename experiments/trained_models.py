"""The final models of the 200 runs of Part III, with as few bits as leave every answer as it is.

    python experiments/trained_models.py

Writes src/attnopt/data/trained_models.npz from the ensemble "main" (experiments/ensembles.py), which is trained unless it
has been. The weights of each model, float32, are rounded to the fewest bits, the same for all of them, with which it answers
all 4096 sequences as before, has the same integers m (`Models.count`), and these explain the same share to a thousandth.
"""

import time

import torch
from ensembles import record
from lab import guarded, provenance
from torch import Tensor

from attnopt.clustering import Models
from attnopt.clustering.trained import DATA, MANTISSA, TASK, save_models, shortened

LEAST, AT_A_TIME, NEAR = 8, 10, 1e-3  # bits; models at a time; a share of variance
TOKENS = TASK.all()[0]


def answers(models: Models) -> tuple[Tensor, Tensor, Tensor]:
    """For every sequence whether the answer is 1, (M, 4096), the integers m, (M, L), and what they explain, (M,)."""
    parts = [models[at : at + AT_A_TIME].double() for at in range(0, len(models), AT_A_TIME)]
    logits = torch.cat([part.logits(TOKENS) for part in parts])
    counts = [part.count(TASK) for part in parts]
    return logits[..., 1] > logits[..., 0], *(torch.cat(values) for values in zip(*counts, strict=True))


def main() -> None:
    """Find the bits and store the models."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    trained = record("main").models
    wanted = answers(trained)
    bits = torch.full((len(trained),), MANTISSA)
    left = torch.arange(len(trained))
    for some in range(LEAST, MANTISSA):
        found = answers(trained[left].map(lambda value: shortened(value, some)))  # noqa: B023
        good = torch.stack([(one == other[left]).all(1) for one, other in zip(found[:2], wanted, strict=False)]).all(0)
        good &= (found[2] - wanted[2][left]).abs() < NEAR
        bits[left[good]], left = some, left[~good]
        if not len(left):
            break
    kept = trained.map(lambda value: shortened(value, bits))
    assert all(torch.equal(*pair) for pair in zip(answers(kept)[:2], wanted, strict=False))
    made = provenance("python experiments/trained_models.py", time.perf_counter() - began)
    save_models(DATA, kept, made | {"bits": torch.bincount(bits).tolist()})
    print(f"{DATA.stat().st_size / 1000:.0f} kB, bits {torch.bincount(bits).tolist()}")


if __name__ == "__main__":
    guarded(main)
