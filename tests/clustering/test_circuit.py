import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from torch.nn.functional import gelu, relu

from attnopt.clustering import Models, Task, cluster_counts, ideal_circuit, invariance

double = {"dtype": torch.float64}


def embedded(model, tokens):
    """Sequence embeddings of the first model."""
    return model.stages(tokens)["sequence"][0]


def distinct(points):
    """How many points differ by more than rounding."""
    return len((points * 1e9).round().unique(dim=0))


def margin(model, tokens, targets):
    """Least lead of the right logit over all others, over the sequences; positive if all are right."""
    logits = model.logits(tokens)[0]
    right = logits.gather(1, targets[:, None])[:, 0]
    return (right - logits.scatter(1, targets[:, None], -torch.inf).amax(1)).min().item()


@pytest.mark.evidence("odonnat-ideal-circuit")
@pytest.mark.parametrize("clusters", ["counts", "sums"])
@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize(
    ("p", "length", "k"), [(2, 12, 5), (2, 3, 1), (3, 8, 5), (3, 4, 4), (4, 5, 1), (5, 6, 4), (7, 5, 4)]
)
def test_circuit_is_right_on_every_sequence(p, length, k, dim, clusters):
    params = ideal_circuit(Task(p, length, k), 24.0, clusters=clusters, dim=dim)
    tokens, targets = Task(p, length, k).all()
    assert margin(params, tokens, targets) > 1e-3
    shares = invariance(params, Task(p, params.length, k))
    assert min(shares["suffix"].item(), shares["permutation"].item()) > 1 - 1e-9
    neurons = math.comb(k + p - 1, k) if clusters == "counts" else k * (p - 1) + 1
    assert params.weights["receptors"].shape == (1, neurons, dim)


@pytest.mark.evidence("odonnat-cluster-count")
@pytest.mark.parametrize(("p", "k"), [(2, 1), (2, 5), (3, 1), (3, 5), (4, 3), (5, 4), (7, 4)])
def test_number_of_clusters_at_its_bounds(p, k):
    prefixes, _ = Task(p, k, k).all()
    for clusters, number in (("counts", math.comb(k + p - 1, k)), ("sums", k * (p - 1) + 1)):
        assert distinct(embedded(ideal_circuit(Task(p, k, k), 1.0, clusters=clusters, dim=3), prefixes)) == number
    heads = Models.random(20, p, k, norm="unit", generator=torch.Generator().manual_seed(k))
    heads.weights["position"] = heads.weights["position"][:, :1].repeat(1, k, 1)
    found = heads.stages(prefixes)["sequence"]
    assert {distinct(xi) for xi in found} == {math.comb(k + p - 1, k)}  # random embeddings with equal positions: the most


