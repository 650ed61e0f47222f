"""Steps of plain layers: roots of their residual polynomial on the mean spectrum of the Gram matrix, and the exact loss."""

import functools

import numpy as np
import traitlets
from numpy.polynomial import legendre
from scipy.optimize import minimize_scalar

from attnbook.explorer import Numbers
from attnbook.spectra import SpectrumExplorer
from attnopt.in_context import optimal_step_sizes, wishart_quadrature

DIMS, CONTEXTS, DEPTH, NODES = (1, 2, 5, 10), (1, 2, 5, 10, 20, 40, 100), 4, 12  # the page carries these d and n
POINTS, CUTS, RULE = 121, 120, 12  # points of the curve, of the density, and of the Gauss rule between two of the latter
SCHEMES = ("optimal", "constant", "chebyshev")


@functools.cache
def spectrum_row(dim: int, n_context: int) -> dict:
    """Nodes and weights of the mean spectrum, its density, and the optimal sizes and the best equal size for each depth."""
    nodes, weights = wishart_quadrature(dim, n_context, NODES)
    depths = range(1, DEPTH + 1)
    short = lambda values, digits=10: [float(f"{value:.{digits}g}") for value in values]  # noqa: E731
    optimal = [short(-optimal_step_sizes(dim, n_context, k)[0]) for k in depths]
    return {
        "nodes": short(np.maximum(nodes, 0)),
        "weights": short(weights),
        "optimal": optimal,
        "constant": short(_best_constant(nodes, weights, k) for k in depths),
        "density": short(np.round(_density(dim, n_context, axis_end(dim, n_context, optimal[-1])), 6), 4),
    }


def _best_constant(nodes: np.ndarray, weights: np.ndarray, layers: int) -> float:
    """The best size if all layers have the same size."""
    loss = lambda size: weights @ (1 - size * nodes) ** (2 * layers)  # noqa: E731
    return minimize_scalar(loss, bounds=(0, 2), method="bounded", options={"xatol": 1e-12}).x


def axis_end(dim: int, n_context: int, sizes: list[float]) -> float:
    """The end of an axis of eigenvalues, beyond the Marchenko–Pastur interval and the roots of these sizes, in order."""
    return max(1.3 * (1 + (dim / n_context) ** 0.5) ** 2, 1.15 / sizes[0])


def _density(dim: int, n_context: int, end: float) -> np.ndarray:
    """The mean spectrum's density at ``end`` · (j / CUTS)², j = 1 … CUTS, without the d - n zeros if n < d.

    The other eigenvalues of G have a joint density proportional to Π_{i<j} |λ_i - λ_j| Π_i w(λ_i), with w a Gamma density
    up to a factor. By de Bruijn's formula the mean of Π_i (1 + g(λ_i)) is a ratio of Pfaffians, and its derivative in g at
    a point is the density there. The integrals are over √λ, with a Gauss rule between neighboring points.
    """
    small, large = sorted((dim, n_context))  # XXᵀ and XᵀX have the same eigenvalues, except zeros
    t, rule = legendre.leggauss(RULE)
    fitted = np.linalg.inv(legendre.legvander(t, RULE - 1))  # values at the nodes to Legendre coefficients
    up_to = np.stack([legendre.legval(t, legendre.legint(column, lbnd=-1)) for column in fitted.T])  # and their integrals
    half = 1 / (2 * CUTS)
    roots = (np.arange(4 * CUTS)[:, None] + (t + 1) / 2) / CUTS  # of λ / end; beyond four times the end, no mass is left

    def weight(root: np.ndarray) -> np.ndarray:
        """w(λ) dλ / d(root), up to a factor that makes it 1 where λ is 1."""
        return np.exp((large - small) / 2 * np.log(end * root**2) + n_context / 2 * (1 - end * root**2))

    points = np.arange(1, CUTS + 1) / CUTS
    everywhere, weights = np.append(roots, points) ** 2, weight(roots) * rule * half
    before, now, columns = np.zeros(1), np.ones(everywhere.size), []
    for _ in range(small):  # orthonormal polynomials, with which the Pfaffian is well conditioned
        product = lambda values: weights.ravel() @ values[: roots.size]  # noqa: E731
        now = now / product(now**2) ** 0.5
        columns.append(now)
        after = (everywhere - product(everywhere * now**2)) * now
        before, now = now, after - (product(after * before) * before if before.size > 1 else 0)
    basis, here = np.split(np.stack(columns, -1), [roots.size])
    basis = basis.reshape(*roots.shape, small)

    weighted = basis * weight(roots)[..., None] * half
    below = np.concatenate([np.zeros((1, small)), np.cumsum(np.einsum("pif,i->pf", weighted, rule), 0)])
    total = below[-1]
    beyond = total - 2 * (below[:-1, None] + np.einsum("pif,iq->pqf", weighted, up_to))  # ∫ sgn(y - x) φ(y) w(y) dy
    pairs = np.einsum("pq,pqf,pqg->fg", weights, basis, beyond)
    steps = total - 2 * below[1 : CUTS + 1]
    if small % 2:  # a Pfaffian has an even size: here it gets a border
        pairs = np.block([[pairs, total[:, None]], [-total, np.zeros(1)]])
        here, steps = np.pad(here, ((0, 0), (0, 1))), np.pad(steps, ((0, 0), (0, 1)), constant_values=1)
    density = np.einsum("pf,gf,pg->p", here, np.linalg.inv(pairs), steps) * weight(points)
    return np.maximum(density, 0) / (2 * end * points)  # from d(root) to dλ


