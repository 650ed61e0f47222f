import itertools
import math
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import AXES, loss, model_problem, normal
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

from attnopt.regression import (
    feature_flow,
    feature_gradient,
    linear_gradient,
    quadratic_gradient,
    quadratic_gradient_of_paper,
    separation_margin,
)
from attnopt.regression.flows import UNCHECKED
from attnopt.softmax import softmax

double = partial(torch.tensor, dtype=torch.float64)
MODELS = ("linear", "quadratic")
BOTH = [(model, axis) for model in MODELS for axis in AXES]
problem = partial(model_problem, tokens=3, width=2)


def slow_velocity(features, weights, labels, axis, model, printed=False):
    """Minus the gradient or the printed formula, entry by entry in NumPy: no matrix product of the package's."""
    tokens, classes = labels.shape
    keys = weights if model == "linear" else features @ weights
    logits = np.array([[sum(a * b for a, b in zip(x, y, strict=True)) for y in keys] for x in features])
    if model == "quadratic":
        assert tokens == classes
    sigma = np.empty_like(logits)
    for s, k in itertools.product(range(tokens), range(classes)):
        others = logits[:, k] if axis == "sequence" else logits[s]
        sigma[s, k] = 1 / np.exp(others - logits[s, k]).sum()
    velocity = np.zeros_like(features)
    for s, k in itertools.product(range(tokens), range(classes)):
        if model == "linear":
            velocity[s] += (labels[s, k] - sigma[s, k]) * weights[k]
        elif printed:
            velocity[s] += (labels[s, k] + labels[k, s] - 2 * sigma[s, k]) * keys[k]
        else:  # the logit of (s, k) moves token s along key k and token k along key s
            velocity[s] += (labels[s, k] - sigma[s, k]) * keys[k]
            velocity[k] += (labels[s, k] - sigma[s, k]) * keys[s]
    return velocity


@pytest.mark.evidence("actor-dissipation")
@pytest.mark.parametrize(("model", "axis"), BOTH)
def test_dissipation_is_minus_the_squared_gradient(model, axis, generator):
    start, weights, labels = problem(generator, model, axis)
    nodes, mass = np.polynomial.legendre.leggauss(30)
    times = torch.from_numpy(np.concatenate([[0], 0.75 * (nodes + 1), [1.5]]))
    path = feature_flow(start, weights, labels, axis, times, model)
    slopes = torch.func.grad(lambda z: loss(z, weights, labels, axis, model).sum())(path)
    squares = slopes.square().sum((-2, -1))
    losses = loss(path, weights, labels, axis, model)
    fall = losses[0] - losses[-1]
    dissipated = 0.75 * torch.from_numpy(mass) @ squares[1:-1]
    assert fall > 0.05
    torch.testing.assert_close(fall, dissipated, rtol=1e-8, atol=0)
    assert fall > 1.9 * dissipated / 2  # the printed factor
    # the path is no longer than the theorem says: a factor ½ in front of the square would allow √2 times as much
    length = 0.75 * torch.from_numpy(mass) @ squares[1:-1].sqrt()
    assert length <= (1.5 * losses[0]).sqrt()
    # and at every single time, by a difference quotient
    middle, pace = 0.7, 1e-3
    around = feature_flow(start, weights, labels, axis, double([middle - pace, middle, middle + pace]), model)
    before, _, after = loss(around, weights, labels, axis, model)
    slope = torch.func.grad(lambda z: loss(z, weights, labels, axis, model))(around[1])
    assert ((after - before) / (2 * pace)).item() == pytest.approx(-slope.square().sum().item(), rel=1e-4)


