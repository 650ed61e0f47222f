"""The script behind the chapter's measurements, at a small size, against other ways to the same numbers."""

import json
import math

import numpy as np
import oracle_value as script
import pytest
import torch
from lab import RESULTS

from attnopt.regression import pointwise_cross_entropy, unroll


@pytest.fixture
def small():
    """A classifier of 40 tokens with 10 classes and 12 features, and labels of an oracle."""
    generator = torch.Generator().manual_seed(4)
    theta, bias = torch.randn(10, 12, generator=generator).double(), torch.randn(10, generator=generator).double()
    z, truth = torch.randn(40, 12, generator=generator).double(), torch.randint(10, (40,), generator=generator)
    return theta, bias, z, truth, torch.randn(40, 10, generator=generator).double().softmax(-1)


@pytest.mark.evidence("book-oracle-fashion")
def test_worth_is_that_of_features_moved_one_by_one(small, monkeypatch):
    """The script follows logits; here tokens move, with the bias as a feature that is always 1 and never moves."""
    theta, bias, z, truth, labels = small
    monkeypatch.setattr(script, "LAYERS", 20_000)
    found = script.worth(labels, z @ theta.T + bias, theta, truth)
    true = torch.nn.functional.one_hot(truth, 10).double()
    loss = lambda z: pointwise_cross_entropy(z @ theta.T + bias, true, "class").item() / 40  # noqa: E731
    with torch.no_grad():
        moving = z.clone().requires_grad_()
    scores = moving @ theta.T + bias
    (of_true,) = torch.autograd.grad(-(true * scores.log_softmax(-1)).sum(), moving)
    scores = moving @ theta.T + bias
    (of_labels,) = torch.autograd.grad(-(labels * scores.log_softmax(-1)).sum(), moving)
    slopes = (of_true * of_labels).sum(-1)
    assert found["square"] == pytest.approx(of_labels.square().sum(-1).mean().item())
    assert found["slope"] == pytest.approx(slopes.mean().item())
    assert found["error"] == pytest.approx(slopes.std().item() / math.sqrt(40))
    top = torch.linalg.matrix_norm(theta, 2).item() ** 2 / 2
    for step, gain in zip(script.STEPS, found["gain"], strict=True):
        assert gain / top == pytest.approx(loss(z) - loss(z - step / top * of_labels))
    assert found["flow"] == pytest.approx(loss(z) + (true * labels.log()).sum().item() / 40)
    assert found["flow, solved"] == pytest.approx(found["flow"], abs=1e-3)


@pytest.mark.evidence("book-oracle-fashion")
def test_without_a_bias_it_is_the_block(small):
    theta, _, z, truth, labels = small
    top = torch.linalg.matrix_norm(theta, 2).item() ** 2 / 2
    after = unroll(z, theta, labels, "class", 1, 1 / top)[-1] @ theta.T
    found = script.worth(labels, z @ theta.T, theta, truth)
    assert found["after"] == (after.argmax(-1) == truth).double().mean().item()


def test_the_temperature_of_labels_drawn_at_a_temperature_is_found():
    generator = torch.Generator().manual_seed(2)
    scores = 3 * torch.randn(20_000, 5, generator=generator)
    truth = torch.multinomial((scores / 1.7).softmax(-1), 1, generator=generator)[:, 0]
    assert script.temperature(scores, truth) == pytest.approx(1.7, rel=0.03)
    assert script.calibration_error(scores / 1.7, truth) < 0.012
    assert script.calibration_error(scores, truth) > 0.05


@pytest.mark.evidence("book-oracle-fashion")
def test_a_small_run_has_the_order_of_the_large_one(monkeypatch):
    """Three thousand images, two epochs: the clean image is worth most, own labels little; as stored for all seeds."""
    monkeypatch.setattr(script, "LAYERS", 10)
    found = script.of_one_seed(0, 3000, 2)
    slope = {name: oracle["slope"] for name, oracle in found["oracles"].items()}
    assert slope["own"] == 0
    assert slope["own, 0.5"] < slope["views, 1"] < slope["views, clean"] < slope["label"]
    stored = json.loads((RESULTS / "oracle_value.json").read_text(encoding="utf-8"))["seeds"]
    assert len(stored) == script.SEEDS
    for seed in stored:
        ladder = [seed["oracles"][f"views, {view}"]["flow"] for view in ("1", "4", "9", "clean")]
        assert np.all(np.diff(ladder) > 0.05)
        assert all(abs(seed["oracles"][own]["slope"]) < 0.01 for own in ("own", "own, 0.5", "own, 2", "own, hard"))
