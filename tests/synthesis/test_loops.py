"""Training of plain layers in plateaus: order, ends, saddles and their rates, and the time at which a tie breaks."""

import itertools
import math
import os
import random
from fractions import Fraction

import numpy as np
import pytest
import sympy as sp
import torch
from scipy.integrate import solve_ivp

from attnopt.in_context import (
    gram_quadrature,
    optimal_step_sizes,
    prompt_losses,
    step_loss,
    wishart_trace_moment,
)
from attnopt.synthesis import grouped_optimum, loops, plateau_time, step_flow, tied_optimum, tied_rates

# Settings are other ones each time; ATTNOPT_LOOPS_SEED, printed in what fails, brings them back.
SEED = int(os.environ.get("ATTNOPT_LOOPS_SEED", random.SystemRandom().randrange(2**32)))
SIZES = (1, 2, 3, 5, 8, 20), (1, 2, 5, 11, 20, 60)


@pytest.fixture
def chance(request):
    print(f"ATTNOPT_LOOPS_SEED={SEED}")
    return random.Random(f"{SEED} {request.node.name}")


def size(chance):
    dim, examples = (chance.choice(values) for values in SIZES)
    print(f"d = {dim}, n = {examples}")
    return dim, examples


def compositions(layers):
    """All ordered ways of dividing the layers into groups."""
    for count in range(layers):
        for cuts in itertools.combinations(range(1, layers), count):
            yield np.diff([0, *cuts, layers]).tolist()


def spread(values, counts):
    """One value per layer from one value a group."""
    return values.repeat_interleave(torch.tensor(counts))


def derivatives(steps, dim, examples):
    """Gradient and Hessian of the loss by automatic differentiation."""
    loss = lambda a: step_loss(a, dim, examples)  # noqa: E731
    steps = steps.clone()  # expanded memory is not for derivatives
    return torch.func.grad(loss)(steps), torch.func.hessian(loss)(steps)


def close(actual, expected, rtol, atol=0.0):
    torch.testing.assert_close(
        actual, torch.as_tensor(expected, dtype=torch.float64).expand_as(actual), rtol=rtol, atol=atol
    )


def exact(polynomial, dim, examples):
    """E tr p(G) from the coefficients of p, in fractions, by the moments' recursion."""
    return sum(c * wishart_trace_moment([j], dim, examples) / Fraction(examples) ** j for j, c in enumerate(polynomial))


# The tied optimum


# The Hessian at critical points


@pytest.mark.evidence("book-loops-saddle")
@pytest.mark.parametrize("layers", range(2, 7))
def test_the_tied_saddle_attracts_2k_minus_1_times_as_fast_as_it_repels(layers, chance):
    dim, examples = size(chance)
    attraction, repulsion = tied_rates(dim, examples, layers)
    assert attraction == pytest.approx((2 * layers - 1) * repulsion, rel=1e-15)
    steps = torch.full((layers,), tied_optimum(dim, examples, layers)[0], dtype=torch.float64)
    slope, hessian = derivatives(steps, dim, examples)
    close(slope, 0.0, 0, 1e-10 * attraction)
    close(hessian, repulsion * (2 - torch.eye(layers, dtype=torch.float64)), 1e-9)
    values = torch.linalg.eigvalsh(hessian)
    close(values[:-1], -repulsion, 1e-9)
    close(values[-1], attraction, 1e-9)


@pytest.mark.evidence("book-loops-count")
@pytest.mark.parametrize("layers", range(1, 6))
def test_every_critical_point_splits_into_its_groups(layers, chance):
    """Between groups the Hessian vanishes, within a group it is A (2·11ᵀ - I): as many unstable directions as ties."""
    dim, examples = size(chance)
    for groups in compositions(layers):
        steps, loss = grouped_optimum(groups, dim, examples)
        whole = spread(steps, groups)
        slope, hessian = derivatives(whole, dim, examples)
        scale = hessian.diagonal().sqrt()
        close(slope / scale, 0.0, 0, 1e-8 * loss**0.5)
        group = torch.arange(len(groups)).repeat_interleave(torch.tensor(groups))
        together = group[:, None] == group
        wanted = torch.where(together, 2.0, 0.0).double() - torch.eye(layers)
        close(hessian / scale[:, None] / scale, wanted, 1e-6, 1e-6)
        assert (torch.linalg.eigvalsh(hessian) < 0).sum() == layers - len(groups)
        assert loss == pytest.approx(step_loss(whole, dim, examples).item(), rel=1e-9)


