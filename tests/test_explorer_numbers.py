"""What explorers compute, reached again without their formulas: by differentiation, quadrature and sums over all cases."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import linprog

from attnbook.explorers import (
    AttentionFieldExplorer,
    ForwardPassExplorer,
    OneHeadExplorer,
    OneLayerKnowsExplorer,
    OneStepExplorer,
    OracleValueExplorer,
    QuadraticFieldExplorer,
    SecondValleyExplorer,
)
from attnbook.explorers.one_step import standard_normals
from attnopt.in_context import (
    attention_loss,
    linear_transformer,
    one_layer_optimum,
    second_valley,
    valley_parameters,
)
from attnopt.regression import linear_gradient, stationary_margin


def attention_again(tokens, weights, softness, axis):
    """Attention and cross-entropy as the definitions have them, of tensors."""
    labels = (1 - softness) * torch.eye(3, dtype=torch.float64) + softness / 3
    logits, dim = tokens @ weights.T, {"class": 1, "sequence": 0}[axis]
    return logits.softmax(dim), -(labels * logits.log_softmax(dim)).sum()


def test_attention_by_hand_is_a_matrix_of_fractions():
    by_class, by_token = (AttentionFieldExplorer(axis=axis).compute() for axis in ("class", "sequence"))
    np.testing.assert_allclose(7 * np.array(by_class["attention"]), [[4, 2, 1], [7 / 3] * 3, [2, 4, 1]], rtol=1e-12)
    np.testing.assert_allclose(7 * np.array(by_class["output"]), [[3, 1], [0, 0], [1, 3]], atol=1e-12)
    np.testing.assert_allclose(4 * np.array(by_token["attention"]), [[2, 1, 1], [1, 1, 2], [1, 2, 1]], rtol=1e-12)


@pytest.mark.parametrize("axis", ["class", "sequence"])
@pytest.mark.parametrize("softness", [0.0, 0.1])
def test_attention_field_descends_by_its_gradient(axis, softness):
    explorer = AttentionFieldExplorer(axis=axis, softness=softness, steps=7)
    weights = torch.tensor(explorer.weights, dtype=torch.float64)
    tokens, found = torch.tensor(explorer.tokens, dtype=torch.float64), explorer.compute()
    for step in range(8):
        tokens = tokens.requires_grad_()
        attention, loss = attention_again(tokens, weights, softness, axis)
        np.testing.assert_allclose(found["path"][step], tokens.detach(), rtol=1e-12, atol=1e-12)
        assert found["losses"][step] == pytest.approx(loss.item(), rel=1e-12)
        tokens = (tokens - torch.autograd.grad(loss, tokens, retain_graph=True)[0]).detach()
    np.testing.assert_allclose(found["attention"], attention.detach(), rtol=1e-12)


@pytest.mark.parametrize("axis", ["class", "sequence"])
@pytest.mark.parametrize("softness", [0.0, 0.02, 0.3, 1.0])
def test_the_zero_of_the_field_is_one_and_is_missing_only_where_there_is_none(axis, softness):
    for seed in range(40):
        numbers = np.random.default_rng(seed)
        weights, tokens = numbers.uniform(-1.5, 1.5, (3, 2)), numbers.uniform(-3, 3, (3, 2))
        if seed % 4 == 1:
            weights[1] = 0.3 * weights[0] + 0.7 * weights[2]  # between the others
        if seed % 4 == 2:
            weights[1] = 0.6 * weights[0] + 0.7 * weights[2]  # in their cone
        if seed % 4 == 3:
            weights = weights.round()
        explorer = AttentionFieldExplorer(
            weights=weights.tolist(), tokens=tokens.tolist(), axis=axis, softness=softness, selected=seed % 3, steps=seed % 2
        )
        found, s = explorer.compute(), explorer.selected
        theta, label = torch.tensor(weights), ((1 - softness) * torch.eye(3, dtype=torch.float64) + softness / 3)[s]
        if axis == "class":
            exists = stationary_margin(theta, label[None], "class") > 0
        else:  # the largest t for which some p in [t, 1 - t] has pθ = label θ
            sides = np.vstack([np.hstack([sign * np.eye(3), np.ones((3, 1))]) for sign in (-1, 1)])
            equations = np.hstack([weights.T, np.zeros((2, 1))])
            program = linprog([0, 0, 0, -1], sides, [0] * 3 + [1] * 3, equations, label.numpy() @ weights, (None, None))
            exists = -program.fun > 1e-7
        if found["zero"] is None:
            far = exists and np.linalg.svd(weights - weights.mean(0))[1].min() < 0.5  # flat triangles have far ones
            assert far or not exists
            continue
        assert exists
        now = torch.tensor(found["path"][-1], dtype=torch.float64)
        now[s] = torch.tensor(found["zero"], dtype=torch.float64)
        labels = (1 - softness) * torch.eye(3, dtype=torch.float64) + softness / 3
        assert linear_gradient(now, theta, labels, axis)[s].norm() < 1e-9
        others = [c for c in range(3) if c != s]
        if axis == "class" and softness and abs(np.linalg.det(weights[others] - weights[s])) > 1e-6:  # P = C: two equations
            logits = np.log(label[others].numpy() / label[s].item())
            np.testing.assert_allclose(found["zero"], np.linalg.solve(weights[others] - weights[s], logits), 1e-6, 1e-9)


def quadratic_again(z, theta, labels):
    """Cross-entropy, gradient by differentiation, and Corollary 2 of the paper, of two tokens with one feature."""
    C = torch.tensor(
        {
            "identity": [[1, 0], [0, 1]],
            "exchange": [[0, 1], [1, 0]],
            "first": [[1, 1], [0, 0]],
            "opposed": [[6 / 8, 3 / 8], [2 / 8, 5 / 8]],
        }[labels]
    ).double()
    Z = torch.tensor(z, dtype=torch.float64)[:, None].requires_grad_()
    logits = theta * Z @ Z.T
    loss = -(C * logits.log_softmax(0)).sum()
    (gradient,) = torch.autograd.grad(loss, Z)
    paper = theta * (2 * logits.softmax(0) - C - C.T) @ Z
    return loss.item(), gradient[:, 0].numpy(), paper[:, 0].detach().numpy()


def ends_again(z, theta, labels):
    """The cross-entropy at the start, and at time 20 along minus the gradient and minus the paper's formula."""
    flows = [
        solve_ivp(lambda _, z, which=which: -quadratic_again(z, theta, labels)[which], (0, 20), z, rtol=1e-7, atol=1e-9)
        for which in (1, 2)
    ]
    return [quadratic_again(z, theta, labels)[0], *(quadratic_again(flow.y[:, -1], theta, labels)[0] for flow in flows)]


