"""Training ensembles: the written-out gradients, Adam, the record, independence of the company, exact resumption."""

import math
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from attnopt.clustering import (
    PAPER,
    Models,
    Settings,
    Task,
    Watch,
    ensemble,
    initial_models,
    invariance,
    load_training,
    normalize,
    save_training,
    train,
    training_data,
)
from attnopt.clustering.model import marks
from attnopt.clustering.task import TEST_SEED
from attnopt.clustering.training import compiled as in_c
from attnopt.clustering.training import step, trainer
from attnopt.clustering.training.backward import Layout, loss_and_gradients, normalizer, pull_back
from attnopt.clustering.training.record import Record
from attnopt.clustering.training.step import FEED_FORWARD, ORDER_SEED, Pace, State, adam

needs_compiler = pytest.mark.skipif(in_c.compiler() is None, reason="there is no C compiler")


@pytest.mark.evidence("odonnat-faithful-to-practice")
@pytest.mark.parametrize("norm", ["unit", "rms", "smooth"])
@pytest.mark.parametrize(("dim", "p", "vocabulary"), [(1, 2, 2), (2, 2, 2), (3, 3, 4), (5, 2, 3)])
def test_gradients_are_autograds(norm, dim, p, vocabulary):
    generator = torch.Generator().manual_seed(dim)
    models = Models.random(4, vocabulary, 6, dim, 7, norm=norm, generator=generator, biases=True)
    models.weights["token"][0, 0] = models.weights["position"][0, 0] = 0  # whose sum has no direction
    tokens, targets = Task(p, 6, 3).sample(4 * 9, generator)
    tokens, targets = tokens.unflatten(0, (4, 9)), targets.unflatten(0, (4, 9))
    layout = Layout.of(models.weights)
    rows = layout.rows(models.weights)
    gradient = torch.full_like(rows, 9.0)
    truth = one_hot(targets, vocabulary).mT.to(rows.dtype)
    losses = loss_and_gradients(
        layout.views(rows), layout.views(gradient), marks(tokens, vocabulary, rows.dtype), truth, norm
    )
    leaves = models.map(torch.Tensor.requires_grad_)
    logits = leaves.logits(tokens)
    expected = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").unflatten(0, (4, 9)).mean(1)
    torch.testing.assert_close(losses, expected)
    expected.sum().backward()
    for name, value in layout.views(gradient).items():
        torch.testing.assert_close(value, leaves.weights[name].grad, msg=name)


