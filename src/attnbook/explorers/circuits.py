"""The 200 trained models of Part III as points, and the circuit of the chosen one."""

import base64

import numpy as np
import torch
import traitlets

from attnbook.explorer import Explorer
from attnopt.clustering import Task, load_model, load_models
from attnopt.clustering.interventions import answers, level_means, levels
from attnopt.clustering.trained import SHAPES, load_overview

TASK, MODELS = Task(), 200
SUCCESS = 0.9  # accuracy
MOST = 60  # most levels that are listed


def _data() -> dict:
    """The weights of all models in the form that the page contains, and the recorded statistics of each."""
    weights = torch.cat([load_models().weights[name].flatten(1) for name in SHAPES], 1).float().numpy()
    found = {name: value.tolist() for name, value in load_overview().items()}
    return found | {"weights": base64.b64encode(np.ascontiguousarray(weights.astype("<f4")).tobytes()).decode()}


class CircuitsExplorer(Explorer):
    """All 200 trained models: accuracy against the number of levels of the weighted count M, and one model's circuit.

    Traits:
        seed: seed of the model shown, 0 … 199.
        shown: "trained" for the sequence embeddings ξ as they are, or "levels" for the mean of ξ over each level of M.
        data: the weights of all models and the recorded statistics of each, in the form that the page contains.
    """

    module = "circuits"
    alt = (
        "Four pictures. Two hundred points show accuracy against the number of levels: with up to ten levels nearly all are "
        "near 1, with more they fall. For the chosen model: twelve bars, its integer weights, odd at the first five "
        "positions and even at the others; its embeddings around the unit circle with the query; its sequence embeddings in "
        "clusters numbered by the level of the count, of alternating label."
    )
    seed = traitlets.Int(2, min=0, max=MODELS - 1).tag(sync=True)
    shown = traitlets.Enum(("trained", "levels"), default_value="trained").tag(sync=True)
    data = traitlets.Dict().tag(sync=True)

    @traitlets.default("data")
    def _default_data(self):
        return _data()

    def compute(self) -> dict:
        """For the chosen model: m, table of embeddings, query, ξ of every 273rd sequence, levels, and accuracies.

        ``levels`` has a row for each level, with its value of M, its share of the sequences, and the mean of ξ, and is empty
        if there are more than sixty. Over all sequences, ``trained`` is the accuracy, and ``accuracy`` the one as ``shown``.
        """
        model, m = load_model(self.seed), load_overview()["m"][self.seed]
        tokens, targets = TASK.all()
        sequence, level = model.sequences(tokens), levels(m[None], TASK)
        means = level_means(sequence, level)
        values, counts = level[0].unique(return_counts=True)
        rows = [
            [int(value), int(count) / len(tokens), *means[0, (level[0] == value).int().argmax()].tolist()]
            for value, count in zip(values, counts, strict=True)
        ]
        share = lambda xi: (answers(model, xi)[0] == targets).double().mean().item()  # noqa: E731
        known = load_overview()
        won = known["m"][known["accuracy"] > SUCCESS][:, TASK.k :]
        some = (won != 0).any(1)
        shown = means if self.shown == "levels" else sequence
        return {
            "m": m.tolist(),
            "table": model.table()[0].tolist(),
            "query": model.weights["query"][0].tolist(),
            "sequence": shown[0, :: len(tokens) // 15].tolist(),
            "count": len(values),
            "levels": rows if len(rows) <= MOST else [],
            "trained": share(sequence),
            "accuracy": share(shown),
            "successful": [len(won), int(some.sum()), int((won[some] % 2 == 0).all(1).sum())],
        }

    def __repr__(self):
        return f"{type(self).__name__}(seed={self.seed}, shown={self.shown!r})"