@pytest.mark.evidence("book-loops-count")
@pytest.mark.parametrize("layers", range(1, 6))
def test_critical_points_are_ordered_and_their_losses_fall_with_every_group_that_divides(layers, chance):
    dim, examples = size(chance)
    losses = {}
    for groups in compositions(layers):
        steps, losses[tuple(groups)] = grouped_optimum(groups, dim, examples)
        assert (steps < 0).all()
        assert (steps.diff() < 0).all()
    for groups, finer in itertools.product(losses, repeat=2):
        marks = [set(np.cumsum(parts).tolist()) for parts in (groups, finer)]
        if marks[0] < marks[1]:
            assert losses[finer] < losses[groups]
    assert losses[layers,] == pytest.approx(tied_optimum(dim, examples, layers)[1], rel=1e-9)
    best, least = optimal_step_sizes(dim, examples, layers)
    assert losses[(1,) * layers] == pytest.approx(float(least), rel=1e-8)
    close(grouped_optimum([1] * layers, dim, examples)[0], best, 1e-8)


@pytest.mark.parametrize(("dim", "examples"), [(1, 2), (2, 5), (5, 20)])
def test_newton_s_method_finds_the_critical_points_of_few_layers_alone(dim, examples, monkeypatch):
    monkeypatch.setattr(loops, "_follow", None)
    for groups in itertools.chain.from_iterable(map(compositions, range(1, 5))):
        assert len(grouped_optimum(groups, dim, examples)[0]) == len(groups)


@pytest.mark.parametrize(("groups", "dim", "examples"), [([1, 5], 50, 20), ([1, 1, 4], 20, 20), ([4, 1, 1], 50, 100)])
def test_where_it_does_not_the_flow_brings_it_near(groups, dim, examples):
    steps, loss = grouped_optimum(groups, dim, examples)
    slope, hessian = derivatives(spread(steps, groups), dim, examples)
    close(slope / hessian.diagonal().sqrt(), 0.0, 0, 1e-8 * loss**0.5)
    assert (steps.diff() < 0).all()


def test_a_critical_point_that_is_not_found_is_not_made_up(monkeypatch):
    monkeypatch.setattr(loops, "_critical", lambda *_: None)
    with pytest.raises(RuntimeError, match=r"groups \[2, 1\] was not found"):
        grouped_optimum([2, 1], 5, 20)


# The flow


def plain_flow(start, dim, examples, times):
    """The flow without tricks: automatic differentiation and another solver."""
    loss = lambda a: step_loss(a, dim, examples)  # noqa: E731
    velocity = lambda _, a: -torch.func.grad(loss)(torch.from_numpy(a)).numpy()  # noqa: E731
    found = solve_ivp(velocity, (0, times[-1]), start, method="DOP853", t_eval=times, rtol=1e-11, atol=1e-13)
    return torch.from_numpy(found.y.T.copy())


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_the_flow_is_minus_the_gradient(layers, chance):
    dim, examples = chance.choice(((1, 5), (2, 20), (5, 20), (8, 60)))
    start = np.array([chance.uniform(-1, 0.1) for _ in range(layers)])
    times = np.array([0.0, 0.01, 0.1, 0.3])
    print(dim, examples, start)
    found = step_flow(start.tolist(), dim, examples, times.tolist())
    close(found, plain_flow(start, dim, examples, times), 1e-6, 1e-8)
    close(found[0], start, 1e-13)


