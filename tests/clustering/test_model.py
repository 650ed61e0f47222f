"""The model, against a forward pass in plain loops; what embeddings can reach; unit and rms normalisation; the table."""

import itertools
import math

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from torch.nn.functional import cross_entropy

from attnopt.clustering import (
    closed_form_gradients,
    embedding_table,
    forward,
    ideal_circuit,
    init_model,
    invariance,
    modular_addition,
    normalise,
    sequences_by_table,
)
from attnopt.clustering.model import smooth_step

GEOMETRY = ("query", "value", "receptors")  # what the rms normalisation scales by √d


def model(seed=0, models=3, p=3, length=4, dim=2, width=5, **options):
    """A random ensemble."""
    return init_model(models, p, length, dim, width, generator=torch.Generator().manual_seed(seed), **options)


def one_by_one(params, m, sequence, norm):
    """Logits of one model on one sequence, from section 2.2's formulas with Python numbers."""
    weights = {name: value[m].tolist() for name, value in params.items()}
    dim, dot = len(weights["query"]), lambda a, b: sum(x * y for x, y in zip(a, b, strict=True))

    def scaled(vector):
        length = math.sqrt(dot(vector, vector))
        return [x / (length if norm == "unit" else length / math.sqrt(dim) + 1e-5) for x in vector]

    z = [
        scaled([a + b for a, b in zip(weights["token"][x], weights["position"][t], strict=True)])
        for t, x in enumerate(sequence)
    ]
    scores = [math.exp(dot(row, weights["query"]) / math.sqrt(dim)) for row in z]
    mixture = [sum(s * row[i] for s, row in zip(scores, z, strict=True)) / sum(scores) for i in range(dim)]
    xi = [dot(row, mixture) for row in weights["value"]]
    psi, direction = list(xi), scaled(xi)
    for i, receptor in enumerate(weights["receptors"]):
        x = dot(receptor, direction) + weights.get("receptor_biases", [0] * len(weights["receptors"]))[i]
        fired = x * (1 + math.erf(x / math.sqrt(2))) / 2
        psi = [value + fired * row[i] for value, row in zip(psi, weights["assemblers"], strict=True)]
    psi = [value + bias for value, bias in zip(psi, weights.get("assembler_bias", [0] * dim), strict=True)]
    return [dot(row, psi) for row in weights["token"]]


@pytest.mark.parametrize("norm", ["unit", "rms"])
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_forward_is_section_2_2(norm, biases, dim):
    params = model(dim=dim, biases=biases)
    tokens, _ = modular_addition(3, 4, 2)
    logits = forward(params, tokens, norm=norm)
    for m, n in itertools.product(range(3), range(0, 81, 7)):
        expected = torch.tensor(one_by_one(params, m, tokens[n].tolist(), norm), dtype=torch.float64)
        torch.testing.assert_close(logits[m, n], expected, rtol=1e-12, atol=1e-12)


