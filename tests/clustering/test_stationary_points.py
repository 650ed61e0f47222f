import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from attnopt.clustering import Models, Task, closed_form_gradients, gradient_bound, ideal_circuit

WEIGHTS = ("query", "value", "receptors", "assemblers")


def losses(params, tokens, targets):
    logits = params.logits(tokens)
    return cross_entropy(logits.mT, targets.expand(len(logits), -1), reduction="none").mean(1)


def margins(params, tokens, targets):
    """The right logit minus the best of the others."""
    logits = params.logits(tokens)
    at = targets.expand(len(logits), -1)[..., None]
    return logits.gather(2, at)[..., 0] - logits.scatter(2, at, -math.inf).amax(2)


def total_norm(gradients):
    return torch.cat([gradients[name].flatten(1) for name in WEIGHTS], 1).norm(dim=1)


def grown(models, factor):
    """V and U times a factor."""
    return models.replace(value=factor * models.weights["value"], assemblers=factor * models.weights["assemblers"])


def know_nothing(p, length, dim, width, seed):
    """The stationary point of the chapter, for random embeddings in a half space."""
    params = Models.random(1, p, length, dim, width, norm="unit", generator=torch.Generator().manual_seed(seed))
    params.weights["position"] = params.weights["position"] + 4.0
    differences = params.weights["token"][0, 1:] - params.weights["token"][0, :1]
    v = torch.linalg.svd(differences).Vh[-1]  # orthogonal to the differences, as d ≥ p
    params.weights["query"] = torch.zeros_like(params.weights["query"])
    params.weights["value"] = torch.outer(v, torch.ones_like(v))[None]
    params.weights["assemblers"] = torch.zeros_like(params.weights["assemblers"])
    return params