@pytest.mark.parametrize(
    ("model", "axis", "printed"), [(*both, False) for both in BOTH] + [("quadratic", a, True) for a in AXES]
)
def test_flow_matches_another_solver(model, axis, printed, generator):
    start, weights, labels = problem(generator, model, axis)
    times = double([0.0, 0.3, 1.1])
    path = feature_flow(start, weights, labels, axis, times, model, printed)
    theta, target = weights.numpy(), labels.numpy()
    solution = solve_ivp(
        lambda _, flat: slow_velocity(flat.reshape(start.shape), theta, target, axis, model, printed).ravel(),
        (0, 1.1),
        start.numpy().ravel(),
        method="DOP853",
        t_eval=times.numpy(),
        rtol=1e-10,
        atol=1e-11,
    )
    expected = torch.from_numpy(solution.y.T.copy()).reshape(path.shape)
    torch.testing.assert_close(path, expected, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(path[0], start, rtol=0, atol=0)


@pytest.mark.parametrize("softness", [0.0, 0.3])
def test_long_flows_are_cheap_and_as_exact_between_the_solvers_steps(softness, monkeypatch):
    """The other solver stops at each of the times; between its steps it would be wrong by 1e-7 here."""
    monkeypatch.setattr("attnopt.integrate.MOST_EVALUATIONS", 3000)
    starts = double([[3.0, -3.0], [-2.577, -1.752], [1.043, -2.261]])
    weights = double([[1.731, -1.432], [-0.093, -0.967], [-2.0, -0.107]])
    times = torch.cat([torch.zeros(1).double(), torch.logspace(-1, 3, 25).double()])
    labels = (1 - softness) * torch.eye(3).double() + softness / 3
    path = feature_flow(starts[:, None], weights, labels[:, None], "class", times)[..., 0, :].numpy()
    theta, target = weights.numpy(), labels.numpy()

    def velocity(_, flat):
        masses = np.exp(flat.reshape(3, 2) @ theta.T)
        return ((target - masses / masses.sum(1, keepdims=True)) @ theta).ravel()

    for (start, here), (end, there) in itertools.pairwise(zip(times.tolist(), path, strict=True)):
        found = solve_ivp(velocity, (start, end), here.ravel(), method="DOP853", rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(there.ravel(), found.y[:, -1], rtol=0, atol=1e-8)


def test_times_without_measure_leave_the_start(generator):
    start, weights, labels = problem(generator, "linear", "class")
    path = feature_flow(start, weights, labels, "class", double([0.0, 5e-324, 1e-300, 1e-30]))
    assert (path[0] == start).all()
    torch.testing.assert_close(path, start.expand(4, *start.shape), rtol=1e-14, atol=1e-14)


@pytest.mark.evidence("actor-gradient-flow")
@pytest.mark.parametrize("axis", AXES)
@settings(max_examples=12)
@given(
    tokens=st.integers(1, 3),
    width=st.integers(1, 3),
    classes=st.integers(2, 4),
    hardness=st.sampled_from([0.5, 3.0, 50.0]),
    seed=st.integers(0, 1000),
)
def test_linear_flow_reaches_the_infimum(axis, tokens, width, classes, hardness, seed):
    generator = torch.Generator().manual_seed(seed)
    starts, weights = normal(generator, 2, tokens, width), normal(generator, classes, width)
    labels = softmax(hardness * normal(generator, tokens, classes), axis)
    times = torch.cat([torch.zeros(1), torch.logspace(-2, 2, 9)]).double()
    path = feature_flow(starts, weights, labels, axis, times)
    losses = loss(path, weights, labels, axis, "linear")
    anywhere = 3 * normal(generator, 20, 1, tokens, width)  # any features at all, near and far
    anywhere = torch.cat([anywhere, 10 * anywhere, anywhere / 10])
    excess = losses[1:] - loss(anywhere, weights, labels, axis, "linear")[..., None, :]
    bound = (starts - anywhere).square().sum((-2, -1))[:, None] / (2 * times[1:, None])
    assert (excess <= bound + 1e-9).all()
    apart = (path[:, 0] - path[:, 1]).norm(dim=(-2, -1))
    speed = linear_gradient(path, weights, labels, axis).norm(dim=(-2, -1))
    assert (apart.diff() <= 1e-8).all()
    assert (speed.diff(dim=0) <= 1e-8).all()
    assert (losses.diff(dim=0) <= 1e-9).all()
    # the infimum by another road
    flat = lambda z: torch.from_numpy(z).reshape(tokens, width)  # noqa: E731
    best = minimize(
        lambda z: loss(flat(z), weights, labels, axis, "linear").item(),
        np.zeros(tokens * width),
        jac=lambda z: torch.func.grad(loss)(flat(z), weights, labels, axis, "linear").numpy().ravel(),
        method="BFGS",
    )
    far = (starts - flat(best.x)).square().sum((-2, -1))
    assert (losses[-1] >= best.fun - 1e-6).all() or np.abs(best.x).max() > 5
    assert (losses[-1] - best.fun <= far / (2 * times[-1]) + 1e-9).all()


def one_hot_problem(name):
    """Weights, labels, axis and the margin by hand."""
    if name.startswith("triangle"):
        triangle = double([[1.0, 0.0], [-0.5, 0.8], [-0.5, -1.4]])
        label = int(name[-1])
        # the distance of a corner from the opposite side is twice the area over that side's length
        side = (triangle[(label + 1) % 3] - triangle[(label + 2) % 3]).norm().item()
        return triangle, torch.eye(3).double()[[label]], "class", 2 * (0.5 * 1.5 * 2.2) / side
    axis = name.partition(" ")[0]
    # orthonormal weights, identity labels: in each of three slices the mean of (1, -1, 0) and (1, 0, -1), shared by three
    return torch.eye(3).double(), torch.eye(3).double(), axis, math.sqrt(3 * (1 + 1 / 4 + 1 / 4) / 9)


@pytest.mark.evidence("actor-gradient-flow")
@pytest.mark.parametrize("name", ["triangle 0", "triangle 1", "triangle 2", "class identity", "sequence identity"])
def test_one_hot_features_leave_like_a_logarithm(name, generator):
    weights, labels, axis, margin = one_hot_problem(name)
    assert separation_margin(weights, labels, axis) == pytest.approx(margin, rel=1e-9)
    times = torch.logspace(0, 6, 13, dtype=torch.float64)
    path = feature_flow(torch.zeros(len(labels), weights.shape[1]).double(), weights, labels, axis, times)
    norms = path.norm(dim=(-2, -1))
    offset = norms - times.log() / margin
    assert offset.abs().max() < 3  # bounded, while the norm itself passes 6
    assert norms[-1] > 6
    assert (offset[-1] - offset[-3]).abs() < 0.02
    assert (offset[-1] - offset[-3]).abs() < (offset[4] - offset[2]).abs() + 1e-3
    slope = (norms[-1] - norms[-3]) / (times[-1] / times[-3]).log()
    assert (margin * slope).item() == pytest.approx(1, abs=5e-3)
    products = margin**2 * times * loss(path, weights, labels, axis, "linear")
    assert products[-1].item() == pytest.approx(1, abs=2e-3)
    # two classes, or two tokens: the difference u of logits solves u + e^u = γ²t + c
    for pair_axis in AXES:
        few = normal(generator, 2, 3) if pair_axis == "class" else normal(generator, 1, 3)
        label = torch.eye(2).double()[[0]] if pair_axis == "class" else torch.eye(2).double()[:, [0]]
        start = normal(generator, 1 if pair_axis == "class" else 2, 3)
        squared = (few[0] - few[1]).square().sum() if pair_axis == "class" else 2 * few.square().sum()
        seen = double([0.0, 1.0, 30.0, 1000.0])
        logits = feature_flow(start, few, label, pair_axis, seen) @ few.mT
        u = logits[:, 0, 0] - (logits[:, 0, 1] if pair_axis == "class" else logits[:, 1, 0])
        torch.testing.assert_close(u + u.exp(), squared * seen + u[0] + u[0].exp(), rtol=1e-8, atol=1e-8)
        assert separation_margin(few, label, pair_axis) ** 2 == pytest.approx(squared.item(), rel=1e-9)


@pytest.mark.evidence("actor-gradient-flow")
@pytest.mark.parametrize("axis", AXES)
def test_quadratic_flow_can_get_stuck(axis, generator):
    eye = torch.eye(2).double()
    weights, times = torch.ones(1, 1).double(), double([0.0, 40.0])
    ends = lambda x, y: loss(  # noqa: E731
        feature_flow(double([[x], [y]]), weights, eye, axis, times, "quadratic"), weights, eye, axis, "quadratic"
    )
    assert ends(2.5, 2.4)[-1].item() == pytest.approx(2 * math.log(2), abs=1e-9)
    assert loss(double([[6.0], [-6.0]]), weights, eye, axis, "quadratic") < 1e-12  # the infimum is 0
    assert ends(1.3, 1.2)[-1] < 0.1  # v² < 2: no valley yet
    assert ends(2.5, -2.4)[-1] < 1e-3

    # ½‖Xθv‖² - ½⟨BX, Xθ⟩ against the Hessian by autograd
    for tokens, width in ((2, 1), (3, 2), (4, 3)):
        permutations = torch.eye(tokens).double()[torch.tensor(list(itertools.permutations(range(tokens))))]
        shares = torch.rand(len(permutations), generator=generator, dtype=torch.float64)
        labels = torch.einsum("p,pij->ij", shares / shares.sum(), permutations)
        weight, v = normal(generator, width, width), normal(generator, width)
        weight = weight + weight.mT
        value = lambda z, w=weight, c=labels: loss(z, w, c, axis, "quadratic")  # noqa: E731
        together = v.expand(tokens, width).clone()
        slope, hessian = torch.func.grad(value)(together), torch.func.hessian(value)(together)
        assert value(together).item() == pytest.approx(tokens * math.log(tokens), rel=1e-12)
        for _ in range(4):
            x = normal(generator, tokens, width)
            x = x - x.mean(0)
            second = torch.einsum("ij,ijkl,kl", x, hessian, x) / 2
            b = labels + labels.mT
            expected = (x @ weight @ v).square().sum() / 2 - (b @ x * (x @ weight)).sum() / 2
            torch.testing.assert_close(second, expected, rtol=1e-9, atol=1e-10)
            assert (slope * x).sum().abs() < 1e-12

    # one feature, three tokens: θv² above or below the largest eigenvalue of B off the constants
    labels = double([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.4, 0.1, 0.5]])
    off = torch.eye(3).double() - 1 / 3
    beta = torch.linalg.eigvalsh(off @ (labels + labels.mT) @ off)[-1].item()
    for factor, stuck in ((1.3, True), (0.7, False)):
        start = math.sqrt(factor * beta / 2) + double([[0.02], [-0.015], [-0.005]])
        path = feature_flow(start, 2 * weights, labels, axis, double([60.0]), "quadratic")
        assert (loss(path, 2 * weights, labels, axis, "quadratic").item() > 3 * math.log(3) - 1e-9) == stuck


def test_feature_gradient_names_the_formula():
    assert feature_gradient("linear") is feature_gradient("linear", printed=True) is linear_gradient
    assert feature_gradient("quadratic") is quadratic_gradient
    assert feature_gradient("quadratic", printed=True) is quadratic_gradient_of_paper


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"times": torch.tensor(1.0)}, ValueError, "times must be one-dimensional"),
        ({"times": torch.ones(1, 1)}, ValueError, "times must be one-dimensional"),
        ({"times": torch.tensor([])}, ValueError, "times must be one-dimensional"),
        ({"times": torch.tensor([-0.1, 1.0])}, ValueError, "not negative"),
        ({"times": torch.tensor([0.0, 1.0, 1.0])}, ValueError, "strictly increasing"),
        ({"times": torch.tensor([2.0, 1.0])}, ValueError, "strictly increasing"),
        ({"times": torch.tensor([0.0, torch.inf])}, ValueError, "finite"),
        ({"times": torch.tensor([torch.nan])}, ValueError, "finite"),
    ],
)
def test_bad_input_is_named(changes, error, message):
    arguments = {"features": torch.ones(3, 2), "weights": torch.ones(4, 2), "labels": torch.ones(3, 4) / 3}
    arguments |= {"axis": "sequence", "times": torch.tensor([1.0])}
    threads = torch.get_num_threads()
    with pytest.raises(error, match=message):
        feature_flow(**arguments | changes)
    assert torch.get_num_threads() == threads


