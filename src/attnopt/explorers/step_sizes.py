"""Steps of plain layers: their residual polynomial over the mean spectrum of the Gram matrix, and the exact loss."""

import functools

import numpy as np
import traitlets
from matplotlib.figure import Figure
from scipy.optimize import minimize_scalar

from attnopt.in_context import optimal_step_sizes, wishart_quadrature
from bookkit.explorers.base import Explorer, Numbers
from bookkit.plotting import BLUE, GREEN, GREY, ORANGE

DIMS, CONTEXTS, DEPTH, NODES = (1, 2, 5, 10), (1, 2, 5, 10, 20, 40, 100), 4, 12  # the page carries these d and n
POINTS = 121
STYLES = {"optimal": (BLUE, "-", "o"), "constant": (ORANGE, "--", "^"), "chebyshev": (GREEN, ":", "s")}


@functools.cache
def _row(dim: int, n_context: int) -> dict:
    """Nodes and weights of the mean spectrum, the optimal sizes and the best equal one by depth."""
    nodes, weights = wishart_quadrature(dim, n_context, NODES)
    depths = range(1, DEPTH + 1)
    short = lambda values: [float(f"{value:.10g}") for value in values]  # noqa: E731
    return {
        "nodes": short(np.maximum(nodes, 0)),
        "weights": short(weights),
        "optimal": [short(-optimal_step_sizes(dim, n_context, k)[0]) for k in depths],
        "constant": short(_best_constant(nodes, weights, k) for k in depths),
    }


def _best_constant(nodes: np.ndarray, weights: np.ndarray, layers: int) -> float:
    """The size that does best if all layers have the same."""
    loss = lambda size: weights @ (1 - size * nodes) ** (2 * layers)  # noqa: E731
    return minimize_scalar(loss, bounds=(0, 2), method="bounded", options={"xatol": 1e-12}).x


class StepSizesExplorer(Explorer):
    """Layers A_i = -s_i Σ⁻¹ with sizes s_i that are optimal, equal, Chebyshev's, or the reader's own.

    The page carries the spectra of some d and n; with a kernel all can be chosen, and Python computes those that lack.

    Traits:
        dim: d, of the covariates.
        n_context: n, the examples of a prompt.
        layers: k of them.
        scheme: "optimal", "constant" (the best equal ones), "chebyshev" (for the Marchenko–Pastur interval) or "own".
        own: four sizes of the reader; the first k are used if the scheme is "own".
        table: what the module needs of the exact spectrum, by d and n.
    """

    module = "step_sizes"
    alt = (
        "Left: bars of the mean spectrum of the whitened Gram matrix with the residual polynomial drawn over them, its "
        "roots marked. Right: on a logarithmic axis, the loss per dimension for one to four layers with optimal, best "
        "equal and Chebyshev's steps, and a ring at the present choice."
    )
    dim = traitlets.Int(5, min=1, max=max(DIMS)).tag(sync=True)
    n_context = traitlets.Int(20, min=1, max=max(CONTEXTS)).tag(sync=True)
    layers = traitlets.Int(3, min=1, max=DEPTH).tag(sync=True)
    scheme = traitlets.Enum([*STYLES, "own"], default_value="optimal").tag(sync=True)
    own = Numbers([0.5, 0.8, 1.2, 2.0], 0.02, 8)
    table = traitlets.Dict().tag(sync=True)

    @traitlets.default("table")
    def _default_table(self) -> dict:
        return {f"{dim} {n_context}": _row(dim, n_context) for dim in DIMS for n_context in CONTEXTS}

    @traitlets.observe("dim", "n_context")
    def _answer(self, _) -> None:
        self.table = self.table | {f"{self.dim} {self.n_context}": _row(self.dim, self.n_context)}

    def bounds(self, kernel: bool = True) -> dict:
        """As of any explorer; without a kernel, d and n are those whose spectra the page carries."""
        carried = {} if kernel else {"dim": {"values": list(DIMS)}, "n_context": {"values": list(CONTEXTS)}}
        return super().bounds(kernel) | carried

    def _sizes(self, scheme: str, layers: int) -> list[float]:
        row = _row(self.dim, self.n_context)
        if scheme == "own":
            return list(self.own[:layers])
        if scheme == "optimal":
            return list(row["optimal"][layers - 1])
        if scheme == "constant":
            return [row["constant"][layers - 1]] * layers
        ratio = self.dim / self.n_context
        angles = (2 * np.arange(1, layers + 1) - 1) * np.pi / (2 * layers)
        return (1 / (1 + ratio + 2 * ratio**0.5 * np.cos(angles))).tolist()

    def compute(self) -> dict:
        """Sizes, loss (not divided by d), residual polynomial over a grid, losses of three schemes by depth."""
        row = _row(self.dim, self.n_context)
        nodes, weights = np.array(row["nodes"]), np.array(row["weights"])

        def residual(sizes: list[float], at: np.ndarray) -> np.ndarray:
            return np.prod([1 - size * at for size in sizes], axis=0)

        def loss(sizes: list[float]) -> float:
            return float(weights @ residual(sizes, nodes) ** 2)

        sizes = self._sizes(self.scheme, self.layers)
        grid = np.linspace(0, _reach(self.dim, self.n_context), POINTS)
        depths = range(1, DEPTH + 1)
        return {
            "sizes": sizes,
            "loss": loss(sizes),
            "best": loss(self._sizes("optimal", self.layers)),
            "grid": grid.tolist(),
            "residual": residual(sizes, grid).tolist(),
            "losses": {name: [loss(self._sizes(name, k)) for k in depths] for name in STYLES},
        }

    def draw_still(self, figure: Figure) -> None:
        """Spectrum and residual polynomial on the left, losses by depth on the right."""
        numbers, row = self.compute(), _row(self.dim, self.n_context)
        left, right = figure.subplots(1, 2)
        nodes, weights = np.array(row["nodes"]), np.array(row["weights"])
        reach = _reach(self.dim, self.n_context)
        edges = np.concatenate([[0], (nodes[1:] + nodes[:-1]) / 2, [2 * nodes[-1] - nodes[-2]]])
        heights = weights / np.diff(edges)
        rest = heights[1:] if self.n_context < self.dim else heights
        left.bar(
            edges[:-1], np.minimum(heights / rest.max(), 1.5), np.diff(edges), -1.2, align="edge", color=GREY, alpha=0.4
        )
        left.axhline(0, color="black", lw=0.8)
        left.plot(numbers["grid"], numbers["residual"], color=BLUE)
        left.plot([1 / size for size in numbers["sizes"]], [0] * self.layers, "o", color=BLUE)
        left.set(xlabel="eigenvalue λ", ylabel="residual R(λ)", xlim=(0, reach), ylim=(-1.2, 1.2))
        depths = range(1, DEPTH + 1)
        for name, (colour, dashes, marker) in STYLES.items():
            values = [value / self.dim for value in numbers["losses"][name]]
            right.plot(depths, values, dashes, marker=marker, color=colour, label=name)
        right.plot(self.layers, numbers["loss"] / self.dim, "o", ms=13, mfc="none", mec="black")
        right.set(yscale="log", xlabel="layers", ylabel="loss / d", xticks=list(depths))
        right.legend(fontsize=8)

    def __repr__(self):
        names = ("dim", "n_context", "layers", "scheme", "own")
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


def _reach(dim: int, n_context: int) -> float:
    """Where the axis of eigenvalues ends: somewhat beyond the Marchenko–Pastur interval."""
    return 1.3 * (1 + (dim / n_context) ** 0.5) ** 2
