"""The model, against a forward pass in plain loops; what embeddings can reach; unit and rms normalization; the table."""

import copy
import itertools
import json
import math
import re

import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from torch.nn.functional import cross_entropy
from torch.nn.utils import parametrizations, prune

from attnopt.clustering import (
    Models,
    Settings,
    Task,
    closed_form_gradients,
    invariance,
    normalize,
    train,
)
from attnopt.clustering.model import STAGES, smooth_step

GEOMETRY = ("query", "value", "receptors")  # what the rms normalization scales by √d


def model(seed=0, models=3, p=3, length=4, dim=2, width=5, norm="unit", **options):
    """A random ensemble."""
    return Models.random(models, p, length, dim, width, **options, norm=norm, generator=torch.Generator().manual_seed(seed))


def one_by_one(models, m, sequence):
    """Logits of one model on one sequence, from section 2.2's formulas with Python numbers."""
    weights, norm = {name: value[m].tolist() for name, value in models.weights.items()}, models.norm
    dim, dot = len(weights["query"]), lambda a, b: sum(x * y for x, y in zip(a, b, strict=True))

    def scaled(vector):
        length = math.sqrt(dot(vector, vector))
        return [x / (length if norm == "unit" else length / math.sqrt(dim) + 1e-5) for x in vector]

    z = [
        scaled([a + b for a, b in zip(weights["token"][x], weights["position"][t], strict=True)])
        for t, x in enumerate(sequence)
    ]
    scores = [math.exp(dot(row, weights["query"]) / math.sqrt(dim)) for row in z]
    mixture = [sum(s * row[i] for s, row in zip(scores, z, strict=True)) / sum(scores) for i in range(dim)]
    xi = [dot(row, mixture) for row in weights["value"]]
    psi, direction = list(xi), scaled(xi)
    for i, receptor in enumerate(weights["receptors"]):
        x = dot(receptor, direction) + weights.get("receptor_biases", [0] * len(weights["receptors"]))[i]
        fired = x * (1 + math.erf(x / math.sqrt(2))) / 2
        psi = [value + fired * row[i] for value, row in zip(psi, weights["assemblers"], strict=True)]
    psi = [value + bias for value, bias in zip(psi, weights.get("assembler_bias", [0] * dim), strict=True)]
    return [dot(row, psi) for row in weights["token"]]


@pytest.mark.evidence("odonnat-model")
@pytest.mark.parametrize("norm", ["unit", "rms"])
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_forward_is_section_2_2(norm, biases, dim):
    models = model(dim=dim, biases=biases, norm=norm)
    tokens, _ = Task(3, 4, 2).all()
    logits = models.logits(tokens)
    for m, n in itertools.product(range(3), range(0, 81, 7)):
        expected = torch.tensor(one_by_one(models, m, tokens[n].tolist()), dtype=torch.float64)
        torch.testing.assert_close(logits[m, n], expected, rtol=1e-12, atol=1e-12)


def test_the_initialisation_has_the_documented_shapes_and_scales():
    params = model(models=4000, p=3, length=5, dim=4, width=9, biases=True)
    for name, shape, bound in (
        ("token", (3, 4), None),
        ("position", (5, 4), None),
        ("query", (4,), 1 / 2),
        ("value", (4, 4), 1 / 2),
        ("receptors", (9, 4), 1 / 2),
        ("assemblers", (4, 9), 1 / 3),
        ("receptor_biases", (9,), 1 / 2),
        ("assembler_bias", (4,), 1 / 3),
    ):
        value = params.weights[name]
        assert value.shape == (4000, *shape)
        spread = 1 if bound is None else bound / math.sqrt(3)
        assert abs(value.std() / spread - 1) < 0.02
        assert abs(value.mean()) < 5 * spread / math.sqrt(value.numel())
        if bound is not None:
            assert value.abs().max() <= bound
            assert value.abs().max() > 0.99 * bound
    assert not model().biased
    assert model(dtype=torch.float32).weights["token"].dtype == torch.float32


# ---------------------------------------------------------------- symmetries, keys and outputs