@pytest.mark.evidence("odonnat-stationary-points", "odonnat-loss-minimum")
@given(p=st.integers(2, 4), dim=st.integers(1, 4), scale=st.floats(0.1, 30), seed=st.integers(0, 2**31))
def test_derivative_along_the_ray_and_the_loss(p, dim, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    params = Models.random(5, p, 3, dim, 6, norm="unit", generator=generator)
    params = grown(params, scale)
    task = Task(p, 3, 2).all()
    gradients = closed_form_gradients(params, *task)
    pairing = sum((gradients[name] * params.weights[name]).sum((1, 2)) for name in ("value", "assemblers"))
    stages = params.stages(task[0])
    logits = stages["logits"]
    right = torch.nn.functional.one_hot(task[1], p)
    signal = (logits.softmax(-1) - right) @ params.weights["token"]
    along = (signal * stages["output"]).sum(-1).mean(1)
    torch.testing.assert_close(pairing, along, rtol=1e-8, atol=1e-9 * scale)
    entropy = torch.special.entr(logits.softmax(-1)).sum(-1).mean(1)
    torch.testing.assert_close(losses(params, *task), entropy + along, rtol=1e-9, atol=1e-10)


@pytest.mark.evidence("odonnat-stationary-points", "odonnat-loss-minimum")
@pytest.mark.parametrize(("p", "length", "k", "sharpness"), [(2, 6, 3, 5.0), (2, 8, 5, 9.0), (3, 5, 2, 6.0), (3, 5, 3, 9.0)])
@pytest.mark.parametrize("alpha", [0.3, 1.0, 3.0])
def test_no_clustering_head_is_stationary(p, length, k, sharpness, alpha):
    task = Task(p, length, k).all()
    head = ideal_circuit(Task(p, length, k), sharpness=sharpness, scale=4.0)
    head = grown(head, alpha)
    gap = margins(head, *task)
    assert (gap > 0).all()  # it classifies everything
    gradients = closed_form_gradients(head, *task)
    pairing = sum((gradients[name] * head.weights[name]).sum() for name in ("value", "assemblers"))
    assert pairing < 0
    logits = head.logits(task[0])
    wrong = logits.softmax(-1).scatter(2, task[1][None, :, None], 0.0).sum(-1).mean()
    size = torch.cat([head.weights[name].flatten() for name in ("value", "assemblers")]).norm()
    norm = total_norm(gradients)
    assert norm >= gap.min() * wrong / size > 0
    assert norm <= gradient_bound(head, *task)


@pytest.mark.evidence("odonnat-stationary-points", "odonnat-loss-minimum")
def test_loss_and_gradient_vanish_exponentially_and_only_in_the_limit():
    task = Task(2, 8, 3).all()
    head = ideal_circuit(Task(2, 8, 3), sharpness=5.0, scale=3.0)
    gamma = margins(head, *task).min().item()
    found = []
    for alpha in (8.0, 12.0, 16.0):
        scaled = grown(head, alpha)
        found.append(total_norm(closed_form_gradients(scaled, *task)).item())
        assert found[-1] > 0
        assert losses(scaled, *task) < 1e-9
    rates = [-math.log(b / a) / 4 for a, b in pairwise(found)]
    assert rates == pytest.approx([gamma, gamma], rel=0.05)
    assert losses(head, *task) > 0


@pytest.mark.evidence("odonnat-stationary-points")
@pytest.mark.parametrize(("p", "dim"), [(2, 2), (2, 4), (3, 3), (4, 5)])
@pytest.mark.parametrize("k", [2, 3])
def test_a_finite_stationary_point_knows_nothing(p, dim, k):
    params, task = know_nothing(p, 4, dim, 5, seed=p + dim), Task(p, 4, k).all()
    mixture = params.stages(task[0])["mixture"]
    assert (mixture.sum(-1) > 0).all()
    assert total_norm(closed_form_gradients(params, *task)) < 1e-14
    leaves = {name: params.weights[name].clone().requires_grad_() for name in WEIGHTS}
    automatic = torch.autograd.grad(losses(params.replace(**leaves), *task).sum(), tuple(leaves.values()))
    assert max(part.abs().max() for part in automatic) < 1e-14
    assert losses(params, *task).item() == pytest.approx(math.log(p), rel=1e-13)
    first = Task(p, 4, 1).all()  # the proof needs two tokens that count
    assert total_norm(closed_form_gradients(params, *first)) > 1e-6


@pytest.mark.evidence("odonnat-stationary-points")
def test_the_stationary_point_is_a_saddle():
    params, task = know_nothing(2, 4, 2, 3, seed=4), Task(2, 4, 2).all()
    sizes = [params.weights[name].numel() for name in WEIGHTS]

    def loss(weights):
        parts = zip(WEIGHTS, weights.split(sizes), strict=True)
        return losses(params.replace(**{name: part.view_as(params.weights[name]) for name, part in parts}), *task)[0]

    here = torch.cat([params.weights[name].flatten() for name in WEIGHTS])
    values, vectors = torch.linalg.eigh(torch.func.hessian(loss)(here))
    assert values[0] < -1e-9
    assert values[-1] > 1e-2
    down = min((here + sign * step * vectors[:, 0] for step in (0.1, 1.0) for sign in (1, -1)), key=loss)
    assert loss(down) < loss(here)


@pytest.mark.evidence("odonnat-loss-minimum")
def test_noisy_labels_make_a_clustering_head_stationary():
    noise = 0.1
    tokens, targets = Task(2, 6, 3).all()
    head = ideal_circuit(Task(2, 6, 3), sharpness=20.0, scale=math.log((1 - noise) / noise) / 2)
    clean, flipped = closed_form_gradients(head, tokens, targets), closed_form_gradients(head, tokens, 1 - targets)
    mixed = {name: (1 - noise) * clean[name] + noise * flipped[name] for name in clean}
    assert total_norm(mixed) < 1e-8 < total_norm(clean)
    loss = (1 - noise) * losses(head, tokens, targets) + noise * losses(head, tokens, 1 - targets)
    entropy = -noise * math.log(noise) - (1 - noise) * math.log(1 - noise)
    assert loss.item() == pytest.approx(entropy, abs=1e-9)