@pytest.mark.evidence("book-loops-convergence")
@pytest.mark.parametrize("layers", [2, 3, 4])
def test_from_different_steps_the_flow_finds_the_optimum_and_keeps_the_order(layers, chance):
    dim, examples = chance.choice(((1, 5), (2, 5), (5, 20), (8, 60), (20, 20)))
    starts = torch.tensor([[chance.uniform(-2, 0.5) for _ in range(layers)] for _ in range(4)], dtype=torch.float64)
    starts[-1] = -0.3 + 1e-6 * starts[-1]  # and from a near tie
    print(dim, examples, starts)
    best, least = optimal_step_sizes(dim, examples, layers)
    rates = derivatives(best, dim, examples)[1].diagonal()
    horizon = 40 / min(rates.min().item(), tied_rates(dim, examples, layers)[1])
    found = step_flow(starts, dim, examples, [0, 0.003 * horizon, 0.1 * horizon, horizon])
    assert found.shape == (4, 4, layers)
    rank = starts.argsort(-1)
    ordered = found.gather(-1, rank.expand_as(found))
    assert (ordered.diff() > 0).all()
    close(ordered[-1], best.flip(0), 1e-6)
    losses = step_loss(found, dim, examples)
    assert (losses.diff(dim=0) <= 1e-9 * losses[:-1]).all()
    close(losses[-1], float(least), 1e-8)


@pytest.mark.evidence("book-loops-convergence")
def test_equal_starts_stay_equal_and_end_at_the_critical_point_of_their_groups(chance):
    dim, examples = chance.choice(((1, 5), (2, 5), (5, 20), (8, 60)))
    for groups in ([3], [2, 1], [1, 2], [2, 2]):
        values = torch.tensor(sorted((chance.uniform(-1.5, 0.3) for _ in groups), reverse=True), dtype=torch.float64)
        start = spread(values, groups)
        shuffle = torch.tensor(chance.sample(range(len(start)), len(start)))
        steps, loss = grouped_optimum(groups, dim, examples)
        rates = derivatives(spread(steps, groups), dim, examples)[1].diagonal()
        found = step_flow(start[shuffle], dim, examples, [1.0, 40 / rates.min().item()])
        ends = torch.empty_like(found).index_copy(1, shuffle, found)
        print(dim, examples, groups, values, ends)
        for one, other in itertools.pairwise(range(len(start))):
            assert (ends[:, one] == ends[:, other]).all() == (start[one] == start[other])
        close(ends[-1], spread(steps, groups), 1e-6)
        assert step_loss(ends[-1], dim, examples).item() == pytest.approx(loss, rel=1e-8)


@pytest.mark.evidence("book-loops-order")
def test_the_gap_of_two_layers_grows_at_the_rate_of_the_identity(chance):
    """d/dt log|a_i - a_j| = 2 E tr G² R R_{-ij}."""
    dim, examples = size(chance)
    a = [Fraction(chance.randrange(-200, 60), 100) for _ in range(4)]
    slope = derivatives(torch.tensor([float(x) for x in a], dtype=torch.float64), dim, examples)[0]
    for i, j in itertools.combinations(range(4), 2):
        if a[i] == a[j]:
            continue
        power = [Fraction(1)]
        for x in (*a, *(a[other] for other in range(4) if other not in (i, j))):
            power = [c + x * b for c, b in zip([*power, 0], [0, *power], strict=True)]
        wanted = 2 * exact([0, 0, *power], dim, examples)
        size_of = 2 * exact([0, 0, *(abs(c) for c in power)], dim, examples)
        found = -(slope[i] - slope[j]).item() / float(a[i] - a[j])
        assert found == pytest.approx(float(wanted), rel=1e-9, abs=1e-9 * float(size_of))


# The plateau


