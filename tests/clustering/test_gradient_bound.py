import math

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnopt.clustering import (
    Models,
    Task,
    closed_form_gradients,
    gradient_bound,
    gradient_bound_of_paper,
    gradient_bound_terms,
    gradient_bound_terms_of_paper,
)
from attnopt.clustering.gradients import GELU_SLOPE

WEIGHTS = ("query", "value", "receptors", "assemblers")


def norms(gradients):
    return torch.stack([gradients[name].flatten(1).norm(dim=1) for name in WEIGHTS])


def stacked(terms):
    return torch.stack([terms[name] for name in WEIGHTS])


def small_example(epsilon, receptors=1.0, assemblers=1.0):
    """The model of the chapter whose gradient grows like 1/ε: V = diag(ε, 1), all norms 1 by default."""
    weights = {
        "token": [[0.0, 1.0], [0.0, -1.0]],
        "position": [[0.75, 0.0], [0.75, 0.0]],
        "query": [0.0, 0.0],
        "value": [[epsilon, 0.0], [0.0, 1.0]],
        "receptors": [[0.0, receptors / math.sqrt(2)], [0.0, -receptors / math.sqrt(2)]],
        "assemblers": [[0.0, 0.0], [assemblers / math.sqrt(2), -assemblers / math.sqrt(2)]],
    }
    return Models({name: torch.tensor([value], dtype=torch.float64) for name, value in weights.items()}, "unit")


@pytest.mark.evidence("odonnat-gradient-bound")
@given(
    p=st.integers(2, 5),
    length=st.integers(1, 6),
    dim=st.integers(1, 6),
    width=st.integers(1, 8),
    log_scales=st.lists(st.floats(-3, 2), min_size=4, max_size=4),
    seed=st.integers(0, 2**31),
)
def test_bound_holds_for_thousands_of_models(p, length, dim, width, log_scales, seed):
    """100 models in each of the examples, weights from a thousandth to a hundred times their usual size."""
    generator = torch.Generator().manual_seed(seed)
    params = Models.random(100, p, length, dim, width, norm="unit", generator=generator)
    for name, power in zip(("query", "value", "receptors", "assemblers"), log_scales, strict=True):
        params.weights[name] = 10**power * params.weights[name]
    tokens = torch.randint(p, (100, 3, length), generator=generator)
    targets = torch.randint(p, (100, 3), generator=generator)
    true, bound = (
        norms(closed_form_gradients(params, tokens, targets)),
        stacked(gradient_bound_terms(params, tokens, targets)),
    )
    assert (true <= bound * (1 + 1e-9) + 1e-300).all()
    torch.testing.assert_close(gradient_bound(params, tokens, targets), bound.norm(dim=0))


@pytest.mark.evidence("odonnat-gradient-bound")
@pytest.mark.parametrize("name", WEIGHTS)
def test_bound_survives_an_opponent(name):
    """Gradient ascent on the ratio of each gradient to its bound gets close to 1 and never beyond."""
    generator = torch.Generator().manual_seed(1)
    params = Models.random(20, 3, 4, 3, 4, norm="unit", generator=generator).map(torch.Tensor.requires_grad_)
    task = torch.randint(3, (2, 4), generator=generator), torch.tensor([0, 1])
    optimiser = torch.optim.Adam(params.weights.values(), lr=0.03)
    for _ in range(150):
        true = closed_form_gradients(params, *task)[name].flatten(1).norm(dim=1)
        ratio = true / gradient_bound_terms(params, *task)[name]
        assert (ratio <= 1 + 1e-12).all()
        optimiser.zero_grad()
        (-ratio.log().sum()).backward()
        optimiser.step()
    assert ratio.max() > 0.9


