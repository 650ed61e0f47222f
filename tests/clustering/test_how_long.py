"""The experiment on plateau length, time or luck, and weights or data: its functions at a small size, by other ways."""

import how_long
import numpy as np
import pytest
import torch

from attnbook.folder import results
from attnopt.clustering import Settings, Task, initial_models
from attnopt.clustering.training import compiled
from attnopt.clustering.training.step import order_of

needs_compiler = pytest.mark.skipif(compiled.compiler() is None, reason="there is no C compiler")
TINY = Settings(Task(2, 6, 3), n_train=96, epochs=3, eps=1e-2)


@needs_compiler
def test_fresh_sequences_are_learned_as_by_autograd():
    """Adam of PyTorch on the sequences of each epoch, in the order in which the engine goes through them."""
    seeds = range(5, 7)
    epochs, losses, right, models = how_long.fresh(seeds, TINY, 2)
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
        torch.testing.assert_close(models.weights["token"][at].double(), module.token.detach(), rtol=1e-4, atol=1e-5)
        assert right[-1, at].item() == pytest.approx((logits.argmax(1) == labels).double().mean().item(), abs=0.02)
    again = [how_long.drawn(seeds, TINY, epoch)[0] for epoch in (0, 0, 1)]
    assert torch.equal(again[0], again[1])
    assert not torch.equal(again[0], again[2])


@needs_compiler
def test_all_sequences_are_learned_once_per_epoch():
    settings = Settings(Task(2, 6, 3), n_train=64, epochs=2, eps=1e-2)
    models = how_long.fresh(range(5, 7), settings, 1, whole=True)[3]
    module = initial_models([6], settings, torch.float64)[0].module()
    adam = torch.optim.Adam(module.parameters(), settings.learning_rate, settings.betas, settings.eps)
    tokens, labels = settings.task.all()
    for epoch in range(2):
        for batch in order_of(epoch, 64).split(settings.batch_size):
            adam.zero_grad()
            torch.nn.functional.cross_entropy(module(tokens[batch]), labels[batch]).backward()
            adam.step()
    torch.testing.assert_close(models.weights["token"][1].double(), module.token.detach(), rtol=1e-4, atol=1e-5)


def test_what_pairs_have_in_common():
    rng = np.random.default_rng(0)
    shared, own = rng.normal(0, 3**0.5, (40_000, 1)), rng.normal(0, 1, (40_000, 2))
    assert how_long.common(5 + shared + own) == pytest.approx(3 / 4, abs=0.01)


@needs_compiler
def test_tokens_held_apart_are_learned_as_by_autograd(monkeypatch):
    """Adam of PyTorch, after every step of which both tokens are moved so that their difference is what it was."""
    seeds, settings = range(5, 7), Settings(Task(2, 5, 1), n_train=512, epochs=8, learning_rate=0.01, eps=1e-2)
    expected = []
    for at, seed in enumerate(seeds):
        module = initial_models([seed], settings, torch.float64)[0].module()
        apart = module.token.detach() - module.token.detach().mean(0)
        adam = torch.optim.Adam(module.parameters(), settings.learning_rate, settings.betas, settings.eps)
        tokens, labels = settings.task.all()
        losses = []
        for epoch in range(settings.epochs + 1):
            losses.append(torch.nn.functional.cross_entropy(module(tokens), labels).item())
            seen, answers = how_long.drawn(seeds, settings, epoch)
            for batch in order_of(epoch, settings.n_train).split(settings.batch_size):
                adam.zero_grad()
                torch.nn.functional.cross_entropy(module(seen[at, batch]), answers[at, batch]).backward()
                adam.step()
                with torch.no_grad():
                    module.token.copy_(module.token.mean(0) + apart)
        expected.append(losses)
    for level in ((losses[3] + losses[4]) / 2 for losses in expected):
        monkeypatch.setattr(how_long, "escape_level", lambda p, level=level: level)
        first = [next((epoch for epoch, loss in enumerate(losses) if loss < level), -1) for losses in expected]
        assert how_long.held_escapes(seeds, settings).tolist() == first


def test_the_slope_of_a_power_is_its_exponent():
    rng = np.random.default_rng(0)
    escapes = {length: np.round(rng.lognormal(np.log(0.1 * length**2.5), 0.5, 400)) for length in how_long.LENGTHS}
    escapes[16][:100] = -1  # those that never escape raise the median
    value, low, high = how_long.slope({length: left for length, left in escapes.items() if length < 16})
    assert low < 2.5 < high
    assert how_long.median(escapes[16]) > how_long.median(np.sort(escapes[16])[100:])
    assert how_long.slope(escapes)[0] > value


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


def test_what_is_told_of_runs():
    """Of three runs the first escapes and succeeds, the second stays with tokens that coincide, the third just stays."""
    models = initial_models(range(3), TINY)
    token = models.weights["token"].clone()
    token[0], token[1, 1], token[2] = torch.eye(2), token[1, 0] + 0.01, torch.eye(2)
    losses = torch.tensor([[0.7, 0.7, 0.7], [0.5, 0.7, 0.7], [0.1, 0.69, 0.7]])
    right = torch.tensor([[0.5] * 3, [0.8, 0.5, 0.5], [0.95, 0.5, 0.6]])
    assert how_long.told([0, 5, 10], losses, right, models.replace(token=token)) == {
        "escaped": 1, "median escape": 5.0, "succeeded": 1, "coincide": 1, "coincide of those that stay": 1,
    }  # fmt: skip


def test_what_is_stored_agrees_with_itself():
    stored = results("how_long")
    for kind in ("success", "log escape"):
        entry = stored["origins"][kind]
        assert sum(entry[part][0] for part in ("weights", "data", "interaction")) == pytest.approx(1, abs=1e-4)
        assert entry["weights minus data"][1] > 0  # by the rule, weights matter more
    success = stored["origins"]["success"]
    assert success["variance"] == pytest.approx(success["mean"] * (1 - success["mean"]), rel=1e-3)
    for k in how_long.COUNTS:
        for entry in stored["fresh"][f"k{k}"].values():
            assert entry["coincide of those that stay"] <= min(entry["coincide"], 100 - entry["escaped"])
            assert entry["succeeded"] <= entry["escaped"]
