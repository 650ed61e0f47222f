"""One sequence of sparse modular addition in each stage of a model that is trained, untrained, or built by hand."""

import torch
import traitlets

from attnbook.explorer import Explorer, Interval
from attnbook.explorers.ideal_circuit import IdealCircuitExplorer
from attnopt.clustering import Models, Task, load_run

LENGTH, PREFIX = 12, 5
RUN = "success"  # the recorded run whose last and first frames are the trained and the untrained model
SCALES = {"query": "query_scale", "value": "value_scale", "assemblers": "neuron_scale"}
SHAPES = {"token": (2, 2), "position": (LENGTH, 2)}
KINDS = ("trained", "untrained", "ideal")


def _chosen() -> dict:
    """Weights of the three models; those of the run are rounded to six decimals.

    The run's models have RMS-norm. With q, V, and W multiplied by √d = √2, unit norm gives the same models, except for the
    1e-5 in RMS-norm.
    """
    frames, found = load_run(RUN).models, {}
    for name, frame in (("trained", len(frames) - 1), ("untrained", 0)):
        weights = {part: value[frame] for part, value in frames.weights.items()}
        weights |= {part: 2**0.5 * weights[part] for part in ("query", "value", "receptors")}
        found[name] = {part: (value * 1e6).round().div(1e6).tolist() for part, value in weights.items()}
    ideal = IdealCircuitExplorer().model().weights
    return found | {"ideal": {name: value[0].tolist() for name, value in ideal.items()}}


class TaskModelExplorer(Explorer):
    """The stages of a model with d = 2 for a sequence of twelve zeros and ones, of which the first five are relevant.

    Traits:
        tokens: twelve tokens, 0 or 1.
        model: "trained" or "untrained", the last and the first epoch of a recorded run, or "ideal", Figure 1 of Odonnat
            et al. (2025) with weights set by hand.
        query_scale: factor that multiplies the query.
        value_scale: factor that multiplies the value matrix.
        neuron_scale: factor that multiplies the assemblers (the neurons' output weights).
        weights: weights of the three models, for each a dict of lists, named and shaped as in `Models`, with unit norm.
    """

    module = "task_model"
    alt = (
        "Four pictures of one sequence on its way through a model. The unit circle with the twelve normalized embeddings, "
        "larger where attention is larger, and the query as an arrow; attention as twelve bars, five of the prefix and "
        "seven of the suffix; the plane of sequence embeddings, where those of all sequences lie in six clusters of "
        "alternating label, each in a region of its answer, and the one of this sequence is marked; the neurons' pushes "
        "toward one answer or the other, and the logits."
    )
    tokens = traitlets.List(
        traitlets.Int(min=0, max=1), default_value=[1, 0, 1, 1, 0, 0, 1, 0, 0, 1, 1, 0], minlen=LENGTH, maxlen=LENGTH
    ).tag(sync=True)
    model = traitlets.Enum(KINDS, default_value="trained").tag(sync=True)
    query_scale = Interval(1.0, 0, 3)
    value_scale = Interval(1.0, -2, 2)
    neuron_scale = Interval(1.0, 0, 2)
    weights = traitlets.Dict().tag(sync=True)

    @traitlets.default("weights")
    def _default_weights(self):
        return _chosen()

    @traitlets.validate("weights")
    def _check_weights(self, proposal):
        weights = proposal["value"]
        if set(weights) != set(KINDS):
            raise traitlets.TraitError(f"weights must be of the models {', '.join(KINDS)}, got {sorted(weights)}")
        for name, params in weights.items():
            try:
                arrays = _as_model(params).weights
            except (TypeError, ValueError) as error:
                raise traitlets.TraitError(f"weights of {name}: {error}") from None
            for part, shape in SHAPES.items():
                if arrays[part].shape[1:] != shape:
                    raise traitlets.TraitError(f"weights of {name}: {part} must have shape {shape}")
            if not all(value.isfinite().all() for value in arrays.values()):
                raise traitlets.TraitError(f"weights of {name} must be finite")
        return weights

    def bounds(self, kernel: bool = True) -> dict:
        """The traits' bounds; tokens are 0 or 1."""
        return super().bounds(kernel) | {"tokens": {"values": [0, 1]}}

    def _scaled(self) -> Models:
        """The chosen model with its three factors."""
        model = _as_model(self.weights[self.model])
        return model.replace(**{name: model.weights[name] * getattr(self, scale) for name, scale in SCALES.items()})

    def compute(self) -> dict:
        """The model's stages for the sequence, the tokens that determine the answer, and the model's accuracy.

        ``pushes`` is each neuron's contribution to ζ₁ - ζ₀, ``flips`` is 1 for each token whose change changes the answer,
        and ``accuracy`` is over all sequences.
        """
        model = self._scaled()
        stages = model.stages(torch.tensor([self.tokens]))
        logits, weights = stages["logits"], model.weights
        activations = torch.nn.functional.gelu(stages["activations"][0, 0])
        difference = weights["token"][0, 1] - weights["token"][0, 0]
        turned = torch.tensor(self.tokens) ^ torch.eye(LENGTH, dtype=torch.long)
        tokens, labels = Task(2, LENGTH, PREFIX).all()
        answers = lambda rows: _answers(model.logits(rows)[0])  # noqa: E731
        kept = ("embeddings", "attention", "sequence", "direction", "output")
        return {name: stages[name][0, 0].tolist() for name in kept} | {
            "activations": activations.tolist(),
            "pushes": (activations * (difference @ weights["assemblers"][0])).tolist(),
            "logits": logits[0, 0].tolist(),
            "probabilities": logits[0, 0].softmax(-1).tolist(),
            "label": sum(self.tokens[:PREFIX]) % 2,
            "ones": sum(self.tokens[:PREFIX]),
            "on_prefix": stages["attention"][0, 0, :PREFIX].sum().item(),
            "length": stages["sequence"][0, 0].norm().item(),
            "flips": (answers(turned) ^ _answers(logits[0])).tolist(),
            "accuracy": (answers(tokens) == labels).double().mean().item(),
        }

    def __repr__(self):
        shown = {name: value for name, value in self.state().items() if name != "weights"}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


def _as_model(weights: dict) -> Models:
    """An ensemble of one model, from lists of its weights."""
    return Models({name: torch.tensor(value, dtype=torch.float64)[None] for name, value in weights.items()}, "unit")


def _answers(logits: torch.Tensor) -> torch.Tensor:
    """The answers for logits (…, 2): 1 where the second logit is larger, and 0 otherwise, also for ties up to rounding."""
    return (logits[..., 1] - logits[..., 0] > 1e-12).long()
