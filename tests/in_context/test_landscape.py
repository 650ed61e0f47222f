"""The loss over all matrices: what symmetry says of it on and around the set A_i = a_i Σ⁻¹, and what training finds."""

import importlib.util
from pathlib import Path

import covariances
import pytest
import torch
from helpers import normal

from attnbook.folder import results
from attnopt.in_context import (
    gram_quadrature,
    optimal_step_sizes,
    prompt_losses,
    step_loss,
    transverse_hessians,
)

ROOT = Path(__file__).parents[2]


def exact_loss(dim, n_context, layers):
    """The in-context loss of whitened A, shape (k, d, d) or flat, without sampling."""
    grams, weights = map(torch.from_numpy, gram_quadrature(dim, n_context, 2 * layers))
    return lambda A: prompt_losses(grams, A.reshape(layers, dim, dim)) @ weights


def on_S(steps, dim):
    """Whitened weights a_i I."""
    return torch.as_tensor(steps, dtype=torch.float64)[:, None, None] * torch.eye(dim, dtype=torch.float64)


def covariance_and_root(generator, dim):
    """A random covariance and its symmetric square root."""
    x = normal(generator, dim, dim)
    values, vectors = torch.linalg.eigh(x @ x.mT + 0.3 * torch.eye(dim, dtype=torch.float64))
    return vectors * values @ vectors.mT, vectors * values.sqrt() @ vectors.mT


@pytest.mark.evidence("ahn-theorem-4", "ahn-infimum-attained")
@pytest.mark.parametrize(("dim", "n_context", "k"), [(2, 1, 2), (2, 4, 3), (3, 2, 2), (3, 5, 2)])
def test_gradient_on_S_is_a_multiple_of_the_covariance_and_elsewhere_it_is_not(dim, n_context, k, generator):
    covariance, root = covariance_and_root(generator, dim)
    loss = exact_loss(dim, n_context, k)
    function = lambda A: loss(root @ A @ root)  # noqa: E731
    steps = normal(generator, k)
    precision = torch.linalg.inv(covariance)
    slope = torch.func.grad(function)(steps[:, None, None] * precision)
    factors = torch.func.grad(lambda a: step_loss(a, dim, n_context))(steps) / dim
    torch.testing.assert_close(slope, factors[:, None, None] * covariance, rtol=1e-8, atol=1e-10)
    off = torch.func.grad(function)(steps[:, None, None] * precision + 0.1 * normal(generator, k, dim, dim))
    part = (precision @ off).diagonal(dim1=1, dim2=2).mean(1)[:, None, None] * covariance
    assert (off - part).norm() > 1e-3 * off.norm()


@pytest.mark.evidence("ahn-global-optimality")
@pytest.mark.parametrize(("dim", "n_context", "k"), [(2, 1, 2), (2, 3, 3), (3, 2, 2), (2, 4, 4)])
@pytest.mark.parametrize("at_optimum", [True, False])
def test_transverse_hessians_are_those_of_autograd(dim, n_context, k, at_optimum, generator):
    steps = optimal_step_sizes(dim, n_context, k)[0] if at_optimum else normal(generator, k) / 2
    hessian = torch.func.hessian(exact_loss(dim, n_context, k))(on_S(steps, dim).flatten())
    hessian = hessian.reshape(k, dim * dim, k, dim * dim)
    E = torch.zeros(2, dim, dim, dtype=torch.float64)
    E[:, 0, 1] = 0.5**0.5
    E[0, 1, 0], E[1, 1, 0] = 0.5**0.5, -(0.5**0.5)
    for block, direction in zip(transverse_hessians(steps, dim, n_context), E.flatten(1), strict=True):
        found = torch.einsum("iajb,a,b->ij", hessian, direction, direction)
        torch.testing.assert_close(block, found, rtol=1e-7, atol=1e-9)
    both = torch.einsum("iajb,a,b->ij", hessian, *E.flatten(1))
    identity = torch.eye(dim, dtype=torch.float64).flatten()
    assert max(both.abs().max(), torch.einsum("iajb,a,b->ij", hessian, E[0].flatten(), identity).abs().max()) < 1e-8