@pytest.mark.parametrize(
    ("point", "theta", "labels"),
    [
        ((2.0, 0.25), 1.0, "identity"),
        ((0.5, -2.0), 1.0, "identity"),
        ((2.0, 0.25), -0.6, "first"),
        ((-2.5, 2.9), -1.0, "exchange"),
        ((1.5, 1.5), 1.0, "identity"),
        ((2.0, 1.0), 0.0, "identity"),
        ((1.0, 0.0), math.log(3), "opposed"),
    ],
)
def test_quadratic_field_has_both_formulas_and_where_they_lead(point, theta, labels):
    found = QuadraticFieldExplorer(point=list(point), theta=theta, labels=labels).compute()
    loss, gradient, paper = quadratic_again(point, theta, labels)
    assert found["loss"] == pytest.approx(loss)
    np.testing.assert_allclose([found["true"], found["paper"]], [gradient, paper], rtol=1e-12, atol=1e-12)
    sizes = np.linalg.norm(gradient), np.linalg.norm(paper)
    assert found["cosine"] == (pytest.approx(gradient @ paper / math.prod(sizes)) if min(sizes) > 1e-9 else None)
    ends = [found["losses"]["true"][0], found["losses"]["true"][-1], found["losses"]["paper"][-1]]
    np.testing.assert_allclose(ends, ends_again(point, theta, labels), rtol=1e-5, atol=1e-6)
    if labels == "opposed":
        np.testing.assert_allclose([gradient, paper], np.log(3) / 8 * np.array([[0, 1], [0, -1]]), atol=1e-12)


