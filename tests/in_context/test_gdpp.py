"""Layers that move the covariates: the scalar recursion, its exact loss, the optimum and where the infimum is attained."""

import itertools
import json
from fractions import Fraction
from importlib import resources

import numpy as np
import pytest
import sympy
import torch
from helpers import normal
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial import Polynomial

from attnbook.folder import results
from attnopt.in_context import (
    gdpp_loss,
    gdpp_optimum,
    gdpp_residuals,
    gram_quadrature,
    one_layer_loss,
    optimal_step_sizes,
    prompt_losses,
    sample_grams,
    spectral_moments,
    step_loss,
    wishart_quadrature,
)
from attnopt.in_context.gdpp import _residual

TABLE = json.loads((resources.files("attnopt") / "data" / "gdpp_optima.json").read_text(encoding="utf-8"))
OPTIMA = {tuple(map(int, key.split(","))): value for key, value in TABLE["optima"].items()}


def layers(steps, curvatures, dim):
    """Whitened A_i and B_i with these steps and products a_i b_i, shape (k, d, d) each."""
    eye = torch.eye(dim, dtype=torch.float64)
    b = torch.cat([curvatures / steps[:-1], steps.new_full((1,), 3.0)])  # the last must not matter
    return steps[:, None, None] * eye, b[:, None, None] * eye


def residual_by_polynomials(steps, curvatures):
    """R_k by multiplying polynomials out."""
    value, seen = Polynomial([1.0]), Polynomial([0.0, 1.0])
    for a, c in itertools.zip_longest(steps, curvatures, fillvalue=0.0):
        value, seen = value * (1 + a * seen), seen * (1 + c * seen) ** 2
    return value