@pytest.mark.parametrize("norm", ["unit", "rms", "smooth"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_through_each_normalization_at_chosen_lengths(norm, dtype):
    lengths = torch.tensor([0.005, 0.02, 0.3, 0.5, 0.97, 0.995, 1.0, 1.005, 4.0], dtype=dtype)
    vectors = (torch.tensor([[0.6], [0.8]], dtype=dtype) * lengths).unsqueeze(0)  # features first
    pull = torch.tensor([[[1.0], [-0.5]]], dtype=dtype).expand_as(vectors)
    factor, bend = normalizer(vectors, norm)
    leaf = vectors.mT.clone().requires_grad_()
    out = normalize(leaf, norm)
    torch.testing.assert_close(vectors * factor, out.mT)
    (out * pull.mT).sum().backward()
    torch.testing.assert_close(pull_back(pull, vectors, factor, bend), leaf.grad.mT, rtol=1e-4, atol=1e-4)


def plain_training(seed, epochs, batch_size=32, vocabulary=2, clip=None, discount=1.0, start=None, **adam):
    """One model, one loop, torch's own Adam and autograd."""
    start = start or initial_models([seed], Settings(vocabulary=vocabulary), dtype=torch.float64)
    model = start.map(lambda value: value.clone().requires_grad_())
    tokens, targets = training_data([seed], Task(), 256)
    slow = [value for name, value in model.weights.items() if name in FEED_FORWARD]
    fast = [value for name, value in model.weights.items() if name not in FEED_FORWARD]
    groups = [{"params": fast}, {"params": slow, "lr": 3e-3 / discount}]
    optimiser = torch.optim.AdamW(groups, lr=3e-3, **({"weight_decay": 0.0} | adam))
    for epoch in range(epochs):
        order = torch.randperm(256, generator=torch.Generator().manual_seed(ORDER_SEED + epoch))
        for batch in order.split(batch_size):
            optimiser.zero_grad()
            cross_entropy(model.logits(tokens[:, batch])[0], targets[0, batch]).backward()
            if clip:
                length = torch.cat([value.grad.flatten() for value in model.weights.values()]).norm()
                for value in model.weights.values():
                    value.grad *= min(1.0, clip / length)
            optimiser.step()
    return model.map(torch.Tensor.detach).weights


@pytest.mark.parametrize(
    ("settings", "plain"),
    [
        ({}, {}),
        ({"batch_size": 48}, {"batch_size": 48}),
        ({"batch_size": 1000, "weight_decay": 0.1}, {"batch_size": 256, "weight_decay": 0.1}),
        ({"vocabulary": 4}, {"vocabulary": 4}),
        ({"clip": 0.3}, {"clip": 0.3}),
        ({"mlp_discount": 7.0, "weight_decay": 0.1}, {"discount": 7.0, "weight_decay": 0.1}),
    ],
)
def test_training_is_that_of_torchs_adam(settings, plain):
    training = train([3, 5], Settings(n_train=256, epochs=3, **settings), Watch(every=3), dtype=torch.float64)
    for name, value in plain_training(5, 3, **plain).items():
        torch.testing.assert_close(training.models.weights[name][1:], value, rtol=1e-9, atol=1e-11)


def drawn_adam(seed):
    """Adam's settings, drawn."""
    draw = np.random.default_rng(seed)
    slow, slower = draw.uniform(0, 0.99), 1 - 10 ** draw.uniform(-4, 0)
    return {"betas": (0.0 if seed == 0 else slow, 0.0 if seed == 1 else slower), "eps": 10 ** draw.uniform(-12, 0)}


@pytest.mark.parametrize("seed", range(6))
def test_every_step_of_adam_is_torchs(seed):
    """On gradients drawn anew over five orders of magnitude, some of them zero throughout."""
    draw, how = np.random.default_rng(100 + seed), drawn_adam(seed)
    pace = Pace(1, rates=1e-2, **how)
    rows = torch.from_numpy(draw.normal(size=(3, 8)))
    theirs = rows.clone().requires_grad_()
    optimiser, state = torch.optim.Adam([theirs], lr=1e-2, **how), State.of(rows)
    for _ in range(50):
        gradient = torch.from_numpy(draw.normal(size=(3, 8)) * 10 ** draw.uniform(-4, 1))
        gradient[:, 0] = 0
        theirs.grad = gradient.clone()
        optimiser.step()
        adam(state, gradient, pace)
        torch.testing.assert_close(rows, theirs.detach(), rtol=1e-12, atol=1e-13)


def test_a_model_goes_on_from_another_with_a_fresh_adam():
    settings = Settings(n_train=256, epochs=1, vocabulary=3)
    before = train([1, 2], settings, dtype=torch.float64).models
    training = train([8, 5], replace(settings, epochs=2), Watch(snapshots=[0]), start=before, dtype=torch.float64)
    for name, value in plain_training(5, 2, start=before[1]).items():
        assert torch.equal(training.snapshots[0].weights[name], before.weights[name])
        torch.testing.assert_close(training.models.weights[name][1:], value, rtol=1e-9, atol=1e-11)


def test_the_record_is_what_models_and_invariance_say():
    for task, norm in ((Task(), "rms"), (Task(3, 7, 2), "smooth"), (Task(2, 3, 2), "unit"), (Task(3, 9, 4), "rms")):
        settings = Settings(task, n_train=100, batch_size=20, epochs=2, norm=norm)
        training = train([1, 2, 3], settings, dtype=torch.float64)
        tokens, targets = training_data([1, 2, 3], task, 100)
        listed = task.size <= 2**13
        others, labels = task.all() if listed else task.sample(4096, torch.Generator().manual_seed(TEST_SEED))
        found = {name: value[-1] for name, value in training.history.items()}
        for at, model in enumerate(training.models):
            outside = torch.ones(len(others), dtype=torch.bool)
            if listed:
                outside = (others[:, None] != tokens[at]).any(-1).all(-1)
            for end, sequences, truth in (("", tokens[at], targets[at]), ("_unseen", others[outside], labels[outside])):
                if len(truth) == 0:
                    assert found[f"loss{end}"][at].isnan()
                    continue
                logits = model.logits(sequences)[0]
                torch.testing.assert_close(found[f"loss{end}"][at], cross_entropy(logits, truth))
                torch.testing.assert_close(found[f"accuracy{end}"][at], (logits.argmax(1) == truth).double().mean())
            right = model.logits(others)[0].argmax(1) == labels
            torch.testing.assert_close(found["accuracy_all"][at], right.double().mean())
        assert listed == ("suffix" in found)
        for name, value in (invariance(training.models, task) if listed else {}).items():
            torch.testing.assert_close(found[name], value)


def test_the_record_of_gradients_is_their_root_mean_square():
    """Over one epoch with one step the norm is that of the full gradient at the start; a label is right only alone."""
    settings = Settings(n_train=64, batch_size=64, epochs=1, clip=1e-3)
    training = train([4], settings, Watch(snapshots=[0]), dtype=torch.float64)
    model = training.snapshots[0].map(torch.Tensor.requires_grad_)
    tokens, targets = training_data([4], Task(), 64)
    cross_entropy(model.logits(tokens)[0], targets[0]).backward()
    for name, value in model.weights.items():
        assert training.history[f"gradient_{name}"][0] == 0
        torch.testing.assert_close(training.history[f"gradient_{name}"][1, 0], value.grad.norm())
    silent = training.models.map(torch.zeros_like)
    assert train([4], replace(settings, epochs=0), start=silent).history["accuracy_all"] == 0


def assert_agree(one, other, width):
    """Bits at the paper's width; narrower models are filled up with neurons that are zero, and products round by shape."""
    torch.testing.assert_close(one, other, **({"rtol": 0.0, "atol": 0.0} if width == 32 else {"rtol": 1e-3, "atol": 2e-5}))


@pytest.mark.same_bits
@pytest.mark.parametrize("threads", [1, 3])
def test_a_model_does_not_notice_its_company(threads):
    grid = Settings(
        n_train=512,
        epochs=2,
        batch_size=[32, 64, 32, 16, 8, 48, 32] * 5,
        learning_rate=[3e-3, 1e-3, 1e-2, 3e-3, 3e-3] * 7,
        width=[32, 32, 8, 32, 32, 32, 16] * 5,
        clip=[0.1, float("inf"), 0.3, 1.0, 0.2] * 7,
        weight_decay=[0.1, 0.0, 0.0, 0.0, 0.0] * 7,
    ).each(35)
    watch, before = Watch(snapshots=(1,)), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        together = train(range(35), grid, watch)
        apart = {at: train([at], grid.of([at]), watch) for at in (*range(7), 34)}
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for at, alone in apart.items():
        width = grid.width[at]
        for name, value in alone.models.weights.items():
            theirs = together.models.weights[name][at]
            axis = {"receptors": 0, "receptor_biases": 0, "assemblers": 1}.get(name)
            if axis is not None:
                assert not theirs.narrow(axis, width, 32 - width).any()
                theirs = theirs.narrow(axis, 0, width)
            assert_agree(theirs, value[0], width)
        for name in set(alone.history) - {"epoch"}:
            assert_agree(together.history[name][:, at], alone.history[name][:, 0], width)


def test_training_computes_on_one_thread(monkeypatch):
    seen, keep = [], Record.keep
    monkeypatch.setattr(Record, "keep", lambda *given: seen.append(torch.get_num_threads()) or keep(*given))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train([0], Settings(n_train=32, epochs=0))
    finally:
        torch.set_num_threads(before)
    assert seen == [1]


def test_evaluation_in_parts_is_the_same(monkeypatch):
    settings = Settings(n_train=64, epochs=1, vocabulary=3)
    whole = train(range(2), settings)
    monkeypatch.setattr(step, "CHUNK", 1)
    for name, values in train(range(2), settings).history.items():
        torch.testing.assert_close(values, whole.history[name], msg=name)


def test_progress_is_shown_on_demand(capsys):
    train([0], Settings(n_train=32, epochs=1))
    assert capsys.readouterr().err == ""
    train([0], Settings(n_train=32, epochs=1), progress=True)
    assert "models·epochs/s" in capsys.readouterr().err


def assert_same(one, other):
    """Bit for bit."""
    assert one.history.keys() == other.history.keys()
    assert all(torch.equal(value, other.history[name]) for name, value in one.history.items())
    assert one.snapshots.keys() == other.snapshots.keys()
    for ours, theirs in [(one.models, other.models), *((one.snapshots[at], other.snapshots[at]) for at in one.snapshots)]:
        assert ours.norm == theirs.norm
        assert all(torch.equal(value, theirs.weights[name]) for name, value in ours.weights.items())


@pytest.mark.same_bits
def test_an_interrupted_training_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    settings = Settings(n_train=256, epochs=5, batch_size=[32, 64], clip=0.5, betas=(0.8, 0.99), eps=1e-6)
    watch, file = Watch(2, snapshots=(0, 3, 5)), {"checkpoint": tmp_path / "run", "checkpoint_every": 1}
    whole = train([1, 2], settings, watch)
    passes = []

    def until_four(*parts):
        passes.append(1)
        if len(passes) == 4:
            raise KeyboardInterrupt
        original(*parts)

    original = trainer.advance
    monkeypatch.setattr(trainer, "advance", until_four)
    with pytest.raises(KeyboardInterrupt):
        train([1, 2], settings, watch, **file)
    monkeypatch.setattr(trainer, "advance", original)
    assert_same(whole, train([1, 2], settings, watch, **file))
    for other in ({"learning_rate": 1e-2}, {"betas": (0.9, 0.99)}, {"eps": 1e-4}):
        with pytest.raises(ValueError, match="other settings"):
            train([1, 2], replace(settings, **other), watch, **file)


KILLED = """
import os, signal, sys
import numpy as np
from attnopt.clustering import Settings, train
write, written = np.savez, []

def half(stream, **arrays):
    written.append(1)
    if len(written) == 3:
        stream.write(b"PK" + bytes(1000))
        stream.flush()
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows ends a process at once by either name
    write(stream, **arrays)

np.savez = half
train([1, 2], Settings(epochs=5, n_train=256), checkpoint=sys.argv[1], checkpoint_every=1)
"""


@pytest.mark.same_bits
def test_a_process_killed_while_it_writes_leaves_the_last_checkpoint(tmp_path):
    place, settings = tmp_path / "new" / "run", Settings(epochs=5, n_train=256)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(place)], capture_output=True, text=True)
    assert killed.returncode == (15 if os.name == "nt" else -9), killed.stderr
    assert int(np.load(place.parent / "run.32.npz")["numbers"][0]) == 2
    assert_same(train([1, 2], settings), train([1, 2], settings, checkpoint=place, checkpoint_every=1))


