"""Training ensembles: the written-out gradients, Adam, the record, independence of the company, exact resumption."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

from attnopt.clustering import forward, init_model, invariance, modular_addition, normalise
from attnopt.clustering.training import group, initial_models, load_training, save_training, train, training_data
from attnopt.clustering.training.group import FEED_FORWARD, ORDER_SEED, TEST_SEED
from attnopt.clustering.training.step import Layout, loss_and_gradients, marks, normaliser, pull_back


@pytest.mark.parametrize("norm", ["unit", "rms", "smooth"])
@pytest.mark.parametrize(("dim", "p", "vocabulary"), [(1, 2, 2), (2, 2, 2), (3, 3, 4), (5, 2, 3)])
def test_gradients_are_autograds(norm, dim, p, vocabulary):
    generator = torch.Generator().manual_seed(dim)
    params = init_model(4, vocabulary, 6, dim, 7, generator=generator, biases=True)
    params["token"][0, 0] = params["position"][0, 0] = 0  # whose sum has no direction
    tokens, targets = modular_addition(p, 6, 3, 4 * 9, generator)
    tokens, targets = tokens.unflatten(0, (4, 9)), targets.unflatten(0, (4, 9))
    layout = Layout.of(params)
    rows = layout.rows(params)
    gradient = torch.full_like(rows, 9.0)
    truth = one_hot(targets, vocabulary).mT.to(rows.dtype)
    losses = loss_and_gradients(
        layout.views(rows), layout.views(gradient), marks(tokens, vocabulary, rows.dtype), truth, norm
    )
    leaves = {name: value.requires_grad_() for name, value in params.items()}
    logits = forward(leaves, tokens, norm=norm)
    expected = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").unflatten(0, (4, 9)).mean(1)
    torch.testing.assert_close(losses, expected)
    expected.sum().backward()
    for name, value in layout.views(gradient).items():
        torch.testing.assert_close(value, leaves[name].grad, msg=name)


@pytest.mark.parametrize("norm", ["unit", "rms", "smooth"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_through_each_normalisation_at_chosen_lengths(norm, dtype):
    lengths = torch.tensor([0.005, 0.02, 0.3, 0.5, 0.97, 0.995, 1.0, 1.005, 4.0], dtype=dtype)
    vectors = (torch.tensor([[0.6], [0.8]], dtype=dtype) * lengths).unsqueeze(0)  # features first
    pull = torch.tensor([[[1.0], [-0.5]]], dtype=dtype).expand_as(vectors)
    factor, bend = normaliser(vectors, norm)
    leaf = vectors.mT.clone().requires_grad_()
    out = normalise(leaf, norm)
    torch.testing.assert_close(vectors * factor, out.mT)
    (out * pull.mT).sum().backward()
    torch.testing.assert_close(pull_back(pull, vectors, factor, bend), leaf.grad.mT, rtol=1e-4, atol=1e-4)


def test_views_of_rows_have_their_leading_dimensions():
    params = init_model(6, 2, 4, 3, 5, generator=torch.Generator().manual_seed(0), biases=True)
    layout = Layout.of(params)
    rows = layout.rows(params)
    for shape in ((6,), (2, 3), (1, 6)):
        for name, view in layout.views(rows.unflatten(0, shape)).items():
            assert torch.equal(view, params[name].unflatten(0, shape))
    assert all(torch.equal(view, params[name][0]) for name, view in layout.views(rows[0]).items())


def plain_training(seed, epochs, batch_size=32, vocabulary=2, clip=None, discount=1.0, start=None, **adam):
    """One model, one loop, torch's own Adam and autograd."""
    start = start or initial_models([seed], vocabulary, dtype=torch.float64)
    params = {name: value.clone().requires_grad_() for name, value in start.items()}
    tokens, targets = training_data([seed], 2, 12, 5, 256)
    slow = [value for name, value in params.items() if name in FEED_FORWARD]
    fast = [value for name, value in params.items() if name not in FEED_FORWARD]
    groups = [{"params": fast}, {"params": slow, "lr": 3e-3 / discount}]
    optimiser = torch.optim.AdamW(groups, lr=3e-3, **({"weight_decay": 0.0} | adam))
    for epoch in range(epochs):
        order = torch.randperm(256, generator=torch.Generator().manual_seed(ORDER_SEED + epoch))
        for batch in order.split(batch_size):
            optimiser.zero_grad()
            cross_entropy(forward(params, tokens[:, batch], norm="rms")[0], targets[0, batch]).backward()
            if clip:
                length = torch.cat([value.grad.flatten() for value in params.values()]).norm()
                for value in params.values():
                    value.grad *= min(1.0, clip / length)
            optimiser.step()
    return {name: value.detach() for name, value in params.items()}


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
    training = train([3, 5], n_train=256, epochs=3, dtype=torch.float64, evaluate_every=3, **settings)
    for name, value in plain_training(5, 3, **plain).items():
        torch.testing.assert_close(training.params[name][1:], value, rtol=1e-9, atol=1e-11)