@pytest.mark.evidence("ahn-theorem-5")
@given(k=st.integers(1, 4), d=st.integers(1, 4), n=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_recursion_is_what_the_layers_do_to_every_prompt(k, d, n, seed):
    generator = torch.Generator().manual_seed(seed)
    draw = torch.rand(2, k, generator=generator, dtype=torch.float64)
    steps, curvatures = -0.1 - draw[0], 0.6 * (draw[1, :-1] - 0.5)
    grams = sample_grams(3, d, n, generator)
    A, B = layers(steps, curvatures, d)
    eigenvalues = torch.linalg.eigvalsh(grams)
    residuals = gdpp_residuals(steps, curvatures, eigenvalues.ravel())[0][-1].reshape(eigenvalues.shape)
    torch.testing.assert_close(prompt_losses(grams, A, B), residuals.square().sum(-1), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(("d", "n"), [(1, 1), (2, 5), (5, 20), (10, 3)])
def test_far_nodes_carry_their_tiny_weights(d, n):
    nodes, weights = wishart_quadrature(d, n, 41)
    moments = spectral_moments(d, n, 82)
    for degree in (0, 1, 10, 40, 60, 81):  # the last ones weigh the far nodes by as much as 10^70
        exact = float(Fraction(moments[degree], n**degree))
        assert nodes**degree @ weights == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize(("d", "n", "k"), [(d, n, k) for d, n, k in OPTIMA if k > 1])
def test_stored_optima_are_critical_interior_and_beat_plain_steps(d, n, k):
    found = OPTIMA[d, n, k]
    steps, curvatures = (torch.tensor(found[name], dtype=torch.float64) for name in ("steps", "curvatures"))
    scales = torch.cat([steps, curvatures])

    def loss(logarithms):
        point = scales * logarithms.exp()
        return gdpp_loss(point[:k], point[k:], d, n)

    start = torch.zeros_like(scales)
    assert loss(start).item() == pytest.approx(found["loss"], rel=1e-6)
    slope = torch.func.grad(loss)(start)
    assert slope.abs().max() < 1e-4 * found["loss"]
    curvature = torch.linalg.eigvalsh(torch.func.hessian(loss)(start))
    assert curvature[0] > -1e-6 * curvature[-1]
    assert scales.abs().min() > 1e-3
    assert scales.abs().max() < 1e3
    plain = float(optimal_step_sizes(d, n, k)[1])
    if k == 2:  # as many optimal plain steps as the degree are at least as good
        assert float(optimal_step_sizes(d, n, 4)[1]) <= found["loss"] * (1 + 1e-9)
    assert found["loss"] < plain


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_derivatives_that_the_search_uses_are_autograds(k, generator):
    point, nodes = normal(generator, 2 * k - 1), torch.linspace(0.1, 3, 7, dtype=torch.float64)
    value = lambda x: gdpp_residuals(x[:k], x[k:], nodes)[0][-1]  # noqa: E731
    found = _residual(point.numpy(), nodes.numpy())
    for mine, expected in zip(found, (value(point), torch.func.jacfwd(value)(point)), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-12, atol=1e-10)


def test_search_finds_the_stored_optimum():
    steps, curvatures, loss = gdpp_optimum(5, 20, 2)
    assert loss == pytest.approx(OPTIMA[5, 20, 2]["loss"], rel=1e-9)
    np.testing.assert_allclose(steps, OPTIMA[5, 20, 2]["steps"], rtol=1e-5)
    np.testing.assert_allclose(curvatures, OPTIMA[5, 20, 2]["curvatures"], rtol=1e-5)


@pytest.mark.evidence("ahn-infimum-attained", "ahn-theorem-5")
@pytest.mark.parametrize(("d", "n", "k"), [(2, 1, 2), (2, 1, 3), (3, 1, 2), (2, 2, 3), (2, 5, 2), (3, 4, 2)])
def test_silent_layers_are_a_critical_point_over_all_matrices_and_a_saddle(d, n, k):
    # T_k has one G for each A in it: two for a bend and one for the last layer, times T_k's own one, are degree 4
    grams, weights = map(torch.from_numpy, gram_quadrature(d, n, 4))
    eye = torch.eye(d, dtype=torch.float64)
    step = optimal_step_sizes(d, n, 1)[0]
    A = torch.cat([torch.zeros(k - 1, d, d, dtype=torch.float64), step * eye[None]])
    B = (-eye / 2).expand(k, d, d).clone()
    A.requires_grad_()
    B.requires_grad_()
    loss = prompt_losses(grams, A, B) @ weights
    assert loss.item() == pytest.approx(float(optimal_step_sizes(d, n, 1)[1]))
    slopes = torch.autograd.grad(loss, (A, B), create_graph=True, allow_unused=True)
    assert max(s.abs().max() for s in slopes) < 1e-11
    other = torch.full_like(B, -0.45)
    moved = torch.autograd.grad(prompt_losses(grams, A, other * torch.eye(d)) @ weights, A)[0]
    assert moved.abs().max() > 1e-2  # it takes exactly -1/2
    of_all = lambda p: prompt_losses(grams, p[:k], torch.cat([p[k:], B[:1]])) @ weights  # noqa: E731
    hessian = torch.func.hessian(of_all)(torch.cat([A, B[1:]]).detach()).reshape((2 * k - 1) * d * d, -1)
    bends = torch.linalg.eigvalsh(hessian)
    flat = bends.abs() < 1e-9 * bends[-1]
    # with one example antisymmetric matrices are not seen, v^T R v = 0
    antisymmetric = d * (d - 1) // 2 if n == 1 else 0
    assert flat.sum() == (2 * k - 3) * antisymmetric
    assert ((bends < 0) & ~flat).sum() == (k - 1) * (d * d - antisymmetric)
    size = 4 / (n + d + 1) ** 2  # the coupling of a silent layer's A and B, on the three parts of a matrix
    coupling = hessian[: d * d, k * d * d :][:, : d * d].reshape(d, d, d, d)
    bump = torch.zeros(d, d, dtype=torch.float64)
    bump[0, 1] = 1.0
    form = lambda m: torch.einsum("ij,ijkl,kl->", m, coupling, m) / m.square().sum()  # noqa: E731
    wanted = (n * d + n + d + 3, n + 3, n - 1)
    for part, value in zip((eye, bump + bump.T, bump - bump.T), wanted, strict=True):
        assert form(part).item() == pytest.approx(size * value, abs=1e-12)


@pytest.mark.parametrize("n", [2, 5, 20])
@pytest.mark.parametrize("k", [2, 3])
def test_optimum_is_a_strict_local_minimum_over_all_matrices(n, k):
    steps, curvatures, least = gdpp_optimum(2, n, k)
    grams, weights = map(torch.from_numpy, gram_quadrature(2, n, 3**k - 1))
    A, B = layers(steps, curvatures, 2)
    point = torch.cat([A, B[:-1]]).ravel()

    def loss(flat):
        matrices = flat.reshape(2 * k - 1, 2, 2)
        B = torch.cat([matrices[k:], torch.zeros(1, 2, 2, dtype=torch.float64)])
        return prompt_losses(grams, matrices[:k], B) @ weights

    assert loss(point).item() == pytest.approx(least, rel=1e-9)
    values = torch.linalg.eigvalsh(torch.autograd.functional.hessian(loss, point))
    assert values[0] > 1e-7 * values[-1]


@pytest.mark.evidence("ahn-domain-shift")
@pytest.mark.parametrize(("d", "n"), [(1, 1), (5, 3), (5, 20), (3, 100)])
def test_one_layer_is_worse_than_no_layer_beyond_the_square_root_of_two(d, n):
    step = optimal_step_sizes(d, n, 1)[0]
    assert step_loss(2 * step, d, n).item() == pytest.approx(d)
    eye = torch.eye(d, dtype=torch.float64)
    assert one_layer_loss(step * eye, 2 * eye, n, eye / 2).item() == pytest.approx(d)
    assert step_loss(1.9 * step, d, n) < d < step_loss(2.1 * step, d, n)


@pytest.mark.evidence("ahn-domain-shift")
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_shifted_loss_crosses_that_of_no_prediction_once(k):
    t = sympy.Symbol("t")  # s²; the loss minus d is t times a polynomial with these exact coefficients
    found, constant = OPTIMA[5, 20, k], TABLE["spectra"]["5,20"]["constant"][k - 1]
    moments = [sympy.Rational(m, 20**j) for j, m in enumerate(spectral_moments(5, 20, 3**k))]
    plain = optimal_step_sizes(5, 20, k)[0].tolist()
    for steps, curvatures in (
        (found["steps"], found["curvatures"]),
        (plain, [0.0] * (k - 1)),
        ([constant] * k, [0.0] * (k - 1)),
        ([constant / 2] * k, [0.0] * (k - 1)),
    ):
        residual, seen = sympy.Poly(1, t, domain="QQ"), sympy.Poly(t, t, domain="QQ")
        for a, c in itertools.zip_longest(map(sympy.Rational, steps), map(sympy.Rational, curvatures), fillvalue=0):
            residual, seen = residual * (1 + a * seen), seen * (1 + c * seen) ** 2
        square = (residual**2).all_coeffs()[::-1]
        excess = sympy.Poly([c * m for c, m in zip(square, moments, strict=False)][:0:-1], t, domain="QQ")
        assert excess.eval(0) < 0  # small prompts: better than predicting 0
        assert excess.LC() > 0
        (((low, high), multiplicity),) = excess.intervals(inf=0, eps=sympy.Rational(1, 1000))
        assert multiplicity == 1
        at = [
            gdpp_loss(
                s * torch.tensor(steps, dtype=torch.float64), s * torch.tensor(curvatures, dtype=torch.float64), 5, 20
            ).item()
            for s in (float(low) - 0.01, float(high) + 0.01)
        ]
        assert at[0] < 5 < at[1]


@pytest.mark.evidence("ahn-figure-3")
def test_a_sample_cannot_see_the_variance_of_the_optimum():
    for n in (10, 20):
        found = OPTIMA[5, n, 3]
        steps, curvatures = (torch.tensor(found[name], dtype=torch.float64) for name in ("steps", "curvatures"))
        nodes, weights = map(torch.tensor, wishart_quadrature(5, n, 27))
        fourth = gdpp_residuals(steps, curvatures, nodes)[0][-1] ** 4 @ weights  # at most E (tr R²)²
        coefficients = [Fraction(c) for c in residual_by_polynomials(steps.tolist(), curvatures.tolist()).coef]
        squared = np.convolve(coefficients, coefficients)
        moments = spectral_moments(5, n, 53)
        exact = sum(
            c * Fraction(m, n**i) for i, (c, m) in enumerate(zip(np.convolve(squared, squared), moments, strict=True))
        )
        assert fourth.item() == pytest.approx(float(exact), rel=1e-4)
        assert (fourth / found["loss"] ** 2 / 200_000) ** 0.5 > 1000
        generator = torch.Generator().manual_seed(0)
        eigenvalues = torch.linalg.eigvalsh(sample_grams(100_000, 5, n, generator))
        losses = gdpp_residuals(steps, curvatures, eigenvalues.ravel())[0][-1].reshape(-1, 5).square().sum(-1)
        assert losses.std() / 100_000**0.5 < 0.05 * losses.mean()  # and yet it looks tame


@pytest.mark.evidence("ahn-figure-3", "ahn-figure-4")
def test_training_reproduces_the_figures_and_overfits_its_batch():
    runs = results("gdpp_training")["runs"]
    assert {run["n_context"] for run in runs} == {10, 20}
    for run in (run for run in runs if not run["stalled"]):
        whitened, plain = ([curve[-1] for curve in run[name]] for name in ("dist_A_whitened", "dist_A"))
        assert max(whitened) < 0.2
        assert max(curve[-1] for curve in run["dist_B"]) < 0.1
        assert min(plain) > 0.5
        assert (np.diff([abs(np.trace(a)) for a in run["A_whitened"]]) > 0).all()
        assert run["train_loss"] < 0.05 * run["loss"][0]
        assert run["train_loss"] < run["optimum_on_batch"]
        steps, b = np.array([np.trace(a) / 5 for a in run["A_whitened"]]), np.array([np.trace(m) / 5 for m in run["B"]])[:2]
        exact = gdpp_loss(steps, steps[:2] * b, 5, run["n_context"]).item()
        assert exact == pytest.approx(run["exact_on_S"], rel=1e-3)
        assert exact > 10 * OPTIMA[5, run["n_context"], 3]["loss"]


@pytest.mark.evidence("ahn-softmax-attention")
def test_softmax_heads_cancel_the_mean_label():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(100, 21, generator=generator, dtype=torch.float64)
    centred = (scores - scores.mean(-1, keepdim=True)) / 21
    errors = []
    for e in (1e-1, 1e-2):
        pair = (torch.softmax(e * scores, -1) - torch.softmax(-e * scores, -1)) / (2 * e)
        errors.append((pair - centred).abs().max().item())
        assert (torch.softmax(e * scores, -1) - 1 / 21 - e * centred).abs().max() < 2 * e**2
    assert 50 < errors[0] / errors[1] < 200  # of second order


@pytest.mark.evidence("ahn-softmax-attention")
def test_trained_softmax_attention_and_its_linear_control():
    runs = results("softmax_attention")["runs"]
    of = lambda *setting: [run for run in runs if (run["layers"], run["kind"], run["heads"]) == setting]  # noqa: E731
    one_step, gdpp = float(optimal_step_sizes(5, 20, 1)[1]), OPTIMA[5, 20, 2]["loss"]
    assert all(abs(run["test_loss"] / one_step - 1) < 0.05 for run in of(1, "linear", 1))
    assert all(run["test_loss"] > 1.7 * one_step for run in of(1, "softmax", 1))
    pairs = of(1, "softmax", 2)
    opposite = [run for run in pairs if run["heads_cosine"] < -0.9]
    assert 0 < len(opposite) < len(pairs)
    single = min(run["test_loss"] for run in of(1, "softmax", 1))
    assert all(run["test_loss"] < 0.7 * single for run in opposite)
    assert np.median([run["test_loss"] for run in opposite]) < 1.12 * one_step
    assert all(run["test_loss"] > 0.97 * single for run in pairs if run not in opposite)
    assert all(abs(run["test_loss"] / gdpp - 1) < 0.15 for run in of(2, "linear", 1))
    assert min(run["test_loss"] for run in of(2, "softmax", 2)) > 1.5 * gdpp


def test_what_a_caller_changes_stays_with_the_caller():
    before = gdpp_optimum(2, 5, 1)[0].clone()
    gdpp_optimum(2, 5, 1)[0].mul_(2)
    assert torch.equal(gdpp_optimum(2, 5, 1)[0], before)