@pytest.mark.evidence("odonnat-model")
@pytest.mark.parametrize("dim", [2, 3])
def test_key_and_output_matrices_are_absorbed_by_query_and_value(dim):
    generator = torch.Generator().manual_seed(3)
    params = model(dim=dim)
    tokens, _ = Task(3, 4, 2).all()
    key, output = (torch.randn(3, dim, dim, generator=generator, dtype=torch.float64) for _ in range(2))
    z = params.stages(tokens)["embeddings"]
    keyed = (z @ key.unsqueeze(1).mT @ params.weights["query"][:, None, :, None]).squeeze(-1) / math.sqrt(dim)
    xi = torch.einsum("mij,mnj->mni", output @ params.weights["value"], torch.einsum("mnt,mntd->mnd", keyed.softmax(-1), z))
    absorbed = params.replace(
        query=(key.mT @ params.weights["query"].unsqueeze(-1)).squeeze(-1), value=output @ params.weights["value"]
    )
    torch.testing.assert_close(absorbed.stages(tokens)["sequence"], xi, rtol=1e-12, atol=1e-12)


# ---------------------------------------------------------------- what embeddings can reach


def reachable(directions):
    """Whether some E and P have E(x) + P(t) = r u_xt with every r positive, by linear programming."""
    p, length, dim = directions.shape
    unknowns = p * length + (p + length) * dim
    rows = np.zeros((p, length, dim, unknowns))
    for x, t, i in itertools.product(range(p), range(length), range(dim)):
        rows[x, t, i, x * length + t] = -directions[x, t, i]
        rows[x, t, i, p * length + x * dim + i] = 1
        rows[x, t, i, p * length + (p + t) * dim + i] = 1
    bounds = [(1, None)] * (p * length) + [(None, None)] * (unknowns - p * length)
    matrix = rows.reshape(-1, unknowns)
    return linprog(np.zeros(unknowns), A_eq=matrix, b_eq=np.zeros(len(matrix)), bounds=bounds).status == 0


@pytest.mark.evidence("odonnat-model")
def test_no_embedding_reaches_the_exclusive_or_in_any_dimension():
    for dim in (1, 2, 3, 5):
        up = np.eye(dim)[0]
        assert not reachable(np.stack([np.stack([up, -up]), np.stack([-up, up])]))
        assert reachable(np.stack([np.stack([up, up]), np.stack([-up, -up])]))
    rng = np.random.default_rng(0)
    for _ in range(200):  # additive numbers have no such signs
        e, q = rng.normal(size=(2, 2, 3))
        sums = e[:, None] + q[None]
        assert not ((sums[0, 0] > 0) & (sums[1, 1] > 0) & (sums[0, 1] < 0) & (sums[1, 0] < 0)).any()


# ---------------------------------------------------------------- normalization


@pytest.mark.evidence("odonnat-model")
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 5])
def test_rms_is_unit_with_three_weights_times_root_d(dim, biases):
    params = model(5, 4, dim=dim, biases=biases)
    tokens, _ = Task(3, 4, 2).all()
    unit = params.replace(**{name: dim**0.5 * params.weights[name] for name in GEOMETRY})
    expected = unit.logits(tokens)
    far = 1e7  # scaling embeddings and back leaves probabilities alone, and makes the 1e-5 harmless
    grown = ("token", "position", "value", "assemblers", "assembler_bias")
    large = {name: far * value if name in grown else value for name, value in params.weights.items()}
    torch.testing.assert_close(Models(large, "rms").logits(tokens) / far**2, expected, rtol=1e-8, atol=1e-8)
    close = Models(params.weights, "rms").logits(tokens)
    assert (close - expected).abs().median() < 1e-3
    assert not torch.allclose(params.logits(tokens), expected) or dim == 1