@pytest.mark.evidence("book-loops-plateau")
@pytest.mark.parametrize("layers", [2, 3, 4])
def test_the_tie_breaks_at_the_predicted_time_up_to_the_square_of_the_spread(layers, chance):
    dim, examples = chance.choice(((1, 8), (2, 10), (5, 20), (8, 60), (20, 40)))
    best = tied_optimum(dim, examples, layers)[0]
    repulsion = tied_rates(dim, examples, layers)[1]
    shape = torch.tensor(sorted(chance.uniform(-1, 1) for _ in range(layers)), dtype=torch.float64)
    shape = (shape - shape.mean()) / (shape[-1] - shape[0])
    for start in (best, chance.uniform(1.3, 0.3) * best, 0.0):
        errors = []
        for share in (1e-2, 1e-3):
            reached = abs(best) * share
            starts = start + 1e-8 * reached * shape
            predicted = plateau_time(starts, dim, examples, reached).item()
            times = predicted + torch.linspace(-0.2, 0.2, 41, dtype=torch.float64) / repulsion
            found = step_flow(starts, dim, examples, times)
            gaps = (found.amax(-1) - found.amin(-1)).log()
            errors.append(np.interp(math.log(reached), gaps.numpy(), times.numpy()) - predicted)
        print(dim, examples, start, shape, errors)
        errors = np.abs(errors) * repulsion
        assert errors[1] < 1e-4 + errors[0] / 20
        assert errors[0] < 0.15


@pytest.mark.evidence("book-loops-plateau")
@pytest.mark.parametrize("layers", [2, 3, 5])
def test_to_first_order_spread_times_a_power_of_the_derivative_is_conserved(layers, chance):
    dim, examples = chance.choice(((1, 8), (5, 20), (8, 60)))
    best = tied_optimum(dim, examples, layers)[0]
    start = chance.choice((0.1, 0.5, 1.5)) * best
    repulsion = tied_rates(dim, examples, layers)[1]
    shape = torch.linspace(-0.5, 0.5, layers, dtype=torch.float64)
    found = step_flow(
        start + 1e-9 * abs(best) * shape, dim, examples, torch.linspace(0, 1 / repulsion, 9, dtype=torch.float64)
    )
    mean = found.mean(-1)
    slope = torch.stack([derivatives(a.expand(layers), dim, examples)[0].sum() for a in mean]).abs()  # g'
    kept = (found[:, -1] - found[:, 0]) * slope ** (1 / (2 * layers - 1))
    close(kept / kept[0], 1.0, 1e-5)


@pytest.mark.evidence("book-loops-squares")
@pytest.mark.parametrize("layers", [2, 3])
def test_with_steps_that_are_squares_there_is_an_earlier_plateau_at_0(layers, chance):
    """a_i = -u_i²: u grows from ε at the rate 4d, all ties are kept in ratio, and the drop comes at log(1/ε)/(4d) + O(1)."""
    dim, examples = chance.choice(((1, 8), (2, 10), (5, 20)))
    loss = lambda u: step_loss(-(u**2), dim, examples)  # noqa: E731
    velocity = lambda _, u: -torch.func.grad(loss)(torch.from_numpy(u)).numpy()  # noqa: E731
    shape = np.array([chance.uniform(0.5, 1.5) for _ in range(layers)])
    seen = []
    for small in (1e-3, 1e-4, 1e-5):
        arrive = lambda _, u: u.max() - 0.02  # noqa: E731
        arrive.terminal = True
        found = solve_ivp(velocity, (0, 100), small * shape, events=arrive, rtol=1e-10, atol=1e-15, method="DOP853")
        seen.append(found.t[-1])
        assert found.t[-1] == pytest.approx(math.log(0.02 / (small * shape.max())) / (4 * dim), abs=0.02 / dim)
        assert found.y[:, -1] / found.y[:, -1].max() == pytest.approx(shape / shape.max(), rel=0.02)
    assert np.diff(seen) == pytest.approx(math.log(10) / (4 * dim), rel=1e-4)


# Shapes and bad input


