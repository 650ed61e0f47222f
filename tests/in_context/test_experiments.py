"""The experiments' own functions, and what their stored results must satisfy whatever the seeds."""

import itertools
import math

import covariances
import domain_shift
import gdpp_training
import numpy as np
import pytest
import softmax_attention
import torch
from helpers import normal

from attnopt.in_context import (
    gdpp_loss,
    gdpp_optimum,
    in_context_loss,
    optimal_step_sizes,
    prompt_losses,
    sample_grams,
    sample_prompts,
    step_loss,
)
from bookkit.folder import results

# ------------------------------------------------------------------------------------------------- gdpp_training


def test_dist_is_the_distance_to_the_multiples_of_the_identity(generator):
    matrices = normal(generator, 4, 5, 5)
    found = covariances.dist(matrices)
    alphas = torch.linspace(-3, 3, 60_001, dtype=torch.float64)
    for matrix, value in zip(matrices, found, strict=True):
        gaps = (matrix.square().sum() - 2 * alphas * matrix.trace() + 5 * alphas**2).sqrt() / matrix.norm()
        assert math.isclose(value, gaps.min(), rel_tol=1e-7)
    torch.testing.assert_close(covariances.dist(-3 * matrices), found)
    assert covariances.dist(2 * torch.eye(5, dtype=torch.float64)) == 0


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


def test_batch_loss_knows_three_layers_only(generator):
    with pytest.raises(ValueError, match="A must have 3 layers, got 2"):
        gdpp_training.batch_loss(torch.ones(5, 5, 1), torch.ones(2, 5, 5), torch.ones(2, 5, 5))


def test_chunks_do_not_matter(generator, monkeypatch):
    grams, point = sample_grams(50, 5, 7, generator).permute(1, 2, 0), normal(generator, 6, 5, 5).numpy().ravel()

    def loss(grams, point):
        return gdpp_training.batch_loss(grams, *point.reshape(6, 5, 5).split(3))

    whole = gdpp_training.value_and_slope(loss, grams, point)
    monkeypatch.setattr(gdpp_training, "CHUNK", 7)
    parts = gdpp_training.value_and_slope(loss, grams, point)
    assert math.isclose(whole[0], parts[0], rel_tol=1e-12)
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-9, atol=1e-9 * abs(whole[1]).max())


def rosenbrock(x):
    value = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    return value, np.array([2 * (x[0] - 1) - 400 * x[0] * (x[1] - x[0] ** 2), 200 * (x[1] - x[0] ** 2)])


def test_lbfgs_finds_a_minimum_and_never_climbs():
    points, values, _ = gdpp_training.lbfgs([rosenbrock], np.array([-1.2, 1.0]), 100, window=200)
    np.testing.assert_allclose(points[-1], [1, 1], atol=1e-8)
    assert all(later <= earlier for earlier, later in itertools.pairwise(values))


def test_lbfgs_steps_back_from_infinity():
    def barrier(x):
        """-3x - log(1 - x), infinite from 1 on, where a Newton step from 0 leads; least at 2/3."""
        if x[0] >= 1:
            return math.inf, np.array([math.nan])
        return -3 * x[0] - math.log(1 - x[0]), np.array([-3 + 1 / (1 - x[0])])

    points, values, _ = gdpp_training.lbfgs([barrier], np.array([0.0]), 100, window=200)
    assert np.isfinite(values).all()
    assert math.isclose(points[-1][0], 2 / 3, rel_tol=1e-6)


def test_lbfgs_goes_on_in_the_finer_precision():
    def coarse(x):
        return round(rosenbrock(x)[0], 2), rosenbrock(x)[1]

    assert gdpp_training.lbfgs([coarse], np.array([-1.2, 1.0]), 200, window=300)[2] == "line search"
    points, _, _ = gdpp_training.lbfgs([coarse, rosenbrock], np.array([-1.2, 1.0]), 200, window=300)
    np.testing.assert_allclose(points[-1], [1, 1], atol=1e-6)


def test_covariances_have_the_stated_spectrum(generator):
    covariance = covariances.random_covariance(generator)
    expected = torch.tensor([1 / 16, 1 / 4, 1, 1, 1], dtype=torch.float64)
    torch.testing.assert_close(torch.linalg.eigvalsh(covariance), expected)
    root, inverse = covariances.square_roots(covariance)
    torch.testing.assert_close(root @ root, covariance)
    torch.testing.assert_close(root @ inverse, torch.eye(5, dtype=torch.float64))


