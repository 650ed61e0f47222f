"""Loss spikes: found in records, trained through again, and taken apart."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import gelu, one_hot

from attnbook.folder import results
from attnopt.clustering import Course, Models, Settings, Task, Watch, dissect, find_spikes, normalize, train
from attnopt.clustering.model import marks
from attnopt.clustering.sharpness import sharpness
from attnopt.clustering.spikes import losses, stages
from attnopt.clustering.training.backward import Layout, loss_and_gradients

SMALL = Settings(Task(2, 4, 2), n_train=16, width=4, batch_size=8)


@pytest.fixture(scope="module")
def stored():
    """The chapter's results."""
    return results("loss_spikes")


def generator(seed=0):
    """A seeded generator."""
    return torch.Generator().manual_seed(seed)


def test_finds_a_spike_and_a_collapse():
    low = [0.1] * 30
    loss = torch.tensor([low + [0.3, 0.5, 0.3] + [0.1] * 60, low + [0.5] * 63, low + [0.1] * 63]).T
    spike, collapse = find_spikes(loss)
    assert spike == (0, 30, 31, 33, loss[0, 0].item(), 0.5)
    assert collapse.model == 1
    assert collapse.start == 30
    assert collapse.end is None
    later = torch.tensor([low + [0.5] * 60 + [0.9]]).T
    within = torch.tensor([low + [0.5] * 50 + [0.9] + [0.5] * 20]).T
    assert find_spikes(within)[0].height == pytest.approx(0.9)
    beyond = torch.tensor([low + [0.5] * 51 + [0.9] + [0.5] * 20]).T
    assert find_spikes(beyond)[0].height == 0.5
    assert find_spikes(later)[0].height == 0.5  # whether it is over is asked within the patience, and so is its peak


def test_defaults_of_the_search():
    course = lambda value, times: torch.tensor([[1.0] * 5 + [value] * times + [1.0] * 60]).T  # noqa: E731
    assert find_spikes(course(2.0, 1)) == []  # it must exceed the threshold
    assert len(find_spikes(course(2.01, 1))) == 1
    assert find_spikes(torch.tensor([[1.0] * 5 + [3.0, 2.0] + [1.0] * 9]).T)[0].end == 6  # it no longer exceeds it
    assert [find_spikes(course(3.0, times))[0].end for times in (50, 51)] == [55, None]
    rising = lambda times: torch.tensor([[1.0] + [1.9] * times + [2.5] + [1.9] * 60]).T  # noqa: E731
    assert [len(find_spikes(rising(times))) for times in (19, 20)] == [1, 0]  # the low is that of twenty evaluations


def test_the_two_thresholds_and_the_cut_end():
    assert find_spikes(torch.tensor([[1e-6] * 5 + [1e-3] + [1e-6] * 5]).T) == []  # a thousandfold, but less than 0.02 more
    assert find_spikes(torch.tensor([[1.0] * 5 + [1.9] + [1.0] * 5]).T) == []  # 0.9 more, but less than twofold
    assert find_spikes(torch.tensor([[0.1] * 5 + [0.5] * 5]).T) == []  # nobody knows whether it comes back
    assert len(find_spikes(torch.tensor([[0.1, 0.5, 0.1, 0.5, 0.1]]).T)) == 2


@pytest.mark.same_bits
@pytest.mark.parametrize("batch_size", [32, 900])  # the last batch of an epoch may be shorter
def test_a_course_takes_the_engines_steps_to_the_bit(batch_size):
    training = train([3, 7], Settings(epochs=3, batch_size=batch_size), Watch(every=3, snapshots=[2]), compiled=False)
    course = Course([3, 7], Settings(batch_size=batch_size))
    state = course.initial()
    for snapshot in ({}, training.snapshots[2].weights, training.models.weights):
        for _ in course.epoch(state):
            pass
        views = course.layout.views(state.rows)
        assert all(torch.equal(views[name], snapshot[name]) for name in snapshot)


def test_runs_at_different_epochs_go_on_side_by_side():
    course = Course([3, 3], SMALL)
    state, once = course.initial(), Course([3], SMALL)
    assert not state.steps.is_floating_point()  # a count
    alone = once.initial()
    for _ in range(3):
        for _ in once.epoch(alone):
            pass
        if alone.steps[0] == 4:
            for part, own in zip(state, alone, strict=True):
                part[1] = own[0]
    for _ in course.epoch(state):
        pass
    assert state.steps.tolist() == [2, 6]
    assert torch.allclose(state.rows[1], alone.rows[0], atol=1e-6)


