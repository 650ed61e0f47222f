"""The script on guessed labels: the posterior by hand, fits of updates that are made by a known rule, and its verdicts."""

import guessed_labels as script
import pytest
import torch

from attnopt.standard import as_one_hot, load_guesser


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(script, "FIT", 400)
    generator = torch.Generator().manual_seed(0)
    words, _, right = script.prompts(1000, generator)
    return words, right.double(), generator


def test_the_posterior_is_bayes_rule():
    words = torch.tensor([[0, 0, 4, 5, 4, 0, 5, 3]])
    joint = torch.stack([0.25 * topic[words[0]].prod() for topic in script.TOPIC])
    expected = (joint[:, None] * script.TOPIC).sum(0) / joint.sum()
    torch.testing.assert_close(script.posterior(words)[0], expected)


def test_a_step_is_found_and_so_is_that_it_needs_the_posterior(small):
    _, right, generator = small
    before = torch.randn(1000, 64, generator=generator).double()
    theta = torch.randn(8, 64, generator=generator).double() / 8
    added = (right - (before @ theta.T).softmax(-1)) @ theta
    total = (added[400:] - added[400:].mean(0)).square().sum()
    assert script.fitted_step(before, added, right, total) > 0.96  # LBFGS may stop at another minimum
    assert script.fitted_step(before, added, right.roll(1, 0), total) < 0.9


def test_where_the_state_is_constant_a_step_is_a_linear_function(small):
    _, right, generator = small
    before = torch.randn(64, generator=generator).double().expand(1000, -1)
    added = right.log() @ torch.randn(8, 64, generator=generator).double()
    total = (added[400:] - added[400:].mean(0)).square().sum()
    known = torch.cat([right, torch.ones(1000, 1)], -1).double()
    best = known @ torch.linalg.lstsq(known[:400], added[:400]).solution
    linear = 1 - (added[400:] - best[400:]).square().sum() / total
    assert linear > 0.5
    assert script.fitted_step(before, added, right, total) == pytest.approx(linear.item(), abs=0.01)


def test_one_number_times_a_prediction(small):
    _, right, generator = small
    share, size = script.scaled_fit(right, 3 * right + 1)
    assert share == pytest.approx(1)
    assert size == pytest.approx(3)
    noisy = right + right.std() * torch.randn(right.shape, generator=generator)
    assert 0.3 < script.scaled_fit(right, noisy)[0] < 0.7


@pytest.mark.parametrize(
    ("own", "other", "block"), [(0.95, -0.1, "describes"), (0.95, 0.3, "open"), (0.4, 0.3, "construction")]
)
def test_verdicts(own, other, block, monkeypatch):
    layer = {"own": own, "other": other, "linear": own - 0.03, "log": own - 0.05}
    worse = layer | {"linear": own + 0.03}
    seeds = [{"layers": [layer, worse]}] * 4 + [{"layers": [worse, worse]}]
    monkeypatch.setattr(script.RECORD, "stored", lambda: {"base": {"seeds": seeds}})
    assert script.verdicts() == {"block": block, "layer 1": "better", "layer 2": "worse"}


@pytest.mark.evidence("book-guessed-labels")
@pytest.mark.parametrize("seed", [1, 3])
def test_what_explains_the_layers_of_a_trained_model(seed, monkeypatch):
    monkeypatch.setattr(script, "FIT", 2000)
    model = load_guesser("base", seed).double()
    words, _, right = script.prompts(4000, torch.Generator().manual_seed(77))
    right = right.double()
    states = [state[:, -1] for state in model.states(as_one_hot(words, script.WORDS).double())[::2]]
    for layer, (low, high) in enumerate(((0.4, 0.57), (-0.05, 0.12))):
        z, added = states[layer].clone().requires_grad_(), states[layer + 1] - states[layer]
        (downhill,) = torch.autograd.grad((right * model.read(z).log_softmax(-1)).sum(), z)
        assert low < script.scaled_fit(downhill, added)[0] < high
        total = (added[2000:] - added[2000:].mean(0)).square().sum()
        known = torch.cat([right, torch.ones(4000, 1)], -1)
        linear = known @ torch.linalg.lstsq(known[:2000], added[:2000]).solution
        assert 1 - (added - linear)[2000:].square().sum() / total > 0.94
