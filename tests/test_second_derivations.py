"""Every correction a second time, by a route that shares no code with the package or with the chapters.

What is used instead: rational numbers, differences at 50 digits, all cases one by one, moments of normal numbers by
counting pairings. Nothing here may import the package; a test sees to that, and another that no correction is left out.
"""

import ast
import collections
import functools
import itertools
import json
import math
import operator
import random
import tomllib
from fractions import Fraction as Q
from pathlib import Path

import mpmath
import numpy as np
import pytest
import scipy.optimize
import scipy.special
from mpmath import mpf

ROOT = Path(__file__).parent.parent
CLAIMS = tomllib.loads((ROOT / "book" / "claims.toml").read_text(encoding="utf-8"))
SECOND = collections.defaultdict(list)


def second(*claims):
    """Marks a test as a second derivation of claims."""

    def mark(test):
        for claim in claims:
            SECOND[claim].append(test.__name__)
        return test

    return mark


@pytest.fixture(autouse=True)
def fifty_digits():
    with mpmath.workdps(50):
        yield


def test_every_correction_has_a_second_derivation():
    corrected = {name for name, row in CLAIMS.items() if row.get("verdict") == "corrected"}
    assert corrected - set(SECOND) == set()
    assert set(SECOND) - set(CLAIMS) == set()


def test_nothing_here_comes_from_the_package():
    for node in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) else []
        assert not any(name.partition(".")[0] in ("attnopt", "helpers", "torch") for name in names)


# ---------------------------------------------------------------- tools


def mul(a, b):
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def add(a, b, factor=1):
    return [[x + factor * y for x, y in zip(r, s, strict=True)] for r, s in zip(a, b, strict=True)]


def turn(a):
    return [list(row) for row in zip(*a, strict=True)]


def inner(a, b):
    return sum(x * y for r, s in zip(a, b, strict=True) for x, y in zip(r, s, strict=True))


def eye(n):
    return [[Q(i == j) for j in range(n)] for i in range(n)]


def trace(a):
    return sum(a[i][i] for i in range(len(a)))


def by_columns(a):
    """Softmax down each column."""
    return turn([[mpmath.exp(x) / sum(map(mpmath.exp, column)) for x in column] for column in turn(a)])


def slopes(function, point, step=None):
    """Central differences of a scalar function of a nested list."""
    step = step or mpf(10) ** -17
    result = []
    for i, row in enumerate(point):
        result.append([])
        for j in range(len(row)):
            ends = []
            for sign in (1, -1):
                moved = [list(r) for r in point]
                moved[i][j] += sign * step
                ends.append(function(moved))
            result[-1].append((ends[0] - ends[1]) / (2 * step))
    return result


def along(function, point, direction, step=None):
    """Central difference of a function of a flat list along a direction."""
    step = step or mpf(10) ** -17
    ends = [function([x + sign * step * y for x, y in zip(point, direction, strict=True)]) for sign in (1, -1)]
    return (ends[0] - ends[1]) / (2 * step)


def largest(a, b):
    return max(abs(x - y) for r, s in zip(a, b, strict=True) for x, y in zip(r, s, strict=True))


def numbers(seed, rows, columns):
    draw = random.Random(seed)
    return [[mpf(draw.randint(-20, 20)) / 10 + mpf(1) / 77 for _ in range(columns)] for _ in range(rows)]


def column_loss(logits, labels):
    """Cross-entropy with the softmax down each column, from its definition."""
    return -sum(
        c * mpmath.log(s) for r, t in zip(labels, by_columns(logits), strict=True) for c, s in zip(r, t, strict=True)
    )


def column_labels(seed, rows, columns):
    draw = random.Random(seed)
    raw = [[mpf(draw.randint(1, 9)) for _ in range(columns)] for _ in range(rows)]
    return turn([[x / sum(column) for x in column] for column in turn(raw)])


# ---------------------------------------------------------------- Part I


@second("actor-softmax-axis")
def test_down_a_column_the_weights_of_a_token_sum_to_anything():
    scores = [[Q(1), Q(2)], [Q(3), Q(4)]]  # exponentials of the scores, two tokens and two keys
    down = turn([[x / sum(column) for x in column] for column in turn(scores)])
    across = [[x / sum(row) for x in row] for row in scores]
    assert [sum(row) for row in down] == [Q(7, 12), Q(17, 12)]  # no averages over the keys
    assert [sum(row) for row in across] == [1, 1]
    # usual attention of one token does not ask who else is there; down the columns it does
    assert [x / sum(scores[0]) for x in scores[0]] == across[0]
    assert [x / x for x in scores[0]] != down[0]
    # labels that sum to one down each column and across each row: their sum is the number of either
    for tokens, classes in itertools.product(range(1, 5), repeat=2):
        uniform = [[Q(1, tokens)] * classes for _ in range(tokens)]
        assert all(sum(column) == 1 for column in turn(uniform))
        assert all(sum(row) == 1 for row in uniform) == (tokens == classes)


@second("actor-corollary-2")
def test_gradient_of_the_quadratic_model_by_differences():
    features, labels = numbers(1, 3, 2), column_labels(2, 3, 3)
    weights = [[mpf(1), mpf(3) / 10], [mpf(3) / 10, mpf(-2) / 5]]
    measured = slopes(lambda z: column_loss(mul(mul(z, weights), turn(z)), labels), features)
    attention, right = by_columns(mul(mul(features, weights), turn(features))), mul(features, weights)
    both = mul(add(add(attention, turn(attention)), add(labels, turn(labels)), -1), right)
    printed = mul(add(add(attention, attention), add(labels, turn(labels)), -1), right)
    assert largest(measured, both) < mpf(10) ** -30
    assert largest(measured, printed) > mpf(1) / 10


@second("actor-corollary-2")
def test_printed_formula_points_uphill_with_two_tokens():
    theta, labels = mpmath.log(3), [[mpf(3) / 4, mpf(3) / 8], [mpf(1) / 4, mpf(5) / 8]]
    loss = lambda z: column_loss([[theta * x[0] * y[0] for y in z] for x in z], labels)  # noqa: E731
    measured = slopes(loss, [[mpf(1)], [mpf(0)]])
    assert largest(measured, [[0], [theta / 8]]) < mpf(10) ** -30
    # by hand: exp(A) = [[3, 1], [1, 1]], columns sum to 4 and 2; second entry of (2σ - C - Cᵀ) e_1
    assert 2 * Q(1, 4) - Q(1, 4) - Q(3, 8) == -Q(1, 8)
    # and it is no gradient: its curl does not vanish
    for theta in (mpf(-3), mpf(1) / 5, mpf(2)):

        def printed(z, entry, theta=theta):
            attention = by_columns([[theta * x[0] * y[0] for y in z] for x in z])
            return sum((2 * attention[entry][j] - 2 * (entry == j)) * z[j][0] * theta for j in range(2))

        here = [[mpf(1)], [mpf(0)]]
        curl = slopes(lambda z: printed(z, 0), here)[1][0] - slopes(lambda z: printed(z, 1), here)[0][0]
        assert abs(curl) > mpf(1) / 100


