"""What the stored results of the ensembles must satisfy, and the symmetries and counts behind them."""

import circuits_in_the_wild as experiment
import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from attnbook.folder import results
from attnopt.clustering import Models, Settings, Task, Watch, cyclic_step, token_effects, train

RESULT = results("circuits_in_the_wild")
L, K = 12, 5
TOKENS, TARGETS = Task().all()


def of_record(params):
    """A stored model."""
    return Models({name: torch.tensor([value], dtype=torch.float64) for name, value in params.items()}, "rms")


def section(name):
    """A section of the results, or skip where its ensembles have not been trained."""
    if name not in RESULT:
        pytest.skip(f"no ensemble of the section {name} has been recorded")
    return RESULT[name]


def arrays(entry, *names):
    return [np.array(entry[name]) for name in names]


def is_count(entry):
    """Whether a count with odd weights on the prefix and even ones behind it explains ξ."""
    weights, explained = arrays(entry, "weights", "explained")
    return (weights[:, :K] % 2 == 1).all(1) & (weights[:, K:] % 2 == 0).all(1) & (explained > 0.95)


@pytest.mark.evidence("odonnat-realisations")
def test_fewer_than_half_of_the_successes_have_both_invariances_and_most_count_with_odd_and_even_weights():
    accuracy, suffix, permutation = arrays(RESULT["realisations"], "accuracy", "suffix", "permutation")
    success = accuracy > 0.9
    assert len(accuracy) == 200
    assert 0.3 < success.mean() < 0.6
    assert ((suffix > 0.95) & (permutation > 0.95))[success].mean() < 0.5
    counts = is_count(RESULT["realisations"])
    assert counts[success].mean() > 0.85
    assert counts[(accuracy > 0.55) & ~success].mean() > 0.5
    assert counts[accuracy < 0.55].mean() < 0.05


@pytest.mark.evidence("odonnat-realisations")
def test_records_are_those_of_the_engine():
    live = train(range(3), Settings(epochs=5), Watch(every=1), compiled=False).history
    for epoch in (0, 2, 5):
        loss, accuracy = RESULT["realisations"]["early"][str(epoch)]
        torch.testing.assert_close(live["loss"][epoch], torch.tensor(loss[:3]), atol=1e-3, rtol=0)
        torch.testing.assert_close(live["accuracy_all"][epoch], torch.tensor(accuracy[:3]), atol=5e-3, rtol=0)


@pytest.mark.evidence("odonnat-initialisation")
def test_exchanging_the_tokens_maps_a_model_to_one_of_equal_accuracy():
    params = Models.random(5, 2, L, norm="rms", generator=torch.Generator().manual_seed(0), biases=True)
    swapped = params.replace(token=params.weights["token"].flip(1))
    logits, mirror = params.logits(TOKENS), swapped.logits(1 - TOKENS)
    torch.testing.assert_close(mirror.flip(-1), logits)
    assert (((1 - TOKENS)[:, :K].sum(1) % 2) == 1 - TARGETS).all()


@pytest.mark.evidence("odonnat-initialisation")
def test_rank_correlations_pair_each_with_itself_and_with_the_others():
    before = torch.rand(4, 24, generator=torch.Generator().manual_seed(0))
    own, others = experiment.rank_correlations(before, before.exp())
    np.testing.assert_allclose(own, 1)
    assert len(others) == 12
    assert others[0] == pytest.approx(spearmanr(before[0], before[1]).statistic)


def transferred():
    """Accuracy for p = 3, and which have no error, had solved p = 2, had six clear clusters, counted ones."""
    entry = section("transfer")["grown_p3"]
    begin = {name: RESULT["realisations"][name][:100] for name in ("weights", "accuracy", "explained")}
    weights, accuracy = arrays(begin, "weights", "accuracy")
    six = (accuracy > 0.9) & is_count(begin) & (abs(weights) == ([1] * K + [0] * (L - K))).all(1)
    perfect = np.array([entry["errors"].get(str(run)) == 0 for run in range(100)])
    ones = (weights * weights[:, :1] == [1] * K + [0] * (L - K)).all(1)
    return np.array(entry["accuracy"]), perfect, accuracy > 0.9, six, ones


