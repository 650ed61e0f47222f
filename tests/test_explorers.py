import base64
import dataclasses
import itertools
import json
import math
import re
from fractions import Fraction

import numpy as np
import pytest
import scipy.integrate
import torch
import traitlets
from explorer_states import NAMES, live_frame, make, one_by_one
from helpers import image_steps
from scipy.integrate import RK45
from spike_steps import replay
from torch.nn.functional import one_hot

from attnbook.explorer import MIME, MODULES, classic_script, module_text
from attnbook.explorers import (
    AttentionFieldExplorer,
    Explorer,
    FeatureFlowExplorer,
    GdppExplorer,
    GradientBoundExplorer,
    IdealCircuitExplorer,
    LayersExplorer,
    LayerStepsExplorer,
    LayerTrainingExplorer,
    OneLayerExplorer,
    OnePictureExplorer,
    PlateausExplorer,
    ProductExplorer,
    Sandbox,
    SoftmaxExplorer,
    SpikeStepsExplorer,
    StepSizesExplorer,
    TaskModelExplorer,
)
from attnbook.explorers.product import RUNS
from attnbook.explorers.spike_steps import DATA, SHAPES, counted, recorded
from attnbook.mount import script_json
from attnopt.clustering import Models, Settings, Task, Watch, dissect, load_models, load_run, train
from attnopt.clustering.model import marks
from attnopt.clustering.sandbox import PARTS
from attnopt.clustering.trained import load_overview
from attnopt.in_context import optimal_step_sizes, sample_grams, spectral_moments, step_loss
from attnopt.softmax import softmax_jacobian
from attnopt.synthesis import grouped_optimum, tied_optimum

CORNERS = [
    [list(logits), temperature]
    for logits in [*itertools.product((-3.0, 3.0), repeat=3), (0.0, 0.0, 0.0), (1.0, 0.3, -1.2)]
    for temperature in (0.1, 3.0)
]