def test_a_flow_that_was_not_solved_is_no_answer(monkeypatch):
    given_up = SimpleNamespace(success=False, message="the step became too small")
    monkeypatch.setattr("attnopt.integrate.solve_ivp", lambda *_, **__: given_up)
    with pytest.raises(RuntimeError, match="the flow was not solved: the step became too small"):
        feature_flow(double([[1.0]]), double([[1.0], [2.0]]), double([[0.5, 0.5]]), "class", double([1.0]))


def test_a_flow_too_stiff_for_the_solver_is_given_up(monkeypatch, generator):
    start, weights, labels = problem(generator, "linear", "class")
    monkeypatch.setattr("attnopt.integrate.MOST_EVALUATIONS", 300)
    with pytest.raises(RuntimeError, match="the flow was not solved: 300 evaluations led only to time"):
        feature_flow(start, 1e3 * weights, labels, "class", double([0.5]))


def test_one_member_that_overflows_is_enough(generator):
    start, weights, labels = problem(generator, "quadratic", "class")
    with pytest.raises(RuntimeError, match="the velocity is not finite"):
        feature_flow(torch.stack([start, 1e200 * start]), weights, labels, "class", double([1.0]), "quadratic")


def test_times_that_are_no_tensor_are_named():
    with pytest.raises(TypeError, match="times must be a torch.Tensor"):
        feature_flow(torch.ones(1, 2), torch.ones(2, 2), torch.ones(1, 2) / 2, "class", [1.0])