def test_a_model_goes_on_from_another_with_a_fresh_adam():
    before = train([1, 2], n_train=256, epochs=1, vocabulary=3, dtype=torch.float64).params
    training = train([8, 5], n_train=256, epochs=2, start=before, dtype=torch.float64, snapshots=[0])
    expected = plain_training(5, 2, start={name: value[1:] for name, value in before.items()})
    for name, value in expected.items():
        assert torch.equal(training.snapshots[0][name], before[name])
        torch.testing.assert_close(training.params[name][1:], value, rtol=1e-9, atol=1e-11)


def test_the_record_is_what_forward_and_invariance_say():
    for p, length, k, norm in ((2, 12, 5, "rms"), (3, 7, 2, "smooth"), (2, 3, 2, "unit"), (3, 9, 4, "rms")):
        training = train(
            [1, 2, 3], p=p, length=length, k=k, n_train=100, batch_size=20, epochs=2, norm=norm, dtype=torch.float64
        )
        tokens, targets = training_data([1, 2, 3], p, length, k, 100)
        listed = p**length <= 2**13
        sampled = () if listed else (4096, torch.Generator().manual_seed(TEST_SEED))
        others, labels = modular_addition(p, length, k, *sampled)
        found = {name: value[-1] for name, value in training.history.items()}
        for at in range(3):
            params = {name: value[at : at + 1] for name, value in training.params.items()}
            outside = torch.ones(len(others), dtype=torch.bool)
            if listed:
                outside = (others[:, None] != tokens[at]).any(-1).all(-1)
            for end, sequences, truth in (("", tokens[at], targets[at]), ("_unseen", others[outside], labels[outside])):
                if len(truth) == 0:
                    assert found[f"loss{end}"][at].isnan()
                    continue
                logits = forward(params, sequences, norm=norm)[0]
                torch.testing.assert_close(found[f"loss{end}"][at], cross_entropy(logits, truth))
                torch.testing.assert_close(found[f"accuracy{end}"][at], (logits.argmax(1) == truth).double().mean())
            right = forward(params, others, norm=norm)[0].argmax(1) == labels
            torch.testing.assert_close(found["accuracy_all"][at], right.double().mean())
        assert listed == ("suffix" in found)
        for name, value in (invariance(training.params, p, k, norm) if listed else {}).items():
            torch.testing.assert_close(found[name], value)


def test_the_record_of_gradients_is_their_root_mean_square():
    """Over one epoch with one step the norm is that of the full gradient at the start; a label is right only alone."""
    training = train([4], n_train=64, batch_size=64, epochs=1, clip=1e-3, dtype=torch.float64, snapshots=[0])
    params = {name: value.requires_grad_() for name, value in training.snapshots[0].items()}
    tokens, targets = training_data([4], 2, 12, 5, 64)
    cross_entropy(forward(params, tokens, norm="rms")[0], targets[0]).backward()
    for name, value in params.items():
        assert training.history[f"gradient_{name}"][0] == 0
        torch.testing.assert_close(training.history[f"gradient_{name}"][1, 0], value.grad.norm())
    silent = {name: torch.zeros_like(value) for name, value in training.params.items()}
    assert train([4], n_train=64, epochs=0, start=silent).history["accuracy_all"] == 0


