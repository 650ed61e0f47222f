"""Other moments of Adam before spikes: the script's own steps, curvatures and counts, another way."""

import numpy as np
import pytest
import spike_moments
import torch
from spike_moments import ALTERATIONS, Followed, Moment, altered, move

from attnbook.folder import results
from attnopt.clustering import PAPER, Course, State
from attnopt.clustering.spikes import losses, stages
from attnopt.clustering.training.backward import loss_and_gradients


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


def test_restored_moments_follow_the_gradients_and_the_same_ones_change_nothing(later):
    runs = course()
    same = altered(runs, later, 5, "restored", before=later.second)["rows"]
    torch.testing.assert_close(same, altered(runs, later, 5)["rows"])


def test_a_run_that_a_step_would_drive_off_is_stopped(later):
    tiny = later._replace(second=later.second * torch.tensor([[1e-30], [1.0]]))
    track = altered(course(), tiny, 3, "frozen")
    assert (track["loss"][1:, 0] == spike_moments.LOST).all()
    assert torch.equal(track["rows"][3, 0], later.rows[0])
    torch.testing.assert_close(track["rows"][:, 1], altered(course(), later, 3, "frozen")["rows"][:, 1])


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
    for at in range(3):
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


def test_a_batch_is_that_of_its_step():
    runs = course()
    state, seen = runs.initial(), []
    views, grads = runs.layout.views(state.rows), runs.layout.views(torch.zeros_like(state.rows))
    for at, batch in enumerate(runs.epoch(state)):
        seen.append(batch.clone())
        if at == 3:
            break
    fresh = runs.initial()
    marked, truth = spike_moments.batches(runs, [0, 0])
    views = runs.layout.views(fresh.rows)
    torch.testing.assert_close(loss_and_gradients(views, grads, marked, truth.mT.contiguous(), runs.norm), seen[0])
    swapped = spike_moments.batches(runs, [2, 2], [1, 0])[0]
    assert torch.equal(swapped.flip(0), spike_moments.batches(runs, [2, 2])[0])


def test_the_step_onto_the_threshold_and_windows_before_it():
    loss = torch.tensor([[0.1, 0.3, 0.1, 0.3], [0.1, 0.1, 0.1, 0.1]]).T
    assert spike_moments.onset(loss, [0.2, 0.2]) == [1, 0]
    assert [spike_moments.onset(loss, [0.2, 0.2], since)[0] for since in (1, 2, 3)] == [3, 3, 0]
    values = np.arange(64.0)
    values[10] = 99
    found = spike_moments.scores({"λ, mini-batch": values, "λ, training set": -values, "step": np.ones(64)})
    assert [found[span]["λ, mini-batch"] for span in spike_moments.SPANS] == [63, 62, 99]
    assert [found[span]["λ, training set"] for span in spike_moments.SPANS] == [-63, -48, 0]
    assert [found[span]["lasting λ, mini-batch"] for span in spike_moments.SPANS] == [61, 60, 45]
    assert spike_moments.lasting(np.array([3.0, 1.0, 2.0, 5.0, 4.0])).tolist() == [3, 1, 1, 1, 2]


def test_areas_count_pairs():
    assert spike_moments.area(np.array([1.0, 3.0]), np.array([0.0, 3.0])) == (1 + 0 + 1 + 0.5) / 4
    assert spike_moments.interval([0.5, *np.linspace(0, 1, 1001)]) == pytest.approx([0.5, 0.025, 0.975])


def made_up(loss, right):
    """Runs of which only losses and successes matter, with second moments that say their epoch."""
    epochs, runs = loss.shape
    second = torch.zeros(epochs, runs, 3)
    return Followed(second, second, second.clone(), loss, right)


def test_controls_are_calm_epochs_of_the_same_run_and_of_others_as_old():
    loss, right = torch.full((400, 3), 0.1), torch.zeros(400, 3)
    right[100:, 0], right[150:, 1] = 1.0, 1.0  # the third never succeeds
    loss[300, 0] = loss[260, 0] = loss[390, 1] = 0.5
    runs = made_up(loss, right)
    assert spike_moments.crossings(runs) == [100, 150, -1]
    (spike,) = spike_moments.spike_moments([300, 5, 5], runs)
    assert spike == Moment("spike", 0, 0, 300, pytest.approx(0.1), pytest.approx(0.2))
    for _ in range(3):
        own, other = spike_moments.control_moments([spike], runs)
        assert own.kind == "same run"
        assert 240 <= own.epoch < 290
        assert abs(own.epoch - 260) > spike_moments.QUIET
        assert (other.kind, other.run, other.epoch, other.spike) == ("same age", 1, 350, 0)
        assert own.threshold == pytest.approx(0.2)
    calm = spike_moments.calm_epochs(runs)
    assert calm[2] == set()
    assert calm[0] == {*range(101, 251), *range(271, 291), *range(311, 400)}
    runs.loss[355, 1] = 0.5  # another rise near
    assert [moment.kind for moment in spike_moments.control_moments([spike], runs)] == ["same run"]


