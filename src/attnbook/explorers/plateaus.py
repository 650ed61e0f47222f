"""Plateaus in the training of a few linear layers: the predicted time at which almost equal step sizes separate."""

import functools
import math

import numpy as np
import traitlets

from attnbook.explorer import Interval
from attnbook.spectra import SpectrumExplorer
from attnopt.in_context import optimal_step_sizes, wishart_quadrature
from attnopt.synthesis import grouped_optimum, tied_optimum, tied_rates
from attnopt.synthesis.loops import follow_gaps, tie_breaks, tied_expansion

DIMS, CONTEXTS, DEPTH = (1, 2, 5, 10), (5, 10, 20, 40), 3  # the page contains the spectra for these d and n
MOMENTS, SHARE, TIGHTEST, WIDEST = 401, 0.1, -9.0, -2.0  # of the time axis; of the final spread; log₁₀ of spreads
REST = 9  # the axis ends this many growth times (by e) after the last tie


@functools.cache
def _row(dim: int, n_context: int) -> dict:
    """Data of a spectrum: its quadrature rule and, for 2 and 3 layers, the optimum, the best loop, and the loss near it.

    ``pairs`` has the rate of repulsion and the loss if the two smaller of three steps are equal, and if the two larger are.
    """
    nodes, weights = wishart_quadrature(dim, n_context, DEPTH + 1)
    depths = range(2, DEPTH + 1)
    pairs = []
    for groups in ((2, 1), (1, 2)):
        steps, loss = grouped_optimum(groups, dim, n_context)
        tied, single = (steps[group].item() for group in (groups.index(2), groups.index(1)))
        left = nodes * (1 + tied * nodes) * (1 + single * nodes)
        pairs.append([float(2 * weights @ left**2), loss])
    return {
        "nodes": np.maximum(nodes, 0).tolist(),
        "weights": weights.tolist(),
        "optimal": [(-optimal_step_sizes(dim, n_context, k)[0]).tolist() for k in depths],
        "equal": [-tied_optimum(dim, n_context, k)[0] for k in depths],
        "bends": [[float(part) for part in tied_expansion(dim, n_context, k)] for k in depths],
        "pairs": pairs,
    }


@functools.lru_cache(64)
def _followed(dim: int, n_context: int, largest: float, gaps: tuple[float, ...], end: float) -> np.ndarray:
    """Sizes at the moments of the time axis, shape (times, layers), from the largest and the gaps' logarithms.

    Results are cached, because other changes request the wide and the chosen spread again.
    """
    rule, one = wishart_quadrature(dim, n_context, DEPTH + 1), np.ones(len(gaps) + 1, dtype=int)
    found = follow_gaps(-largest, np.array(gaps[::-1]), one, rule, np.linspace(0, end, MOMENTS))
    return -found[:, ::-1]


class PlateausExplorer(SpectrumExplorer):
    """Two or three layers A_i = -s_i Σ⁻¹ that start almost equal, and the time at which gradient flow separates them.

    The page contains the spectra for some d and n; with a kernel, all can be chosen, and Python computes the others.

    Traits:
        dim: d, the dimension of the covariates.
        n_context: n, the number of examples in a prompt.
        layers: k, the number of layers.
        start: the smallest initial step size.
        spread: log₁₀ of the initial difference between the largest and the smallest size.
        pair: for three layers, log₁₀ of the lower gap divided by the upper; negative if the two smaller sizes are closer.
        table: the data of the exact spectrum that the module needs, by d and n.
    """

    module = "plateaus"
    alt = (
        "Left: the loss against time, a fall to a plateau on a dotted line, and a second fall to a dashed line, just behind "
        "a vertical line that says when. A gray curve, that of steps further apart, falls earlier. Right: the sizes of two "
        "steps against time. They run as one to a dotted line, the best size for both, stay there, and separate at time "
        "4.8, one to the lower and one to the upper of two dashed lines."
    )
    dim = traitlets.Int(5, min=1, max=max(DIMS)).tag(sync=True)
    n_context = traitlets.Int(20, min=min(CONTEXTS), max=max(CONTEXTS)).tag(sync=True)
    layers = traitlets.Int(2, min=2, max=DEPTH).tag(sync=True)
    start = Interval(0.3, 0, 1)
    spread = Interval(-6.0, TIGHTEST, WIDEST)
    pair = Interval(0.0, -5, 5)
    dims, contexts, row = DIMS, CONTEXTS, staticmethod(_row)

    def _gaps(self, spread: float) -> list[float]:
        """Logarithms of the gaps between neighbors, from the smallest size up."""
        whole = spread * math.log(10)
        if self.layers == 2:
            return [whole]
        odds = self.pair * math.log(10)
        return [whole - math.log1p(math.exp(-odds)), whole - math.log1p(math.exp(odds))]

    def _follow(self, spread: float, end: float) -> np.ndarray:
        """Sizes at the moments of the time axis, shape (times, layers)."""
        return _followed(self.dim, self.n_context, self.start + 10**spread, tuple(self._gaps(spread)), end)

    def compute(self) -> dict:
        """Sizes and losses along the time axis, predicted and observed times of separation, and the plateaus' levels.

        ``reached`` is the spread at which sizes count as separate, a tenth of the optimal one. ``second`` is the predicted
        time for a pair that remains of three sizes, with ``pair_rate`` and ``pair_level``; all are None for two layers.
        ``wide`` has the losses of a run with initial spread 0.01. Losses are not divided by d.
        """
        row, k = _row(self.dim, self.n_context), self.layers
        nodes, weights = wishart_quadrature(self.dim, self.n_context, DEPTH + 1)
        best, equal = row["optimal"][k - 2], row["equal"][k - 2]
        repulsion = tied_rates(self.dim, self.n_context, k)[1]
        reached, spread = SHARE * (best[-1] - best[0]), 10**self.spread
        low = math.exp(self._gaps(self.spread)[0])
        mean = self.start + (spread / 2 if k == 2 else (low + spread) / 3)
        lean = (2 * self.start + spread - 2 * mean) / spread
        first = tie_breaks(-mean, spread, -lean, (self.dim, self.n_context, k), reached)
        pair_rate, pair_level = row["pairs"][int(self.pair > 0)] if k == 3 else (None, None)
        wait = abs(self.pair) * math.log(10) / pair_rate if k == 3 else 0.0
        end = (math.log(reached) - TIGHTEST * math.log(10) + REST) / repulsion + wait
        times = np.linspace(0, end, MOMENTS)
        sizes = self._follow(self.spread, end)

        def losses(steps: np.ndarray) -> np.ndarray:
            return np.prod(1 - steps[..., None] * nodes, axis=-2) ** 2 @ weights

        level, floor = losses(np.full(k, equal)), losses(np.array(best))
        return {
            "times": times.tolist(),
            "sizes": sizes.T.tolist(),
            "losses": losses(sizes).tolist(),
            "wide": losses(self._follow(WIDEST, end)).tolist(),
            "best": best,
            "equal": equal,
            "floor": float(floor),
            "level": float(level),
            "rate": repulsion,
            "reached": reached,
            "first": first,
            "late": (WIDEST - self.spread) * math.log(10) / repulsion,
            "hundred": math.log(100) / repulsion,
            "second": first + wait if k == 3 else None,
            "pair_rate": pair_rate,
            "pair_level": pair_level,
            "apart": float(np.interp(math.log(reached), np.log(sizes[:, -1] - sizes[:, 0]), times)),
        }

    def __repr__(self):
        names = ("dim", "n_context", "layers", "start", "spread", "pair")
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"
