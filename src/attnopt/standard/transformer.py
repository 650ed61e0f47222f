"""A standard transformer in PyTorch; the states between its parts can be read and replaced."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnopt.checks import check_count, check_number

BATCH = 128


class Attention(nn.Module):
    """Causal softmax attention with several heads: a token sees itself and those before it.

    Args:
        width: width of the residual stream.
        heads: number of heads, which divide the width among them.
    """

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, last: bool = False) -> Tensor:
        """The output of attention at every token, or only at the last, for normalized states, shape (..., T, width)."""
        q, k, v = self.split(x)
        if last:
            mixed = F.scaled_dot_product_attention(q[..., -1:, :], k, v)  # it sees all tokens
        else:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(-3, -2).flatten(-2))

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries, keys, and values of each head, shape (..., heads, T, width / heads) each."""
        return tuple(part.unflatten(-1, (self.heads, -1)).transpose(-3, -2) for part in self.qkv(x).chunk(3, -1))

    def weights(self, x: Tensor) -> Tensor:
        """The attention weights of each query, shape (..., heads, T, T); rows sum to 1."""
        q, k, _ = self.split(x)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        return scores.masked_fill(hidden, -torch.inf).softmax(-1)


class Transformer(nn.Module):
    """Learned positions, layers of x ← x + attention(LN(x)) and x ← x + MLP(LN(x)), and a linear readout.

    The attribute ``parts`` holds the 2 · layers parts that add to the state, attention and MLP in turn; ``forward`` applies
    ``embed``, every part, and ``read``.

    Args:
        inputs: size of a token vector.
        outputs: numbers read from each token.
        positions: maximum number of tokens in a sequence.
        width: width of the residual stream.
        layers: number of layers.
        heads: number of heads in each layer.

    Source: Vaswani et al. (2017), with LayerNorm before each part as in Radford et al. (2019).
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        positions: int,
        width: int = 64,
        layers: int = 3,
        heads: int = 4,
    ):
        super().__init__()
        for name in ("inputs", "outputs", "positions", "width", "layers", "heads"):
            check_count(name, locals()[name])
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, {heads}, got {width}")
        self.embedding = nn.Linear(inputs, width)
        self.position = nn.Parameter(0.02 * torch.randn(positions, width))
        self.parts = nn.ModuleList()
        for _ in range(layers):
            self.parts.append(nn.Sequential(nn.LayerNorm(width), Attention(width, heads)))
            mlp = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
            self.parts.append(nn.Sequential(nn.LayerNorm(width), *mlp))
        self.readout = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, outputs))

    def embed(self, tokens: Tensor) -> Tensor:
        """The embeddings, shape (..., T, width), of tokens, shape (..., T, inputs)."""
        if tokens.ndim < 2 or tokens.shape[-1] != self.embedding.in_features or tokens.shape[-2] > len(self.position):
            wanted = f"(..., at most {len(self.position)}, {self.embedding.in_features})"
            raise ValueError(f"tokens must have shape {wanted}, got {tuple(tokens.shape)}")
        return self.embedding(tokens) + self.position[: tokens.shape[-2]]

    def read(self, state: Tensor) -> Tensor:
        """The outputs, shape (..., outputs), read from states, shape (..., width), after any part of the model."""
        return self.readout(state)

    def forward(self, tokens: Tensor) -> Tensor:
        """The outputs at every token, shape (..., T, outputs), of tokens, shape (..., T, inputs)."""
        return self.read(self.states(tokens)[-1])

    def last(self, tokens: Tensor) -> Tensor:
        """The output at the last token, shape (..., outputs), in less time than ``forward`` takes."""
        return self.read(self.last_states(tokens)[-1])

    def last_states(self, tokens: Tensor) -> Tensor:
        """The last token's states after the embedding and after each part, in less time than ``states`` takes.

        The last layer computes nothing else, and sequences are taken `BATCH` at a time, so that their states fit the
        processor's cache.

        Args:
            tokens: token vectors, shape (..., T, inputs).

        Returns:
            Shape (2 · layers + 1, ..., width).
        """
        found, embedded = [], self.embed(tokens)
        for batch in embedded.reshape(-1, *embedded.shape[-2:]).split(BATCH):
            states = [batch]
            for part in self.parts[:-2]:
                states.append(states[-1] + part(states[-1]))
            norm, attention = self.parts[-2].children()
            kept = [state[:, -1] for state in states]
            kept.append(kept[-1] + attention(norm(states[-1]), last=True)[:, 0])
            kept.append(kept[-1] + self.parts[-1](kept[-1]))
            found.append(torch.stack(kept))
        return torch.cat(found, 1).reshape(-1, *embedded.shape[:-2], embedded.shape[-1])

    def states(self, tokens: Tensor, change: Callable[[int, Tensor], Tensor] | None = None) -> list[Tensor]:
        """The states after the embedding and after each part, shape (..., T, width) each.

        Args:
            tokens: token vectors, shape (..., T, inputs).
            change: called as ``change(i, state)`` with i = 0 for the embedding and i = 1, 2, … after each part. Its
                result replaces the state, also for all later parts.

        Returns:
            2 · layers + 1 states.
        """
        state = self.embed(tokens)
        found = [state if change is None else change(0, state)]
        for i, part in enumerate(self.parts, 1):
            state = found[-1] + part(found[-1])
            found.append(state if change is None else change(i, state))
        return found


def train(model: nn.Module, loss: Callable[[], Tensor], steps: int, rate: float = 1e-3, warmup: int = 500) -> None:
    """Minimize a loss by Adam, with a learning rate that rises linearly during warm-up and falls along a cosine to zero.

    Args:
        model: the model to train.
        loss: function that returns the loss of a new batch at each call.
        steps: number of steps.
        rate: the base learning rate, which the factors of warm-up and cosine multiply.
        warmup: number of steps of warm-up.
    """
    steps, warmup = check_count("steps", steps), check_count("warmup", warmup, 0)
    check_number("rate", rate)
    optimizer = torch.optim.Adam(model.parameters(), rate, fused=True)
    for step in range(steps):
        share = min(1, (step + 1) / max(warmup, 1)) * (1 + math.cos(math.pi * step / steps)) / 2
        for group in optimizer.param_groups:
            group["lr"] = rate * share
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
