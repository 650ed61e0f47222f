import itertools
import math

import numpy as np
import one_head as experiment
import pytest
import sympy as sp
import torch

from attnopt.regression import cross_attention
from attnopt.synthesis import mixture_error, mixture_limit, read_context

THETA = torch.tensor([[1, 0], [0, 1], [-1, -1]], dtype=torch.float64)
PLANE = {
    "means": THETA,
    "shares": torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64),
    "covariance": torch.tensor([[0.5, 0.1], [0.1, 0.3]], dtype=torch.float64),
}
QUERY = torch.tensor([[0.8, -0.4]], dtype=torch.float64)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def one_hot(classes, count):
    return torch.nn.functional.one_hot(torch.as_tensor(classes), count).double()


@pytest.mark.evidence("book-head-tilt")
@pytest.mark.evidence("book-head-classmates")
@pytest.mark.parametrize("seed", range(5))
def test_everyone_minus_the_classmates_is_the_gradient(seed):
    """By differentiation, for labels of all kinds, with scores ⟨x, Az⟩."""
    tokens, members, key = normal(9, 3, seed=seed), one_hot(torch.arange(9) % 4, 4), normal(3, 3, seed=seed + 50)
    labels = normal(2, 4, seed=seed + 100).softmax(-1)
    labels[0] = one_hot(seed % 4, 4)
    z = normal(2, 3, seed=seed + 200).requires_grad_()
    weights = torch.softmax(z @ key.mT @ tokens.mT, -1)
    (-(labels * (weights @ members).log()).sum()).backward()
    found = read_context(z.detach() @ key.mT, tokens, members)
    pull = ((found.shares - labels).unsqueeze(-2) @ found.classes).squeeze(-2)
    torch.testing.assert_close(pull @ key, z.grad)
    torch.testing.assert_close((found.shares.unsqueeze(-2) @ found.classes).squeeze(-2), (weights @ tokens).detach())
    for k in range(4):
        alone = tokens[k::4]
        torch.testing.assert_close(found.classes[:, k], torch.softmax(z.detach() @ key.mT @ alone.mT, -1) @ alone)


def test_a_class_without_tokens_has_no_share_and_soft_members_share_a_token():
    tokens, queries = normal(4, 2), normal(3, 2, seed=1)
    found = read_context(queries, tokens, one_hot([0, 0, 2, 2], 3))
    assert (found.shares[:, 1] == 0).all()
    assert (found.classes[:, 1] == 0).all()
    halves = read_context(queries, tokens, torch.full((4, 2), 0.5, dtype=torch.float64))
    torch.testing.assert_close(halves.shares, torch.full((3, 2), 0.5, dtype=torch.float64))
    torch.testing.assert_close(halves.classes[:, 0], torch.softmax(queries @ tokens.mT, -1) @ tokens)


@pytest.mark.evidence("book-head-clusters")
def test_without_spread_only_counts_matter():
    """Tokens equal to their class vectors: cross-attention to these with the logarithms of the counts added."""
    counts = torch.tensor([4, 1, 2])
    members = one_hot(torch.arange(3).repeat_interleave(counts), 3)
    found = read_context(QUERY, members @ THETA, members)
    limit = mixture_limit(QUERY, THETA, counts.double() / 7, torch.zeros(2, 2).double())
    torch.testing.assert_close(found.shares, limit.belief)
    torch.testing.assert_close(found.classes[0], THETA)
    even = mixture_limit(QUERY, THETA, torch.full((3,), 1 / 3, dtype=torch.float64), torch.zeros(2, 2).double())
    torch.testing.assert_close(even.between, cross_attention(QUERY, THETA, "class"))
    assert (even.within == 0).all()


