import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnopt.clustering import Models, Settings, Task, ideal_circuit, invariance, spurious_attention, train
from attnopt.clustering.invariance import variance_shares

double = {"dtype": torch.float64}


def model(**weights):
    """One model with an idle feed-forward layer."""
    weights = {name: torch.tensor(value, **double)[None] for name, value in weights.items()}
    dim = weights["query"].shape[1]
    idle = {"receptors": torch.zeros(1, 1, dim, **double), "assemblers": torch.zeros(1, dim, 1, **double)}
    return Models(idle | weights, "unit")


@pytest.mark.evidence("odonnat-ideal-circuit")
def test_equal_positions_are_invariant_at_any_sharpness(generator):
    params = Models.random(4, 3, 5, 3, norm="unit", generator=generator)
    task = Task(3, 5, 3)
    params.weights["position"][:, :3] = params.weights["position"][:, :1].clone()
    for factor in (0.0, 1.0, 30.0):
        sharp = params.replace(query=factor * params.weights["query"])
        torch.testing.assert_close(invariance(sharp, task)["permutation"], torch.ones(4, **double), rtol=0, atol=1e-12)
    tokens, _ = task.all()
    logits = params.logits(tokens)
    for order in itertools.permutations(range(3)):
        torch.testing.assert_close(params.logits(tokens[:, [*order, 3, 4]]), logits, rtol=1e-11, atol=1e-12)
    assert (invariance(params, task)["suffix"] < 0.999).all()


@pytest.mark.evidence("odonnat-ideal-circuit")
@pytest.mark.parametrize("broken", ["score", "value"])
def test_suffix_invariance_needs_equal_scores_and_equal_values(broken):
    """Spurious embeddings (±1, 0, 1)/√2 and a V that drops the first coordinate, and one condition broken at a time."""
    params = model(
        token=[[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]],
        position=[[0.3, 0.5, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]],
        query=[0.0, 1.0, 1.0],
        value=[[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    )
    assert invariance(params, Task(2, 3, 1))["suffix"] > 1 - 1e-13  # the prefix is seen through its length
    if broken == "score":
        params.weights["query"] = torch.tensor([[1.0, 1.0, 1.0]], **double)
    else:
        params.weights["value"] = torch.eye(3, **double)[None]
    assert invariance(params, Task(2, 3, 1))["suffix"] < 0.99


def test_shares_of_zero():
    reversed_order = model(  # ξ is the same for 00 and 11, and apart for 01 and 10: only the order counts
        token=[[0.0, -1.0], [0.0, 1.0]],
        position=[[1.0, 1.0], [1.0, -1.0]],
        query=[0.0, 0.0],
        value=[[1.0, 0.0], [0.0, 0.0]],
    )
    shares = invariance(reversed_order, Task(2, 2, 2))
    assert shares["permutation"].abs() < 1e-12
    assert shares["suffix"] > 1 - 1e-12
    prefix_collapsed = model(
        token=[[0.0, -1.0], [0.0, 1.0]],
        position=[[0.0, 3.0], [0.0, 2.0], [1.0, 0.0]],
        query=[0.3, 0.0],
        value=[[1.0, 0.0], [0.0, 1.0]],
    )
    shares = invariance(prefix_collapsed, Task(2, 3, 2))
    assert shares["suffix"].abs() < 1e-12
    constant = prefix_collapsed.replace(value=torch.zeros(1, 2, 2, **double))
    assert all(share == 1 for share in invariance(constant, Task(2, 3, 2)).values())


@pytest.mark.evidence("odonnat-ideal-circuit")
@given(seed=st.integers(0, 2**31), dim=st.integers(1, 4), k=st.integers(1, 4))
def test_leakage_has_a_floor_and_bounds_the_spread_of_a_prefix(seed, dim, k):
    params = Models.random(3, 2, 5, dim, norm="unit", generator=torch.Generator().manual_seed(seed))
    params.weights["query"] = 5 * params.weights["query"]
    tokens, _ = Task(2, 5, k).all()
    stages = params.stages(tokens)
    least, most = spurious_attention(params, Task(2, 5, k))
    gap = 2 * params.weights["query"].norm(dim=1) / dim**0.5
    assert (least >= (5 - k) / (5 - k + k * gap.exp()) * (1 - 1e-12)).all()
    points = stages["sequence"].unflatten(1, (2**k, -1))
    apart = torch.cdist(points, points).amax((1, 2, 3))
    assert (apart <= 2 * most * torch.linalg.matrix_norm(params.weights["value"], 2) + 1e-7).all()


def test_circuits_leakage_is_that_of_its_docstring():
    for sharpness in (2.0, 5.0):
        for dim, rate in ((3, math.sqrt(2 / 3)), (2, math.sqrt(2))):
            task = Task(3, 8, 5)
            least, most = spurious_attention(ideal_circuit(task, sharpness, dim=dim), task)
            wanted = 3 / (3 + 5 * math.exp(rate * sharpness))
            assert least.item() == pytest.approx(wanted, rel=1e-12 if dim == 3 else 0.1)
            assert most.item() == pytest.approx(wanted, rel=1e-12 if dim == 3 else 0.1)


@pytest.mark.parametrize("constant", [-1.0, 1e3, -1e-30])
@pytest.mark.parametrize("dim", [3, 30])
def test_what_varies_by_rounding_alone_does_not_vary(constant, dim, generator):
    noise = torch.randint(-1, 2, (2, 16, dim), generator=generator).double() * torch.finfo(torch.float64).eps / 2
    assert (1 + noise).unique().numel() > 1
    for share in variance_shares(constant * (1 + noise), Task(2, 4, 2)).values():
        assert (share == 1).all()


def test_a_small_variation_is_one():
    steps = 2 * torch.finfo(torch.float64).eps * (torch.arange(16) % 4).double()
    assert variance_shares((1 + steps)[None, :, None].expand(1, 16, 2), Task(2, 4, 2))["suffix"].item() < 0.5
    suffix = torch.arange(16) % 4
    shares = variance_shares((1 + 1e-10 * suffix.double())[None, :, None].expand(1, 16, 2), Task(2, 4, 2))
    assert shares["suffix"].item() == pytest.approx(0, abs=1e-4)
    assert shares["permutation"].item() == pytest.approx(1)


def test_what_is_not_finite_is_not_invariant():
    models = Models.random(2, 2, 4, norm="rms", generator=torch.Generator().manual_seed(0))
    models.weights["value"][1] = torch.nan
    for share in invariance(models, Task(2, 4, 2)).values():
        assert share.isnan().tolist() == [False, True]


def test_a_history_has_the_invariances_of_the_relevant_positions():
    task = Task(2, 6, 2, rule=[0, 1, 0, 2, 1, 1])
    training = train([0, 1], Settings(task, n_train=64, epochs=3))
    for name, shares in invariance(training.models.double(), task).items():
        torch.testing.assert_close(training.history[name][-1].double(), shares, rtol=1e-4, atol=1e-4)
    assert train([0], Settings(Task(2, 4, rule=[0] * 4, k=1), n_train=8, epochs=0)).history["suffix"].item() == 0
