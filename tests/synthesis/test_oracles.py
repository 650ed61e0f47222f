import itertools
import math
import random

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from attnopt.regression import block_step, feature_flow, unroll
from attnopt.synthesis import attention_spread, gain_bounds, information_split, oracle_value


@pytest.fixture(params=range(3))
def chance(request):
    """Sizes and numbers, the same at every run."""
    return random.Random(request.param)


def close(one, other, tolerance=1e-12):
    torch.testing.assert_close(
        torch.as_tensor(one, dtype=torch.float64),
        torch.as_tensor(other, dtype=torch.float64),
        rtol=tolerance,
        atol=tolerance,
    )


class World:
    """Finitely many tokens z, answers o and classes c with random probabilities, everything by sums over all of them."""

    def __init__(self, chance, tokens=4, answers=3, classes=3, width=2, calibrated=False):
        self.sizes = tokens, answers, classes
        draw = lambda *shape: np.array([chance.gauss(0, 1) for _ in range(math.prod(shape))]).reshape(shape)  # noqa: E731
        self.theta, self.z = 1.5 * draw(classes, width), draw(tokens, width)
        scores = self.z @ self.theta.T
        self.s = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        self.p_z = np.exp(draw(tokens))
        self.p_z /= self.p_z.sum()
        true = self.s if calibrated else np.exp(draw(tokens, classes))
        channel = np.exp(2 * draw(tokens, classes, answers))  # o given z and c
        joint = true[:, None] / true.sum(1)[:, None, None] * (channel / channel.sum(-1, keepdims=True)).transpose(0, 2, 1)
        self.joint = joint * self.p_z[:, None, None]  # z, o, c

    @property
    def shares(self):
        return self.joint.sum(-1) / self.joint.sum((1, 2))[:, None]

    @property
    def posterior(self):
        return self.joint / self.joint.sum(-1, keepdims=True)

    def entries(self):
        """Every (z, o, c) with its probability."""
        return [(where, self.joint[where]) for where in itertools.product(*map(range, self.joint.shape))]

    def loss(self, moved):
        """Expected cross-entropy if the features are moved[z, o]."""
        total = 0.0
        for (z, o, c), weight in self.entries():
            scores = self.theta @ moved[z, o]
            total += weight * (np.log(np.exp(scores - scores.max()).sum()) + scores.max() - scores[c])
        return total

    def value(self, posterior):
        """Mean of ‖(s - C)θ‖² for labels posterior[z, o, c], whatever they are."""
        return sum(
            weight * (((self.s[z] - posterior[z, o, c]) @ self.theta) ** 2).sum() for (z, o, c), weight in self.entries()
        )

    def still(self):
        return np.broadcast_to(self.z[:, None], (*self.joint.shape[:2], self.z.shape[1]))

    def arrays(self):
        """θ, s, C_O and the probabilities of (z, o), one token for each pair, as tensors."""
        spread = np.broadcast_to(self.s[:, None], self.joint.shape).reshape(-1, self.sizes[2])
        values = self.theta, spread, self.posterior.reshape(-1, self.sizes[2]), self.joint.sum(-1).ravel()
        return [torch.tensor(value) for value in values]


def by_class(world, values):
    """Labels [z, o] or [z] spread over z, o and c."""
    values = values if values.ndim == 3 else values[:, None]
    return np.broadcast_to(values[:, :, None], (*world.joint.shape, world.sizes[2]))


# Three tokens, by hand


# One step


