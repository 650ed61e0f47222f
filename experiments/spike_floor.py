"""Spikes trained through once more with a floor under Adam's second moments.

    python experiments/spike_floor.py

Writes results/spike_floor.json. From two epochs before each spike that experiments/loss_spikes.py has kept (those of "main"
up to epoch 500) training goes on for EPOCHS epochs, in double precision:

    as it was    nothing is changed
    floor F      the root of every second moment is kept at F or more
    shorter F    only the learning rate is changed: smaller by the factor by which the floor F shortens this run's steps
                 in the median over the first CALM of them

Recorded are for each spike the run, the start, its threshold (see `find_spikes`), the median root of the second moments at
the beginning, the factors, and the highest loss on the training set after any step.
"""

import math

import torch
from ensembles import finished
from lab import Record
from loss_spikes import RATE, mean_loss, stacked, states
from torch import Tensor

from attnopt.clustering import Course, State, find_spikes

RECORD = Record("spike_floor", digits=4, engine="plain")
FLOORS = (1e-3, 1e-2)
EPOCHS, CALM = 2, 32


def train_on(course: Course, state: State, floor: float = 0.0, rates: Tensor | float = RATE) -> tuple[Tensor, Tensor]:
    """Train M runs on from their states, with a floor under the root of Adam's second moments.

    Returns:
        The highest loss of each run on its training set after any step, and the lengths of the steps (steps, M), as root
        mean squares.
    """
    state = State(*(part.clone() for part in state))
    course.pace = course.pace._replace(rates=rates)
    state.second.clamp_min_(floor**2)
    last, peak, lengths = state.rows.clone(), mean_loss(course, state.rows), []
    for _ in range(EPOCHS):
        for _ in course.epoch(state):
            state.second.clamp_min_(floor**2)
            peak = torch.maximum(peak, mean_loss(course, state.rows))
            lengths.append((state.rows - last).square().mean(1).sqrt())
            last = state.rows.clone()
    return peak, torch.stack(lengths)


@RECORD.section
def spikes() -> dict:
    """The spikes' highest losses as they were, with floors, and with shorter steps."""
    training = finished("main")
    known = [entry for entry in states(training) if entry[0][0] == "spike"]
    lows = {(spike.model, spike.start): spike.low for spike in find_spikes(training.history["loss"])}
    chosen, state = stacked(known)
    state = State(*(part.double() for part in state[:3]), state.steps)
    course = Course([run for _, run, _ in chosen], dtype=torch.float64)
    peak, usual = train_on(course, state)
    found = {
        "run": [run for _, run, _ in chosen],
        "start": [start for _, _, start in chosen],
        "threshold": [max(2 * lows[moment[1:]], lows[moment[1:]] + 0.02) for moment in chosen],
        "root v": state.second.sqrt().median(1).values,
        "as it was": peak,
    }
    for floor in FLOORS:
        peak, lengths = train_on(course, state, floor)
        factor = (lengths / usual)[:CALM].median(0).values.clamp_max(1.0)
        found |= {f"floor {floor:g}": peak, f"factor {floor:g}": factor}
        found[f"shorter {floor:g}"] = train_on(course, state, rates=RATE * factor.unsqueeze(1))[0]
        print(f"floor {floor:g}: median factor {factor.median():.2f}", flush=True)
    assert all(math.isfinite(value) for value in found["as it was"])
    return found


if __name__ == "__main__":
    RECORD.main()
