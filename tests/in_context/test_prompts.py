"""Random prompts: shapes, moments, and what is refused."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnopt.in_context import sample_grams, sample_prompts

COVARIANCE = torch.tensor([[1.0, 0.3], [0.3, 0.5]], dtype=torch.float64)


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 4))
def test_shapes_and_labels(count, n, dim):
    generator = torch.Generator().manual_seed(0)
    prompts, targets = sample_prompts(count, torch.eye(dim, dtype=torch.float64), n, generator)
    assert prompts.shape == (count, n + 1, dim + 1)
    assert targets.shape == (count,)
    assert (prompts[:, -1, -1] == 0).all()
    if n >= dim:  # one w explains all labels and the target
        w = torch.linalg.lstsq(prompts[:, :-1, :-1], prompts[:, :-1, -1:]).solution
        torch.testing.assert_close((prompts[:, -1:, :-1] @ w).flatten(), targets, rtol=1e-4, atol=1e-6)
    assert sample_grams(count, dim, n, generator).shape == (count, dim, dim)


def test_moments_of_covariates_and_weights(generator):
    weights = torch.tensor([[2.0, -0.5], [-0.5, 1.0]], dtype=torch.float64)
    prompts, targets = sample_prompts(60_000, COVARIANCE, 2, generator, weights)
    x = prompts[:, :, :-1].reshape(-1, 2)
    torch.testing.assert_close(x.mT @ x / len(x), COVARIANCE, rtol=0, atol=0.02)
    assert x.mean(0).abs().max() < 0.02
    w = torch.linalg.solve(prompts[:, :-1, :-1], prompts[:, :-1, -1:])[..., 0]
    torch.testing.assert_close(w.mT @ w / len(w), weights, rtol=0, atol=0.06)
    squares = targets.square()
    expected = (COVARIANCE @ weights).trace()
    assert abs(squares.mean() - expected) < 5 * squares.std() / len(squares) ** 0.5
    assert w[0].ne(w[1]).all()  # new weights in every prompt


@pytest.mark.evidence("ahn-lemma-7")
@pytest.mark.parametrize(("n", "dim"), [(1, 3), (4, 2), (10, 3)])
def test_gram_moments(n, dim, generator):
    """E[G] = I and E[GNG] = N + (Nᵀ + tr N)/n: the lemma under Theorem 1, with a matrix that is not symmetric."""
    draws = 40_000
    G = sample_grams(draws, dim, n, generator)
    N = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    identity = torch.eye(dim, dtype=torch.float64)
    for sample, expected in ((G, identity), (G @ N @ G, N + (N.mT + N.trace() * identity) / n)):
        error = sample.std(0) / draws**0.5
        assert ((sample.mean(0) - expected).abs() < 5 * error).all()
    assert (torch.linalg.matrix_rank(G[:50]) == min(n, dim)).all()


def test_bad_arguments_are_named(generator):
    for arguments, name in (((0, COVARIANCE, 3), "n_prompts"), ((2, COVARIANCE, 0), "n_context")):
        with pytest.raises(ValueError, match=name):
            sample_prompts(*arguments, generator)
    with pytest.raises(ValueError, match="covariance"):
        sample_prompts(2, -COVARIANCE, 3, generator)
    with pytest.raises(ValueError, match="one matrix"):
        sample_prompts(2, COVARIANCE.expand(2, 2, 2), 3, generator)
    with pytest.raises(ValueError, match="weight_covariance"):
        sample_prompts(2, COVARIANCE, 3, generator, torch.eye(3, dtype=torch.float64))
    with pytest.raises(TypeError, match="n_context"):
        sample_prompts(2, COVARIANCE, 3.0, generator)