@pytest.mark.evidence("book-oracle-step")
@pytest.mark.parametrize("calibrated", [True, False])
def test_one_step_gains_between_its_bounds_whatever_labels_are_put_in(chance, calibrated):
    world = World(chance, calibrated=calibrated)
    theta, s, posterior, weight = world.arrays()
    curvature = max(((a - b) ** 2).sum() for a, b in itertools.combinations(world.theta, 2)) / 4
    assert curvature <= torch.linalg.matrix_norm(theta, 2).item() ** 2 / 2
    any_labels = torch.tensor([[chance.random() for _ in range(3)] for _ in range(len(s))], dtype=torch.float64)
    any_labels = any_labels / any_labels.sum(-1, keepdim=True)
    hard = torch.nn.functional.one_hot(s.argmax(-1), 3).double()
    before = world.loss(world.still())
    value = oracle_value(theta, s, posterior)
    for labels, step in itertools.product((posterior, any_labels, hard, s), (0.01, 0.3, 1 / curvature, 2 / curvature, 3)):
        low, high = gain_bounds(theta, s, labels, posterior, step)
        start = torch.tensor(world.still().reshape(-1, 2).copy())
        moved = block_step(start, theta, labels, "class", step).numpy().reshape(world.still().shape)
        gain = before - world.loss(moved)
        assert (weight * low).sum().item() - 1e-12 <= gain <= (weight * high).sum().item() + 1e-12
        if labels is posterior:
            close(high, step * value)
            close(low, step * (1 - step * curvature / 2) * value)
        if labels is s:
            assert gain == pytest.approx(0, abs=1e-12)


@pytest.mark.evidence("book-oracle-step")
def test_no_smaller_number_bounds_the_curvature(chance):
    """The largest eigenvalue over random beliefs, and at one half each for the two class vectors farthest apart."""
    theta = torch.tensor([[chance.gauss(0, 1) for _ in range(3)] for _ in range(4)]).double()
    apart = torch.cdist(theta, theta)
    first, second = divmod(apart.argmax().item(), 4)
    most = apart.max().item() ** 2 / 4
    beliefs = (3 * torch.tensor([[chance.gauss(0, 1) for _ in range(4)] for _ in range(500)]).double()).softmax(-1)
    hessian = lambda s: theta.mT @ (torch.diag_embed(s) - s[..., None] * s[..., None, :]) @ theta  # noqa: E731
    assert torch.linalg.eigvalsh(hessian(beliefs)).max().item() <= most
    half = torch.zeros(4).double()
    half[first] = half[second] = 0.5
    assert torch.linalg.eigvalsh(hessian(half)).max().item() == pytest.approx(most)


@pytest.mark.evidence("book-oracle-step")
def test_the_slope_of_the_gain_is_the_inner_product(chance):
    """Also with true labels in the posterior's place, as data give it."""
    world = World(chance)
    theta, s, posterior, weight = world.arrays()
    labels = torch.softmax(torch.tensor([[chance.gauss(0, 1) for _ in range(3)] for _ in range(len(s))]).double(), -1)
    slope = (weight * gain_bounds(theta, s, labels, posterior, 1.0)[1]).sum().item()
    start, losses = torch.tensor(world.still().reshape(-1, 2).copy()), []
    for h in (-1e-5, 1e-5):
        moved = start - h * (s - labels) @ theta
        losses.append(world.loss(moved.numpy().reshape(world.still().shape)))
    assert (losses[0] - losses[1]) / 2e-5 == pytest.approx(slope, rel=1e-7)
    by_data = 0.0
    for (z, o, c), probability in world.entries():
        move = (s.numpy() - labels.numpy()).reshape(world.joint.shape)[z, o] @ world.theta
        by_data += probability * ((world.s[z] - np.eye(3)[c]) @ world.theta @ move)
    assert by_data == pytest.approx(slope)


# Value: Pythagoras


