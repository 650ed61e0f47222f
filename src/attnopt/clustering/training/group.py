"""Models that step together: Adam on their mini-batches, a record of what happens, exact resumption."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import one_hot
from tqdm import tqdm

from attnopt.clustering.files import read_arrays, write_arrays
from attnopt.clustering.model import Models, marks
from attnopt.clustering.training.adam import Adam
from attnopt.clustering.training.backward import SPREAD, Layout, loss_and_gradients
from attnopt.clustering.training.compiled import Kernel
from attnopt.clustering.training.draws import training_data
from attnopt.clustering.training.evaluate import Evaluation, predict
from attnopt.clustering.training.record import Training, check_description, describe, stop_of
from attnopt.clustering.training.settings import Settings, Watch

# Of the order of the mini-batches, the same for all models. A generator on the CPU reads 32 bits of a seed: the order of
# epoch e is drawn as seed e would draw it.
ORDER_SEED = 0
PROBE = 32  # training sequences whose losses must be finite after each epoch
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

    def __init__(self, seeds: list[int], settings: Settings, watch: Watch, start: Models, compiled: bool = False):
        self.settings, self.watch, self.models = settings, watch, len(seeds)
        self.batch_size = settings.batch_size[0]
        # Filled up with copies of the last model, every array is a multiple of 32 numbers long, and no model is alone: a
        # remainder and a single matrix are rounded otherwise, and a model's numbers would depend on its company. Compiled
        # code takes one model after another.
        fill = 0 if compiled else -self.models % max(2, 32 // math.gcd(32, self.batch_size, settings.n_train))
        pad = lambda value: torch.cat([value, value[-1:].expand(fill, *value.shape[1:])])  # noqa: E731
        self.norm, start = start.norm, start.map(pad)
        self.layout = Layout.of(start.weights)
        self.rows = self.layout.rows(start.weights)
        like = {"dtype": self.rows.dtype, "device": self.rows.device}
        column = lambda values: pad(torch.tensor(values, **like)).unsqueeze(-1)  # noqa: E731
        spans = self.layout.spans()
        self.rates = column(settings.learning_rate).expand_as(self.rows).clone()
        for name in FEED_FORWARD:
            self.rates[:, spans[name]] /= column(settings.mlp_discount)
        self.shrink = 1 - column(settings.weight_decay) * self.rates if any(settings.weight_decay) else None
        self.clip = column(settings.clip) if min(settings.clip) < math.inf else None
        self.adam = Adam.of(self.rows, settings.betas, settings.eps)
        self.gradient = torch.zeros_like(self.rows)
        self.members = torch.zeros(self.layout.size, len(spans), **like)  # which column belongs to which parameter
        for at, span in enumerate(spans.values()):
            self.members[span, at] = 1.0
        self.squares = torch.zeros(len(self.rows), len(spans), **like)
        self.stopped = torch.full((len(self.rows),), -1, device=like["device"])  # after which epoch; -1 if still training
        self.spread = torch.zeros(len(self.rows), **like)  # of the scores of those that stopped
        self.epoch, self.counted = 0, 0
        self.history, self.snapshots = [], {}
        tokens, targets = training_data(seeds, settings.task, settings.n_train)
        tokens, targets = tokens.to(like["device"]), targets.to(like["device"])
        self.marks = pad(marks(tokens, settings.tokens, like["dtype"]))
        self.truth = pad(one_hot(targets, settings.tokens).to(like["dtype"]))
        self.evaluation = Evaluation(settings, tokens, self.marks, self.truth)
        self.kernel = Kernel(self.layout, self.norm, tokens, targets) if compiled else None
        self.description = describe(seeds, settings, watch, start, self.rows.dtype, compiled)

    @one_thread()
    def run(self, file: Path | None, every: int, progress: bool) -> Training:
        """Train to the end, from the checkpoint if there is one."""
        if file and file.exists():
            self.restore(file)
        else:
            self.record()
        epochs = self.settings.epochs
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
        kept = {epoch: self.models_of(rows) for epoch, rows in self.snapshots.items()}
        ends = enumerate(zip(self.stopped[: self.models].tolist(), self.spread.tolist(), strict=False))
        stopped = {model: stop_of(epoch, spread) for model, (epoch, spread) in ends if epoch >= 0}
        return Training(self.models_of(self.rows), history, kept, stopped)

    def models_of(self, rows: Tensor) -> Models:
        """The models of a matrix of rows, without those that fill it up."""
        return Models(self.layout.views(rows), self.norm).map(lambda view: view[: self.models].clone().cpu())

    def pass_through(self) -> None:
        """One epoch; models that it drives beyond what can be evaluated are put back and stop."""
        before, spread = self.rows.clone(), torch.zeros_like(self.spread)
        self.step_through(spread)
        self.epoch += 1
        if self.kernel is None:
            batch, truth = self.marks[:, :PROBE], self.truth[:, :PROBE].mT
            losses, _, _ = predict(self.layout.views(self.rows), self.norm, batch, truth, spread)
        else:
            losses, _, _ = self.kernel.predict(self.rows, first=PROBE, spread=spread)
        sound = (spread <= SPREAD) & losses.isfinite().all(1)  # a spread that is no number is none
        for value in (self.rows, self.adam.first, self.adam.second):
            sound &= value.isfinite().all(1)
        left = ~sound & (self.stopped < 0)
        self.stopped.masked_fill_(left, self.epoch - 1)
        self.spread.copy_(torch.where(left, spread, self.spread))
        still = (self.stopped >= 0).unsqueeze(1)
        self.rows.copy_(torch.where(still, before, self.rows))
        self.adam.first.masked_fill_(still, 0.0)
        self.adam.second.masked_fill_(still, 0.0)

    def step_through(self, spread: Tensor) -> None:
        """The steps of an epoch; see `exponentials` about the spread."""
        size, total = self.batch_size, self.settings.n_train
        order = torch.randperm(total, generator=torch.Generator().manual_seed(ORDER_SEED + self.epoch))
        if self.kernel is not None:
            steps = {"rates": self.rates, "shrink": self.shrink, "clip": self.clip, "squares": self.squares}
            self.kernel.epoch(self.rows, self.adam, order, size, **steps, spread=spread)
            self.counted += -(-total // size)
            return
        order = order.to(self.rows.device)
        batches = self.marks.index_select(1, order)
        truth = self.truth.index_select(1, order).mT.contiguous()
        views, gradients = self.layout.views(self.rows), self.layout.views(self.gradient)
        for at in range(0, total, size):
            batch = slice(at, at + size)
            loss_and_gradients(views, gradients, batches[:, batch], truth[..., batch], self.norm, spread)
            squares = self.gradient.square() @ self.members
            self.squares += squares
            self.counted += 1
            if self.clip is not None:
                self.gradient.mul_((self.clip / squares.sum(1, keepdim=True).sqrt()).clamp_max(1.0))
            self.adam.step(self.rows, self.gradient, self.rates, self.shrink)

    def record(self) -> None:
        """Evaluate and keep what is due after the present epoch."""
        if self.epoch in self.watch.snapshots:
            self.snapshots[self.epoch] = self.rows.clone()
        if self.epoch % self.watch.every == 0 or self.epoch == self.settings.epochs:
            judge = self.evaluation
            if self.kernel is None:
                found = judge.of(self.layout.views(self.rows), self.norm)
            else:
                there = None if judge.listed else self.kernel.predict(self.rows)
                found = judge.summary(self.kernel.predict(self.rows, judge.sequences), there)
            entry = {name: value[: self.models] for name, value in found.items()}
            entry["gradients"] = (self.squares[: self.models] / max(self.counted, 1)).sqrt()
            for value in entry.values():
                value[self.stopped[: self.models] >= 0] = math.nan
            self.squares.zero_()
            self.counted = 0
            self.history.append(entry | {"epoch": torch.tensor(self.epoch)})

    def state(self) -> dict[str, Tensor]:
        """What changes from step to step."""
        moments = {"first": self.adam.first, "second": self.adam.second, "steps": self.adam.steps}
        return {"rows": self.rows, "squares": self.squares, "stopped": self.stopped, "spread": self.spread} | moments

    def save(self, file: Path) -> None:
        """Write all that going on needs, in one move."""
        arrays = {f"history/{name}": torch.stack([entry[name] for entry in self.history]) for name in self.history[0]}
        arrays |= {f"snapshots/{epoch}": rows for epoch, rows in self.snapshots.items()}
        arrays |= self.state() | {"numbers": torch.tensor([self.epoch, self.counted])}
        write_arrays(file, {name: value.cpu().numpy() for name, value in arrays.items()}, self.description)

    def restore(self, file: Path) -> None:
        """Take up what was saved.

        Raises:
            ValueError: if the file cannot be read or was written by other settings.
        """
        arrays, description = read_arrays(file)
        arrays = {name: self.state()[name].cpu().numpy() for name in ("stopped", "spread")} | arrays  # older files: none has
        check_description(file, description, self.description)
        device = self.rows.device
        for name, value in self.state().items():
            value.copy_(torch.from_numpy(arrays[name]))
        self.epoch, self.counted = arrays["numbers"].tolist()
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
