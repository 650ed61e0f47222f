"""The random numbers of the laboratory that trains in the book's page, which give the same weights, data, and batches."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from attnopt.clustering.model import Models, Norm
from attnopt.clustering.task import Task

# The laboratory's script, `src/attnbook/js/trainer.js`, has the same streams and draws the weights in this order.
WEIGHTS, DATA, ORDER = 0, 1, 2  # streams of a seed
SHAPES: dict[str, Callable[[int, int, int, int], tuple[int, ...]]] = {
    "token": lambda p, length, dim, width: (p, dim),
    "position": lambda p, length, dim, width: (length, dim),
    "query": lambda p, length, dim, width: (dim,),
    "value": lambda p, length, dim, width: (dim, dim),
    "receptors": lambda p, length, dim, width: (width, dim),
    "receptor_biases": lambda p, length, dim, width: (width,),
    "assemblers": lambda p, length, dim, width: (dim, width),
    "assembler_bias": lambda p, length, dim, width: (dim,),
}
HIGHEST = 2**32


class Stream:
    """Random numbers for a seed and a stream, both below 2³², from Doty-Humphrey's sfc32, initialized as in PractRand.

    Integers are drawn by rejection, numbers in [0, 1) with 53 bits, and normal numbers by Box and Muller's formula, which
    gives two of which one is kept.
    """

    def __init__(self, seed: int, stream: int):
        self.state = [0, seed, stream, 1]
        for _ in range(12):
            self.bits()

    def bits(self) -> int:
        """The next 32 bits, as an integer."""
        a, b, c, counter = self.state
        result = (a + b + counter) % HIGHEST
        turned = (c << 21 | c >> 11) % HIGHEST
        self.state = [b ^ b >> 9, (c + (c << 3)) % HIGHEST, (turned + result) % HIGHEST, (counter + 1) % HIGHEST]
        return result

    def below(self, size: int) -> int:
        """An integer from 0 to size - 1."""
        limit = HIGHEST - HIGHEST % size
        while (value := self.bits()) >= limit:
            pass
        return value % size

    def uniform(self) -> float:
        """A number in [0, 1)."""
        high = self.bits() >> 5
        return (high * 2**26 + (self.bits() >> 6)) / 2**53

    def normal(self) -> float:
        """A standard normal number."""
        radius = math.sqrt(-2 * math.log(1 - self.uniform()))
        return radius * math.cos(2 * math.pi * self.uniform())

    def shuffled(self, count: int) -> list[int]:
        """The integers from 0 to ``count`` - 1 in a random order."""
        order = list(range(count))
        for at in range(count - 1, 0, -1):
            other = self.below(at + 1)
            order[at], order[other] = order[other], order[at]
        return order


def random_model(seed: int, p: int, length: int, dim: int, width: int, norm: Norm) -> Models:
    """The initial model for a seed, as an ensemble of one in float64, with biases."""
    stream, weights = Stream(seed, WEIGHTS), {}
    inputs = dict.fromkeys(("query", "value", "receptors", "receptor_biases"), dim)
    inputs |= dict.fromkeys(("assemblers", "assembler_bias"), width)
    for name, shape_of in SHAPES.items():
        shape = shape_of(p, length, dim, width)
        scale = 1 / math.sqrt(inputs[name]) if name in inputs else None
        draw = stream.normal if scale is None else lambda scale=scale: (2 * stream.uniform() - 1) * scale
        numbers = [draw() for _ in range(math.prod(shape))]
        weights[name] = torch.tensor(numbers, dtype=torch.float64).view(1, *shape)
    return Models(weights, norm)


def sample(seed: int, task: Task, count: int) -> tuple[Tensor, Tensor]:
    """The training sequences (count, L) for a seed, and their labels (count,)."""
    stream = Stream(seed, DATA)
    tokens = [[stream.below(task.p) for _ in range(task.length)] for _ in range(count)]
    return task.labeled(torch.tensor(tokens))


class Orders:
    """The orders in which models go through their data; a call with an epoch returns that epoch's orders, (M, count)."""

    def __init__(self, seeds: Sequence[int], count: int):
        self.seeds, self.count = list(seeds), count
        self.begin()

    def begin(self) -> None:
        """Go back to the first epoch."""
        self.streams, self.epoch = {seed: Stream(seed, ORDER) for seed in self.seeds}, 0

    def __call__(self, epoch: int) -> Tensor:
        """The orders of an epoch, (M, count); those of earlier epochs are drawn first."""
        if epoch < self.epoch:
            self.begin()
        drawn: dict[int, list[int]] = {}
        while self.epoch <= epoch:
            drawn = {seed: stream.shuffled(self.count) for seed, stream in self.streams.items()}
            self.epoch += 1
        return torch.tensor([drawn[seed] for seed in self.seeds])
