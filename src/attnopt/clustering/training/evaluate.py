"""How well models do, on what they are trained on and on all sequences."""

import math

import torch
from torch import Tensor

from attnopt.clustering.invariance import variance_shares
from attnopt.clustering.model import Norm, Params, marks
from attnopt.clustering.task import LISTED
from attnopt.clustering.training.backward import attend, cross_entropy, feed_forward, normalizer, pair_table
from attnopt.clustering.training.settings import Settings

CHUNK = 2**19  # activations that are evaluated at a time
Predictions = tuple[Tensor, Tensor, Tensor]


class Evaluation:
    """The sequences that models are judged on; those that fill an ensemble up are judged with it.

    Args:
        settings: of the training.
        tokens: its sequences, shape (M, n, L).
        marked: their marks, shape (M or more, n, pL).
        truth: ones at their labels, shape (M or more, n, p).
    """

    def __init__(self, settings: Settings, tokens: Tensor, marked: Tensor, truth: Tensor):
        self.task, self.marks, self.truth = settings.task, marked, truth.mT
        like = {"dtype": marked.dtype, "device": marked.device}
        test, labels = self.sequences = self.task.judged()
        self.listed = self.task.size <= LISTED
        if self.listed:
            powers = self.task.p ** torch.arange(self.task.length - 1, -1, -1, device=like["device"])
            self.seen = torch.zeros(len(marked), len(test), **like)  # how often each is in the training set
            at = (tokens * powers).sum(-1)
            self.seen[: len(at)].scatter_add_(1, at, torch.ones_like(at, dtype=like["dtype"]))
            self.seen[len(at) :] = self.seen[len(at) - 1]
            unseen = (self.seen == 0).to(like["dtype"])
            self.shares = self.seen / self.seen.sum(1, keepdim=True), unseen / unseen.sum(1, keepdim=True)
        self.test = marks(test.to(like["device"]), settings.tokens, like["dtype"])
        self.labels = torch.nn.functional.one_hot(labels.to(like["device"]), settings.tokens).mT.to(like["dtype"])

    def of(self, views: Params, norm: Norm) -> dict[str, Tensor]:
        """Losses, accuracies and, where all sequences are listed, invariances of the models, each of shape (M,)."""
        there = None if self.listed else predict(views, norm, self.marks, self.truth)
        return self.summary(predict(views, norm, self.test.expand(len(self.marks), -1, -1), self.labels), there)

    def summary(self, found: Predictions, there: Predictions | None) -> dict[str, Tensor]:
        """What `of` returns.

        Args:
            found: as from `predict`, on the sequences that models are judged on.
            there: on the training set; None where all sequences are listed.
        """
        losses, right, sequence = found
        if there is not None:
            on_training, right_there, _ = there
            return {
                "loss": on_training.mean(1),
                "accuracy": right_there.mean(1),
                "loss_unseen": losses.mean(1),
                "accuracy_unseen": right.mean(1),
                "accuracy_all": right.mean(1),
            }
        share, unseen = self.shares
        return {
            "loss": (losses * share).sum(1),
            "accuracy": (right * share).sum(1),
            "loss_unseen": (losses * unseen).sum(1),
            "accuracy_unseen": (right * unseen).sum(1),
            "accuracy_all": right.mean(1),
            **variance_shares(sequence.mT, self.task),
        }


def predict(views: Params, norm: Norm, batch: Tensor, truth: Tensor, spread: Tensor | None = None) -> Predictions:
    """Losses and whether the label's logit exceeds all others, (M, n), and sequence embeddings (M, d, n).

    Args:
        views: weights, as from `Layout.views`.
        norm: the models' normalization.
        batch: marks of the sequences, shape (M, n, pL).
        truth: ones at the labels, shape (M, p, n) or (p, n).
        spread: see `exponentials`.
    """
    models, count = batch.shape[:2]
    batch = torch.cat([batch, batch[:, :1].expand(-1, -count % 32, -1)], 1) if count % 32 else batch
    chunk = max(32, CHUNK // (models * views["receptors"].shape[1]) // 32 * 32)
    rows = pair_table(views, norm, spread)["rows"]
    logits, sequences = [], []
    for part in batch.split(chunk, 1):
        sequence, _ = attend(rows, part)
        factor, _ = normalizer(sequence, norm)
        logits.append(torch.bmm(views["token"], feed_forward(views, sequence, sequence * factor)[2]))
        sequences.append(sequence)
    logits, sequence = torch.cat(logits, 2)[..., :count], torch.cat(sequences, 2)[..., :count]
    losses, _ = cross_entropy(logits, truth)
    rival = logits.masked_fill(truth > 0, -math.inf).amax(1)
    right = (rival < (logits * truth).sum(1)).to(losses.dtype)
    return losses, right, sequence
