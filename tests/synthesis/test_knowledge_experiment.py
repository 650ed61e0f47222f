"""The script behind the chapter's measurements, at a small size, against other ways to the same numbers."""

import itertools
import math

import numpy as np
import one_layer_knows as script
import pytest
import torch

from attnopt.synthesis import best_agreement, softmax_price, unseen_mass


@pytest.mark.evidence("book-softmax-price")
def test_the_limits_are_reached():
    stored = script.RECORD.stored()["softmax"]
    assert {(row["d"], row["n"]) for row in stored} == set(itertools.product((1, 2, 3, 5, 10, 20), (100, 1000, 10_000)))
    for row in stored:
        assert row["limit"] == pytest.approx(softmax_price(row["d"]).number, rel=1e-4)
        if row["n"] == 10_000:
            assert row["value"] == pytest.approx(row["limit"], rel=0.04)


@pytest.mark.evidence("book-sampled-sum")
def test_sums_of_drawn_cells_leave_what_prompts_leave():
    top, total = script.sums(6, 2, 30, np.array([1.2]), 40_000, 3)
    draw = np.random.default_rng(8)
    x = draw.integers(0, 2, (40_000, 30, 6))
    weights, labels = np.exp(-1.2 * x.sum(-1)), 1 - 2 * (x[..., :2].sum(-1) % 2)
    for mine, other in ((top[0], (weights * labels).sum(1)), (total[0], weights.sum(1))):
        assert abs(mine.mean() - other.mean()) < 5 * other.std() / 200
        assert mine.std() == pytest.approx(other.std(), rel=0.05)
    for row in script.RECORD.stored()["normalized"]:
        number = best_agreement(row["L"], row["k"])[1]
        left, error = row["expected"]
        assert abs(left - (number - 1) / (row["n"] + number - 1)) < 4 * error


@pytest.mark.evidence("book-heads-read")
def test_a_curve_of_cells_is_the_theorem_s(monkeypatch):
    monkeypatch.setattr(script, "NUMBERS", (1, 3, 8))
    tokens, targets = script.TASK.all()
    labels, count = 1 - 2 * targets.double(), tokens[:, :5].sum(1, keepdim=True).double()
    sets = script.prompts(300, 5), script.prompts(1500, 6)
    found = np.array(script.curve(count, labels, sets)) / 1000
    shares = torch.tensor([math.comb(5, c) / 32 for c in range(6)], dtype=torch.float64)
    np.testing.assert_allclose(found, unseen_mass(shares, [1, 3, 8]), atol=0.05)
    noise = torch.randn(4096, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert min(script.curve(noise, labels, sets)) > 950
