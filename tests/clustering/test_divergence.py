"""Models that diverge: they stop where they could last be evaluated, which is told, and the others notice nothing."""

import warnings
from dataclasses import replace

import pytest
import torch

from attnopt.clustering import Settings, State, Watch, ensemble, initial_models, load_training, save_training, train
from attnopt.clustering.files import read_arrays, write_arrays
from attnopt.clustering.sandbox import Run
from attnopt.clustering.training import compiled, trainer
from attnopt.clustering.training.record import join, stop_of

ENGINES = [
    False,
    pytest.param(True, marks=pytest.mark.skipif(compiled.compiler() is None, reason="there is no C compiler")),
]
SEEDS, EPOCHS = [3, 4, 5, 6, 7], 12
RATES = [3e-3, 8.0, 1e-2, 3e38, 3e-3]  # the second's scores spread too far after some epochs, the fourth overflows at once
SETTINGS = Settings(n_train=64, epochs=EPOCHS, learning_rate=RATES, batch_size=[32, 32, 16, 16, 16], clip=0.5)
WATCH = Watch(every=1, snapshots=range(EPOCHS + 1))
REST = [0, 2, 4]
TOO_FAR, NOT_FINITE = r"its attention scores came to spread over [0-9.]+, beyond 80", "its .* were no longer finite"
USUAL = "mlp_discount 1, weight_decay 0, clip 0.5"
WARNING = rf"""2 of 5 models diverged and stopped; .*
seed 4 \(width 32, batch_size 32, learning_rate 8, {USUAL}\) after epoch [0-9]+: {TOO_FAR}
seed 6 \(width 32, batch_size 16, learning_rate 3e\+38, {USUAL}\) after epoch 0: {NOT_FINITE}$"""


def quietly(function, *given, **named):
    """What a function returns that warns once of the two."""
    with pytest.warns(RuntimeWarning, match=WARNING) as told:
        found = function(*given, **named)
    assert len(told) == 1
    assert told[0].filename == __file__  # the caller's line, not one of ours
    return found


def assert_same(one, other):
    """Bit for bit."""
    assert one.stopped == other.stopped
    for name, value in one.history.items():
        torch.testing.assert_close(value, other.history[name], rtol=0, atol=0, equal_nan=True, msg=name)
    for ours, theirs in [(one.models, other.models), *((one.snapshots[at], other.snapshots[at]) for at in one.snapshots)]:
        assert all(torch.equal(value, theirs.weights[name]) for name, value in ours.weights.items())


@pytest.mark.parametrize("compiled", ENGINES)
def test_a_model_that_diverges_stops_with_what_it_last_was(compiled):
    found = quietly(train, SEEDS, SETTINGS, WATCH, compiled=compiled)
    assert list(found.stopped) == [1, 3]
    assert 0 < found.stopped[1].epoch < EPOCHS
    assert found.stopped[3].epoch == 0
    assert repr(found).endswith(", [1, 3] stopped)")
    for model, stop in found.stopped.items():
        for name, value in found.history.items():
            if name != "epoch":
                assert value[: stop.epoch + 1, model].isfinite().all(), name
                assert value[stop.epoch + 1 :, model].isnan().all(), name
        for epoch in range(stop.epoch, EPOCHS + 1):
            for name, value in found.snapshots[epoch].weights.items():
                assert torch.equal(value[model], found.models.weights[name][model])
        scores = found.models[model].scores()
        assert scores.max() - scores.min() <= 80
        still = replace(SETTINGS.each(5).of([model]), epochs=0)
        again = train([SEEDS[model]], still, start=found.models[model], compiled=compiled).history
        for name in ("loss", "accuracy", "loss_unseen", "accuracy_all"):
            torch.testing.assert_close(again[name][0, 0], found.history[name][stop.epoch, model], rtol=1e-5, atol=1e-5)