def test_summary_of_losses():
    losses = torch.ones(100_000, dtype=torch.float64)
    losses[17] = 100_001
    found = gdpp_training.summary(losses)
    assert found["test_mean"] == 2
    assert found["test_median"] == 1
    assert math.isclose(found["test_share_top_0.0001"], (100_001 + 9) / 200_000, rel_tol=1e-5)
    assert math.isclose(found["test_share_top_0.001"], (100_001 + 99) / 200_000, rel_tol=1e-5)


@pytest.mark.same_bits
def test_a_short_training_is_reproducible_and_descends():
    runs = [gdpp_training.train(20, 3, iterations=3, batch=40, test=100) for _ in range(2)]
    for run in runs:
        run.pop("seconds")
    assert runs[0] == runs[1]
    assert runs[0]["loss"] == sorted(runs[0]["loss"], reverse=True)
    assert runs[0]["iterations"] == [0, 1, 2, 3]


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


# --------------------------------------------------------------------------------------------- softmax_attention


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


def test_linear_prediction_is_that_of_the_loss(generator):
    prompts, targets = sample_prompts(6, torch.eye(5, dtype=torch.float64), 4, generator)
    P, W = 0.3 * normal(generator, 2, 2, 1, 6, 6)
    predictions = softmax_attention.linear_prediction(prompts, P, W)
    expected = in_context_loss(prompts, targets, P[:, 0], W[:, 0])
    torch.testing.assert_close((predictions - targets).square().mean(), expected)


