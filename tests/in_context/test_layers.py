"""The exact loss of several layers, against quadrature, other closed forms, and sampled prompts."""

import math
import re

import pytest
import torch

from attnopt.in_context import (
    gdpp_loss,
    gram_quadrature,
    in_context_loss,
    layers_loss,
    one_layer_loss,
    sample_prompts,
    step_loss,
    wishart_trace_moment,
)
from attnopt.in_context.layers import _moment


def problem(seed, layers, dim, *batch):
    """Random matrices, and covariances of covariates and weights."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    covariances = [draw(*batch, dim, dim) for _ in range(2)]
    covariances = [factor @ factor.mT / dim + 0.3 * torch.eye(dim, dtype=torch.float64) for factor in covariances]
    return 0.4 * draw(*batch, layers, dim, dim), *covariances


def by_quadrature(A, covariance, n_context, weight_covariance):
    """The mean of tr Ω T Σ Tᵀ by Gauss rules, with T layer by layer."""
    grams, weights = map(torch.from_numpy, gram_quadrature(len(covariance), n_context, 2 * len(A)))
    root = torch.linalg.cholesky(covariance)
    moments = root @ grams @ root.mT
    T = torch.eye(len(covariance), dtype=torch.float64).expand_as(moments)
    for matrix in A:
        T = T + T @ moments @ matrix
    return weights @ torch.einsum("ij,qjk,kl,qil->q", weight_covariance, T, covariance, T)


@pytest.mark.parametrize(("layers", "dim", "n_context"), [(1, 3, 2), (2, 2, 1), (2, 3, 4), (3, 1, 3), (3, 2, 1), (3, 2, 5)])
def test_the_loss_and_its_gradient_are_those_of_a_quadrature(layers, dim, n_context):
    arguments = [value.requires_grad_() for value in problem(layers + dim, layers, dim)]
    loss, expected = (of(*arguments[:2], n_context, arguments[2]) for of in (layers_loss, by_quadrature))
    torch.testing.assert_close(loss, expected, rtol=1e-11, atol=0)
    for ours, theirs in zip(torch.autograd.grad(loss, arguments), torch.autograd.grad(expected, arguments), strict=True):
        ours, theirs = ((one + one.mT) / 2 if one.ndim == 2 else one for one in (ours, theirs))  # of symmetric matrices
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_one_layer_has_the_loss_of_its_own_formula():
    A, covariance, weight_covariance = problem(1, 1, 5, 2, 3)
    expected = one_layer_loss(A[..., 0, :, :], covariance, 7, weight_covariance)
    torch.testing.assert_close(layers_loss(A, covariance, 7, weight_covariance), expected)
    torch.testing.assert_close(layers_loss(A, covariance, 7), one_layer_loss(A[..., 0, :, :], covariance, 7))


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_multiples_of_the_inverse_covariance_have_the_loss_of_their_steps_times_a_trace(layers):
    _, covariance, weight_covariance = problem(2, 1, 6)
    steps = -torch.linspace(0.3, 0.9, layers, dtype=torch.float64)
    A = steps[:, None, None] * torch.linalg.inv(covariance)
    factor = torch.trace(covariance @ weight_covariance) / 6
    torch.testing.assert_close(layers_loss(A, covariance, 9, weight_covariance), factor * step_loss(steps, 6, 9))
    torch.testing.assert_close(layers_loss(A, covariance, 9, torch.linalg.inv(covariance)), step_loss(steps, 6, 9))


def sampled(P, Q, covariance, n_context, weight_covariance, count=200_000):
    """The mean squared error over prompts, and its standard error."""
    generator = torch.Generator().manual_seed(5)
    prompts, targets = sample_prompts(count, covariance, n_context, generator, weight_covariance)
    errors = torch.stack([in_context_loss(*part, P, Q) for part in zip(prompts.split(500), targets.split(500), strict=True)])
    return errors.mean(), errors.std() / math.sqrt(len(errors))


def placed(upper, last, lower=None):
    """A layer's P and Q: -1 at the label and B above it, A in Q."""
    dim = upper.shape[-1]
    P, Q = (torch.zeros(len(upper), dim + 1, dim + 1, dtype=torch.float64) for _ in range(2))
    P[:, -1, -1], Q[:, :dim, :dim] = last, upper
    if lower is not None:
        P[:, :dim, :dim] = lower
    return P, Q


def test_the_documented_parameters_are_those_of_plain_layers():
    A, (P, Q) = problem(3, 2, 3)[0], torch.zeros(2, 2, 4, 4, dtype=torch.float64)
    for line in re.findall(r"``([PQ]\[.*?)``", layers_loss.__doc__):
        exec(line, {"P": P, "Q": Q, "A": A, "d": 3})
    for found, wanted in zip((P, Q), placed(A, 1.0), strict=True):
        assert torch.equal(found, wanted)


def test_prompts_token_by_token_have_the_exact_loss_on_average():
    """Also of layers that move the covariates, where a factor says what the weights' covariance does."""
    A, covariance, weight_covariance = problem(3, 2, 3)
    mean, error = sampled(*placed(A, 1.0), covariance, 6, weight_covariance)
    assert abs(layers_loss(A, covariance, 6, weight_covariance) - mean) < 4 * error
    assert error < 0.02 * mean
    steps, curvatures = torch.tensor([-0.5, -0.7]).double(), torch.tensor([-0.2]).double()
    inverse = torch.linalg.inv(covariance)
    moved = torch.stack([curvatures[0] / steps[0] * torch.eye(3).double(), torch.zeros(3, 3).double()])
    P, Q = placed(steps[:, None, None] * inverse, 1.0, moved)
    mean, error = sampled(P, Q, covariance, 6, weight_covariance)
    factor = torch.trace(covariance @ weight_covariance) / 3
    assert abs(factor * gdpp_loss(steps, curvatures, 3, 6) - mean) < 4 * error
    assert error < 0.02 * mean


@pytest.mark.parametrize("partition", [(1,), (2,), (4,), (1, 1), (2, 1), (3, 2), (1, 1, 2)])
def test_words_of_identities_have_the_moments_of_traces(partition):
    identity = torch.eye(3, dtype=torch.float64)
    words = tuple((identity,) * power for power in partition)
    assert _moment(words, 5).item() == wishart_trace_moment(partition, 3, 5)


def test_five_layers_are_referred_to_samples():
    A, covariance, weight_covariance = problem(4, 5, 2)
    with pytest.raises(ValueError, match="A must have at most 4 layers, .* got 5: sample it by in_context_loss of"):
        layers_loss(A, covariance, 3, weight_covariance)
    with pytest.raises(ValueError, match=r"A must have a dimension of layers, \(..., k, 2, 2\), got \(2, 2\)"):
        layers_loss(A[0], covariance, 3)
