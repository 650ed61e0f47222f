"""Training many models side by side: Adam on mini-batches, a record of what happens, exact resumption."""

import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot
from tqdm import tqdm

from attnopt.checks import check_count
from attnopt.clustering.invariance import variance_shares
from attnopt.clustering.model import Norm, Params, check_params, init_model, normalise
from attnopt.clustering.task import check_task, modular_addition
from attnopt.clustering.training.step import (
    Layout,
    attend,
    cross_entropy,
    feed_forward,
    loss_and_gradients,
    marks,
    normaliser,
)

BETAS, EPSILON = (0.9, 0.999), 1e-8
LISTED = 2**13  # up to so many sequences the models are evaluated on all of them, beyond on a sample of half as many
CHUNK = 2**18  # activations that are evaluated at a time
TEST_SEED, ORDER_SEED = 2**40, 2**41  # of the test sample and of the order of the mini-batches, the same for all models
FEED_FORWARD = ("receptors", "assemblers", "receptor_biases", "assembler_bias")


class Training(NamedTuple):
    """An ensemble's training: what it came to, and how.

    Attributes:
        params: the trained models, as from `init_model`.
        history: each of shape (evaluations, M): ``loss`` and ``accuracy`` on the training set, ``loss_unseen`` and
            ``accuracy_unseen`` on the other sequences, ``accuracy_all`` on all, ``suffix`` and ``permutation`` invariance
            (only where all sequences are listed), and ``gradient_…`` for every parameter, the root mean square over the
            steps since the last evaluation of the norm of the mini-batches' gradient (before clipping; 0 before the first
            step); and ``epoch``, of shape (evaluations,).
        snapshots: models after chosen epochs.
    """

    params: Params
    history: dict[str, Tensor]
    snapshots: dict[int, Params]


def initial_models(
    seeds: Sequence[int],
    vocabulary: int = 2,
    length: int = 12,
    dim: int = 2,
    width: int | Sequence[int] = 32,
    dtype: torch.dtype = torch.float32,
) -> Params:
    """One model a seed, initialised by `init_model` with biases; a narrower model has zero neurons, which stay zero.

    Args:
        seeds: M of them.
        vocabulary: tokens with an embedding.
        length: L, tokens a sequence.
        dim: d, the width of the embeddings.
        width: neurons of the feed-forward layer, one number or one a model.
        dtype: of the weights; they are drawn in float64.
    """
    widths = per_model("width", width, len(seeds))
    widest, models = max(widths), []
    for seed, neurons in zip(seeds, widths, strict=True):
        generator = torch.Generator().manual_seed(seed)
        model = init_model(1, vocabulary, length, dim, check_count("width", int(neurons)), generator=generator, biases=True)
        for name, axis in (("receptors", 1), ("assemblers", 2), ("receptor_biases", 1)):
            shape = list(model[name].shape)
            shape[axis] = widest - shape[axis]
            model[name] = torch.cat([model[name], model[name].new_zeros(shape)], axis)
        models.append(model)
    return {name: torch.cat([model[name] for model in models]).to(dtype) for name in models[0]}


def training_data(seeds: Sequence[int], p: int, length: int, k: int, n_train: int = 2048) -> tuple[Tensor, Tensor]:
    """The sequences (M, n, L) and labels (M, n) that the models of these seeds are trained on, drawn with replacement."""
    draws = [
        modular_addition(p, length, k, n_train, torch.Generator().manual_seed(check_seed(seed) + 2**32)) for seed in seeds
    ]
    return torch.stack([tokens for tokens, _ in draws]), torch.stack([targets for _, targets in draws])