@pytest.mark.evidence("book-oracle-parts")
@pytest.mark.parametrize("calibrated", [True, False])
def test_miscalibration_oracle_and_what_is_left_add_up(chance, calibrated):
    world = World(chance, tokens=5, answers=4, classes=4, width=3, calibrated=calibrated)
    theta, s, posterior, weight = world.arrays()
    true = world.joint.sum(1) / world.joint.sum((1, 2))[:, None]
    got = (weight * oracle_value(theta, s, posterior)).sum().item()
    assert got == pytest.approx(world.value(by_class(world, world.posterior)))
    covariance = 0.0
    for (z, o, _), probability in world.entries():
        gap = (world.posterior[z, o] - true[z]) @ world.theta
        covariance += probability * gap @ gap
    wrong = world.value(by_class(world, true))
    assert got == pytest.approx(wrong + covariance)
    if calibrated:
        assert wrong == pytest.approx(0, abs=1e-14)
    label = world.value(np.broadcast_to(np.eye(4), (*world.joint.shape, 4)))
    left = sum(
        probability * (((np.eye(4)[c] - world.posterior[z, o]) @ world.theta) ** 2).sum()
        for (z, o, c), probability in world.entries()
    )
    assert label == pytest.approx(got + left)


@pytest.mark.evidence("book-oracle-parts")
@pytest.mark.parametrize("calibrated", [True, False])
def test_a_garbled_oracle_is_worth_less_and_one_that_is_a_function_of_the_features_nothing(chance, calibrated):
    world, garbled = World(chance, calibrated=calibrated), None
    garbled = World(chance, calibrated=calibrated)
    garbled.__dict__ |= world.__dict__
    noise = np.exp([[chance.gauss(0, 1) for _ in range(5)] for _ in range(3)])
    garbled.joint = np.einsum("zoc,om->zmc", world.joint, noise / noise.sum(1, keepdims=True))
    values = [w.value(by_class(w, w.posterior)) for w in (world, garbled)]
    assert values[1] < values[0]
    nothing = World(chance, calibrated=calibrated)
    nothing.__dict__ |= world.__dict__
    alone = np.array([[chance.random() for _ in range(3)] for _ in range(4)])  # answers drawn from the features alone
    nothing.joint = world.joint.sum(1)[:, None] * (alone / alone.sum(1, keepdims=True))[..., None]
    true = world.joint.sum(1) / world.joint.sum((1, 2))[:, None]
    worth = nothing.value(by_class(nothing, nothing.posterior))
    assert worth == pytest.approx(world.value(by_class(world, true)), abs=1e-14)
    assert worth == pytest.approx(0, abs=1e-14) or not calibrated


# The trace


@pytest.mark.evidence("book-oracle-trace")
@pytest.mark.parametrize("calibrated", [True, False])
def test_the_label_is_worth_the_trace_up_to_miscalibration(chance, calibrated):
    world = World(chance, classes=4, width=3, calibrated=calibrated)
    theta, s = torch.tensor(world.theta), torch.tensor(world.s)
    label = world.value(np.broadcast_to(np.eye(4), (*world.joint.shape, 4)))
    trace = (torch.tensor(world.p_z) * attention_spread(theta, s)).sum().item()
    true = world.joint.sum(1) / world.joint.sum((1, 2))[:, None]
    away = ((world.theta[None] - (world.s @ world.theta)[:, None]) ** 2).sum(-1)
    gap = (world.p_z[:, None] * (true - world.s) * away).sum()
    assert label - trace == pytest.approx(gap, abs=1e-13)
    if calibrated:
        assert label == pytest.approx(trace)


# Information


@pytest.mark.evidence("book-oracle-flow")
@pytest.mark.parametrize("calibrated", [True, False])
def test_three_parts_make_the_cross_entropy(chance, calibrated):
    world = World(chance, calibrated=calibrated)
    split = information_split(*(torch.tensor(x) for x in (world.s, world.shares, world.posterior)))
    means = [(torch.tensor(world.p_z) * part).sum().item() for part in split]
    assert sum(means) == pytest.approx(world.loss(world.still()))
    entropies = [
        -sum(part.sum() * math.log(part.sum()) for part in np.moveaxis(world.joint, axes, range(len(axes))).reshape(n, -1))
        for axes, n in (((0, 1, 2), 36), ((0, 1), 12), ((0, 2), 12), ((0,), 4))
    ]
    assert means[0] == pytest.approx(entropies[0] - entropies[1])  # H(c, Z, O) - H(Z, O)
    assert means[1] == pytest.approx(entropies[2] - entropies[3] - means[0])
    assert (means[2] == pytest.approx(0, abs=1e-12)) == calibrated