@second("actor-dissipation")
def test_loss_falls_at_the_squared_gradient_and_not_half_of_it():
    features, weights, labels = numbers(3, 3, 2), numbers(4, 4, 2), column_labels(5, 3, 4)
    loss = lambda z: column_loss(mul(z, turn(weights)), labels)  # noqa: E731
    gradient = slopes(loss, features)
    rate = along(
        lambda flat: loss([flat[:2], flat[2:4], flat[4:]]),
        functools.reduce(operator.iadd, features, []),
        [-x for row in gradient for x in row],
    )
    assert abs(rate + inner(gradient, gradient)) < mpf(10) ** -25
    assert rate < -inner(gradient, gradient) / 2 - mpf(1) / 100


def one_token(scheme, z, pull, h):
    """A step of ż = pull - tanh z: one token, the weights (1, -1), the softmax over two classes."""
    attend = lambda x, t: mpmath.asinh(mpmath.sinh(x) * mpmath.exp(-t))  # noqa: E731
    if scheme == "printed":
        half = z - h * mpmath.tanh(z)
        return half + h * pull
    if scheme == "euler":
        return z + h * (pull - mpmath.tanh(z))
    if scheme == "lie":
        return attend(z, h) + h * pull
    return attend(z + h * pull / 2, h) + h * pull / 2


@second("actor-splitting-linear")
def test_printed_block_is_euler_and_of_order_one():
    mpmath.mp.dps = 25
    pull, start = mpf(1) / 2, mpf(2)
    exact = mpmath.odefun(lambda t, z: pull - mpmath.tanh(z), 0, start)(1)
    ratios = {}
    for scheme in ("printed", "euler", "lie", "strang"):
        errors = []
        for steps in (32, 64):
            z = start
            for _ in range(steps):
                z = one_token(scheme, z, pull, mpf(1) / steps)
            errors.append(abs(z - exact))
        ratios[scheme] = float(errors[0] / errors[1])
    assert ratios["printed"] == ratios["euler"]
    assert [round(ratios[scheme]) for scheme in ("printed", "lie", "strang")] == [2, 2, 4]
    # the resting point of the flow is Euler's, and not that of either splitting
    rest = mpmath.atanh(pull)
    assert abs(one_token("euler", rest, pull, 1) - rest) < mpf(10) ** -22
    assert min(abs(one_token(scheme, rest, pull, 1) - rest) for scheme in ("lie", "strang")) > mpf(1) / 100


@second("actor-splitting-linear")
def test_unit_step_descends_up_to_norm_two_only():
    # one token, weights (s, -s) of norm s√2, equal labels: ℓ = log(2 cosh(s z)) and a layer is z - s tanh(s z)
    loss = lambda s, z: mpmath.log(2 * mpmath.cosh(s * z))  # noqa: E731
    for square, falls in ((mpf("1.99"), True), (mpf("2.01"), False)):
        s = mpmath.sqrt(square)
        changes = [loss(s, z - s * mpmath.tanh(s * z)) - loss(s, z) for z in (mpf(k) / 50 for k in range(1, 200))]
        assert (max(changes) < 0) == falls


@second("actor-splitting-quadratic")
def test_small_blocks_follow_the_printed_field_and_can_climb():
    theta, labels = mpmath.log(3), [[mpf(3) / 4, mpf(3) / 8], [mpf(1) / 4, mpf(5) / 8]]
    loss = lambda z: column_loss([[theta * x[0] * y[0] for y in z] for x in z], labels)  # noqa: E731

    def block(z, h, both):
        attention = by_columns([[theta * x[0] * y[0] for y in z] for x in z])
        first = add(attention, turn(attention) if both else attention)
        z = add(z, mul(first, [[theta * x[0]] for x in z]), -h)
        return add(z, mul(add(labels, turn(labels)), [[theta * x[0]] for x in z]), h)

    z, h = [[mpf(1)], [mpf(0)]], mpf(10) ** -6
    assert loss(block(z, h, False)) > loss(z) > loss(block(z, h, True))
    gradient = slopes(loss, z)
    for h in (mpf(10) ** -4, mpf(10) ** -6):
        assert (
            largest([[(a[0] - b[0]) / h] for a, b in zip(block(z, h, True), z, strict=True)], [[-g[0]] for g in gradient])
            < 10 * h
        )
    assert largest([[(a[0] - b[0]) / h] for a, b in zip(block(z, h, False), z, strict=True)], gradient) < 10 * h


@second("actor-splitting-quadratic")
def test_unit_block_of_a_single_token_diverges_although_nothing_is_to_be_learned():
    # one token: attention and label are 1 and the loss is 0 everywhere; the block multiplies z by (1 - 2θ)(1 + 2θ)
    z, theta = Q(1), Q(1)
    for _ in range(5):
        half = z - 2 * z * theta
        z = half + 2 * half * theta
    assert z == (-3) ** 5


@second("actor-forward-pass-improves")
def test_a_black_image_becomes_whatever_label_is_put_in():
    weights = [[Q(3), Q(1), Q(0)], [Q(0), Q(2), Q(1)], [Q(1), Q(0), Q(2)]]
    for label in range(3):
        features = [w - sum(row[j] for row in weights) / 3 for j, w in enumerate(weights[label])]  # softmax of 0 is 1/3
        logits = [sum(x * y for x, y in zip(features, row, strict=True)) for row in weights]
        assert max(range(3), key=logits.__getitem__) == label
    # its own prediction as the label: a soft one moves nothing, a hard one keeps the class (orthonormal weights)
    draw = random.Random(0)
    for _ in range(10):
        logits = [mpf(draw.randint(-30, 30)) / 10 + mpf(k) / 1000 for k in range(4)]
        share = [mpmath.exp(x) / sum(map(mpmath.exp, logits)) for x in logits]
        mine = max(range(4), key=logits.__getitem__)
        hard = [x + (k == mine) - s for k, (x, s) in enumerate(zip(logits, share, strict=True))]
        assert max(range(4), key=hard.__getitem__) == mine
        wrong = (mine + 1) % 4
        for _ in range(30):
            share = [mpmath.exp(x) / sum(map(mpmath.exp, logits)) for x in logits]
            logits = [x + (k == wrong) - s for k, (x, s) in enumerate(zip(logits, share, strict=True))]
        assert max(range(4), key=logits.__getitem__) == wrong


