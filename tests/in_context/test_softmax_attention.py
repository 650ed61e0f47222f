"""The training of softmax attention: its layers, its references, and what stored runs must satisfy whatever the seeds."""

import math

import pytest
import softmax_attention
import torch
from helpers import normal

from attnbook.folder import results
from attnopt.in_context import (
    optimal_step_sizes,
    sample_prompts,
)


def softmax_by_loops(prompt, P, W):
    """Layers (2) in the paper's columns, entry by entry."""
    Z = prompt.mT.clone()
    n = Z.shape[1] - 1
    for i in range(len(P)):
        new = Z.clone()
        for value, score in zip(P[i], W[i], strict=True):
            for query in range(n + 1):
                weights = [math.exp(Z[:, key] @ score @ Z[:, query]) for key in range(n + 1)]
                for key in range(n):
                    new[:, query] += weights[key] / sum(weights) * (value @ Z[:, key])
        Z = new
    return -Z[-1, -1]


@pytest.mark.parametrize(("layers", "heads"), [(1, 1), (1, 2), (2, 1), (3, 2)])
def test_softmax_transformer_against_loops(layers, heads, generator):
    prompts = sample_prompts(3, torch.eye(2, dtype=torch.float64), 4, generator)[0]
    P, W = 0.5 * normal(generator, 2, layers, heads, 3, 3)
    expected = torch.stack([softmax_by_loops(prompt, P, W) for prompt in prompts])
    torch.testing.assert_close(softmax_attention.softmax_transformer(prompts, P, W), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.evidence("ahn-softmax-attention")
def test_one_softmax_head_answers_the_query_zero_with_a_mean(generator):
    prompts = sample_prompts(20, torch.eye(3, dtype=torch.float64), 6, generator)[0]
    prompts[:, -1] = 0
    P, W = normal(generator, 2, 1, 1, 4, 4)
    tokens = prompts[:, :-1]
    mean = -(tokens @ P[0, 0, -1]).sum(-1) / 7
    torch.testing.assert_close(softmax_attention.softmax_transformer(prompts, P, W), mean, rtol=1e-12, atol=1e-12)
    # a gradient step answers 0 there: that leaves no last row of P, as the means of prompts span all directions
    assert torch.linalg.matrix_rank(tokens.sum(1)) == 4
    P[0, 0, -1] = 0
    prompts[:, -1, :-1] = normal(generator, 20, 3)
    assert softmax_attention.softmax_transformer(prompts, P, W).abs().max() == 0


def test_limit_of_two_opposite_heads(generator):
    for d, n in ((2, 3), (5, 20)):
        prompts, targets = sample_prompts(100_000, torch.eye(d, dtype=torch.float64), n, generator)
        scores = (prompts[..., :d] @ prompts[:, -1, :d, None]).squeeze(-1)
        centred = ((scores - scores.mean(-1, keepdim=True)) * prompts[..., d]).sum(-1) / n
        factor = (d * n / (n + 1)) / (centred.square().mean())
        losses = (factor * centred - targets).square()
        assert abs(losses.mean() - softmax_attention.two_heads_limit(d, n)) < 5 * losses.std() / len(losses) ** 0.5


def pairs_of_heads(x, y, query, matrices, scale):
    """The prediction of layers of two opposite heads over the examples; x (..., n, d), query (..., d)."""
    tokens = torch.cat([x, query[..., None, :]], -2)
    labels = torch.cat([y, torch.zeros_like(y[..., :1])], -1)
    for A in matrices:
        scores = scale * tokens @ A.mT @ x.mT
        weights = (scores.softmax(-1) - (-scores).softmax(-1)) / (2 * scale)
        labels = labels + (weights @ labels[..., :-1, None])[..., 0]
    return -labels[..., -1]


@pytest.mark.evidence("ahn-softmax-attention")
def test_pairs_of_heads_take_gradient_steps_on_centered_least_squares(generator):
    """By differentiation, with labels that no line fits; a tenth of the scale leaves a hundredth of the error."""
    d, n, k = 3, 50, 3
    x, query, y = normal(generator, n, d), normal(generator, d), 1 + normal(generator, n)
    matrices = 0.2 * normal(generator, k, d, d) - 0.5 * torch.eye(d)
    w = torch.zeros(d, dtype=torch.float64)
    for A in matrices:
        w.requires_grad_()
        loss = (y - y.mean() - (x - x.mean(0)) @ w).square().mean() / 2
        w = (w + A.mT @ torch.autograd.grad(loss, w)[0]).detach()
    errors = [(pairs_of_heads(x, y, query, matrices, scale) - query @ w).abs().item() for scale in (0.1, 0.01, 0.001)]
    assert errors[0] < 0.1
    assert abs(errors[0] / errors[1] / 100 - 1) < 0.2
    assert abs(errors[1] / errors[2] / 100 - 1) < 0.01


@pytest.mark.evidence("ahn-softmax-attention")
@pytest.mark.parametrize("k", [1, 2, 3])
def test_pairs_of_heads_lose_one_example(k, generator):
    d, n, count = 2, 16, 50_000
    x, query, w = normal(generator, count, n, d), normal(generator, count, d), normal(generator, count, d)
    steps, least = optimal_step_sizes(d, n - 1, k)
    matrices = n / (n - 1) * steps[:, None, None] * torch.eye(d, dtype=torch.float64)
    labels = (x @ w[..., None])[..., 0]
    losses = (pairs_of_heads(x, labels, query, matrices, 1e-3) - (w * query).sum(-1)).square()
    assert abs(losses.mean() - float(least)) < 4 * losses.std() / count**0.5
    assert losses.std() / count**0.5 < 0.05 * float(least)


def test_stored_softmax_attention():
    found = results("softmax_attention")
    optimum = found["optimum"]
    assert math.isclose(optimum["steps"]["1"], 15 / 13, rel_tol=1e-9)
    assert math.isclose(optimum["steps"]["2"], 1795 / 4969, rel_tol=1e-9)
    assert math.isclose(optimum["two_heads_limit"], softmax_attention.two_heads_limit(5, 20), rel_tol=1e-8)
    settings = [(run["layers"], run["heads"], run["kind"], run["seed"]) for run in found["runs"]]
    assert len(set(settings)) == len(settings) == 3 * sum(map(len, found["settings"]["seeds"].values()))
    for run in found["runs"]:
        assert all(value >= 0 for value in (run["test_loss"], run["test_se"], run["nonlinear_share"]))
        if run["layers"] == 1 and run["kind"] == "linear":  # Theorem 1
            assert run["test_loss"] > optimum["steps"]["1"] - 4 * run["test_se"]
        if run["layers"] == 1 and run["heads"] == 1 and run["kind"] == "softmax":
            assert run["test_loss"] > optimum["one_head"]["loss"] - 5 * run["test_se"]