@pytest.mark.evidence("odonnat-cluster-count")
@given(
    p=st.integers(2, 4),
    k=st.integers(1, 4),
    seed=st.integers(0, 2**31),
    whole=st.booleans(),
)
def test_right_heads_never_have_fewer_clusters_than_the_lower_bound(p, k, seed, whole):
    generator = torch.Generator().manual_seed(seed)
    counts = cluster_counts(p, k)
    if whole:  # small integers, so that clusters do merge; rational arithmetic by cross-multiplication
        n, w = torch.randint(-3, 4, (p,), generator=generator), torch.randint(1, 4, (p,), generator=generator)
        extra = torch.randint(0, 3, (2,), generator=generator)
    else:
        n, w, extra = torch.arange(p), torch.ones(p, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    top, bottom = counts @ n + extra[0], counts @ w + extra[1]
    common = math.lcm(*bottom.tolist())
    values = top * (common // bottom)
    labels = counts @ torch.arange(p) % p
    one_label = all(len(labels[values == value].unique()) == 1 for value in values.unique())
    if one_label:
        assert len(values.unique()) >= k * (p - 1) + 1
    if not whole:
        assert one_label
        assert len(values.unique()) == k * (p - 1) + 1


@pytest.mark.parametrize("dim", [2, 3])
def test_positions_and_the_arc_of_the_means_are_as_described(dim):
    params = ideal_circuit(Task(4, 3, 3), sharpness=1.5, dim=dim)
    distance = 2 * math.exp(1.5) if dim == 2 else 1.0
    torch.testing.assert_close(params.weights["position"].norm(dim=-1), torch.full((1, 3), distance, **double))
    alike = torch.arange(4)[:, None].expand(4, 3)  # the same token three times: the ends of the arc
    means = params.stages(alike)["sequence"][0]
    assert torch.atan2(means[:, 1], means[:, 0]).abs().max().item() == pytest.approx(math.pi / 3)


def test_heights_of_the_tokens_are_as_described_and_the_output_ten_times_the_class_embedding_unless_told():
    for clusters, heights in (("counts", [0, 1, 4, 16]), ("sums", [0, 1, 2, 3])):
        params = ideal_circuit(Task(4, 3, 3), 1.0, clusters=clusters, dim=3)
        found = params.weights["token"][0, :, 1]
        assert ((found - found[0]) / (found[1] - found[0])).tolist() == pytest.approx(heights)
        tokens, targets = Task(4, 3, 3).all()
        output = params.stages(tokens)["output"][0]
        torch.testing.assert_close(output, 10 * params.weights["token"][0][targets], rtol=1e-8, atol=1e-8)


def test_positions_lie_at_most_a_hundred_million_away():
    for sharpness in (18.0, 50.0, 1e6):
        distance = ideal_circuit(Task(2, 3, 2), sharpness).weights["position"].norm(dim=-1).max().item()
        assert distance == pytest.approx(1e8, rel=1e-12)


def test_extreme_sharpness_and_scale_stay_finite():
    for sharpness in (1e-3, 50.0, 800.0, 1e6):
        for dim in (2, 3):
            params = ideal_circuit(Task(3, 6, 3), sharpness, scale=1e-2, dim=dim)
            assert all(weight.isfinite().all() for weight in params.weights.values())
            if sharpness > 40:
                assert margin(params, *Task(3, 6, 3).all()) > 0


# The feed-forward layer on the six clusters of Figure 1: p = 2, k = 5

PLACE = torch.linspace(-1, 1, 6, **double)
LINE = torch.stack([torch.ones(6, **double), PLACE], 1) / math.sqrt(2)
SIGNS = torch.tensor([-1.0, 1.0] * 3, **double)


def figure_one_threshold():
    """The margin beyond which k - 1 neurons are needed."""
    length = LINE.norm(dim=1)
    residual = 2 * LINE[:, 1] * length
    turns = (residual[:-2] - 2 * residual[1:-1] + residual[2:]).abs()
    return (turns / (length[:-2] + 2 * length[1:-1] + length[2:])).max().item()


def worst(receptors, assemblers, act):
    """Least lead of the right logit on the six clusters, for assemblers along E(1) - E(0)."""
    hidden = act(torch.einsum("...hd,jd->...jh", receptors, LINE / LINE.norm(dim=1, keepdim=True)))
    return (SIGNS * 2 * (LINE[:, 1] + torch.einsum("...jh,...h->...j", hidden, assemblers))).amin(-1)


def best_relu_margin(units):
    """The largest margin of ReLU neurons with given active clusters and signs of a_i, by linear programming.

    A neuron is an affine function, non-negative where it is active and non-positive elsewhere; all are scaled by ‖ξ‖.
    """
    length, residual = LINE.norm(dim=1), 2 * LINE[:, 1] * LINE.norm(dim=1)
    rows, bounds = [], []
    for j in range(6):
        row = np.zeros(2 * len(units) + 1)
        for i, (active, sign) in enumerate(units):
            affine = np.array([1.0, PLACE[j].item()])
            if j in active:
                row[2 * i : 2 * i + 2] = -SIGNS[j].item() * sign * affine
            side = np.zeros(2 * len(units) + 1)
            side[2 * i : 2 * i + 2] = -affine if j in active else affine
            rows.append(side)
            bounds.append(0.0)
        row[-1] = length[j].item()
        rows.append(row)
        bounds.append((SIGNS[j] * residual[j]).item())
    cost = np.zeros(2 * len(units) + 1)
    cost[-1] = -1
    free = [(None, None)] * (2 * len(units)) + [(None, 100)]
    return -linprog(cost, A_ub=np.array(rows), b_ub=bounds, bounds=free, method="highs").fun


UNITS = [
    (active, sign)
    for active in [tuple(range(m)) for m in range(1, 7)] + [tuple(range(m, 6)) for m in range(1, 6)]
    for sign in (-1, 1)
]


def mirrored(units):
    """The same neurons with the order of the clusters reversed and classes exchanged, sorted: an equal margin."""
    return tuple(sorted((tuple(sorted(5 - j for j in active)), -sign) for active, sign in units))


@pytest.mark.evidence("odonnat-ideal-circuit")
def test_three_relu_neurons_stay_below_the_threshold_and_four_pass_it():
    """Over every choice of active clusters: with k - 1 = 4 neurons the margin can pass the threshold, with 3 it cannot."""
    assert figure_one_threshold() == pytest.approx(0.0649, abs=1e-4)
    triples = [three for three in itertools.combinations(sorted(UNITS), 3) if three <= mirrored(three)]
    assert max(best_relu_margin(three) for three in triples) <= figure_one_threshold() + 1e-9
    kinks = [((4, 5), -1), ((5,), 1), ((0, 1), 1), ((0,), -1)]
    assert best_relu_margin(kinks) > 4 * figure_one_threshold()
    four = torch.tensor([[-0.4, 1.0], [-0.8, 1.0], [-0.4, -1.0], [-0.8, -1.0]], **double)
    weights = torch.tensor([-4.0, 9.0, 4.0, -9.0], **double)
    assert worst(four, weights, relu) == pytest.approx(0.4 / math.sqrt(2), abs=1e-12)
    for steepness in (10.0, 100.0, 1000.0):
        off = (worst(four, weights, lambda x, s=steepness: gelu(s * x) / s) - worst(four, weights, relu)).abs()
        assert off <= 0.17 * 52 / steepness