@pytest.mark.parametrize(
    ("length", "smoothed"),
    [(0.001, 0.001), (0.25, 0.25 + 0.75 / (1 + math.exp(8 / 3))), (0.5, 0.75), (1.0, 1.0), (40.0, 1.0)],
)
def test_lengths_after_each_normalization(length, smoothed, generator):
    directions = torch.nn.functional.normalize(torch.randn(6, 3, generator=generator, dtype=torch.float64), dim=-1)
    rms = length / (length / 3**0.5 + 1e-5)
    for norm, wanted in (("unit", 1.0), ("rms", rms), ("smooth", 3**0.5 * smoothed)):
        torch.testing.assert_close(normalize(length * directions, norm), wanted * directions)
        torch.testing.assert_close(
            normalize(length * directions.view(1, 2, 3, 3), norm), wanted * directions.view(1, 2, 3, 3)
        )
        torch.testing.assert_close(normalize(length * directions.view(3, 2, 3), norm), wanted * directions.view(3, 2, 3))


@pytest.mark.evidence("odonnat-smoothed-normalisation")
def test_every_derivative_of_the_smooth_step_vanishes_at_both_ends():
    """With h the step, σ = r + (1 - r)h: its derivatives are those of r at 0, and those of 1 at 1, to any order."""
    with mpmath.workdps(300):
        falling = lambda r: mpmath.exp(-1 / r)  # noqa: E731
        step = lambda r: falling(r) / (falling(r) + falling(1 - r))  # noqa: E731
        for near in (mpmath.mpf("0.01"), mpmath.mpf("0.005")):
            for order in range(1, 9):
                bound = 3 * falling(near) * (2 / near**2) ** order  # each derivative brings down no more than that
                for at in (near, 1 - near):
                    assert abs(mpmath.diff(step, at, order)) < bound * mpmath.factorial(order)
        values = torch.linspace(0.011, 0.989, 50, dtype=torch.float64)
        exact = torch.tensor([float(step(mpmath.mpf(r))) for r in values.tolist()], dtype=torch.float64)
    torch.testing.assert_close(smooth_step(values), exact, rtol=1e-12, atol=0)
    assert smooth_step(torch.tensor([0.0, 1.0, 7.0], dtype=torch.float64)).tolist() == pytest.approx([0, 1, 1], abs=1e-40)


@pytest.mark.parametrize(("norm", "derivative"), [("unit", 0.0), ("rms", 1e5), ("smooth", 2**0.5)])
def test_the_zero_vector_stays_zero_and_has_the_documented_derivative(norm, derivative):
    zero = torch.zeros(3, 2, dtype=torch.float64, requires_grad=True)
    assert not normalize(zero, norm).any()
    (slope,) = torch.autograd.grad(normalize(zero, norm)[:, 0].sum(), zero)
    expected = torch.tensor([derivative, 0.0], dtype=torch.float64).expand(3, 2)
    torch.testing.assert_close(slope, expected)


def test_at_a_zero_sequence_embedding_autograd_agrees_with_the_closed_form():
    params = model(6)
    params.weights["value"] = torch.zeros_like(params.weights["value"]).requires_grad_()
    tokens, targets = Task(3, 4, 2).all()
    logits = params.logits(tokens)
    loss = cross_entropy(logits.flatten(0, 1), targets.repeat(3), reduction="sum") / len(targets)
    (slope,) = torch.autograd.grad(loss, params.weights["value"])
    params.weights["value"] = params.weights["value"].detach()
    torch.testing.assert_close(slope, closed_form_gradients(params, tokens, targets)["value"])
    rms = torch.zeros_like(params.weights["value"]).requires_grad_()
    (slope,) = torch.autograd.grad(Models(params.weights | {"value": rms}, "rms").logits(tokens).sum(), rms)
    assert slope.isfinite().all()


# ---------------------------------------------------------------- all sequences as one product


@pytest.mark.parametrize("norm", ["unit", "rms"])
@pytest.mark.parametrize(("p", "length", "dim"), [(2, 12, 2), (3, 5, 2), (2, 3, 4), (4, 1, 1)])
def test_table_gives_the_sequence_embeddings_of_forward(norm, p, length, dim):
    models = model(8, 5, p, length, dim, norm=norm)
    tokens, _ = Task(p, length, 1).all()
    expected = models.stages(tokens)["sequence"]
    torch.testing.assert_close(models.sequences(tokens), expected, rtol=1e-11, atol=1e-13)
    single = models.map(torch.Tensor.float)
    torch.testing.assert_close(single.sequences(tokens).double(), expected, rtol=1e-3, atol=1e-4)


