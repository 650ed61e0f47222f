"""The experiment on plateau length, time or luck, and weights or data: its functions at a small size, by other ways."""

import math

import how_long
import numpy as np
import pytest
import torch

from attnopt.clustering import Settings, Task, initial_models
from attnopt.clustering.training import compiled
from attnopt.clustering.training.step import order_of

needs_compiler = pytest.mark.skipif(compiled.compiler() is None, reason="there is no C compiler")
TINY = Settings(Task(2, 6, 3), n_train=96, epochs=3, eps=1e-2)


@needs_compiler
def test_fresh_sequences_are_learned_as_by_autograd():
    """Adam of PyTorch on the sequences of each epoch, in the order in which the engine goes through them."""
    seeds = range(5, 7)
    epochs, losses, right = how_long.fresh(seeds, TINY, 2, lambda *_: False)
    assert epochs == [0, 2, 3]
    for at, seed in enumerate(seeds):
        module = initial_models([seed], TINY, torch.float64)[0].module()
        adam = torch.optim.Adam(module.parameters(), TINY.learning_rate, TINY.betas, TINY.eps)
        for epoch in range(TINY.epochs):
            tokens, labels = how_long.drawn(seeds, TINY, epoch)
            for batch in order_of(epoch, TINY.n_train).split(TINY.batch_size):
                adam.zero_grad()
                torch.nn.functional.cross_entropy(module(tokens[at, batch]), labels[at, batch]).backward()
                adam.step()
        tokens, labels = TINY.task.all()
        logits = module(tokens)
        expected = torch.nn.functional.cross_entropy(logits, labels).item()
        assert losses[-1, at].item() == pytest.approx(expected, rel=1e-4)
        assert right[-1, at].item() == pytest.approx((logits.argmax(1) == labels).double().mean().item(), abs=0.02)
    again = [how_long.drawn(seeds, TINY, epoch)[0] for epoch in (0, 0, 1)]
    assert torch.equal(again[0], again[1])
    assert not torch.equal(again[0], again[2])


@needs_compiler
def test_escapes_are_read_from_the_losses(monkeypatch):
    monkeypatch.setattr(how_long, "ESCAPED", 2)
    curves = torch.tensor([[0.7, 0.7, 0.7], [0.7, 0.5, 0.7], [0.7, 0.9, 0.59], [0.1, 0.1, 0.1]])

    def fresh(seeds, settings, every, done):
        for row, losses in enumerate(curves):
            if done(row * every, losses, None):
                return [at * every for at in range(row + 1)], None, None
        raise AssertionError("two of three have escaped by the third evaluation")

    monkeypatch.setattr(how_long, "fresh", fresh)
    assert how_long.escapes(range(3), TINY) == ([math.inf, 5.0, 10.0], 10)
    monkeypatch.setattr(how_long, "ESCAPED", 3)
    curves = curves[[0, 1, 2, 2, 2, 2, 2, 2, 2, 2]]
    assert how_long.escapes(range(3), TINY) == ([math.inf, 5.0, 10.0], 40)  # four times the median escape


def test_a_power_law_has_its_exponent_as_slope():
    lengths = np.arange(8, 17)
    assert how_long.slope(0.3 * lengths**2.5, lengths) == pytest.approx(2.5)
    rng = np.random.default_rng(3)
    left = {int(size): list(size**2.0 * rng.lognormal(0, 0.3, 100)) for size in lengths}
    value, low, high = how_long.growth(left, dict.fromkeys(left, 10**6))
    assert low < 2.0 < high
    assert low < value < high
    late = {size: [value if value < 1.1 * size**2 else math.inf for value in values] for size, values in left.items()}
    assert how_long.growth(late, {size: 2 * size**2 for size in left})[0] == pytest.approx(value)  # medians are below


EXACT = {"weights": 4 / 7, "data": 2 / 7, "interaction": 1 / 7, "weights minus data": 2 / 7}


def test_shares_of_a_variance_are_those_it_was_made_of(monkeypatch):
    """X = w + d + an interaction, with variances 4, 2, and 1."""
    rng, count = np.random.default_rng(1), 40_000
    weights, data = rng.normal(0, 2, (2, count)), rng.normal(0, 2**0.5, (2, count))
    made = lambda w, d: weights[w] + data[d] + rng.normal(0, 1, count)  # noqa: E731
    runs = made(0, 0), made(0, 1), made(1, 0)
    np.testing.assert_allclose(how_long.shares(*runs), np.array([4, 2, 1]) / 7, atol=0.02)
    monkeypatch.setattr(how_long, "TIMES", 200)
    inside = []
    for at in range(0, count, 500):
        found = how_long.parted(*[values[at : at + 500] for values in runs])
        inside.append([found[name][1] < exact < found[name][2] for name, exact in EXACT.items()])
    assert np.mean(inside, axis=0) == pytest.approx([0.95] * len(EXACT), abs=0.08)  # 80 intervals each
    assert found["weights minus data"][0] == pytest.approx(found["weights"][0] - found["data"][0])