@pytest.mark.parametrize(
    ("name", "bad", "error"),
    [
        ("starts", "x", TypeError),
        ("starts", -0.5, ValueError),
        ("starts", [], ValueError),
        ("starts", [math.nan, 1.0], ValueError),
        ("starts", torch.tensor([1, 2]), TypeError),
        ("dim", 0, ValueError),
        ("dim", 1.0, TypeError),
        ("examples", 0, ValueError),
        ("times", [], ValueError),
        ("times", [-1.0, 0.0], ValueError),
        ("times", [0.0, 0.0], ValueError),
        ("times", [[0.0, 1.0]], ValueError),
        ("times", [0.0, math.inf], ValueError),
        ("times", "soon", TypeError),
    ],
)
def test_the_flow_s_arguments_are_checked(name, bad, error):
    with pytest.raises(error, match=name):
        step_flow(**{"starts": [-0.1, -0.2], "dim": 3, "examples": 5, "times": [0.0, 1.0]} | {name: bad})


def test_a_flow_that_is_too_steep_says_so():
    with pytest.raises(RuntimeError, match="the flow was not solved"):
        step_flow([1e200, -1e200], 3, 5, [1.0])


@pytest.mark.parametrize(
    ("name", "bad", "error"),
    [
        ("starts", None, TypeError),
        ("starts", [-0.1], ValueError),
        ("starts", [-0.1, -0.1], ValueError),
        ("starts", [[-0.1, -0.2], [-0.3, -0.3]], ValueError),
        ("starts", [-0.1, math.inf], ValueError),
        ("dim", 0, ValueError),
        ("examples", "5", TypeError),
        ("reached", 0.009, ValueError),
        ("reached", math.inf, ValueError),
        ("reached", math.nan, ValueError),
        ("reached", "far", TypeError),
    ],
)
def test_the_plateau_s_arguments_are_checked(name, bad, error):
    with pytest.raises(error, match=name):
        plateau_time(**{"starts": [-0.41, -0.4], "dim": 3, "examples": 5, "reached": 0.1} | {name: bad})


@pytest.mark.parametrize(
    ("starts", "groups", "dim", "examples"),
    [
        ([-0.5, -0.51], [1, 1], 4, 15),
        ([-0.5, -0.51, -0.505], [1, 1, 1], 4, 15),
        ([-0.5, -0.51, -0.5], [2, 1], 4, 15),  # a tie is kept
        ([-0.51, -0.5, -0.51], [1, 2], 4, 15),
        ([0.3, 0.31, 0.31, 0.31], [3, 1], 2, 7),
    ],
)
def test_a_spread_that_the_flow_does_not_lead_to_is_refused(starts, groups, dim, examples):
    """It comes to rest, seen by solving it, with the spread that the message says."""
    rest = step_flow(starts, dim, examples, [1e3, 2e3])
    final = (rest[-1].max() - rest[-1].min()).item()
    best = grouped_optimum(groups, dim, examples)[0]
    assert torch.allclose(rest[0], rest[1], atol=1e-7)
    assert final == pytest.approx((best.max() - best.min()).item(), abs=1e-6)
    assert 0 < plateau_time(starts, dim, examples, 0.99 * final).item() < math.inf
    for there in (starts, rest[-1], [*best.repeat_interleave(torch.tensor(groups))]):  # the last is a point of rest
        for reached in (1.01 * final, 10.0):
            with pytest.raises(
                ValueError, match=f"reached must be less than {f'{final:.5f}'[:-2]}.*, the spread to which the flow"
            ):
                plateau_time(there, dim, examples, reached)
    with pytest.raises(ValueError, match="reached must be less than"):  # one row of several
        plateau_time([starts, rest[-1].tolist()], dim, examples, 1.01 * final)


@pytest.mark.evidence("book-loops-order")
@pytest.mark.parametrize("layers", [2, 3, 4, 5])
def test_derivatives_of_two_layers_differ_by_the_identity_under_the_integral(layers):
    steps, curvature = sp.symbols(f"a:{layers}"), sp.Symbol("lambda")
    r = sp.prod([1 + step * curvature for step in steps])
    without = sp.prod([1 + step * curvature for step in steps[2:]])
    difference = sp.diff(r**2, steps[0]) - sp.diff(r**2, steps[1])
    assert sp.expand(difference + 2 * (steps[0] - steps[1]) * curvature**2 * r * without) == 0


