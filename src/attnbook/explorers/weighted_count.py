"""A standard transformer that counts bits: what its heads attend to, its count, and its answer, as the bits change."""

import base64
import functools
from pathlib import Path

import numpy as np
import torch
import traitlets

from attnbook.explorer import Explorer
from attnopt.standard import Transformer, as_one_hot

DATA = Path(__file__).with_name("weighted_count.npz")
LENGTH, RELEVANT, WIDTH = 12, 5, 16
MODELS = ("plain", "twos")


@functools.cache
def recorded() -> dict[str, tuple[Transformer, torch.Tensor, list]]:
    """For each model: its transformer, the affine function that reads its count from a state, and its levels."""
    found = {}
    with np.load(DATA, allow_pickle=False) as arrays:
        for name in MODELS:
            parts = (arrays[f"{name}_{part}"].astype(np.float64) for part in ("weights", "reading", "levels"))
            flat, reading, levels = map(torch.from_numpy, parts)
            model = Transformer(3, 2, LENGTH + 1, width=WIDTH, layers=1).double().requires_grad_(False)
            torch.nn.utils.vector_to_parameters(flat, model.parameters())
            found[name] = model, reading, levels.tolist()
    return found


class WeightedCountExplorer(Explorer):
    """A transformer of one layer, width 16, and four heads, trained on the parity of the first five of twelve bits.

    Traits:
        tokens: the twelve bits.
        model: "plain", whose count has the weight 1 on each relevant bit, or "twos", which adds twice bit 10 to it.
        bit: the bit, 1 to 12, whose flip the picture highlights.
        data: for each model: the weights, the affine function that reads its count from the last token's state after
            attention, and the mean count and margin of the sequences of each level (base64 of float32).
    """

    module = "weighted_count"
    alt = (
        "Left: twelve bits, the first five of them apart, and below each how much the four heads attend to it. Right: the "
        "margin, up for odd and down for even, against the model's count. Hollow circles for the levels of the count "
        "alternate between up and down; a filled circle shows the sequence, small dots those that differ from it in one bit."
    )
    tokens = traitlets.List(
        traitlets.Int(min=0, max=1), default_value=[1, 0, 1, 1, 0, 0, 1, 0, 0, 1, 1, 0], minlen=LENGTH, maxlen=LENGTH
    ).tag(sync=True)
    model = traitlets.Enum(MODELS, default_value="twos").tag(sync=True)
    bit = traitlets.Int(10, min=1, max=LENGTH).tag(sync=True)
    data = traitlets.Dict().tag(sync=True)

    @traitlets.default("data")
    def _recorded_data(self) -> dict:
        with np.load(DATA, allow_pickle=False) as arrays:
            return {name: base64.b64encode(arrays[name].astype(np.float32).tobytes()).decode() for name in arrays}

    def bounds(self, kernel: bool = True) -> dict:
        """The traits' bounds; tokens are 0 or 1."""
        return super().bounds(kernel) | {"tokens": {"values": [0, 1]}}

    def compute(self) -> dict:
        """The heads' attention, the count and margin of the sequence and of its one-bit neighbors, and the levels."""
        model, reading, levels = recorded()[self.model]
        tokens = torch.tensor([self.tokens] * (LENGTH + 1))
        tokens[1:] = torch.where(torch.eye(LENGTH, dtype=torch.bool), 1 - tokens[1:], tokens[1:])
        states = model.states(as_one_hot(tokens, 2).double())
        after = states[1][:, -1]
        counts = after @ reading[:-1] + reading[-1]
        logits = model.read(states[-1][:, -1])
        margins = logits[:, 1] - logits[:, 0]
        norm, attention = model.parts[0]
        shares = attention.weights(norm(states[0][:1]))[0, :, -1]
        return {
            "attention": shares.tolist(),
            "count": counts[0].item(),
            "margin": margins[0].item(),
            "flips": torch.stack([counts[1:], margins[1:]], 1).tolist(),
            "shifts": (counts[1:] - counts[0]).tolist(),
            "levels": levels,
        }