@pytest.mark.same_bits
@pytest.mark.parametrize("compiled", ENGINES)
def test_the_others_are_as_without_it(compiled):
    found = quietly(train, SEEDS, SETTINGS, WATCH, compiled=compiled)
    with warnings.catch_warnings(action="error"):
        alone = train([SEEDS[at] for at in REST], SETTINGS.each(5).of(REST), WATCH, compiled=compiled)
    assert alone.stopped == {}
    for name, value in alone.history.items():
        assert torch.equal(value, found.history[name] if name == "epoch" else found.history[name][:, REST]), name
    for epoch, models in {**alone.snapshots, -1: alone.models}.items():
        theirs = found.models if epoch == -1 else found.snapshots[epoch]
        assert all(torch.equal(value, theirs.weights[name][REST]) for name, value in models.weights.items())


@pytest.mark.same_bits
@pytest.mark.parametrize("compiled", ENGINES)
@pytest.mark.parametrize("at", [1, EPOCHS - 1])  # before the second model stops, and after
def test_an_interrupted_training_remembers_who_stopped(tmp_path, monkeypatch, compiled, at):
    whole = quietly(train, SEEDS, SETTINGS, WATCH, compiled=compiled)
    original = trainer.advance

    def until(*parts):
        if parts[-1].epoch == at:
            raise KeyboardInterrupt
        original(*parts)

    file = {"checkpoint": tmp_path / "run", "checkpoint_every": 1, "compiled": compiled}
    monkeypatch.setattr(trainer, "advance", until)
    with pytest.raises(KeyboardInterrupt):
        train(SEEDS, SETTINGS, WATCH, **file)
    monkeypatch.setattr(trainer, "advance", original)
    assert_same(whole, quietly(train, SEEDS, SETTINGS, WATCH, **file))
    assert_same(whole, quietly(train, SEEDS, SETTINGS, WATCH, **file))  # from the end


@pytest.mark.same_bits
@pytest.mark.parametrize("compiled", ENGINES)
def test_chunks_remember_who_stopped(tmp_path, monkeypatch, compiled):
    whole = quietly(train, SEEDS, SETTINGS, WATCH, compiled=compiled)
    how = {"watch": WATCH, "chunk": 2, "compiled": compiled}
    assert_same(whole, quietly(ensemble, SEEDS, SETTINGS, tmp_path, jobs=2, **how))
    monkeypatch.setattr(trainer, "train_quietly", None)  # from here on chunks are read
    assert_same(whole, quietly(ensemble, SEEDS, SETTINGS, tmp_path, jobs=1, **how))


def test_stops_go_through_files_and_joining(tmp_path):
    found = quietly(train, SEEDS, SETTINGS, WATCH)
    save_training(tmp_path / "training.npz", found)
    assert_same(found, load_training(tmp_path / "training.npz"))
    twice = join([found, found], torch.tensor([1, 8, 0, 6]))
    one, other = found.stopped.values()
    assert twice.stopped == {0: one, 1: other, 3: one}
    assert join([found, found]).stopped == {1: one, 3: other, 6: one, 8: other}
    run = Run.of_training(found, SETTINGS.task, model=1)
    assert str(one.epoch) in run.description
    assert one.reason in run.description


def test_files_from_before_models_could_stop_are_read(tmp_path):
    settings = Settings(n_train=64, epochs=2)
    whole = train([1], settings, checkpoint=tmp_path / "run", checkpoint_every=1)
    arrays, description = read_arrays(tmp_path / "run.32.npz")
    assert arrays.keys() >= {"stopped", "spread"}
    write_arrays(
        tmp_path / "run.32.npz",
        {name: value for name, value in arrays.items() if name not in ("stopped", "spread")},
        description,
    )
    assert_same(whole, train([1], settings, checkpoint=tmp_path / "run"))
    save_training(tmp_path / "training.npz", whole)
    arrays, about = read_arrays(tmp_path / "training.npz")
    write_arrays(tmp_path / "training.npz", arrays, about.replace(', "stopped": {}', ""))
    assert_same(whole, load_training(tmp_path / "training.npz"))


