"""The training of GD++ layers: its objective, its solver, and what the stored runs must satisfy whatever the seeds."""

import itertools
import math

import covariances
import gdpp_training
import numpy as np
import torch
from helpers import normal

from attnbook.folder import results
from attnopt.in_context import (
    gdpp_loss,
    gdpp_optimum,
    prompt_losses,
    sample_grams,
)


def test_batch_loss_is_the_mean_of_prompt_losses(generator):
    grams, A, B = sample_grams(30, 5, 7, generator), normal(generator, 3, 5, 5), normal(generator, 3, 5, 5)
    last = grams.permute(1, 2, 0).contiguous()

    def by_package(A, B):
        return prompt_losses(grams, A, B).mean()

    torch.testing.assert_close(gdpp_training.batch_loss(last, A, B), by_package(A, B), rtol=1e-12, atol=0)
    expected = torch.func.grad(by_package, argnums=(0, 1))(A, B)
    variables = A.clone().requires_grad_(), B.clone().requires_grad_()
    found = torch.autograd.grad(gdpp_training.batch_loss(last, *variables), variables, materialize_grads=True)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def rosenbrock(x):
    value = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    return value, np.array([2 * (x[0] - 1) - 400 * x[0] * (x[1] - x[0] ** 2), 200 * (x[1] - x[0] ** 2)])


def test_lbfgs_finds_a_minimum_and_never_climbs():
    points, values, _ = gdpp_training.lbfgs([rosenbrock], np.array([-1.2, 1.0]), 100, window=200)
    np.testing.assert_allclose(points[-1], [1, 1], atol=1e-8)
    assert all(later <= earlier for earlier, later in itertools.pairwise(values))


def test_stored_gdpp_training():
    found = results("gdpp_training")
    for n, optimum in found["optimum"].items():
        steps, curvatures, loss = gdpp_optimum(5, int(n), 3)
        np.testing.assert_allclose(optimum["steps"], steps, rtol=1e-5)
        np.testing.assert_allclose(optimum["curvatures"], curvatures, rtol=1e-5)
        np.testing.assert_allclose(np.multiply(optimum["b"], optimum["steps"][:-1]), curvatures, rtol=1e-5)
        assert math.isclose(optimum["loss"], loss, rel_tol=1e-7)
        # the tail is so heavy that even millions of prompts fall short of the mean, by many of their own standard errors
        assert math.isclose(optimum["test_mean"], loss, rel_tol=0.1)
    settings = {(run["n_context"], run["seed"]) for run in found["runs"]}
    assert settings == {(n, seed) for n in (10, 20) for seed in found["settings"]["seeds"]}
    assert len(settings) == len(found["runs"]) >= 10


def test_stored_gdpp_runs():
    found = results("gdpp_training")
    for run in found["runs"]:
        A, B, covariance = (
            torch.tensor(run[key], dtype=torch.float64) for key in ("A_whitened", "B_whitened", "covariance")
        )
        root, inverse = covariances.square_roots(covariance)
        for key, matrices in {
            "A_whitened": root @ torch.tensor(run["A"]).double() @ root,
            "A": run["A"],
            "B": run["B"],
        }.items():
            final = [layer[-1] for layer in run[f"dist_{key}"]]
            np.testing.assert_allclose(final, covariances.dist(torch.as_tensor(matrices)), rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(A, root @ torch.tensor(run["A"]).double() @ root, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(B, inverse @ torch.tensor(run["B"]).double() @ root, rtol=1e-3, atol=1e-4)
        lengths = {len(run["iterations"]), len(run["loss"])} | {len(row) for key in run if "dist" in key for row in run[key]}
        assert len(lengths) == 1
        assert lengths.pop() <= 200
        assert run["loss"] == sorted(run["loss"], reverse=True)
        assert math.isclose(run["loss"][-1], run["train_loss"], rel_tol=1e-3)
        # on S no loss is below the optimum's; this is the exact loss, which samples of any affordable size miss
        optimum = found["optimum"][str(run["n_context"])]
        assert run["exact_on_S"] >= optimum["loss"]
        a, b = (x.diagonal(dim1=-2, dim2=-1).mean(-1) for x in (A, B))
        assert math.isclose(gdpp_loss(a, a[:-1] * b, 5, run["n_context"]), run["exact_on_S"], rel_tol=1e-3)
        assert run["best_on_S_on_batch"] <= run["optimum_on_batch"]
        assert run["stalled"] == (run["test_median"] > 2 * optimum["test_median"])