@pytest.mark.same_bits
@pytest.mark.parametrize("threads", [1, 3])
def test_a_model_does_not_notice_its_company(threads):
    models = 35
    grid = {
        "batch_size": [32, 64, 32, 16, 8, 48, 32] * 5,
        "learning_rate": [3e-3, 1e-3, 1e-2, 3e-3, 3e-3] * 7,
        "width": [32, 32, 8, 32, 32, 32, 16] * 5,
        "clip": [0.1, float("inf"), 0.3, 1.0, 0.2] * 7,
        "weight_decay": [0.1, 0.0, 0.0, 0.0, 0.0] * 7,
    }
    common = {"epochs": 2, "snapshots": (1,), "n_train": 512}
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        together = train(range(models), **grid, **common)
        apart = {at: train([at], **{name: value[at] for name, value in grid.items()}, **common) for at in (*range(7), 34)}
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for at, alone in apart.items():
        width = grid["width"][at]
        for name, value in alone.params.items():
            theirs = together.params[name][at]
            axis = {"receptors": 0, "receptor_biases": 0, "assemblers": 1}.get(name)
            if axis is not None:
                assert not theirs.narrow(axis, width, 32 - width).any()
                theirs = theirs.narrow(axis, 0, width)
            assert torch.equal(theirs, value[0]), name
        for name in set(alone.history) - {"epoch"}:
            assert torch.equal(together.history[name][:, at], alone.history[name][:, 0]), name


@pytest.mark.parametrize(("models", "batch_size", "n_train", "rows"), [(3, 24, 40, 4), (1, 32, 64, 2), (1, 1, 1, 32)])
def test_arrays_are_filled_up_to_whole_lines_on_one_thread(models, batch_size, n_train, rows, monkeypatch):
    seen, record = [], group.Group.record
    look = lambda self: seen.append((len(self.rows), torch.get_num_threads())) or record(self)  # noqa: E731
    monkeypatch.setattr(group.Group, "record", look)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        train(range(models), batch_size=batch_size, n_train=n_train, epochs=0)
    finally:
        torch.set_num_threads(before)
    assert seen == [(rows, 1)]


def test_evaluation_in_parts_is_the_same(monkeypatch):
    settings = {"n_train": 64, "epochs": 1, "vocabulary": 3}
    whole = train(range(2), **settings)
    monkeypatch.setattr(group, "CHUNK", 1)
    for name, values in train(range(2), **settings).history.items():
        torch.testing.assert_close(values, whole.history[name], msg=name)


def test_progress_is_shown_on_demand(capsys):
    train([0], n_train=32, epochs=1)
    assert capsys.readouterr().err == ""
    train([0], n_train=32, epochs=1, progress=True)
    assert "models·epochs/s" in capsys.readouterr().err


@pytest.mark.same_bits
def test_a_diverged_model_does_not_disturb_others():
    """One model learns at a rate that overflows, one starts with a weight that is no number."""
    start = initial_models(range(4))
    well = train(range(4), start=start, n_train=256, epochs=2, clip=0.5)
    start["query"][1, 0] = float("nan")
    beside = train(range(4), start=start, n_train=256, epochs=2, clip=0.5, learning_rate=[3e-3, 3e-3, 3e38, 3e-3])
    assert not beside.params["token"][2].isfinite().all()
    assert beside.history["loss"][:, 1].isnan().all()
    assert beside.history["accuracy_all"][-1, 1] == 0
    for at in (0, 3):
        assert all(torch.equal(value[at], beside.params[name][at]) for name, value in well.params.items())
        for name in set(well.history) - {"epoch"}:
            assert torch.equal(well.history[name][:, at], beside.history[name][:, at]), name


@pytest.mark.same_bits
def test_an_interrupted_training_goes_on_to_the_same_numbers(tmp_path, monkeypatch):
    settings = {"n_train": 256, "snapshots": (0, 3, 5), "evaluate_every": 2, "batch_size": [32, 64], "clip": 0.5}
    whole = train([1, 2], epochs=5, **settings)
    passes = []

    def until_four(self):
        passes.append(1)
        if len(passes) == 4:
            raise KeyboardInterrupt
        original(self)

    original = group.Group.pass_through
    monkeypatch.setattr(group.Group, "pass_through", until_four)
    with pytest.raises(KeyboardInterrupt):
        train([1, 2], epochs=5, checkpoint=tmp_path / "run", checkpoint_every=1, **settings)
    monkeypatch.setattr(group.Group, "pass_through", original)
    resumed = train([1, 2], epochs=5, checkpoint=tmp_path / "run", checkpoint_every=1, **settings)
    for name, value in whole.history.items():
        assert torch.equal(value, resumed.history[name]), name
    for name, value in whole.params.items():
        assert torch.equal(value, resumed.params[name]), name
        assert all(torch.equal(whole.snapshots[epoch][name], resumed.snapshots[epoch][name]) for epoch in (0, 3, 5))
    with pytest.raises(ValueError, match="other settings"):
        train([1, 2], epochs=5, checkpoint=tmp_path / "run", learning_rate=1e-2, **settings)


