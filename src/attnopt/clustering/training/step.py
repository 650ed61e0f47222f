"""Training steps: Adam on mini-batches for many models at once, in PyTorch. `compiled.py` has the same steps in C."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from attnopt.clustering.model import Norm, marks
from attnopt.clustering.training.backward import (
    Layout,
    attend,
    cross_entropy,
    feed_forward,
    loss_and_gradients,
    normalizer,
    pair_table,
)
from attnopt.clustering.training.settings import Grid

# Seed of the order of the mini-batches, which all models share. A generator on the CPU reads 32 bits of a seed, so the order
# of epoch e is drawn with seed e.
ORDER_SEED = 0
FEED_FORWARD = ("receptors", "assemblers", "receptor_biases", "assembler_bias")
CHUNK = 2**19  # activations evaluated at a time; 256 times as many on a GPU
Sequences = tuple[Tensor, Tensor]
Predictions = tuple[Tensor, Tensor, Tensor]


class State(NamedTuple):
    """Training state of M models: ``rows`` of weights, Adam's two moments (M, n), and the ``steps`` done so far (M,)."""

    rows: Tensor
    first: Tensor
    second: Tensor
    steps: Tensor

    @classmethod
    def of(cls, rows: Tensor) -> "State":
        """The state before the first step of these rows, which the steps then change in place."""
        steps = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        return cls(rows, torch.zeros_like(rows), torch.zeros_like(rows), steps)


class Pace(NamedTuple):
    """Hyperparameters of a training step.

    ``size`` is the number of sequences in a mini-batch; ``betas`` and ``eps`` are Adam's; ``rates`` are learning rates, one
    number or (M, n); decoupled weight decay multiplies the weights by ``shrink`` (M, n) before a step; ``clip`` (M, 1) is
    the maximum gradient norm.
    """

    size: int
    betas: tuple[float, float]
    eps: float
    rates: Tensor | float
    shrink: Tensor | None = None
    clip: Tensor | None = None

    @classmethod
    def of(cls, settings: Grid, layout: Layout, rows: Tensor) -> "Pace":
        """The hyperparameters of models that share a batch size, from settings with one value per model."""
        column = lambda values: torch.tensor(values, dtype=rows.dtype, device=rows.device).unsqueeze(-1)  # noqa: E731
        rates = column(settings.learning_rate).expand_as(rows).clone()
        for name in FEED_FORWARD:
            rates[:, layout.spans()[name]] /= column(settings.mlp_discount)
        shrink = 1 - column(settings.weight_decay) * rates if any(settings.weight_decay) else None
        clip = column(settings.clip) if min(settings.clip) < math.inf else None
        return cls(settings.batch_size[0], settings.betas, settings.eps, rates, shrink, clip)


