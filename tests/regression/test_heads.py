import math
from functools import partial

import numpy as np
import pytest
import torch
from helpers import AXES, normal
from scipy.integrate import solve_ivp

from attnopt.regression import (
    cross_attention,
    linear_gradient,
    multi_head_gradient,
    pointwise_cross_entropy,
)
from attnopt.softmax import softmax

double = partial(torch.tensor, dtype=torch.float64)


def skewness(jacobian):
    """Norm of the antisymmetric part over that of the whole."""
    return ((jacobian - jacobian.mT).norm(dim=(-2, -1)) / (2 * jacobian.norm(dim=(-2, -1)))).max().item()


def gradient_values(keys, points):
    """The values V, as a basis, whose attention Vᵀσ(θz) has a symmetric Jacobian at all the points."""
    classes, width = keys.shape
    jacobians = []
    for unit in torch.eye(classes * width).double().reshape(-1, classes, width):
        attention = lambda z, v=unit: torch.softmax(keys @ z, 0) @ v  # noqa: E731
        jacobian = torch.func.vmap(torch.func.jacrev(attention))(points)
        jacobians.append((jacobian - jacobian.mT).flatten())
    _, singular, basis = torch.linalg.svd(torch.stack(jacobians, 1))
    rank = int((singular > 1e-9 * singular.max()).sum()) if singular.max() > 1e-12 else 0
    return basis[rank:].reshape(-1, classes, width)