@second("actor-normalisation")
def test_on_the_sphere_after_the_step_and_not_before_it():
    weights, label = numbers(6, 3, 2), 1

    def loss(z):
        return mpmath.log(sum(mpmath.exp(sum(a * b for a, b in zip(z, w, strict=True))) for w in weights)) - sum(
            a * b for a, b in zip(z, weights[label], strict=True)
        )

    gradient = lambda z: slopes(lambda p: loss(p[0]), [z])[0]  # noqa: E731
    unit = lambda z: [x / mpmath.sqrt(sum(y * y for y in z)) for x in z]  # noqa: E731
    z, h = [mpf(3) / 5, mpf(4) / 5], mpf(10) ** -8
    slope = gradient(z)
    radial = sum(a * b for a, b in zip(z, slope, strict=True))
    tangent = [s - radial * x for s, x in zip(slope, z, strict=True)]
    moved = unit([x - h * s for x, s in zip(z, slope, strict=True)])
    assert max(abs((m - x) / h + t) for m, x, t in zip(moved, z, tangent, strict=True)) < 100 * h
    # normalizing before: the field has a curl
    wide, step = [mpf(1), mpf(2)], mpf(10) ** -8
    pre = lambda z, entry: gradient(unit(z))[entry]  # noqa: E731
    curl = along(lambda t: pre([wide[0] + t[0], wide[1]], 1), [mpf(0)], [mpf(1)], step) - along(
        lambda t: pre([wide[0], wide[1] + t[0]], 0), [mpf(0)], [mpf(1)], step
    )
    assert abs(curl) > mpf(1) / 100
    # two tokens of norm one need not be uncorrelated; only the trace is what whitening would make it
    tokens = [[Q(3, 5), Q(4, 5)], [Q(4, 5), Q(3, 5)]]
    gram = mul(turn(tokens), tokens)
    assert trace(gram) == 2
    assert gram[0][1] == Q(24, 25)


# ---------------------------------------------------------------- Part II


def normal_mean(polynomial):
    """Mean of a polynomial {exponents: coefficient} in independent standard normal numbers."""
    odd = lambda n: math.prod(range(1, n, 2))  # noqa: E731
    return sum(c * math.prod(map(odd, e)) for e, c in polynomial.items() if not any(k % 2 for k in e))


def poly_mul(a, b):
    result = collections.Counter()
    for (e, c), (f, d) in itertools.product(a.items(), b.items()):
        result[tuple(x + y for x, y in zip(e, f, strict=True))] += c * d
    return result


def poly_add(*parts):
    result = collections.Counter()
    for part in parts:
        for e, c in part.items():
            result[e] += c
    return result


def error_of_one_layer(P, K):
    """The prediction error of Z + P Z M Zᵀ K Z for one dimension and one example, as a polynomial in (x, x_query, w)."""
    zero, x, xq, w = {}, {(1, 0, 0): Q(1)}, {(0, 1, 0): Q(1)}, {(0, 0, 1): Q(1)}
    first, query = [x, poly_mul(w, x)], [xq, zero]
    moment = [[poly_mul(a, b) for b in first] for a in first]  # Z M Zᵀ with one example

    def apply(matrix, vector):
        return [
            poly_add(*(poly_mul(m if isinstance(m, dict) else {(0, 0, 0): m}, v) for m, v in zip(row, vector, strict=True)))
            for row in matrix
        ]

    update = apply(P, apply(moment, apply(K, query)))
    return poly_add(poly_mul(w, xq), update[1])


@second("ahn-parameters-that-matter")
def test_loss_of_one_layer_reads_three_entries_of_four_and_has_a_square():
    draw = random.Random(1)
    entry = lambda: Q(draw.randint(-9, 9), 7)  # noqa: E731
    P, K = [[entry(), entry()], [Q(2, 7), Q(5, 7)]], [[Q(-3, 7), entry()], [Q(1, 7), entry()]]
    square = lambda P, K: normal_mean(poly_mul(error_of_one_layer(P, K), error_of_one_layer(P, K)))  # noqa: E731
    value = square(P, K)
    other = square([[entry() + 20, entry() - 20], P[1]], [[K[0][0], entry() + 20], [K[1][0], entry() - 20]])
    assert value == other
    for place in range(2):
        assert square([P[0], [P[1][j] + (j == place) for j in range(2)]], K) != value
        assert square(P, [[K[i][0] + (i == place), K[i][1]] for i in range(2)]) != value
    assert normal_mean(error_of_one_layer(P, K)) == 0  # as (6) is printed, without the square, every layer has loss 0


@second("ahn-unique-optimum")
def test_one_dimension_has_two_families_and_components_have_many_minima():
    def loss(b, a):
        error = error_of_one_layer([[Q(0), Q(0)], b], [[a[0], Q(0)], [a[1], Q(0)]])
        return normal_mean(poly_mul(error, error))

    def quick(b, a):
        """The same in the coefficients of (b_1 + b_2 w)(a_1 + a_2 w), by E x⁴ = 3."""
        c = b[0] * a[0], b[0] * a[1] + b[1] * a[0], b[1] * a[1]
        return 3 * (c[0] ** 2 + 2 * c[0] * c[2] + 3 * c[2] ** 2 + c[1] ** 2) + 2 * c[1] + 1

    draw = random.Random(5)
    for _ in range(10):
        b, a = ([Q(draw.randint(-9, 9), 4) for _ in range(2)] for _ in range(2))
        assert quick(b, a) == loss(b, a)
    least = Q(2, 3)  # 1 - 1/3, at the step n / (n + 2) = 1/3
    assert loss([0, 1], [-Q(1, 3), 0]) == least
    assert loss([1, 0], [0, -Q(1, 3)]) == least  # key and value exchanged
    grid = [Q(k, 3) for k in range(-4, 5)]
    minima = {
        (*b, *a)
        for b in itertools.product(grid, repeat=2)
        for a in itertools.product(grid, repeat=2)
        if quick(b, a) <= least
    }
    assert all(quick(point[:2], point[2:]) == least for point in minima)
    # (b_1 + b_2 w)(a_1 + a_2 w) must be -w/3: either b_1 = a_2 = 0 or b_2 = a_1 = 0
    assert all(
        (b1 == a2 == 0 and b2 * a1 == -Q(1, 3)) or (b2 == a1 == 0 and b1 * a2 == -Q(1, 3)) for b1, b2, a1, a2 in minima
    )
    assert {point[1] == 0 for point in minima} == {True, False}
    # ⟨C, X⟩ does not see an antisymmetric matrix
    symmetric, skew = [[Q(2), Q(5)], [Q(5), Q(-1)]], [[Q(0), Q(7)], [Q(-7), Q(0)]]
    assert inner(symmetric, skew) == 0


