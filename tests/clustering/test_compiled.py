"""Compiled steps: gradients, training and record are those of the plain ones, or a sentence says why there are none."""

from dataclasses import replace
from functools import cache, partial

import pytest
import torch
from torch.nn.functional import one_hot

from attnopt.clustering import Models, Settings, Task, Watch, ensemble, initial_models, train
from attnopt.clustering.model import marks
from attnopt.clustering.training import compiled, trainer
from attnopt.clustering.training.backward import Layout, loss_and_gradients
from attnopt.clustering.training.step import Pace, Plain, State

needs_compiler = pytest.mark.skipif(compiled.compiler() is None, reason="there is no C compiler")
TAME = {"eps": 1e-2}  # Adam's usual ε magnifies rounding where a gradient nearly vanishes
SMALL = Settings(n_train=64, epochs=2, **TAME)


def gradients(kernel, rows):
    """Of the mean losses on whole training sets: without memory and at the rate 0, Adam's first moments after a step."""
    count, state = kernel.data[1].shape[1], State.of(rows)
    pace = Pace(count, (0.0, 0.9), 1.0, torch.zeros_like(rows))
    kernel.epoch(state, torch.arange(count), pace, torch.zeros(len(rows), 8))
    return state.first


def assert_same(one, other):
    """Bit for bit."""
    assert all(torch.equal(value, other.models.weights[name]) for name, value in one.models.weights.items())
    assert all(torch.equal(value, other.history[name]) for name, value in one.history.items())
    for epoch, models in one.snapshots.items():
        assert all(torch.equal(value, other.snapshots[epoch].weights[name]) for name, value in models.weights.items())


@needs_compiler
@pytest.mark.parametrize("norm", ["unit", "rms", "smooth"])
@pytest.mark.parametrize(("dim", "p", "vocabulary"), [(1, 2, 2), (2, 2, 2), (3, 3, 4), (5, 2, 3)])
@pytest.mark.parametrize("count", [9, 70])
def test_compiled_gradients_are_those_of_the_plain_steps(norm, dim, p, vocabulary, count):
    """Which are autograd's; weights of another length than the others' make the normalization's parts differ."""
    generator = torch.Generator().manual_seed(dim)
    models = Models.random(4, vocabulary, 6, dim, 7, norm=norm, generator=generator, biases=True)
    models.weights["token"][:2] *= 0.3
    models.weights["position"][:2] *= 0.3
    models.weights["receptors"][1] *= 20  # far into the tails of the GELU
    tokens, targets = Task(p, 6, 3).sample(4 * count, generator)
    tokens, targets = tokens.unflatten(0, (4, count)), targets.unflatten(0, (4, count))
    layout = Layout.of(models.weights)
    rows = layout.rows(models.weights).float()
    exact, truth = torch.zeros_like(rows, dtype=torch.float64), one_hot(targets, vocabulary).mT.double()
    batch = marks(tokens, vocabulary, torch.float64)
    losses = loss_and_gradients(layout.views(rows.double()), layout.views(exact), batch, truth, norm)
    kernel = compiled.Kernel(layout, norm, tokens, targets)
    found = gradients(kernel, rows)
    for name, value in layout.views(found).items():
        expected = layout.views(exact)[name]
        torch.testing.assert_close(value.double(), expected, rtol=2e-4, atol=2e-6 * exact.norm().item(), msg=name)
    judged, right, sequence = kernel.predict(rows)
    torch.testing.assert_close(judged.mean(1).double(), losses, rtol=1e-5, atol=1e-6)
    theirs = Plain(layout, norm, tokens, targets, torch.float64).predict(rows.double())
    torch.testing.assert_close(judged.double(), theirs[0], rtol=1e-4, atol=1e-5)
    assert torch.equal(right.double(), theirs[1])
    torch.testing.assert_close(sequence.double(), theirs[2], rtol=1e-4, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize("norm", ["unit", "rms", "smooth"])
def test_where_a_sum_vanishes_compiled_gradients_are_the_plain_ones(norm):
    models = Models.random(2, 2, 4, 2, 3, norm=norm, generator=torch.Generator().manual_seed(1), biases=True)
    models.weights["token"][0, 0] = models.weights["position"][0, 0] = 0
    tokens, targets = Task(2, 4, 2).all()
    tokens, targets = tokens.expand(2, -1, -1), targets.expand(2, -1)
    layout = Layout.of(models.weights)
    rows = layout.rows(models.weights).float()
    exact = torch.zeros_like(rows)
    truth = one_hot(targets, 2).mT.float()
    loss_and_gradients(layout.views(rows), layout.views(exact), marks(tokens, 2, torch.float32), truth, norm)
    torch.testing.assert_close(gradients(compiled.Kernel(layout, norm, tokens, targets), rows), exact, rtol=1e-3, atol=1e-4)


@needs_compiler
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_size": [32, 48, 32, 7]},
        {"batch_size": 1000, "weight_decay": [0.1, 0.0, 0.2, 0.3]},
        {"vocabulary": 4, "task": Task(3, 5, 2)},
        {"clip": [0.3, float("inf"), 0.01, 0.2]},
        {"mlp_discount": 7.0, "weight_decay": 0.1, "learning_rate": [1e-3, 3e-3, 1e-2, 1e-3]},
        {"betas": (0.0, 0.9), "width": [8, 16, 5, 16]},
        {"task": Task(3, 9, 4), "norm": "smooth", "dim": 4},
        {"task": Task(2, 14, 3), "norm": "unit"},
    ],
)
def test_compiled_training_is_the_plain_one_but_for_rounding(settings):
    settings = replace(SMALL, **settings)
    watch = Watch(snapshots=[1])
    plain = train(range(4), settings, watch, dtype=torch.float64, start=initial_models(range(4), settings))
    ours = train(range(4), settings, watch, compiled=True)
    for theirs, found in ((plain.models, ours.models), (plain.snapshots[1], ours.snapshots[1])):
        for name, value in theirs.weights.items():
            torch.testing.assert_close(found.weights[name].double(), value, rtol=1e-4, atol=1e-5, msg=name)
    assert ours.history.keys() == plain.history.keys()
    for name, value in plain.history.items():
        close = {"rtol": 1e-3, "atol": 1e-5} if "accuracy" not in name else {"rtol": 0, "atol": 0.002}
        torch.testing.assert_close(ours.history[name].double(), value.double(), equal_nan=True, **close, msg=name)


