"""Training of a few linear layers: gradient flow on the exact loss in the step sizes, which are free or all equal."""

import functools
import math

import numpy as np
import traitlets
from scipy.integrate import solve_ivp

from attnbook.explorer import Interval, Numbers
from attnbook.explorers import step_sizes
from attnbook.spectra import SpectrumExplorer

DIMS, CONTEXTS, DEPTH = (1, 2, 5, 10), (2, 5, 10, 20, 40, 100), 4  # the page contains the spectra for these d and n
MOMENTS, FIRST, PATIENCE = 121, 0.1, 20  # of the time axis: points, bend times d, least number of decay times
POINTS = 121  # of the polynomial's curve


def _velocity(sizes: np.ndarray, counts: np.ndarray, nodes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Minus the loss's derivative in one layer of each group; a group is ``counts`` layers that have one size."""
    powers = 2 * counts - np.eye(len(sizes), dtype=int)
    return ((1 - sizes[:, None] * nodes) ** powers[..., None]).prod(1) @ (2 * weights * nodes)


def _jacobian(sizes: np.ndarray, counts: np.ndarray, nodes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The derivative of the velocity in the sizes."""
    one = np.eye(len(sizes), dtype=int)
    powers = 2 * counts - one
    left = ((1 - sizes[:, None] * nodes) ** (powers[:, None] - one)[..., None]).prod(2)
    return -2 * powers * (left @ (weights * nodes**2))


@functools.cache
def _row(dim: int, n_context: int) -> dict:
    """The spectral data of `StepSizesExplorer`, and the end of the time axis for each depth.

    The end is a power of ten, by which the slowest direction at the optimum has fallen by e at least ``PATIENCE`` times.
    """
    row = step_sizes.spectrum_row(dim, n_context)
    rule = np.array(row["nodes"]), np.array(row["weights"])
    slowest = [np.linalg.eigvalsh(-_jacobian(np.array(best), np.ones(len(best), int), *rule))[0] for best in row["optimal"]]
    return row | {"horizon": [10 ** math.ceil(math.log10(PATIENCE / rate)) for rate in slowest]}


class LayerTrainingExplorer(SpectrumExplorer):
    """Training of layers A_i = -s_i Σ⁻¹ by gradient flow ṡ_i = -∂f/∂s_i on the exact loss f = E tr Π(I - s_i G)².

    G is the whitened Gram matrix of a prompt.

    The page contains the spectra for some d and n; with a kernel, all can be chosen, and Python computes the others.

    Traits:
        dim: d, the dimension of the covariates.
        n_context: n, the number of examples in a prompt.
        layers: k, the number of layers.
        tied: whether all layers share one step size, the only trained parameter, which starts at the first of ``starts``.
        starts: four initial step sizes; the first k are used.
        time: the position of the moment shown on the time axis, from 0 to 1.
        table: the data of the exact spectrum that the module needs, by d and n.
    """

    module = "layer_training"
    alt = (
        "Left: the sizes of two steps against time. Both start near 0.3, run together to a plateau on a dotted line, the "
        "best size for both, and separate there: one ends on the lower, one on the upper of two dashed lines. Right, above: "
        "the loss against time, a fall to the dotted line, a plateau, and a second fall to the dashed line, the optimum. "
        "Below: the mean spectrum as a gray area, and in color what the layers have not removed of it by the marked time."
    )
    dim = traitlets.Int(5, min=1, max=max(DIMS)).tag(sync=True)
    n_context = traitlets.Int(20, min=1, max=max(CONTEXTS)).tag(sync=True)
    layers = traitlets.Int(2, min=1, max=DEPTH).tag(sync=True)
    tied = traitlets.Bool(False).tag(sync=True)
    starts = Numbers([0.3, 0.31, 0.9, 0.0], -1, 3)
    time = Interval(0.4, 0, 1)
    dims, contexts, row = DIMS, CONTEXTS, staticmethod(_row)

    def _follow(self, times: np.ndarray) -> np.ndarray:
        """Sizes at increasing times, the first 0, shape (times, layers); layers that start equal are followed as one."""
        row = _row(self.dim, self.n_context)
        rule = np.array(row["nodes"]), np.array(row["weights"])
        starts = np.full(self.layers, self.starts[0]) if self.tied else np.array(self.starts[: self.layers])
        sizes, group, counts = np.unique(starts, return_inverse=True, return_counts=True)
        speed = self.layers if self.tied else 1  # the shared size has the derivatives of all layers
        found = solve_ivp(
            lambda _, now: speed * _velocity(now, counts, *rule),
            (0, times[-1]),
            sizes,
            method="LSODA",
            t_eval=times,
            rtol=1e-10,
            atol=1e-12,
            jac=lambda _, now: speed * _jacobian(now, counts, *rule),
        )
        return found.y.T[:, group]

    def compute(self) -> dict:
        """Sizes and losses along the time axis and at the moment shown, their limits, the polynomial, and what it leaves.

        ``rate`` is the rate at which differences between layers grow while all have nearly the best equal size; None for one
        layer. Losses are not divided by d.
        """
        row, k = _row(self.dim, self.n_context), self.layers
        nodes, weights = np.array(row["nodes"]), np.array(row["weights"])

        def residual(sizes: np.ndarray, at: np.ndarray) -> np.ndarray:
            return np.prod(1 - np.multiply.outer(sizes, at), axis=-2)

        def loss(sizes: np.ndarray) -> np.ndarray:
            return residual(sizes, nodes) ** 2 @ weights

        bend, best, equal = FIRST / self.dim, np.array(row["optimal"][k - 1]), row["constant"][k - 1]
        places = np.append(np.linspace(0, 1, MOMENTS), self.time)
        all_times, rank = np.unique(bend * np.expm1(places * math.log1p(row["horizon"][k - 1] / bend)), return_inverse=True)
        seen = self._follow(all_times)[rank]
        now = seen[-1]
        rate = float(2 * (weights * nodes**2) @ (1 - equal * nodes) ** (2 * k - 2)) if k > 1 else None
        starts = self.starts[:k]
        goals = np.full(k, equal) if self.tied else best[np.argsort(np.argsort(starts, kind="stable"))]
        losses, here, floor, level = loss(seen[:-1]), loss(now), loss(best), loss(np.full(k, equal))
        grid = np.linspace(0, step_sizes.axis_end(self.dim, self.n_context, row["optimal"][k - 1]), POINTS)
        cuts = np.arange(1, step_sizes.CUTS + 1) / step_sizes.CUTS
        spectrum = step_sizes.axis_end(self.dim, self.n_context, row["optimal"][-1]) * cuts**2
        return {
            "times": all_times[rank][:-1].tolist(),
            "sizes": seen[:-1].T.tolist(),
            "losses": losses.tolist(),
            "moment": float(all_times[rank][-1]),
            "now": now.tolist(),
            "loss": float(here),
            "goals": goals.tolist(),
            "away": np.abs(now - goals).tolist(),
            "best": best.tolist(),
            "floor": float(floor),
            "equal": equal,
            "level": float(level),
            "times_floor": {"now": float(here / floor), "equal": float(level / floor), "end": float(losses[-1] / floor)},
            "rate": rate,
            "tenfold": rate and math.log(10) / rate,
            "grid": grid.tolist(),
            "residual": residual(now, grid).tolist(),
            "places": spectrum.tolist(),
            "density": row["density"],
            "left": (row["density"] * residual(now, spectrum) ** 2).tolist(),
        }

    def __repr__(self):
        names = ("dim", "n_context", "layers", "tied", "starts", "time")
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"