def test_overflowing_logits_end_in_an_error_and_not_in_endless_small_steps():
    features = torch.tensor([[1e154]], dtype=torch.float64)
    weights = torch.tensor([[1e160], [-1e160]], dtype=torch.float64)
    with pytest.raises((RuntimeError, ValueError), match="not finite|must be finite"):
        feature_flow(features, weights, torch.tensor([[0.5, 0.5]], dtype=torch.float64), "class", torch.tensor([1.0]))


def test_a_large_batch_takes_a_few_times_the_evaluations_of_a_member(generator, monkeypatch):
    calls = []
    formula = UNCHECKED[quadratic_gradient]
    monkeypatch.setitem(UNCHECKED, quadratic_gradient, lambda *given: calls.append(1) or formula(*given))

    def evaluations(starts):
        calls.clear()
        labels = torch.eye(2).double().expand(len(starts), -1, -1)
        feature_flow(starts, torch.eye(1).double(), labels, "sequence", double([40.0]), "quadratic")
        return len(calls)

    starts = 6 * torch.rand(1000, 2, 1, generator=generator, dtype=torch.float64) - 3
    most = max(evaluations(starts[at : at + 1]) for at in range(20))
    assert evaluations(starts) < 10 * most  # a dense Jacobian alone takes 2000