@needs_compiler
@pytest.mark.same_bits
def test_neither_company_nor_interruption_changes_a_compiled_training(tmp_path, monkeypatch):
    settings = Settings(n_train=100, epochs=4, batch_size=[32, 8, 32], clip=[0.5, 1.0, 0.2], weight_decay=0.01)
    together = train(range(3), settings, compiled=True)
    alone = train([2], settings.each(3).of([2]), compiled=True)
    assert all(torch.equal(value[2], alone.models.weights[name][0]) for name, value in together.models.weights.items())
    assert all(
        torch.equal(value[:, 2], alone.history[name][:, 0]) for name, value in together.history.items() if value.ndim > 1
    )
    assert_same(together, ensemble(range(3), settings, tmp_path / "chunks", chunk=1, jobs=1, compiled=True))
    with pytest.raises(ValueError, match="other settings"):
        ensemble(range(3), settings, tmp_path / "chunks", chunk=1, jobs=1, compiled=False)
    passes, epoch = [], compiled.Kernel.epoch

    def until_three(self, *given, **named):
        passes.append(1)
        if len(passes) == 3:
            raise KeyboardInterrupt
        epoch(self, *given, **named)

    monkeypatch.setattr(compiled.Kernel, "epoch", until_three)
    file = {"checkpoint": tmp_path / "run", "checkpoint_every": 1}
    with pytest.raises(KeyboardInterrupt):
        train(range(3), settings, compiled=True, **file)
    monkeypatch.setattr(compiled.Kernel, "epoch", epoch)
    with pytest.raises(ValueError, match="other settings"):
        train(range(3), settings, compiled=False, **file)
    assert_same(together, train(range(3), settings, compiled=True, **file))


@needs_compiler
def test_scores_that_spread_too_far_are_refused_as_by_plain_steps():
    start, scores = initial_models([0, 1]), initial_models([0, 1]).scores().flatten(1)
    for spread, refused in ((79.0, False), (81.0, True)):
        query = start.weights["query"].clone()
        query[1] *= spread / (scores[1].max() - scores[1].min())
        begin = start.replace(query=query)
        layout = Layout.of(begin.weights)
        tokens, targets = Task().sample(2 * 8, torch.Generator().manual_seed(0))
        kernel = compiled.Kernel(layout, "rms", tokens.unflatten(0, (2, 8)), targets.unflatten(0, (2, 8)))
        rows = layout.rows(begin.weights)
        for call in (kernel.predict, partial(gradients, kernel)):
            if refused:
                with pytest.raises(ValueError, match=r"within 80 of each other.* of model 1 spread over 81\.0"):
                    call(rows)
            else:
                call(rows)


@needs_compiler
def test_a_compiler_that_does_not_know_the_machines_own_instructions_is_asked_without(monkeypatch):
    expected = train([0], SMALL, compiled=True)
    monkeypatch.setattr(compiled, "library", cache(compiled.library.__wrapped__))  # which has translated nothing yet
    monkeypatch.setattr(compiled, "NATIVE", "-march=no-such-machine")
    found = train([0], SMALL, compiled=True)
    for name, value in expected.models.weights.items():
        torch.testing.assert_close(found.models.weights[name], value, rtol=1e-4, atol=1e-5)


