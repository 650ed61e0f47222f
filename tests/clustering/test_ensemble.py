"""Ensembles in chunks: the same numbers however they are divided, taken up where they were left, never mixed up."""

import json
import re
from dataclasses import fields, replace

import pytest
import torch
from ensembles import nested, seeded

from attnopt.clustering import Settings, Task, Watch, ensemble, initial_models, save_training, train, training_data
from attnopt.clustering.files import read_arrays
from attnopt.clustering.task import TEST_SEED
from attnopt.clustering.training import trainer

SETTINGS = Settings(epochs=2, n_train=128, batch_size=[32, 64, 32, 16, 32])
WATCH = Watch(snapshots=(2, 0))
TINY = Settings(epochs=1, n_train=64)
FOUR = Settings(epochs=4, n_train=64)


def assert_same(one, other):
    """Bit for bit."""
    pairs = [(one.models, other.models), *((models, other.snapshots[epoch]) for epoch, models in one.snapshots.items())]
    for ours, theirs in pairs:
        assert ours.norm == theirs.norm
        assert all(torch.equal(value, theirs.weights[name]) for name, value in ours.weights.items())
    for name, value in one.history.items():
        assert torch.equal(value, other.history[name]), name


@pytest.mark.same_bits
def test_neither_chunks_nor_processes_change_numbers(tmp_path):
    expected = train(range(5), SETTINGS, WATCH)
    assert_same(expected, ensemble(range(5), SETTINGS, watch=WATCH, chunk=2, jobs=2))
    assert_same(expected, ensemble(range(5), SETTINGS, tmp_path, watch=WATCH, chunk=3, jobs=1))
    assert_same(expected, ensemble(range(5), SETTINGS, tmp_path, watch=WATCH, chunk=3, jobs=2))  # read again
    assert sorted(file.name for file in tmp_path.iterdir()) == ["chunk_00000.npz", "chunk_00003.npz"]


@pytest.mark.same_bits
def test_finished_chunks_are_read_and_others_trained(tmp_path, monkeypatch):
    expected = ensemble(range(5), SETTINGS, tmp_path, watch=WATCH, chunk=2, jobs=1)
    (tmp_path / "chunk_00002.npz").unlink()
    trained, plain = [], trainer.train_quietly
    monkeypatch.setattr(
        trainer, "train_quietly", lambda seeds, *how, **more: trained.append(seeds) or plain(seeds, *how, **more)
    )
    assert_same(expected, ensemble(range(5), SETTINGS, tmp_path, watch=WATCH, chunk=2, jobs=1))
    assert trained == [[2, 3]]