@second("ahn-unique-optimum")
def test_a_local_minimum_that_is_not_global():
    values, n = np.array([1.0, 0.5]), 20
    sigma = np.diag(values)
    # E H_ij H_kl by Isserlis, and exact Gauss–Hermite nodes for the weights (degree 4)
    pair = (
        np.einsum("ij,kl->ijkl", sigma, sigma)
        + (np.einsum("ik,jl->ijkl", sigma, sigma) + np.einsum("il,jk->ijkl", sigma, sigma)) / n
    )
    nodes, weights = scipy.special.roots_hermitenorm(4)
    ws = np.array(list(itertools.product(nodes, repeat=2)))
    shares = np.array([a * b for a, b in itertools.product(weights / weights.sum(), repeat=2)])

    def loss(point):
        b, A = point[:3], point[3:].reshape(3, 2)
        right = b[:2] + b[2] * ws  # Ĉ b = (H right, wᵀ H right)
        linear = np.einsum("ji,wk->wijk", A[:2], right) + np.einsum("i,wj,wk->wijk", A[2], ws, right)
        mean, square = np.einsum("wijk,jk->wi", linear, sigma), np.einsum("wijk,wilm,jklm->wi", linear, linear, pair)
        return float(shares @ ((square + 2 * ws * mean + ws**2) @ values))

    best = sum(v * (v + values.sum()) / ((n + 1) * v + values.sum()) for v in values)
    start = np.array([1.7, 0, 0.35, 0.13, 0, 0, -1.5, -0.5, 0])
    found = scipy.optimize.minimize(loss, start, method="BFGS", options={"gtol": 1e-9})
    assert found.fun > 1.5 * best
    here, h = found.x, 1e-3
    hessian = np.array(
        [
            [
                sum(s * t * loss(here + s * h * e + t * h * f) for s in (1, -1) for t in (1, -1)) / (4 * h * h)
                for f in np.eye(9)
            ]
            for e in np.eye(9)
        ]
    )
    curvatures = np.linalg.eigvalsh(hessian)
    assert abs(curvatures[0]) < 1e-3  # the scale of b against A
    assert curvatures[1] > 1e-3


def mean_loss(A, sigma, prior, n):
    """tr Σ (I + AᵀH) Ω (I + HA) in the mean over H = XXᵀ/n, with E H_ij H_kl by Isserlis."""
    d = range(len(sigma))
    pair = lambda i, j, k, l: sigma[i][j] * sigma[k][l] + (sigma[i][k] * sigma[j][l] + sigma[i][l] * sigma[j][k]) / Q(n)  # noqa: E731, E741
    middle = [[sum(prior[j][k] * pair(i, j, k, l) for j in d for k in d) for l in d] for i in d]  # E H Ω H  # noqa: E741
    return (
        trace(mul(sigma, prior))
        + 2 * trace(mul(mul(sigma, turn(A)), mul(sigma, prior)))
        + trace(mul(mul(mul(sigma, turn(A)), middle), A))
    )


def exact_slopes(function, A):
    """The gradient of a quadratic function of a matrix, exactly."""
    units = [
        [[Q((i, j) == (k, m)) for m in range(len(A))] for k in range(len(A))] for i in range(len(A)) for j in range(len(A))
    ]
    flat = [(function(add(A, unit)) - function(add(A, unit, -1))) / 2 for unit in units]
    return [flat[i * len(A) : (i + 1) * len(A)] for i in range(len(A))]


@second("ahn-tradeoff")
def test_step_in_each_direction_and_what_scaling_changes():
    n, values = 7, [Q(5), Q(1, 3)]
    sigma = [[values[0], Q(0)], [Q(0), values[1]]]
    steps = [-1 / (Q(n + 1, n) * v + sum(values) / n) for v in values]
    A = [[steps[0], Q(0)], [Q(0), steps[1]]]
    assert exact_slopes(lambda A: mean_loss(A, sigma, eye(2), n), A) == [[0, 0], [0, 0]]
    for c in (Q(3), Q(1, 50)):
        scaled = [[c * x for x in row] for row in sigma]
        smaller = [[x / c for x in row] for row in A]
        assert mean_loss(smaller, scaled, eye(2), n) == c * mean_loss(A, sigma, eye(2), n)
        assert exact_slopes(lambda A: mean_loss(A, scaled, eye(2), n), smaller) == [[0, 0], [0, 0]]  # noqa: B023
    # with w ~ N(0, Σ⁻¹) every direction is shrunk by n / (n + d + 1)
    inverse = [[1 / values[0], Q(0)], [Q(0), 1 / values[1]]]
    alike = [[-Q(n, n + 3) * x for x in row] for row in inverse]
    assert exact_slopes(lambda A: mean_loss(A, sigma, inverse, n), alike) == [[0, 0], [0, 0]]


@second("ahn-distorted-view")
def test_weights_and_hessian_behind_a_sheared_view():
    W, plain, hidden = [[Q(1), Q(1)], [Q(0), Q(1)]], [[Q(2)], [Q(3)]], [[Q(5)], [Q(-1)]]
    seen, label = mul(W, plain), inner(plain, hidden)
    weights = mul(turn([[Q(1), Q(-1)], [Q(0), Q(1)]]), hidden)  # W⁻ᵀ w̄
    assert inner(seen, weights) == label
    # Σ^{-1/2} w̄ does not: Σ = WWᵀ = [[2, 1], [1, 1]], whose root is [[3, 1], [1, 2]] / √5
    root = [[mpf(3), mpf(1)], [mpf(1), mpf(2)]]
    assert [[x / 5 for x in row] for row in mul(root, root)] == [[2, 1], [1, 1]]
    solved = [
        [mpmath.sqrt(5) * (2 * hidden[0][0].numerator - hidden[1][0].numerator) / 5],
        [mpmath.sqrt(5) * (-5 + 3 * -1) / 5],
    ]
    assert abs(sum(mpf(s[0].numerator) * v[0] for s, v in zip(seen, solved, strict=True)) - label.numerator) > 1
    # the Hessian of (1/2n) Σ ⟨w - w⋆, x⟩² by second differences, which are exact
    points, n = [[Q(1), Q(2)], [Q(3), Q(-1)], [Q(0), Q(4)]], 3
    R = lambda w: sum((w[0] * x[0] + w[1] * x[1]) ** 2 for x in points) / (2 * n)  # noqa: E731
    second_difference = R([1, 1]) - R([1, 0]) - R([0, 1]) + R([0, 0])
    assert second_difference == sum(x[0] * x[1] for x in points) / Q(n)  # not 1/2n