@pytest.mark.evidence("book-oracle-flow")
@pytest.mark.parametrize("calibrated", [True, False])
def test_the_flow_gains_the_information_and_the_miscalibration(chance, calibrated):
    world = World(chance, tokens=2, answers=2, calibrated=calibrated)
    theta, _, posterior, weight = world.arrays()
    split = information_split(*(torch.tensor(x) for x in (world.s, world.shares, world.posterior)))
    whole = (torch.tensor(world.p_z) * (split.information + split.miscalibration)).sum().item()
    start = torch.tensor(world.still().reshape(-1, 2).copy())
    times = torch.cat([torch.zeros(1), torch.logspace(-3, 3.3, 500)]).double()
    path = feature_flow(start, theta, posterior, "class", times)
    before = world.loss(world.still())
    gains = [before - world.loss(moved.numpy().reshape(world.still().shape)) for moved in path]
    assert np.all(np.diff(gains) > -1e-9)
    assert max(gains) <= whole + 1e-9
    # the best features, and how long the proof allows the flow to be away from them
    apart = theta[1:] - theta[0]
    best = torch.linalg.solve(apart, (posterior[:, 1:] / posterior[:, :1]).log()[..., None])[..., 0]
    close((best @ theta.mT).softmax(-1), posterior, 1e-9)
    assert before - world.loss(best.numpy().reshape(world.still().shape)) == pytest.approx(whole)
    late = (weight * (start - best).square().sum(-1)).sum().item() / 2
    assert all(whole - gain <= late / time + 1e-9 for gain, time in zip(gains[1:], times[1:].tolist(), strict=True))
    assert gains[-1] == pytest.approx(whole, abs=1e-3)
    rates = [(weight * oracle_value(theta, (moved @ theta.mT).softmax(-1), posterior)).sum().item() for moved in path]
    assert np.trapezoid(rates, times) == pytest.approx(gains[-1], rel=2e-3)
    assert rates[0] <= max(((a - b) ** 2).sum() for a, b in itertools.combinations(world.theta, 2)) / 2 * whole
    # nothing else does better: the best moved features, sought directly
    for z, o in itertools.product(range(2), range(2)):
        target = world.posterior[z, o]
        loss = lambda x, p=target: np.log(np.exp(world.theta @ x).sum()) - p @ world.theta @ x  # noqa: E731
        best = minimize(loss, world.z[z], tol=1e-12).fun
        assert best == pytest.approx(-(target * np.log(target)).sum(), abs=1e-7)


# Without labels


@pytest.mark.evidence("book-oracle-own")
def test_no_map_of_a_calibrated_belief_lowers_the_loss_or_wins_a_decision(chance):
    world = World(chance, calibrated=True)
    before, theta, s = world.loss(world.still()), torch.tensor(world.theta), torch.tensor(world.s)
    right = sum(world.joint[z].sum(0).max() for z in range(4))
    for _ in range(50):
        shift = np.array([[chance.gauss(0, 1) for _ in range(2)] for _ in range(4)])
        moved = np.broadcast_to((world.z + shift * chance.random())[:, None], world.still().shape)
        assert world.loss(moved) >= before - 1e-13
        decided = (moved[:, 0] @ world.theta.T).argmax(-1)
        assert sum(world.joint[z].sum(0)[decided[z]] for z in range(4)) <= right + 1e-13
        labels = torch.softmax(torch.tensor([[chance.gauss(0, 2) for _ in range(3)] for _ in range(4)]).double(), -1)
        assert (torch.tensor(world.p_z) * gain_bounds(theta, s, labels, s, 0.5)[1]).sum().item() == pytest.approx(
            0, abs=1e-14
        )


