"""Where flows of full matrices end once the layers have come to differ in shape.

    python experiments/loops_ends.py

Writes results/loops_ends.json. Layers, starts, parts, and spreads are those of `loops_matrices.py`, in two dimensions, on
seeds that it did not use. Each flow runs until its gradient is shorter than STILL and the Hessian has no eigenvalue below
minus FLAT, at most for LONGEST times the time that the traces predict. For each run:

    left     when each spread (traces, symmetric, antisymmetric) first reaches 0.1, over the predicted time; infinity if
             never
    end      the loss at the end over that of the best multiples of I, minus 1
    shape    the larger traceless spread at the end
    time     at the end, over the predicted time
    slow     the last time at which the loss is more than 1% above its end, over the predicted time

Decision rule, fixed before the runs, for 100 runs at d = 2, n = 100, k = 6: if at least 95 runs end within 1% of the loss
of the best multiples of I, or below it, shape is a detour; if at least 20 end more than 1% above it, shape is a trap; in
between, 400 more runs are made and the same percentages apply. The runs at the other SIZES are reported without a rule. Two
runs, seeds 7 and 1000, were looked at before. "traps" and "control" were added after the runs: control has FEW of the same
starts with only the multiple of I in each layer, so its layers can differ only in their step sizes.
"""

import math

import numpy as np
import torch
from joblib import Parallel, delayed
from lab import Record
from loops_matrices import begun, loss, parts, polynomials, spreads
from scipy.integrate import solve_ivp

from attnopt.in_context import optimal_step_sizes

RECORD = Record("loops_ends", digits=5)
RUNS, FIRST, MORE = 100, 2000, 400
SIZES, FEW = ((2, 100, 4), (2, 100, 5), (2, 10, 6)), 30
STILL, FLAT, LONGEST, REACHED, POINTS = 1e-9, 1e-11, 1e7, 0.1, 4000


class Landscape:
    """The exact loss of k layers of d × d matrices, with its gradient and Hessian, of flat arrays."""

    def __init__(self, dim: int, examples: int, layers: int):
        self.shape, rule = (layers, dim, dim), polynomials(dim, examples, layers)
        self._loss = lambda flat: loss(*rule, flat.reshape(self.shape))
        self._gradient, self._hessian = torch.func.grad(self._loss), torch.func.hessian(self._loss)

    def loss(self, flat: np.ndarray) -> float:
        """The loss."""
        return self._loss(torch.from_numpy(flat)).item()

    def gradient(self, flat: np.ndarray) -> np.ndarray:
        """Its gradient."""
        return self._gradient(torch.from_numpy(flat)).numpy()

    def hessian(self, flat: np.ndarray) -> np.ndarray:
        """Its Hessian."""
        return self._hessian(torch.from_numpy(flat)).numpy()

    def rests(self, flat: np.ndarray) -> float:
        """Negative where the gradient is short and no direction leads down, else positive."""
        excess = math.log(np.linalg.norm(self.gradient(flat)) / STILL)
        if excess < 0 and np.linalg.eigvalsh(self.hessian(flat))[0] < -FLAT:
            return 1.0
        return excess


def ended(size: tuple[int, int, int], seed: int, scalar: bool = False) -> dict:
    """One run, or with ``scalar`` one of multiples of I."""
    torch.set_num_threads(1)
    start, told = begun(*size, seed)
    if scalar:
        start = parts(start)[0]
    landscape = Landscape(*size)
    rests = lambda _, flat: landscape.rests(flat)  # noqa: E731
    rests.terminal = True
    found = solve_ivp(
        lambda _, flat: -landscape.gradient(flat), (0, LONGEST * told), start.ravel(), "LSODA",
        jac=lambda _, flat: -landscape.hessian(flat), rtol=1e-8, atol=1e-12, events=rests, dense_output=True,
    )  # fmt: skip
    times = np.concatenate([np.linspace(0, min(3 * told, found.t[-1]), POINTS), np.geomspace(told, found.t[-1], POINTS)])
    times = np.unique(times.clip(0, found.t[-1]))
    ways = found.sol(times).T
    apart = spreads(ways.reshape(-1, *landscape.shape))
    left = [float(times[row >= REACHED][0] / told) if (row >= REACHED).any() else math.inf for row in apart]
    losses = np.array([landscape.loss(way) for way in ways[:: POINTS // 100]])
    last = found.y[:, -1]
    end = landscape.loss(last)
    high = times[:: POINTS // 100][losses > 1.01 * end]
    return {
        "left": left,
        "end": end / float(optimal_step_sizes(*size)[1]) - 1,
        "shape": float(spreads(last.reshape(landscape.shape))[1:].max()),
        "time": float(found.t[-1] / told),
        "slow": float(high.max() / told) if len(high) else 0.0,
        "rests": landscape.rests(last) <= 1e-6,
        "least curvature": float(np.linalg.eigvalsh(landscape.hessian(last))[0]),
    }


def runs(size: tuple[int, int, int], count: int, first: int = FIRST, scalar: bool = False) -> list[dict]:
    """So many runs of a size."""
    return Parallel()(delayed(ended)(size, seed, scalar) for seed in range(first, first + count))


@RECORD.section
def ends() -> dict:
    """The runs that the rule decides, and what it says."""
    made = runs((2, 100, 6), RUNS)
    if not (verdict := judged(made)):
        made += runs((2, 100, 6), MORE, FIRST + RUNS)
        verdict = judged(made) or "open"
    return {"verdict": verdict, "runs": made}


def judged(made: list[dict]) -> str | None:
    """What the rule says of runs; None if it asks for more."""
    above = sum(one["end"] > 0.01 or not one["rests"] for one in made) / len(made)
    return "detour" if above <= 0.05 else "trap" if above >= 0.2 else None


@RECORD.section
def traps() -> list:
    """The runs that end above the best multiples, followed for LONGEST times the predicted time more, from there.

    The loss over that of the best multiples minus 1, the gradient's length, and the Hessian's four least eigenvalues, one of
    which belongs to a rotation of all matrices, which does not change the loss.
    """
    size, found = (2, 100, 6), []
    landscape, floor = Landscape(*size), float(optimal_step_sizes(*size)[1])
    for number, one in enumerate(RECORD.stored()["ends"]["runs"]):
        if one["end"] <= 0.01:
            continue
        start, told = begun(*size, FIRST + number)
        for times in (one["time"], LONGEST):
            how = {"jac": lambda _, flat: -landscape.hessian(flat), "rtol": 1e-8, "atol": 1e-14}
            velocity = lambda _, flat: -landscape.gradient(flat)  # noqa: E731
            start = solve_ivp(velocity, (0, times * told), start.ravel(), "LSODA", **how).y[:, -1]
        least = np.linalg.eigvalsh(landscape.hessian(start))[:4]
        slope = float(np.linalg.norm(landscape.gradient(start)))
        found.append({"seed": FIRST + number, "end": landscape.loss(start) / floor - 1, "gradient": slope, "least": least})
    return found


@RECORD.section
def control() -> list:
    """When the loss of multiples of I comes within 1% of its end, over the predicted time, for FEW starts of "ends"."""
    return [one["slow"] for one in runs((2, 100, 6), FEW, scalar=True)]


@RECORD.section
def others() -> list:
    """Runs at other sizes, without a rule."""
    return [{"size": list(size), "runs": runs(size, FEW)} for size in SIZES]


if __name__ == "__main__":
    RECORD.main()