@given(st.integers(0, 99), st.integers(2, 4), st.integers(1, 5), st.integers(1, 4), st.sampled_from(["unit", "rms"]))
def test_stages_fit_together(seed, p, length, dim, norm):
    params = model(seed, 2, p, length, dim, 6)
    tokens, _ = modular_addition(p, length, 1, 7, torch.Generator().manual_seed(seed))
    logits, stages = forward(params, tokens, return_stages=True, norm=norm)
    assert logits.shape == (2, 7, p)
    assert {name: tuple(value.shape) for name, value in stages.items()} == {
        "embeddings": (2, 7, length, dim),
        "attention": (2, 7, length),
        "mixture": (2, 7, dim),
        "sequence": (2, 7, dim),
        "direction": (2, 7, dim),
        "activations": (2, 7, 6),
        "output": (2, 7, dim),
    }
    torch.testing.assert_close(stages["attention"].sum(-1), torch.ones(2, 7, dtype=torch.float64))
    size = 1 if norm == "unit" else math.sqrt(dim)
    assert (stages["embeddings"].norm(dim=-1) <= size + 1e-12).all()
    own = torch.stack([tokens, tokens])
    torch.testing.assert_close(forward(params, own, norm=norm), logits, rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(logits, stages["output"] @ params["token"].mT, rtol=1e-11, atol=1e-12)


def test_the_initialisation_has_the_documented_shapes_and_scales():
    params = model(models=4000, p=3, length=5, dim=4, width=9, biases=True)
    for name, shape, bound in (
        ("token", (3, 4), None),
        ("position", (5, 4), None),
        ("query", (4,), 1 / 2),
        ("value", (4, 4), 1 / 2),
        ("receptors", (9, 4), 1 / 2),
        ("assemblers", (4, 9), 1 / 3),
        ("receptor_biases", (9,), 1 / 2),
        ("assembler_bias", (4,), 1 / 3),
    ):
        value = params[name]
        assert value.shape == (4000, *shape)
        spread = 1 if bound is None else bound / math.sqrt(3)
        assert abs(value.std() / spread - 1) < 0.02
        assert abs(value.mean()) < 5 * spread / math.sqrt(value.numel())
        if bound is not None:
            assert value.abs().max() <= bound
            assert value.abs().max() > 0.99 * bound
    assert "receptor_biases" not in model()
    assert model(dtype=torch.float32)["token"].dtype == torch.float32


# ---------------------------------------------------------------- symmetries, keys and outputs


@pytest.mark.parametrize("dim", [2, 3])
def test_key_and_output_matrices_are_absorbed_by_query_and_value(dim):
    generator = torch.Generator().manual_seed(3)
    params = model(dim=dim)
    tokens, _ = modular_addition(3, 4, 2)
    key, output = (torch.randn(3, dim, dim, generator=generator, dtype=torch.float64) for _ in range(2))
    z = forward(params, tokens, return_stages=True)[1]["embeddings"]
    keyed = (z @ key.unsqueeze(1).mT @ params["query"][:, None, :, None]).squeeze(-1) / math.sqrt(dim)
    xi = torch.einsum("mij,mnj->mni", output @ params["value"], torch.einsum("mnt,mntd->mnd", keyed.softmax(-1), z))
    absorbed = params | {
        "query": (key.mT @ params["query"].unsqueeze(-1)).squeeze(-1),
        "value": output @ params["value"],
    }
    torch.testing.assert_close(forward(absorbed, tokens, return_stages=True)[1]["sequence"], xi, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("p", "dim"), [(3, 2), (4, 3)])
def test_probabilities_have_the_symmetries_of_the_chapter_and_no_others(p, dim):
    generator = torch.Generator().manual_seed(2)
    params = model(1, 1, p, 4, dim, 3)
    params |= {"query": 3 * params["query"], "receptors": 2 * params["receptors"]}
    tokens, _ = modular_addition(p, 4, 1)
    names = list(params)
    answers = lambda *values: forward(dict(zip(names, values, strict=True)), tokens).log_softmax(-1)  # noqa: E731
    base = answers(*params.values())
    shift = torch.randn(dim, generator=generator, dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))[0]
    moved = [
        params | {"token": params["token"] + shift, "position": params["position"] - shift},
        {
            name: value * {"token": 3, "position": 3, "value": 1 / 3, "assemblers": 1 / 3}.get(name, 1)
            for name, value in params.items()
        },
        {name: params[name] @ turn.T for name in ("token", "position", "query", "receptors")}
        | {"value": turn @ params["value"] @ turn.T, "assemblers": turn @ params["assemblers"]},
    ]
    for other in moved:
        torch.testing.assert_close(answers(*(other[name] for name in names)), base, rtol=1e-10, atol=1e-10)
    slopes = torch.autograd.functional.jacobian(answers, tuple(params.values()))
    jacobian = torch.cat([slope.flatten(0, 2).flatten(1) for slope in slopes], 1)
    values = torch.linalg.svdvals(jacobian)
    free = jacobian.shape[1] - (dim + 1 + dim * (dim - 1) // 2)
    assert values[free - 1] > 1e-8 * values[0]
    assert values[free] < 1e-13 * values[0]


def test_an_embedding_inside_the_hull_of_others_never_wins():
    params = model(models=50, p=4, length=3)
    params["token"][:, 3] = params["token"][:, :3].mean(1)
    assert (forward(params, modular_addition(4, 3, 1)[0]).argmax(-1) != 3).all()


# ---------------------------------------------------------------- what embeddings can reach


def reachable(directions):
    """Whether some E and P have E(x) + P(t) = r u_xt with every r positive, by linear programming."""
    p, length, dim = directions.shape
    unknowns = p * length + (p + length) * dim
    rows = np.zeros((p, length, dim, unknowns))
    for x, t, i in itertools.product(range(p), range(length), range(dim)):
        rows[x, t, i, x * length + t] = -directions[x, t, i]
        rows[x, t, i, p * length + x * dim + i] = 1
        rows[x, t, i, p * length + (p + t) * dim + i] = 1
    bounds = [(1, None)] * (p * length) + [(None, None)] * (unknowns - p * length)
    matrix = rows.reshape(-1, unknowns)
    return linprog(np.zeros(unknowns), A_eq=matrix, b_eq=np.zeros(len(matrix)), bounds=bounds).status == 0


def random_directions(rng, *shape):
    vectors = rng.normal(size=shape)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def test_no_embedding_reaches_the_exclusive_or_in_any_dimension():
    for dim in (1, 2, 3, 5):
        up = np.eye(dim)[0]
        assert not reachable(np.stack([np.stack([up, -up]), np.stack([-up, up])]))
        assert reachable(np.stack([np.stack([up, up]), np.stack([-up, -up])]))
    rng = np.random.default_rng(0)
    for _ in range(200):  # additive numbers have no such signs
        e, q = rng.normal(size=(2, 2, 3))
        sums = e[:, None] + q[None]
        assert not ((sums[0, 0] > 0) & (sums[1, 1] > 0) & (sums[0, 1] < 0) & (sums[1, 0] < 0)).any()


def test_four_directions_are_reached_unless_a_plane_separates_the_diagonals():
    rng = np.random.default_rng(1)
    for dim in (2, 3):
        verdicts = []
        for _ in range(150):
            u = random_directions(rng, 2, 2, dim)
            signed = np.stack([u[0, 0], u[1, 1], -u[0, 1], -u[1, 0]])
            apart = linprog(-signed.sum(0), A_ub=-signed, b_ub=np.zeros(4), bounds=[(-1, 1)] * dim)
            separated = -apart.fun > 1e-9  # some v with all ⟨v, signed⟩ ≥ 0, not all zero
            assert reachable(u) != separated
            verdicts.append(separated)
        assert 0 < sum(verdicts) < 150


@pytest.mark.parametrize(
    ("length", "dim", "share"), [(2, 2, 1 / 2), (3, 2, 3 / 16), (4, 2, 1 / 16), (2, 3, 1 / 8), (2, 4, 0.0)]
)
def test_share_of_random_directions_that_embeddings_reach(length, dim, share):
    rng = np.random.default_rng(2)
    draws = 500
    found = sum(reachable(random_directions(rng, 2, length, dim)) for _ in range(draws))
    assert abs(found / draws - share) <= 4 * math.sqrt(share * (1 - share) / draws)


def cells(directions):
    """Sign choices of two tokens' directions, by brute force, for which the cones share a vector."""
    length = directions.shape[1]
    signs = [np.array(choice).reshape(2, length, 1) for choice in itertools.product((1, -1), repeat=2 * length)]
    return sum(reachable(directions * sign) for sign in signs)


def test_of_all_signs_as_many_are_reached_as_lines_have_cells():
    for seed in range(2):
        assert cells(random_directions(np.random.default_rng(seed), 2, 2, 2)) == 8
    assert cells(random_directions(np.random.default_rng(5), 2, 3, 2)) == 12


@pytest.mark.parametrize(("p", "length", "dim", "rank"), [(2, 12, 2, 24), (3, 12, 2, 27), (3, 12, 3, 41), (2, 12, 3, 38)])
def test_degrees_of_freedom_of_the_embedding_table(p, length, dim, rank):
    params = model(4, 1, p, length, dim)
    table = lambda token, position: embedding_table({"token": token, "position": position})  # noqa: E731
    slopes = torch.autograd.functional.jacobian(table, (params["token"], params["position"]))
    jacobian = torch.cat([slope.reshape(p * length * dim, -1) for slope in slopes], 1)
    values = torch.linalg.svdvals(jacobian)
    assert (values > 1e-9 * values[0]).sum() == rank == min(p * length * (dim - 1), (p + length - 1) * dim - 1)


# ---------------------------------------------------------------- normalisation


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_rms_is_unit_with_three_weights_times_root_d(dim, biases):
    params = model(5, 4, dim=dim, biases=biases)
    tokens, _ = modular_addition(3, 4, 2)
    unit = params | {name: dim**0.5 * params[name] for name in GEOMETRY}
    expected = forward(unit, tokens)
    far = 1e7  # scaling embeddings and back leaves probabilities alone, and makes the 1e-5 harmless
    grown = ("token", "position", "value", "assemblers", "assembler_bias")
    large = {name: far * value if name in grown else value for name, value in params.items()}
    torch.testing.assert_close(forward(large, tokens, norm="rms") / far**2, expected, rtol=1e-8, atol=1e-8)
    close = forward(params, tokens, norm="rms")
    assert (close - expected).abs().median() < 1e-3
    assert not torch.allclose(forward(params, tokens), expected) or dim == 1


@given(st.integers(0, 200), st.integers(1, 5), st.floats(-3, 6))
def test_normalise_keeps_directions(seed, dim, log_scale):
    vectors = torch.randn(4, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    unit, scale = normalise(vectors, "unit"), 10**log_scale
    torch.testing.assert_close(unit.norm(dim=-1), torch.ones(4, dtype=torch.float64))
    torch.testing.assert_close(normalise(scale * vectors, "unit"), unit)
    lengths = scale * vectors.norm(dim=-1, keepdim=True)
    expected = dim**0.5 * unit / (1 + 1e-5 * dim**0.5 / lengths)
    torch.testing.assert_close(normalise(scale * vectors, "rms"), expected)


@pytest.mark.parametrize(
    ("length", "smoothed"),
    [(0.001, 0.001), (0.25, 0.25 + 0.75 / (1 + math.exp(8 / 3))), (0.5, 0.75), (1.0, 1.0), (40.0, 1.0)],
)
def test_lengths_after_each_normalisation(length, smoothed, generator):
    directions = torch.nn.functional.normalize(torch.randn(6, 3, generator=generator, dtype=torch.float64), dim=-1)
    rms = length / (length / 3**0.5 + 1e-5)
    for norm, wanted in (("unit", 1.0), ("rms", rms), ("smooth", 3**0.5 * smoothed)):
        torch.testing.assert_close(normalise(length * directions, norm), wanted * directions)
        torch.testing.assert_close(
            normalise(length * directions.view(1, 2, 3, 3), norm), wanted * directions.view(1, 2, 3, 3)
        )
        torch.testing.assert_close(normalise(length * directions.view(3, 2, 3), norm), wanted * directions.view(3, 2, 3))


def test_every_derivative_of_the_smooth_step_vanishes_at_both_ends():
    """With h the step, σ = r + (1 - r)h: its derivatives are those of r at 0, and those of 1 at 1, to any order."""
    with mpmath.workdps(300):
        falling = lambda r: mpmath.exp(-1 / r)  # noqa: E731
        step = lambda r: falling(r) / (falling(r) + falling(1 - r))  # noqa: E731
        for near in (mpmath.mpf("0.01"), mpmath.mpf("0.005")):
            for order in range(1, 9):
                bound = 3 * falling(near) * (2 / near**2) ** order  # each derivative brings down no more than that
                for at in (near, 1 - near):
                    assert abs(mpmath.diff(step, at, order)) < bound * mpmath.factorial(order)
        values = torch.linspace(0.011, 0.989, 50, dtype=torch.float64)
        exact = torch.tensor([float(step(mpmath.mpf(r))) for r in values.tolist()], dtype=torch.float64)
    torch.testing.assert_close(smooth_step(values), exact, rtol=1e-12, atol=0)
    assert smooth_step(torch.tensor([0.0, 1.0, 7.0], dtype=torch.float64)).tolist() == pytest.approx([0, 1, 1], abs=1e-40)


def test_models_live_in_the_plane_unless_told(generator):
    params = init_model(3, 2, 4, generator=generator)
    assert [params[name].shape for name in ("token", "receptors")] == [(3, 2, 2), (3, 32, 2)]


@pytest.mark.parametrize(("norm", "derivative"), [("unit", 0.0), ("rms", 1e5), ("smooth", 2**0.5)])
def test_the_zero_vector_stays_zero_and_has_the_documented_derivative(norm, derivative):
    zero = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    assert not normalise(zero, norm).any()
    (slope,) = torch.autograd.grad(normalise(zero, norm)[:, 0].sum(), zero)
    expected = torch.tensor([derivative, 0.0], dtype=torch.float64).expand(3, 2)
    torch.testing.assert_close(slope, expected)


def test_at_a_zero_sequence_embedding_autograd_agrees_with_the_closed_form():
    params = model(6)
    params["value"] = torch.zeros_like(params["value"]).requires_grad_()
    tokens, targets = modular_addition(3, 4, 2)
    logits = forward(params, tokens)
    loss = cross_entropy(logits.flatten(0, 1), targets.repeat(3), reduction="sum") / len(targets)
    (slope,) = torch.autograd.grad(loss, params["value"])
    params["value"] = params["value"].detach()
    torch.testing.assert_close(slope, closed_form_gradients(params, tokens, targets)["value"])
    rms = torch.zeros_like(params["value"]).requires_grad_()
    (slope,) = torch.autograd.grad(forward(params | {"value": rms}, tokens, norm="rms").sum(), rms)
    assert slope.isfinite().all()


def test_across_zero_the_output_jumps_by_the_product_of_assemblers_and_receptors():
    params = model(7, models=1, p=2, length=1, dim=2, width=6)
    tokens = torch.tensor([[0]])
    sides = []
    for sign in (1, -1):
        _, stages = forward(params | {"value": sign * 1e-12 * params["value"]}, tokens, return_stages=True)
        sides.append((stages["output"][0, 0], stages["direction"][0, 0]))
    jump = params["assemblers"][0] @ params["receptors"][0] @ sides[0][1]
    torch.testing.assert_close(sides[0][0] - sides[1][0], jump, rtol=1e-9, atol=1e-9)


# ---------------------------------------------------------------- all sequences as one product


@pytest.mark.parametrize("norm", ["unit", "rms"])
@pytest.mark.parametrize(("p", "length", "dim"), [(2, 12, 2), (3, 5, 2), (2, 3, 4), (4, 1, 1)])
def test_table_gives_the_sequence_embeddings_of_forward(norm, p, length, dim):
    params = model(8, 5, p, length, dim)
    tokens, _ = modular_addition(p, length, 1)
    expected = forward(params, tokens, return_stages=True, norm=norm)[1]["sequence"]
    torch.testing.assert_close(sequences_by_table(params, tokens, norm), expected, rtol=1e-11, atol=1e-13)
    single = {name: value.float() for name, value in params.items()}
    torch.testing.assert_close(sequences_by_table(single, tokens, norm).double(), expected, rtol=1e-3, atol=1e-4)


def test_table_is_safe_up_to_the_limit_and_refuses_beyond():
    params = model(9, 2, 2, 6)
    tokens, _ = modular_addition(2, 6, 1)
    longest = params["query"].norm(dim=-1, keepdim=True)
    largest = (
        (embedding_table(params).flatten(1, 2) @ params["query"].unsqueeze(-1)).abs().amax((1, 2), keepdim=True)[..., 0]
    )
    safe = params | {"query": 695 * 2**0.5 * params["query"] / largest}
    expected = forward(safe, tokens, return_stages=True)[1]["sequence"]
    torch.testing.assert_close(sequences_by_table(safe, tokens), expected, rtol=1e-9, atol=1e-12)
    for name, factor in (("query", 1000 / largest), ("query", math.nan * longest)):
        with pytest.raises(ValueError, match="scores must lie within"):
            sequences_by_table(params | {name: params[name] * factor * 2**0.5}, tokens)
    single = {name: value.float() for name, value in (params | {"query": 100 * 2**0.5 * params["query"] / largest}).items()}
    with pytest.raises(ValueError, match="scores must lie within ±8[67], got one of size 100"):
        sequences_by_table(single, tokens)
    with pytest.raises(ValueError, match="the same sequences for all models"):
        sequences_by_table(params, torch.stack([tokens, tokens]))


# ---------------------------------------------------------------- random models


def test_table_allows_for_large_values_when_it_refuses_scores():
    first = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    params = init_model(1, 2, 2, 2, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    params |= {"token": first.expand(1, 2, 2), "position": torch.zeros(1, 2, 2).double()}
    params |= {"query": 600 * 2**0.5 * first, "value": torch.diag(torch.tensor([-1.0, 0.0]).double())[None]}
    tokens = torch.zeros(1, 2, dtype=torch.int64)
    torch.testing.assert_close(sequences_by_table(params, tokens), -first[None])
    with pytest.raises(ValueError, match="scores must lie within ±479, got one of size 600"):
        sequences_by_table(params | {"value": 1e100 * params["value"]}, tokens)


def test_random_models_keep_no_more_than_their_share_of_the_suffix_on_average():
    params = model(10, 400, 2, 8, 2, 4)
    suffix = invariance(params, 2, 3)["suffix"]
    error = suffix.std() / math.sqrt(len(suffix))
    assert suffix.mean() < 3 / 8 + 3 * error
    even = invariance(params | {"query": torch.zeros_like(params["query"])}, 2, 3)["suffix"]  # additive: equality
    assert abs(even.mean() - 3 / 8) < 4 * even.std() / math.sqrt(len(even))


def test_random_models_hardly_correlate_with_the_label():
    params = model(11, 60, 2, 10, 2, 32)
    tokens, targets = modular_addition(2, 10, 5)
    logits = forward(params, tokens)
    scores = logits[..., 1] - logits[..., 0]
    centred = scores - scores.mean(1, keepdim=True)
    shares = (centred * (2.0 * targets - 1)).mean(1).square() / centred.square().mean(1)
    assert shares.median() < 1e-6
    accuracy = (logits.argmax(-1) == targets).double().mean(1)
    assert (accuracy - 0.5).abs().max() < 0.05
    losses = cross_entropy(logits.flatten(0, 1), targets.repeat(60), reduction="none").reshape(60, -1).mean(1)
    assert (losses > math.log(2) - 1e-3).all()


def test_the_ideal_circuit_solves_the_default_task():
    tokens, targets = modular_addition(2, 12, 5)
    assert torch.equal(forward(ideal_circuit(2, 12, 5, sharpness=8.0), tokens).argmax(-1)[0], targets)


# ---------------------------------------------------------------- bad input


def test_weights_that_are_not_finite_stay_with_their_model():
    params = model(12)
    tokens, _ = modular_addition(3, 4, 2)
    expected = forward(params, tokens)
    params["value"][1, 0, 0] = math.nan
    logits = forward(params, tokens)
    assert logits[1].isnan().all()
    torch.testing.assert_close(logits[[0, 2]], expected[[0, 2]], rtol=1e-11, atol=1e-12)


def test_what_does_not_fit_is_named():
    params, generator = model(biases=True), torch.Generator()
    tokens, _ = modular_addition(3, 4, 2)
    for error, message, arguments in (
        (TypeError, "tokens must be a tensor of integers, got torch.float32", (params, tokens.float())),
        (TypeError, "tokens must be a tensor of integers, got list", (params, [[0, 1, 2, 0]])),
        (TypeError, "tokens must be a tensor of integers, got torch.bool", (params, tokens > 1)),
        (ValueError, "tokens must have shape \\(n, 4\\)", (params, tokens[:, :3])),
        (ValueError, "tokens must have shape", (params, tokens[:0])),
        (ValueError, "tokens must have one set of sequences a model, 3, got 2", (params, torch.stack([tokens, tokens]))),
        (ValueError, "tokens must lie in 0 … 2, got 0 … 3", (params, tokens + (tokens == 2))),
        (ValueError, "tokens must lie in 0 … 2, got -1", (params, tokens - 1)),
        (ValueError, "missing \\['query'\\]", ({k: v for k, v in params.items() if k != "query"}, tokens)),
        (ValueError, "unknown \\['bias'\\]", (params | {"bias": params["query"]}, tokens)),
        (
            ValueError,
            "query must have shape \\(3, 2\\), got \\(3, 1, 2\\)",
            (params | {"query": params["query"][:, None]}, tokens),
        ),
        (ValueError, "value must have shape", (params | {"value": params["value"][:1]}, tokens)),
        (ValueError, "assemblers must have shape \\(3, 2, 5\\)", (params | {"assemblers": params["receptors"]}, tokens)),
        (ValueError, "receptor_biases must have shape", (params | {"receptor_biases": params["query"]}, tokens)),
        (ValueError, "assembler_bias must have shape", (params | {"assembler_bias": params["query"][:1]}, tokens)),
        (ValueError, "token must have three dimensions", (params | {"token": params["token"][0]}, tokens)),
        (ValueError, "position must have shape", (params | {"position": params["position"][:2]}, tokens)),
        (ValueError, "norm must be", (params, tokens, False, "l2")),
    ):
        with pytest.raises(error, match=message):
            forward(*arguments)
    for error, message, arguments in (
        (ValueError, "n_models must be at least 1", (0, 2, 3)),
        (ValueError, "p must be at least 2", (1, 1, 3)),
        (ValueError, "width must be at least 1", (1, 2, 3, 2, 0)),
        (TypeError, "dim must be an integer, got 2.5", (1, 2, 3, 2.5)),
    ):
        with pytest.raises(error, match=message):
            init_model(*arguments, generator=generator)