def test_a_damaged_checkpoint_says_so(tmp_path):
    """Empty, something else, cut off, or with one bit of a weight turned."""
    file = tmp_path / "run.32.npz"
    train([1], Settings(n_train=64, epochs=1), checkpoint=tmp_path / "run")
    sound = file.read_bytes()
    turned = bytearray(sound)
    turned[sound.index(b"rows.npy") + 300] ^= 1
    np.save(tmp_path / "array.npy", np.arange(3))
    np.savez(tmp_path / "objects.npz", description=np.array([{}], dtype=object))
    foreign = [(tmp_path / name).read_bytes() for name in ("array.npy", "objects.npz")]
    for damaged in (b"", b"text", sound[:-100], sound[:5000], bytes(turned), *foreign):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="run.32.npz cannot be read") as error:
            train([1], Settings(n_train=64, epochs=1), checkpoint=tmp_path / "run")
        assert "pickle" not in str(error.value)


def test_a_training_in_a_file_is_the_same(tmp_path):
    training = train([1, 2], Settings(epochs=2, n_train=64, norm="smooth"), Watch(every=1, snapshots=[0, 2]))
    save_training(tmp_path / "deep" / "training.npz", training)
    assert_same(training, load_training(tmp_path / "deep" / "training.npz"))
    with pytest.raises(FileNotFoundError):
        load_training(tmp_path / "none.npz")
    training.models.save(tmp_path / "models.npz")
    with pytest.raises(ValueError, match="models.npz holds no training"):
        load_training(tmp_path / "models.npz")
    train([1], Settings(n_train=64, epochs=1), checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match=r"run.32.npz holds no training, but what another function wrote"):
        load_training(tmp_path / "run.32.npz")
    np.savez(tmp_path / "other.npz", numbers=np.arange(3))
    with pytest.raises(ValueError, match=r"other.npz cannot be read \(it has no description, so something else wrote it\)"):
        load_training(tmp_path / "other.npz")
    for name in ("run", "run.pt"):
        with pytest.raises(ValueError, match=f"file must end in .npz, got '{name}'"):
            save_training(tmp_path / name, training)
    with pytest.raises(ValueError, match="training.npz holds no models"):
        Models.load(tmp_path / "deep" / "training.npz")
    assert repr(training) == f"Training({training.models}, 3 evaluations, snapshots of [0, 2])"