def one_step_again(*, weights, query, examples, step, spread, covariates):
    """The layer of the package on the prompt, and a gradient step by differentiation, without the explorer's formulas."""
    X, w_star, x = (torch.tensor(value, dtype=torch.float64) for value in (covariates, weights, query))
    assert len(X) == examples
    tokens = torch.cat([X, (X @ w_star)[:, None]], 1)
    prompt = torch.cat([tokens, torch.cat([x, x.new_zeros(1)])[None]])[None]
    P, Q = torch.zeros(2, 1, 3, 3, dtype=torch.float64)
    P[0, 2, 2] = 1

    def layer(A):
        Q[0, :2, :2] = A
        return -linear_transformer(prompt, P, Q)[-1, 0, -1, -1].item()

    def loss(w):
        return ((X @ w - X @ w_star) ** 2).mean() / 2

    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(loss(w), w)
    best = one_layer_optimum(torch.diag(torch.tensor([1, spread], dtype=torch.float64)), examples)
    trained = best @ slope
    assert layer(best) == pytest.approx((trained @ x).item(), abs=1e-12)
    return {
        "reached": (-step * slope).tolist(),
        "trained": trained.tolist(),
        "prediction": layer(-step * torch.eye(2, dtype=torch.float64)),
        "of_trained": layer(best),
        "label": (w_star @ x).item(),
        "losses": [loss(v).item() for v in (torch.zeros_like(slope), -step * slope, trained)],
        "curvature": torch.linalg.matrix_norm(torch.autograd.functional.hessian(loss, slope), 2).item(),
    }


ONE_STEP_STATES = [
    {},
    {"examples": 1},
    {"step": 2.5, "spread": 1.0, "examples": 30},
    {"prompt": 7, "examples": 2, "weights": [-1.5, 0.25], "query": [2.0, 2.5], "spread": 0.05, "step": 1.7},
    {"step": 0.0},
    {"weights": [0.0, 0.0]},
]