@pytest.mark.same_bits
def test_an_interrupted_chunk_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    expected = ensemble(range(2), FOUR, jobs=1)
    original, passes = trainer.advance, []

    def interrupted(*parts):
        passes.append(parts[-1].epoch)
        if len(passes) == 3:
            raise KeyboardInterrupt
        original(*parts)

    monkeypatch.setattr(trainer, "advance", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ensemble(range(2), FOUR, tmp_path, jobs=1, checkpoint_every=1)
    assert_same(expected, ensemble(range(2), FOUR, tmp_path, jobs=1, checkpoint_every=1))
    assert passes == [0, 1, 2, 2, 3]
    assert [file.name for file in tmp_path.iterdir()] == ["chunk_00000.npz"]


def test_chunks_of_other_settings_are_refused(tmp_path):
    start = initial_models(range(4))
    for _ in range(2):
        ensemble(range(4), TINY, tmp_path, jobs=1, start=start, compiled=False)
    turned = start.map(lambda value: value.flip(0))
    several = replace(TINY, learning_rate=1e-2, eps=1e-4, clip=1.0, mlp_discount=2.0)
    for seeds, settings, said, other in (
        (range(4), TINY, "another start", {"start": turned}),
        (range(4), TINY, "another start", {"start": None}),
        (range(4), replace(TINY, learning_rate=1e-2), "learning_rate 0.003, not 0.01", {}),
        (range(1, 5), TINY, "other seeds, or another chunk", {}),
        (range(4), TINY, "other seeds, or another chunk", {"chunk": 2}),
        (range(4), replace(TINY, eps=1e-4), "other seeds, or another chunk; eps 1e-08, not 0.0001", {"chunk": 2}),
        (range(4), replace(TINY, clip=[1.0, 1.0, 2.0, 1.0]), "clip inf, not [1.0, 1.0, 2.0, 1.0]", {}),
        (range(4), replace(TINY, clip=[1 / 3, 1 / 7, 1 / 9, 1 / 11]), "another clip", {}),
        (range(4), replace(TINY, betas=(0.9, 0.99)), "betas [0.9, 0.999], not [0.9, 0.99]", {}),
        (range(4), several, "eps 1e-08, not 0.0001; learning_rate 0.003, not 0.01; mlp_discount 1.0, not 2.0; …", {}),
        (range(4), TINY, "compiled False, not True", {"compiled": True}),
        (range(4), TINY, "dtype torch.float32, not torch.float64", {"dtype": torch.float64}),
        (range(4), TINY, "snapshots [], not [1]", {"watch": Watch(snapshots=[1])}),
        (range(4), replace(TINY, task=replace(TINY.task, rule=majority)), "other labels or sequences of the task", {}),
    ):
        message = f"chunk_00000.npz was written by other settings ({said}): remove it, or name another place"
        with pytest.raises(ValueError, match=re.escape(message)):
            ensemble(seeds, settings, tmp_path, **{"jobs": 1, "start": start, "compiled": False} | other)
    (tmp_path / "chunk_00000.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match="chunk_00000.npz cannot be read"):
        ensemble(range(4), TINY, tmp_path, jobs=1, start=start)


def test_what_a_chunk_bears_says_every_setting_aloud(tmp_path):
    """So that a chunk is not read back as current when a default has changed since: it bears what the default was."""
    ensemble([3], TINY, tmp_path, jobs=1, compiled=False)
    said = json.loads(json.loads(read_arrays(tmp_path / "chunk_00000.npz")[1])["description"])
    assert said["settings"].keys() == {field.name for field in fields(Settings)}
    assert said["watch"].keys() == {field.name for field in fields(Watch)}
    assert said["settings"]["learning_rate"] == [3e-3]


def test_a_chunk_from_before_a_setting_was_one_is_read_as_what_the_setting_then_was(tmp_path):
    training = ensemble([3], TINY, tmp_path, jobs=1)
    file = tmp_path / "chunk_00000.npz"
    said = json.loads(json.loads(read_arrays(file)[1])["description"])
    del said["settings"]["betas"], said["settings"]["eps"], said["watch"]["resumable"]
    save_training(file, training, json.dumps(said))
    assert_same(training, ensemble([3], TINY, tmp_path, jobs=1))
    for other in ({"betas": (0.9, 0.99)}, {"eps": 1e-4}, {"learning_rate": 1e-2}):
        with pytest.raises(ValueError, match="written by other settings"):
            ensemble([3], replace(TINY, **other), tmp_path, jobs=1)


def majority(tokens):
    return (tokens[..., :5].sum(-1) > 2).long()


class Ones(Task):
    """Sequences drawn otherwise, with the labels of `Task`."""

    def sample(self, count, generator):
        tokens, _ = super().sample(count, generator)
        return self.labeled(tokens.clamp_min(tokens.roll(1, -1)))


def other_tasks(length):
    """Tasks of one p, L and k, no two of which are the same; `Task` is the first."""
    turned = torch.arange(length) % 2
    ours = [Task(2, length, 5, rule) for rule in (None, majority, turned, 1 - turned)]
    return [*ours, Ones(2, length, 5), Task(2, length, 5, torch.arange(2**length) % 2)]


@pytest.mark.parametrize("length", [6, 14])  # whose sequences are listed, and sampled
def test_no_task_is_answered_with_the_runs_of_another(tmp_path, length):
    """Of the same p, L and k, with labels or sequences of its own: neither from a chunk nor from a checkpoint."""
    tasks, settings = other_tasks(length), [replace(TINY, task=task) for task in other_tasks(length)]
    for at, first in enumerate(settings):
        place = tmp_path / str(at)
        stored = ensemble(range(2), first, place / "chunks", jobs=1)
        train(range(2), first, checkpoint=place / "run")
        for second in settings:
            if second is first:
                again = replace(TINY, task=replace(tasks[at]))  # another object of the same task
                assert_same(stored, ensemble(range(2), again, place / "chunks", jobs=1))
                assert_same(stored, train(range(2), again, checkpoint=place / "run"))
                continue
            with pytest.raises(ValueError, match="chunk_00000.npz was written by other settings"):
                ensemble(range(2), second, place / "chunks", jobs=1)
            with pytest.raises(ValueError, match="run.32.npz was written by other settings"):
                train(range(2), second, checkpoint=place / "run")


def test_a_task_that_differs_only_where_models_are_judged_is_another(tmp_path):
    """Its training data are those of `Task`: only one sequence, which is not among them, has another label."""

    class Turned(Task):
        def labels(self, tokens):
            return super().labels(tokens) ^ (tokens == torch.tensor([1, 1, 1, 1, 0, 1])).all(-1).long()

    plain, turned = (replace(TINY, n_train=4, task=kind(2, 6, 5)) for kind in (Task, Turned))
    assert all(map(torch.equal, *(training_data([0], one.task, 4) for one in (plain, turned))))
    ensemble([0], plain, tmp_path, jobs=1)
    with pytest.raises(ValueError, match="other settings"):
        ensemble([0], turned, tmp_path, jobs=1)


def test_what_files_of_the_plain_task_bear_is_what_it_always_was(tmp_path):
    ensemble([3], TINY, tmp_path, jobs=1, compiled=False)
    said = json.loads(json.loads(read_arrays(tmp_path / "chunk_00000.npz")[1])["description"])
    assert said["settings"]["task"] == {"p": 2, "length": 12, "k": 5}
    assert said.keys() == {"seeds", "settings", "watch", "dtype", "start"}


def test_refuses_what_makes_no_sense():
    with pytest.raises(ValueError, match="seeds"):
        ensemble([])
    with pytest.raises(ValueError, match="chunk"):
        ensemble([1], chunk=0)
    with pytest.raises(ValueError, match="clip"):
        ensemble([1, 2], Settings(clip=[1.0]))
    with pytest.raises(ValueError, match="start"):
        ensemble([1, 2], start=initial_models(range(3)))


def test_test_sequences_and_added_tokens_have_streams_of_their_own():
    """The CPU's generator reads the last 32 bits of a seed: 2³² + 7 begins the numbers of 7 again."""
    generators = [torch.Generator().manual_seed(seed) for seed in (*range(1001), TEST_SEED)]
    generators += [seeded(seed) for seed in range(1001)]
    generators += [torch.Generator().manual_seed(5 * 2**29 + seed) for seed in range(1001)]  # of `nested`
    first = [torch.rand(1, dtype=torch.float64, generator=generator).item() for generator in generators]
    assert len(set(first)) == len(first)
    again = torch.rand(1, dtype=torch.float64, generator=torch.Generator().manual_seed(2**32 + 7)).item()
    assert again == first[7]


def test_neurons_of_a_narrower_model_are_the_first_of_a_wider_one():
    narrow, usual, wide = (nested(range(3), width).weights for width in (8, 32, 128))
    assert all(torch.equal(value, usual[name]) for name, value in initial_models(range(3)).weights.items())
    for less, more, few in ((narrow, usual, 8), (usual, wide, 32)):
        assert torch.equal(less["receptors"], more["receptors"][:, :few])
        assert torch.equal(less["receptor_biases"], more["receptor_biases"][:, :few])
        ratio = (more["receptors"].shape[1] / few) ** 0.5
        torch.testing.assert_close(less["assemblers"], ratio * more["assemblers"][:, :, :few])
        torch.testing.assert_close(less["assembler_bias"], ratio * more["assembler_bias"])
        assert all(torch.equal(less[name], more[name]) for name in ("token", "position", "query", "value"))
    drawn = initial_models(range(3), Settings(width=128)).weights
    for name in ("receptors", "assemblers", "receptor_biases"):
        assert wide[name].shape == drawn[name].shape
        assert wide[name].abs().max() == pytest.approx(drawn[name].abs().max().item(), rel=0.05)