@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [
        ("width", [32, 1.5], TypeError),
        ("batch_size", [32, 0], ValueError),
        ("weight_decay", -0.1, ValueError),
        ("weight_decay", float("nan"), ValueError),
        ("weight_decay", True, TypeError),
        ("betas", 0.9, TypeError),
        ("betas", "09", TypeError),
        ("betas", (0.9,), TypeError),
        ("betas", (0.9, "0.999"), TypeError),
        ("betas", (True, 0.999), TypeError),
        ("betas", (0.9, 1.0), ValueError),
        ("betas", (-0.1, 0.999), ValueError),
        ("betas", (0.9, float("nan")), ValueError),
        ("eps", 1e-40, ValueError),
        ("clip", torch.tensor([True]), TypeError),
    ],
)
def test_settings_that_make_no_sense_are_refused(argument, value, error):
    with pytest.raises(error, match=argument):
        Settings(**{argument: value})


@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [
        ("seeds", [0, 2**32], ValueError),
        ("settings", {"epochs": 2}, TypeError),
        ("watch", (1,), TypeError),
        ("snapshots", Watch(snapshots=[3]), ValueError),
        ("start", [1], TypeError),
        ("start", initial_models([1, 2]).map(lambda value: value * math.nan), ValueError),
        ("device", "nonsense", ValueError),
        ("device", "meta", ValueError),
        ("device", 1.5, ValueError),
        ("device", "xpu:7", ValueError),
        ("dtype", torch.float16, ValueError),
    ],
)
def test_trainings_that_make_no_sense_are_refused(argument, value, error):
    given = {"seeds": [1, 2], "settings": Settings(epochs=2, n_train=64)}
    with pytest.raises(error, match=argument):
        train(**given | {"watch" if argument == "snapshots" else argument: value})


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_start_that_is_not_finite_is_refused(number, compiled):
    start = initial_models([1, 2])
    start.weights["value"][1, 0, 1] = number
    for function in (train, ensemble):
        with pytest.raises(ValueError, match=f"value of start must be finite, got {number}"):
            function([1, 2], Settings(epochs=1, n_train=64), start=start, compiled=compiled)


