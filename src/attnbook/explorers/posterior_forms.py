"""A standard transformer that predicts a masked word: its belief after each part, and the posterior."""

import base64
import functools
import math
from pathlib import Path

import numpy as np
import torch
import traitlets
from torch import Tensor

from attnbook.explorer import Explorer, Numbers
from attnopt.standard import Transformer, as_one_hot

DATA = Path(__file__).with_name("posterior_forms.npz")
WORDS, TOKENS, WIDTH, LAYERS = 8, 8, 16, 2


@functools.cache
def recorded() -> tuple[Transformer, Tensor]:
    """The trained model, and the topics' distributions over the words."""
    with np.load(DATA, allow_pickle=False) as arrays:
        flat, topics = (torch.from_numpy(arrays[name].astype(np.float64)) for name in ("weights", "topics"))
    model = Transformer(WORDS + 1, WORDS, TOKENS + 1, width=WIDTH, layers=LAYERS).double().requires_grad_(False)
    torch.nn.utils.vector_to_parameters(flat, model.parameters())
    return model, topics


class PosteriorFormsExplorer(Explorer):
    """A transformer of two layers and width 16 that reads eight words of one of four topics and predicts a masked word.

    Traits:
        words: the numbers of the eight words, from 1 to 8, which are rounded.
        part: the part after which the belief is read: 0 for the embedding, then attention and MLP of each layer in turn.
        data: the model's weights and the topics' distributions (base64 of float32).
    """

    module = "posterior_forms"
    alt = (
        "Left: eight columns for the words that are shown, a dot in each at the height of its word, which can be dragged. "
        "Right: for each of the eight words a filled bar, the model's prediction after the chosen part, and a hollow one, "
        "the posterior. They differ at the start and nearly agree after the first layer."
    )
    words = Numbers([4.0, 5.0, 6.0, 5.0, 7.0, 2.0, 6.0, 5.0], 1.0, 8.0)
    part = traitlets.Int(2, min=0, max=2 * LAYERS).tag(sync=True)
    data = traitlets.Dict().tag(sync=True)

    @traitlets.default("data")
    def _recorded_data(self) -> dict:
        with np.load(DATA, allow_pickle=False) as arrays:
            return {name: base64.b64encode(arrays[name].astype(np.float32).tobytes()).decode() for name in arrays}

    def compute(self) -> dict:
        """Beliefs after all parts, posteriors of word and topic, and divergences of beliefs from the word's posterior."""
        model, topics = recorded()
        words = torch.tensor([[math.floor(word + 0.5) - 1 for word in self.words]])
        topic = topics.log()[:, words[0]].sum(-1).softmax(-1)
        posterior = topic @ topics
        logs = torch.stack(
            [model.read(state[0, -1]).log_softmax(-1) for state in model.states(as_one_hot(words, WORDS).double())]
        )
        divergence = (posterior * (posterior.log() - logs)).sum(-1)
        return {
            "beliefs": logs.exp().tolist(),
            "posterior": posterior.tolist(),
            "topics": topic.tolist(),
            "divergence": divergence.tolist(),
        }
