"""Plain steps beside layers that also move the covariates: residual polynomials, loss by depth, and a shifted spectrum."""

import functools
import json
from importlib import resources

import torch
import traitlets
from matplotlib.figure import Figure
from torch import Tensor

from attnopt.in_context import gdpp_residuals
from bookkit.explorers.base import Explorer, Interval
from bookkit.plotting import BLUE, GREEN, ORANGE

DIM, POINTS, REACH, BEYOND = 5, 181, 1.5, 1e30  # the grid goes half as far again as the bulk of the spectrum
STYLES = {
    "constant": ("one step size", BLUE, ":"),
    "plain": ("optimal steps", GREEN, "--"),
    "gdpp": ("GD++", ORANGE, "-"),
}


@functools.cache
def gdpp_table() -> dict:
    """What experiments/gdpp_optima.py has found: "optima" by (d, n, k), "spectra" by (d, n)."""
    text = (resources.files("attnopt") / "data" / "gdpp_optima.json").read_text(encoding="utf-8")
    found = json.loads(text)
    return {
        part: {tuple(map(int, key.split(","))): value for key, value in found[part].items()}
        for part in ("optima", "spectra")
    }


def _layers(n_context: int) -> dict:
    """Spectrum and parameters of each method for k = 1 … 4, for d = 5: what the page needs to know of one n."""
    found, spectrum = gdpp_table(), gdpp_table()["spectra"][DIM, n_context]
    depths = range(1, 5)
    best = [found["optima"][DIM, n_context, k] for k in depths]
    return {
        "nodes": spectrum["nodes"],
        "weights": spectrum["weights"],
        "constant": [[spectrum["constant"][k - 1]] * k for k in depths],
        "plain": spectrum["plain"],
        "gdpp": [one["steps"] for one in best],
        "curvatures": [one["curvatures"] for one in best],
    }


class GdppExplorer(Explorer):
    """What k layers leave of the error in each eigendirection, and of the loss: one step size, the optimal ones, GD++.

    d = 5. The parameters are optimal for n examples and the covariance Σ; the spectrum seen is that of s²Σ.

    Traits:
        context: n, one of those in the table.
        layers: k of them.
        scale: s, by which all covariates are multiplied after the parameters were chosen.
        view: what is drawn beside the residuals: "loss" against the number of layers, or the "eigenvalues" layer by layer.
        table: nodes, weights and parameters for each n.
    """

    module = "gdpp"
    alt = (
        "Left: three curves over the eigenvalue, what one step size, optimal step sizes and GD++ leave of the error; all "
        "start at one, and the curve of GD++ stays nearest to zero over the spectrum, drawn as dots. Right: their losses "
        "on a logarithmic axis against the number of layers; that of GD++ falls fastest."
    )
    context = traitlets.Int(20).tag(sync=True)
    layers = traitlets.Int(3, min=1, max=4).tag(sync=True)
    scale = Interval(1.0, 0.5, 1.5)
    view = traitlets.Enum(["loss", "eigenvalues"], default_value="loss").tag(sync=True)
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
        """As of any explorer; n is one of the table's."""
        return super().bounds(kernel) | {"context": {"values": sorted(map(int, self.table))}}

    def _run(self, method: str, k: int, eigenvalues: Tensor) -> tuple[Tensor, Tensor]:
        """Residual after k layers, and eigenvalues before each, at the given eigenvalues of the spectrum seen."""
        here = self.table[str(self.context)]
        steps = torch.tensor(here[method][k - 1], dtype=torch.float64)
        curvatures = (
            torch.tensor(here["curvatures"][k - 1], dtype=torch.float64) if method == "gdpp" else steps.new_zeros(k - 1)
        )
        residuals, seen = gdpp_residuals(steps, curvatures, eigenvalues)
        return residuals[-1], seen

    def compute(self) -> dict:
        """Residuals on a grid and losses of the three methods, and how GD++ carries five eigenvalues."""
        here = self.table[str(self.context)]
        nodes, weights = (torch.tensor(here[name], dtype=torch.float64) for name in ("nodes", "weights"))
        bulk = _bulk(weights)
        low, high = nodes[bulk[0]].item(), nodes[bulk[-1]].item()
        grid = REACH * self.scale**2 * high * torch.arange(POINTS, dtype=torch.float64) / (POINTS - 1)
        chosen = self.scale**2 * nodes[bulk]
        return {
            "grid": grid.tolist(),
            "nodes": chosen.tolist(),
            "spread": [self.scale**2 * low, self.scale**2 * high],
            "residuals": {name: self._run(name, self.layers, grid)[0].tolist() for name in STYLES},
            "losses": {
                name: [_bounded(self._run(name, k, self.scale**2 * nodes)[0].square() @ weights / DIM) for k in range(1, 5)]
                for name in STYLES
            },
            "carried": self._run("gdpp", self.layers, chosen)[1].tolist(),
        }

    def draw_still(self, figure: Figure) -> None:
        """Residuals on the left; on the right what `view` says."""
        numbers = self.compute()
        left, right = figure.subplots(1, 2)
        left.axhline(0, color="black", lw=0.8)
        for name, (label, colour, dashes) in STYLES.items():
            left.plot(numbers["grid"], numbers["residuals"][name], dashes, color=colour, label=label)
        left.plot(numbers["nodes"], [-1.05] * len(numbers["nodes"]), "|", color="black", ms=7)
        left.set(xlabel="eigenvalue λ", ylabel=f"residual after {self.layers} layers", ylim=(-1.1, 1.1))
        left.legend(fontsize=8)
        if self.view == "loss":
            for name, (_, colour, dashes) in STYLES.items():
                losses = [float("nan") if value is None else value for value in numbers["losses"][name]]
                right.plot(range(1, 5), losses, f"o{dashes}", color=colour)
            right.set(yscale="log", xlabel="layers", ylabel="loss / d", xticks=range(1, 5))
        else:
            carried = torch.tensor(numbers["carried"]).clamp(min=1e-12)
            right.plot(range(self.layers), carried / carried.max(1, keepdim=True).values, "o-", color=ORANGE, lw=1)
            right.set(yscale="log", xlabel="layer", ylabel="eigenvalue / largest", xticks=range(self.layers))

    def __repr__(self):
        return f"GdppExplorer(context={self.context}, layers={self.layers}, scale={self.scale}, view={self.view!r})"


def _bulk(weights: Tensor) -> list[int]:
    """Indices of the quadrature's nodes that carry at least a ten-thousandth of the mass each."""
    return [index for index, weight in enumerate((weights / weights.sum()).tolist()) if weight >= 1e-4]


def _bounded(value: Tensor) -> float | None:
    """A number up to 10³⁰ as it is, None for others."""
    return value.item() if value <= BEYOND else None