def example(scale=1.0, seed=0, models=3, norm="unit"):
    """Models, a step, and a task."""
    params = Models.random(models, 2, 4, 3, 5, norm=norm, generator=generator(seed), biases=True)
    after = params.map(lambda v: v + 0.05 * scale * torch.randn(v.shape, generator=generator(seed + 1), dtype=v.dtype))
    tokens, targets = Task(2, 4, 2).all()
    marked = marks(tokens, 2, torch.float64).expand(models, -1, -1)
    return params, after, marked, one_hot(targets, 2).double().expand(models, -1, -1), tokens


@pytest.mark.parametrize("norm", ["unit", "rms", "smooth"])
def test_stages_are_the_models(norm):
    params, _, marked, _, tokens = example(norm=norm)
    found = params.stages(tokens)
    for name, value in stages(params, marked).items():
        if name in found:
            assert torch.allclose(value, found[name], atol=1e-12)


@pytest.mark.parametrize("factor", [1.0, 80.0])
def test_stages_of_a_long_query_are_the_engines(factor):
    params, _, marked, truth, _ = example(norm="rms")
    params.weights["query"] = factor * params.weights["query"]
    layout = Layout.of(params.weights)
    views = layout.views(layout.rows(params.weights))
    gradients = layout.views(torch.zeros_like(layout.rows(params.weights)))
    engine = loss_and_gradients(views, gradients, marked, truth.mT.contiguous(), "rms")
    torch.testing.assert_close(losses(stages(params, marked)["logits"], truth).mean(1), engine)
    params.weights["query"] = 1e5 * params.weights["query"]
    with pytest.raises(ValueError, match="attention scores must lie within 80 of each other"):
        stages(params, marked)


@pytest.mark.parametrize(
    ("name", "change", "error", "message"),
    [
        ("before", lambda models: models.weights, TypeError, "before must be Models, got dict"),
        ("after", lambda models: None, TypeError, "after must be Models, got NoneType"),
        (
            "after",
            lambda models: Models({n: v for n, v in models.weights.items() if n != "assembler_bias"}, "unit"),
            ValueError,
            "after must have both biases",
        ),
        ("after", lambda models: models[:1], ValueError, "after must be as before, .*, got 1 Models"),
        ("after", lambda models: models.map(torch.Tensor.float), ValueError, "after must be as before, .*float64.*float32"),
        ("marked", lambda value: value.long(), TypeError, "marked must have a real floating-point dtype, got torch.int64"),
        ("marked", lambda value: value.float(), TypeError, "marked must have the dtype of token, torch.float64, got"),
        ("marked", lambda value: value[:1], ValueError, "marked must have shape"),
        ("marked", lambda value: value[0, 0], ValueError, "marked must have shape"),
        ("truth", lambda value: value[:, 1:], ValueError, "truth must have shape"),
        ("truth", lambda value: value.argmax(-1), TypeError, "truth must have a real floating-point dtype"),
        ("truth", lambda value: value.mT, ValueError, "truth must have shape"),
    ],
)
def test_a_dissection_names_what_does_not_fit(name, change, error, message):
    given = dict(zip(("before", "after", "marked", "truth"), example()[:4], strict=True))
    with pytest.raises(error, match=message):
        dissect(**given | {name: change(given[name])})


@pytest.mark.evidence("odonnat-spikes-normalisation")
def test_dissection_measures_the_rise_and_second_order_errors():
    params, after, marked, truth, tokens = example()
    found = dissect(params, after, marked, truth)
    mean = lambda p: losses(p.logits(tokens), truth).mean(1)  # noqa: E731
    assert torch.allclose(found["rise"], mean(after) - mean(params), atol=1e-12)
    half = params.replace(**{n: (v + after.weights[n]) / 2 for n, v in params.weights.items()})
    nearer = dissect(params, half, marked, truth)
    for name in ("straight layer", "straight logits", "straight loss"):
        ratio = (found[name] - found["rise"]).abs().sum() / (nearer[name] - nearer["rise"]).abs().sum()
        assert 2.5 < ratio < 6


