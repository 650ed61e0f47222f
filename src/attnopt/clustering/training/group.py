"""Models that step together: Adam on their mini-batches, a record of what happens, exact resumption."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from tqdm import tqdm

from attnopt.clustering.invariance import variance_shares
from attnopt.clustering.model import Params
from attnopt.clustering.task import modular_addition
from attnopt.clustering.training.draws import training_data
from attnopt.clustering.training.record import Training, checksum, read_arrays, write_arrays
from attnopt.clustering.training.step import (
    Layout,
    attend,
    cross_entropy,
    feed_forward,
    loss_and_gradients,
    marks,
    normaliser,
    pair_table,
)

BETAS, EPSILON = (0.9, 0.999), 1e-8
LISTED = 2**13  # up to so many sequences the models are evaluated on all of them, beyond on a sample of half as many
CHUNK = 2**19  # activations that are evaluated at a time
# Of the test sample and of the order of the mini-batches, the same for all models. A generator on the CPU reads 32 bits of
# a seed: the order of epoch e is drawn as seed e would draw it, and the test sample is apart from small seeds' data.
TEST_SEED, ORDER_SEED = 2**31, 0
FEED_FORWARD = ("receptors", "assemblers", "receptor_biases", "assembler_bias")


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread of the CPU: several divide an array where its length says, and rounding follows."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class Group:
    """Models that step together: their weights, Adam's moments, their data and what is recorded of them."""

    def __init__(self, seeds: list[int], settings: dict[str, list], start: Params, common: dict):
        self.common, self.models = common, len(seeds)
        task = common["p"], common["length"], common["k"]
        # Filled up with copies of the last model, every array is a multiple of 32 numbers long, and no model is alone: a
        # remainder and a single matrix are rounded otherwise, and a model's numbers would depend on its company.
        fill = -self.models % max(2, 32 // math.gcd(32, common["batch_size"], common["n_train"]))
        pad = lambda value: torch.cat([value, value[-1:].expand(fill, *value.shape[1:])])  # noqa: E731
        start = {name: pad(value) for name, value in start.items()}
        self.layout = Layout.of(start)
        self.rows = self.layout.rows(start)
        like = {"dtype": self.rows.dtype, "device": self.rows.device}
        column = lambda name: pad(torch.tensor(settings[name], **like)).unsqueeze(-1)  # noqa: E731
        spans = self.layout.spans()
        self.rates = column("learning_rate").expand_as(self.rows).clone()
        for name in FEED_FORWARD:
            self.rates[:, spans[name]] /= column("mlp_discount")
        self.shrink = 1 - column("weight_decay") * self.rates if any(settings["weight_decay"]) else None
        self.clip = column("clip") if min(settings["clip"]) < math.inf else None
        self.first, self.second = torch.zeros_like(self.rows), torch.zeros_like(self.rows)
        self.gradient = torch.zeros_like(self.rows)
        self.members = torch.zeros(self.layout.size, len(spans), **like)  # which column belongs to which parameter
        for at, span in enumerate(spans.values()):
            self.members[span, at] = 1.0
        self.squares = torch.zeros(len(self.rows), len(spans), **like)
        self.steps, self.epoch, self.counted = 0, 0, 0
        self.history, self.snapshots = [], {}
        vocabulary = start["token"].shape[1]
        tokens, targets = training_data(seeds, *task, common["n_train"])
        tokens, targets = tokens.to(like["device"]), targets.to(like["device"])
        self.marks = pad(marks(tokens, vocabulary, like["dtype"]))
        self.truth = pad(one_hot(targets, vocabulary).to(like["dtype"]))
        self.listed = task[0] ** task[1] <= LISTED
        if self.listed:
            test, labels = modular_addition(*task)
            powers = task[0] ** torch.arange(task[1] - 1, -1, -1, device=like["device"])
            seen = torch.zeros(self.models, len(test), **like)
            self.seen = seen.scatter_add_(1, (tokens * powers).sum(-1), torch.ones_like(targets, dtype=like["dtype"]))
        else:
            test, labels = modular_addition(*task, LISTED // 2, torch.Generator().manual_seed(TEST_SEED))
        self.test = marks(test.to(like["device"]), vocabulary, like["dtype"])
        self.labels = one_hot(labels.to(like["device"]), vocabulary).mT.to(like["dtype"])
        self.description = json.dumps({"seeds": seeds, "settings": settings, "start": checksum(start)} | common)

    @one_thread()
    def run(self, file: Path | None, every: int, progress: bool) -> Training:
        """Train to the end, from the checkpoint if there is one."""
        if file and file.exists():
            self.restore(file)
        else:
            self.record()
        epochs = self.common["epochs"]
        with tqdm(total=epochs, initial=self.epoch, disable=not progress, unit="epoch") as bar:
            while self.epoch < epochs:
                self.pass_through()
                self.record()
                bar.update()
                bar.set_postfix_str(f"{self.models * (bar.format_dict['rate'] or 0):.0f} models·epochs/s", refresh=False)
                if file and (self.epoch % every == 0 or self.epoch == epochs):
                    self.save(file)
        names = [f"gradient_{name}" for name in self.layout.shapes]
        history = {name: torch.stack([entry[name] for entry in self.history]).cpu() for name in self.history[0]}
        gradients = history.pop("gradients")
        history |= {name: gradients[..., at] for at, name in enumerate(names)}
        return Training(
            self.params(self.rows), history, {epoch: self.params(rows) for epoch, rows in self.snapshots.items()}
        )

    def params(self, rows: Tensor) -> Params:
        """The models of a matrix of rows, without those that fill it up."""
        return {name: view[: self.models].clone().cpu() for name, view in self.layout.views(rows).items()}

    def pass_through(self) -> None:
        """One epoch."""
        size, total = self.common["batch_size"], self.common["n_train"]
        order = torch.randperm(total, generator=torch.Generator().manual_seed(ORDER_SEED + self.epoch))
        order = order.to(self.rows.device)
        batches = self.marks.index_select(1, order)
        truth = self.truth.index_select(1, order).mT.contiguous()
        views, gradients = self.layout.views(self.rows), self.layout.views(self.gradient)
        for at in range(0, total, size):
            batch = slice(at, at + size)
            loss_and_gradients(views, gradients, batches[:, batch], truth[..., batch], self.common["norm"])
            self.step()
        self.epoch += 1

    def step(self) -> None:
        """One step of Adam."""
        gradient, (slow, slower) = self.gradient, BETAS
        squares = gradient.square() @ self.members
        self.squares += squares
        self.counted += 1
        self.steps += 1
        if self.clip is not None:
            gradient.mul_((self.clip / squares.sum(1, keepdim=True).sqrt()).clamp_max(1.0))
        self.first.lerp_(gradient, 1 - slow)
        self.second.mul_(slower).addcmul_(gradient, gradient, value=1 - slower)
        if self.shrink is not None:
            self.rows.mul_(self.shrink)
        root = (self.second / (1 - slower**self.steps)).sqrt_().add_(EPSILON)
        self.rows.addcdiv_(self.first * self.rates, root, value=-1 / (1 - slow**self.steps))

    def record(self) -> None:
        """Evaluate and keep what is due after the present epoch."""
        if self.epoch in self.common["snapshots"]:
            self.snapshots[self.epoch] = self.rows.clone()
        if self.epoch % self.common["evaluate_every"] == 0 or self.epoch == self.common["epochs"]:
            entry = self.evaluate()
            entry["gradients"] = (self.squares[: self.models] / max(self.counted, 1)).sqrt()
            self.squares.zero_()
            self.counted = 0
            self.history.append(entry | {"epoch": torch.tensor(self.epoch)})

    def evaluate(self) -> dict[str, Tensor]:
        """Losses, accuracies and, where all sequences are listed, invariances of the models, each of shape (M,)."""
        losses, right, sequence = self.predict(self.test.expand(len(self.rows), -1, -1), self.labels)
        if not self.listed:
            on_training, right_there, _ = self.predict(self.marks, self.truth.mT)
            return {
                "loss": on_training.mean(1),
                "accuracy": right_there.mean(1),
                "loss_unseen": losses.mean(1),
                "accuracy_unseen": right.mean(1),
                "accuracy_all": right.mean(1),
            }
        share = self.seen / self.seen.sum(1, keepdim=True)
        unseen = (self.seen == 0).to(losses.dtype)
        unseen = unseen / unseen.sum(1, keepdim=True)
        shares = variance_shares(sequence.mT, self.common["p"], self.common["length"], self.common["k"])
        return {
            "loss": (losses * share).sum(1),
            "accuracy": (right * share).sum(1),
            "loss_unseen": (losses * unseen).sum(1),
            "accuracy_unseen": (right * unseen).sum(1),
            "accuracy_all": right.mean(1),
            **shares,
        }

    def predict(self, batch: Tensor, truth: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Losses and whether the label's logit exceeds all others, (M, n), and sequence embeddings (M, d, n)."""
        views, norm, count = self.layout.views(self.rows), self.common["norm"], batch.shape[1]
        batch = torch.cat([batch, batch[:, :1].expand(-1, -count % 32, -1)], 1) if count % 32 else batch
        chunk = max(32, CHUNK // (len(self.rows) * views["receptors"].shape[1]) // 32 * 32)
        rows = pair_table(views, norm)["rows"]
        logits, sequences = [], []
        for part in batch.split(chunk, 1):
            sequence, _ = attend(rows, part)
            factor, _ = normaliser(sequence, norm)
            logits.append(torch.bmm(views["token"], feed_forward(views, sequence, sequence * factor)[2]))
            sequences.append(sequence)
        logits, sequence = torch.cat(logits, 2)[..., :count], torch.cat(sequences, 2)[..., :count]
        losses, _ = cross_entropy(logits, truth)
        rival = logits.masked_fill(truth > 0, -math.inf).amax(1)
        right = (rival < (logits * truth).sum(1)).to(losses.dtype)
        return losses[: self.models], right[: self.models], sequence[: self.models]

    def save(self, file: Path) -> None:
        """Write all that going on needs, in one move."""
        arrays = {f"history/{name}": torch.stack([entry[name] for entry in self.history]) for name in self.history[0]}
        arrays |= {f"snapshots/{epoch}": rows for epoch, rows in self.snapshots.items()}
        arrays |= {name: getattr(self, name) for name in ("rows", "first", "second", "squares")}
        arrays["numbers"] = torch.tensor([self.epoch, self.steps, self.counted])
        write_arrays(file, {name: value.cpu().numpy() for name, value in arrays.items()}, self.description)

    def restore(self, file: Path) -> None:
        """Take up what was saved.

        Raises:
            ValueError: if the file cannot be read or was written by other settings.
        """
        arrays = read_arrays(file, self.description)
        device = self.rows.device
        for name in ("rows", "first", "second", "squares"):
            getattr(self, name).copy_(torch.from_numpy(arrays[name]))
        self.epoch, self.steps, self.counted = arrays["numbers"].tolist()
        self.history = [{"epoch": torch.tensor(epoch)} for epoch in arrays.pop("history/epoch").tolist()]
        for name, values in arrays.items():
            if name.startswith("history/"):
                for entry, value in zip(self.history, torch.from_numpy(values).to(device), strict=True):
                    entry[name.removeprefix("history/")] = value
        self.snapshots = {
            int(name.removeprefix("snapshots/")): torch.from_numpy(value).to(device)
            for name, value in arrays.items()
            if name.startswith("snapshots/")
        }
