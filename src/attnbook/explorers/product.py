"""Four recorded runs by epoch: influences of the relevant tokens, readout, parity coefficient, its cost, and loss."""

import functools
import math

import torch
import traitlets

from attnbook.explorer import Explorer, Numbers
from attnopt.clustering import Models, Task, influences, load_run, log_cosh_half, margins, parity_coefficient
from attnopt.clustering.trained import SHAPES

TASK = Task()
RUNS = {  # the recorded run, the last epoch shown, and the interval of frames until near the escape
    "three": ("partial_invariance", 310, 1),
    "two": ("spike", 400, 1),
    "none": ("pattern", 880, 3),
    "never": ("failure", 1000, 5),
}
REACH = 400.0  # from a frame to the end of its run, no influence grows by this factor
FLOOR = 1e-15  # parity coefficients up to this size are rounding errors
CURVES = ("influences", "parity", "cost", "loss")


def _digits(value, count: int = 6):
    """Numbers, or lists of them, to some significant digits."""
    return [_digits(part, count) for part in value] if isinstance(value, list) else float(f"{value:.{count}g}")


@functools.cache
def recorded() -> dict:
    """For each of the four runs: its epochs, the weights at each epoch (named as in `Models`), and the curves."""
    found = {}
    for name, (run_name, last, every) in RUNS.items():
        run = load_run(run_name)
        loss = run.history["loss"][torch.searchsorted(torch.from_numpy(run.history["epoch"]), torch.from_numpy(run.epochs))]
        kept, since = [], every
        for frame, epoch in enumerate(run.epochs):
            since += 1
            if epoch <= last and (since >= every or (name != "never" and loss[frame] < 0.68 and since * 2 >= every)):
                kept, since = [*kept, frame], 0
        weights = {part: _digits(run.models.weights[part][kept].tolist(), 5) for part in SHAPES}
        models = _as_models(weights)
        margin = torch.cat([margins(models[[at]]) for at in range(len(models))])
        parity, cost = parity_coefficient(margin, TASK.k), 2 * log_cosh_half(margin).mean(1)
        found[name] = {
            "epochs": run.epochs[kept].tolist(),
            "weights": weights,
            "influences": _digits(influences(models)[:, : TASK.k].tolist()),
            "parity": _digits(parity.tolist()),
            "cost": _digits(cost.tolist()),
            "loss": _digits((math.log(2) + (cost - parity) / 2).tolist()),
        }
    return found


class ProductExplorer(Explorer):
    """The five influences ‖δ_t‖ of a training run, the parity coefficient with its two factors and its cost, and the loss.

    The parity coefficient is the product of the influences times the readout factor. Each influence at an epoch can be
    multiplied by a factor, from 0 up to 2 or to the factor that gives its value at the end of the run, whichever is larger.
    This rescales δ_t, the difference of two vectors, and leaves their midpoint and all other weights unchanged.

    Traits:
        run: one of four recorded runs: in "three", three influences start small; in "two", two stay small for long; in
            "none", none starts small; "never" does not leave the plateau.
        epoch: the explorer shows the last frame at or before this epoch.
        factors: factors of the five influences at that epoch; a factor above its maximum counts as the maximum.
        record: epochs, weights, and curves of the runs; see `recorded`.
    """

    module = "product"
    alt = (
        "Two columns of three panels. On the left, over the epochs of a training run: the influences of the five counted "
        "tokens on a logarithmic scale, which grow one after another; the parity coefficient below its cost, which jumps "
        "above it by a factor of hundreds when the last influence has grown; and the loss, which stays at log 2 until then. "
        "On the right the same at one epoch, as bars, of which the five influences can be dragged."
    )
    run = traitlets.Enum(tuple(RUNS), default_value="three").tag(sync=True)
    epoch = traitlets.Int(142, min=0, max=1000).tag(sync=True)
    factors = Numbers([1.0] * 5, 0.0, REACH)
    record = traitlets.Dict().tag(sync=True)

    @traitlets.default("record")
    def _default_record(self):
        return recorded()

    @traitlets.validate("record")
    def _check_record(self, proposal):
        record = proposal["value"]
        if set(record) != set(RUNS):
            raise traitlets.TraitError(f"record must be of the runs {', '.join(RUNS)}, got {sorted(record)}")
        for name, one in record.items():
            if set(one) != {"epochs", "weights", *CURVES}:
                raise traitlets.TraitError(
                    f"record of {name} must have epochs, weights, {', '.join(CURVES)}, got {sorted(one)}"
                )
            try:
                arrays = _as_models(one["weights"]).weights
            except (TypeError, ValueError) as error:
                raise traitlets.TraitError(f"record of {name}: {error}") from None
            if {part: tuple(value.shape[1:]) for part, value in arrays.items()} != SHAPES:
                raise traitlets.TraitError(f"record of {name}: weights must have the shapes {SHAPES}")
            if not all(value.isfinite().all() for value in arrays.values()):
                raise traitlets.TraitError(f"record of {name}: weights must be finite")
            if any(len(one[part]) != len(arrays["token"]) for part in ("epochs", *CURVES)):
                raise traitlets.TraitError(f"record of {name}: epochs and curves must be as many as the weights")
        return record

    def _frame(self) -> int:
        """The index of the last frame at or before the epoch."""
        return max(at for at, epoch in enumerate(self.record[self.run]["epochs"]) if epoch <= self.epoch)

    def compute(self) -> dict:
        """The five influences at the epoch times their factors, and the resulting product, readout, π, its cost, and loss.

        ``changes`` are the resulting factors of product, readout, and the parity coefficient π; 0 / 0 is given as 0.
        """
        frame, one = self._frame(), self.record[self.run]
        here, end = (torch.tensor(one["influences"][at], dtype=torch.float64) for at in (frame, -1))
        factors = torch.ones(TASK.length, dtype=torch.float64)
        factors[: TASK.k] = torch.minimum(torch.tensor(self.factors, dtype=torch.float64), (end / here).clamp(min=2))
        model = _as_models(one["weights"])[frame]
        margin = margins(model, factors)[0]
        parity, cost = parity_coefficient(margin, TASK.k).item(), 2 * log_cosh_half(margin).mean().item()
        sizes = (factors * influences(model)[0])[: TASK.k]
        product, grown, before = sizes.prod().item(), factors.prod().item(), one["parity"][frame]
        change = parity / before if grown and abs(before) > FLOOR else 0.0
        return {
            "influences": sizes.tolist(),
            "times": (sizes / here).tolist(),
            "product": product,
            "readout": parity / product if product else 0.0,
            "parity": parity,
            "cost": cost,
            "loss": math.log(2) + (cost - parity) / 2,
            "changes": [grown, change / grown if grown else 0.0, change],
        }

    def __repr__(self):
        shown = {name: value for name, value in self.state().items() if name != "record"}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def _as_models(weights: dict) -> Models:
    """The models of the frames, from lists of their weights."""
    return Models({name: torch.tensor(value, dtype=torch.float64) for name, value in weights.items()}, "rms")