def order_of(epoch: int, count: int) -> Tensor:
    """The order in which an epoch goes through ``count`` sequences."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(ORDER_SEED + epoch))


def adam(state: State, gradient: Tensor, pace: Pace) -> None:
    """Change the state by one Adam step for the gradient (M, n)."""
    slow, slower = pace.betas
    state.steps.add_(1)
    if state.steps.is_cuda:  # while a graph of steps is captured, nothing may be read back
        counts = state.steps.double()
        factors = torch.stack([1 / (1 - slow**counts), 1 - slower**counts], 1)
    else:
        known = {count: (1 / (1 - slow**count), 1 - slower**count) for count in set(state.steps.tolist())}
        factors = torch.tensor([known[count] for count in state.steps.tolist()], dtype=torch.float64)
    bias, bias_of_squares = factors.to(state.rows).mT.unsqueeze(-1)
    state.first.lerp_(gradient, 1 - slow)
    state.second.mul_(slower).addcmul_(gradient, gradient, value=1 - slower)
    if pace.shrink is not None:
        state.rows.mul_(pace.shrink)
    root = (state.second / bias_of_squares).sqrt_().add_(pace.eps)
    state.rows.addcdiv_(state.first * pace.rates * bias, root, value=-1)


class Plain:
    """Training steps in PyTorch, for models that each have their own data.

    Args:
        layout: layout of the models' rows.
        norm: the models' normalization.
        tokens: training sequences, shape (M, n, L).
        targets: their labels, shape (M, n).
        dtype: dtype of the rows.
    """

    def __init__(self, layout: Layout, norm: Norm, tokens: Tensor, targets: Tensor, dtype: torch.dtype):
        self.layout, self.norm, self.dtype = layout, norm, dtype
        self.data = self.sequences(tokens, targets)
        spans = layout.spans()
        self.members = torch.zeros(layout.size, len(spans), dtype=dtype, device=tokens.device)  # columns of each parameter
        for at, span in enumerate(spans.values()):
            self.members[span, at] = 1.0
        self.captured: Any = None  # on a GPU, a graph of an epoch, the tensors it changes, and its inputs

    def sequences(self, tokens: Tensor, labels: Tensor) -> Sequences:
        """Sequences (…, n, L) as `marks` (…, n, pL), and labels (…, n) in one-hot form (…, p, n)."""
        vocabulary, _ = self.layout.shapes["token"]
        return marks(tokens, vocabulary, self.dtype), one_hot(labels, vocabulary).mT.to(self.dtype)

    def steps(
        self, state: State, order: Tensor, pace: Pace, squares: Tensor | None = None, spread: Tensor | None = None
    ) -> Iterator[Tensor]:
        """Step through the training sequences, changing the state; after each step, yield its mini-batches' losses (M,).

        Args:
            state: state of the models.
            order: order of the sequences, shape (n,), or one order per model, (M, n).
            pace: hyperparameters of the steps.
            squares: tensor to which the squared gradient norm of each parameter, before clipping, is added, shape
                (M, parameters).
            spread: see `exponentials`.
        """
        (marked, truth), order = self.data, order.to(state.rows.device)
        if order.ndim == 1:
            marked, truth = marked.index_select(1, order), truth.index_select(2, order)
        else:
            marked = marked.gather(1, order.unsqueeze(2).expand_as(marked))
            truth = truth.gather(2, order.unsqueeze(1).expand_as(truth))
        gradient = torch.zeros_like(state.rows)
        views, gradients = self.layout.views(state.rows), self.layout.views(gradient)
        for at in range(0, order.shape[-1], pace.size):
            batch = slice(at, at + pace.size)
            losses = loss_and_gradients(views, gradients, marked[:, batch], truth[..., batch], self.norm, spread)
            lengths = gradient.square() @ self.members
            if squares is not None:
                squares += lengths
            if pace.clip is not None:
                gradient.mul_((pace.clip / lengths.sum(1, keepdim=True).sqrt()).clamp_max(1.0))
            adam(state, gradient, pace)
            yield losses

    def epoch(self, state: State, order: Tensor, pace: Pace, squares: Tensor, spread: Tensor) -> None:
        """Take all `steps`; on a GPU as one CUDA graph, whose kernels need not be launched one by one."""
        if state.rows.is_cuda:
            self.replay(state, order.to(state.rows.device), pace, squares, spread)
        else:
            self.run(state, order, pace, squares, spread)

    def run(self, *given: Any) -> None:
        """Take all steps, one after another."""
        for _ in self.steps(*given):
            pass

    def replay(self, state: State, order: Tensor, pace: Pace, squares: Tensor, spread: Tensor) -> None:
        """Replay the graph of an epoch, capturing it first if there is none for this state."""
        changed = (*state, squares)
        if self.captured is None or any(one is not other for one, other in zip(self.captured[1], changed, strict=True)):
            with torch.cuda.device(state.rows.device):
                copies, side = [value.clone() for value in changed], torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):  # the first steps initialize libraries, which a graph must not do
                    self.run(State(*copies[:4]), order[..., : 2 * pace.size], pace, copies[4], spread.clone())
                torch.cuda.current_stream().wait_stream(side)
                graph, own = torch.cuda.CUDAGraph(), (order.clone(), spread.clone())
                with torch.cuda.graph(graph):
                    self.run(state, own[0], pace, squares, own[1])
            self.captured = graph, changed, own
        graph, _, own = self.captured
        for value, given in zip(own, (order, spread), strict=True):
            value.copy_(given)
        graph.replay()
        spread.copy_(own[1])

    def predict(self, rows: Tensor, data: Sequences | None = None, spread: Tensor | None = None) -> Predictions:
        """Losses, whether the label's logit exceeds all others (both (M, n)), and sequence embeddings (M, d, n).

        Args:
            rows: weights, one row per model.
            data: as returned by `sequences`, per model or the same for all; by default, each model's own training set.
            spread: see `exponentials`.
        """
        views, (batch, truth) = self.layout.views(rows), self.data if data is None else data
        batch, count = batch.expand(len(rows), -1, -1), batch.shape[-2]
        batch = torch.cat([batch, batch[:, :1].expand(-1, -count % 32, -1)], 1) if count % 32 else batch
        most = CHUNK * (256 if rows.is_cuda else 1)
        chunk = max(32, most // (len(rows) * views["receptors"].shape[1]) // 32 * 32)
        known = pair_table(views, self.norm, spread)["rows"]
        logits, sequences = [], []
        for part in batch.split(chunk, 1):
            sequence, _ = attend(known, part)
            factor, _ = normalizer(sequence, self.norm)
            logits.append(torch.bmm(views["token"], feed_forward(views, sequence, sequence * factor)[2]))
            sequences.append(sequence)
        logits, sequence = torch.cat(logits, 2)[..., :count], torch.cat(sequences, 2)[..., :count]
        losses, _ = cross_entropy(logits, truth)
        rival = logits.masked_fill(truth > 0, -math.inf).amax(1)
        right = (rival < (logits * truth).sum(1)).to(losses.dtype)
        return losses, right, sequence