def grid(means, shares, covariance, degree=40):
    """Points and weights that integrate polynomials times exponentials over the mixture, with the classes."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(degree)
    pairs = torch.tensor(list(itertools.product(nodes, repeat=2)))
    each = torch.tensor([a * b for a, b in itertools.product(weights / weights.sum(), repeat=2)])
    noise = pairs @ torch.linalg.cholesky(covariance).mT
    points = (means[:, None] + noise).flatten(0, 1)
    return points, (shares[:, None] * each).flatten(), torch.arange(len(means)).repeat_interleave(len(each))


@pytest.mark.evidence("book-head-clusters")
def test_the_limit_is_the_tilted_mean_by_quadrature():
    points, weights, classes = grid(**PLANE)
    tilted = weights * torch.exp(points @ QUERY[0])
    tilted = tilted / tilted.sum()
    limit = mixture_limit(QUERY, **PLANE)
    torch.testing.assert_close(limit.between[0] + limit.within[0], tilted @ points)
    torch.testing.assert_close(limit.belief[0], torch.stack([tilted[classes == k].sum() for k in range(3)]))


@pytest.mark.evidence("book-head-clusters")
def test_the_limit_is_affine_for_normal_tokens_alone():
    """The third derivative of K on a line: 0 for a normal law, not for two clusters, coins, or a mixture of widths."""
    t, a, s = sp.symbols("t a s", positive=True)
    third = lambda K: sp.simplify(sp.diff(K, t, 3))  # noqa: E731
    assert third(a * t + s * t**2 / 2) == 0
    clusters = sp.log(sp.cosh(a * t)) + s * t**2 / 2
    for K in (clusters, sp.log(sp.cosh(t)), sp.log(sp.exp(t**2 / 2) + sp.exp(2 * t**2))):
        assert abs(third(K).subs({t: sp.Rational(1, 2), a: 1, s: 1}).evalf()) > 0.1
    assert sp.simplify(sp.diff(sp.log(sp.cosh(t)), t) - sp.tanh(t)) == 0


@pytest.mark.parametrize("labels", [None, [1.0, 0, 0], [0, 0, 1.0], [0.2, 0.5, 0.3]])
@pytest.mark.evidence("book-head-error")
def test_the_error_is_the_delta_method_s_by_quadrature(labels):
    """Moments of the densities themselves, without any formula for normal laws."""
    points, weights, classes = grid(**PLANE)
    density = torch.exp(points @ QUERY[0])
    density = density / (weights @ density)
    middle = (weights * density) @ points
    influence, bias = density[:, None] * (points - middle), -(weights * density**2) @ (points - middle)
    if labels is not None:
        for k, label in enumerate(labels):
            here = classes == k
            mass = (weights * density)[here].sum()
            own = (weights * density)[here] @ points[here] / mass
            influence[here] -= label / mass * density[here, None] * (points[here] - own)
            bias += label / mass**2 * (weights * density**2)[here] @ (points[here] - own)
    given = None if labels is None else torch.tensor([labels], dtype=torch.float64)
    found = mixture_error(QUERY, **PLANE, labels=given)
    torch.testing.assert_close(found.covariance[0], (weights[:, None] * influence).mT @ influence)
    torch.testing.assert_close(found.bias[0], bias)
    torch.testing.assert_close(found.spread[0], weights @ density**2)


@pytest.mark.evidence("book-head-error")
def test_the_bias_looks_back_along_the_query():
    for seed in range(20):
        queries, means = 2 * normal(5, 2, seed=seed), normal(4, 2, seed=seed + 30)
        shares = normal(4, seed=seed + 60).softmax(-1)
        bias = mixture_error(queries, means, shares, PLANE["covariance"]).bias
        assert ((bias * queries).sum(-1) < 0).all()


@pytest.mark.evidence("book-head-error")
@pytest.mark.parametrize(("n", "share"), [(6, 0.5), (20, 0.3), (40, 0.2)])
def test_small_denominators_are_as_rare_as_the_proof_says(n, share):
    """Densities 1/share with that chance, otherwise 0: spread 1/share, sums are binomial."""
    at_most = sum(math.comb(n - 1, k) * share**k * (1 - share) ** (n - 1 - k) for k in range(n) if k / share < n / 2)
    assert at_most <= math.exp((3 - n) * share / 8)


def test_queries_too_long_are_refused():
    with pytest.raises(ValueError, match="queries or means are too long"):
        mixture_error(1e4 * QUERY, **PLANE)
    with pytest.raises(ValueError, match="queries or means are too long"):  # the covariance alone
        mixture_error(1e-160 * QUERY, **PLANE | {"means": 1e160 * THETA})


def test_flat_clusters_are_taken_and_what_is_no_mixture_is_not():
    """Covariances of rank one, whose least eigenvalue is rounding of either sign."""
    for seed in range(20):
        side = normal(2, seed=seed)
        limit = mixture_limit(QUERY, THETA, PLANE["shares"], torch.outer(side, side))
        torch.testing.assert_close(limit.within[0], side * (side @ QUERY[0]))
    with pytest.raises(ValueError, match="semidefinite, got the eigenvalue -1e-05"):
        mixture_limit(QUERY, THETA, PLANE["shares"], torch.diag(torch.tensor([1, -1e-5])).double())
    with pytest.raises(ValueError, match="shares must be positive, got 0"):
        mixture_limit(QUERY, THETA, torch.tensor([0.5, 0.5, 0]).double(), PLANE["covariance"])


# The experiment


@pytest.mark.evidence("book-head-trained")
@pytest.mark.parametrize("task", experiment.TASKS)
def test_the_tasks_are_what_the_script_says(task):
    context, queries, targets, means, covariance = experiment.draw(task, 3000, 60, torch.Generator().manual_seed(1))
    noise = (queries - targets).square().sum(-1).mean().item()
    assert noise == pytest.approx(experiment.DIM, rel=0.08)
    spread = means.mT @ means / experiment.CLUSTERS + covariance
    found = (context.mT @ context / 60 - spread).mean(0)
    assert found.abs().max() < 0.15
    if task == "clusters":
        assert torch.isclose(targets[:, None], means).all(-1).any(-1).all()


@pytest.mark.evidence("book-head-trained")
@pytest.mark.parametrize("task", experiment.TASKS)
def test_bayes_rule_is_the_mean_of_what_fits(task):
    """Targets drawn from the prior, weighted by how likely they make the query."""
    generator = torch.Generator().manual_seed(2)
    _, queries, _, means, covariance = experiment.draw(task, 3, 1, generator, torch.float64)
    for at in range(3):
        classes = torch.randint(3, (400_000,), generator=generator)
        targets = means[at, classes]
        if task != "clusters":
            factor = torch.linalg.cholesky(covariance[at])
            targets = targets + torch.randn(400_000, 4, generator=generator, dtype=torch.float64) @ factor.mT
        weights = torch.softmax(-(queries[at] - targets).square().sum(-1) / 2, 0)
        expected = experiment.bayes(task, queries, means, covariance)[at]
        torch.testing.assert_close(weights @ targets, expected, atol=0.05, rtol=0)


@pytest.mark.evidence("book-head-trained")
def test_the_script_attends_and_measures():
    context, queries = normal(5, 7, 4), normal(5, 4, seed=1)
    key = normal(4, 4, seed=2)
    expected = torch.nn.functional.scaled_dot_product_attention((queries @ key.mT)[:, None], context, context, scale=1.0)[
        :, 0
    ]
    torch.testing.assert_close(experiment.attended("softmax", key, context, queries), expected)
    linear = torch.einsum("bni,ij,bj,bnk->bk", context, key, queries, context) / 7
    torch.testing.assert_close(experiment.attended("linear", key, context, queries), linear)
    gentle = (0.2 * torch.eye(4).double(), torch.eye(4).double() + 0.1 * key, key)
    found = experiment.terms("both", gentle, 2000, torch.Generator().manual_seed(3), 300)
    assert found["unit"] == pytest.approx(1, abs=0.15)
    assert found["off"] < 0.1
    known = experiment.multiples(torch.eye(4).double(), 2 * torch.eye(4).double(), -torch.eye(4).double())
    assert known == {"A": 1, "V": 2, "B": -1, "VA": 2, "shape": 0}
