"""The training ensembles of Part III: hundreds of small transformers a setting, the raw record of each kept in .cache.

    python experiments/ensembles.py [NAME ...]

Trains those named, all unless named, one after another; what was finished or begun before is taken up. Chapters do not read
these records but the small results that other scripts here draw from them. On two cores a run of a thousand epochs at the
default settings takes about a second and a half.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import torch
from common import guarded

from attnopt.clustering.training import Training, ensemble

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "ensembles"
EPOCHS = 1000
EVERY_TENTH = [0, 1, 2, 5, *range(10, EPOCHS + 1, 10)]
FINAL = {"evaluate_every": EPOCHS}  # only the outcome is of interest


def settings() -> dict[str, dict]:
    """The settings of each ensemble: number of runs, and what differs from the defaults of `train`."""
    found: dict[str, dict] = {
        "main": {"runs": 200, "snapshots": EVERY_TENTH},
        "full_batch": {"runs": 200, "batch_size": 2048, "snapshots": EVERY_TENTH},
        "unit": {"runs": 100, "norm": "unit", "snapshots": [0, EPOCHS]},
        "clip": {"runs": 100, "clip": 0.1, "snapshots": [0, EPOCHS]},
        "decay": {"runs": 100, "weight_decay": 0.1, "snapshots": [0, EPOCHS]},
        "vocabulary_10": {"runs": 100, "vocabulary": 10} | FINAL,
    }
    for p in range(3, 11):
        found[f"scratch_p{p}"] = {"runs": 100, "p": p} | FINAL
        found[f"tuned_p{p}"] = {"runs": 100, "p": p, "start": "vocabulary_10"} | FINAL
        found[f"grown_p{p}"] = {"runs": 100, "p": p, "start": "main", "snapshots": [0]} | FINAL
    for dim in (3, 4, 8, 16, 32, 64):
        found[f"dim_{dim}"] = {"runs": 20 if dim == 64 else 50, "dim": dim, "evaluate_every": 5, "snapshots": [0, EPOCHS]}
    for dim in (3, 64):
        own = {"runs": 20, "dim": dim, "batch_size": 2048, "evaluate_every": 5, "snapshots": [0, EPOCHS]}
        found[f"full_batch_dim_{dim}"] = own
    for value in (1e-3, 1e-2, 3e-2):
        found[f"learning_rate_{value:g}"] = {"runs": 100, "learning_rate": value} | FINAL
    for value in (0.1, 3.0, 10.0, 100.0):
        found[f"mlp_discount_{value:g}"] = {"runs": 100, "mlp_discount": value} | FINAL
    for value in (4, 8, 16, 64, 128):
        found[f"width_{value}"] = {"runs": 100, "width": value} | FINAL
    for value in (512, 128, 64, 16, 8):
        found[f"batch_size_{value}"] = {"runs": 100, "batch_size": value} | FINAL
    return found


def seeded(seed: int) -> torch.Generator:
    """The generator of a model's new embeddings, apart from those of `train`.

    Of a seed the CPU's generator reads 32 bits, so that 2³² more would begin the same numbers again.
    """
    return torch.Generator().manual_seed(3 * 2**30 + seed)


def record(name: str, progress: bool = False) -> Training:
    """The ensemble of that name, trained unless it has been."""
    chosen: Mapping = settings()[name]
    runs, own = chosen["runs"], {key: value for key, value in chosen.items() if key != "runs"}
    if "start" in own:
        before = {key: value[:runs] for key, value in record(own["start"]).params.items()}
        tokens = before["token"][:, : own["p"]]
        if tokens.shape[1] < own["p"]:  # a row that was never trained, N(0, 1) as at the start
            new = [torch.randn(own["p"] - tokens.shape[1], 2, generator=seeded(seed)) for seed in range(runs)]
            tokens = torch.cat([tokens, torch.stack(new)], 1)
        own["start"] = before | {"token": tokens}
    return ensemble(range(runs), CACHE / name, chunk=100, epochs=EPOCHS, progress=progress, **own)


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
    guarded(main)