@pytest.mark.evidence("odonnat-gradient-bound")
def test_constants_are_attained():
    """Value and receptors reach their bounds, query and assemblers come as close as one likes."""
    root = math.sqrt(2)
    pair = [[root, 2.0], [root, -2.0]], [[0.0, 0.0], [1.0, -1.0]]
    cases = {
        ("query", 1 - 1e-4): ([[0.01, math.sqrt(1 - 1e-4)], [0.01, -math.sqrt(1 - 1e-4)]], *pair),
        ("value", 1.0): ([[1.0, 0.0]], *pair),
        ("receptors", 1.0): ([[1.0, 0.0]], [[root, 0.0]], [[0.0], [1.0]]),
        ("assemblers", float(mpmath.ncdf(5))): ([[1.0, 0.0]], [[5.0, 0.0]], [[0.0], [1.0]]),
    }
    for (name, share), (columns, receptors, assemblers) in cases.items():
        token = torch.tensor([[0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
        weights = {
            "token": token[None],
            "position": (torch.tensor(columns, dtype=torch.float64) - token[0])[None],
            "query": torch.zeros(1, 2, dtype=torch.float64),
            "value": torch.eye(2, dtype=torch.float64)[None],
            "receptors": torch.tensor([receptors], dtype=torch.float64),
            "assemblers": torch.tensor([assemblers], dtype=torch.float64),
        }
        task, params = (
            (torch.zeros(1, len(columns), dtype=torch.long), torch.zeros(1, dtype=torch.long)),
            Models(weights, "unit"),
        )
        ratio = closed_form_gradients(params, *task)[name].norm() / gradient_bound_terms(params, *task)[name]
        assert ratio.item() == pytest.approx(share, rel=1e-9)


@pytest.mark.evidence("odonnat-gradient-bound")
@pytest.mark.parametrize("epsilon", [0.01, 0.001, 1e-6])
def test_printed_bound_is_broken_with_norms_fixed(epsilon):
    model, task = small_example(epsilon), Task(2, 2, 2).all()
    for name in ("value", "receptors", "assemblers"):
        assert torch.linalg.matrix_norm(model.weights[name], 2).item() == pytest.approx(1, abs=1e-15)
    right = model.logits(task[0])[0].softmax(-1).gather(1, task[1][:, None])
    assert right.mean().item() == pytest.approx(0.5, abs=1e-15)  # whatever ε, so that a function of it does not help either
    true, printed = (
        norms(closed_form_gradients(model, *task))[:, 0],
        stacked(gradient_bound_terms_of_paper(model, *task))[:, 0],
    )
    assert true[0].item() == pytest.approx(4 * math.sqrt(2) / 25 * (1 + 5 / (6 * epsilon)), rel=1e-9)  # by hand
    # the sequences 00 and 11 contribute at most (1 + c/(4/5)) · 2 to ∇_V, with weight one half
    assert abs(true[1] - 0.3 * (1 + 5 / (6 * epsilon))) < 1 + GELU_SLOPE * 5 / 4
    assert true[0] > printed[0]
    assert true[1] > printed[1]
    assert (true[2:] <= printed[2:]).all()
    assert true.norm() > gradient_bound_of_paper(model, *task)
    assert true.norm() <= gradient_bound(model, *task)


@pytest.mark.evidence("odonnat-gradient-bound")
@given(dim=st.integers(2, 4), log_scales=st.lists(st.floats(-3, 2), min_size=3, max_size=3), seed=st.integers(0, 2**31))
def test_printed_bounds_of_receptors_and_assemblers_are_true(dim, log_scales, seed):
    generator = torch.Generator().manual_seed(seed)
    params = Models.random(100, 3, 4, dim, 5, norm="unit", generator=generator)
    for name, power in zip(("value", "receptors", "assemblers"), log_scales, strict=True):
        params.weights[name] = 10**power * params.weights[name]
    task = torch.randint(3, (4, 4), generator=generator), torch.randint(3, (4,), generator=generator)
    true, printed = norms(closed_form_gradients(params, *task)), stacked(gradient_bound_terms_of_paper(params, *task))
    assert (true[2:] <= printed[2:] * (1 + 1e-9) + 1e-300).all()


@pytest.mark.evidence("odonnat-eq-28")
@given(dim=st.integers(1, 4), length=st.integers(1, 20), seed=st.integers(0, 2**31))
def test_norm_of_unit_columns(dim, length, seed):
    """√(L/d) ≤ ‖z‖ ≤ √L; so ‖z‖ ≤ √d, which is printed, is false whenever L > d²."""
    generator = torch.Generator().manual_seed(seed)
    params = Models.random(5, 2, length, dim, 1, norm="unit", generator=generator)
    tokens = torch.randint(2, (3, length), generator=generator)
    z = params.stages(tokens)["embeddings"]
    size = torch.linalg.matrix_norm(z, 2)
    assert (size >= math.sqrt(length / dim) - 1e-9).all()
    assert (size <= math.sqrt(length) + 1e-9).all()
    if length > dim**2:
        assert (size > math.sqrt(dim)).all()


@pytest.mark.evidence("odonnat-gradient-bound")
@given(p=st.integers(2, 6), dim=st.integers(1, 4), seed=st.integers(0, 2**31))
def test_error_signal_is_at_most_distance_times_diameter(p, dim, seed):
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(p, dim, generator=generator, dtype=torch.float64)
    predicted, label = torch.randn(2, 200, p, generator=generator, dtype=torch.float64).mul(3).softmax(-1)
    signal = ((predicted - label) @ embeddings).norm(dim=1)
    bound = (predicted - label).abs().sum(1) / 2 * torch.cdist(embeddings, embeddings).max()
    assert (signal <= bound + 1e-14 * embeddings.norm()).all()
    if p == 2:
        torch.testing.assert_close(signal, bound, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("norms_of", ["receptors", "assemblers"])
def test_bound_without_a_layer_is_finite_even_where_the_sequence_vanishes(norms_of):
    params = Models.random(1, 2, 3, 2, 4, norm="unit", generator=torch.Generator().manual_seed(0))
    for name in ("value", norms_of):
        params.weights[name] = torch.zeros_like(params.weights[name])
    task = Task(2, 3, 2).all()
    assert gradient_bound(params, *task).isfinite().all()
    terms, other = gradient_bound_terms(params, *task), {"receptors": "assemblers", "assemblers": "receptors"}[norms_of]
    factor = torch.linalg.matrix_norm(params.weights[other], 2) * (GELU_SLOPE if other == "assemblers" else 1)
    torch.testing.assert_close(terms["value"], terms[norms_of] / factor)  # κ is 1
    params = Models.random(1, 2, 3, 2, 4, norm="unit", generator=torch.Generator().manual_seed(0))
    params.weights["value"] = torch.zeros_like(params.weights["value"])
    assert gradient_bound_terms(params, *task)["value"].item() == math.inf


def test_bound_is_zero_and_not_nan_where_nothing_reaches_a_weight():
    params = Models.random(1, 2, 4, 2, 3, norm="unit", generator=torch.Generator().manual_seed(0))
    params.weights["value"] = torch.zeros_like(params.weights["value"])
    task = Task(2, 4, 2).all()
    assert gradient_bound_terms(params, *task)["query"].item() == 0  # V = 0
    assert gradient_bound(params, *task).item() == math.inf
    params.weights["token"][:, 1] = params.weights["token"][:, 0]  # no error signal: E(0) = E(1)
    assert gradient_bound(params, *task).item() == 0


@pytest.mark.evidence("odonnat-norm-properties")
@given(rows=st.integers(1, 5), columns=st.integers(1, 5), seed=st.integers(0, 2**32 - 1))
def test_facts_about_norms(rows, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    norm = torch.linalg.matrix_norm
    A = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    B = torch.randn(columns, rows, generator=generator, dtype=torch.float64)
    a, b = A[:, 0], B[:, 0]
    torch.testing.assert_close(norm(torch.outer(a, b)), a.norm() * b.norm())
    assert (A @ b).norm() <= norm(A, 2) * b.norm() + 1e-12
    for order in (2, "fro"):
        assert norm(A @ B, order) <= norm(A, order) * norm(B, order) + 1e-12
    assert norm(A, 2) <= A.abs().max() * (rows * columns) ** 0.5 + 1e-12
    torch.testing.assert_close(torch.linalg.svdvals(A), torch.linalg.svdvals(A.mT))
    projection = torch.outer(a, a) / a.square().sum()
    torch.testing.assert_close(norm(projection, 2), torch.ones((), dtype=torch.float64))
