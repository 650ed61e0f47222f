"""The controls of Part III: their functions at a small size, and what their stored results say."""

import escape_controls
import numpy as np
import pytest
import spike_controls
import torch
from fresh import holm, resampled, share
from scipy.stats import binomtest, fisher_exact, spearmanr, wilcoxon
from torch.nn.functional import one_hot

from attnbook.folder import results as stored
from attnopt.clustering import (
    Course,
    Settings,
    Spike,
    Task,
    Watch,
    dissect,
    initial_models,
    train,
    training_data,
)
from attnopt.clustering.model import marks


@pytest.fixture(scope="module")
def short():
    """Five runs of six epochs."""
    return train(range(5), Settings(epochs=6), Watch(every=1, snapshots=[0, 3, 6]), compiled=False)


def step(size=0.05, models=3):
    """Two states of some models, training sequences and labels."""
    before = initial_models(range(models)).double()
    generator = torch.Generator().manual_seed(1)
    after = before.map(lambda v: v + size * torch.randn(v.shape, generator=generator, dtype=v.dtype))
    tokens, targets = training_data(range(models), Task(), 64)
    return before, after, marks(tokens, 2, torch.float64), one_hot(targets, 2).double()


def test_p_values_are_corrected_as_holm_says():
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06})
    assert holm({"a": 0.6, "b": 0.5}) == {"a": 1.0, "b": 1.0}
    assert holm({"alone": 0.2}) == {"alone": 0.2}


def test_a_share_has_wilsons_interval():
    low, high = share(7, 10)[2:]
    for end in (low, high):
        assert (0.7 - end) ** 2 == pytest.approx(1.959964**2 * end * (1 - end) / 10, rel=1e-6)
    assert resampled(np.full(9, 2.5)) == [2.5, 2.5, 2.5]


def test_groups_that_stay_and_groups_that_step_are_complements():
    before, after, marked, truth = step()
    found, rise = spike_controls.controls(before, after, marked, truth), dissect(before, after, marked, truth)
    rest = dissect(after.replace(**{n: before.weights[n] for n in ("query", "value")}), after, marked, truth)
    # from the state in which all but attention has stepped, attention's own step makes up the rest of the rise
    assert torch.allclose(found["all but attention"] + rest["rise"], rise["rise"], atol=1e-12)
    for group in ("embeddings", "attention", "feed-forward"):
        near = before.replace(**{n: torch.lerp(before.weights[n], v, 1e-6) for n, v in after.weights.items()})
        whole = dissect(before, near, marked, truth)["rise"] / 1e-6
        tiny = spike_controls.controls(before, near, marked, truth)
        part = tiny[f"short as {group}"] / 1e-6 / whole  # to first order the share of the step's length
        names = spike_controls.GROUPS[group]
        step_ = {n: (v - before.weights[n]).flatten(1).square().sum(1) for n, v in after.weights.items()}
        lengths = [sum(step_[n] for n in some).sqrt() for some in (names, step_)]
        assert torch.allclose(part, lengths[0] / lengths[1], rtol=1e-3)


def test_a_run_is_followed_to_the_very_state_before_its_spike(short):
    spikes = [Spike(run, 5, 5, 6, 0.1, 0.2) for run in range(5)]
    states = spike_controls.states_before(list(range(5)), spikes)
    views = Course(range(5)).layout.views(torch.stack([state.rows for state in states]))
    for name, value in views.items():
        assert torch.equal(value, short.snapshots[3].weights[name])
    parts = spike_controls.taken_apart(list(range(5)), states)
    torch.testing.assert_close(parts["end"].float(), short.history["loss"][5].float(), rtol=1e-4, atol=0)
    assert (parts["rise"] > 0).all()


def test_votes_are_those_of_the_nearest():
    rng = np.random.default_rng(3)
    points, targets, groups = rng.standard_normal((80, 2)), rng.integers(0, 2, 80), np.arange(80) // 8
    gaps = np.linalg.norm(points[:, None] - points[None], axis=-1)
    for own, hidden in ((None, np.eye(80, dtype=bool)), (groups, groups[:, None] == groups[None])):
        near = np.where(hidden, np.inf, gaps).argsort(1)[:, : escape_controls.NEIGHBOURS]
        expected = ((targets[near].mean(1) > 0.5) == targets).mean()
        assert escape_controls.vote(points, targets, own) == expected


def wilson(count, of):
    """Both ends of Wilson's interval, from its formula."""
    z, p = 1.959964, count / of
    middle, half = p + z**2 / (2 * of), z * (p * (1 - p) / of + z**2 / (4 * of**2)) ** 0.5
    return [(middle + sign * half) / (1 + z**2 / of) for sign in (-1, 1)]


@pytest.mark.evidence("odonnat-transfer")
def test_only_an_added_token_helps_and_perfection_goes_through_the_plain_count():
    found = stored("curriculum")
    for entry in (found[name]["success"] for name in ("scratch", "added", "three", "ten")):
        assert entry[2:] == pytest.approx(wilson(*entry[:2]), rel=1e-3)
    scratch = found["scratch"]["success"][0]
    exact = {
        name: fisher_exact([[n := found[name]["success"][0], 100 - n], [scratch, 100 - scratch]]).pvalue
        for name in ("added", "three", "ten")
    }
    for name, value in holm(exact).items():
        assert found[name]["corrected"] == pytest.approx(value, rel=1e-3)
    assert found["three"]["success"][0] < scratch < found["added"]["success"][0]
    assert found["ten"]["corrected"] < 0.05 < found["added"]["corrected"] < 0.1
    both = [28 + found["added"]["success"][0], 10 + scratch]
    assert both == [56, 25]
    assert fisher_exact([[some, 200 - some] for some in both]).pvalue < 1e-3
    circuit = found["circuit"]
    assert circuit["never_wrong"]["corrected"] < 0.01 < 0.05 < circuit["success"]["corrected"]


