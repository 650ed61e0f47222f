import re

import pytest
import torch
from helpers import normal

from attnopt.regression import sinkhorn_attention, sinkhorn_value
from attnopt.regression.sinkhorn import _check_row_sums


def symmetric(generator, *shape, scale=1.0):
    root = normal(generator, *shape)
    return scale * (root + root.mT)


@pytest.mark.parametrize("off", [-1e-7, 1e-7, -1.0, float("nan")])
def test_row_sums_off_either_way_are_refused(off):
    with pytest.raises(ValueError, match="less spread"):
        _check_row_sums(torch.tensor([1.0, 1 + off], dtype=torch.float64), torch.eye(2, dtype=torch.float64))


def doubly_stochastic(generator, tokens):
    """A random mixture of permutations."""
    permutations = torch.eye(tokens, dtype=torch.float64)[torch.rand(6, tokens, generator=generator).argsort(-1)]
    weights = torch.softmax(normal(generator, 6), 0)
    return (weights[:, None, None] * permutations).sum(0)


@pytest.mark.evidence("actor-corollary-2")
@pytest.mark.parametrize("both_axes", [True, False])
def test_repaired_corollary(both_axes, generator):
    features, root = normal(generator, 2, 4, 3), normal(generator, 3, 3)
    weights = root @ root.mT / 3
    labels = doubly_stochastic(generator, 4) if both_axes else torch.softmax(normal(generator, 4, 4), -2)
    loss = lambda z: sinkhorn_value(z @ weights @ z.mT) - (labels * (z @ weights @ z.mT)).sum((-2, -1))  # noqa: E731
    attention = sinkhorn_attention(features @ weights @ features.mT)
    formula = (2 * attention - labels - labels.mT) @ features @ weights
    by_autograd = torch.func.grad(lambda z: loss(z).sum())(features)
    torch.testing.assert_close(formula, by_autograd, rtol=1e-9, atol=1e-10)
    direction, step = normal(generator, 2, 4, 3), 1e-5
    slope = (loss(features + step * direction) - loss(features - step * direction)) / (2 * step)
    torch.testing.assert_close((formula * direction).sum((-2, -1)), slope, rtol=1e-6, atol=1e-8)
    # it is the cross-entropy exactly if the labels are normalized on both axes
    cross_entropy = -(labels * attention.log()).sum((-2, -1))
    assert torch.allclose(loss(features), cross_entropy, rtol=1e-10) == both_axes


def test_attention_can_be_differentiated(generator):
    scores = symmetric(generator, 3, 3)
    pull = normal(generator, 3, 3)
    direction = symmetric(generator, 3, 3)
    derivative = torch.func.grad(lambda a: (pull * sinkhorn_attention(a)).sum())(scores)
    step = 1e-6
    ahead, behind = (sinkhorn_attention(scores + side * step * direction) for side in (1, -1))
    slope = (pull * (ahead - behind)).sum() / (2 * step)
    torch.testing.assert_close((derivative * direction).sum(), slope, rtol=1e-6, atol=1e-9)


def test_value_keeps_its_derivative_for_spread_scores(generator):
    checked = 0
    for _ in range(40):
        scores = symmetric(generator, 5, 5, scale=25.0)
        try:
            attention = sinkhorn_attention(scores)
        except ValueError:
            continue
        torch.testing.assert_close(torch.func.grad(sinkhorn_value)(scores), attention, rtol=1e-6, atol=1e-9)
        checked += 1
    assert checked >= 5


def test_a_constant_changes_nothing_but_the_value(generator):
    scores = symmetric(generator, 2, 3, 3)
    for constant in (-800.0, 800.0):  # whose exponential float64 does not hold
        torch.testing.assert_close(sinkhorn_attention(scores + constant), sinkhorn_attention(scores), rtol=1e-11, atol=0)
        torch.testing.assert_close(sinkhorn_value(scores + constant), sinkhorn_value(scores) + 3 * constant)


@pytest.mark.parametrize("scores", [[[0.0, 50.0], [50.0, 100.0]], [[-20.0, 20.0], [20.0, 50.0]]])
def test_scores_on_which_weaker_damping_never_arrives(scores):
    attention = sinkhorn_attention(torch.tensor(scores, dtype=torch.float64))
    for dim in (0, 1):
        torch.testing.assert_close(attention.sum(dim), torch.ones(2, dtype=torch.float64), rtol=0, atol=1e-7)


@pytest.mark.parametrize(("scale", "most_refused"), [(15.0, 0), (60.0, 8), (200.0, 20)])
def test_spread_scores_are_balanced_or_refused(scale, most_refused):
    refused = 0
    for seed in range(60):
        scores = symmetric(torch.Generator().manual_seed(seed), *(1 + seed % 5,) * 2, scale=scale)
        if seed % 2:  # all negative but for the diagonal, where a scaling may not exist in float64
            scores = (seed % 3) * torch.diag(scores.diagonal().abs()) - scores.abs()
        try:
            assert (sinkhorn_attention(scores).sum(-1) - 1).abs().max() < 2e-8
        except ValueError:
            refused += 1
    assert refused <= most_refused


def test_one_bad_matrix_of_a_batch_is_enough():
    good, spread = torch.zeros(2, 2).double(), torch.tensor([[-700.0, 1.0], [1.0, -700.0]]).double()
    for bad in (spread, 1e5 * spread):
        with pytest.raises(ValueError, match=re.escape(f"got a range of {(bad.max() - bad.min()).item():.3g}") + "$"):
            sinkhorn_attention(torch.stack([bad, bad]))
        with pytest.raises(ValueError, match="less spread"):
            sinkhorn_attention(torch.stack([good, bad]))