@pytest.mark.evidence("odonnat-transfer")
def test_no_error_at_all_needs_a_count_of_ones():
    _, perfect, _, six, ones = transferred()
    assert perfect.sum() == 3
    assert perfect[~ones].sum() == 0
    assert perfect[six].sum() == 3


@pytest.mark.evidence("odonnat-transfer")
def test_errors_on_all_sequences_are_those_of_the_forward_pass():
    params = Models.random(2, 3, L, norm="rms", generator=torch.Generator().manual_seed(3), biases=True)
    found = experiment.errors_at_three(params)
    tokens, targets = Task(3).sample(3000, torch.Generator().manual_seed(4))
    share = (params.logits(tokens).argmax(-1) != targets).double().mean(1)
    torch.testing.assert_close(found.double() / 3**L, share, atol=0.04, rtol=0)


@pytest.mark.evidence("odonnat-sparsity", "odonnat-wider-embeddings")
def test_successes_are_denser_between_a_hundredth_and_one_at_every_width():
    entry = section("sparsity")
    thresholds = np.array(entry["thresholds"])
    middle = (thresholds >= 0.0099) & (thresholds <= 1.05)
    for dim in ("2", "3", "4", "8", "32"):
        assert np.array(entry[dim]["auc"])[middle].min() > 0.8
    assert np.array(entry["2"]["auc"]).max() > 0.95
    assert 0.5 < entry["2"]["auc"][abs(np.log10(thresholds) + 3).argmin()] < 0.75
    wide = [entry[dim] for dim in ("8", "16", "32")]
    assert sum(one["succeeded"] for one in wide) == 146
    assert sum(one["runs"] for one in wide) == 150


@pytest.mark.evidence("odonnat-ablations")
def test_means_have_one_maximum_where_single_seeds_jump():
    grid = {factor: np.array(list(points.values())) for factor, points in section("ablations").items()}
    nested = grid.pop("nested")
    assert {factor: len(table) for factor, table in grid.items()} == {
        "batch_size": 5, "width": 4, "learning_rate": 6, "mlp_discount": 5
    }  # fmt: skip
    for table in grid.values():
        assert table.shape[1] == 100
        rises = np.diff(table.mean(1))
        assert (np.diff(np.sign(rises[abs(rises) > 0.02])) <= 0).all()  # up, then down
        assert (abs(np.diff(table, axis=0)) > 0.25).mean() > 0.05
    succeed = {factor: (table > 0.9).sum(1) for factor, table in grid.items()}
    assert np.ptp(succeed["width"]) < 15
    assert np.ptp((nested > 0.9).sum(1)) < 15
    agree = [np.median([spearmanr(*table[at : at + 2]).statistic for at in range(3)]) for table in (nested, grid["width"])]
    assert agree[0] > agree[1] + 0.1
    assert np.ptp(succeed["learning_rate"]) > 35
    assert np.ptp(succeed["mlp_discount"]) > 35
    usual = succeed["width"][2]
    assert all(usual == points.max() for points in succeed.values())


@pytest.mark.evidence("odonnat-no-learning-beyond-4")
def test_the_model_of_five_tokens_counts_with_shifts():
    best = section("transfer")["cyclic"]["scratch_5"]["best"]
    tokens, targets = Task(5).sample(10000, torch.Generator().manual_seed(11))
    stages = of_record(best["params"]).stages(tokens)
    logits = stages["logits"]
    assert (logits[0].argmax(1) == targets).double().mean() > 0.88
    effects, explained = token_effects(stages["sequence"], tokens, 5)
    ranks = effects[0, :K].argsort(-1).argsort(-1)
    assert explained.item() > 0.99
    assert cyclic_step(effects, K).item() in (1, 4)
    assert not (ranks == ranks[0]).all()


@pytest.mark.evidence("odonnat-wider-embeddings")
def test_with_64_dimensions_every_success_has_two_drops_and_with_3_no_more_than_with_2():
    events = results("two_phase_learning")["events"]
    least, exactly = {}, {}
    for name in ("main", "dim_3", "dim_64"):
        won = np.array(events[name]["final"]) > 0.9
        drops = np.array([[d if isinstance(d, int) else len(d) for d in row] for row in events[name]["drops"]])[:, won]
        least[name], exactly[name] = (drops >= 2).all(), (drops == 2).mean(1)
    assert least["dim_64"]
    assert not least["main"]
    assert np.median(exactly["dim_3"] - exactly["main"]) < 0.1
