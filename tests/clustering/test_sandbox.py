import json
import math

import numpy as np
import pytest
import torch

from attnbook.explorers import Sandbox
from attnopt.clustering import Models, Task, invariance, load_run, run_names
from attnopt.clustering.sandbox import DATA, LARGEST, PARTS, pack, read_frames, save_runs, sentence_parts

NAMES = ["success", "failure", "spike", "faulty_attention", "partial_invariance", "pattern", "fine_tuning"]


def test_the_recorded_runs():
    assert run_names() == sorted(NAMES)
    with np.load(DATA, allow_pickle=False) as arrays:
        assert json.loads(str(arrays["about"]))["provenance"]["command"] == "python experiments/sandbox_runs.py"


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_whole(name):
    run = load_run(name)
    count = len(run.epochs)
    assert 100 <= count <= 160
    assert run.epochs[0] == 0
    assert run.epochs[-1] == 1000
    assert (np.diff(run.epochs) > 0).all()
    assert set(run.epochs) <= set(run.history["epoch"])
    assert len(run.description) < 240
    for values in run.history.values():
        assert len(values) == len(run.history["epoch"])
        assert np.isfinite(values).all()
    for part in PARTS:
        assert run.models.weights[part].shape[0] == count
    assert run.models.weights["token"].shape == (count, run.task.p, 2)