@pytest.mark.evidence("odonnat-spikes-normalisation", "odonnat-spikes-mlp")
def test_either_slope_shortened_takes_the_rise_away_and_the_layers_own_step_does_not_make_it():
    """Each count, median and test again from the stored shares of the 96 spikes."""
    found = stored("spike_controls")
    left = {name: np.array(values) for name, values in found["left"].items()}
    rise = np.array(found["rise"])
    assert len(rise) == len(set(found["runs"])) == 96
    assert found["not_met"] == found["not_rising"] == 0
    for name, (count, of, *ends) in found["below_half"].items():
        assert (left[name] < 0.5).sum() == count
        assert ends == pytest.approx(wilson(count, of) if count < of else ends, rel=1e-2)
        assert np.median(left[name]) == pytest.approx(found["median"][name][0], rel=1e-3)
    few = {name: entry[0] for name, entry in found["below_half"].items()}
    names = ("far sequence", "short layer", "straight normalization", "straight layer", "straight logits")
    assert [few[name] for name in names] == [84, 89, 2, 11, 13]
    assert spearmanr(left["straight layer"], rise).statistic == pytest.approx(found["rank_correlation"], abs=1e-3)
    chances = {
        "straight layer and rise": spearmanr(left["straight layer"], rise).pvalue,
        "short layer, far sequence": wilcoxon(left["short layer"], left["far sequence"]).pvalue,
        "feed-forward, short as feed-forward": wilcoxon(left["feed-forward"], left["short as feed-forward"]).pvalue,
        "assemblers": found["tests"]["assemblers"]["p"],
    }
    for name, value in holm(chances).items():
        assert found["tests"][name]["corrected"] == pytest.approx(value, rel=0.05)
    assert np.median(left["short layer"]) < np.median(left["far sequence"]) < 0.25
    assert np.median(left["feed-forward"]) < 0.03 < 0.8 < np.median(left["short as feed-forward"])
    assert found["tests"]["assemblers"]["corrected"] > 0.05
    assert found["assemblers"]["auc"][1] < 0.5 < found["assemblers"]["auc"][0]


@pytest.mark.evidence("odonnat-two-phase")
def test_neighbours_with_other_prefixes_agree_about_the_escape():
    votes = stored("escape_controls")["vote"]
    others = votes["other_prefixes"]
    assert votes["runs"] == 195
    assert votes["among_all"]["quiet"][0] > 0.99  # the first vote needs a quiet suffix and nothing else
    assert others["quiet"][2] < 0.6 < 0.78 < others["escape"][1] < others["escape"][0] < 0.9
    assert others["after"][1] > 0.93
    assert votes["accuracy"][2] < 0.6
    assert votes["p"] < 1e-6


@pytest.mark.evidence("odonnat-initialisation")
def test_the_same_weights_share_some_attention_and_seldom_the_circuit():
    found = stored("same_weights")
    (both, one), (other, none) = found["success"]["table"]
    assert both + one + other + none == 100
    assert found["success"]["expected"] == pytest.approx((both + one) * (both + other) / 100)
    assert found["success"]["odds_ratio"][1] < 1 < 5 < found["success"]["odds_ratio"][2]
    assert found["success"]["p"] == pytest.approx(fisher_exact([[both, one], [other, none]]).pvalue, rel=1e-3)
    assert [found[name]["share"][:2] for name in ("kind", "signs", "form")] == [[10, 27], [12, 27], [5, 27]]
    assert found["kind"]["share"][2:] == pytest.approx(wilson(10, 27), rel=1e-3)
    values = {name: found[name]["p"] for name in ("success", "kind", "signs", "form", "attention")}
    assert {name: found[name]["corrected"] for name in values} == pytest.approx(holm(values), rel=1e-3)
    assert [name for name in values if found[name]["corrected"] < 0.05] == ["attention"]
    assert found["attention"]["own"][0] > 3 * found["attention"]["others"]


@pytest.mark.evidence("odonnat-smoothed-normalisation")
def test_the_smoothed_normalization_takes_four_of_five_spikes_away():
    found = stored("smooth_normalisation")
    (ratio, low, high), usual, smooth = found["ratio"], found["rms"], found["smooth"]
    assert found["pairs"] == usual["reached"][1] == smooth["reached"][1] == 300
    assert ratio == pytest.approx(smooth["late"] / smooth["epochs"] / (usual["late"] / usual["epochs"]), rel=1e-3)
    assert low < ratio < high < 0.5
    assert (usual["late"], smooth["late"]) == (451, 75)
    assert [found[norm]["reached"][0] for norm in ("rms", "smooth")] == [153, 130]
    assert found["lost"] - found["won"] == 153 - 130
    assert found["sign_test"] == pytest.approx(binomtest(found["lost"], found["lost"] + found["won"]).pvalue, rel=1e-3)
