"""Other moments of Adam before spikes: the script's own steps, curvatures and counts, another way."""

import numpy as np
import pytest
import spike_moments
import torch
from spike_moments import ALTERATIONS, altered, move

from attnopt.clustering import Course, State, Watch
from attnopt.clustering.spikes import losses, stages


def course(seeds=(3, 5)):
    """Two runs in double precision."""
    return Course(list(seeds), dtype=torch.float64)


@pytest.fixture(scope="module")
def later():
    """Their states after an epoch and ten steps."""
    runs = course()
    state = runs.initial()
    for _ in runs.epoch(state):
        pass
    track = altered(runs, state, 10)
    return State(*(track[name][-1] for name in State._fields[:3]), state.steps + 10)


def test_unaltered_steps_are_those_of_a_course(later):
    runs = course()
    state = runs.initial()
    kept = [[state.rows.clone()] for _ in range(1)]
    for _ in range(2):
        for _ in runs.epoch(state):
            kept[0].append(state.rows.clone())
    track = altered(runs, later, 20)
    torch.testing.assert_close(track["rows"], torch.stack(kept[0])[74:95], rtol=1e-8, atol=1e-10)
    now = stages(runs.models(track["rows"][7]), runs.marks)
    torch.testing.assert_close(track["loss"][7], losses(now["logits"], runs.truth).mean(1))
    torch.testing.assert_close(track["taken"], track["rows"].diff(dim=0).norm(dim=2))
    assert torch.equal(track["taken"], track["usual"])


@pytest.mark.parametrize("kind", ALTERATIONS)
def test_an_altered_step_has_a_direction_and_a_length(later, kind):
    """Each can be taken alone; together they are the whole."""
    runs, before = course(), later.second * torch.linspace(0.1, 10, later.second.shape[1])
    usual, whole, length, direction = (
        altered(runs, later, 1, name, part, before)["rows"].diff(dim=0)[0]
        for name, part in (("", "whole"), (kind, "whole"), (kind, "length"), (kind, "direction"))
    )
    size = lambda step: step.norm(dim=1, keepdim=True)  # noqa: E731
    torch.testing.assert_close(length, usual * size(whole) / size(usual))
    torch.testing.assert_close(direction, whole * size(usual) / size(whole))
    assert (torch.nn.functional.cosine_similarity(usual, whole) < 1 - 1e-6).all()


def test_what_each_alteration_divides_by(later):
    runs, steps = course(), later.steps + 1
    batch = spike_moments.batches(runs, later.steps.tolist())
    gradient = spike_moments.gradients(runs.layout, later.rows, *batch, runs.norm)
    first = 0.9 * later.first + 0.1 * gradient
    new = 0.999 * later.second + 0.001 * gradient.square()
    before = later.second + 1e-3
    for kind, second in (
        ("", new),
        ("floor 0.01", new.clamp_min(1e-4)),
        ("frozen", later.second),
        ("restored", 0.999 * before + 0.001 * gradient.square()),
    ):
        moved = altered(runs, later, 1, kind, before=before)["rows"].diff(dim=0)[0]
        torch.testing.assert_close(moved, -move(first, second, steps))
    corrected = first / (1 - 0.9**75), new / (1 - 0.999**75)
    torch.testing.assert_close(move(first, new, steps), 3e-3 * corrected[0] / (corrected[1].sqrt() + 1e-8))


def hessian(runs, row, marked, truth):
    """Of the mean loss of one model, by autograd."""

    def loss(flat):
        now = stages(runs.models(flat.unsqueeze(0)), marked.unsqueeze(0))
        return losses(now["logits"], truth.unsqueeze(0)).mean()

    return torch.autograd.functional.hessian(loss, row), torch.func.grad(loss)(row)


def test_signs_are_curvatures_of_the_hessian_as_adam_feels_it(later):
    """Of the mini-batch and of the training set, against second derivatives by autograd; the step, ξ and the gradient."""
    runs, run = course(), 1
    track = altered(runs, later, 3)
    track = {name: track[name][:3, run] for name in ("rows", "first", "second")}
    found = spike_moments.signs(runs, track, run, int(later.steps[run]))
    for at in (0, 1):
        marked, truth = (part[0] for part in spike_moments.batches(runs, [74 + at], [run]))
        curvature, gradient = hessian(runs, track["rows"][at], marked, truth)
        v = 0.999 * track["second"][at] + 0.001 * gradient.square()
        felt = (1 - 0.9) / (1 + 0.9) / (1 - 0.9 ** (75 + at)) / ((v / (1 - 0.999 ** (75 + at))).sqrt() + 1e-8)
        along = gradient @ (felt * (curvature @ gradient)) / gradient.square().sum() * 3e-3 / 2
        assert found["λ, mini-batch"][at] == pytest.approx(along.item(), rel=1e-4)
        largest = torch.linalg.eigvals(felt[:, None] * curvature).real.max() * 3e-3 / 2
        assert found["eigenvalue, mini-batch"][at] == pytest.approx(largest.item(), rel=1e-2)
        assert found["gradient"][at] == pytest.approx(gradient.norm().item())
        if at == 1:  # two before the end, of the steps that are looked at
            curvature, gradient = hessian(runs, track["rows"][at], runs.marks[run], runs.truth[run])
            along = gradient @ (felt * (curvature @ gradient)) / gradient.square().sum() * 3e-3 / 2
            assert found["λ, training set"][at] == pytest.approx(along.item(), rel=1e-4)
            largest = torch.linalg.eigvals(felt[:, None] * curvature).real.max() * 3e-3 / 2
            assert found["eigenvalue, training set"][at] == pytest.approx(largest.item(), rel=1e-2)
    again = spike_moments.unaltered(runs, later, 3)[:, run]
    torch.testing.assert_close(again, torch.from_numpy(found["λ, mini-batch"]), rtol=1e-6, atol=1e-12)
    assert np.isnan(found["eigenvalue, training set"][0])
    torch.testing.assert_close(
        torch.from_numpy(found["step"][:2]), altered(runs, later, 3)["taken"][:2, run], rtol=1e-8, atol=1e-12
    )
    lengths = stages(runs.models(track["rows"][:1]), runs.marks[run:])["sequence"].norm(dim=-1)
    assert found["short ξ"][0] == pytest.approx(-lengths.median().item())


@pytest.mark.same_bits
def test_runs_are_followed_as_they_were_trained():
    runs = spike_moments.follow([1000, 1001], 2)
    trained = spike_moments.ensemble(
        [1000, 1001], spike_moments.Settings(epochs=2), watch=Watch(every=1), jobs=1, compiled=False
    )
    assert torch.equal(runs.loss, trained.history["loss"])
    assert torch.equal(runs.right, trained.history["accuracy_all"])
    state = runs.state([1], [2])
    assert state.steps.tolist() == [2 * spike_moments.STEPS]
    assert torch.equal(state.rows[0], runs.rows[2, 1].double())