@pytest.mark.evidence("book-loops-convergence")
def test_with_one_point_in_the_spectrum_different_steps_converge_to_a_tie():
    time, away = sp.symbols("t x", positive=True)
    way = away / sp.sqrt(1 + 4 * away**2 * time)
    one, two = sp.symbols("one two")
    loss, there = (1 + one) ** 2 * (1 + two) ** 2, {one: -1 + way, two: -1 - way}
    assert sp.simplify(sp.diff(there[one], time) + sp.diff(loss, one).subs(there)) == 0
    assert sp.simplify(sp.diff(there[two], time) + sp.diff(loss, two).subs(there)) == 0
    assert sp.limit(there[one] - there[two], time, sp.oo) == 0


@pytest.mark.evidence("book-loops-count")
@pytest.mark.parametrize(("examples", "groups"), itertools.product((1, 2, 7), ((1, 1), (2, 1), (1, 2), (2, 2))))
def test_two_groups_have_two_critical_points_by_resultants(examples, groups):
    """One dimension, all real solutions isolated: one for each order of the groups, and no others."""
    x, y = sp.symbols("x y")
    moments = [Fraction(1)]
    for power in range(2 * sum(groups)):
        moments.append(moments[-1] * (examples + 2 * power) / examples)
    curvature = sp.Symbol("lambda")
    squared = sp.expand((1 + x * curvature) ** (2 * groups[0]) * (1 + y * curvature) ** (2 * groups[1]))
    parts = sp.Poly(squared, curvature).all_coeffs()[::-1]
    loss = sum(sp.Rational(m.numerator, m.denominator) * part for m, part in zip(moments, parts, strict=True))
    slope_x, slope_y = sp.diff(loss, x) / (2 * groups[0]), sp.diff(loss, y) / (2 * groups[1])
    apart = sp.cancel((slope_x - slope_y) / (x - y))  # vanishes with both slopes where the steps differ
    lines = [sp.Poly(sp.resultant(slope_x, apart, other), own).sqf_part().real_roots() for own, other in ((x, y), (y, x))]
    points = [
        (float(a), float(b))
        for a, b in itertools.product(*([sp.N(root, 60) for root in roots] for roots in lines))
        if all(abs(part.subs({x: a, y: b})) < 1e-40 for part in (slope_x, apart)) and abs(a - b) > 1e-20
    ]
    assert len(points) == 2
    assert max(max(point) for point in points) < 0
    assert (points[0][0] - points[0][1]) * (points[1][0] - points[1][1]) < 0


@pytest.mark.evidence("book-loops-matrices")
def test_full_matrices_part_when_their_traces_are_said_to(chance):
    dim, examples, layers = 2, chance.choice((4, 5, 8)), 2
    grams, weights = (torch.from_numpy(part) for part in gram_quadrature(dim, examples, 2 * layers))
    rng = np.random.default_rng(chance.randrange(2**32))

    def velocity(_, flat):
        A = torch.from_numpy(flat).reshape(layers, dim, dim).requires_grad_()
        (prompt_losses(grams, A) @ weights).backward()
        return -A.grad.flatten().numpy()

    start = 1e-5 * rng.standard_normal((layers, dim, dim))
    traces = torch.from_numpy(np.trace(start, axis1=1, axis2=2) / dim)
    told = dim * plateau_time(traces, dim, examples, 0.1).item()
    moments = np.linspace(0, 1.2 * told, 200)
    found = solve_ivp(velocity, (0, moments[-1]), start.ravel(), t_eval=moments, rtol=1e-8, atol=1e-13)
    ways = np.trace(found.y.T.reshape(-1, layers, dim, dim), axis1=2, axis2=3) / dim
    seen = np.interp(math.log(0.1), np.log(np.ptp(ways, axis=1)), moments)
    assert seen == pytest.approx(told, rel=0.01)