def test_dtype_device_and_broadcasting(generator):
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    times = torch.tensor([0.2, 1.0])
    for (model, axis), device in itertools.product(BOTH, devices):
        start, weights, labels = problem(generator, model, axis)
        precise = feature_flow(start, weights, labels, axis, times.double(), model)
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-7)):  # 0.2 in float32 is off by 3e-9
            arguments = [value.to(device, dtype) for value in (start, weights, labels)]
            path = feature_flow(*arguments, axis, times, model)
            assert path.dtype == dtype
            assert path.device == arguments[0].device
            assert path.shape == (2, *start.shape)
            torch.testing.assert_close(path.double().cpu(), precise, rtol=tolerance, atol=tolerance)
        # leading dimensions broadcast: each member has a flow of its own
        starts, two = torch.stack([start, -start, start / 2])[:, None], torch.stack([weights, weights / 2])
        batch = feature_flow(starts, two, labels, axis, times.double(), model)
        assert batch.shape == (2, 3, 2, *start.shape)
        for i, j in itertools.product(range(3), range(2)):
            alone = feature_flow(starts[i, 0], two[j], labels, axis, times.double(), model)
            torch.testing.assert_close(batch[:, i, j], alone, rtol=1e-8, atol=1e-8)
    # the arguments stay as they were, time zero is the start, and gradients are neither needed nor in the way
    kept = [value.clone() for value in (start, weights, labels)]
    nowhere = feature_flow(start.clone().requires_grad_(), weights, labels, axis, torch.zeros(1).double(), model)
    assert not nowhere.requires_grad
    assert (nowhere[0] == start).all()
    for value, copy in zip((start, weights, labels), kept, strict=True):
        assert (value == copy).all()
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        feature_flow(start, weights, labels, axis, times, model)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