KILLED = """
import os, signal, sys
import numpy as np
from attnopt.clustering.training import train
write, written = np.savez, []

def half(stream, **arrays):
    written.append(1)
    if len(written) == 3:
        stream.write(b"PK" + bytes(1000))
        stream.flush()
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))  # Windows ends a process at once by either name
    write(stream, **arrays)

np.savez = half
train([1, 2], epochs=5, n_train=256, checkpoint=sys.argv[1], checkpoint_every=1)
"""


@pytest.mark.same_bits
def test_a_process_killed_while_it_writes_leaves_the_last_checkpoint(tmp_path):
    place = tmp_path / "new" / "run"
    killed = subprocess.run([sys.executable, "-c", KILLED, str(place)], capture_output=True, text=True)
    assert killed.returncode == (15 if os.name == "nt" else -9), killed.stderr
    assert int(np.load(place.parent / "run.32.npz")["numbers"][0]) == 2
    resumed = train([1, 2], epochs=5, n_train=256, checkpoint=place, checkpoint_every=1)
    whole = train([1, 2], epochs=5, n_train=256)
    assert all(torch.equal(value, resumed.params[name]) for name, value in whole.params.items())
    assert all(torch.equal(value, resumed.history[name]) for name, value in whole.history.items())


def test_a_damaged_checkpoint_says_so(tmp_path):
    """Empty, something else, cut off, or with one bit of a weight turned."""
    file = tmp_path / "run.32.npz"
    train([1], epochs=1, n_train=64, checkpoint=tmp_path / "run")
    sound = file.read_bytes()
    turned = bytearray(sound)
    turned[sound.index(b"rows.npy") + 300] ^= 1
    for damaged in (b"", b"text", sound[:-100], sound[:5000], bytes(turned)):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="run.32.npz cannot be read"):
            train([1], epochs=1, n_train=64, checkpoint=tmp_path / "run")


def test_a_training_in_a_file_is_the_same(tmp_path):
    training = train([1, 2], epochs=2, n_train=64, snapshots=[0, 2])
    save_training(tmp_path / "deep" / "training.npz", training)
    loaded = load_training(tmp_path / "deep" / "training.npz")
    assert all(torch.equal(value, loaded.params[name]) for name, value in training.params.items())
    assert all(torch.equal(value, loaded.history[name]) for name, value in training.history.items())
    assert loaded.snapshots.keys() == training.snapshots.keys()
    assert all(torch.equal(value, loaded.snapshots[2][name]) for name, value in training.snapshots[2].items())
    with pytest.raises(FileNotFoundError):
        load_training(tmp_path / "none.npz")


@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [
        ("seeds", [], ValueError),
        ("seeds", [-1], ValueError),
        ("seeds", [2**32], ValueError),
        ("seeds", [0, 2**32], ValueError),
        ("seeds", [0.5], TypeError),
        ("seeds", 7, TypeError),
        ("p", 1, ValueError),
        ("length", 0, ValueError),
        ("k", 13, ValueError),
        ("vocabulary", 0, ValueError),
        ("vocabulary", 1, ValueError),
        ("vocabulary", 2.0, TypeError),
        ("dim", 0, ValueError),
        ("width", 0, ValueError),
        ("width", [32, 1.5], TypeError),
        ("width", [32], ValueError),
        ("n_train", 0, ValueError),
        ("epochs", -1, ValueError),
        ("epochs", 1.0, TypeError),
        ("batch_size", [32, 0], ValueError),
        ("learning_rate", 0.0, ValueError),
        ("learning_rate", float("inf"), ValueError),
        ("learning_rate", "1", ValueError),
        ("learning_rate", [1e-3, None], TypeError),
        ("mlp_discount", -1, ValueError),
        ("weight_decay", -0.1, ValueError),
        ("weight_decay", float("nan"), ValueError),
        ("clip", 0, ValueError),
        ("clip", float("nan"), ValueError),
        ("norm", "layer", ValueError),
        ("start", initial_models([1]), ValueError),
        ("start", initial_models([1, 2], length=5), ValueError),
        ("start", [1], TypeError),
        ("evaluate_every", 0, ValueError),
        ("snapshots", [3], ValueError),
        ("snapshots", [0.5], TypeError),
        ("checkpoint_every", 0, ValueError),
        ("dtype", torch.float16, ValueError),
    ],
)
def test_refuses_what_makes_no_sense(argument, value, error):
    settings = {"seeds": [1, 2], "epochs": 2, "n_train": 64} | {argument: value}
    with pytest.raises(error, match=argument):
        train(**settings)