def test_without_a_compiler_or_where_it_fails_a_sentence_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled, "library", cache(compiled.library.__wrapped__))
    if compiled.compiler() is not None:
        (tmp_path / "broken.c").write_text("int broken(")
        with monkeypatch.context() as patch:
            patch.setattr(compiled, "SOURCE", tmp_path / "broken.c")
            with pytest.raises(RuntimeError, match=r"cannot translate broken\.c: [^b].*error"):
                train([0], SMALL, compiled=True)
    monkeypatch.setattr(compiled, "COMPILERS", ("no_such_compiler",))
    assert compiled.compiler() is None
    with pytest.raises(RuntimeError, match="need a C compiler, one of no_such_compiler"):
        train([0], SMALL, compiled=True)


@pytest.mark.parametrize(
    ("given", "error"),
    [({"compiled": 1}, TypeError), ({"compiled": "yes"}, TypeError), ({"dtype": torch.float64}, ValueError)],
)
def test_compiled_steps_are_refused_where_there_are_none(given, error):
    for function in (train, ensemble):
        with pytest.raises(error, match="compiled must be"):
            function([0], SMALL, **{"compiled": True} | given)
    with pytest.raises(ValueError, match="compiled must be False"):
        train([0], SMALL, compiled=True, device="meta")


def test_models_too_large_for_compiled_steps_are_refused():
    for settings in (Settings(width=10**5, n_train=8), Settings(Task(2**13, 9, 2), n_train=8)):
        with pytest.raises(ValueError, match="compiled must be False for models as large"):
            train([0], settings, compiled=True)
    assert train([0], Settings(width=20_000, n_train=8, epochs=1)).models.width == 20_000  # in plain steps


@pytest.fixture
def unwarned(monkeypatch):
    """As if nobody had been told that steps are taken in PyTorch."""
    monkeypatch.setattr(trainer, "warn_of_plain_steps", cache(trainer.warn_of_plain_steps.__wrapped__))


@needs_compiler
@pytest.mark.same_bits
def test_steps_are_compiled_wherever_they_can_be(unwarned):
    assert_same(train(range(2), SMALL, compiled=True), train(range(2), SMALL))
    for given in ({"dtype": torch.float64}, {"device": "cpu", "dtype": torch.float64}):
        assert_same(train([0], SMALL, compiled=False, **given), train([0], SMALL, **given))


@pytest.mark.same_bits
def test_without_a_compiler_steps_are_plain_and_one_warning_says_so(unwarned, monkeypatch):
    monkeypatch.setattr(compiled, "library", cache(compiled.library.__wrapped__))
    monkeypatch.setattr(trainer, "library", compiled.library)
    monkeypatch.setattr(compiled, "COMPILERS", ("no_such_compiler",))
    with pytest.warns(RuntimeWarning, match="several times slower than in C: .*no_such_compiler"):
        found = train([0], SMALL)
    assert_same(train([0], SMALL, compiled=False), found)
    train([0], SMALL)  # a second warning would be an error
    train([0], SMALL, compiled=False)


@needs_compiler
@pytest.mark.same_bits
def test_threads_change_no_number(monkeypatch):
    found = []
    for threads in (1, 2, 5, 9):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(train(range(7), SMALL))
    for other in found[1:]:
        assert_same(found[0], other)


@needs_compiler
def test_each_model_may_have_an_order_of_its_own():
    settings = replace(SMALL, draws="laboratory")
    plain, ours = (train(range(3), settings, compiled=compiled) for compiled in (False, True))
    for name, value in plain.models.weights.items():
        torch.testing.assert_close(ours.models.weights[name], value, rtol=1e-4, atol=1e-5, msg=name)


@needs_compiler
def test_compiled_functions_get_contiguous_tensors_and_all_data():
    layout = Layout.of(initial_models([0, 1]).weights)
    tokens, targets = Task().sample(16, torch.Generator().manual_seed(0))
    kernel = compiled.Kernel(layout, "rms", tokens.unflatten(0, (2, 8)), targets.unflatten(0, (2, 8)))
    with pytest.raises(ValueError, match="predict must get contiguous tensors"):
        kernel.predict(torch.zeros(layout.size, 2).mT)
    state, pace = State.of(torch.zeros(2, layout.size)), Pace(8, (0.0, 0.9), 1.0, torch.zeros(2, layout.size))
    with pytest.raises(ValueError, match="order must name all 8 training sequences once, got 7 numbers"):
        kernel.epoch(state, torch.arange(7), pace, torch.zeros(2, 8))