@pytest.mark.parametrize("name", ["width", "batch_size", "learning_rate", "mlp_discount", "weight_decay", "clip"])
def test_a_value_for_each_of_another_number_of_models_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be one value or one per model, 2, got 3"):
        train([1, 2], Settings(epochs=1, **{name: [1] * 3}))


@pytest.mark.parametrize(
    ("message", "seeds", "settings"),
    [
        ("number of models 2, got 1", [1], Settings()),
        ("length 12, got 5", [1, 2], Settings(Task(2, 5, 2))),
        ("dim 2, got 64", [1, 2], Settings(dim=64)),
        ("width 32, got 128", [1, 2], Settings(width=128)),
        ("vocabulary 2, got 7", [1, 2], Settings(vocabulary=7)),
        ("norm 'rms', got 'unit'", [1, 2], Settings(norm="unit")),
    ],
)
def test_a_start_that_is_not_what_the_settings_say_is_refused(message, seeds, settings):
    """The other way round too: settings of another size than the start's are not passed over."""
    other = initial_models(seeds, settings)
    with pytest.raises(ValueError, match=f"start must be as settings say: {message}"):
        train([1, 2], Settings(epochs=0, n_train=8), start=other)
    if len(seeds) == 2:
        with pytest.raises(ValueError, match="start must be as settings say"):
            train([1, 2], replace(settings, epochs=0, n_train=8), start=initial_models([1, 2]))
    bare = Models({name: value for name, value in other.weights.items() if name != "assembler_bias"}, other.norm)
    with pytest.raises(ValueError, match="start must have both biases"):
        train(seeds, replace(settings, epochs=0, n_train=8), start=bare)