@functools.cache
def loops(power):
    """How many pairings of the 2m factors of tr (XXᵀ)^m leave so many free row and column indices."""
    factors = [(i, j) for k in range(power) for i, j in ((k, k), ((k + 1) % power, k))]
    count = collections.Counter()

    def pairings(rest):
        if not rest:
            yield []
            return
        first, *others = rest
        for k, other in enumerate(others):
            for more in pairings(others[:k] + others[k + 1 :]):
                yield [(first, other), *more]

    def classes(pairs):
        parent = list(range(power))

        def root(x):
            while parent[x] != x:
                x = parent[x]
            return x

        for a, b in pairs:
            parent[root(a)] = root(b)
        return sum(root(x) == x for x in range(power))

    for pairing in pairings(list(range(2 * power))):
        rows = classes([(factors[a][0], factors[b][0]) for a, b in pairing])
        columns = classes([(factors[a][1], factors[b][1]) for a, b in pairing])
        count[rows, columns] += 1
    return count


def gram_moment(power, d, n):
    """E tr G^m for G = XXᵀ/n, by counting pairings."""
    return Q(sum(c * d**r * n**s for (r, s), c in loops(power).items()), n**power) if power else Q(d)


def solve(matrix, right):
    """Gauss's elimination with fractions."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for k in range(len(rows)):
        pivot = next(i for i in range(k, len(rows)) if rows[i][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(len(rows)):
            if i != k:
                rows[i] = [x - rows[i][k] * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def best_polynomial(d, n, layers):
    """The coefficients of the best residual polynomial 1 + r_1 λ + … and its loss, from the normal equations."""
    moment = [gram_moment(m, d, n) for m in range(2 * layers + 1)]
    found = solve(
        [[moment[i + j] for j in range(1, layers + 1)] for i in range(1, layers + 1)],
        [-moment[i] for i in range(1, layers + 1)],
    )
    return [Q(1), *found], moment[0] + sum(r * moment[i] for i, r in enumerate(found, 1))


@second("ahn-infimum-attained", "ahn-global-optimality")
def test_least_loss_is_a_fraction_and_attained_by_real_steps():
    polynomial, loss = best_polynomial(5, 20, 3)
    assert loss == Q(12138645, 90852389)
    assert round(float(loss / 5), 4) == 0.0267  # of the start: not close to zero
    roots = mpmath.polyroots([mpf(c.numerator) / c.denominator for c in reversed(polynomial)])
    assert all(mpmath.im(root) == 0 and root > 0 for root in roots)
    assert sorted(round(float(-1 / root), 3) for root in roots) == [-1.714, -0.689, -0.422]


@second("ahn-infimum-attained")
def test_silent_layers_are_critical_in_one_dimension_and_a_saddle():
    n = 3
    moment = [Q(math.prod(range(n, n + 2 * m, 2)), n**m) for m in range(12)]  # of a chi-square over n

    def loss(a0, b0, a1):
        def poly(p, q):
            return [sum(p[i] * q[k - i] for i in range(len(p)) if 0 <= k - i < len(q)) for k in range(len(p) + len(q) - 1)]

        carried = poly([Q(1), a0 * b0], [Q(1), a0 * b0])
        R = poly([Q(1), a0], [Q(1) + (k > 0) * 0 if k == 0 else a1 * c for k, c in enumerate([Q(1), *carried])])
        return sum(c * moment[k] for k, c in enumerate(poly(R, R)))

    best = -moment[1] / moment[2]
    here, h = (Q(0), -Q(1, 2), best), Q(1, 10**8)
    for direction in itertools.product((-1, 0, 1), repeat=3):
        ends = [loss(*(x + s * h * v for x, v in zip(here, direction, strict=True))) for s in (1, -1)]
        assert abs(ends[0] - ends[1]) / (2 * h) < Q(1, 10**12)
    bends = [
        loss(*(x + h * v for x, v in zip(here, direction, strict=True)))
        + loss(*(x - h * v for x, v in zip(here, direction, strict=True))) - 2 * loss(*here)
        for direction in itertools.product((-1, 0, 1), repeat=3)
    ]  # fmt: skip
    assert min(bends) < 0 < max(bends)


@second("ahn-global-optimality")
def test_a_worse_local_minimum_with_steps_in_opposite_order():
    n = 5
    squares = [scipy.special.roots_genlaguerre(4, (n - j) / 2 - 1) for j in range(2)]
    side = scipy.special.roots_hermitenorm(7)
    grid = [
        (np.sqrt(2 * a), b, np.sqrt(2 * c), u * v * w)
        for a, u in zip(*squares[0], strict=True)
        for b, v in zip(*side, strict=True)
        for c, w in zip(*squares[1], strict=True)
    ]
    factors = np.array([[[a, 0], [b, c]] for a, b, c, _ in grid])
    weights = np.array([w for *_, w in grid]) / sum(w for *_, w in grid)
    grams = factors @ factors.transpose(0, 2, 1) / n

    def loss(point):
        product = np.eye(2)
        for layer in point.reshape(3, 2, 2):
            product = product @ (np.eye(2) + grams @ layer)
        return (weights * (product**2).sum((1, 2))).sum()

    polynomial, best = best_polynomial(2, n, 3)
    steps = sorted(
        (float(-1 / root) for root in mpmath.polyroots([mpf(c.numerator) / c.denominator for c in reversed(polynomial)])),
        reverse=True,
    )
    one, other, last = steps
    same = np.array([s * np.eye(2) for s in steps]).ravel()
    assert loss(same) == pytest.approx(float(best), rel=1e-9)
    start = np.array([np.diag([one, other]), np.diag([other, one]), last * np.eye(2)]).ravel()
    found = scipy.optimize.minimize(loss, start, method="BFGS", options={"gtol": 1e-9})
    assert found.fun > 1.01 * float(best)
    h = 1e-3
    hessian = np.array(
        [
            [
                sum(s * t * loss(found.x + s * h * e + t * h * f) for s in (1, -1) for t in (1, -1)) / (4 * h * h)
                for f in np.eye(12)
            ]
            for e in np.eye(12)
        ]
    )
    curvatures = np.linalg.eigvalsh(hessian)
    assert abs(curvatures[0]) < 1e-3  # turning the basis
    assert curvatures[1] > 0.05


@second("ahn-descent-direction")
def test_directions_run_along_the_inverse_covariance_and_the_flow_is_d_times_as_fast():
    n, sigma = 4, [[Q(2), Q(1)], [Q(1), Q(3)]]
    inverse = [[Q(3, 5), -Q(1, 5)], [-Q(1, 5), Q(2, 5)]]
    f = lambda A: mean_loss(A, sigma, inverse, n)  # noqa: E731
    A = [[-Q(1, 4) * x for x in row] for row in inverse]
    gradient = exact_slopes(f, A)
    c = gradient[0][0] / sigma[0][0]
    assert gradient == [[c * x for x in row] for row in sigma]  # a multiple of Σ
    R = [[Q(1), Q(4)], [Q(-2), Q(3)]]
    r = trace(mul(sigma, R)) / 2
    assert inner(gradient, R) == inner(gradient, [[r * x for x in row] for row in inverse])
    assert inner(gradient, R) != inner(gradient, [[r, Q(0)], [Q(0), r]])
    # a Σ⁻¹ + t I is no multiple of Σ⁻¹, so that r I, and Σ⁻¹ for b I, leave the set
    assert inverse[0][1] / inverse[0][0] != inverse[0][1] / (inverse[0][0] + 1)
    velocity = [[-trace(mul(sigma, gradient)) * x for x in row] for row in inverse]
    assert inner(gradient, velocity) == -2 * inner(gradient, gradient)  # d = 2


@second("ahn-domain-shift")
def test_one_layer_is_worse_than_none_beyond_root_two_and_three_from_a_quarter():
    for d, n in ((1, 3), (2, 5), (5, 20)):
        a = -gram_moment(1, d, n) / gram_moment(2, d, n)
        assert a == -Q(n, n + d + 1)
        after = lambda t: d + 2 * a * t * gram_moment(1, d, n) + a * a * t * t * gram_moment(2, d, n)  # noqa: B023, E731
        assert after(Q(2)) == d  # covariates times √2, squared 2
        assert after(Q(199, 100)) < d < after(Q(201, 100))
    polynomial, _ = best_polynomial(5, 20, 3)

    def three(scale):
        square = collections.Counter()
        for (i, r), (j, s) in itertools.product(enumerate(polynomial), repeat=2):
            square[i + j] += r * s
        return sum(c * scale ** (2 * m) * gram_moment(m, 5, 20) for m, c in square.items())

    assert three(Q(123, 100)) < 5 < three(Q(125, 100))


# ---------------------------------------------------------------- Part III


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def norm(a):
    return mpmath.sqrt(dot(a, a))


def unit(a):
    return [x / norm(a) for x in a]


def gelu(x):
    return x * (1 + mpmath.erf(x / mpmath.sqrt(2))) / 2


SHAPES = {"E": (2, 2), "P": None, "q": (1, 2), "V": (2, 2), "W": (3, 2), "U": (2, 3)}


def head(seed, length, vocabulary=2):
    """Random weights of the model of section 2.2, in two dimensions with three neurons."""
    return {
        name: numbers(seed + 100 * k, *(shape or (length, 2)))
        for k, (name, shape) in enumerate((SHAPES | {"E": (vocabulary, 2)}).items())
    }


def stages(m, x):
    z = [unit([a + b for a, b in zip(m["E"][v], m["P"][t], strict=True)]) for t, v in enumerate(x)]
    scores = [mpmath.exp(dot(y, m["q"][0]) / mpmath.sqrt(2)) for y in z]
    mixture = [sum(s * y[i] for s, y in zip(scores, z, strict=True)) / sum(scores) for i in range(2)]
    xi = [dot(row, mixture) for row in m["V"]]
    active = [gelu(dot(row, unit(xi))) for row in m["W"]]
    psi = [a + dot(row, active) for a, row in zip(xi, m["U"], strict=True)]
    logits = [dot(row, psi) for row in m["E"]]
    top = max(logits)
    powers = [mpmath.exp(y - top) for y in logits]
    return xi, psi, logits, [y / sum(powers) for y in powers]


def task_loss(m, data):
    return -sum(mpmath.log(stages(m, x)[3][y]) for x, y in data) / len(data)


def everything(length, k, p=2):
    return [(x, sum(x[:k]) % p) for x in itertools.product(range(p), repeat=length)]


def pack(m):
    return [x for value in m.values() for row in value for x in row]


def unpack(flat, like):
    numbers_left = iter(flat)
    return {name: [[next(numbers_left) for _ in row] for row in value] for name, value in like.items()}


@second("odonnat-model")
def test_sums_have_no_exclusive_or_and_few_sign_patterns():
    draw = random.Random(2)
    for _ in range(200):
        E, P = ([[draw.randint(-9, 9) for _ in range(3)] for _ in range(2)] for _ in range(2))
        corner = lambda x, t: [a + b for a, b in zip(E[x], P[t], strict=True)]  # noqa: B023, E731
        # equal tokens sum to what different ones do, so positive multiples of u, u, -u, -u are impossible
        assert [a + b for a, b in zip(corner(0, 0), corner(1, 1), strict=True)] == [
            a + b for a, b in zip(corner(0, 1), corner(1, 0), strict=True)
        ]
    # in the plane: directions z(1, t), -z(0, t) must span cones that share D = E(1) - E(0)
    rng = np.random.default_rng(0)
    for length in (1, 2, 3, 4):
        trials, found = 4000, 0
        for _ in range(trials):
            angles = rng.uniform(0, 2 * np.pi, (length, 2))

            # each pair spans an arc shorter than π; arcs share a direction iff they share one of their ends
            def inside(a, pair):
                low, width = pair[0], (pair[1] - pair[0]) % (2 * np.pi)
                if width > np.pi:
                    low, width = pair[1], 2 * np.pi - width
                return (a - low + 1e-12) % (2 * np.pi) <= width + 2e-12

            found += any(all(inside(a, pair) for pair in angles) for a in angles.ravel())
        share = 4 * length / 4**length
        assert abs(found / trials - share) <= 4 * math.sqrt(share * (1 - share) / trials) + 1e-12


@second("odonnat-cluster-count")
def test_numbers_of_clusters_by_listing_them():
    for p, k in ((2, 5), (3, 2), (3, 5), (4, 3)):
        splits = [split for split in itertools.product(range(k + 1), repeat=p) if sum(split) == k]
        assert len(splits) == math.comb(k + p - 1, k)
        assert len({sum(v * c for v, c in enumerate(split)) for split in splits}) == k * (p - 1) + 1
    # heights from 0 to 7 for three tokens: whoever separates the classes has k(p - 1) + 1 values or more
    for k in (2, 3, 4):
        splits = [split for split in itertools.product(range(k + 1), repeat=3) if sum(split) == k]
        least = math.inf
        for heights in itertools.product(range(8), repeat=3):
            labels = collections.defaultdict(set)
            for split in splits:
                labels[dot(heights, split)].add((split[1] + 2 * split[2]) % 3)
            if all(len(found) == 1 for found in labels.values()):
                least = min(least, len(labels))
        assert least == 2 * k + 1


@second("odonnat-ideal-circuit")
def test_leakage_has_a_floor_and_exact_suffix_invariance_needs_equal_pairs():
    draw = random.Random(3)
    for _ in range(100):
        q, length, k = [mpf(draw.randint(-30, 30)) / 10 + mpf(1) / 77 for _ in range(2)], 6, 3
        keys = [unit([mpf(draw.randint(-9, 9)) + mpf(1) / 3, mpf(draw.randint(-9, 9))]) for _ in range(length)]
        powers = [mpmath.exp(dot(q, y) / mpmath.sqrt(2)) for y in keys]
        reach = mpmath.exp(2 * norm(q) / mpmath.sqrt(2))
        floor = (length - k) / (length - k + k * reach)
        assert sum(powers[k:]) / sum(powers) >= floor * (1 - mpf(10) ** -40)
        best = [mpmath.exp(norm(q) / mpmath.sqrt(2))] * k + [mpmath.exp(-norm(q) / mpmath.sqrt(2))] * (length - k)
        assert abs(sum(best[k:]) / sum(best) - floor) < mpf(10) ** -40
    # one counted token and one spurious: weights and values from a grid, all cases
    grid = list(itertools.product((Q(1), Q(2), Q(3)), (Q(-1), Q(0), Q(1), Q(2))))
    mean = lambda first, second_: (first[0] * first[1] + second_[0] * second_[1]) / (first[0] + second_[0])  # noqa: E731
    for zero, one, low, high in itertools.product(grid, repeat=4):
        if mean(zero, low) == mean(zero, high) and mean(one, low) == mean(one, high) and mean(zero, low) != mean(one, low):
            assert low == high
    # six clusters in a row: four kinks suffice for alternating signs, and three give too few pieces
    bent = lambda c: Q(1) - 2 * c + 4 * sum((-1) ** j * max(Q(0), c - 1 - j) for j in range(4))  # noqa: E731
    assert [bent(Q(c)) for c in range(6)] == [1, -1, 1, -1, 1, -1]


@second("odonnat-realisations")
def test_counts_with_odd_weights_before_and_even_ones_behind_know_the_label():
    length, k = 4, 2
    for weights in itertools.product(range(-3, 4), repeat=length):
        knows = all((dot(weights, x) - y) % 2 == 0 for x, y in everything(length, k))
        assert knows == (all(w % 2 for w in weights[:k]) and not any(w % 2 for w in weights[k:]))
    signed = (1, -1, 0, 0)  # right, although exchanging the first two tokens changes the count
    assert len({dot(signed, x) for x in ((1, 0, 0, 0), (0, 1, 0, 0))}) == 2
    stored = json.loads((ROOT / "results" / "circuits_in_the_wild.json").read_text(encoding="utf-8"))["realisations"]
    right = [at for at, accuracy in enumerate(stored["accuracy"]) if accuracy > 0.9]
    groups = collections.Counter((stored["suffix"][at] > 0.95, stored["permutation"][at] > 0.95) for at in right)
    assert (len(stored["accuracy"]), len(right)) == (200, 90)
    assert [groups[key] for key in ((True, True), (True, False), (False, True), (False, False))] == [34, 12, 21, 23]


@second("odonnat-saddle-points")
def test_models_whose_tokens_coincide_rest_at_log_two():
    m = head(1, 4)
    m["E"][1] = list(m["E"][0])
    data = everything(4, 4)
    assert abs(task_loss(m, data) - mpmath.log(2)) < mpf(10) ** -45
    flat, draw = pack(m), random.Random(4)
    for _ in range(6):  # no slope in any direction, and no way down nearby
        direction = [mpf(draw.gauss(0, 1)) for _ in flat]
        step = mpf(10) ** -15
        ends = [
            task_loss(unpack([x + s * step * v for x, v in zip(flat, direction, strict=True)], m), data) for s in (1, -1)
        ]
        assert abs(ends[0] - ends[1]) / (2 * step) < mpf(10) ** -13
        near = task_loss(unpack([x + v / 1000 for x, v in zip(flat, direction, strict=True)], m), data)
        assert near > mpmath.log(2)


@second("odonnat-spikes-normalisation")
def test_curvature_of_the_unit_vector_and_steps_towards_the_origin():
    r = mpf(3) / 10
    point, step = [r, mpf(0)], mpf(10) ** -12
    bends = []
    for k in range(181):
        angle = mpmath.pi * k / 180
        u = [mpmath.cos(angle), mpmath.sin(angle)]
        ends = [unit([x + s * step * v for x, v in zip(point, u, strict=True)]) for s in (1, 0, -1)]
        bends.append(norm([(a - 2 * b + c) / step**2 for a, b, c in zip(*ends, strict=True)]))
    bound = 2 / (mpmath.sqrt(3) * r**2)
    assert bound * mpf("0.9995") < max(bends) < bound * (1 + mpf(10) ** -8)
    x = [mpf(3) / 5, mpf(-4) / 5]
    for length, same in ((mpf("0.99"), True), (mpf("1.01"), False)):
        assert (dot(unit([(1 - length) * y for y in x]), x) > 0) == same
    # whatever is computed from the unit vector has no slope along the vector
    slope = slopes(lambda v: mpmath.sin(3 * unit(v[0])[0]) + unit(v[0])[1] ** 3, [[mpf(2), mpf(5)]])[0]
    assert abs(dot(slope, [mpf(2), mpf(5)])) < mpf(10) ** -28


@second("odonnat-initialisation")
def test_exchanging_the_tokens_keeps_the_accuracy_of_an_odd_task():
    def accuracy(m, k):
        return Q(sum(max((0, 1), key=stages(m, x)[2].__getitem__) == y for x, y in everything(4, k)), 16)

    for seed in range(5):
        m = head(10 + seed, 4)
        other = m | {"E": m["E"][::-1]}
        assert accuracy(other, 3) == accuracy(m, 3)
        assert accuracy(other, 2) == 1 - accuracy(m, 2)


@second("odonnat-faithful-to-practice")
def test_embeddings_have_a_gradient_of_their_own():
    m, data = head(20, 3), everything(3, 2)
    flat = pack(m)
    squares = []
    for k in range(len(flat)):
        squares.append(along(lambda w: task_loss(unpack(w, m), data), flat, [mpf(k == j) for j in range(len(flat))]) ** 2)
    embeddings = len(m["E"]) * 2 + len(m["P"]) * 2
    share = sum(squares[:embeddings]) / sum(squares)
    assert share > mpf(1) / 100


def rays(m, data):
    """The derivative of the loss when V and U grow together, by differences."""
    grown = lambda t: task_loss(m | {name: [[(1 + t) * x for x in row] for row in m[name]] for name in "VU"}, data)  # noqa: E731
    return along(lambda t: grown(t[0]), [mpf(0)], [mpf(1)])


@second("odonnat-stationary-points")
def test_a_model_that_is_right_everywhere_still_has_a_way_down():
    for seed in range(6):
        m = head(30 + seed, 3)
        own = [(x, max((0, 1), key=stages(m, x)[2].__getitem__)) for x in itertools.product(range(2), repeat=3)]
        slope = rays(m, own)
        pull = sum(dot([p - (j == y) for j, p in enumerate(stages(m, x)[3])], stages(m, x)[2]) for x, y in own) / len(own)
        assert abs(slope - pull) < mpf(10) ** -28
        assert slope < 0


@second("odonnat-loss-minimum")
def test_loss_is_entropy_only_where_the_ray_is_flat_and_never_reaches_zero():
    m, data = head(40, 3), everything(3, 2)
    entropy = -sum(p * mpmath.log(p) for x, _ in data for p in stages(m, x)[3]) / len(data)
    assert abs(task_loss(m, data) - entropy - rays(m, data)) < mpf(10) ** -28
    own = [(x, max((0, 1), key=stages(m, x)[2].__getitem__)) for x, _ in data]
    losses = [task_loss(m | {name: [[t * x for x in row] for row in m[name]] for name in "VU"}, own) for t in (1, 2, 4, 8)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] > 0
    # below log(2)/n every label has more than half of the probability, hence the model a way down
    assert all(-mpmath.log(p) < mpmath.log(2) for p in (mpf("0.51"), mpf("0.9")))


def nearly_singular(size):
    """A model of one token and one neuron whose ξ is as long as the least singular value of V; all norms stay."""
    E = [[mpf(1), mpf(1) / 2], [mpf(-1) / 2, mpf(1)]]
    P = [[-E[0][0], 1 - E[0][1]]]  # z = (0, 1)
    return {
        "E": E,
        "P": P,
        "q": [[mpf(0)] * 2],
        "V": [[mpf(1), mpf(0)], [mpf(0), size]],
        "W": [[mpf(1)] * 2],
        "U": [[mpf(1)], [mpf(-1)]],
    }


@second("odonnat-gradient-bound")
def test_gradient_grows_without_bound_while_all_norms_stay():
    found = {}
    for size in (mpf(1) / 10, mpf(1) / 1000):
        m, data = nearly_singular(size), [((0,), 1)]
        gradient = slopes(lambda V: task_loss(m | {"V": V}, data), m["V"])  # noqa: B023
        xi, _, _, p = stages(m, (0,))
        distance, diameter = 1 - p[1], norm([a - b for a, b in zip(*m["E"], strict=True)])
        layer = mpmath.sqrt(2) * mpmath.sqrt(2)  # ‖U‖ ‖W‖
        steepest = (1 + mpmath.erf(1)) / 2 + mpmath.exp(-1) / mpmath.sqrt(mpmath.pi)
        true = (1 + steepest * layer / norm(xi)) * distance * diameter
        signal = norm([sum((p[j] - (j == 1)) * m["E"][j][i] for j in range(2)) for i in range(2)])
        printed = mpmath.sqrt(2) * (1 + 2 * layer) * signal
        found[size] = mpmath.sqrt(inner(gradient, gradient)), true, printed, distance
    (small, true_small, _, d_small), (large, true_large, printed_large, d_large) = found.values()
    assert abs(d_small - d_large) < mpf(1) / 5
    assert large > 20 * small
    assert large > printed_large
    assert small <= true_small
    assert large <= true_large


@second("odonnat-eq-28")
def test_norms_of_unit_columns_and_of_the_jacobian_and_the_slope_of_gelu():
    # N equal columns: ‖zᵀ‖² is N, more than d; and d orthogonal groups have N/d each
    columns = [[Q(3, 5), Q(4, 5)]] * 12
    gram = mul(turn(columns), columns)
    assert trace(gram) == 12
    assert gram[0][0] * gram[1][1] == gram[0][1] * gram[1][0]  # rank one: the eigenvalue is the trace, 12 > 2
    # ξ = (3, 4): M = (I - ξ̄ξ̄ᵀ)/5, and M² = M/5, so that its norm is 1/5
    M = [[(Q(i == j) - a * b) / 5 for j, b in enumerate((Q(3, 5), Q(4, 5)))] for i, a in enumerate((Q(3, 5), Q(4, 5)))]
    assert mul(M, M) == [[x / 5 for x in row] for row in M]
    slope = lambda x: mpmath.diff(gelu, x)  # noqa: E731
    at = mpmath.findroot(lambda x: mpmath.diff(gelu, x, 2), mpf("1.4"))
    assert abs(at - mpmath.sqrt(2)) < mpf(10) ** -20
    assert abs(slope(at) - ((1 + mpmath.erf(1)) / 2 + mpmath.exp(-1) / mpmath.sqrt(mpmath.pi))) < mpf(10) ** -20
    assert max(slope(mpf(k) / 20) for k in range(-100, 101)) <= slope(at)


@pytest.mark.evidence("odonnat-no-learning-beyond-4")
@second("odonnat-no-learning-beyond-4")
def test_counts_with_shifts_are_all_that_know_the_label():
    """By exhaustion: every f_1, f_2, f_3 into the residues, k = 2 of L = 3, for a prime and a composite p."""
    for p, units in ((3, (1, 2)), (4, (1, 3))):
        rows = list(itertools.product(range(p), repeat=p))
        affine = {(u, c): tuple((u * v + c) % p for v in range(p)) for u in units for c in range(p)}
        wanted = {(affine[u, a], affine[u, b]) for u in units for a in range(p) for b in range(p)}
        found = set()
        for first, second in itertools.product(rows, repeat=2):
            seen = {}
            if all(
                seen.setdefault((first[x] + second[y]) % p, (x + y) % p) == (x + y) % p for x in range(p) for y in range(p)
            ):
                found.add((first, second))
        assert found == wanted
        assert len(wanted) == len(units) * p**2
        mirrored = {(pair, tuple(tuple(p - 1 - v for v in f) for f in pair)) for pair in wanted}  # S and k(p - 1) - S
        assert all(other in wanted and other != pair for pair, other in mirrored)
        first, second = next(iter(wanted))
        for third in rows:  # behind the prefix only constants
            seen = {}
            knows = all(
                seen.setdefault((first[x] + second[y] + third[z]) % p, (x + y) % p) == (x + y) % p
                for x, y, z in itertools.product(range(p), repeat=3)
            )
            assert knows == (len(set(third)) == 1)
