"""Training goes on from a kept state as if it had never stopped, and branches from it."""

from dataclasses import replace

import pytest
import torch

from attnopt.clustering import Settings, Watch, ensemble, load_training, save_training, train, training_data
from attnopt.clustering.training import compiled, trainer
from attnopt.clustering.training.laboratory import Orders

ENGINES = [
    False,
    pytest.param(True, marks=pytest.mark.skipif(compiled.compiler() is None, reason="there is no C compiler")),
]
SETTINGS = Settings(n_train=128, epochs=7, learning_rate=1e-2, weight_decay=0.1, clip=0.5)
WATCH = Watch(every=2, snapshots=range(8), resumable=True)
AFTER = Watch(every=2, snapshots=[5, 6, 7], resumable=True)


def assert_same(whole, branch, begin):
    """Bit for bit, after the epoch where the branch begins."""
    rows = whole.history["epoch"] > begin
    assert branch.history.keys() == whole.history.keys()
    for name, value in branch.history.items():
        torch.testing.assert_close(value, whole.history[name][rows], rtol=0, atol=0, equal_nan=True, msg=name)
    for ours, theirs in [
        (branch.models, whole.models), *((branch.snapshots[at], whole.snapshots[at]) for at in branch.snapshots)
    ]:  # fmt: skip
        assert all(torch.equal(value, theirs.weights[name]) for name, value in ours.weights.items())
    assert branch.stopped == whole.stopped
    for epoch, state in branch.states.items():
        assert state.epoch == epoch
        assert state.memory.keys() == whole.states[epoch].memory.keys()
        for name, value in state.memory.items():
            torch.testing.assert_close(value, whole.states[epoch].memory[name], rtol=0, atol=0, equal_nan=True, msg=name)


@pytest.mark.same_bits
@pytest.mark.parametrize("compiled", ENGINES)
@pytest.mark.parametrize("begin", [0, 3, 4])  # an evaluation is due after 4, none after 3
@pytest.mark.parametrize("batch_size", [32, [16, 32, 16]])
def test_a_branch_is_the_uninterrupted_training(compiled, begin, batch_size, tmp_path):
    settings = replace(SETTINGS, batch_size=batch_size)
    whole = train(range(3), settings, WATCH, compiled=compiled)
    assert list(whole.states) == list(whole.snapshots)
    assert_same(whole, train(range(3), settings, AFTER, start=whole.states[begin], compiled=compiled), begin)
    save_training(tmp_path / "whole.npz", whole)
    loaded = load_training(tmp_path / "whole.npz")
    assert_same(whole, loaded, -1)
    assert list(loaded.states) == list(whole.states)
    assert_same(whole, train(range(3), settings, AFTER, start=loaded.states[begin], compiled=compiled), begin)


@pytest.mark.same_bits
def test_a_branch_goes_on_with_the_laboratorys_order():
    settings = replace(SETTINGS, draws="laboratory", n_train=64)
    whole = train(range(2), settings, WATCH)
    assert_same(whole, train(range(2), settings, AFTER, start=whole.states[4]), 4)


@pytest.mark.same_bits
@pytest.mark.parametrize("compiled", ENGINES)
def test_a_model_that_had_diverged_stays_as_it_was(compiled):
    settings = replace(SETTINGS, clip=float("inf"), learning_rate=[1e-2, 3e38])
    with pytest.warns(RuntimeWarning, match="diverged"):
        whole = train([0, 1], settings, WATCH, compiled=compiled)
    with pytest.warns(RuntimeWarning, match="diverged"):
        assert_same(whole, train([0, 1], settings, AFTER, start=whole.states[4], compiled=compiled), 4)