def test_what_follows_from_a_seed():
    seeds = [0, 100, 2**32 - 1]
    tokens, targets = training_data(seeds, 3, 4, 2)
    for seed, *drawn in zip(seeds, tokens, targets, strict=True):
        expected = modular_addition(3, 4, 2, 2048, torch.Generator().manual_seed(seed))
        assert all(map(torch.equal, drawn, expected))
    models = initial_models(seeds, dtype=torch.float64)
    for at, seed in enumerate(seeds):
        alone = init_model(1, 2, 12, 2, 32, generator=torch.Generator().manual_seed(seed), biases=True)
        assert all(torch.equal(models[name][at], value[0]) for name, value in alone.items())


def test_weights_and_data_of_a_seed_are_uncorrelated_though_drawn_from_one_stream():
    seeds = range(500)
    weights = torch.cat([value.flatten(1) for value in initial_models(seeds, dtype=torch.float64).values()], 1)
    for p in (2, 3):
        tokens = training_data(seeds, p, 12, 5, 8)[0].flatten(1).double()
        standard = [(values - values.mean(0)) / values.std(0) for values in (weights, tokens)]
        scores = standard[0].mT @ standard[1] / len(seeds) ** 0.5
        assert scores.abs().max() < 5.5  # of 18,816
        assert 0.97 < scores.std() < 1.03


def test_takes_numbers_of_numpy_and_torch(tmp_path):
    ours = train([1, 2], epochs=2, n_train=64, learning_rate=[1e-3, 2e-3], width=[8, 16], checkpoint=tmp_path / "ours")
    theirs = train(
        np.array([1, 2]),
        epochs=np.int64(2),
        n_train=np.int64(64),
        learning_rate=torch.tensor([1e-3, 2e-3], dtype=torch.float64),
        width=np.array([8, 16]),
        checkpoint=tmp_path / "ours",
    )
    assert all(torch.equal(value, theirs.params[name]) for name, value in ours.params.items())


def test_embeddings_take_their_share_of_the_gradient():
    history = train(range(12), epochs=60, evaluate_every=20).history
    squares = {name: value[1:].square() for name, value in history.items() if name.startswith("gradient_")}
    shares = (squares["gradient_token"] + squares["gradient_position"]) / sum(squares.values())
    first, last = shares.median(1).values[[0, -1]]
    assert first < 0.15
    assert 0.05 < last < 0.5
    assert last > first


# ---------------------------------------------------------------- what the engine refuses


def test_scores_that_single_precision_cannot_tell_apart_are_refused():
    start = initial_models([0, 1])
    sums = start["token"][:, :, None] + start["position"][:, None]
    table = sums / sums.norm(dim=-1, keepdim=True)  # of unit vectors: scores within |q| of 0, by RMS-norm
    longest = lambda m: (table[m] @ start["query"][m]).max() - (table[m] @ start["query"][m]).min()  # noqa: E731
    reach = torch.stack([longest(0), longest(1)])
    for spread, refused in ((79.0, False), (81.0, True)):
        query = start["query"].clone()
        query[1] *= spread / reach[1]
        begin = start | {"query": query}
        tokens, targets = training_data([0, 1], 2, 12, 5, 64)
        if refused:
            with pytest.raises(ValueError, match=r"within 80 of each other.* of model 1 spread over 81\.0"):
                train([0, 1], epochs=1, n_train=64, start=begin)
            continue
        layout = Layout.of(begin)
        rows = layout.rows(begin)
        batch, truth = marks(tokens, 2, rows.dtype), one_hot(targets, 2).mT.to(rows.dtype)
        losses = loss_and_gradients(layout.views(rows), layout.views(torch.zeros_like(rows)), batch, truth, "rms")
        double = {name: value.double() for name, value in begin.items()}
        logits = forward(double, tokens, norm="rms")
        expected = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").unflatten(0, (2, 64)).mean(1)
        torch.testing.assert_close(losses.double(), expected, rtol=1e-4, atol=1e-5)
