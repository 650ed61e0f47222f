"""The shipped models against the numbers drawn from the ensemble before their weights were shortened."""

import circuits_in_the_wild as experiment
import numpy as np
import pytest
import torch

from attnbook.folder import results
from attnopt.clustering import attention_by_pair, invariance, load_model, load_models
from attnopt.clustering.interventions import answers, in_parts
from attnopt.clustering.trained import DATA, TASK, load_overview, overview, packed, save_models, shortened, unpacked

STORED = results("circuits_in_the_wild")["realisations"]
TOKENS, TARGETS = TASK.all()


@pytest.fixture(scope="module")
def found():
    """Accuracy, m, what it explains and the invariances of all 200 from their weights."""

    def of_some(part, _):
        m, explained = part.count(TASK)
        said = answers(part, part.sequences(TOKENS))
        return {"m": m, "explained": explained, "said": said} | invariance(part, TASK)

    return in_parts(load_models(), of_some)


@pytest.mark.evidence("odonnat-realisations")
def test_the_weights_give_the_records_numbers_again(found):
    accuracy = (found["said"] == (TARGETS == 1)).double().mean(1).numpy()
    apart = (load_models().weights["token"].diff(dim=1).norm(dim=-1) > 1e-6).flatten().numpy()
    assert apart.sum() > 190
    np.testing.assert_allclose(accuracy[apart], np.array(STORED["accuracy"])[apart], atol=1e-4)  # stored to four digits
    np.testing.assert_allclose(accuracy[~apart], 0.5, atol=0.01)  # nothing but rounding tells their tokens apart
    learned = accuracy > 0.55
    assert (found["m"].clamp(-99, 99).numpy() == np.array(STORED["weights"]))[learned].all()
    for name in ("explained", "suffix", "permutation"):
        np.testing.assert_allclose(found[name][learned], np.array(STORED[name])[learned], atol=5e-3)


def test_one_model_is_that_of_its_seed():
    models = load_models()
    for seed in (0, 199, *np.random.default_rng().integers(200, size=5)):
        one = load_model(seed)
        assert len(one) == 1
        assert all(torch.equal(value[0], models.weights[name][seed]) for name, value in one.weights.items())
    assert (len(models), models.norm, models.biased, models.width) == (200, "rms", True, 32)


def test_packing_keeps_every_bit_and_shortening_rounds(tmp_path):
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(5, 3, 4, generator=generator) * 10.0 ** torch.randint(-8, 3, (5, 3, 4), generator=generator)
    values[0, 0, 0] = 0
    assert np.array_equal(unpacked(packed(values)), values.numpy())
    bits = torch.tensor([23, 20, 15, 10, 8])
    short = shortened(values, bits)
    assert torch.equal(short[0], values[0])
    error = ((short - values).abs() / values.abs().clamp_min(1e-30)).flatten(1).amax(1)
    assert (error <= 2.0 ** -(bits.double() + 1)).all()
    assert torch.equal(shortened(short, bits), short)
    models = load_models().map(torch.Tensor.float)
    save_models(tmp_path / "again.npz", models, {})
    with np.load(tmp_path / "again.npz") as arrays, np.load(DATA) as stored:
        assert all(np.array_equal(arrays[name], stored[name]) for name in models.weights)
    assert DATA.stat().st_size < 110_000


@pytest.mark.evidence("odonnat-realisations")
def test_the_overview_is_that_of_the_weights():
    """Of ten models drawn anew; those that never learned have integers that rounding decides."""
    stored, seeds = load_overview(), torch.randperm(200)[:10]
    found = overview(load_models()[seeds])
    learned = found["accuracy"] > 0.55
    for name, value in found.items():
        torch.testing.assert_close(value[learned], stored[name][seeds][learned], atol=1.01e-4, rtol=0)
    torch.testing.assert_close(found["accuracy"], stored["accuracy"][seeds], atol=0.01, rtol=0)


@pytest.mark.evidence("odonnat-sparsity", "odonnat-initialisation")
def test_sparsity_norms_and_attention_of_the_chapters_come_from_the_weights():
    record = results("circuits_in_the_wild")
    accuracy = load_overview()["accuracy"]
    success, learned = accuracy > 0.9, accuracy > 0.55
    models = load_models()
    dense, thresholds = -experiment.sparse(models), np.array(record["sparsity"]["thresholds"])
    found = np.array([experiment.auc(dense[success, at], dense[~success, at]) for at in range(len(thresholds))])
    there = thresholds >= 1e-3
    np.testing.assert_allclose(found[there], np.array(record["sparsity"]["2"]["auc"])[there], atol=0.02)
    norm = experiment.receptor_norm(models)
    assert experiment.auc(norm[success], norm[~success]) == pytest.approx(record["sparsity"]["norm_auc"], abs=0.01)
    pairs = in_parts(
        models[learned], lambda part, _: {"pairs": attention_by_pair(part.stages(TOKENS)["attention"], TOKENS)}
    )["pairs"]
    stored = np.array(record["initialisation"]["pairs_after"])[learned]
    np.testing.assert_allclose(pairs.flatten(1), stored, atol=0.01)
    mass = pairs.mean(1)[:, : TASK.k].sum(1)
    np.testing.assert_allclose(mass, np.array(STORED["mass"])[learned], atol=0.01)


def test_what_a_caller_changes_stays_with_the_caller():
    for load in (lambda: load_models().weights["query"], lambda: load_overview()["accuracy"]):
        before = load().clone()
        load().mul_(0)
        assert torch.equal(load(), before)