@pytest.mark.parametrize(("heads", "kind"), [(2, "softmax"), (1, "linear")])
def test_seeds_side_by_side_are_single_runs(heads, kind):
    together = softmax_attention.train(2, heads, kind, [4, 5], 6, batch=8)
    for s, seed in enumerate([4, 5]):
        alone = softmax_attention.train(2, heads, kind, [seed], 6, batch=8)
        torch.testing.assert_close(together[0][s], alone[0][0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(together[1][s], alone[1][0], rtol=1e-4, atol=1e-5)


def test_references_are_gradient_steps(generator):
    prompts, _ = sample_prompts(5, torch.eye(5, dtype=torch.float64), 20, generator)
    predictions, slopes = softmax_attention.references(prompts)
    x, y, query = prompts[:, :-1, :5], prompts[:, :-1, 5:], prompts[:, -1:, :5]
    for j in (1, 2, 5):
        w = torch.zeros(5, 5, 1, dtype=torch.float64)
        for step in optimal_step_sizes(5, 20, j)[0]:
            w = w + step * x.mT @ (x @ w - y) / 20
        torch.testing.assert_close(predictions["steps"][j], (query @ w)[:, 0, 0])
        torch.testing.assert_close((slopes[j] * y[..., 0]).sum(-1), predictions["steps"][j])
    torch.testing.assert_close(predictions["gdpp"][1], predictions["steps"][1], rtol=1e-6, atol=1e-8)


def test_nonlinear_share_of_known_functions(generator, monkeypatch):
    monkeypatch.setattr(softmax_attention, "PROBES", 300)

    def linear(prompts):
        return prompts[:, :-1, -1].sum(-1)[None]

    assert softmax_attention.nonlinear_share(linear, generator).item() < 1e-20
    pure = softmax_attention.nonlinear_share(lambda prompts: prompts[:, 0, -1].abs()[None], generator)
    assert abs(pure.item() - 1) < 0.1  # an even function has no linear part


def test_limit_of_two_opposite_heads(generator):
    for d, n in ((2, 3), (5, 20)):
        prompts, targets = sample_prompts(100_000, torch.eye(d, dtype=torch.float64), n, generator)
        scores = (prompts[..., :d] @ prompts[:, -1, :d, None]).squeeze(-1)
        centred = ((scores - scores.mean(-1, keepdim=True)) * prompts[..., d]).sum(-1) / n
        factor = (d * n / (n + 1)) / (centred.square().mean())
        losses = (factor * centred - targets).square()
        assert abs(losses.mean() - softmax_attention.two_heads_limit(d, n)) < 5 * losses.std() / len(losses) ** 0.5


def test_two_small_opposite_heads_approach_the_limit(generator):
    prompts, _ = sample_prompts(50, torch.eye(5, dtype=torch.float64), 20, generator)
    scale = 1e-4
    W = torch.zeros(1, 2, 6, 6, dtype=torch.float64)
    W[0, 0, :5, :5], W[0, 1, :5, :5] = scale * torch.eye(5), -scale * torch.eye(5)
    P = torch.zeros(1, 2, 6, 6, dtype=torch.float64)
    P[0, 0, 5, 5], P[0, 1, 5, 5] = -1, 1
    scores = (prompts[..., :5] @ prompts[:, -1, :5, None]).squeeze(-1)
    limit = ((scores - scores.mean(-1, keepdim=True)) * prompts[..., 5]).sum(-1) * 2 * scale / 21
    torch.testing.assert_close(softmax_attention.softmax_transformer(prompts, P, W), limit, rtol=1e-4, atol=1e-9)


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


# -------------------------------------------------------------------------------------------------- domain_shift


def test_shifted_layers_do_the_same(generator):
    """The layers themselves do not change: whitened by either covariance they give the same error matrix, up to a basis."""
    old, turn = covariances.random_covariance(generator), torch.linalg.qr(normal(generator, 5, 5))[0]
    new = 1.7 * turn @ old @ turn.mT
    A, B = normal(generator, 2, 5, 5), normal(generator, 2, 5, 5)
    (root, inverse), (new_root, new_inverse) = covariances.square_roots(old), covariances.square_roots(new)
    A_new, B_new = domain_shift.shifted(root @ A @ root, inverse @ B @ root, old, new)
    torch.testing.assert_close(A_new, new_root @ A @ new_root)
    torch.testing.assert_close(B_new, new_inverse @ B @ new_root)


def test_scaled_covariances_scale_steps_and_curvatures(generator):
    steps, curvatures, _ = gdpp_optimum(5, 20, 2)
    identity = torch.eye(5, dtype=torch.float64)
    b = torch.cat([curvatures / steps[:1], curvatures.new_zeros(1)])
    A, B = steps[:, None, None] * identity, b[:, None, None] * identity
    covariance = covariances.random_covariance(generator)
    grams = sample_grams(50_000, 5, 20, generator)
    losses = prompt_losses(grams, *domain_shift.shifted(A, B, covariance, 0.6 * covariance))
    exact = domain_shift.exact_loss(steps, curvatures, 0.6, 20)
    assert abs(losses.mean() - exact) < 5 * losses.std() / len(losses) ** 0.5
    assert math.isclose(domain_shift.exact_loss(steps, None, 0.6, 20), step_loss(0.6 * steps, 5, 20))


def test_parts_of_a_rotation(generator):
    for _ in range(5):
        rotation = domain_shift.random_rotation(generator)
        torch.testing.assert_close(torch.linalg.det(rotation).item(), 1.0)
        half = domain_shift.part_of(rotation, 0.5)
        torch.testing.assert_close(half @ half, rotation)
        torch.testing.assert_close(half @ half.mT, torch.eye(5, dtype=torch.float64))
    torch.testing.assert_close(domain_shift.part_of(rotation, 0.0), torch.eye(5, dtype=torch.float64))


def test_stored_domain_shift():
    found = results("domain_shift")["shifts"]
    assert set(found["models"]) == {"constant", "plain", "gdpp", "plain trained", "gdpp trained"}
    for name in ("constant", "plain", "gdpp"):
        home = next(row for row in found["scaled"][name] if row["scale"] == 1)
        at_20 = next(row for row in found["context"][name] if row["n_context"] == 20)
        assert home["exact"] == at_20["exact"]
        assert math.isclose(home["mean"], home["exact"], rel_tol=0.2)
        limit = found["harmless_below"][name]
        for row in found["scaled"][name]:
            assert (row["exact"] > 5) == (row["scale"] > limit)
    assert found["harmless_below"]["gdpp"] < found["harmless_below"]["plain"] < found["harmless_below"]["constant"]
    assert np.isfinite([row["median"] for rows in found["scaled"].values() for row in rows]).all()
    for name, rows in found["turned"].items():
        assert [row["fraction"] for row in rows] == domain_shift.FRACTIONS
        assert rows[0]["median"] == found["rotated"][name]["median_unrotated"]
        assert rows[-1]["median"] == found["rotated"][name]["median"]