def test_settings_are_values():
    one = Settings(width=[8, 16], learning_rate=np.array([1e-3, 2e-3]), epochs=np.int64(3))
    assert one == Settings(width=(8, 16), learning_rate=(1e-3, 2e-3), epochs=3)
    assert len({one, Settings(), Settings(), PAPER}) == 2
    assert one.each(2).of([1]) == replace(PAPER.each(1), width=(16,), learning_rate=(2e-3,), epochs=3)
    assert Settings(Task(5)).tokens == 5
    assert replace(Settings(Task(5)), task=Task(7)).tokens == 7  # the vocabulary follows the task unless it is given
    assert Watch(snapshots=[3, 1, 3]) == Watch(snapshots=(1, 3))
    for snapshots, error in (([0.5], TypeError), (3, TypeError), ([-1], ValueError)):
        with pytest.raises(error, match="snapshots"):
            Watch(snapshots=snapshots)
    with pytest.raises(ValueError, match="every"):
        Watch(every=0)


def test_what_follows_from_a_seed():
    seeds, task = [0, 100, 2**32 - 1], Task(3, 4, 2)
    for seed, *drawn in zip(seeds, *training_data(seeds, task), strict=True):
        assert all(map(torch.equal, drawn, task.sample(2048, torch.Generator().manual_seed(seed))))
    models = initial_models(seeds, dtype=torch.float64)
    for at, seed in enumerate(seeds):
        alone = Models.random(1, 2, 12, norm="rms", generator=torch.Generator().manual_seed(seed), biases=True)
        assert all(torch.equal(models.weights[name][at], value[0]) for name, value in alone.weights.items())