@pytest.mark.parametrize(("logits", "temperature"), CORNERS)
def test_softmax_explorer_at_the_ends_of_its_controls(logits, temperature):
    numbers = SoftmaxExplorer(logits=logits, temperature=temperature).compute()
    s = torch.tensor(numbers["softmax"], dtype=torch.float64)
    assert abs(s.sum() - 1) < 1e-12
    assert max(logits) - 1e-12 <= numbers["smooth_maximum"] <= max(logits) + temperature * np.log(3) + 1e-12
    assert numbers["rise"] >= numbers["slope"] - 1e-12  # log-sum-exp is convex
    assert abs(sum(numbers["step"])) < 1e-10
    vectors = torch.tensor(numbers["eigenvectors"], dtype=torch.float64)
    values = torch.tensor(numbers["eigenvalues"], dtype=torch.float64)
    assert values[0] >= values[1] >= -1e-12
    torch.testing.assert_close(softmax_jacobian(s) @ vectors.T, vectors.T * values, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(vectors @ vectors.T, torch.eye(2, dtype=torch.float64), rtol=1e-9, atol=1e-12)
    if values[1] > 1e-9:
        assert vectors.sum(1).abs().max() < 1e-6  # in the plane of the simplex


@pytest.mark.parametrize("axis", ["class", "sequence"])
@pytest.mark.parametrize("softness", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("reach", [-3.0, 3.0])
def test_attention_field_at_the_ends_of_its_controls(axis, softness, reach):
    tokens = [[reach, reach], [-reach, reach], [0.0, 0.0]]
    numbers = AttentionFieldExplorer(tokens=tokens, axis=axis, softness=softness, selected=2).compute()
    attention = np.array(numbers["attention"])
    np.testing.assert_allclose(attention.sum(1 if axis == "class" else 0), 1, rtol=1e-12)
    difference = np.array(numbers["output"]) - np.array(numbers["target"])
    np.testing.assert_allclose(numbers["gradient"], difference, atol=1e-12)
    assert numbers["loss"] > 0


WIDE = [[2.0, 2.0], [-2.0, 2.0], [2.0, -2.0]]


@pytest.mark.parametrize("softness", [0.0, 1.0])
@pytest.mark.parametrize(
    "settings", [{}, {"weights": WIDE}, {"model": "quadratic"}, {"model": "quadratic", "exchanged": True}]
)
def test_feature_flow_descends_to_its_infimum_from_the_ends_of_its_controls(settings, softness):
    starts = [[3.0, 3.0], [-3.0, 3.0], [0.5, -3.0]]
    numbers = FeatureFlowExplorer(**settings, softness=softness, time=1000.0, starts=starts).compute()
    losses = np.array(numbers["losses"])
    assert (np.diff(losses, axis=1) <= 1e-9 * (1 + losses[:, 1:])).all()
    assert (losses >= numbers["infimum"] - 1e-12).all()
    assert losses[:, -1].min() < numbers["infimum"] + 0.02
    np.testing.assert_allclose(numbers["now"], np.array(numbers["paths"])[:, -1], rtol=1e-12)
    np.testing.assert_allclose(np.array(numbers["paths"])[:, 0], starts, rtol=1e-12)


def test_feature_flow_goes_where_its_dashed_lines_say():
    hard, soft = (FeatureFlowExplorer(softness=softness, time=1000.0).compute() for softness in (0.0, 0.5))
    np.testing.assert_allclose(np.array(hard["margins"]) ** 2, [9 / 5, 9 / 5, 9 / 2], rtol=1e-9)
    distances = np.linalg.norm(hard["paths"], axis=-1)
    growth = (distances[:, -1] - distances[:, -16]) * np.array(hard["margins"])  # over the last tenfold time
    np.testing.assert_allclose(growth, np.log(10), rtol=0.01)
    times = np.array(hard["times"])
    np.testing.assert_allclose(np.array(hard["now_losses"]) * np.array(hard["margins"]) ** 2 * times[-1], 1, rtol=0.02)
    np.testing.assert_allclose(soft["now"], soft["rests"], atol=1e-8)
    seen = (times > 20) & (times < 40)
    left = np.linalg.norm(np.array(soft["paths"]) - np.array(soft["rests"])[:, None], axis=-1)[:, seen]
    np.testing.assert_allclose(-np.polyfit(times[seen], np.log(left).T, 1)[0], soft["rates"], rtol=1e-3)


def test_pairs_of_feature_flow_fall_get_stuck_and_climb():
    pairs = {"model": "quadratic", "starts": [[2.5, 2.3], [2.0, 0.25], [-0.5, -1.2]]}
    losses = np.array(FeatureFlowExplorer(**pairs).compute()["losses"])
    assert abs(losses[0, -1] - 2 * np.log(2)) < 1e-6
    assert losses[1:, -1].max() < 0.01
    papers = np.array(FeatureFlowExplorer(**pairs, formula="paper").compute()["losses"])
    assert papers[1, -1] > papers[1, 0] + 0.2


def test_class_vectors_on_a_line_have_no_infimum_that_is_known():
    flat = [[-1.0, -0.5], [0.0, 0.0], [2.0, 1.0]]
    soft = FeatureFlowExplorer(weights=flat, softness=0.3).compute()
    assert soft["infimum"] is soft["rests"] is soft["rates"] is None
    hard = FeatureFlowExplorer(weights=flat).compute()
    assert hard["margins"] == pytest.approx([np.sqrt(1.25), 0.0, np.sqrt(5)])


@pytest.mark.same_bits
def test_the_papers_formula_of_the_linear_model_is_its_gradient():
    assert FeatureFlowExplorer(formula="paper").compute() == FeatureFlowExplorer().compute()


@pytest.mark.parametrize("scheme", ["euler", "printed", "lie", "strang"])
@pytest.mark.parametrize("model", ["linear", "quadratic"])
def test_layers_at_the_ends_of_its_controls(model, scheme):
    corners = [(0.05, 40, 0.5), (4.0, 1, 3.0)] + [(4.0, 40, 3.0)] * (scheme == "strang")  # the last takes long
    for step, layers, scale in corners:
        numbers = LayersExplorer(model=model, scheme=scheme, step=step, layers=layers, scale=scale).compute()
        assert len(numbers["losses"]) == layers + 1
        assert numbers["times"][-1] == pytest.approx(step * layers)
        assert (np.diff(numbers["exact"]) < 1e-9).all()
        assert all(value is None or 0 < value <= 1e6 for value in numbers["losses"])
        json.dumps(numbers, allow_nan=False)
        if model == "linear" and scheme == "euler" and step * numbers["operator_norm_squared"] <= 4:
            assert (np.diff(numbers["losses"]) < 1e-9).all()


def test_spike_steps_are_a_runs_own_and_their_rounding_changes_no_answer():
    models, tokens, counts = recorded()
    assert (len(models), counts.sum()) == (65, 2048)
    with np.load(DATA, allow_pickle=False) as arrays:
        about = json.loads(str(arrays["about"]))
        np.testing.assert_array_equal(arrays["counts"], counted(about["seed"]))
    assert about["provenance"]["command"] == "python experiments/spike_steps.py"
    rows = replay(about["seed"], about["first"], 33).split([math.prod(SHAPES[name]) for name in PARTS], 1)
    exact = Models({name: row.unflatten(1, SHAPES[name]) for name, row in zip(PARTS, rows, strict=True)}, "rms")
    for step in (0, 25, 31, 32, 33):
        here, there = (each[step].logits(tokens)[0] for each in (models, exact))
        np.testing.assert_allclose(here.log_softmax(-1), there.log_softmax(-1), atol=5e-3)
        wrong = [(logits.argmax(-1) != tokens[:, :5].sum(1) % 2).double() @ counts for logits in (here, there)]
        assert wrong[0] == wrong[1] == SpikeStepsExplorer(step=step).compute()["wrong"] * 2048


@pytest.mark.same_bits
def test_replayed_steps_are_those_of_training():
    settings = Settings(Task(2, 12, 5), n_train=64, batch_size=32)
    trained = train([3], Settings(Task(2, 12, 5), n_train=64, batch_size=32, epochs=2)).models.weights
    rows = replay(3, 3, 1, settings)
    found = torch.cat([trained[name].double().flatten(1) for name in PARTS], 1)
    np.testing.assert_allclose(rows[-1:], found, atol=1e-6)
    assert (rows[0] - rows[1]).abs().max() > 1e-4


@pytest.mark.parametrize("step", [1, 32, 33])
def test_spike_steps_take_a_step_apart_as_the_dissection_does(step):
    models, tokens, counts = recorded()
    marked = marks(tokens, 2, torch.float64)[None].repeat_interleave(counts.long(), 1)
    truth = one_hot(tokens[:, :5].sum(1) % 2, 2).double()[None].repeat_interleave(counts.long(), 1)
    parts, numbers = dissect(models[step - 1], models[step], marked, truth), SpikeStepsExplorer(step=step).compute()
    np.testing.assert_allclose((parts["loss"] + parts["rise"]).item(), numbers["loss"], rtol=1e-9)
    np.testing.assert_allclose((parts["loss"] + parts["far sequence"]).item(), numbers["far"], rtol=1e-9)
    np.testing.assert_allclose((parts["loss"] + parts["feed-forward"]).item(), numbers["layer"], rtol=1e-9)


def test_ideal_circuit_is_right_as_built_and_bears_little():
    numbers = IdealCircuitExplorer().compute()
    assert numbers["accuracy"] == 1
    assert numbers["least"] == pytest.approx(7 / (7 + 5 * np.exp(8)))
    assert numbers["radius"] < 0.01 * numbers["gap"]
    for strain in ({"query": [0.5, 0.0]}, {"query": [0.0, 8.0]}, {"query": [-8.0, 0.0]}, {"split": 1.0}, {"noise": 0.5}):
        assert IdealCircuitExplorer(**strain).compute()["accuracy"] < 0.8
    assert IdealCircuitExplorer(noise=0.15).compute()["accuracy"] < 0.5
    tokens = np.array(list(itertools.product((0, 1), repeat=12)))  # no query: the majority answers, six is a tie
    lead = np.sign(tokens.sum(1) - 6) * (2 * (tokens[:, :5].sum(1) % 2) - 1)
    assert IdealCircuitExplorer(query=[0.0, 0.0]).compute()["accuracy"] == ((lead + 1) / 2).mean()
    assert IdealCircuitExplorer(split=1.0, query=[16.0, 0.0]).compute()["permutation"] < 0.99
    for query in ([2.0, 0.0], [0.0, 0.0], [0.0, 8.0]):  # the suffix's squares coincide: it is forgotten, whatever the query
        numbers = IdealCircuitExplorer(query=query, rest=[0.0, 2.0]).compute()
        assert numbers["suffix"] == pytest.approx(1, abs=1e-12)
        assert numbers["permutation"] == pytest.approx(1, abs=1e-12)
        assert numbers["radius"] < 1e-9 < 0.1 < numbers["gap"] or query[1]
    for query, rest, split, noise in itertools.product(
        ([0.0, 0.0], [16.0, -16.0], [-16.0, 0.0]), ([-1.0, 0.0], [0.0, 1.0], [2.5, -2.5]), (0.0, 1.0), (0.0, 1.0)
    ):
        numbers = IdealCircuitExplorer(query=query, rest=rest, split=split, noise=noise).compute()
        json.dumps(numbers, allow_nan=False)
        assert 0 <= numbers["accuracy"] <= 1
        assert numbers["least"] <= numbers["most"] + 1e-12


def test_layers_have_the_orders_of_their_schemes():
    for model in ("linear", "quadratic"):
        errors = {
            name: np.array(values) for name, values in LayersExplorer(model=model, scale=1.0).compute()["errors"].items()
        }
        order = {name: np.log2(values[-2] / values[-1]) for name, values in errors.items()}
        assert order["euler"] == pytest.approx(1, abs=0.1)
        assert order["lie"] == pytest.approx(1, abs=0.1)
        assert order["strang"] == pytest.approx(2, abs=0.1)
        if model == "linear":
            np.testing.assert_allclose(errors["printed"], errors["euler"], rtol=1e-9)
        else:
            assert order["printed"] < 0.5  # it does not approach the flow


@pytest.mark.parametrize("step", [0.5, 1.0])
@pytest.mark.parametrize("softness", [0.5, 0.7, 1.0])
def test_short_layers_rest_where_the_flow_does(softness, step):
    settings = {
        "scale": 1.0,
        "softness": softness,
        "step": step,
        "layers": 40,
        "tokens": [[2.0, -1.0], [0.0, 3.0], [1.0, 1.0]],
    }
    numbers = LayersExplorer(**settings).compute()
    assert numbers["operator_norm_squared"] == pytest.approx(3)
    np.testing.assert_allclose(numbers["flow"][-1], numbers["rests"], atol=0.02)
    np.testing.assert_allclose(numbers["path"][-1], numbers["rests"], atol=0.02)
    assert LayersExplorer(softness=0.0).compute()["rests"] is None
    assert LayersExplorer(model="quadratic").compute()["rests"] is None


def test_long_layers_jump_to_and_fro():
    path = np.array(LayersExplorer().compute()["path"])
    assert np.linalg.norm(path[-1] - path[-2], axis=1).max() > 0.5
    assert np.linalg.norm(path, axis=-1).max() < 10


@pytest.mark.parametrize("spectrum", itertools.product((0.01, 10.0), repeat=3))
@pytest.mark.parametrize("examples", [1, 1000])
def test_one_layer_at_the_ends_of_its_controls(spectrum, examples):
    numbers = OneLayerExplorer(**dict(zip(("first", "second", "third"), spectrum, strict=True)), examples=examples).compute()
    curves = {name: np.array(values) for name, values in numbers["curves"].items()}
    for name in ("newton", "plain"):
        assert (curves["optimal"] <= curves[name] * (1 + 1e-12)).all()
        assert (np.diff(curves[name]) <= 1e-12).all()
    assert numbers["losses"]["newton"] == pytest.approx(4 * sum(spectrum) / (examples + 4), rel=1e-12)
    place = {1: 0, 1000: -1}[examples]
    for name, values in curves.items():
        assert values[place] == pytest.approx(numbers["losses"][name], rel=1e-12)
    for value, step in zip(spectrum, numbers["steps"], strict=True):
        assert step < min(1 / value, numbers["common"])
        assert 1 / step == pytest.approx(value * (1 + 1 / examples) + 1 / numbers["common"], rel=1e-12)


@pytest.mark.parametrize(("run", "epoch"), [("three", 0), ("three", 179), ("two", 400), ("none", 269), ("never", 1000)])
def test_product_is_the_run_as_recorded_where_no_factor_is_changed(run, epoch):
    explorer = ProductExplorer(run=run, epoch=epoch)
    numbers, one = explorer.compute(), explorer.record[run]
    at = max(frame for frame, there in enumerate(one["epochs"]) if there <= epoch)
    for name in ("influences", "parity", "cost", "loss"):
        assert numbers[name] == pytest.approx(one[name][at], rel=1e-4, abs=1e-12)
    model = load_run(RUNS[run][0]).at(one["epochs"][at])
    tokens, labels = Task().all()
    logits = model.logits(tokens)[0]
    assert numbers["loss"] == pytest.approx(torch.nn.functional.cross_entropy(logits, labels).item(), rel=2e-3, abs=1e-4)


@pytest.mark.parametrize(("run", "epoch"), [("three", 142), ("two", 400), ("none", 870), ("never", 700)])
def test_a_token_without_influence_leaves_no_parity(run, epoch):
    whole = ProductExplorer(run=run, epoch=epoch).compute()
    for t in range(5):
        factors = [float(other != t) for other in range(5)]
        numbers = ProductExplorer(run=run, epoch=epoch, factors=factors).compute()
        assert abs(numbers["parity"]) < 1e-13
        assert numbers["loss"] == pytest.approx(math.log(2) + numbers["cost"] / 2)
        assert numbers["influences"] == pytest.approx(
            [f * size for f, size in zip(factors, whole["influences"], strict=True)]
        )
        assert numbers["changes"] == [0, 0, 0]


@pytest.mark.parametrize(("run", "epoch"), [("three", 142), ("two", 216), ("none", 269)])
def test_product_and_readout_make_the_parity_and_reach_as_far_as_the_end(run, epoch):
    explorer = ProductExplorer(run=run, epoch=epoch, factors=[1.0, 0.7, 400.0, 2.0, 1.5])
    now, one = explorer.compute(), explorer.record[run]
    here = max(frame for frame, there in enumerate(one["epochs"]) if there <= epoch)
    assert now["product"] == pytest.approx(math.prod(now["influences"]))
    assert now["product"] * now["readout"] == pytest.approx(now["parity"])
    assert now["influences"][2] == pytest.approx(max(2 * one["influences"][here][2], one["influences"][-1][2]), rel=1e-4)
    product, readout, parity = now["changes"]
    assert parity == pytest.approx(now["parity"] / one["parity"][here])
    assert product * readout == pytest.approx(parity)
    assert product == pytest.approx(now["product"] / math.prod(one["influences"][here]), rel=1e-4)


def test_small_influences_are_factors():
    part = lambda **traits: ProductExplorer(epoch=20, **traits).compute()["parity"]  # noqa: E731
    assert part(factors=[0.5] * 5) / part() == pytest.approx(1 / 32, rel=0.1)
    assert part(factors=[1, 1, 1, 0.5, 1]) / part() == pytest.approx(0.5, rel=1e-3)
    assert part(factors=[2, 1, 1, 2, 1]) / part() == pytest.approx(4, rel=0.02)


def test_product_refuses_a_record_that_does_not_fit():
    good = ProductExplorer().record
    three = good["three"]
    token = three["weights"]["token"]
    for message, bad in (
        ("record must be of the runs three, two, none, never", {"three": three}),
        ("record of three must have epochs, weights, influences", good | {"three": {"epochs": [0]}}),
        ("record of three: .*missing", good | {"three": three | {"weights": {"token": token}}}),
        ("epochs and curves must be as many", good | {"three": three | {"loss": three["loss"][1:]}}),
        (
            "weights must have the shapes",
            good
            | {
                "three": three
                | {"weights": three["weights"] | {"position": [row[1:] for row in three["weights"]["position"]]}}
            },
        ),
        (
            "weights must be finite",
            good | {"three": three | {"weights": three["weights"] | {"token": [[[math.nan, 0], [0, 1]], *token[1:]]}}},
        ),
    ):
        with pytest.raises(traitlets.TraitError, match=message):
            ProductExplorer(record=bad)


@pytest.mark.parametrize("model", ["trained", "untrained", "ideal"])
@pytest.mark.parametrize(("query", "value", "neurons"), [(0.0, 0.0, 0.0), (3.0, -2.0, 2.0), (1.0, 2.0, 1.0)])
def test_task_model_at_the_ends_of_its_controls(model, query, value, neurons):
    for tokens in ([0] * 12, [1] * 12, [1, 0] * 6):
        explorer = TaskModelExplorer(tokens=tokens, model=model, query_scale=query, value_scale=value, neuron_scale=neurons)
        numbers = explorer.compute()
        json.dumps(numbers, allow_nan=False)
        assert sum(numbers["attention"]) == pytest.approx(1)
        assert sum(numbers["probabilities"]) == pytest.approx(1)
        assert numbers["label"] == sum(tokens[:5]) % 2
        if query == 0:
            assert numbers["attention"] == pytest.approx([1 / 12] * 12)
        if value == 0:
            assert numbers["sequence"] == numbers["direction"] == [0, 0]
            assert numbers["accuracy"] == 0.5
            assert numbers["flips"] == [0] * 12
        if neurons == 0:
            assert numbers["pushes"] == pytest.approx([0] * len(numbers["activations"]))
        if (model, query, value, neurons) == ("ideal", 1, 1, 1):
            assert numbers["probabilities"][numbers["label"]] > 0.99


def test_task_model_built_by_hand_ignores_the_suffix_and_the_order():
    generator = np.random.default_rng(0)
    for _ in range(20):
        tokens = generator.integers(0, 2, 12).tolist()
        turned = [*tokens[1:5], tokens[0], *(1 - x for x in tokens[5:])]
        here, there = (TaskModelExplorer(tokens=row, model="ideal").compute() for row in (tokens, turned))
        np.testing.assert_allclose(here["sequence"], there["sequence"], atol=0.1)
        assert here["probabilities"][here["label"]] > 0.9
        assert there["label"] == here["label"]


@pytest.mark.parametrize(("model", "frame"), [("trained", -1), ("untrained", 0)])
def test_task_model_is_a_recorded_run_in_unit_norm(model, frame):
    run, tokens = load_run("success"), Task().all()[0][::97]
    logits = run.models[len(run.epochs) - 1 if frame else 0].logits(tokens)[0]
    for row, wanted in zip(tokens, logits, strict=True):
        numbers = TaskModelExplorer(tokens=row.tolist(), model=model).compute()
        assert numbers["logits"] == pytest.approx(wanted.tolist(), rel=0.01, abs=0.01)
    assert numbers["accuracy"] == pytest.approx(run.history["all"][frame], abs=0.005)


@pytest.mark.parametrize("model", ["trained", "untrained", "ideal"])
def test_task_model_adds_its_pushes_and_names_the_tokens_that_decide(model):
    generator = np.random.default_rng(1)
    for tokens in generator.integers(0, 2, (5, 12)).tolist():
        explorer = TaskModelExplorer(tokens=tokens, model=model)
        numbers, weights = explorer.compute(), explorer.weights[model]
        difference = np.subtract(weights["token"][1], weights["token"][0])
        rest = difference @ np.add(numbers["sequence"], weights.get("assembler_bias", [0, 0]))
        zero, one = numbers["logits"]
        assert sum(numbers["pushes"]) + rest == pytest.approx(one - zero)
        for t, flip in enumerate(numbers["flips"]):
            turned = [1 - x if other == t else x for other, x in enumerate(tokens)]
            below, above = TaskModelExplorer(tokens=turned, model=model).compute()["logits"]
            assert flip == ((one > zero) != (above > below))
        if model != "untrained":
            assert numbers["flips"] == [1] * 5 + [0] * 7
            assert numbers["accuracy"] == 1


def test_task_model_refuses_weights_that_do_not_fit():
    good = TaskModelExplorer().weights
    random = good["untrained"]
    for message, bad in (
        ("weights must be of the models trained, untrained, ideal", {"untrained": random}),
        (
            "weights of ideal: weights must be token, position, .*; missing",
            good | {"ideal": {"token": good["ideal"]["token"]}},
        ),
        ("weights of untrained: query must have shape", good | {"untrained": random | {"query": [1.0]}}),
        ("weights of untrained: position must have shape", good | {"untrained": random | {"position": [[1.0, 2.0]]}}),
        ("weights of untrained must be finite", good | {"untrained": random | {"query": [1.0, float("nan")]}}),
        ("weights of ideal: .*unknown .'keys'", good | {"ideal": good["ideal"] | {"keys": [[1.0]]}}),
    ):
        with pytest.raises(traitlets.TraitError, match=message):
            TaskModelExplorer(weights=bad)
    assert len(repr(TaskModelExplorer())) < 200


def test_what_an_explorer_does_not_have_is_named():
    with pytest.raises(TypeError, match="TaskModelExplorer has no params; it can be given model, neuron_scale"):
        TaskModelExplorer(params={})
    with pytest.raises(TypeError, match="SoftmaxExplorer has no logit; it can be given before, logits, temperature"):
        SoftmaxExplorer(logit=[0.0, 0.0, 0.0])
    with pytest.raises(TypeError, match="Sandbox has no frame"):
        Sandbox(frame=3)


def test_sandbox_says_what_it_can_show():
    training = train([0, 1], Settings(epochs=1))
    for runs in ((training,), (training.models,), (3,)):
        with pytest.raises(
            TypeError, match=r"runs must be names of recorded runs \(.*success\) or runs, or one Models or .*; got"
        ):
            Sandbox(runs)
    for runs in ((), "success", 3):
        with pytest.raises(ValueError, match="runs must be names of recorded runs or runs, Models or a Training"):
            Sandbox(runs)
    with pytest.raises(ValueError, match="name must be one of the recorded runs"):
        Sandbox(runs=("unknown",))
    run = dataclasses.replace(load_run("success"), name="own")
    for runs in ((run,), ("success", "success")):
        with pytest.raises(ValueError, match="runs must have names of their own, other than 'own'"):
            Sandbox(runs)
    with pytest.raises(ValueError, match="task must have length 12"):
        Sandbox(training, task=Task(2, 8, 3))
    with pytest.raises(ValueError, match="must have the task's 2 tokens"):
        Sandbox(Models.random(1, 3, 12, norm="rms", generator=torch.Generator()))
    with pytest.raises(ValueError, match="norm must be"):
        Sandbox(Models.random(1, 2, 12, norm="smooth", generator=torch.Generator()))
    with pytest.raises(ValueError, match="at most 12 models, got 13"):
        Sandbox(training._replace(models=Models.join([training.models] * 6 + [training.models[0]])))
    with pytest.raises(traitlets.TraitError, match="live must be a frame of a training in the page"):
        Sandbox(run="own", live={"weights": {}})
    live = live_frame(2, 4, 2, 2, 3, "rms")
    live["weights"]["query"] = [1.0, 2.0, 3.0]
    with pytest.raises(traitlets.TraitError, match="live must be .*query must have shape"):
        Sandbox(run="own", live=live)


def test_sandbox_shows_models_and_trainings():
    training = train([3, 4], Settings(epochs=4), Watch(every=1, snapshots=[0, 2]))
    shown = Sandbox(training)
    assert shown.runs == ["model_0", "model_1"]
    assert shown.epoch == 4
    for run, model in (("model_0", 0), ("model_1", 1)):
        for epoch, frame in ((0, 0), (2, 1), (3, 1), (4, 2)):
            shown.run, shown.epoch = run, epoch
            kept = training.models if frame == 2 else training.snapshots[[0, 2][frame]]
            for name, value in kept[model].weights.items():
                assert torch.equal(shown.models.weights[name].float(), value)
            numbers = shown.compute()
            at = [0, 2, 4][frame]
            assert numbers["loss"] == pytest.approx(training.history["loss"][at, model].item(), rel=1e-5)
            assert numbers["accuracy"][2] == pytest.approx(training.history["accuracy_all"][at, model].item())
            assert numbers["m"] == kept[model].double().count(Task())[0][0].tolist()
    models = load_models()[[1, 4]]
    shown = Sandbox(models)
    assert (shown.epoch, shown.data["models"]["axis"]) == (0, "model")
    for at in (0, 1):
        shown.epoch = at
        numbers, known = shown.compute(), load_overview()
        assert numbers["loss"] is None
        assert numbers["accuracy"][2] == pytest.approx(known["accuracy"][[1, 4][at]].item(), abs=1e-4)
        assert numbers["m"] == known["m"][[1, 4][at]].tolist()
    without = {name: value for name, value in models.weights.items() if "bias" not in name}
    bare = Sandbox(Models(without, "rms")).models
    assert all((bare.weights[name] == 0).all() for name in ("receptor_biases", "assembler_bias"))


def test_sandbox_of_the_page_is_open_to_python():
    live = live_frame(2, 6, 2, 2, 3, "unit")
    shown = Sandbox(run="own", live=live)
    models = shown.models
    assert models.norm == "unit"
    assert models.weights["token"][0].tolist() == live["weights"]["token"]
    assert (models.weights["assemblers"][0, :, 1] == 0).all()  # neuron 2 is off
    numbers = shown.compute()
    assert (np.array(numbers["attention"])[:, 2] == 0).all()
    assert Sandbox(run="own").compute() is None
    assert Sandbox(run="own").models is None


@pytest.mark.parametrize("model", ["solved", "initial"])
@pytest.mark.parametrize("along", ["value", "receptors", "assemblers", "logits"])
def test_gradient_bound_at_the_ends_of_its_controls(model, along):
    for corner in itertools.product((0.001, 10.0), repeat=4):
        scales = dict(zip(("value", "receptors", "assemblers", "logits"), corner, strict=True))
        numbers = GradientBoundExplorer(model=model, along=along, **scales).compute()
        curves, terms = np.array(numbers["curves"]), np.array(numbers["terms"])
        assert curves.shape == (3, 61)
        assert (curves[0] <= curves[1] * (1 + 1e-9)).all()
        assert (terms[0] <= terms[1] * (1 + 1e-9)).all()
        assert (terms[0, 2:] <= terms[2, 2:] * (1 + 1e-9)).all()
        at = 0 if scales[along] < 1 else -1
        np.testing.assert_allclose(numbers["totals"], curves[:, at], rtol=1e-9)
        np.testing.assert_allclose(numbers["totals"][:2], np.linalg.norm(terms[:2], axis=1), rtol=1e-9)


def test_gradient_bound_shows_the_printed_bound_broken():
    for model in ("solved", "initial"):
        numbers = GradientBoundExplorer(model=model, value=0.001).compute()
        gradient, ours, printed = numbers["totals"]
        assert printed < gradient < ours
        assert np.array(numbers["curves"])[2, -1] > np.array(numbers["curves"])[0, -1]
    assert GradientBoundExplorer().compute()["correct"] == 16
    assert GradientBoundExplorer(model="initial").compute()["correct"] < 16
    falling = np.array(GradientBoundExplorer(along="logits").compute()["curves"])[0]
    assert falling[-1] < 1e-10 < 0.1 < falling[45]


@pytest.mark.same_bits
@pytest.mark.parametrize("name", NAMES)
def test_display_is_widget_and_json(name):
    explorer, again = make(name), next(one_by_one(name))
    bundle, _ = explorer._repr_mimebundle_()
    assert set(bundle) == {"text/plain", MIME, "application/vnd.jupyter.widget-view+json"}
    assert bundle["text/plain"] == repr(again)
    page = bundle[MIME]
    assert page["state"] == explorer.state() == again.state()
    assert json.loads(script_json(page)) == page
    assert len(page["alt"]) > 80
    assert page["bounds"] == explorer.bounds(kernel=False)


@pytest.mark.parametrize("name", NAMES)
def test_kernel_and_page_get_the_same_scripts(name):
    source = make(name)._esm
    for part in ("common", "shell", name):
        assert classic_script(part, module_text(part)) in source
    assert "innerHTML" not in source  # labels stay text


@pytest.mark.parametrize("name", NAMES)
def test_bounds_are_what_the_traits_take(name):
    explorer = make(name)
    for trait, bound in explorer.bounds().items():
        value = getattr(explorer, trait)
        size = np.shape(value)
        for end, beyond in (("low", -1), ("high", 1)):
            if end in bound:
                setattr(explorer, trait, np.full(size, bound[end]).tolist() if size else bound[end])
                with pytest.raises(traitlets.TraitError, match=trait):
                    setattr(explorer, trait, np.full(size, bound[end] + beyond).tolist() if size else bound[end] + beyond)
        for allowed in bound.get("values", ()):
            setattr(explorer, trait, [allowed] * size[0] if size else allowed)


def test_without_a_kernel_only_what_the_page_carries_is_offered():
    explorer = StepSizesExplorer()
    assert explorer.bounds()["dim"] == explorer._bounds["dim"] == {"low": 1, "high": 10, "whole": True}
    assert explorer.page()["bounds"]["dim"] == {"values": [1, 2, 5, 10]}


def test_values_that_no_control_reaches_are_named():
    for kind, name, value in (
        (SoftmaxExplorer, "logits", [0.0, 0.0]),
        (SoftmaxExplorer, "temperature", float("nan")),
        (AttentionFieldExplorer, "axis", "rows"),
        (FeatureFlowExplorer, "starts", [[0.0, 0.0], [0.0, float("nan")], [0.0, 1.0]]),
        (FeatureFlowExplorer, "model", "cubic"),
        (TaskModelExplorer, "tokens", [0] * 11),
        (TaskModelExplorer, "tokens", [2] * 12),
        (GdppExplorer, "context", 4),
        (StepSizesExplorer, "own", [1.0]),
        (LayerTrainingExplorer, "starts", [0.3, 0.31]),
        (LayerTrainingExplorer, "starts", [0.3, 0.31, 4.0, 0.0]),
        (LayerTrainingExplorer, "time", 1.5),
        (StepSizesExplorer, "own", [float("nan")] * 4),
        (Sandbox, "run", "spike"),
        (Sandbox, "epoch", -1),
        (Sandbox, "data", {"other": {}}),
    ):
        with pytest.raises(traitlets.TraitError, match=name):
            kind(**{name: value})


@pytest.mark.parametrize(("context", "layers", "scale"), itertools.product((3, 100), (1, 4), (0.5, 1.0, 1.5)))
def test_gdpp_explorer_at_the_ends_of_its_controls(context, layers, scale):
    numbers = GdppExplorer(context=context, layers=layers, scale=scale).compute()
    for name, curve in numbers["residuals"].items():
        assert curve[0] == 1
        losses = numbers["losses"][name]
        if scale == 1:
            assert all(0 < after < before for before, after in itertools.pairwise([1.0, *losses]))
    if scale == 1:
        for gdpp, plain, constant in zip(
            *(numbers["losses"][name][:4] for name in ("gdpp", "plain", "constant")), strict=True
        ):
            assert gdpp <= plain * (1 + 1e-6) <= constant * (1 + 1e-5)
        assert numbers["worth"] == {1: 1, 4: 0}[layers]  # four layers are worth more than the plain ones drawn
        steps = optimal_step_sizes(5, context, layers)[1]
        assert numbers["losses"]["plain"][layers - 1] == pytest.approx(float(steps) / 5, rel=1e-6)
    carried = np.array(numbers["carried"])
    assert carried.shape == (layers, len(numbers["nodes"]))
    np.testing.assert_allclose(carried[0], numbers["nodes"])
    kept = np.array(numbers["kept"])  # before layer 0, and after each
    assert (kept[0] == 1).all()
    factors = 1 - carried / np.array(numbers["roots"])[:, None]
    np.testing.assert_allclose(kept[1:], np.cumprod(factors, axis=0), rtol=1e-9, atol=1e-12)


IMAGE_CORNERS = list(
    itertools.product((0, 3), ("true", "predicted", "soft", "T-shirt/top", "Ankle boot"), (0.0, 1.0), (0.05, 3.0), (0, 5))
)


@pytest.mark.parametrize(("image", "label", "noise", "step", "iteration"), IMAGE_CORNERS)
def test_image_steps_at_the_ends_of_its_controls_moves_pixels(image, label, noise, step, iteration):
    explorer = image_steps(image=image, label=label, noise=noise, step=step, iteration=iteration)
    numbers = explorer.compute()
    bytes_of = {name: base64.b64decode(getattr(explorer, name)) for name in ("images", "weights", "bias", "pattern")}
    theta = np.frombuffer(bytes_of["weights"], "<f4").reshape(10, 784).astype(float)
    clean = np.frombuffer(bytes_of["images"], "u1").reshape(3, 784)[image - 1] / 255 if image else np.zeros(784)
    start = z = clean + noise * np.frombuffer(bytes_of["pattern"], "<f4")
    target = None
    for iterate in range(6):
        exponentials = np.exp(theta @ z + np.frombuffer(bytes_of["bias"], "<f4"))
        probabilities = exponentials / exponentials.sum()
        if target is None:
            rules = {"true": 9 if image else 0, "predicted": probabilities.argmax(), "T-shirt/top": 0, "Ankle boot": 9}
            target = probabilities if label == "soft" else np.eye(10)[rules[label]]
        np.testing.assert_allclose(numbers["probabilities"][iterate], probabilities, rtol=1e-8, atol=1e-9)
        assert numbers["predicted"][iterate] == probabilities.argmax()
        assert numbers["moved"][iterate] == pytest.approx(np.linalg.norm(z - start), rel=1e-9, abs=1e-9)
        if iterate == iteration:
            np.testing.assert_allclose(numbers["difference"] @ theta, z - start, rtol=1e-9, atol=1e-9)
        z = z + step * (target - probabilities) @ theta
    np.testing.assert_allclose(numbers["imposed"], target, rtol=1e-9, atol=1e-12)
    assert numbers["start_norm"] == pytest.approx(np.linalg.norm(start), abs=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_a_classifiers_own_softmax_does_not_move_the_image_at_all(seed):
    explorer = image_steps(seed, label="soft", noise=0.7, step=3.0, iteration=5)
    for image in range(4):
        explorer.image = image
        numbers = explorer.compute()
        np.testing.assert_allclose(numbers["moved"], 0, atol=1e-9)  # rounding, which six steps of size 3 magnify
        np.testing.assert_allclose(numbers["difference"], 0, atol=1e-9)
        np.testing.assert_allclose(numbers["probabilities"], [numbers["imposed"]] * 6, rtol=1e-9)


def test_image_steps_keeps_arrays_as_the_page_reads_them():
    images = torch.arange(2 * 784, dtype=torch.uint8).reshape(2, 28, 28)
    weights = torch.linspace(-1, 1, 7840, dtype=torch.float64).reshape(10, 784)
    explorer = image_steps(images=images, truth=torch.tensor([3, 4]), weights=weights)
    assert base64.b64decode(explorer.images) == images.numpy().tobytes()
    assert base64.b64decode(explorer.weights) == weights.numpy().astype("<f4").tobytes()
    assert explorer.truth == [3, 4]
    assert image_steps(images=images / 255, truth=[3, 4]).images == explorer.images
    pattern = np.frombuffer(base64.b64decode(explorer.pattern), "<f4")
    assert explorer.pattern == image_steps(1).pattern  # the same noise always
    assert abs(pattern.mean()) < 0.15
    assert abs(pattern.std() - 1) < 0.1
    assert len(repr(explorer)) < 120


def test_what_image_steps_cannot_show_is_named():
    good = torch.rand(3, 28, 28, generator=torch.Generator().manual_seed(0))
    for message, bad in (
        ("images must have shape \\(n, 28, 28\\), got \\(3, 784\\)", {"images": good.reshape(3, 784)}),
        ("images must hold uint8 of shape \\(n, 28, 28\\), got 0 bytes", {"images": good[:0], "truth": []}),
        ("images must hold uint8 of shape \\(n, 28, 28\\), got 3 bytes", {"images": "AAAA"}),
        ("images must lie in \\[0, 1\\]", {"images": 2 * good}),
        ("images must lie in \\[0, 1\\]", {"images": good * torch.nan}),
        ("images cannot be kept as uint8, got torch.int64", {"images": good.long()}),
        ("truth must have a class for each of the 3 images, got 2", {"truth": [0, 1]}),
        ("truth must lie in 0..9", {"truth": [0, 1, 10]}),
        ("weights must have shape \\(10, 784\\)", {"weights": torch.zeros(784, 10)}),
        ("weights must be an array or base64", {"weights": "A"}),
        ("weights must hold float32 of shape \\(10, 784\\), got 62720 bytes", {"weights": "A" * 83624 + "AAA="}),
        ("bias must have shape \\(10,\\)", {"bias": torch.zeros(9)}),
        ("bias must be finite", {"bias": torch.full((10,), torch.inf)}),
        ("pattern must have shape \\(784,\\)", {"pattern": torch.zeros(28, 28)}),
        ("classes must be ten different names", {"classes": ["soft", *"abcdefghi"]}),
        ("image must lie in 0..3, got 4", {"image": 4}),
        ("label must be one of", {"label": "Hat"}),
        ("noise must lie in", {"noise": 1.1}),
        ("noise must lie in", {"noise": float("nan")}),
        ("step must lie in", {"step": 0.0}),
        ("iteration", {"iteration": 6}),
    ):
        with pytest.raises(traitlets.TraitError, match=message):
            image_steps(**bad)
    explorer = image_steps(label="Bag", image=3)
    with pytest.raises(traitlets.TraitError, match="image must lie in 0..3"):
        explorer.image = 9
    with pytest.raises(traitlets.TraitError, match="truth must have a class for each"):
        explorer.images = good[:1]
    with pytest.raises(traitlets.TraitError, match="image must lie in 0..1, got 3"), explorer.hold_trait_notifications():
        explorer.images, explorer.truth = good[:1], [0]
    assert explorer.image == len(explorer.truth) == 3
    explorer.image = 0
    with explorer.hold_trait_notifications():
        explorer.images, explorer.truth = good[:1], [0]
    assert explorer._bounds["image"]["high"] == 1  # the page offers so many


@pytest.mark.parametrize("scheme", ["optimal", "constant", "chebyshev", "own"])
@pytest.mark.parametrize(("dim", "n_context"), [(1, 1), (1, 100), (5, 20), (10, 1), (10, 100)])
def test_step_sizes_at_the_ends_of_its_controls_has_the_exact_losses(dim, n_context, scheme):
    for layers in (1, 4):
        for own in ([0.02] * 4, [8.0] * 4, [0.4, 0.7, 1.7, 0.1]):
            explorer = StepSizesExplorer(dim=dim, n_context=n_context, layers=layers, scheme=scheme, own=own)
            numbers = explorer.compute()
            json.dumps(numbers, allow_nan=False)
            exact = step_loss([-size for size in numbers["sizes"]], dim, n_context).item()
            assert numbers["loss"] == pytest.approx(exact, rel=1e-6)
            assert numbers["best"] == pytest.approx(float(optimal_step_sizes(dim, n_context, layers)[1]), rel=1e-6)
            assert numbers["losses"]["optimal"][layers - 1] == pytest.approx(numbers["best"], rel=1e-9)
            assert numbers["best"] <= numbers["loss"] * (1 + 1e-9)
            assert numbers["residual"][0] == 1
    losses = numbers["losses"]
    for name in ("constant", "chebyshev"):
        assert (np.array(losses["optimal"]) <= np.array(losses[name]) * (1 + 1e-9)).all()
    for size in np.linspace(0.05, 1.5, 30):
        assert losses["constant"][2] <= step_loss([-size] * 3, dim, n_context).item() * (1 + 1e-6)


@pytest.mark.parametrize(("dim", "n_context"), [(1, 1), (1, 2), (2, 2), (5, 20), (10, 10), (10, 1), (5, 3), (10, 100)])
def test_the_density_of_step_sizes_is_that_of_the_mean_spectrum(dim, n_context):
    explorer = StepSizesExplorer(dim=dim, n_context=n_context)
    numbers = explorer.compute()
    places, density = np.array(numbers["places"]), np.array(numbers["density"])
    if (dim, n_context) == (1, 2):  # λ is exponential
        np.testing.assert_allclose(density, np.exp(-places), rtol=1e-3, atol=1e-6)
    roots = np.concatenate([[0], places**0.5])  # in √λ nothing is singular
    start = density[0] * roots[1] if n_context == dim else 0.0

    def below(power):
        return np.concatenate(
            [
                [0],
                scipy.integrate.cumulative_simpson(
                    np.concatenate([[start if power == 0 else 0.0], density * roots[1:] * places**power]) * 2, x=roots
                ),
            ]
        )

    zeros = max(dim - n_context, 0)
    grams = sample_grams(20_000, dim, n_context, torch.Generator().manual_seed(0))
    values = torch.linalg.eigvalsh(grams.double())[:, zeros:].flatten().numpy()
    for share in (0.1, 0.3, 0.5, 0.8):
        end = share * places[-1]
        sampled = (values < end).sum() / len(grams)
        assert np.interp(end**0.5, roots, below(0)) == pytest.approx(sampled, abs=0.01 * dim)
    beyond = 0.01 * spectral_moments(dim, n_context, 3)[1] / n_context
    assert below(0)[-1] == pytest.approx(dim - zeros, abs=0.01)
    assert below(1)[-1] == pytest.approx(spectral_moments(dim, n_context, 3)[1] / n_context, abs=beyond)
    assert explorer.compute()["left"][0] == pytest.approx(density[0], rel=0.1)


def test_step_sizes_answers_any_dimensions_and_examples():
    explorer = StepSizesExplorer(scheme="optimal")
    carried = set(explorer.table)
    explorer.n_context = 33
    explorer.dim = 3
    assert set(explorer.table) - carried == {"5 33", "3 33"}
    assert explorer.compute()["loss"] == pytest.approx(float(optimal_step_sizes(3, 33, 3)[1]), rel=1e-6)
    assert "3 33" in StepSizesExplorer(dim=3, n_context=33).table
    assert set(StepSizesExplorer().table) == carried
    assert "_bounds" not in explorer.state()
    assert "table" not in repr(explorer)


@pytest.mark.parametrize(("dim", "n_context"), [(1, 1), (1, 100), (5, 20), (10, 1), (10, 100)])
def test_layer_training_at_the_ends_of_its_controls_stays_finite_and_descends(dim, n_context):
    for layers, tied, starts in itertools.product((1, 4), (False, True), ([-1.0] * 4, [3.0] * 4, [3.0, -1.0, 2.9, 0.0])):
        for time in (0.0, 1.0):
            traits = {"dim": dim, "n_context": n_context, "layers": layers, "tied": tied, "starts": starts, "time": time}
            numbers = LayerTrainingExplorer(**traits).compute()
            json.dumps(numbers, allow_nan=False)
            losses = np.array(numbers["losses"])
            assert losses[0] == pytest.approx(
                step_loss([-size[0] for size in numbers["sizes"]], dim, n_context).item(), rel=1e-6
            )
            assert (np.diff(losses) <= 1e-7 * losses[1:]).all()
            assert numbers["floor"] == pytest.approx(float(optimal_step_sizes(dim, n_context, layers)[1]), rel=1e-6)
            assert numbers["floor"] <= losses[-1] * (1 + 1e-9)
            shown = 0 if time == 0 else -1
            assert numbers["moment"] == numbers["times"][shown]
            assert numbers["loss"] == pytest.approx(losses[shown], rel=1e-12)
            assert numbers["now"] == [sizes[shown] for sizes in numbers["sizes"]]
            assert numbers["residual"][0] == 1
        if layers == 1 or tied:
            assert losses[-1] == pytest.approx(numbers["level"], rel=1e-6)


def test_layer_training_answers_any_dimensions_and_examples():
    explorer = LayerTrainingExplorer(time=1.0)
    carried = set(explorer.table)
    explorer.n_context = 33
    explorer.dim = 3
    assert set(explorer.table) - carried == {"5 33", "3 33"}
    numbers = explorer.compute()
    np.testing.assert_allclose(np.sort(numbers["now"]), -optimal_step_sizes(3, 33, 2)[0].numpy(), rtol=1e-6)
    assert explorer.page()["bounds"]["n_context"] == {"values": [2, 5, 10, 20, 40, 100]}
    assert explorer.bounds()["n_context"] == {"low": 1, "high": 100, "whole": True}
    assert "table" not in repr(explorer)


@pytest.mark.parametrize(("dim", "n_context"), [(1, 5), (1, 40), (5, 20), (10, 5), (10, 40)])
def test_plateaus_are_left_when_the_formula_says_so(dim, n_context):
    alike = [PlateausExplorer(dim=dim, n_context=n_context, layers=2, pair=pair).compute() for pair in (-5.0, 0.0, 5.0)]
    assert alike[0] == alike[1] == alike[2]  # two layers are one pair, whatever is said of pairs
    depths = (2, 5.0), (3, -5.0), (3, 0.0), (3, 5.0)
    for (layers, pair), spread, start in itertools.product(depths, (-9.0, -5.5), (0.0, 1.0)):
        explorer = PlateausExplorer(dim=dim, n_context=n_context, layers=layers, spread=spread, start=start, pair=pair)
        numbers = explorer.compute()
        json.dumps(numbers, allow_nan=False)
        assert numbers["apart"] == pytest.approx(numbers["first"], rel=0.02)
        assert numbers["floor"] == pytest.approx(float(optimal_step_sizes(dim, n_context, layers)[1]), rel=1e-9)
        assert numbers["losses"][-1] == pytest.approx(numbers["floor"], rel=0.1)
        assert (np.diff(numbers["losses"]) <= 1e-9).all()
        assert (np.diff(numbers["sizes"], axis=0) > 0).all()
        if layers == 3 and pair == 5:  # the larger two wait for each other, at a loss of their own
            moment = int(np.searchsorted(numbers["times"], (numbers["first"] + numbers["second"]) / 2))
            assert numbers["losses"][moment] == pytest.approx(numbers["pair_level"], rel=0.01)
            assert numbers["pair_level"] == pytest.approx(grouped_optimum((1, 2), dim, n_context)[1])


def test_plateaus_answer_any_dimensions_and_examples():
    explorer = PlateausExplorer()
    explorer.n_context = 33
    explorer.dim = 3
    assert {"5 33", "3 33"} < set(explorer.table)
    assert explorer.compute()["level"] == pytest.approx(tied_optimum(3, 33, 2)[1])
    assert explorer.page()["bounds"]["n_context"] == {"values": [5, 10, 20, 40]}
    assert "table" not in repr(explorer)


def test_script_json_cannot_end_its_element():
    text = script_json({"label": "</script><!-- <b>"})
    assert "<" not in text
    assert json.loads(text) == {"label": "</script><!-- <b>"}


def test_base_class_asks_for_its_methods():
    class Empty(Explorer):
        _esm = "export default {}"

    with pytest.raises(NotImplementedError):
        Empty().compute()


@pytest.mark.parametrize("prompt", [0, 1, 2])
@pytest.mark.parametrize("conditioning", [1.0, 30.0])
def test_layer_steps_follow_the_transformer_and_whitening_forgets_the_covariance(prompt, conditioning):
    for method in ("plain", "covariance", "optimal", "newton"):
        settings = {"method": method, "prompt": prompt, "layers": 6, "step": 1.0}
        numbers = LayerStepsExplorer(**settings, conditioning=conditioning).compute()
        target, gram, path = (np.array(numbers[name]) for name in ("target", "gram", "path"))
        assert path.shape == (7, 2)
        np.testing.assert_allclose(numbers["losses"], [(w - target) @ gram @ (w - target) / 2 for w in path], rtol=1e-9)
        plain = LayerStepsExplorer(**settings, conditioning=1.0).compute()["errors"]
        for name in ("covariance", "optimal"):
            np.testing.assert_allclose(numbers["errors"][name], plain[name], rtol=1e-7, atol=1e-12)
        assert numbers["errors"]["newton"][1] < 1e-20 * max(1, conditioning)
        if conditioning > 1:
            assert abs(numbers["errors"]["plain"][-1] - plain["plain"][-1]) > 1e-3


def test_target_of_the_layer_steps_is_the_latent_weights_in_double_precision():
    target = LayerStepsExplorer(conditioning=1.0).compute()["target"]
    np.testing.assert_allclose(target, [0.9, 1.2], rtol=1e-14)


def test_the_pages_integrator_has_the_coefficients_of_dormand_and_prince():
    text = (MODULES / "common.js").read_text(encoding="utf-8")
    lists = re.search(r"const STAGES = (.*?)\n\];\nconst DIFFERENCE = (.*?);", text, re.DOTALL).groups()
    *stages, difference = (
        [float(Fraction(number.replace(" ", ""))) for number in row.split(",")]
        for part in lists
        for row in re.findall(r"\[([^][]+)\]", part)
    )
    for number, row in enumerate(stages[:-1], 1):
        np.testing.assert_allclose(row, RK45.A[number, :number], rtol=1e-15)
    np.testing.assert_allclose(stages[-1], RK45.B, rtol=1e-15)
    np.testing.assert_allclose(difference, -RK45.E, rtol=1e-15)


def tilted_mean(*, context, query, ones, degree=60):
    """Attention of the one picture as a mean over tokens: each cluster's by Gauss and Hermite's nodes, none by a formula."""
    loose = 1 - abs(context - 1)
    near, wide, sharp = max(0, 2 * loose - 1), min(1, 2 * loose), max(0, 2 * context - 3)
    nodes, weights = np.polynomial.hermite_e.hermegauss(degree)
    grid = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2)
    root = np.linalg.cholesky(np.array([[0.8, -0.4], [-0.4, 0.5]]))
    tokens, shares = [], []
    for centre, count in zip(([1, 0], [0, 1], [-1, -1]), (5 - ones, ones, 7), strict=True):
        tokens.append((1 - near) * np.array(centre) + wide * grid @ root.T)
        shares.append(np.outer(weights, weights).ravel() / (2 * np.pi) * ((1 - sharp) / 3 + sharp * count / 12))
    tokens, shares = np.concatenate(tokens), np.concatenate(shares)
    mass = shares * np.exp((1 + 5 * sharp) * tokens @ query)
    return mass @ tokens / mass.sum(), np.log(mass.sum()) / (1 + 5 * sharp)


@pytest.mark.parametrize("context", [0.0, 0.35, 0.8, 1.0, 1.4, 1.7, 2.0])
@pytest.mark.parametrize("query", [[1.2, 1.2], [-0.7, 0.4], [0.3, -1.1]])
def test_attention_of_one_picture_is_the_mean_of_the_tilted_tokens(context, query):
    for ones in (0, 3):
        explorer = OnePictureExplorer(context=context, query=query, ones=ones)
        numbers = explorer.compute()
        mean, potential = tilted_mean(context=context, query=np.array(query), ones=ones)
        np.testing.assert_allclose(numbers["attention"], mean, atol=1e-6)
        assert numbers["potential"] == pytest.approx(potential, abs=1e-6)
        assert sum(numbers["weights"]) == pytest.approx(1)