@pytest.mark.same_bits
def test_some_models_branch_in_chunks_from_checkpoints_and_beyond_the_end(tmp_path, monkeypatch):
    settings = Settings(n_train=64, epochs=7)
    whole, longer = (train(range(5), replace(settings, epochs=epochs), WATCH) for epochs in (7, 9))
    some = whole.states[4][1:4]
    assert repr(some).startswith("TrainingState of 3 Models(2 tokens")
    parts = ensemble(range(1, 4), settings, tmp_path, watch=AFTER, start=some, chunk=2, jobs=1)
    for name, value in parts.models.weights.items():
        assert torch.equal(value, whole.models.weights[name][1:4])
    assert torch.equal(parts.states[6].memory["first"], whole.states[6].memory["first"][1:4])
    with pytest.raises(ValueError, match="other settings"):
        ensemble(range(1, 4), settings, tmp_path, watch=AFTER, start=whole.states[3][1:4], chunk=2, jobs=1)
    further = train(range(5), replace(settings, epochs=9), Watch(2), start=whole.states[7])
    assert further.history["epoch"].tolist() == [8, 9]
    for name, value in further.models.weights.items():
        assert torch.equal(value, longer.models.weights[name])

    original = trainer.advance

    def interrupted(*parts):
        if parts[-1].epoch == 6:
            raise KeyboardInterrupt
        original(*parts)

    how = {"start": whole.states[3], "checkpoint": tmp_path / "run", "checkpoint_every": 1}
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train(range(5), settings, AFTER, **how)
    assert_same(whole, train(range(5), settings, AFTER, **how), 3)


def test_a_branch_may_have_other_settings():
    whole = train(range(2), SETTINGS, WATCH)
    branch = train(range(2), replace(SETTINGS, learning_rate=1e-3), Watch(every=1), start=whole.states[4])
    fresh = train(range(2), SETTINGS, start=whole.snapshots[4])
    assert branch.history["epoch"].tolist() == [5, 6, 7]
    for other in (branch, fresh):
        assert not torch.equal(other.models.weights["query"], whole.models.weights["query"])
    seen = []
    train(range(2), SETTINGS, Watch(2), start=whole.states[4], each=lambda epoch, *_: seen.append(epoch))
    assert seen == [6, 7]


@pytest.mark.same_bits
@pytest.mark.parametrize("draws", ["torch", "laboratory"])
def test_the_seeds_of_a_branch_decide_its_data_and_the_laboratorys_order(draws, monkeypatch):
    settings = replace(SETTINGS, draws=draws)
    whole = train(range(2), settings, WATCH)
    others = train([5, 6], settings, AFTER, start=whole.states[4])
    assert not torch.equal(others.models.weights["query"], whole.models.weights["query"])
    monkeypatch.setattr(trainer, "training_data", lambda seeds, *what: training_data(range(2), *what))
    same = train([5, 6], settings, AFTER, start=whole.states[4])
    if draws == "torch":
        assert_same(whole, same, 4)
    else:
        assert not torch.equal(same.models.weights["query"], whole.models.weights["query"])
        monkeypatch.setattr(trainer, "Orders", lambda seeds, count: Orders(range(2), count))
        assert_same(whole, train([5, 6], settings, AFTER, start=whole.states[4]), 4)


def test_what_is_no_state_to_begin_with_is_named():
    whole = train(range(2), SETTINGS, WATCH)
    assert train(range(2), SETTINGS, Watch(snapshots=[3])).states == {}
    for error, message, settings, watch, start in (
        (ValueError, "start must be of an epoch before the last, 7, got epoch 7", SETTINGS, Watch(), whole.states[7]),
        (ValueError, "snapshots must be epochs from 5 to 7, got 4", SETTINGS, Watch(2, [4]), whole.states[4]),
        (ValueError, "number of models 2, got 1", SETTINGS, Watch(), whole.states[4][0]),
        (ValueError, "width 16, got 32", replace(SETTINGS, width=16), Watch(), whole.states[4]),
        (TypeError, "start must be Models or a TrainingState, .* got dict", SETTINGS, Watch(), whole.states),
    ):
        with pytest.raises(error, match=message):
            train(range(2), settings, watch, start=start)
    with pytest.raises(TypeError, match="resumable must be True or False, got 1"):
        Watch(resumable=1)