@pytest.mark.evidence("odonnat-spikes-normalisation")
@pytest.mark.parametrize(("name", "normed"), [("sums", "table"), ("sequence", "direction")])
def test_straight_normalization_is_its_tangent(name, normed):
    params, after, marked, _truth, _ = example()
    held = stages(params, marked)
    now = stages(after, marked, held, {name: "straight"})
    unit, change = held[normed], now[name] - held[name]
    across = change - unit * (unit * change).sum(-1, keepdim=True)
    tangent = unit + across / held[name].norm(dim=-1, keepdim=True)
    torch.testing.assert_close(now[normed], tangent)
    assert (now[normed] - normalize(now[name], "unit")).abs().max() > 1e-3


@pytest.mark.evidence("odonnat-spikes-normalisation")
def test_far_alters_only_short_vectors():
    params, after, marked, _truth, _ = example()
    short = stages(params, marked)["sums"].norm(dim=-1) < 1
    assert short.any()
    held = stages(params, marked)
    same = stages(params, marked, held, {"sums": "far", "sequence": "far"})
    assert torch.allclose(same["table"], held["table"], atol=1e-12)
    moved, plain = (stages(after, marked, held, how)["table"] for how in ({"sums": "far"}, None))
    assert torch.allclose(moved[~short], plain[~short], atol=1e-12)
    turn = lambda table: (table - held["table"]).norm(dim=-1)[short].mean()  # noqa: E731
    assert turn(moved) < turn(plain)


@pytest.mark.evidence("odonnat-spikes-mlp")
def test_curvature_of_the_layer():
    W = torch.randn(7, 3, generator=generator(), dtype=torch.float64)
    U = torch.randn(3, 7, generator=generator(1), dtype=torch.float64)
    norm = lambda matrix: torch.linalg.matrix_norm(matrix, 2)  # noqa: E731
    bound = math.sqrt(2 / math.pi) * norm(U) * norm(W) * W.norm(dim=1).max()
    second = torch.func.jacfwd(torch.func.jacrev(lambda u: U @ gelu(W @ u)))
    v = normalize(torch.randn(500, 3, generator=generator(2), dtype=torch.float64), "unit")
    for u in torch.randn(20, 3, generator=generator(3), dtype=torch.float64):
        assert (torch.einsum("iab,na,nb->ni", second(u), v, v).norm(dim=1) <= bound).all()


@pytest.mark.parametrize("preconditioned", [False, True])
def test_sharpness_is_the_hessians_largest_eigenvalue(preconditioned):
    params, _, marked, truth, _ = example(models=2)
    layout = Layout.of(params.weights)
    rows = layout.rows(params.weights)
    scale = torch.rand(rows.shape, generator=generator(), dtype=rows.dtype) + 0.1
    found = sharpness(layout, rows, marked, truth, "rms", scale if preconditioned else None, iterations=60)
    size = sum(math.prod(shape) for shape in layout.shapes.values())
    for model in range(2):

        def loss(row, model=model):
            part = slice(model, model + 1)
            return losses(stages(Models(layout.views(row[None]), "rms"), marked[part])["logits"], truth[part]).mean()

        hessian = torch.func.hessian(loss)(rows[model])[:size, :size]
        if preconditioned:
            root = scale[model, :size].rsqrt()
            hessian = hessian * root * root[:, None]
        assert torch.isclose(found[model], torch.linalg.eigvalsh(hessian)[-1], rtol=1e-5)


@pytest.fixture
def problem():
    params, _, marked, truth, _ = example(models=3)
    layout = Layout.of(params.weights)
    return layout, layout.rows(params.weights), marked, truth, "rms"


@pytest.mark.same_bits
def test_sharpness_of_a_model_does_not_depend_on_its_company_or_on_units(problem):
    layout, rows, marked, truth, norm = problem
    weights = torch.rand(rows.shape, generator=generator(), dtype=rows.dtype) + 0.1
    alone = sharpness(layout, rows[:1], marked[:1], truth[:1], norm, weights[:1])
    assert torch.equal(alone, sharpness(layout, rows[:1], marked[:1], truth[:1], norm, weights[:1], iterations=40))
    company = torch.tensor([[1.0], [50.0], [1.0]], dtype=rows.dtype)  # one long model, and one whose steps are short
    steep = torch.tensor([[1.0], [1.0], [1e-20]], dtype=rows.dtype)
    together = sharpness(layout, rows * company, marked, truth, norm, weights * steep)
    torch.testing.assert_close(together[:1], alone, rtol=1e-7, atol=0)
    for unit in (1e-10, 1e10):
        scaled = sharpness(layout, rows[:1], marked[:1], truth[:1], norm, unit * weights[:1])
        torch.testing.assert_close(scaled * unit, alone, rtol=1e-7, atol=0)