@pytest.mark.parametrize("name", NAMES)
def test_stages_are_those_of_the_model(name):
    run = load_run(name)
    for frame in (0, len(run.epochs) // 2, len(run.epochs) - 1):
        held, model = run.stages(frame), run.at(int(run.epochs[frame]))
        stages = model.stages(run.tokens)
        logits = stages["logits"]
        torch.testing.assert_close(held["embeddings"], model.table()[0])
        for part in ("attention", "sequence"):
            torch.testing.assert_close(held[part], stages[part][0])
        torch.testing.assert_close(held["probabilities"], logits[0].softmax(-1))
        torch.testing.assert_close(run.classify(frame, held["sequence"]), held["probabilities"])
        picked = held["values"][run.tokens, torch.arange(run.task.length)]
        torch.testing.assert_close(torch.einsum("nt,ntd->nd", held["attention"], picked), held["sequence"])


@pytest.mark.parametrize("name", [name for name in NAMES if name != "fine_tuning"])
def test_what_is_told_of_a_frame_is_what_its_parameters_do(name):
    run = load_run(name)
    frames = [0, len(run.epochs) // 2, len(run.epochs) - 1]
    models = run.models[frames]
    tokens = torch.tensor([[number >> (11 - t) & 1 for t in range(12)] for number in range(4096)])
    right = models.logits(tokens).argmax(-1) == tokens[:, :5].sum(1) % 2
    then = [run.history["epoch"].tolist().index(epoch) for epoch in run.epochs[frames]]
    np.testing.assert_allclose(right.double().mean(1), run.history["all"][then], atol=0.003)  # they are quantised
    for part, values in invariance(models, Task()).items():
        np.testing.assert_allclose(values, run.frames[part][frames], atol=0.003)


def test_the_runs_are_what_they_are_called():
    last = {name: {key: values[-1] for key, values in load_run(name).history.items()} for name in NAMES}
    shares = {name: {key: values[-1] for key, values in load_run(name).frames.items()} for name in NAMES}
    assert last["failure"]["all"] < 0.55
    for name in NAMES[:1] + NAMES[2:6]:
        assert last[name]["all"] == 1
    for name in ("success", "faulty_attention"):
        assert min(shares[name]["suffix"], shares[name]["permutation"]) > 0.99
    spike = load_run("spike")
    at = int(np.diff(spike.history["loss"]).argmax())
    assert spike.history["loss"][at] < 0.01
    assert spike.history["loss"][at + 1] > 0.5
    epochs = spike.epochs.tolist()
    here = epochs.index(spike.history["epoch"][at + 1])
    assert epochs[here - 3 : here + 4] == list(range(epochs[here] - 3, epochs[here] + 4))  # every epoch around it
    assert shares["partial_invariance"]["suffix"] < 0.7
    assert shares["pattern"]["permutation"] < 0.2
    assert shares["pattern"]["suffix"] > 0.99
    tokens = torch.tensor([[number >> (11 - t) & 1 for t in range(12)] for number in range(4096)])
    run = load_run("pattern")
    sequence = run.models[-1].stages(tokens)["sequence"][0]
    means, count = sequence.unflatten(0, (32, 128)).mean(1), (tokens[::128, :5] != torch.tensor([0, 0, 1, 1, 1])).sum(1)
    within = sum((means[count == number] - means[count == number].mean(0)).square().sum() for number in range(6))
    assert within < 0.01 * (means - means.mean(0)).square().sum()  # it counts differences from a pattern
    assert load_run("fine_tuning").task.p == 3
    assert last["fine_tuning"]["all"] > 0.95


def test_a_run_says_what_it_is_in_one_line_and_has_no_epoch_before_the_first():
    run = load_run("spike")
    assert repr(run).startswith("Run('spike', Task(p=2, length=12, k=5), norm 'rms', ")
    assert "\n" not in repr(run)
    with pytest.raises(ValueError, match="epoch must be at least 0, got -1"):
        run.at(-1)
    for epoch in (True, math.nan, 0.5, "3"):
        with pytest.raises(TypeError, match="epoch must be an integer"):
            run.at(epoch)


def test_quantisation_error_is_at_most_half_a_step():
    params = Models.random(7, 2, 12, norm="unit", generator=torch.Generator().manual_seed(0), biases=True)
    params.weights["query"] *= 0
    for name, (integers, step) in pack(params.weights).items():
        assert integers.dtype == np.int16
        assert np.abs(integers * step - params.weights[name].numpy()).max() <= step / 2 * (1 + 1e-9)
        assert step == pytest.approx(params.weights[name].abs().max().item() / LARGEST or 1)


def test_a_saved_run_is_read_back(tmp_path, monkeypatch):
    run = load_run("success")
    save_runs(tmp_path / "runs.npz", [run], {})
    monkeypatch.setattr("attnopt.clustering.sandbox.DATA", tmp_path / "runs.npz")
    again = load_run.__wrapped__("success")
    assert again.settings == run.settings
    assert (again.epochs == run.epochs).all()
    assert all((again.packed[part][0] == run.packed[part][0]).all() for part in PARTS)
    with pytest.raises(ValueError, match="name must be one of the recorded runs success, got 'spike'"):
        load_run.__wrapped__("spike")


@pytest.mark.parametrize("name", NAMES)
def test_a_run_stays_small_in_the_page(name):
    assert len(json.dumps(Sandbox(runs=(name,)).data)) < 130_000


def test_frames_of_epochs():
    run = load_run("success")
    for frame, epoch in enumerate(run.epochs):
        assert run.frame(int(epoch)) == frame
    assert run.frame(10**6) == len(run.epochs) - 1
    assert run.frame(int(run.epochs[5]) - 1) == 4


@pytest.mark.parametrize(("p", "length", "k"), [(2, 12, 5), (3, 12, 5), (2, 6, 3), (3, 4, 4)])
def test_sentences_hold_every_multiset_in_several_orders(p, length, k):
    prefixes, suffixes = sentence_parts(Task(p, length, k))
    assert prefixes.shape[1] + suffixes.shape[1] == length
    assert len({tuple(row) for row in prefixes.tolist()}) == len(prefixes)
    kinds = [tuple(sorted(row)) for row in prefixes.tolist()]
    assert kinds == sorted(kinds)
    assert len(set(kinds)) == {2: k + 1, 3: (k + 1) * (k + 2) // 2}[p]
    assert (suffixes[0] != suffixes[-1 if k == length else 1]).all()
    assert len({tuple(row) for row in suffixes.tolist()}) == len(suffixes)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "fine_tuning"])
def test_frames_are_read_from_their_models_and_told_as_they_are(name):
    run = load_run(name)
    some = [0, len(run.epochs) // 3, len(run.epochs) - 1]
    found = read_frames(run.models[some], run.task)
    assert set(found) == set(run.frames)
    for key, values in found.items():
        np.testing.assert_allclose(values, run.frames[key][some], atol=1.001e-4)
    m, explained = run.models[some].count(run.task)
    assert (found["m"] == m.numpy()).all()
    np.testing.assert_allclose(found["explained"], explained, atol=1e-4)
    then = [run.history["epoch"].tolist().index(epoch) for epoch in run.epochs[some]]
    np.testing.assert_allclose(found["all"], run.history["all"][then], atol=0.003)
    spelled = [" ".join(str(one).replace("-", "−") for one in part) for part in (m[-1, :5].tolist(), m[-1, 5:].tolist())]
    assert (f"m = {' | '.join(spelled)}" in run.description) == (name != "failure")
    assert f"Seed {run.settings['seed']}." in run.description


def test_the_success_is_told_with_its_relapse():
    run = load_run("success")
    right, epoch = run.history["all"], run.history["epoch"]
    assert f"At epoch {epoch[(right >= 0.98).argmax()]}, at least 98% " in run.description
    assert f"; {epoch[right < 0.98][-1]} is the last recorded epoch below it." in run.description
    assert (right[epoch > epoch[right < 0.98][-1]] >= 0.98).all()