class StepSizesExplorer(SpectrumExplorer):
    """The residual polynomial and loss of layers A_i = -s_i Σ⁻¹, whose roots 1 / s_i the reader can drag.

    The page contains the spectra for some d and n; with a kernel, all can be chosen, and Python computes the others.

    Traits:
        dim: d, the dimension of the covariates.
        n_context: n, the number of examples in a prompt.
        layers: k, the number of layers.
        scheme: the step sizes: "optimal", "constant" (the best equal ones), "chebyshev" (for the Marchenko–Pastur
            interval), or "own".
        own: four step sizes of the reader; the first k are used if the scheme is "own".
        table: the data of the exact spectrum that the module needs, by d and n.
    """

    module = "step_sizes"
    alt = (
        "Left, above: the polynomial by which layers multiply an error, against the eigenvalue, its roots marked. Below: "
        "the mean spectrum of the whitened Gram matrix as a gray area, and as a colored area the same spectrum "
        "weighted with the polynomial's square. Right: on a logarithmic axis, the loss per dimension for one to four layers "
        "with optimal, best equal and Chebyshev's steps, and a ring at the present choice."
    )
    dim = traitlets.Int(5, min=1, max=max(DIMS)).tag(sync=True)
    n_context = traitlets.Int(20, min=1, max=max(CONTEXTS)).tag(sync=True)
    layers = traitlets.Int(3, min=1, max=DEPTH).tag(sync=True)
    scheme = traitlets.Enum([*SCHEMES, "own"], default_value="own").tag(sync=True)
    own = Numbers([0.8, 1.0, 1.25, 1.6], 0.02, 8)
    dims, contexts, row = DIMS, CONTEXTS, staticmethod(spectrum_row)

    def _sizes(self, scheme: str, layers: int) -> list[float]:
        row = spectrum_row(self.dim, self.n_context)
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
        """Sizes, loss, residual polynomial on a grid, the spectrum's density, and the losses of three schemes by depth.

        Losses are not divided by d. The density is given twice, as it is and weighted with the polynomial's square.
        """
        row = spectrum_row(self.dim, self.n_context)
        nodes, weights = np.array(row["nodes"]), np.array(row["weights"])

        def residual(sizes: list[float], at: np.ndarray) -> np.ndarray:
            return np.prod([1 - size * at for size in sizes], axis=0)

        def loss(sizes: list[float]) -> float:
            return float(weights @ residual(sizes, nodes) ** 2)

        sizes = self._sizes(self.scheme, self.layers)
        grid = np.linspace(0, axis_end(self.dim, self.n_context, row["optimal"][self.layers - 1]), POINTS)
        places = axis_end(self.dim, self.n_context, row["optimal"][-1]) * (np.arange(1, CUTS + 1) / CUTS) ** 2
        depths = range(1, DEPTH + 1)
        optimal = self._sizes("optimal", self.layers)
        reached, best, equal = (loss(steps) for steps in (sizes, optimal, self._sizes("constant", self.layers)))
        return {
            "sizes": sizes,
            "loss": reached,
            "best": best,
            "roots": [1 / size for size in sizes],
            "best_roots": [1 / size for size in optimal],
            "shares": {"own": reached / self.dim, "best": best / self.dim, "constant": equal / self.dim},
            "ratio": reached / best,
            "above": reached / best - 1,
            "grid": grid.tolist(),
            "residual": residual(sizes, grid).tolist(),
            "places": places.tolist(),
            "density": row["density"],
            "left": (row["density"] * residual(sizes, places) ** 2).tolist(),
            "losses": {name: [loss(self._sizes(name, k)) for k in depths] for name in SCHEMES},
        }

    def __repr__(self):
        names = ("dim", "n_context", "layers", "scheme", "own")
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"
