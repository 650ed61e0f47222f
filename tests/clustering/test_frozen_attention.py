"""Training with held attention: gradients as autograd has them, attention that stays, and what is stored."""

import json

import frozen_attention as script
import pytest
import torch
from lab import RESULTS
from torch.nn.functional import cross_entropy

from attnopt.clustering import PAPER, Course, Models, initial_models
from attnopt.clustering.training.backward import loss_and_gradients

SEEDS = range(31, 34)


@pytest.mark.parametrize("arm", ["uniform", "initial", "final", "prefix"])
def test_marks_times_attention_with_the_query_at_0_are_held_attention(arm):
    course = Course(SEEDS, dtype=torch.float64)
    start = initial_models(SEEDS)
    held = script.held(arm, start, initial_models(range(50, 53))).double()
    state = course.initial()
    views, gradient = course.layout.views(state.rows), torch.zeros_like(state.rows)
    views["query"].zero_()
    part, truth = course.marks[:, :40], course.truth[:, :40].mT.contiguous()
    loss = loss_and_gradients(views, course.layout.views(gradient), part * held.unsqueeze(1), truth, course.norm)
    weights = {name: value.clone().requires_grad_() for name, value in views.items()}
    logits = script.answers(Models(weights, start.norm), part, held)
    each = cross_entropy(logits.flatten(0, 1), course.targets[:, :40].flatten(), reduction="none").view(3, -1).mean(1)
    each.sum().backward()
    torch.testing.assert_close(loss, each.detach())
    for name, value in course.layout.views(gradient).items():
        if name != "query":
            torch.testing.assert_close(value, weights[name].grad, atol=1e-12, rtol=1e-9)


def test_held_attention_is_what_its_arm_says():
    start, end = initial_models(SEEDS), initial_models(range(60, 63))
    tokens = PAPER.task.all()[0][[0, 77, 4095]]
    at = tokens * 12 + torch.arange(12)
    for arm, models in (("initial", start), ("final", end)):
        weights = script.held(arm, start, end)[:, at]
        torch.testing.assert_close(weights / weights.sum(-1, keepdim=True), models.stages(tokens)["attention"])
    assert script.held("free", start, end) is None
    assert (script.held("uniform", start, end) == 1).all()
    assert script.held("prefix", start, end)[:, at].mean((0, 1)).tolist() == [1.0] * 5 + [0.0] * 7


def test_what_is_stored_fits_together():
    stored = json.loads((RESULTS / "frozen_attention.json").read_text(encoding="utf-8"))
    assert list(stored["arms"]) == list(script.ARMS)
    for arm, entry in stored["arms"].items():
        assert entry["solved"][0] <= entry["left"][0] <= stored["runs"]
        assert entry["epochs"] == sorted(entry["epochs"])
        assert ("p" in entry) == (arm != "free")