def test_table_is_safe_up_to_the_limit_and_refuses_beyond():
    params = model(9, 2, 2, 6)
    tokens, _ = Task(2, 6, 1).all()
    longest = params.weights["query"].norm(dim=-1, keepdim=True)
    largest = (params.table().flatten(1, 2) @ params.weights["query"].unsqueeze(-1)).abs().amax((1, 2), keepdim=True)[..., 0]
    safe = params.replace(query=695 * 2**0.5 * params.weights["query"] / largest)
    expected = safe.stages(tokens)["sequence"]
    torch.testing.assert_close(safe.sequences(tokens), expected, rtol=1e-9, atol=1e-12)
    for name, factor in (("query", 1000 / largest), ("query", math.nan * longest)):
        with pytest.raises(ValueError, match="scores must lie within"):
            params.replace(**{name: params.weights[name] * factor * 2**0.5}).sequences(tokens)
    single = params.replace(query=100 * 2**0.5 * params.weights["query"] / largest).map(torch.Tensor.float)
    with pytest.raises(ValueError, match="scores must lie within ±8[67], got one of size 100"):
        single.sequences(tokens)
    with pytest.raises(ValueError, match="the same sequences for all models"):
        params.sequences(torch.stack([tokens, tokens]))


# ---------------------------------------------------------------- random models


