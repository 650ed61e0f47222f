"""One loss spike, step by step: the weights of a model before, in and after it.

    python experiments/spike_steps.py

Writes src/attnbook/explorers/spike_steps.npz, which the explorer of the chapter on loss spikes shows: for each of STEPS + 1
moments the weights as float32, in the order of `PARTS`; how often each sequence occurs in the training set; and, as "about"
(JSON), the run, the first of the steps and how the file was made. The run is trained from its seed in double precision, in
which it is the same on every machine to many digits; it takes some ten seconds.
"""

import json
import time

import numpy as np
import torch
from lab import guarded, provenance
from torch import Tensor

from attnbook.explorers.spike_steps import DATA, counted
from attnopt.clustering import PAPER, Course, Settings
from attnopt.clustering.sandbox import PARTS

SEED = 88
FIRST, STEPS = 256 * 64 + 96, 64  # epochs have 64 steps


def replay(seed: int, first: int, steps: int, settings: Settings = PAPER) -> Tensor:
    """The weights of a run after so many steps, and after each of the following ones, shape (steps + 1, parameters)."""
    course = Course([seed], settings, torch.float64)
    state, kept = course.initial(), []
    while True:
        if first == state.steps:
            kept.append(state.rows.clone())
        for _ in course.epoch(state):
            if first <= state.steps <= first + steps:
                kept.append(state.rows.clone())
        if len(kept) > steps:
            break
    views = course.layout.views(torch.cat(kept))
    return torch.cat([views[name].flatten(1) for name in PARTS], 1)


def main() -> None:
    """Train the run through its spike and write the file."""
    torch.set_num_threads(1)
    began = time.perf_counter()
    weights = replay(SEED, FIRST, STEPS).numpy().astype("<f4")
    made = provenance("python experiments/spike_steps.py", time.perf_counter() - began)
    about = json.dumps({"seed": SEED, "first": FIRST, "provenance": made}, sort_keys=True)
    np.savez_compressed(DATA, weights=weights, counts=counted(SEED), about=np.array(about))


if __name__ == "__main__":
    guarded(main)