@pytest.mark.parametrize("compiled", ENGINES)
@pytest.mark.parametrize("clip", [float("inf"), 0.1])
def test_every_model_of_a_training_may_stop_and_evaluations_be_rare(compiled, clip):
    settings = Settings(n_train=64, epochs=4, learning_rate=[3e38, 1e20], clip=clip, weight_decay=[0.0, 1e-22])
    with pytest.warns(RuntimeWarning, match="2 of 2 models diverged"):
        found = train([0, 1], settings, Watch(every=3), compiled=compiled)
    assert found.history["epoch"].tolist() == [0, 3, 4]
    assert found.history["loss"].isnan().tolist() == [[False] * 2, [True] * 2, [True] * 2]
    assert all(torch.equal(value, found.models.weights[name]) for name, value in initial_models([0, 1]).weights.items())


@pytest.mark.parametrize("compiled", ENGINES)
def test_scores_that_spread_too_far_for_some_steps_of_an_epoch_stop_a_model_too(compiled):
    """Its gradients were wrong there, though weights that decay fast bring it back before the epoch ends."""
    start = initial_models([0, 1])
    scores = start.scores().flatten(1)
    query = start.weights["query"].clone()
    query[1] *= 81 / (scores[1].max() - scores[1].min())
    start = start.replace(query=query)
    settings = Settings(n_train=64, learning_rate=1e-6, weight_decay=2e5).each(2)
    parts = _, state, _, record = trainer.begin([0, 1], settings, Watch(), start, compiled)
    trainer.advance(*parts)
    ends = record.stopped[:2].tolist(), record.spread[:2].tolist()
    assert ends == ([-1, 0], [0.0, pytest.approx(81, abs=0.1)])
    query = record.models_of(state.rows).weights["query"]
    assert torch.equal(query[1], start.weights["query"][1])
    assert not torch.equal(query[0], start.weights["query"][0])


@pytest.mark.parametrize("compiled", ENGINES)
def test_a_loss_that_overflows_stops_a_model_whose_weights_are_finite(compiled):
    """The only step of an epoch makes the feed-forward layer so large that no logit is finite."""
    settings = Settings(n_train=32, learning_rate=1e-2, mlp_discount=[1.0, 1e-38]).each(2)
    engine, state, pace, record = trainer.begin([0, 1], settings, Watch(), initial_models([0, 1]), compiled)
    after = State(*(part.clone() for part in state))
    engine.epoch(after, torch.arange(32), pace, record.squares, record.spread.clone())
    assert all(value.isfinite().all() for value in after)
    trainer.advance(engine, state, pace, record)
    assert record.stopped[:2].tolist() == [-1, 0]


@pytest.mark.parametrize("compiled", ENGINES)
def test_moments_that_overflow_stop_a_model_that_they_would_hold_still(compiled):
    start = initial_models([0, 1])
    parts = _, state, _, record = trainer.begin([0, 1], Settings(n_train=64).each(2), Watch(), start, compiled)
    state.second[1, 0] = float("inf")
    trainer.advance(*parts)
    assert record.stopped[:2].tolist() == [-1, 0]
    assert torch.equal(record.models_of(state.rows).weights["query"][1], initial_models([1]).weights["query"][0])


def test_a_start_whose_scores_spread_too_far_is_refused_by_its_place_among_the_seeds():
    start, scores = initial_models(range(4)), initial_models(range(4)).scores().flatten(1)
    query = start.weights["query"].clone()
    query[2] *= 81 / (scores[2].max() - scores[2].min())
    for function in (train, ensemble):
        with pytest.raises(ValueError, match=r"within 80 of each other.* of model 2 spread over 81\.0"):
            function(range(4), Settings(n_train=64, batch_size=[32, 32, 16, 16]), start=start.replace(query=query))


def test_why_a_model_stopped():
    assert stop_of(7, 81.26) == (7, "its attention scores came to spread over 81.3, beyond 80")
    for spread in (3.0, 80.0, float("nan")):
        assert stop_of(7, spread) == (7, "its weights, gradients or losses were no longer finite")