def test_sharpness_of_weights_of_length_one(problem):
    layout, rows, marked, truth, norm = problem
    short = rows / rows.norm(dim=1, keepdim=True)
    fine = sharpness(layout, short, marked, truth, norm, step=3e-6)
    torch.testing.assert_close(sharpness(layout, short, marked, truth, norm), fine, rtol=1e-4, atol=0)


def test_sharpness_refuses_bad_arguments(problem):
    layout, rows, marked, truth, norm = problem
    for bad in (0.0, -1.0, math.inf, math.nan):
        weights = torch.ones_like(rows)
        weights[1, 3] = bad
        with pytest.raises(ValueError, match="preconditioner must be positive"):
            sharpness(layout, rows, marked, truth, norm, weights)
    with pytest.raises(TypeError, match="iterations"):
        sharpness(layout, rows, marked, truth, norm, iterations=2.5)
    with pytest.raises(ValueError, match="iterations"):
        sharpness(layout, rows, marked, truth, norm, iterations=0)


@pytest.mark.evidence("odonnat-spikes-gradients")
def test_stored_gradients_spike_with_the_loss(stored):
    main = stored["gradients"]
    assert main["doubled"] > 0.7 > 0.3 > main["control_doubled"]
    low, middle, _ = np.array(main["spike"]["all"])
    assert middle[20] > 5
    assert low[20] > 1.5
    assert abs(middle[18] - 1) < 0.3


@pytest.mark.evidence("odonnat-spikes-normalisation", "odonnat-spikes-mlp")
def test_stored_steps_rise_without_curvature_of_the_network(stored):
    spikes = [spike for spike in stored["dissection"]["spikes"] if spike["rise"] > 0]
    share = {
        name: np.array([spike[name] / spike["rise"] for spike in spikes])
        for name in spikes[0]
        if "str" in name or "far" in name
    }
    assert len(spikes) >= 40
    assert np.median(share["straight logits"]) > 0.7
    assert np.median(share["straight layer"]) > 0.6
    assert np.median(share["straight normalization"]) > 0.7
    assert np.median(share["far sequence"]) < 0.4


@pytest.mark.evidence("odonnat-spikes-normalisation", "odonnat-spikes-mlp")
def test_stored_first_steps_over_the_threshold_are_like_the_steepest(stored):
    first = stored["onset"]
    assert [s["start"] for s in first] == [s["start"] for s in stored["dissection"]["spikes"]]
    share = lambda name: np.median([s[name] / s["rise"] for s in first])  # noqa: E731
    assert min(share(name) for name in ("straight logits", "straight layer", "straight normalization")) > 0.9
    assert share("far sequence") < 0.4
    assert share("feed-forward") < 0.2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(clip=0.1), "clip must be inf here, got 0.1"),
        (Settings(weight_decay=0.1), "weight_decay must be 0.0 here"),
        (Settings(mlp_discount=3.0), "mlp_discount must be 1.0 here"),
        (Settings(width=[4, 8]), "width must be one for all models"),
    ],
)
def test_a_course_refuses_what_it_does_not_follow(settings, message):
    with pytest.raises(ValueError, match=message):
        Course([1, 2], settings)


@pytest.mark.parametrize(
    ("loss", "factor"), [(torch.ones(3), 2.0), (torch.tensor([[math.nan]]), 2.0), (torch.ones(3, 1), 1.0)]
)
def test_spikes_check_their_input(loss, factor):
    with pytest.raises(ValueError, match="loss|factor"):
        find_spikes(loss, factor)


def test_dissection_of_a_small_step_leaves_only_the_slope():
    params, after, marked, truth, _ = example(1e-5)
    found = dissect(params, after, marked, truth)
    for name in ("straight normalization", "straight layer", "straight logits", "straight loss"):
        assert torch.allclose(found[name], found["rise"], rtol=1e-3, atol=1e-9)
    parts = found["embeddings"] + found["attention"] + found["feed-forward"]
    assert torch.allclose(parts, found["rise"], rtol=1e-3, atol=1e-9)