@pytest.mark.evidence("book-loops-plateau")
@pytest.mark.parametrize(
    ("dim", "examples", "shape"),
    [(5, 20, (0, 0.05, 1)), (5, 20, (1, 0.95, 0)), (2, 10, (0, 0.1, 0.8)), (5, 20, (0, 0.7, 0.7001, 1)), (8, 60, (0, 1))],
)
@pytest.mark.parametrize("share", [1e-9, 0.2])
def test_the_next_order_is_that_of_extremes_that_lie_unevenly_about_the_mean(dim, examples, shape, share):
    shape = torch.tensor(shape, dtype=torch.float64)
    shape = (shape - shape.mean()) / (shape.max() - shape.min())
    reached, repulsion = 1e-3, tied_rates(dim, examples, len(shape))[1]
    starts = tied_optimum(dim, examples, len(shape))[0] + share * reached * shape
    predicted = plateau_time(starts, dim, examples, reached).item()
    times = predicted + torch.linspace(-0.02, 0.02, 41, dtype=torch.float64) / repulsion
    found = step_flow(starts, dim, examples, times)
    gaps = (found.amax(-1) - found.amin(-1)).log()
    assert np.interp(math.log(reached), gaps.numpy(), times.numpy()) == pytest.approx(
        predicted, abs=5 * reached**2 / repulsion
    )


@pytest.mark.parametrize("layers", [2, 3, 4])
def test_far_from_the_plateau_a_tiny_spread_doubles_when_it_is_said_to(layers, chance):
    """Before the common step has settled, where the rate is not yet that of the saddle."""
    dim, examples = chance.choice(((1, 8), (2, 10), (5, 20), (8, 60)))
    best = tied_optimum(dim, examples, layers)[0]
    for start, factor in itertools.product((0.0, chance.uniform(0.2, 0.9) * best, 1.4 * best), (1.1, 2)):
        starts = start + 1e-9 * abs(best) * torch.linspace(-0.5, 0.5, layers, dtype=torch.float64)
        first = (starts[-1] - starts[0]).item()
        time = plateau_time(starts, dim, examples, factor * first).item()
        found = step_flow(starts, dim, examples, [time])[0]
        print(dim, examples, start, factor, time)
        assert (found[-1] - found[0]).item() / first == pytest.approx(factor, rel=1e-5)


@pytest.mark.evidence("book-loops-plateau")
@pytest.mark.parametrize("layers", [2, 3])
def test_a_hundredth_of_the_spread_delays_the_drop_by_log_100_over_the_rate(layers, chance):
    assert {2: 1.9250, 3: 5.0034}[layers] == pytest.approx(math.log(100) / tied_rates(5, 20, layers)[1], abs=5e-5)
    dim, examples = chance.choice(((2, 10), (5, 20), (8, 60)))
    delay = math.log(100) / tied_rates(dim, examples, layers)[1]
    best, level = tied_optimum(dim, examples, layers)
    middle = (level + float(optimal_step_sizes(dim, examples, layers)[1])) / 2
    drops = []
    for spread_of in (1e-4, 1e-6, 1e-8):
        starts = 0.3 * best + spread_of * torch.linspace(-0.5, 0.5, layers, dtype=torch.float64)
        end = plateau_time(starts, dim, examples, 0.1).item() + delay
        times = torch.linspace(0, 2 * end, 3001, dtype=torch.float64)
        losses = step_loss(step_flow(starts, dim, examples, times), dim, examples)
        drops.append(np.interp(-middle, -losses.numpy(), times.numpy()))
    print(dim, examples, drops, delay)
    assert np.diff(drops) == pytest.approx(delay, rel=5e-3)


@pytest.mark.parametrize(
    ("name", "bad", "error"),
    [
        ("groups", 3, TypeError),
        ("groups", "21", TypeError),
        ("groups", [2, 0.5], TypeError),
        ("groups", [], ValueError),
        ("groups", [2, 0], ValueError),
        ("dim", 0, ValueError),
        ("examples", 2.5, TypeError),
    ],
)
def test_groups_are_checked(name, bad, error):
    with pytest.raises(error, match=name):
        grouped_optimum(**{"groups": [2, 1], "dim": 3, "examples": 5} | {name: bad})
