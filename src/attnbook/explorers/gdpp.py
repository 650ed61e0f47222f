"""Plain layers and GD++, whose layers also move the covariates: eigenvalues, loss by depth, and a scaled spectrum."""

import functools
import json
from importlib import resources

import torch
import traitlets
from torch import Tensor

from attnbook.explorer import Explorer, Interval
from attnopt.in_context import gdpp_residuals, optimal_step_sizes

DIM, POINTS, REACH, BEYOND = 5, 181, 1.5, 1e30  # the grid ends at 1.5 times the end of the spectrum's bulk
FAR = 14  # most plain layers whose losses are drawn
METHODS = ("constant", "plain", "gdpp")


@functools.cache
def gdpp_table() -> dict:
    """The results of experiments/gdpp_optima.py: "optima" by (d, n, k) and "spectra" by (d, n)."""
    text = (resources.files("attnopt") / "data" / "gdpp_optima.json").read_text(encoding="utf-8")
    found = json.loads(text)
    return {
        part: {tuple(map(int, key.split(","))): value for key, value in found[part].items()}
        for part in ("optima", "spectra")
    }


@functools.cache
def _layers(n_context: int) -> dict:
    """Spectrum and parameters of each method for d = 5 and one n, by number of layers k."""
    found, spectrum = gdpp_table(), gdpp_table()["spectra"][DIM, n_context]
    depths = range(1, 5)
    best = [found["optima"][DIM, n_context, k] for k in depths]
    return {
        "nodes": spectrum["nodes"],
        "weights": spectrum["weights"],
        "constant": [[spectrum["constant"][k - 1]] * k for k in depths],
        "plain": [_short(optimal_step_sizes(DIM, n_context, k)[0]) for k in range(1, FAR + 1)],
        "gdpp": [one["steps"] for one in best],
        "curvatures": [one["curvatures"] for one in best],
    }


def _short(steps: Tensor) -> list[float]:
    return [float(f"{step:.10g}") for step in steps.tolist()]


class GdppExplorer(Explorer):
    """Eigenvalues and errors after each layer of GD++, and its losses compared with optimal steps and one equal step size.

    The dimension is d = 5. The parameters are optimal for n examples and the covariance Σ; the prompts have covariance s²Σ.

    Traits:
        context: n, the number of examples, one of those in the table.
        layers: k, the number of layers.
        scale: s, the factor by which all covariates are multiplied once the parameters are fixed.
        view: the picture next to the losses: "eigenvalues" layer by layer, or the "residual" of all three methods.
        table: quadrature nodes and weights, and the parameters, for each n.
    """

    module = "gdpp"
    alt = (
        "Left: the eigenvalues of a prompt's Gram matrix before each of three layers of GD++, on a logarithmic axis. The "
        "size of a ring shows the error before the layer, and the size of a disk the error after it. Most lines are drawn "
        "together where the last layer has its bar; the lines of errors already removed fall away. Right: losses on a "
        "logarithmic axis against the number of layers. GD++ with three layers is about as low as optimal steps with "
        "eleven."
    )
    context = traitlets.Int(20).tag(sync=True)
    layers = traitlets.Int(3, min=1, max=4).tag(sync=True)
    scale = Interval(1.0, 0.5, 1.5)
    view = traitlets.Enum(["eigenvalues", "residual"], default_value="eigenvalues").tag(sync=True)
    table = traitlets.Dict().tag(sync=True)

    @traitlets.default("table")
    def _table(self) -> dict:
        return {str(n): _layers(n) for d, n in gdpp_table()["spectra"] if d == DIM}

    @traitlets.validate("context")
    def _known(self, proposal: traitlets.Bunch) -> int:
        if str(proposal["value"]) not in self.table:
            raise traitlets.TraitError(f"context must be one of {', '.join(self.table)}, got {proposal['value']}")
        return proposal["value"]

    def bounds(self, kernel: bool = True) -> dict:
        """The traits' bounds; n is one of those in the table."""
        return super().bounds(kernel) | {"context": {"values": sorted(map(int, self.table))}}

    def _run(self, method: str, k: int, eigenvalues: Tensor) -> tuple[Tensor, Tensor]:
        """Residual after 0 … k layers, and eigenvalues before each layer, for the given eigenvalues of the prompts."""
        here = self.table[str(self.context)]
        steps = torch.tensor(here[method][k - 1], dtype=torch.float64)
        curvatures = (
            torch.tensor(here["curvatures"][k - 1], dtype=torch.float64) if method == "gdpp" else steps.new_zeros(k - 1)
        )
        return gdpp_residuals(steps, curvatures, eigenvalues)

    def compute(self) -> dict:
        """Residuals on a grid and losses of the three methods, and the effect of GD++ on some eigenvalues and their errors.

        ``worth`` is the number of plain layers needed for the loss of GD++; 0 if more are needed than are drawn.
        """
        here = self.table[str(self.context)]
        nodes, weights = (torch.tensor(here[name], dtype=torch.float64) for name in ("nodes", "weights"))
        bulk = _bulk(weights)
        low, high = nodes[bulk[0]].item(), nodes[bulk[-1]].item()
        grid = REACH * self.scale**2 * high * torch.arange(POINTS, dtype=torch.float64) / (POINTS - 1)
        chosen = self.scale**2 * nodes[bulk]
        losses = {
            name: [
                _bounded(self._run(name, k + 1, self.scale**2 * nodes)[0][-1].square() @ weights / DIM)
                for k in range(len(here[name]))
            ]
            for name in METHODS
        }
        reached = losses["gdpp"][self.layers - 1]
        good = [reached is None or (loss is not None and loss <= (1 + 1e-6) * reached) for loss in losses["plain"]]
        kept, carried = self._run("gdpp", self.layers, chosen)
        return {
            "grid": grid.tolist(),
            "nodes": chosen.tolist(),
            "spread": [self.scale**2 * low, self.scale**2 * high],
            "residuals": {name: self._run(name, self.layers, grid)[0][-1].tolist() for name in METHODS},
            "losses": losses,
            "worth": good.index(True) + 1 if any(good) else 0,
            "carried": carried.tolist(),
            "kept": kept.tolist(),
            "roots": [-1 / step for step in here["gdpp"][self.layers - 1]],
        }


def _bulk(weights: Tensor) -> list[int]:
    """Indices of the quadrature's nodes that each have at least a ten-thousandth of the mass."""
    return [index for index, weight in enumerate((weights / weights.sum()).tolist()) if weight >= 1e-4]


def _bounded(value: Tensor) -> float | None:
    """A number up to 10³⁰ as it is, None for others."""
    return value.item() if value <= BEYOND else None