def descend(loss, start, iterations=400):
    """L-BFGS; the point and its loss."""
    A = start.clone().requires_grad_()
    optimiser = torch.optim.LBFGS(
        [A], max_iter=iterations, history_size=50, tolerance_grad=1e-9, tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure():
        optimiser.zero_grad()
        value = loss(A)
        value.backward()
        return value

    optimiser.step(closure)
    return A.detach(), closure().item()


@pytest.mark.evidence("ahn-global-optimality")
@pytest.mark.parametrize(("n_context", "excess"), [(2, 0.0207), (5, 0.0511)])
def test_swapped_steps_on_two_axes_are_a_local_minimum_outside_S(n_context, excess):
    loss = exact_loss(2, n_context, 3)
    steps, best = optimal_step_sizes(2, n_context, 3)
    start = torch.stack([steps, steps[[1, 0, 2]]], -1)
    found, value = descend(lambda D: loss(torch.diag_embed(D)), start)
    point = torch.diag_embed(found)
    assert value / float(best) - 1 == pytest.approx(excess, abs=2e-4)
    assert torch.func.grad(loss)(point).abs().max() < 1e-6  # critical over all matrices
    assert found[0, 0] > found[1, 0] + 0.1  # short then longer on one axis
    assert found[0, 1] < found[1, 1] - 0.1  # and the other way round on the other
    values, vectors = torch.linalg.eigh(torch.func.hessian(loss)(point.flatten()))
    assert abs(values[0]) < 1e-6
    assert values[1] > 0.1
    J = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    turning = (J @ point - point @ J).flatten()  # the flat direction turns the basis
    assert abs(vectors[:, 0] @ turning) == pytest.approx(turning.norm().item(), rel=1e-4)


@pytest.fixture(scope="module")
def experiment():
    """The script that trains as in section 5.3, in float64."""
    specification = importlib.util.spec_from_file_location("training", ROOT / "experiments" / "step_sizes_training.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield module
    torch.set_default_dtype(before)


RECORD = results("step_sizes_training")["training"]


@pytest.mark.evidence("ahn-figure-1")
def test_losses_of_a_batch_of_runs_are_those_of_the_package(experiment, generator):
    grams, A = experiment.prompts(30), normal(generator, 5, 3, 5, 5)
    expected = prompt_losses(grams, A[:, None]).mean(1)
    torch.testing.assert_close(experiment.losses(grams, A), expected)
    M = A[0, 0]
    brute = min((M - a * torch.eye(5)).norm() / M.norm() for a in torch.linspace(-3, 3, 6001))
    assert covariances.dist(M) == pytest.approx(brute.item(), abs=1e-5)
    roots = torch.stack([experiment.covariance_root(seed) for seed in range(2)])
    spectrum = torch.tensor(sorted(covariances.DIAGONAL))
    torch.testing.assert_close(torch.linalg.eigvalsh(roots), spectrum.expand(2, -1))
    assert not torch.allclose(roots[0], roots[1])


@pytest.mark.evidence("ahn-figure-1", "ahn-figure-2", "ahn-global-optimality")
def test_training_ends_at_the_optimum_of_S_and_not_at_zero(experiment):
    """The record of 20,000 prompts: losses within the sampling error of the exact optimum, every weight near S."""
    best = float(optimal_step_sizes(5, 20, 3)[1])
    steps = optimal_step_sizes(5, 20, 3)[0]
    final = torch.tensor(RECORD["loss"][-1])
    assert RECORD["exact_optimum"] == pytest.approx(best)
    values = prompt_losses(experiment.prompts(20_000)[0], on_S(steps, 5))
    error = values.std().item() / 20_000**0.5
    assert (final - best).abs().max() < 5 * error
    assert final.min() > 0.9 * best > 0.1
    assert abs(values.mean().item() - RECORD["loss"][-1][0]) < 0.01 * best  # the same prompts
    A = torch.tensor(RECORD["A"])
    roots = torch.stack([experiment.covariance_root(seed) for seed in range(5)])[:, None]
    whitened = roots @ A @ roots
    torch.testing.assert_close(covariances.dist(whitened), torch.tensor(RECORD["dist_whitened"][-1]), atol=1e-4, rtol=0)
    assert covariances.dist(whitened).max() < 0.06
    assert (covariances.dist(A) - 0.785).abs().max() < 0.03
    found = whitened.diagonal(dim1=2, dim2=3).mean(-1)
    torch.testing.assert_close(found.sort(1, descending=True).values, steps.expand(5, -1), rtol=0.02, atol=0)
    assert len({tuple(row.argsort().tolist()) for row in found}) > 1  # the order is not identifiable
    start = torch.tensor(RECORD["dist_whitened"][0])
    assert start.min() > 0.5  # Dist does fall
    means = [torch.tensor(value).mean().item() for value in RECORD["final_distances"].values()]
    assert means[0] / means[1] == pytest.approx(2, abs=0.5)  # like the square root of the number of prompts
    assert means[1] / means[2] == pytest.approx(2, abs=0.5)


@pytest.mark.evidence("ahn-figure-1")
def test_a_small_training_finds_S(experiment):
    record = experiment.train(experiment.prompts(1000), torch.eye(5).expand(5, 5, 5), 0.1, 40)
    steps = optimal_step_sizes(5, 20, 3)[0]
    found = record["A"].diagonal(dim1=2, dim2=3).mean(-1).sort(1, descending=True).values
    assert ((found - steps) / steps).abs().max() < 0.15
    assert (record["loss"].diff(dim=0).sum(1) <= 1e-9).all()
    assert record["dist_whitened"][-1].mean() < 0.15 < record["dist_whitened"][0].min()