@pytest.mark.parametrize("traits", ONE_STEP_STATES)
def test_one_step_is_a_layer_and_a_gradient_step(traits):
    explorer = OneStepExplorer(**traits)
    found = explorer.compute()
    known = {name: value for name, value in explorer.state().items() if name != "prompt"}
    numbers = one_step_again(**known, covariates=found["covariates"])
    for name in ("reached", "trained", "label"):
        np.testing.assert_allclose(found[name], numbers[name], rtol=1e-12, atol=1e-12)
    predictions = list(found["predictions"].values())
    np.testing.assert_allclose(predictions, [numbers["prediction"], numbers["of_trained"]], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(list(found["losses"].values()), numbers["losses"], rtol=1e-9, atol=1e-12)
    assert found["longest"] == pytest.approx(2 / numbers["curvature"])
    w, w_star = np.array(numbers["reached"]), np.array(explorer.weights)
    if w @ w_star:
        cosine = w @ w_star / np.linalg.norm(w) / np.linalg.norm(w_star)
        assert math.cos(math.radians(found["turned"])) == pytest.approx(cosine)


def test_one_step_draws_covariates_of_its_distribution():
    X = np.concatenate([OneStepExplorer(prompt=k, examples=30, spread=1.0).compute()["covariates"] for k in range(10)])
    assert len(np.unique(X)) == 600
    assert np.abs(X.mean(0)).max() < 3 / 300**0.5
    assert np.abs(X.T @ X / 300 - np.eye(2)).max() < 0.25  # three standard deviations are 3 √(2/300)
    assert np.mean(np.abs(X) < 1) == pytest.approx(0.683, abs=0.06)
    narrow = OneStepExplorer(spread=0.25).compute()["covariates"]
    np.testing.assert_allclose(narrow, X[:8] * [1, 0.5], rtol=1e-12)


def oracle_again(*, oracle, reliability, temperature, truth, step, tokens):
    """The explorer's world by sums over tokens, classes and answers, one at a time."""
    theta = np.array([[1.0, 0], [0, 1], [-1, -1]])
    found = dict.fromkeys(("label", "value", "off", "trace", "gain", "slope", "square", "limit"), 0.0)
    shares = lambda x: np.exp(x) / np.exp(x).sum()  # noqa: E731
    for z in np.array(tokens):
        s, p = shares(theta @ z), shares(theta @ z / truth)
        chance = {
            "witness": lambda o, c: (1 - reliability) / 3 + reliability * (o == c),
            "hint": lambda o, c: (1 + reliability) / 2 if (o == 1) == (c == 2) else (1 - reliability) / 2,
            "own": lambda o, c: 1.0,
        }[oracle]
        found["off"] += np.square((s - p) @ theta).sum() / 3
        for c in range(3):
            found["label"] += p[c] * np.square(s @ theta - theta[c]).sum() / 3
            found["trace"] += s[c] * np.square(s @ theta - theta[c]).sum() / 3
        for o in range({"witness": 3, "hint": 2, "own": 1}[oracle]):
            joint = np.array([p[c] * chance(o, c) for c in range(3)])
            honest = joint / joint.sum()
            labels = shares(theta @ z / temperature) if oracle == "own" else honest
            move = (s - labels) @ theta
            after = shares(theta @ (z - step * move))
            for c in range(3):
                found["gain"] += joint[c] / 3 * np.log(after[c] / s[c])
                found["limit"] += joint[c] / 3 * np.log(labels[c] / s[c]) if joint[c] else 0
            found["value"] += joint.sum() / 3 * np.square((s - honest) @ theta).sum()
            found["slope"] += joint.sum() / 3 * ((s - honest) @ theta @ move)
            found["square"] += joint.sum() / 3 * move @ move
    return found


@pytest.mark.parametrize(
    "traits",
    [
        {},
        {"oracle": "hint", "reliability": 1.0, "step": 2.5},
        {"oracle": "own", "temperature": 0.5},
        {"oracle": "own", "temperature": 2.0, "truth": 2.0, "step": 1.5},
        {"oracle": "witness", "reliability": 1.0, "truth": 0.5, "tokens": [[1.5, -2.0], [0.2, 0.3], [-1.0, 1.0]]},
    ],
)
def test_an_oracle_s_value_is_the_sum_over_its_answers(traits):
    explorer = OracleValueExplorer(**traits)
    found, known = explorer.compute(), oracle_again(**explorer.state())
    for name in ("label", "trace", "gain", "slope", "square", "limit"):
        assert found[name] == pytest.approx(known[name], abs=1e-12)
    parts = [known["off"], known["value"] - known["off"], known["label"] - known["value"]]
    np.testing.assert_allclose(found["parts"], parts, atol=1e-12)
    assert found["bounds"][0] - 1e-12 <= known["gain"] <= found["bounds"][1] + 1e-12


def left_again(knows, k, length, beta, n):
    """What a head leaves, by sums over every word of the k tokens, or by moments over the numbers of equal tokens."""
    if knows == "nothing":
        ways = np.array([math.comb(length, m) for m in range(length + 1)]) / 2**length
        weights = np.exp(beta * np.arange(length + 1))
        weights = weights / (ways @ weights)
        signs = [
            sum((-1) ** a * math.comb(k, a) * math.comb(length - k, length - m - a) for a in range(length - m + 1))
            for m in range(length + 1)
        ]
        strength = np.array(signs) / 2**length @ weights
        number = ways @ weights**2 / strength**2
        return (number - 1) / (n + number - 1), number
    words = np.array(list(itertools.product(range(2), repeat=k)))
    if knows == "sequences":
        return (1 - 0.5**length) ** n, 2**length
    keys = {"positions": words @ (1 << np.arange(k)), "counts": words.sum(1), "parity": words.sum(1) % 2}[knows]
    shares = np.unique(keys, return_counts=True)[1] / 2**k
    return shares @ (1 - shares) ** n, len(shares)


@pytest.mark.parametrize(
    "traits",
    [
        {"knows": "sequences"},
        {"knows": "nothing"},
        {"knows": "nothing", "decades": 3.5, "length": 20, "weight": 3, "sharpness": 0.9},
        {"knows": "nothing", "length": 7, "weight": 7, "decades": 1.0},
        {"knows": "positions", "weight": 7, "decades": 2.0},
        {"knows": "counts", "weight": 20, "length": 9, "decades": 0.0},
        {"knows": "parity", "decades": 0.5},
    ],
)
def test_what_one_layer_knows_is_what_it_leaves(traits):
    explorer = OneLayerKnowsExplorer(**traits)
    found, knows = explorer.compute(), explorer.knows
    again = lambda n: left_again(knows, min(explorer.weight, explorer.length), explorer.length, explorer.sharpness, n)  # noqa: E731
    left, number = again(found["now"])
    assert found["left"][knows] == pytest.approx(left)
    assert (found["number"] if knows == "nothing" else found["cells"][knows]) == pytest.approx(number)
    assert again(found["needed"][knows])[0] <= 0.2 + 1e-9 < again(found["needed"][knows] - 1)[0]


def head_again(*, means, axis, query, clusters, **_):
    """The limit over a long context, by quadrature of the tilted clusters."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    u, v = (part.ravel() for part in np.meshgrid(nodes, nodes))
    a, b = axis
    noise = np.stack([a * u - b * v / 2, b * u + a * v / 2], -1)
    points = np.array(means[:clusters])[:, None] + noise
    tilted = np.outer(weights, weights).ravel() * np.exp(points @ query)
    squares = np.outer(weights, weights).ravel() * np.exp(2 * points @ query)
    total = weights.sum() ** 2
    own = tilted[0] @ points[0] / tilted[0].sum()
    everyone = np.einsum("kp,kpf->f", tilted, points) / tilted.sum()
    return {"everyone": everyone, "gradient": everyone - own, "spread": clusters * total * squares.sum() / tilted.sum() ** 2}


@pytest.mark.parametrize(
    "traits",
    [{}, {"axis": [0.0, 0.0]}, {"clusters": 1, "tokens": 2000}, {"clusters": 2, "query": [-0.5, 1.2], "number": 7}],
)
def test_one_head_s_limit_is_the_integral_over_its_clusters(traits):
    explorer = OneHeadExplorer(**traits)
    known, found = head_again(**explorer.state()), explorer.compute()
    np.testing.assert_allclose(found["limit"], known["everyone"], atol=1e-9)
    np.testing.assert_allclose(found["gradient"], known["gradient"], atol=1e-9)
    assert found["effective"] == pytest.approx(explorer.tokens / known["spread"])


FORWARD_PASS_STATES = [
    {},
    {"mask": "off"},
    {"layers": 0},
    {"layers": 8, "step": 2.4, "examples": 12, "spread": 1.0, "mask": "off"},
    {"layers": 5, "prompt": 4, "examples": 1, "weights": [-1.5, 0.25], "query": [2.0, 2.5]},
]


def descent_on(X, y, step, layers):
    """Gradient descent from 0 on half the mean of squares over the first n rows, by differentiation."""
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    path = [w.tolist()]
    for _ in range(layers):
        loss = ((X @ w - y) ** 2).sum() / 2
        w = (w - step * torch.autograd.grad(loss, w)[0]).detach().requires_grad_()
        path.append(w.tolist())
    return np.array(path)


@pytest.mark.parametrize("traits", FORWARD_PASS_STATES)
def test_forward_pass_is_descent_with_the_mask_and_on_the_query_with_label_zero_without(traits):
    explorer = ForwardPassExplorer(**traits)
    n, x, w_star = explorer.examples, np.array(explorer.query), np.array(explorer.weights)
    X = standard_normals(explorer.prompt)[:n] * torch.tensor([1, explorer.spread], dtype=torch.float64).sqrt()
    y = X @ torch.tensor(explorer.weights, dtype=torch.float64)
    if explorer.mask == "off":
        X, y = torch.cat([X, torch.tensor([explorer.query], dtype=torch.float64)]), torch.cat([y, y.new_zeros(1)])
    path = descent_on(X, y, explorer.step / n, 8)
    numbers = explorer.compute()
    np.testing.assert_allclose(numbers["path"], path, rtol=1e-9, atol=1e-9)
    entries = np.array(numbers["labels"])
    np.testing.assert_allclose(entries[:, -1], -path @ x, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(entries[:, :n], ((w_star - path) @ X.numpy()[:n].T), rtol=1e-9, atol=1e-9)


VALLEY_STATES = [
    {},
    {"start": [0.4, 1.2]},
    {"start": [1.2, 0.4]},
    {"second": 1.0},
    {"examples": 200},
    {"second": 0.1, "examples": 1, "start": [0.05, 0.3]},
]


@pytest.mark.parametrize("traits", VALLEY_STATES)
def test_second_valley_is_the_flow_of_the_whole_loss(traits):
    explorer = SecondValleyExplorer(**traits)
    numbers, covariance = explorer.compute(), torch.diag(torch.tensor([1, explorer.second], dtype=torch.float64))

    def loss(z):
        return attention_loss(z[:3], z[3:].reshape(3, 2), covariance, explorer.examples)

    def velocity(_, state):
        z = torch.tensor(state, requires_grad=True)
        return -torch.autograd.grad(loss(z), z)[0].numpy()

    times = [time for time in numbers["times"] if time < 5]
    start = [explorer.start[0], 0, explorer.start[1], *[0] * 6]
    states = solve_ivp(velocity, (0, times[-1]), start, method="LSODA", t_eval=times, rtol=1e-9, atol=1e-11).y.T
    seen = len(times)
    np.testing.assert_allclose(states[:, [0, 2]], numbers["path"][:seen], rtol=1e-5, atol=1e-6)
    losses = [loss(torch.tensor(state)).item() for state in states]
    np.testing.assert_allclose(losses, numbers["losses"][:seen], rtol=1e-5, atol=1e-6)
    outside = [1, 4, 5, 8]  # b's second entry, A₁'s off-diagonal, α's second: x₂ and w₂ may change their sign
    assert np.abs(states[:, outside]).max() < 1e-9
    assert (np.diff(numbers["losses"]) < 1e-9).all()


def test_second_valley_is_a_minimum_of_all_nine_parameters_wherever_the_sliders_go():
    for n, second in itertools.product((1, 2, 5, 20, 60, 200), (0.1, 0.25, 0.5, 0.75, 1.0)):
        spectrum = torch.tensor([1, second], dtype=torch.float64)
        b, A = valley_parameters(torch.tensor(second_valley(spectrum, n)[0], dtype=torch.float64), spectrum, n)
        hessian = torch.autograd.functional.hessian(
            lambda z, n=n, s=spectrum: attention_loss(z[:3], z[3:].reshape(3, 2), torch.diag(s), n),
            torch.cat([b, A.flatten()]),
        )
        curvatures = torch.linalg.eigvalsh(hessian)
        assert curvatures[0] > -1e-7  # 0 along the re-scaling, and for Σ = I along the turning
        if (n, second) == (20, 0.5):
            assert curvatures[1] > 1e-3
