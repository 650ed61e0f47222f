"""A function that is called during training: it sees copies of what there is, changes no number, and can end it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from attnopt.clustering import Settings, Stop, Watch, train
from attnopt.clustering.training import compiled, trainer

ENGINES = [
    False,
    pytest.param(True, marks=pytest.mark.skipif(compiled.compiler() is None, reason="there is no C compiler")),
]
SETTINGS, WATCH = Settings(n_train=64, epochs=7, learning_rate=1e-2), Watch(every=3, snapshots=range(8))


def assert_same(one, other):
    """Bit for bit."""
    assert one.history.keys() == other.history.keys()
    for name, value in one.history.items():
        assert torch.equal(value, other.history[name]), name
    for ours, theirs in [(one.models, other.models), *((one.snapshots[at], other.snapshots[at]) for at in one.snapshots)]:
        assert all(torch.equal(value, theirs.weights[name]) for name, value in ours.weights.items())


@pytest.mark.same_bits
@pytest.mark.parametrize("compiled", ENGINES)
def test_it_is_called_at_each_evaluation_and_changes_no_number(compiled):
    plain, seen = train(range(3), SETTINGS, WATCH, compiled=compiled), []

    def each(epoch, models, history):
        seen.append(epoch)
        assert history["epoch"].tolist() == seen
        for name, value in history.items():
            assert torch.equal(value, plain.history[name][: len(seen)]), name
        for name, value in models.weights.items():
            assert torch.equal(value, plain.snapshots[epoch].weights[name])
        for value in (*models.weights.values(), *history.values()):  # which are copies
            value.zero_()
        torch.rand(5)
        torch.set_num_threads(1)

    found = train(range(3), SETTINGS, WATCH, each=each, compiled=compiled)
    assert seen == [0, 3, 6, 7]
    assert_same(plain, found)
    assert found.stopped == {}


@pytest.mark.same_bits
@pytest.mark.parametrize("compiled", ENGINES)
@pytest.mark.parametrize("truth", [True, np.True_, torch.tensor(True)])
def test_true_ends_the_training_with_what_a_shorter_one_comes_to(compiled, truth):
    found = train(range(3), SETTINGS, Watch(3), each=lambda epoch, *_: truth if epoch >= 2 else None, compiled=compiled)
    assert_same(train(range(3), replace(SETTINGS, epochs=3), Watch(3), compiled=compiled), found)
    assert found.stopped == {model: Stop(3, "each returned True") for model in range(3)}


def test_true_at_the_end_stops_nothing_and_at_the_start_everything():
    assert train([0], SETTINGS, WATCH, each=lambda epoch, *_: epoch == 7).stopped == {}
    found = train([0], SETTINGS, WATCH, each=lambda *_: True)
    assert found.stopped == {0: Stop(0, "each returned True")}
    assert list(found.snapshots) == [0]


def test_a_model_that_has_diverged_keeps_its_own_reason():
    settings = replace(SETTINGS, learning_rate=[1e-2, 3e38])
    with pytest.warns(RuntimeWarning, match="1 of 2 models diverged and stopped; .*\nseed 1 ") as told:
        found = train([0, 1], settings, Watch(every=1), each=lambda epoch, *_: epoch == 4)
    assert len(told) == 1
    assert found.stopped[0] == (4, "each returned True")
    assert found.stopped[1].epoch == 0
    assert "no longer finite" in found.stopped[1].reason
    assert found.history["loss"][1:, 1].isnan().all()


@pytest.mark.same_bits
def test_it_ends_a_training_that_is_taken_up_from_a_checkpoint_where_it_would_have(tmp_path, monkeypatch):
    stop = {"each": lambda epoch, *_: epoch == 6}
    expected, original = train([0], SETTINGS, WATCH, **stop), trainer.advance

    def interrupted(*parts):
        if parts[-1].epoch == 4:
            raise KeyboardInterrupt
        original(*parts)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train([0], SETTINGS, WATCH, checkpoint=tmp_path / "run", checkpoint_every=1, **stop)
    for _ in range(2):
        found = train([0], SETTINGS, WATCH, checkpoint=tmp_path / "run", checkpoint_every=1, **stop)
        assert_same(expected, found)
        assert found.stopped == expected.stopped
    assert_same(train([0], SETTINGS, WATCH), train([0], SETTINGS, WATCH, checkpoint=tmp_path / "run"))


def test_what_is_no_such_function_is_named():
    for error, message, each, settings in (
        (TypeError, "each must be None or a function, got 3", 3, SETTINGS),
        (TypeError, "each must return True, False, or None, got 1", lambda *_: 1, SETTINGS),
        (TypeError, r"each must return .*, got tensor\(\[True\]\)", lambda *_: torch.ones(1) > 0, SETTINGS),
        (TypeError, "each must return True, False, or None, got 'no'", lambda *_: "no", SETTINGS),
        (
            ValueError, "each must be None unless all models have the same batch_size, got sizes 16, 32", print,
            replace(SETTINGS, batch_size=[32, 16]),
        ),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            train([0, 1], settings, each=each)