def test_table_allows_for_large_values_when_it_refuses_scores():
    first = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    params = Models.random(1, 2, 2, 2, 1, norm="unit", generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    params = params.replace(token=first.expand(1, 2, 2), position=torch.zeros(1, 2, 2).double())
    params = params.replace(query=600 * 2**0.5 * first, value=torch.diag(torch.tensor([-1.0, 0.0]).double())[None])
    tokens = torch.zeros(1, 2, dtype=torch.int64)
    torch.testing.assert_close(params.sequences(tokens), -first[None])
    with pytest.raises(ValueError, match="scores must lie within ±479, got one of size 600"):
        params.replace(value=1e100 * params.weights["value"]).sequences(tokens)


# ---------------------------------------------------------------- bad input


def test_weights_that_are_not_finite_stay_with_their_model():
    params = model(12)
    tokens, _ = Task(3, 4, 2).all()
    expected = params.logits(tokens)
    params.weights["value"][1, 0, 0] = math.nan
    logits = params.logits(tokens)
    assert logits[1].isnan().all()
    torch.testing.assert_close(logits[[0, 2]], expected[[0, 2]], rtol=1e-11, atol=1e-12)


# ---------------------------------------------------------------- what models know of themselves


def test_trained_models_have_the_accuracy_of_their_record():
    """What `train` says of its models is what they say themselves, without a word of norms."""
    training = train([0, 1], Settings(epochs=40))
    tokens, targets = Task().all()
    right = (training.models.logits(tokens).argmax(-1) == targets).double().mean(1)
    torch.testing.assert_close(right.float(), training.history["accuracy_all"][-1])
    for name, share in invariance(training.models, Task()).items():
        torch.testing.assert_close(share, training.history[name][-1], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("norm", ["unit", "rms", "smooth"])
def test_a_patched_stage_is_what_later_stages_follow_from(norm):
    """Patched with what it held, a stage changes nothing; with another model's, all later ones are the other's."""
    models, other = (model(seed, biases=True, norm=norm) for seed in (0, 1))
    tokens, _ = Task(3, 4, 2).all()
    held, theirs = models.stages(tokens), other.stages(tokens)
    for name in STAGES:
        again = models.stages(tokens, patch={name: held[name]})
        for stage, value in held.items():
            torch.testing.assert_close(again[stage], value)
        moved = models.stages(tokens, {name: theirs[name]})
        at = STAGES.index(name)
        for stage in STAGES[:at]:
            assert torch.equal(moved[stage], held[stage])
        assert torch.equal(moved[name], theirs[name])
        assert not torch.allclose(moved["logits"], held["logits"])
    torch.testing.assert_close(
        models.stages(tokens, {"sequence": theirs["sequence"]})["logits"], models.classify(theirs["sequence"])
    )
    torch.testing.assert_close(models.feed_forward(held["sequence"]), held["output"])
    with pytest.raises(ValueError, match="patch must name stages before the logits, embeddings, scores, .*, got xi"):
        models.stages(tokens, {"xi": held["sequence"]})
    with pytest.raises(ValueError, match="patch must name stages before the logits, .*, output, got logits"):
        models.stages(tokens, {"logits": held["logits"]})
    for empty in (tokens[:0], tokens.expand(3, -1, -1)[:, :0]):
        with pytest.raises(ValueError, match=r"tokens must not be empty, got shape \((3, )?0, 4\)"):
            models.stages(empty)
    with pytest.raises(ValueError, match=r"patch of sequence must broadcast to shape \(3, 81, 2\), got \(3, 81, 3\)"):
        models.stages(tokens, {"sequence": held["sequence"][..., :1].expand(3, 81, 1).repeat(1, 1, 3)})
    with pytest.raises(ValueError, match="patch must name mixture or values, not both"):
        models.stages(tokens, {name: held[name] for name in ("mixture", "values")})
    alike = torch.full((4,), 0.25, dtype=torch.float64)
    even = models.stages(tokens, {"attention": alike})
    torch.testing.assert_close(even["mixture"], held["embeddings"].mean(2))
    for error, message, patch in (
        (TypeError, "patch must be a dict of tensors by stage, got list", [1]),
        (TypeError, "patch of attention must be a torch.Tensor, got list", {"attention": [0.25] * 4}),
        (
            ValueError,
            "patch of attention must have the models' dtype, torch.float64, got torch.float32",
            {"attention": alike.float()},
        ),
    ):
        with pytest.raises(error, match=message):
            models.stages(tokens, patch)


@pytest.mark.parametrize("norm", ["unit", "rms", "smooth"])
def test_attention_mixes_the_values_to_the_sequence_embedding(norm):
    models = model(norm=norm)
    held = models.stages(Task(3, 4, 2).all()[0])
    torch.testing.assert_close(held["values"], torch.einsum("mij,mntj->mnti", models.weights["value"], held["embeddings"]))
    torch.testing.assert_close(torch.einsum("mnt,mntd->mnd", held["attention"], held["values"]), held["sequence"])


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("norm", ["unit", "rms", "smooth"])
def test_a_module_computes_what_the_models_do_and_its_gradients(norm, biases):
    models = model(norm=norm, biases=biases)
    tokens, targets = Task(3, 4, 2).all()
    held = models.stages(tokens)
    leaves = models.map(lambda value: value.detach().clone().requires_grad_())
    logits = leaves.logits(tokens)
    cross_entropy(logits.flatten(0, 1), targets.repeat(3), reduction="sum").div(len(tokens)).backward()
    for at in range(3):
        module, seen = models[at].module(), {}
        assert set(dict(module.named_children())) == held.keys() - {"mixture"}
        assert {name: tuple(value.shape) for name, value in module.named_parameters()} == {
            name: tuple(value.shape[1:]) for name, value in models.weights.items()
        }
        for name, stage in module.named_children():
            stage.register_forward_hook(lambda _, __, value, name=name, seen=seen: seen.update({name: value}))
        found = module(tokens)
        torch.testing.assert_close(found, held["logits"][at], rtol=1e-12, atol=1e-12)
        for name, value in seen.items():
            torch.testing.assert_close(value, held[name][at], rtol=1e-12, atol=1e-12)
        cross_entropy(found, targets).backward()
        for name, value in module.named_parameters():
            torch.testing.assert_close(value.grad, leaves.weights[name].grad[at], rtol=1e-10, atol=1e-12)
        if norm == "unit" and not biases:
            for name, value in closed_form_gradients(models[at], tokens, targets).items():
                torch.testing.assert_close(module.get_parameter(name).grad, value[0], rtol=1e-10, atol=1e-12)
        assert torch.equal(module.models().logits(tokens)[0], models[at].logits(tokens)[0])


def test_hooks_of_a_module_patch_every_stage_and_see_its_gradient():
    models = model(biases=True, norm="rms")
    tokens, targets = Task(3, 4, 2).all()
    held, theirs = models[0].stages(tokens), models[1].stages(tokens)
    for name in STAGES:
        if name == "mixture":
            continue
        module, seen = models[0].module(), []
        stage = module.get_submodule(name)
        handle = stage.register_forward_hook(lambda *_, name=name: theirs[name][0])
        expected = models[0].stages(tokens, {name: theirs[name]})["logits"][0]
        torch.testing.assert_close(module(tokens), expected, rtol=1e-12, atol=1e-12)
        handle.remove()
        torch.testing.assert_close(module(tokens), held["logits"][0], rtol=1e-12, atol=1e-12)
        stage.register_full_backward_hook(lambda _, __, out, seen=seen: seen.append(out[0]))
        cross_entropy(module(tokens), targets).backward()
        point = held[name].clone().requires_grad_()  # the same derivative, of what follows from a patch
        loss = cross_entropy(models[0].stages(tokens, {name: point})["logits"][0], targets)
        torch.testing.assert_close(seen[0], torch.autograd.grad(loss, point)[0][0], rtol=1e-9, atol=1e-12)


def test_a_module_is_trained_kept_and_refused_as_others_are(tmp_path):
    models = model(biases=True, dtype=torch.float32)
    tokens, targets = Task(3, 4, 2).all()
    module = models[1].module()
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        losses.append(cross_entropy(module(tokens), targets))
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0]
    assert not torch.equal(module.value, models.weights["value"][1])  # which the training leaves alone
    torch.save(module.state_dict(), tmp_path / "state.pt")
    other = models[0].module()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(other(tokens), module(tokens))
    after = torch.func.functional_call(models[0].module(), dict(module.named_parameters()), (tokens,))
    assert torch.equal(after, module(tokens))
    assert torch.equal(copy.deepcopy(module)(tokens), module(tokens))
    with pytest.raises(ValueError, match=r"module\(\) needs one model, as in models\[0\]\.module\(\), got 3"):
        models.module()
    for wrong in (tokens + 1, tokens - 1):  # which PyTorch refuses
        with pytest.raises((IndexError, RuntimeError), match="out of bounds|out of range"):
            module(wrong)
    for shape in ((1, 3, 4), (3, 5), (4,)):
        with pytest.raises(ValueError, match=rf"tokens must have shape \(n, 4\), got {re.escape(str(shape))}"):
            module(torch.zeros(shape, dtype=torch.long))
    with pytest.raises(TypeError, match=r"tokens must be a tensor of integers, got torch.float32"):
        module(tokens.float())
    assert module(tokens[:0]).shape == (0, 3)


@pytest.mark.parametrize("norm", ["unit", "rms", "smooth"])
def test_a_module_works_with_what_replaces_its_parameters_by_tensors(norm):
    models, (tokens, targets) = model(biases=True, norm=norm), Task(3, 4, 2).all()
    modules = [one.module() for one in models]
    module, held = modules[0], {name: value.detach() for name, value in modules[0].named_parameters()}

    def logits(weights, tokens=tokens):
        return torch.func.functional_call(module, weights, (tokens,))

    torch.testing.assert_close(logits({name: value[1] for name, value in models.weights.items()}), modules[1](tokens))
    stacked, _ = torch.func.stack_module_state(modules)
    torch.testing.assert_close(torch.func.vmap(logits)(stacked), models.logits(tokens))
    loss = lambda weights, tokens, target: cross_entropy(logits(weights, tokens[None]), target[None])  # noqa: E731
    each = torch.func.vmap(torch.func.grad(loss), (None, 0, 0))(held, tokens, targets)
    cross_entropy(module(tokens), targets).backward()
    slopes = torch.func.jacrev(lambda weights: logits(weights).sum(0))(held)
    for name, value in module.named_parameters():
        torch.testing.assert_close(each[name].mean(0), value.grad, rtol=1e-9, atol=1e-12)
        (first,) = torch.autograd.grad(module(tokens)[:, 1].sum(), value)
        torch.testing.assert_close(slopes[name][1], first, rtol=1e-9, atol=1e-12)
    exported = torch.export.export(module, (tokens,)).module()
    torch.testing.assert_close(exported(tokens), module(tokens))
    prune.l1_unstructured(module, "token", amount=2)
    parametrizations.orthogonal(module, "value")
    pruned = module.models()
    assert (pruned.weights["token"] == 0).sum() == 2
    torch.testing.assert_close(pruned.weights["value"][0] @ pruned.weights["value"][0].mT, torch.eye(2, dtype=torch.float64))
    torch.testing.assert_close(module(tokens), pruned.logits(tokens)[0])


def test_what_a_hook_returns_is_broadcast_or_refused():
    models, (tokens, _) = model(), Task(3, 4, 2).all()
    for name, value in models[0].stages(tokens).items():
        if name == "mixture":
            continue
        module = models[0].module()
        handle = module.get_submodule(name).register_forward_hook(lambda *_, value=value: value[0, :1])
        if name == "logits":
            assert torch.equal(module(tokens), value[0, :1].expand_as(value[0]))
        else:
            patched = models[0].stages(tokens, {name: value[:, :1]})["logits"][0]
            torch.testing.assert_close(module(tokens), patched, rtol=1e-12, atol=1e-12)
        handle.remove()
        for error, message, bad in (
            (ValueError, r"must broadcast to shape \(81, .*\), got \(5, ", value[0, :5]),
            (ValueError, r"must broadcast to shape \(81, .*\), got \(1, 81, ", value),
            (ValueError, "must have the models' dtype, torch.float64, got torch.float32", value[0].float()),
            (TypeError, "must have a real floating-point dtype, got torch.int64", value[0].long()),
            (TypeError, "must be a torch.Tensor, got tuple", (value[0],)),
        ):
            handle = module.get_submodule(name).register_forward_hook(lambda *_, bad=bad: bad)
            with pytest.raises(error, match=f"what a hook of {name} returns {message}"):
                module(tokens)
            handle.remove()


def test_tokens_of_eight_bits_are_no_other_tokens():
    models = Models.random(1, 30, 12, norm="rms", generator=torch.Generator().manual_seed(0))
    tokens = torch.randint(30, (9, 12), generator=torch.Generator().manual_seed(0))
    small = tokens.to(torch.uint8)
    assert torch.equal(models.logits(small), models.logits(tokens))
    assert torch.equal(models.sequences(small), models.sequences(tokens))


def test_safetensors_are_read_by_their_own_library_and_must_say_the_norm(tmp_path):
    tensors = pytest.importorskip("safetensors.torch", reason="safetensors is optional")
    models, file = model(), tmp_path / "models.safetensors"
    models.save(file)
    found = tensors.load_file(file)
    assert found.keys() == models.weights.keys()
    assert all(torch.equal(value, models.weights[name]) for name, value in found.items())
    tensors.save_file(found, file)
    with pytest.raises(ValueError, match="must say the models' norm in its metadata, got None"):
        Models.load(file)
    tensors.save_file({"query": found["query"]}, file, {"norm": "rms"})
    with pytest.raises(ValueError, match="missing"):
        Models.load(file)


def test_models_are_chosen_joined_and_shown():
    models = model(biases=True)
    tokens, _ = Task(3, 4, 2).all()
    logits = models.logits(tokens)
    for which, count in ((1, 1), (-1, 1), (slice(1, None), 2), ([2, 0], 2), (torch.tensor([True, False, True]), 2)):
        chosen = models[which]
        assert len(chosen) == count
        torch.testing.assert_close(chosen.logits(tokens), logits[which].view(count, *logits.shape[1:]))
    assert [len(one) for one in models] == [1, 1, 1]
    with pytest.raises(IndexError, match="there are 3 models, got number 3"):
        models[3]
    again = Models.join(list(models))
    assert all(torch.equal(value, models.weights[name]) for name, value in again.weights.items())
    with pytest.raises(ValueError, match="parts must be ensembles of one norm and of the same sizes"):
        Models.join([models, model(biases=True, norm="rms")])
    with pytest.raises(ValueError, match="parts must be ensembles of one norm and of the same sizes"):
        Models.join([models, model(biases=True, width=6)])
    with pytest.raises(ValueError, match=r"unknown \['bias'\]"):
        models.replace(bias=logits)
    assert repr(models) == "3 Models(3 tokens, L = 4, d = 2, h = 5, with biases, norm 'unit', torch.float64)"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ending", ["npz", "json", "safetensors"])
def test_models_in_a_file_are_the_same(ending, dtype, tmp_path):
    if ending == "safetensors":
        pytest.importorskip("safetensors", reason="safetensors is optional")
    models = model(biases=True, norm="smooth", dtype=dtype)
    models.save(file := tmp_path / "new" / f"models.{ending}")
    loaded = Models.load(str(file))
    assert loaded.norm == "smooth"
    for name, value in models.weights.items():
        assert torch.equal(value, loaded.weights[name])
        assert value.dtype == loaded.weights[name].dtype
    assert [left.name for left in file.parent.iterdir()] == [file.name]
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(ValueError, match=f"models.{ending} (cannot be read|holds no models)"):
        Models.load(file)
    for other in (models.save, Models.load):
        with pytest.raises(ValueError, match=r"file must end in .npz, .json, .safetensors, got 'models.pt'"):
            other(tmp_path / "models.pt")
    with pytest.raises(FileNotFoundError):
        Models.load(tmp_path / f"none.{ending}")


@pytest.mark.parametrize("text", ["[1]", "{}", '{"norm": "rms", "dtype": "float16", "weights": {}}', "null"])
def test_json_that_holds_no_models_says_so(text, tmp_path):
    (tmp_path / "models.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="models.json holds no models"):
        Models.load(tmp_path / "models.json")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"neurons": [0]}, "neurons must be 3 zeros and ones, got [0]"),
        ({"neurons": 0}, "neurons must be 3 zeros and ones, got 0"),
        ({"neurons": [0.5, 1, 1]}, "neurons must be 3 zeros and ones"),
        ({"neurons": [True, 1, 1]}, "neurons must be 3 zeros and ones"),
        ({"neurons": [[1, 0, 1]]}, "neurons must be 3 zeros and ones"),
        ({"positions": "0000"}, "positions must be 4 zeros and ones"),
        ({"positions": [1, 1]}, "positions must be 4 zeros and ones, got [1, 1]"),
        ({"positions": [1, 0, 1, 0]}, "must have all positions on, got a model whose position 2, 4 is switched off"),
        ({"task": {"p": 2, "length": 99, "k": 2}}, "task must have p 2 and length 4, got (2, 99)"),
        ({"task": 5}, "holds no models"),
    ],
)
def test_a_file_of_the_laboratory_that_does_not_fit_is_refused(changes, said):
    generator = torch.Generator().manual_seed(0)
    models = Models.random(2, 2, 4, width=3, norm="rms", generator=generator, biases=True)
    weights = {name: value.tolist() for name, value in models.weights.items()}
    good = {"norm": "rms", "dtype": "float64", "weights": weights, "task": {"p": 2, "length": 4, "k": 3}}
    one = good | {"neurons": [1, 0, 1], "positions": [1, 1, 1, 1]}
    silent = Models.from_json(json.dumps(one)).weights["assemblers"]
    assert torch.equal(silent[..., 1], torch.zeros(2, 2).double())
    assert torch.equal(silent[..., [0, 2]], models.weights["assemblers"][..., [0, 2]])
    with pytest.raises(ValueError, match=re.escape(said)):
        Models.from_json(json.dumps(good | changes))