@pytest.mark.evidence("actor-multi-head")
@pytest.mark.parametrize(("classes", "width"), [(2, 2), (3, 2), (3, 4), (4, 3)])
def test_values_must_be_keys(classes, width, generator):
    keys, points = normal(generator, classes, width), normal(generator, 40, width)
    # the values that work are a space: θ itself and a common vector span all of it
    allowed = gradient_values(keys, points).flatten(1)
    shifts = torch.stack([torch.outer(torch.ones(classes).double(), e) for e in torch.eye(width).double()])
    expected = torch.cat([keys[None], shifts]).flatten(1)
    assert len(allowed) == width + 1
    assert (expected - expected @ allowed.mT @ allowed).abs().max() < 1e-8
    assert torch.linalg.matrix_rank(expected) == width + 1
    # and one by one: keys, scaled and shifted keys, a little else, free values
    for values, works in (
        (keys, True),
        (-2 * keys + normal(generator, 1, width), True),
        (keys + 0.01 * normal(generator, classes, width), False),
        (normal(generator, classes, width), False),
    ):
        jacobian = torch.func.vmap(torch.func.jacfwd(lambda z, v=values: torch.softmax(keys @ z, 0) @ v))(points)
        assert (skewness(jacobian) < 1e-12) == works
    package = torch.func.vmap(torch.func.jacfwd(lambda z: cross_attention(z[None], keys, "class")[0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attnopt.regression.attention.check_matrices", lambda **_: None)  # vmap cannot look at numbers
        patch.setattr("attnopt.softmax.check_matrices", lambda **_: None)
        assert skewness(package(points)) < 1e-12


@pytest.mark.evidence("actor-multi-head")
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize(
    ("first", "second", "independent_over"),
    [
        ([[1, 0, 0], [-1, 0, 0]], [[0, 1, 0], [0, -2, 0]], AXES),  # both see all features, and do not meet
        ([[1, 0, 0], [-1, 0, 0]], [[1, 1, 0], [1, -2, 0]], ["class"]),  # they meet in what softmax over classes leaves out
        ([[1, 0, 0], [-1, 0, 0]], [[0, 1, 0], [1, -2, 0]], []),
    ],
)
def test_heads_interfere_through_the_product_of_their_weights(axis, first, second, independent_over, generator):
    weights, projections = double([first, second]), torch.eye(3).double().expand(2, 3, 3)
    across = weights[0] @ weights[1].mT
    centring = torch.eye(2).double() - 0.5
    seen = across if axis == "sequence" else centring @ across @ centring
    assert (seen.norm() < 1e-12) == (axis in independent_over)
    start, labels = normal(generator, 4, 3), softmax(normal(generator, 3, 2, 4, 2), axis)
    ends = []
    for others in labels[1:, 0]:  # the second head's labels stay, the first head's are exchanged
        z = start
        for _ in range(10):
            z = z - 0.3 * multi_head_gradient(z, projections, weights, torch.stack([others, labels[0, 1]]), axis)
        ends.append(softmax(z @ weights[1].mT, axis))
    assert ((ends[0] - ends[1]).norm() < 1e-12) == (axis in independent_over)


@pytest.mark.evidence("actor-normalisation")
@pytest.mark.parametrize("axis", AXES)
def test_post_norm_is_riemannian_descent(axis, generator):
    weights, labels = 2 * normal(generator, 4, 3), softmax(normal(generator, 2, 4), axis)
    start = torch.nn.functional.normalize(normal(generator, 2, 3), dim=-1)

    def tangent(z):
        gradient = torch.func.grad(lambda y: pointwise_cross_entropy(y @ weights.mT, labels, axis))(z)
        projectors = torch.eye(3).double() - z[:, :, None] * z[:, None, :]
        return -(projectors @ gradient[:, :, None])[..., 0]

    def layer(z, step):
        return torch.nn.functional.normalize(z - step * linear_gradient(z, weights, labels, axis), dim=-1)

    # one layer, to first order
    errors = [((layer(start, step) - start) / step - tangent(start)).norm().item() for step in (1e-3, 5e-4)]
    assert errors[0] < 0.1
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.02)
    # many layers, against the flow on the spheres; ℓ falls at the rate of the projected gradient
    flow = solve_ivp(
        lambda _, z: tangent(torch.from_numpy(z).reshape(2, 3)).numpy().ravel(),
        (0, 1),
        start.numpy().ravel(),
        rtol=1e-8,
        atol=1e-10,
    )
    gaps = []
    for depth in (100, 200):
        z = start
        for _ in range(depth):
            z = layer(z, 1 / depth)
        gaps.append(np.linalg.norm(z.numpy().ravel() - flow.y[:, -1]))
    assert gaps[0] < 0.1
    assert math.log2(gaps[0] / gaps[1]) == pytest.approx(1, abs=0.1)
    torch.testing.assert_close(z.norm(dim=-1), torch.ones(2).double())
    before, after = (pointwise_cross_entropy(y @ weights.mT, labels, axis).item() for y in (start, layer(start, 1e-6)))
    assert (after - before) / 1e-6 == pytest.approx(-tangent(start).square().sum().item(), rel=1e-3)


@pytest.mark.evidence("actor-normalisation")
def test_pre_norm_is_no_gradient(generator):
    weights, labels = 2 * normal(generator, 4, 3), softmax(normal(generator, 1, 4), "class")

    def pre_norm(z):
        unit = z / z.norm()
        return (torch.softmax(weights @ unit, 0) - labels[0]) @ weights

    def normalized_loss(z):
        return torch.logsumexp(weights @ z / z.norm(), 0) - labels[0] @ (weights @ z) / z.norm()

    points = normal(generator, 30, 3)
    for z in points[:3]:  # the pre-norm layer reads the package's gradient at the normalized token
        torch.testing.assert_close(linear_gradient((z / z.norm())[None], weights, labels, "class")[0], pre_norm(z))
        unit = z / z.norm()
        projected = (torch.eye(3).double() - torch.outer(unit, unit)) @ pre_norm(z) / z.norm()
        torch.testing.assert_close(torch.func.grad(normalized_loss)(z), projected, rtol=1e-10, atol=1e-12)
    asymmetry = [
        skewness(torch.func.vmap(torch.func.jacrev(field))(points)) for field in (pre_norm, torch.func.grad(normalized_loss))
    ]
    assert asymmetry[0] > 0.05
    assert asymmetry[1] < 1e-12