@pytest.mark.evidence("book-oracle-own")
def test_own_labels_keep_the_order_for_class_vectors_at_equal_angles(chance):
    for _ in range(200):
        classes = chance.randint(2, 6)
        a, b = chance.uniform(0.2, 3), chance.uniform(0, 1)
        gram = a * torch.eye(classes) + (b - a / classes * chance.random()) * torch.ones(classes, classes)
        theta = torch.linalg.cholesky(gram.double() + 1e-12 * torch.eye(classes))
        start = torch.tensor([[chance.gauss(0, chance.choice((1e-3, 1, 10))) for _ in range(classes)]]).double()
        logits = start @ theta.mT
        order = logits.argsort(-1)
        soft = (logits / chance.choice((0.1, 0.5, 2, 1e6))).softmax(-1)
        hard = torch.nn.functional.one_hot(logits.argmax(-1), classes).double()
        for labels in (soft, hard, torch.full_like(soft, 1 / classes)):
            after = unroll(start, theta, labels, "class", 1, chance.uniform(0.1, 2) / a)[-1] @ theta.mT
            assert torch.equal(after.argsort(-1), order)
    # beyond 2 it does not: two classes that are almost tied, and the uniform label
    logits = torch.tensor([[0.01, 0.0]]).double()
    after = unroll(logits, torch.eye(2).double(), torch.full((1, 2), 0.5).double(), "class", 1, 2.01)[-1]
    assert after[0, 0] < after[0, 1]


@pytest.mark.evidence("book-oracle-own")
def test_a_hard_own_label_can_turn_the_decision():
    """The third class falls so far that the second passes the first, in whom the belief grows all the same."""
    theta = torch.tensor([[0, 0.01], [1, 0], [-10, 0]], dtype=torch.float64)
    start, own = torch.tensor([[0.0, 1]], dtype=torch.float64), torch.tensor([[1.0, 0, 0]], dtype=torch.float64)
    before = start @ theta.mT
    after = unroll(start, theta, own, "class", 1, 0.01)[-1] @ theta.mT
    assert before.argmax() == 0
    assert after.argmax() == 1
    beliefs = before.softmax(-1)[0, 0].item(), after.softmax(-1)[0, 0].item()
    assert beliefs == pytest.approx((0.3356, 0.3631), abs=5e-5)
    assert torch.linalg.matrix_norm(theta, 2).item() ** 2 / 2 * 0.01 < 2
    # exactly, in fractions but for the belief: N₂ - N₁ = 9h s₂ - 10⁻² - 10⁻⁴ h (1 - s₁), with s₂ = s₃
    s1 = math.exp(0.01) / (math.exp(0.01) + 2)
    assert (after[0, 1] - after[0, 0]).item() == pytest.approx(0.09 * (1 - s1) / 2 - 0.01 - 1e-6 * (1 - s1), rel=1e-9)


# Shapes and what is refused


def test_an_impossible_class_costs_infinitely_much():
    s, posterior = torch.tensor([[1.0, 0.0]]), torch.tensor([[[0.5, 0.5]]])
    split = information_split(s, torch.ones(1, 1), posterior)
    assert split.miscalibration.isinf().all()
    close(split.information, [0.0])
    close(split.remaining, [math.log(2)], 1e-6)


def test_rows_of_a_posterior_are_named():
    s = torch.full((2, 3), 1 / 3)
    for bad in (s * 2, s / 2, s - 0.5, s + torch.tensor([0.5, -0.5, 0.0])):
        with pytest.raises(ValueError, match="posterior"):
            oracle_value(torch.eye(3), s, bad)
    with pytest.raises(ValueError, match="posterior must have a row"):
        information_split(s, torch.ones(2, 1), s)
    with pytest.raises(ValueError, match="posterior must have 2 tokens"):
        information_split(s, torch.ones(2, 1), torch.full((1, 1, 3), 1 / 3))