def train(
    seeds: Sequence[int],
    *,
    p: int = 2,
    length: int = 12,
    k: int = 5,
    vocabulary: int | None = None,
    dim: int = 2,
    width: int | Sequence[int] = 32,
    n_train: int = 2048,
    epochs: int = 1000,
    batch_size: int | Sequence[int] = 32,
    learning_rate: float | Sequence[float] = 3e-3,
    mlp_discount: float | Sequence[float] = 1.0,
    weight_decay: float | Sequence[float] = 0.0,
    clip: float | Sequence[float] = math.inf,
    norm: Norm = "rms",
    start: Params | None = None,
    evaluate_every: int = 1,
    snapshots: Iterable[int] = (),
    checkpoint: Path | str | None = None,
    checkpoint_every: int = 100,
    progress: bool = False,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Training:
    """Train one model a seed, all at once, with Adam on shuffled mini-batches.

    A model's initial weights and data follow from its seed alone; the order of the mini-batches is drawn anew each epoch,
    the same for all models, whose data are independent. Who else is in the ensemble does not change a model's numbers.
    Each of width, batch_size, learning_rate, mlp_discount, weight_decay and clip is one number or one a model, so that a
    grid of settings is one call.

    Args:
        seeds: M of them.
        p: the task's vocabulary: sequences are drawn from the tokens 0 … p - 1.
        length: L, tokens a sequence.
        k: how many of them count.
        vocabulary: tokens with an embedding, p unless given; those from p on are trained as labels that are never right.
        dim: d, the width of the embeddings.
        width: neurons of the feed-forward layer.
        n_train: training sequences of each model.
        epochs: passes through the training set.
        batch_size: sequences a step; the last batch of an epoch may be smaller.
        learning_rate: Adam's.
        mlp_discount: divides the learning rate of the feed-forward layer.
        weight_decay: shrinks weights by this times the learning rate each step, apart from Adam's step.
        clip: longest gradient of a step; longer ones are scaled down to it.
        norm: the models' normalisation.
        start: models to go on from, with a fresh Adam, instead of new ones; width, dim and vocabulary are then theirs.
        evaluate_every: epochs between evaluations; before the first and after the last epoch there is always one.
        snapshots: epochs after which the models are kept; 0 is the start.
        checkpoint: a file, written now and then, from which the same call, interrupted, goes on to the same numbers.
        checkpoint_every: epochs between writings.
        progress: show a progress bar on stderr.
        device: where to compute.
        dtype: of the weights.

    Returns:
        What `Training` says, on the CPU.

    Raises:
        TypeError: if a count or a seed is not an integer.
        ValueError: if a number is out of range, a setting has neither one nor M values, ``start`` does not fit, or the
            checkpoint belongs to other settings.

    Source: Odonnat, Bouaziz, Cabannes (2025), Appendix A; defaults are those of their released code.
    """
    seeds = [check_seed(seed) for seed in seeds]
    p, length, k = check_task(p, length, k)
    if not seeds:
        raise ValueError("seeds must name at least one model, got none")
    settings = {
        name: per_model(name, value, len(seeds))
        for name, value in {
            "width": width,
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "mlp_discount": mlp_discount,
            "weight_decay": weight_decay,
            "clip": clip,
        }.items()
    }
    check_settings(settings)
    for name, value in (("n_train", n_train), ("evaluate_every", evaluate_every), ("checkpoint_every", checkpoint_every)):
        check_count(name, value)
    if isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 0:
        raise ValueError(f"epochs must be a number of passes, 0 or more, got {epochs!r}")
    kept = sorted(set(snapshots))
    if any(not 0 <= epoch <= epochs for epoch in kept):
        raise ValueError(f"snapshots must be epochs from 0 to {epochs}, got {kept}")
    normalise(torch.ones(1, dtype=dtype), norm)  # refuses an unknown one
    if start is None:
        start = initial_models(seeds, vocabulary or p, length, dim, settings["width"], dtype)
    start = {name: value.detach().to(device, dtype) for name, value in start.items()}
    check_start(start, len(seeds), p, length)
    common = {"p": p, "length": length, "k": k, "n_train": n_train, "epochs": epochs, "norm": norm}
    common |= {"evaluate_every": evaluate_every, "snapshots": kept, "dtype": str(dtype)}
    parts, order = [], []
    sizes = settings.pop("batch_size")
    for size in sorted(set(sizes)):  # models that share a batch size step together
        members = [at for at, other in enumerate(sizes) if other == size]
        group = _Group(
            [seeds[at] for at in members],
            {name: [values[at] for at in members] for name, values in settings.items()},
            {name: value[members] for name, value in start.items()},
            common | {"batch_size": size},
        )
        file = Path(f"{checkpoint}.{size}.npz") if checkpoint else None
        parts.append(group.run(file, checkpoint_every, progress))
        order += members
    back = torch.tensor(order).argsort()
    return join(parts, back)


def join(parts: list[Training], order: Tensor | None = None) -> Training:
    """The trainings of several groups of models as one, in the order given."""
    order = slice(None) if order is None else order

    def merge(dicts: list[dict[str, Tensor]], axis: int) -> dict[str, Tensor]:
        joined = {name: torch.cat([part[name] for part in dicts], axis) for name in dicts[0] if name != "epoch"}
        return {name: value.movedim(axis, 0)[order].movedim(0, axis) for name, value in joined.items()}

    history = merge([part.history for part in parts], 1) | {"epoch": parts[0].history["epoch"]}
    kept = {epoch: merge([part.snapshots[epoch] for part in parts], 0) for epoch in parts[0].snapshots}
    return Training(merge([part.params for part in parts], 0), history, kept)


class _Group:
    """Models that step together: their weights, Adam's moments, their data and what is recorded of them."""

    def __init__(self, seeds: list[int], settings: dict[str, list], start: Params, common: dict):
        self.common, self.models = common, len(seeds)
        task = common["p"], common["length"], common["k"]
        # Filled up with copies of the last model, every array is a multiple of 32 numbers long: operations on its remainder
        # would round otherwise, and a model's numbers depend on its place.
        fill = -self.models % max(1, 32 // common["batch_size"])
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

    def run(self, file: Path | None, every: int, progress: bool) -> Training:
        """Train to the end, from the checkpoint if there is one."""
        if file and file.exists():
            self.restore(file)
        elif self.epoch == 0:
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
        views = {name: view[: self.models] for name, view in self.layout.views(self.rows).items()}
        losses, right, sequence = self.predict(views, self.test.expand(self.models, -1, -1), self.labels)
        if not self.listed:
            truth = self.truth[: self.models].mT
            on_training, right_there, _ = self.predict(views, self.marks[: self.models], truth)
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

    def predict(self, views: Params, batch: Tensor, truth: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Losses and whether the label has the largest logit, (M, n), and sequence embeddings (M, d, n)."""
        chunk = max(32, CHUNK // (self.models * views["receptors"].shape[1]) // 32 * 32)
        losses, right, sequences = [], [], []
        for at in range(0, batch.shape[1], chunk):
            part = slice(at, at + chunk)
            sequence = attend(views, batch[:, part], self.common["norm"])["sequence"]
            factor, _ = normaliser(sequence, self.common["norm"])
            logits = torch.bmm(views["token"], feed_forward(views, sequence, sequence * factor)[2])
            labels = truth[..., part].expand_as(logits)
            losses.append(cross_entropy(logits, labels)[0])
            right.append(logits.argmax(1) == labels.argmax(1))
            sequences.append(sequence)
        return torch.cat(losses, 1), torch.cat(right, 1).to(self.rows.dtype), torch.cat(sequences, 2)

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
            ValueError: if the file was written by other settings.
        """
        arrays, description = read_arrays(file)
        if description != self.description:
            raise ValueError(f"checkpoint {file} was written by other settings: remove it, or name another file")
        device = self.rows.device
        for name in ("rows", "first", "second", "squares"):
            getattr(self, name).copy_(torch.from_numpy(arrays[name]))
        self.epoch, self.steps, self.counted = arrays["numbers"].tolist()
        recorded = {name.removeprefix("history/"): value for name, value in arrays.items() if name.startswith("history/")}
        self.history = [
            {name: torch.tensor(value[at], device=device) for name, value in recorded.items()}
            for at in range(len(recorded["epoch"]))
        ]
        self.snapshots = {
            int(name.removeprefix("snapshots/")): torch.from_numpy(value).to(device)
            for name, value in arrays.items()
            if name.startswith("snapshots/")
        }


def write_arrays(file: Path, arrays: dict[str, np.ndarray], description: str) -> None:
    """Write named arrays and a description to an npz file, in one move: nobody ever sees half of it."""
    partial = file.with_suffix(f".{os.getpid()}.partial")
    with partial.open("wb") as stream:
        np.savez(stream, description=np.frombuffer(description.encode(), np.uint8), **arrays)
    partial.replace(file)


def read_arrays(file: Path) -> tuple[dict[str, np.ndarray], str]:
    """What `write_arrays` wrote."""
    with np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return arrays, arrays.pop("description").tobytes().decode()


def per_model(name: str, value: float | Sequence[float], models: int) -> list:
    """One value a model, from one for all or a sequence of them.

    Raises:
        ValueError: if a sequence has another number of values.
    """
    values = list(value) if isinstance(value, Sequence | np.ndarray | Tensor) else [value] * models
    values = [entry.item() if isinstance(entry, np.generic | Tensor) else entry for entry in values]
    if len(values) != models:
        raise ValueError(f"{name} must be one value or one a model, {models}, got {len(values)}")
    return values


def check_seed(seed: int) -> int:
    """Require an integer from 0 to 2³² - 1.

    Raises:
        TypeError: if it is not an integer.
        ValueError: if it is out of range.
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seeds must be integers, got {seed!r}")
    if not 0 <= seed < 2**32:
        raise ValueError(f"seeds must lie in 0 … 2³² - 1, got {seed}")
    return int(seed)


def check_settings(settings: dict[str, list]) -> None:
    """Require positive, finite numbers; weight decay may be zero and the longest gradient infinite.

    Raises:
        TypeError: if a width or a batch size is not an integer.
        ValueError: if a number is out of range.
    """
    for name in ("width", "batch_size"):
        for value in settings[name]:
            check_count(name, value)
    for name, least in (("learning_rate", "positive"), ("mlp_discount", "positive"), ("weight_decay", "0 or more")):
        for value in settings[name]:
            if not (math.isfinite(value) and (value > 0 or (value == 0 and name == "weight_decay"))):
                raise ValueError(f"{name} must be finite and {least}, got {value}")
    for value in settings["clip"]:
        if not value > 0:
            raise ValueError(f"clip must be positive, got {value}")


def check_start(start: Params, models: int, p: int, length: int) -> None:
    """Require models with biases that fit the task, one a seed.

    Raises:
        ValueError: if they do not.
    """
    check_params(start)
    if len(start["token"]) != models or "receptor_biases" not in start or "assembler_bias" not in start:
        raise ValueError(f"start must hold one model with biases a seed, {models}, got {len(start['token'])}")
    if start["token"].shape[1] < p or start["position"].shape[1] != length:
        raise ValueError(
            f"start must have at least {p} tokens and {length} positions, got {start['token'].shape[1]} and "
            f"{start['position'].shape[1]}"
        )


def checksum(params: Params) -> list[float]:
    """A few numbers that tell ensembles apart."""
    return [value.double().abs().sum().item() for value in params.values()]