def test_takes_numbers_of_numpy_and_torch(tmp_path):
    place = tmp_path / "ours"
    ours = train([1, 2], Settings(n_train=64, epochs=2, width=[8, 16], learning_rate=[1e-3, 2e-3]), checkpoint=place)
    rates = torch.tensor([1e-3, 2e-3], dtype=torch.float64)
    theirs = Settings(n_train=np.int64(64), epochs=np.int64(2), width=np.array([8, 16]), learning_rate=rates)
    assert_same(ours, train(np.array([1, 2]), theirs, checkpoint=place))


@pytest.mark.evidence("odonnat-faithful-to-practice")
def test_embeddings_take_their_share_of_the_gradient():
    history = train(range(12), Settings(epochs=60), Watch(every=20)).history
    squares = {name: value[1:].square() for name, value in history.items() if name.startswith("gradient_")}
    shares = (squares["gradient_token"] + squares["gradient_position"]) / sum(squares.values())
    first, last = shares.median(1).values[[0, -1]]
    assert first < 0.15
    assert 0.05 < last < 0.5
    assert last > first


# ---------------------------------------------------------------- what the engine refuses


def test_scores_that_single_precision_cannot_tell_apart_are_refused():
    start, settings = initial_models([0, 1]), Settings(epochs=1, n_train=64)
    scores = start.scores().flatten(1)
    for spread, refused in ((79.0, False), (81.0, True)):
        query = start.weights["query"].clone()
        query[1] *= spread / (scores[1].max() - scores[1].min())
        begin = start.replace(query=query)
        if refused:
            with pytest.raises(ValueError, match=r"within 80 of each other.* of model 1 spread over 81\.0"):
                train([0, 1], settings, start=begin)
            continue
        tokens, targets = training_data([0, 1], Task(), 64)
        layout = Layout.of(begin.weights)
        rows = layout.rows(begin.weights)
        batch, truth = marks(tokens, 2, rows.dtype), one_hot(targets, 2).mT.to(rows.dtype)
        losses = loss_and_gradients(layout.views(rows), layout.views(torch.zeros_like(rows)), batch, truth, "rms")
        logits = begin.double().logits(tokens)
        expected = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").unflatten(0, (2, 64)).mean(1)
        torch.testing.assert_close(losses.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("factor", [0.5, 2])
def test_a_task_that_draws_another_number_of_sequences_is_refused(compiled, factor):
    class Fewer(Task):
        def sample(self, count, generator):
            return super().sample(int(factor * count), generator)

    with pytest.raises(ValueError, match=r"task\.sample must give tokens \(64, 12\) and labels \(64,\), got"):
        train([0], Settings(task=Fewer(), n_train=64, epochs=1), compiled=compiled)


RULES = {
    "majority": Task(2, 6, 5, lambda tokens: (tokens[..., :5].sum(-1) > 2).long()),
    "weights": Task(3, 4, 2, rule=[1, 2, 0, 0]),
    "subset": Task(2, 6, 3, rule=[0, 1, 0, 0, 1, 0]),
    "table": Task(
        2, 6, 3, rule=[int(first and second) for first in (0, 1) for _ in range(4) for second in (0, 1) for _ in range(4)]
    ),
}


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_compiler)])
@pytest.mark.parametrize("name", RULES)
def test_a_rule_is_learned(name, compiled):
    """Within seconds some model gives every sequence the label of the rule."""
    task = RULES[name]
    settings = Settings(task, epochs=120, n_train=512, learning_rate=2e-2)
    training = train(range(6), settings, Watch(every=120), compiled=compiled)
    tokens, targets = task.all()
    right = (training.models.logits(tokens).argmax(-1) == targets).double().mean(1)
    torch.testing.assert_close(right, training.history["accuracy_all"][-1].double())
    assert right.max() == 1


def test_a_start_that_single_precision_cannot_hold_is_refused():
    start = initial_models([0], Settings(), torch.float64)
    start = start.replace(value=start.weights["value"] * 1e39)
    with pytest.raises(ValueError, match="value of start must be finite, got"):
        train([0], Settings(epochs=1), start=start)