def test_the_quiet_begins_where_moments_were_largest():
    runs = made_up(torch.full((400, 1), 0.1), torch.ones(400, 1))
    runs.second[:, 0] = 1.0
    for epoch, value in ((180, 9.0), (230, 5.0), (298, 7.0)):
        runs.second[epoch] = value
    assert spike_moments.quiet(runs, Moment("spike", 0, 0, 300, 0.1, 0.2)).tolist() == [5.0] * 3


def test_ensembles_are_counted_and_paired():
    usual = {
        "late": np.array([4, 0, 2, 0]),
        "epochs": np.array([500, 500, 1000, 0]),
        "spikes": np.array([4, 0, 2, 0]),
        "reached": np.array([True, True, True, False]),
    }
    found = spike_moments.summary(usual, 200)
    assert found["rate"][0] == 3.0
    assert 0 <= found["rate"][1] < 3 < found["rate"][2] <= 8
    assert found["reached"][:2] == [3, 4]
    assert found["with_spikes"][:2] == [2, 3]
    other = usual | {"late": np.array([1, 0, 1, 0]), "reached": np.array([True, False, True, True])}
    usual, other = ({name: np.tile(values, 8) for name, values in counts.items()} for counts in (usual, other))
    pair = spike_moments.against(usual, other)
    assert (pair["pairs"], pair["fewer, more"], pair["lost, won"]) == (16, [16, 0], [8, 8])
    assert pair["ratio"][0] == pytest.approx(1 / 3)
    assert pair["p"] < 0.001 < 0.99 < pair["p of success"]
    assert spike_moments.against(usual, usual)["p"] == 1.0
    assert (
        spike_moments.summary(usual | {"reached": np.zeros(32, bool), "late": np.zeros(32, int)}, 10)["with_spikes"] is None
    )


def test_points_differ_in_one_setting_from_the_usual():
    points = spike_moments.points()
    assert points.pop("usual").betas == PAPER.betas
    assert len(points) == 8
    for name, settings in points.items():
        changed = (settings.betas[0] != 0.9) + (settings.betas[1] != 0.999) + (settings.eps != 1e-8)
        assert changed == 1, name


@pytest.mark.same_bits
def test_runs_are_followed_as_they_were_trained():
    runs = spike_moments.follow([1000, 1001], 2)
    trained = spike_moments.ensemble([1000, 1001], spike_moments.Settings(epochs=2), jobs=1)
    assert torch.equal(runs.loss, trained.history["loss"])
    assert torch.equal(runs.right, trained.history["accuracy_all"])
    state = runs.state([1], [2])
    assert state.steps.tolist() == [2 * spike_moments.STEPS]
    assert torch.equal(state.rows[0], runs.rows[2, 1].double())


@pytest.fixture(scope="module")
def stored():
    """The chapter's results."""
    return results("spike_moments")


def test_spikes_stay_away_with_the_moments_of_before_by_length_more_than_by_direction(stored):
    found = stored["interventions"]
    for lead in ("lead 16", "lead 64"):
        gone = {name: some / of for name, (some, of, *_) in found[lead]["gone"].items()}
        assert found[lead]["gone"]["restored, whole"][2] > 0.5
        assert gone["restored, length"] > gone["restored, direction"] > 0.3
        assert found[lead]["against"]["restored"]["corrected"] < 0.01
        assert gone["frozen, whole"] < 0.1
        for floor in ("floor 0.001", "floor 0.01"):
            assert gone[f"{floor}, length"] > gone[f"{floor}, whole"] + 0.2
        assert found[lead]["left"]["restored, whole"][2] < 0.1
        assert found[lead]["left"]["frozen, whole"][1] > 1


def test_half_of_the_spikes_are_foretold_by_a_few_steps_and_none_by_the_origin(stored):
    for kind in ("same run", "same age"):
        found = stored["predictor"][kind]
        soon = found["2 to 16"]
        assert min(soon[name]["area"][1] for name in ("λ, mini-batch", "eigenvalue, mini-batch", "step")) > 0.9
        assert soon["short ξ"]["area"][1] < 0.5 < soon["short ξ"]["area"][2] + 0.02
        assert soon["λ, mini-batch"]["false alarms"][0] == 0
        assert soon["λ, mini-batch"]["foretold"][3] > 0.5 > found["17 to 64"]["λ, mini-batch"]["foretold"][3]
        assert soon["lasting λ, mini-batch"]["foretold"][0] == 0
    assert stored["alarms"]["share"][1] > 0.005
    assert stored["decay"]["p"] > 0.1  # no further than in calm epochs


def test_a_shorter_memory_makes_spikes_no_rarer(stored):
    """As said: by the ratio of rates more, by the planned test no difference; and rates are what spikes and epochs give."""
    found = stored["ensembles"]
    for entry in found["points"].values():
        assert entry["rate"][0] == pytest.approx(1000 * sum(entry["late"]) / sum(entry["epochs"]), rel=1e-3)
        assert sum(late > 0 for late in entry["late"]) == entry["with_spikes"][0]
    for name, pair in found["pairs"].items():
        assert pair["corrected p"] > 0.5
        assert (pair["ratio"][1] > 1) == (name in ("beta2 0.9", "beta2 0.95", "beta2 0.99"))
        assert pair["ratio"][2] > 1
        assert (pair["corrected p of success"] < 0.05) == (name == "eps 0.01")
