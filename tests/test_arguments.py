"""Every public function, from one table: valid calls of all shapes agree with each other, invalid ones name what is wrong.

`TABLE` says for each argument of each function what it is made of. From that follow calls with leading dimensions, sizes
of one, both precisions, strided memory and extreme magnitudes, and for every argument everything that it must not be.
"""

import inspect
import itertools
import math
import random
import re
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import get_args, get_origin

import numpy as np
import pytest
import torch
from definitions import DEFINITIONS
from hypothesis import example, given, settings
from hypothesis import strategies as st

import attnopt
from attnopt import clustering, in_context, integrate, regression, softmax, standard, synthesis
from attnopt.clustering import Settings, Task, Watch, training
from attnopt.in_context.wishart import check_degree

PACKAGE = Path(attnopt.__file__).parent
SIZES = {"S": 3, "K": 4, "F": 2, "D": 5, "H": 2, "n": 4, "d": 3, "k": 2, "q": 5, "t": 4, "w": 3, "m": 6}
DERIVED = {"e": lambda s: s["d"] + 1, "j": lambda s: s["k"] - 1}  # sizes that follow from others


@dataclass(frozen=True)
class Array:
    """A real tensor: a letter for each of its last dimensions, what it must be, whether more may come before them."""

    shape: str
    kind: str = "normal"
    batch: bool = True
    least: tuple[int, ...] = ()  # smallest legal size of each dimension, 1 unless given
    finite: bool = True  # whether nan and infinities are refused, and not handed on entry by entry
    instead: tuple[type, ...] = ()  # what may be given instead: None, or a list of numbers
    cast: bool = False  # whether another dtype is taken as well

    def draw(self, generator, sizes, axis="class", batch=(), dtype=torch.float64):
        shape = (*(batch if self.batch else ()), *(sizes[letter] for letter in self.shape))
        value = torch.randn(shape, generator=generator, dtype=torch.float64)
        if self.kind == "symmetric":
            value = (value + value.mT) / 2
        elif self.kind in ("spd", "psd"):
            value = value @ value.mT / shape[-1] + 0.5 * torch.eye(shape[-1], dtype=torch.float64)
        elif self.kind == "positive":
            value = value.abs() + 0.1
        elif self.kind == "probabilities":
            value = value.softmax(-1)
        elif self.kind == "labels":
            value = (2 * value).softmax(-2 if axis == "sequence" else -1)
        elif self.kind == "one-hot":
            places = (
                torch.arange(value.shape[-1 if axis == "sequence" else -2]) % value.shape[-2 if axis == "sequence" else -1]
            )
            value = torch.nn.functional.one_hot(places, value.shape[-2 if axis == "sequence" else -1]).double()
            value = value.mT.contiguous() if axis == "sequence" else value
        return value.to(dtype)


@dataclass(frozen=True)
class Whole:
    """A whole number, with the least legal one, and the largest if there is one."""

    value: int
    least: int = 1
    largest: int | None = None
    instead: tuple[type, ...] = ()


@dataclass(frozen=True)
class Real:
    """A positive number, or also many; `least` is the largest illegal one."""

    value: float
    least: float = 0.0
    infinite: bool = False
    many: bool = False


@dataclass(frozen=True)
class Word:
    """One of some words."""

    value: str


@dataclass(frozen=True)
class Flag:
    """True or False."""

    value: bool
    instead: tuple[type, ...] = ()  # what may be given instead: None


@dataclass(frozen=True)
class Tokens:
    """A tensor of whole numbers below two."""

    shape: tuple[int, ...]
    free: tuple[int, ...] = ()  # dimensions that may have any size


@dataclass(frozen=True)
class Wholes:
    """A list of whole numbers."""

    value: tuple[int, ...]
    least: int = 0


@dataclass(frozen=True)
class Reals:
    """A list of finite numbers."""

    value: tuple[float, ...]


class Weights:
    """Those of an ensemble of two models."""


class Ensemble:
    """Such an ensemble."""


@dataclass(frozen=True)
class OfTask:
    """A task, and whether it must fit the ensemble."""

    fits: bool = False


def models(seed=0, dtype=torch.float64):
    """An ensemble."""
    generator = torch.Generator().manual_seed(seed)
    return clustering.Models.random(2, 2, 4, 2, 3, norm="unit", generator=generator, dtype=dtype)


class Draws:
    """A generator."""


class Kind:
    """A dtype."""


@dataclass(frozen=True)
class Given:
    """Something that is not for this table to spoil."""

    value: object


AXIS, NORM = Word("sequence"), Word("unit")
LINEAR = {"features": Array("SF"), "weights": Array("KF"), "labels": Array("SK", "labels"), "axis": AXIS}
QUADRATIC = {"features": Array("SF"), "weights": Array("FF", "symmetric"), "labels": Array("SS", "labels"), "axis": AXIS}
CONTEXT = {"dim": Whole(3), "n_context": Whole(4)}
VALLEY = {
    "angle": Array("", batch=False), "eigenvalues": Array("d", "positive", batch=False), "n_context": Whole(4),
    "direction": Whole(1, 0, 2),
}  # fmt: skip
EXAMPLES = {"covariates": Array("nd"), "labels": Array("n"), "query": Array("d")}
SIGNAL = {"dim": Whole(3), "examples": Whole(4), "variance": Real(0.5, -0.1)}
ORACLE = {"weights": Array("KF"), "predictions": Array("SK", "probabilities")}
MIXTURE = {
    "queries": Array("SF"), "means": Array("KF"), "shares": Array("K", "probabilities"), "covariance": Array("FF", "psd"),
}  # fmt: skip
MODELS = models()
SEQUENCES, TARGETS = Tokens((5, 4), free=(0,)), Tokens((5,))
TASK = Task(2, 4, 2)
SMALL = Settings(TASK, dim=2, width=3, n_train=8, epochs=0, batch_size=4)
ON_TASK = {"models": Ensemble(), "tokens": SEQUENCES, "targets": TARGETS}

TABLE = {
    softmax.softmax: {"logits": Array("SK"), "axis": AXIS},
    softmax.logsumexp: {"logits": Array("SK"), "axis": AXIS},
    softmax.softmax_jacobian: {"probabilities": Array("n", "probabilities")},
    softmax.smooth_maximum: {"scores": Array("n"), "temperature": Real(0.7)},
    regression.pointwise_cross_entropy: {"logits": Array("SK"), "labels": Array("SK", "labels"), "axis": AXIS},
    regression.cross_attention: {"features": Array("SF"), "weights": Array("KF"), "axis": AXIS},
    regression.self_attention: {"x": Array("SF"), "axis": AXIS},
    regression.linear_gradient: LINEAR,
    regression.quadratic_gradient: QUADRATIC,
    regression.quadratic_gradient_of_paper: QUADRATIC,
    regression.sinkhorn_attention: {"scores": Array("SS", "symmetric")},
    regression.sinkhorn_value: {"scores": Array("SS", "symmetric")},
    regression.stationary_margin: {
        "weights": Array("KF", batch=False), "labels": Array("SK", "labels", batch=False), "axis": AXIS,
    },
    regression.separation_margin: {
        "weights": Array("KF", batch=False, least=(2, 1)), "labels": Array("SK", "one-hot", batch=False, least=(2, 2)),
        "axis": AXIS,
    },
    regression.feature_gradient: {"model": Word("linear"), "printed": Flag(False)},
    regression.feature_flow: LINEAR | {
        "times": Given(torch.tensor([0, 0.5], dtype=torch.float64)), "model": Word("linear"), "printed": Flag(False),
    },
    regression.block_step: LINEAR | {"step": Real(0.3), "scheme": Word("euler"), "model": Word("linear")},
    regression.unroll: LINEAR | {"layers": Whole(2, 0), "step": Real(0.3), "scheme": Word("euler"), "model": Word("linear")},
    regression.unroll_logits: {
        "logits": Array("SK"), "weights": Array("KF"), "labels": Array("SK", "labels"), "axis": AXIS, "layers": Whole(2, 0),
        "step": Real(0.3),
    },
    regression.multi_head_gradient: {
        "features": Array("SF"), "projections": Array("HFD"), "weights": Array("HKD"), "labels": Array("HSK", "labels"),
        "axis": AXIS,
    },
    in_context.sample_prompts: {
        "n_prompts": Whole(2), "covariance": Array("dd", "spd", batch=False), "n_context": Whole(4), "generator": Draws(),
        "weight_covariance": Array("dd", "spd", batch=False, instead=(type(None),)),
    },
    in_context.sample_grams: {"n_prompts": Whole(2)} | CONTEXT | {"generator": Draws(), "dtype": Kind()},
    in_context.linear_transformer: {
        "prompts": Array("tw", least=(2, 1)), "P": Array("kww"), "Q": Array("kww"),
    },
    in_context.in_context_loss: {
        "prompts": Array("mtw", least=(1, 2, 1)), "targets": Array("m"), "P": Array("kww"), "Q": Array("kww"),
    },
    in_context.prompt_losses: {"grams": Array("dd"), "A": Array("kdd"), "B": Array("kdd", instead=(type(None),))},
    in_context.one_layer_optimum: {"covariance": Array("dd", "spd"), "n_context": Whole(4)},
    in_context.one_layer_loss: {
        "preconditioner": Array("dd"), "covariance": Array("dd", "spd"), "n_context": Whole(4),
        "weight_covariance": Array("dd", "spd", instead=(type(None),)),
    },
    in_context.layers_loss: {
        "A": Array("kdd"), "covariance": Array("dd", "spd"), "n_context": Whole(2),
        "weight_covariance": Array("dd", "spd", instead=(type(None),)),
    },
    in_context.attention_loss: {
        "b": Array("e"), "A": Array("ed"), "covariance": Array("dd", "spd", batch=False), "n_context": Whole(4),
    },
    in_context.second_valley: {
        "eigenvalues": Array("d", "positive", batch=False, least=(2,)), "n_context": Whole(4), "direction": Whole(1, 0, 2),
    },
    in_context.valley_loss: VALLEY,
    in_context.valley_parameters: VALLEY,
    in_context.wishart_trace_moment: {"partition": Wholes((1, 2)), "dim": Whole(2), "dof": Whole(3)},
    in_context.spectral_moments: {"dim": Whole(2), "dof": Whole(3), "count": Whole(4)},
    in_context.wishart_recurrence: CONTEXT | {"degree": Whole(3)},
    in_context.wishart_quadrature: CONTEXT | {"n_nodes": Whole(3)},
    in_context.gram_quadrature: {"dim": Whole(2), "n_context": Whole(3), "degree": Whole(2)},
    in_context.residual_polynomial: {"steps": Array("k", batch=False, instead=(list,))},
    in_context.step_loss: {"steps": Array("k", instead=(list,))} | CONTEXT,
    in_context.optimal_step_sizes: CONTEXT | {"n_layers": Whole(2)},
    in_context.marchenko_pastur_steps: {"ratio": Real(0.5), "n_layers": Whole(2)},
    in_context.transverse_hessians: {
        "steps": Array("k", batch=False, instead=(list,)), "dim": Whole(3, 2), "n_context": Whole(4),
    },
    in_context.gdpp_residuals: {
        "steps": Array("k", least=(2,)), "curvatures": Array("j"), "eigenvalues": Array("q", batch=False),
    },
    in_context.gdpp_loss: {
        "steps": Array("k", least=(2,), instead=(list,), cast=True),
        "curvatures": Array("j", instead=(list,), cast=True),
    } | CONTEXT,
    in_context.gdpp_optimum: CONTEXT | {"n_layers": Whole(1, 1, 4)},
    in_context.two_layer_coefficients: {name: Given(number.value) for name, number in CONTEXT.items()},
    in_context.two_layer_bound: CONTEXT,
    in_context.two_layer_certificate: {"dim": Whole(2, 2), "n_context": Whole(3)},
    in_context.two_layer_certificate_for_all: {"dim": Whole(2, 2), "root": Whole(5)},
    in_context.three_layer_loss: {"n_context": Whole(2)},
    clustering.Task: {"p": Whole(2, 2), "length": Whole(4), "k": Whole(2, 1, 4), "rule": Given(None)},
    TASK.sample: {"count": Whole(5), "generator": Draws()},
    clustering.Models: {"weights": Weights(), "norm": NORM},
    clustering.Models.random: {
        "count": Whole(2), "p": Whole(2, 2), "length": Whole(4), "dim": Whole(2), "width": Whole(3), "norm": NORM,
        "generator": Draws(), "dtype": Kind(), "biases": Flag(True),
    },
    MODELS.logits: {"tokens": SEQUENCES},
    MODELS.stages: {"tokens": SEQUENCES},
    MODELS.sequences: {"tokens": SEQUENCES},
    MODELS.count: {"task": OfTask(fits=True)},
    clustering.Settings: {
        "task": OfTask(), "vocabulary": Whole(2, 2, instead=(type(None),)), "dim": Whole(2), "norm": NORM,
        "n_train": Whole(8), "epochs": Whole(1, 0), "betas": Given((0.9, 0.999)), "eps": Real(1e-8, 1e-38),
        "width": Whole(3, instead=(list,)),
        "batch_size": Whole(4, instead=(list,)), "learning_rate": Real(0.01, many=True),
        "mlp_discount": Real(1.0, many=True), "clip": Real(1.0, infinite=True, many=True),
    },
    clustering.Watch: {"every": Whole(1), "snapshots": Wholes((0, 1)), "resumable": Flag(True)},
    clustering.normalize: {"vectors": Array("n", finite=False), "norm": NORM},
    clustering.closed_form_gradients: ON_TASK,
    clustering.gradient_bound: ON_TASK,
    clustering.gradient_bound_of_paper: ON_TASK,
    clustering.gradient_bound_terms: ON_TASK,
    clustering.gradient_bound_terms_of_paper: ON_TASK,
    clustering.gelu_derivative: {"x": Array("", batch=False, finite=False)},
    clustering.ideal_circuit: {
        "task": OfTask(), "sharpness": Real(3.0), "scale": Real(10.0), "clusters": Word("sums"), "dim": Whole(2, 2, 3),
    },
    clustering.escape_level: {"p": Whole(2, 2)},
    clustering.cluster_counts: {"p": Whole(2, 2), "k": Whole(3)},
    clustering.invariance: {"models": Ensemble(), "task": OfTask(fits=True)},
    clustering.spurious_attention: {"models": Ensemble(), "task": OfTask(fits=True)},
    clustering.initial_models: {"seeds": Wholes((0, 1)), "settings": Given(SMALL), "dtype": Kind()},
    clustering.training_data: {"seeds": Wholes((0, 1)), "task": OfTask(), "n_train": Whole(5)},
    clustering.train: {
        "seeds": Wholes((0, 1)), "settings": Given(SMALL), "watch": Given(Watch(snapshots=[0])),
        "checkpoint_every": Whole(1), "dtype": Kind(), "progress": Flag(False), "compiled": Flag(False, (type(None),)),
    },
    clustering.ensemble: {
        "seeds": Wholes((0, 1)), "settings": Given(SMALL), "chunk": Whole(1), "jobs": Given(1),
        "dtype": Given(torch.float64), "progress": Flag(False), "compiled": Flag(False, (type(None),)),
    },
    clustering.margins: {"models": Ensemble()},
    clustering.parity_coefficient: {"margin": Given(torch.arange(16.0, dtype=torch.float64)), "k": Whole(2, 1, 4)},
    clustering.log_cosh_half: {"margin": Array("", batch=False, finite=False)},
    clustering.find_drops: {
        "loss": Array("m", batch=False), "fall": Real(0.1), "window": Whole(20), "smooth": Whole(9),
    },
    clustering.find_spikes: {
        "loss": Array("mn", batch=False), "factor": Real(2.0, 1.0), "rise": Real(0.02, -0.01), "window": Whole(20),
        "patience": Whole(50),
    },
    clustering.curvature: {"model": Given(MODELS[0]), "tokens": SEQUENCES, "targets": TARGETS},
    clustering.activation_sparsity: {"activations": Array("mSF", batch=False), "thresholds": Reals((1.0, 0.0, 0.1))},
    clustering.token_effects: {
        "sequence": Given(MODELS.sequences(TASK.all()[0])), "tokens": Given(TASK.all()[0]), "p": Whole(2, 2),
    },
    clustering.cyclic_step: {"effects": Given(torch.rand(2, 4, 3)), "k": Whole(2, 1, 4)},
    clustering.load_model: {"seed": Whole(7, 0, 199)},
    synthesis.grouped_optimum: {"groups": Wholes((2, 1), 1), "dim": Whole(2), "examples": Whole(3)},
    synthesis.step_flow: {"starts": Reals((-0.5, -0.4)), "dim": Whole(2), "examples": Whole(3), "times": Reals((0.0, 1.0))},
    synthesis.plateau_time: {
        "starts": Reals((-0.41, -0.4)), "dim": Whole(3), "examples": Whole(5), "reached": Real(0.1, 0.009),
    },
    synthesis.tied_optimum: {"dim": Whole(2), "examples": Whole(3), "layers": Whole(2)},
    synthesis.tied_rates: {"dim": Whole(2), "examples": Whole(3), "layers": Whole(2, 2)},
    synthesis.label_layers: {
        "similarities": Array("mm", least=(2, 2)), "labels": Array("mK", "probabilities", least=(2, 1)),
        "classes": Array("KF"), "steps": Array("k", batch=False, instead=(list,), cast=True), "queries": Whole(1, 0, 5),
    },
    synthesis.bayes_layer: {"noise": Array("dd", "spd"), "prior": Array("dd", "spd"), "examples": Whole(4)},
    synthesis.own_label_accuracy: SIGNAL,
    synthesis.context_accuracy_bound: SIGNAL,
    synthesis.oracle_value: ORACLE | {"posterior": Array("SK", "probabilities")},
    synthesis.attention_spread: ORACLE,
    synthesis.gain_bounds: ORACLE
    | {"labels": Array("SK", "probabilities"), "posterior": Array("SK", "probabilities"), "step": Real(0.3)},
    synthesis.information_split: {
        "predictions": Array("SK", "probabilities"), "shares": Array("Sm", "probabilities"),
        "posterior": Array("SmK", "probabilities"),
    },
    synthesis.own_label_energy: {"logits": Array("SK"), "temperature": Real(0.7)},
    synthesis.softmax_price: {"dim": Whole(2)},
    synthesis.agreement_number: {"length": Whole(4), "weight": Whole(2, 1, 4), "p": Whole(2, 2), "sharpness": Real(1.3)},
    synthesis.best_agreement: {"length": Whole(4), "weight": Whole(2, 1, 4), "p": Whole(2, 2)},
    synthesis.positive_number: {"length": Whole(4), "weight": Whole(2, 1, 4), "p": Whole(2, 2)},
    synthesis.unseen_mass: {"shares": Array("K", "probabilities"), "examples": Wholes((1, 3), 0)},
    synthesis.examples_needed: {"shares": Array("K", "probabilities"), "left": Real(0.3)},
    synthesis.draw_prompts: {"size": Whole(9, 2), "examples": Whole(3, 1, 8), "prompts": Whole(4), "generator": Draws()},
    synthesis.read_context: {"queries": Array("SF"), "tokens": Array("nF"), "members": Array("nK", "probabilities")},
    synthesis.mixture_limit: MIXTURE,
    synthesis.mixture_error: MIXTURE | {"labels": Array("SK", "probabilities", instead=(type(None),))},
    standard.as_tokens: {"covariates": Array("nd"), "labels": Array("n")},
    standard.krylov_answers: EXAMPLES | {"count": Whole(3)},
    standard.newton_answers: EXAMPLES | {"steps": Whole(3, 0)},
    standard.ridge_answers: EXAMPLES | {"penalty": Real(0.7, -0.1)},
    standard.fitted_reading: {
        "features": Array("tk", least=(4, 1)), "target": Array("t", least=(4,)), "fit": Whole(3, 2, 3),
        "penalty": Real(1e-3),
    },
    standard.explained: {"prediction": Array("t"), "target": Array("t", least=(2,))},
}  # fmt: skip
EXEMPT = {
    clustering.walsh, clustering.dissect, clustering.position_effects, clustering.counting_form,
    clustering.attention_by_pair,  # which take what others have made
    clustering.save_training, clustering.load_training,  # tested with files, in tests/clustering/test_training.py
    clustering.run_names, clustering.load_run,  # in tests/clustering/test_sandbox.py
    clustering.influences, clustering.escape_epochs, clustering.successes,  # in tests/clustering/test_plateau.py
    clustering.load_models, clustering.load_overview,  # in tests/clustering/test_trained.py
    clustering.levels, clustering.replacements, clustering.removals,  # in tests/clustering/test_interventions.py
    in_context.three_layer_certificate,  # in tests/in_context/test_three_layers.py
    synthesis.read_out,  # in tests/synthesis/test_knowledge.py
    standard.train, standard.load_regressor,  # in tests/standard/test_standard_transformer.py
    standard.as_one_hot, standard.count_levels, standard.best_count, standard.level_means,  # in …/test_counting_states.py
    standard.load_counter, standard.load_guesser,  # in tests/standard/test_counting_states.py
}  # fmt: skip


def public_functions():
    """The functions that the book offers."""
    for package in (regression, in_context, clustering, synthesis, standard, training):
        for name in package.__all__:
            if isinstance(getattr(package, name), types.FunctionType) or hasattr(getattr(package, name), "cache_info"):
                yield getattr(package, name)
    for module in (softmax,):
        for name, value in vars(module).items():
            if isinstance(value, types.FunctionType) and value.__module__ == module.__name__ and name[0] != "_":
                yield value


def sizes_of(changed=None):
    sizes = SIZES | (changed or {})
    return sizes | {letter: rule(sizes) for letter, rule in DERIVED.items()}


def arguments(function, seed=0, sizes=None, batch=(), dtype=torch.float64, axis="sequence"):
    """A valid call."""
    generator, sizes = torch.Generator().manual_seed(seed), sizes_of(sizes)
    found = {}
    for name, rule in TABLE[function].items():
        match rule:
            case Array():
                found[name] = rule.draw(generator, sizes, axis, batch, dtype)
            case Word() if name == "axis":
                found[name] = axis
            case Whole() | Real() | Word() | Flag() | Given():
                found[name] = rule.value
            case Wholes() | Reals():
                found[name] = list(rule.value)
            case Tokens():
                every = torch.cartesian_prod(*[torch.arange(2)] * 4)
                found[name] = every[: rule.shape[0]] if len(rule.shape) == 2 else torch.arange(rule.shape[0]) % 2
            case Weights():
                found[name] = models(seed, dtype).weights
            case Ensemble():
                found[name] = models(seed, dtype)
            case OfTask():
                found[name] = TASK
            case Draws():
                found[name] = torch.Generator().manual_seed(seed)
            case Kind():
                found[name] = torch.float64
    return found


def spoiled_array(rule, value, others):
    """What a tensor must not be."""
    yield "a list", value.tolist()
    yield "None", None
    yield "whole numbers", value.long()
    yield "complex", value.to(torch.complex128)
    yield "on the meta device", value.to("meta")
    if rule.shape:
        yield "sparse", value.to_sparse()
    if rule.kind in ("spd", "psd"):
        yield "of half precision", value.half()
    if any(isinstance(other, Array) for other in others) and not rule.cast:
        yield "of another dtype", value.float()
    for number in (math.nan, math.inf, -math.inf) if rule.finite else ():
        spoilt = value.clone()
        spoilt.view(-1)[0] = number
        yield f"with {number}", spoilt
    letters = "".join(other.shape for other in others if isinstance(other, Array)) + rule.shape
    letters += {"symmetric": rule.shape, "spd": rule.shape, "psd": rule.shape}.get(rule.kind, "")
    for place in range(len(rule.shape)):
        dim = place - len(rule.shape)
        yield f"empty in dimension {dim}", value.narrow(dim, 0, 0)
        linked = (
            rule.shape[place] in "ej"
            or ("e" in letters and rule.shape[place] == "d")
            or ("j" in letters and rule.shape[place] == "k")
        )
        if letters.count(rule.shape[place]) > 1 or linked:
            yield f"longer in dimension {dim}", torch.cat([value, value.narrow(dim, 0, 1)], dim)
            if value.shape[dim] > 2:
                yield f"shorter in dimension {dim}", value.narrow(dim, 0, value.shape[dim] - 1)
        if rule.least and value.shape[dim] >= rule.least[place] > 1:
            yield f"too short in dimension {dim}", value.narrow(dim, 0, rule.least[place] - 1)
    for kept in range(len(rule.shape)):
        yield f"of {kept} dimensions", value[(0,) * (len(rule.shape) - kept)]
    if not rule.batch and rule.shape:
        yield "with leading dimensions", value.expand(2, *value.shape)
    if rule.kind in ("labels", "one-hot"):
        yield "not normalized", 0.5 * value
        yield "negative", value - 2 * value.mT.mean() if value.shape[-1] == 1 else 3 * value - 2 * value.flip(-1)
    if rule.kind == "one-hot":
        yield "soft", torch.full_like(value, 0.25)
    if rule.kind in ("symmetric", "spd", "psd"):
        yield "not symmetric", value + torch.ones_like(value).triu(1)
    if rule.kind in ("spd", "psd"):
        yield "not positive definite", value - 100 * torch.eye(value.shape[-1], dtype=value.dtype)
    if rule.kind == "spd":
        yield "zero", torch.zeros_like(value)
    if rule.kind == "positive":
        yield "zero", torch.zeros_like(value)
        yield "negative", -value
    if rule.kind == "probabilities":
        yield "not normalized", 2 * value


TRUTHS = True, np.True_, torch.tensor(True)  # which Python takes for numbers


def spoiled(rule, value, others) -> Iterator[tuple[str, object]]:
    """What an argument must not be, each with a few words."""
    match rule:
        case Array():
            yield from spoiled_array(rule, value, others)
        case Whole():
            for bad in (
                rule.least - 1,
                -7,
                rule.least + 0.5,
                float(value),
                str(value),
                None,
                math.nan,
                [value],
                torch.ones(2),
                *TRUTHS,
            ):
                yield repr(bad), bad
            yield "of hundreds of digits", 10**400
            yield "of thousands of digits", 10**5000
            if rule.largest is not None:
                yield "too large", rule.largest + 1
        case Real():
            for bad in (rule.least, -1.0, math.nan, -math.inf, "1", None, 1j, *TRUTHS, *([] if rule.many else [[1.0]])):
                yield repr(bad), bad
            for bad in (math.nan, True, "1") if rule.many else ():
                yield repr([bad]), [bad]
            yield "of hundreds of digits", 10**400
            if not rule.infinite:
                yield "inf", math.inf
        case Flag():
            for bad in (0, 1, *([] if rule.instead else [None]), "yes", [], torch.tensor(True)):
                yield repr(bad), bad
        case Word():
            yield from (("another word", "nonsense"), ("None", None), ("a number", 3), ("a list", [value]))
        case Tokens():
            yield "real", value.double()
            yield "truth values", value.bool()
            yield "a list", value.tolist()
            yield "None", None
            yield "on the meta device", value.to("meta")
            yield "sparse", value.to_sparse()
            yield "negative", value - 1
            yield "too large", value + 2
            yield "of one dimension more", value.expand(1, 1, *value.shape)
            for dim in range(value.ndim):
                if dim not in rule.free:
                    yield f"longer in dimension {dim}", torch.cat([value, value.narrow(dim, 0, 1)], dim)
                yield f"empty in dimension {dim}", value.narrow(dim, 0, 0)
        case Wholes():
            for bad in (None, 3, "12", [0.5], [None], [rule.least - 1], torch.ones(2), *([truth] for truth in TRUTHS)):
                yield repr(bad), bad
            yield "of hundreds of digits", [10**400]
        case Reals():
            for bad in (
                None,
                3,
                True,
                "12",
                [],
                [None],
                ["1"],
                [math.nan],
                [-math.inf],
                [True, False],
                [0.5, True],
                [[0.5, True]],
            ):
                yield repr(bad), bad
            yield "of hundreds of digits", [10**400]
        case Weights():
            yield "None", None
            yield "a list", list(value.values())
            for name, array in value.items():
                yield f"without {name}", {other: rest for other, rest in value.items() if other != name}
                yield f"{name} longer", value | {name: torch.cat([array, array[..., :1]], -1)}
                yield f"{name} of other models", value | {name: array[:1]}
                yield f"{name} flat", value | {name: array.flatten()}
                yield f"{name} a list", value | {name: array.tolist()}
                yield f"{name} of whole numbers", value | {name: array.long()}
                yield f"{name} of another dtype", value | {name: array.float()}
                yield f"{name} on the meta device", value | {name: array.to("meta")}
            yield "with something else", value | {"surprise": value["query"]}
        case Ensemble():
            yield from (("None", None), ("its weights", value.weights), ("a list", [value]), ("a norm", "rms"))
        case OfTask():
            yield from (("None", None), ("its numbers", (2, 4, 2)), ("a dict", {"p": 2}), ("a number", 2))
            if rule.fits:
                yield from (("longer", Task(2, 5, 2)), ("of more tokens", Task(3, 4, 2)))
        case Draws():
            yield from (("None", None), ("a seed", 7))
        case Kind():
            yield from (("whole numbers", torch.int64), ("a word", "float64"), ("None", None), ("complex", torch.complex128))


CASES = [
    pytest.param(function, name, id=f"{function.__module__.removeprefix('attnopt.')}.{function.__name__}-{name}")
    for function, rules in TABLE.items()
    for name, rule in rules.items()
    if not isinstance(rule, Given)
]


def innermost(error):
    """The file that raised an error."""
    frame = error.__traceback__
    while frame.tb_next:
        frame = frame.tb_next
    return Path(frame.tb_frame.f_code.co_filename)


def complaint(function, valid, name, bad):
    """What is wrong with the answer to a bad argument; None if nothing is."""
    words = {name, *valid[name]} if isinstance(valid[name], dict) else {name}
    # a conflict of two shapes may be told of either
    words |= {other for other in valid if isinstance(valid[other], torch.Tensor)} if isinstance(bad, torch.Tensor) else set()
    try:
        function(**valid | {name: bad})
    except (TypeError, ValueError) as error:
        if not innermost(error).is_relative_to(PACKAGE):
            return f"from the inside: {type(error).__name__}: {error}"
        if not any(re.search(rf"\b{re.escape(word)}\b", str(error)) for word in words):
            return f"names none of {sorted(words)}: {error}"
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "accepted"


def test_every_public_function_is_in_the_table():
    public = set(public_functions())
    assert {f.__name__ for f in public - set(TABLE) - EXEMPT} == set()
    for function, rules in TABLE.items():
        named = {name for name, rule in inspect.signature(function).parameters.items() if rule.kind != rule.VAR_KEYWORD}
        assert set(rules) <= named, function.__name__


NOT_SPOILED = {  # numbers whose rules are tested elsewhere
    (in_context.two_layer_coefficients, "dim"), (in_context.two_layer_coefficients, "n_context"),  # symbols too
    (in_context.three_layer_certificate, "n_context"),  # that of `three_layer_loss`
    (clustering.initial_models, "settings"), (synthesis.read_out, "sharpness"),  # in tests/synthesis/test_knowledge.py
    (clustering.Settings, "betas"), (clustering.Settings, "weight_decay"),  # in tests/clustering/test_training.py
    (clustering.ensemble, "jobs"), (clustering.ensemble, "checkpoint_every"),  # joblib's; as that of `train`
    (standard.load_regressor, "seed"),  # in tests/standard
    *((function, "seed") for function in (standard.load_counter, standard.load_guesser)),
    *((function, "p") for function in (standard.as_one_hot, standard.count_levels, standard.best_count)),
    (standard.best_count, "k"), (standard.count_levels, "shifts"),
    *((standard.train, name) for name in ("steps", "rate", "warmup")),  # in tests/standard
    (clustering.Task, "rule"), (clustering.escape_epochs, "p"),  # in tests/clustering/test_task.py, test_plateau.py
}  # fmt: skip


def kinds(annotation):
    """All that stands in an annotation."""
    parts = () if get_origin(annotation) is Callable else get_args(annotation)  # what a function takes, it checks
    return {annotation}.union(*map(kinds, parts))


def test_every_number_of_a_public_function_is_spoiled():
    """So that truth values, nan and the like are refused by the next function, too."""
    left = set()
    for function in {*TABLE, *EXEMPT}:
        for name, parameter in inspect.signature(function).parameters.items():
            rule = TABLE.get(function, {}).get(name)
            known = isinstance(rule, Whole | Real | Wholes | Reals | Array | Flag)
            if kinds(parameter.annotation) & {int, float, bool} and not known:
                left.add((function, name))
    assert left - NOT_SPOILED == set()


def test_no_colon_stands_in_what_is_returned():
    """What stands before one is shown as the type."""
    for function in public_functions():
        told = re.search(r"\n(?:Returns|Yields):\n(.+?)(?:\n\n|$)", inspect.getdoc(function) or "", re.DOTALL)
        assert not told or not re.search(r":\s", told[1]), function.__name__


@pytest.mark.parametrize("function", TABLE, ids=lambda f: f.__name__)
def test_the_valid_call_is_valid_and_answers_in_its_precision(function):
    answers = numbers(function(**arguments(function)))
    assert {array.dtype for array in answers if array.is_floating_point()} <= {torch.float64}


@pytest.mark.parametrize(("function", "name"), CASES)
def test_a_bad_argument_is_named(function, name):
    valid, rules = arguments(function), TABLE[function]
    others = [rule for other, rule in rules.items() if other != name]
    complaints = {}
    for label, bad in spoiled(rules[name], valid[name], others):
        if isinstance(bad, getattr(rules[name], "instead", ())):
            continue
        said = complaint(function, valid, name, bad)
        if said:
            complaints[label] = said[:150]
    assert complaints == {}


@pytest.mark.parametrize(
    ("function", "given", "named"),
    [
        (in_context.optimal_step_sizes, (4, 15, 200), "n_layers"),
        (in_context.optimal_step_sizes, (10**7, 10**7, 20), "n_layers"),
        (in_context.wishart_recurrence, (4, 15, 201), "degree"),
        (in_context.wishart_quadrature, (4, 15, 201), "degree"),
        (in_context.spectral_moments, (10**6, 10**6, 100), "count"),
        (in_context.wishart_trace_moment, ((80,), 4, 15), "partition"),
        (in_context.gram_quadrature, (5, 10, 6), "dim, n_context and degree"),
        (in_context.gram_quadrature, (100, 100, 60), "dim, n_context and degree"),
        (in_context.gram_quadrature, (1, 5, 10**8), "dim, n_context and degree"),
        (in_context.spectral_moments, (10**8, 10**8, 2), "count"),
        (in_context.optimal_step_sizes, (10**7, 10**7, 2), "n_layers"),
        (in_context.transverse_hessians, ([-0.1] * 30, 4, 15), "steps"),
        (in_context.step_loss, ([-0.1] * 200, 4, 15), "degree"),
        (synthesis.tied_optimum, (4, 15, 200), "layers"),
        (synthesis.tied_rates, (4, 15, 10**9), "layers"),
        (synthesis.grouped_optimum, ([100, 100], 4, 15), "degree"),
        (synthesis.draw_prompts, (2**24, 10, 1000, torch.Generator()), "size and prompts"),
        (clustering.cluster_counts, (10, 30), "p and k"),
        (clustering.ideal_circuit, (Task(12, 10, 8), 3.0), "task"),
        (clustering.ideal_circuit, (Task(10**6, 10, 8), 3.0), "task"),
    ],
)
def test_what_would_take_hours_or_terabytes_is_refused_at_once(function, given, named):
    began = time.monotonic()
    with pytest.raises(ValueError, match=rf"^{named} must be such that a call takes at most [0-9]+ (seconds|GiB), got "):
        function(*given)
    assert time.monotonic() - began < 5


def test_what_takes_seconds_is_not_refused():
    steps, loss = in_context.optimal_step_sizes(1, 1, 100)
    assert len(steps) == 100
    assert 0 < loss < 1
    check_degree("n_layers", 222, 1, 1, 223)


ODD = {  # valid calls, and what of the odd is none
    clustering.walsh: ({"values": torch.ones(3, 4)}, {"without a dimension"}),
    clustering.parity_coefficient: ({"margin": torch.ones(3, 4), "k": 1}, {"without a dimension"}),
    clustering.attention_by_pair: ({"attention": torch.ones(2, 16, 4), "tokens": TASK.all()[0]}, set()),
    clustering.token_effects: (
        {"sequence": MODELS.sequences(TASK.all()[0]), "tokens": TASK.all()[0], "p": 2}, {"longer"},
    ),
    clustering.position_effects: ({"sequence": MODELS.sequences(TASK.all()[0]), "task": TASK}, {"longer"}),
    MODELS.scores: ({"embeddings": MODELS.table()[:, 0]}, {"None"}),
    MODELS.classify: ({"sequence": MODELS.sequences(TASK.all()[0])}, set()),
}  # fmt: skip


@pytest.mark.parametrize("function", ODD, ids=lambda f: f.__name__)
def test_odd_tensors_are_named_where_others_have_made_the_usual_ones(function):
    valid, legal = ODD[function]
    function(**valid)
    for name, value in valid.items():
        if not isinstance(value, torch.Tensor):
            continue
        other = value.long() if value.is_floating_point() else value.double()
        odd = {"None": None, "a list": value.tolist(), "other numbers": other, "one number": value.flatten()[0]}
        odd |= {"sparse": value.to_sparse(), "longer": torch.cat([value, value[..., :1]], -1)}
        odd |= {"without a dimension": value[0], "meta": value.to("meta"), "complex": value.to(torch.complex128)}
        said = {label: complaint(function, valid, name, bad) for label, bad in odd.items()}
        assert {label for label, wrong in said.items() if wrong} <= legal, said


RANDOM = [f for f, rules in TABLE.items() if any(isinstance(rule, Draws) for rule in rules.values())]


@pytest.mark.same_bits
@pytest.mark.parametrize("function", RANDOM, ids=lambda f: f.__name__)
def test_the_generator_given_draws_everything_and_no_other(function):
    before = torch.get_rng_state()
    generators = [torch.Generator().manual_seed(seed) for seed in (0, 0, 1)]
    first, again, other = (numbers(function(**arguments(function) | {"generator": drawn})) for drawn in generators)
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))
    assert not all(torch.equal(one, two) for one, two in zip(first, other, strict=True))
    assert torch.equal(torch.get_rng_state(), before)


LAYERED = {  # results whose first dimension counts times or layers
    regression.feature_flow, regression.unroll, regression.unroll_logits, in_context.linear_transformer,
    in_context.gdpp_residuals, synthesis.label_layers,
}  # fmt: skip
ARRAYS = [f for f, rules in TABLE.items() if any(isinstance(rule, Array) for rule in rules.values())]
BATCHED = [f for f in ARRAYS if any(isinstance(rule, Array) and rule.batch and rule.shape for rule in TABLE[f].values())]
ENSEMBLES = [f for f, rules in TABLE.items() if any(isinstance(rule, Ensemble) for rule in rules.values())]


def numbers(result):
    """The tensors in a result."""
    match result:
        case torch.Tensor():
            return [result]
        case tuple() | list() | np.ndarray():
            return [array for part in result for array in numbers(part)]
        case clustering.Models():
            return numbers(result.weights)
        case dict():
            return [array for part in result.values() for array in numbers(part)]
        case float() | int() | Fraction():
            return [torch.tensor(float(result), dtype=torch.float64)]
        case _ if hasattr(result, "coef"):  # a polynomial
            return [torch.from_numpy(result.coef)]
    return []


def random_sizes(function, seed):
    """Sizes from 1 to 4, as far as they are legal."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {letter: int(torch.randint(1, 5, (), generator=generator)) for letter in SIZES}
    sizes["k"] = min(sizes["k"], 2)  # the degree in the entries triples with every layer
    for rule in TABLE[function].values():
        if isinstance(rule, Array) and rule.least:
            sizes |= {letter: max(sizes[letter], least) for letter, least in zip(rule.shape, rule.least, strict=True)}
        if "direction" in TABLE[function]:
            sizes["d"] = max(sizes["d"], 2)
    if function is in_context.transverse_hessians:
        sizes["d"] = 3
    return sizes


def close(one, other, rtol):
    scale = max(other.abs().max().item(), 1e-3) if other.numel() else 1.0
    torch.testing.assert_close(one.double(), other.double(), rtol=rtol, atol=rtol * scale)


seeds, axes = st.integers(0, 10**6), st.sampled_from(["sequence", "class"])


@pytest.mark.parametrize("function", DEFINITIONS, ids=lambda f: f.__name__)
@settings(max_examples=15)
@given(seed=seeds, axis=axes)
def test_a_function_is_what_its_definition_says(function, seed, axis):
    """On drawn numbers, sizes from 1 to 4, and the other arguments' choices."""
    definition, choices = DEFINITIONS[function]
    draw = random.Random(seed)
    given = arguments(function, seed, random_sizes(function, seed), axis=axis)
    given |= {name: draw.choice(values) for name, values in choices.items()}
    found, expected = numbers(function(**given)), numbers(definition(**given))
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        close(one, other, 1e-8)


@pytest.mark.parametrize("function", BATCHED, ids=lambda f: f.__name__)
@settings(max_examples=7)
@example(seed=0, axis="class", batch=(2, 3))
@given(seed=seeds, axis=axes, batch=st.sampled_from([(1,), (3,), (2, 3)]))
def test_leading_dimensions_are_so_many_calls(function, seed, axis, batch):
    sizes = random_sizes(function, seed)
    given = arguments(function, seed, sizes, batch, axis=axis)
    together = numbers(function(**given))
    members = list(itertools.product(*map(range, batch)))
    at = 1 if function in LAYERED else 0
    for member in members:
        own = {
            name: value[member] if isinstance(rule, Array) and rule.batch and rule.shape else value
            for (name, value), rule in zip(given.items(), TABLE[function].values(), strict=True)
        }
        for whole, alone in zip(together, numbers(function(**own)), strict=True):
            close(whole[(slice(None),) * at + member], alone, 1e-8)


@pytest.mark.parametrize("function", BATCHED, ids=lambda f: f.__name__)
def test_leading_dimensions_that_do_not_broadcast_are_told_as_given(function):
    names = [name for name, rule in TABLE[function].items() if isinstance(rule, Array) and rule.batch and rule.shape]
    for one, other in itertools.combinations(names, 2):
        given = arguments(function)
        given |= {one: given[one].expand(2, *given[one].shape), other: given[other].expand(3, *given[other].shape)}
        with pytest.raises(ValueError, match="broadcast") as error:
            function(**given)
        assert all(f"{name} {tuple(given[name].shape)}" in str(error.value) for name in (one, other))


@pytest.mark.parametrize("function", ARRAYS, ids=lambda f: f.__name__)
@settings(max_examples=6)
@given(seed=seeds, axis=axes)
def test_memory_layout_and_precision_do_not_matter(function, seed, axis):
    sizes = random_sizes(function, seed)
    given = arguments(function, seed, sizes, axis=axis)
    expected = numbers(function(**given))
    if "generator" in given:
        given["generator"] = torch.Generator().manual_seed(seed)
    strided = {
        name: torch.stack([value, value + 1], -1)[..., 0] if isinstance(value, torch.Tensor) else value
        for name, value in given.items()
    }
    # where a minimum lies is known to half the digits
    accuracy = 1e-7 if function is in_context.second_valley else 1e-11
    for one, other in zip(numbers(function(**strided)), expected, strict=True):
        close(one, other, accuracy)
    single = {
        name: value.float() if isinstance(rule, Array) else value
        for (name, value), rule in zip(given.items(), TABLE[function].values(), strict=True)
    }
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # an array made inside takes the arguments' precision, not this one
    try:
        answers = numbers(function(**single))
    finally:
        torch.set_default_dtype(before)
    assert len(answers) == len(expected)
    assert all(array.isfinite().all() for array in answers)
    always_double = {
        in_context.transverse_hessians, in_context.residual_polynomial,  # exact fractions; NumPy's polynomials
        clustering.find_drops, clustering.find_spikes,  # numbers of Python
    }  # fmt: skip
    if "float" not in str(inspect.signature(function).return_annotation) and function not in always_double:
        assert {array.dtype for array in answers if array.is_floating_point()} <= {torch.float32}


def has_magnitude(rule):
    """Whether an argument may be of any size: tokens, labels, probabilities and whole numbers may not."""
    match rule:
        case Array():
            return rule.kind in ("normal", "symmetric", "spd", "psd", "positive")
        case Given():
            return isinstance(rule.value, torch.Tensor) and rule.value.is_floating_point()
    return isinstance(rule, Ensemble)


@pytest.mark.parametrize("scale", [1e30, 1e-30])
@pytest.mark.parametrize(
    "function",
    [f for f in TABLE if any(has_magnitude(rule) for rule in TABLE[f].values())],
    ids=lambda f: f.__name__,
)
@settings(max_examples=6)
@given(seed=seeds, axis=axes)
def test_extreme_magnitudes_give_numbers_or_a_refusal(function, scale, seed, axis):
    given = arguments(
        function, seed, random_sizes(function, seed) | ({} if "curvatures" in TABLE[function] else {"k": 1}), axis=axis
    )
    for name, rule in TABLE[function].items():
        if has_magnitude(rule) and isinstance(rule, Ensemble):
            given[name] = given[name].map(lambda array: array * scale)
        elif has_magnitude(rule):
            given[name] = given[name] * scale
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(integrate, "MOST_EVALUATIONS", 300)  # a flow that gives up does so sooner
        try:
            answers = numbers(function(**given))
        except (ValueError, RuntimeError) as error:
            answers = []
            if not innermost(error).is_relative_to(PACKAGE):
                raise
    assert not any(array.isnan().any() for array in answers)


@pytest.mark.parametrize("function", ENSEMBLES, ids=lambda f: f.__name__)
@settings(max_examples=6)
@given(seed=seeds)
def test_models_of_an_ensemble_do_not_touch_each_other(function, seed):
    given = arguments(function, seed)
    together = numbers(function(**given))
    for at in range(2):
        alone = function(**given | {"models": given["models"][at]})
        for whole, own in zip(together, numbers(alone), strict=True):
            torch.testing.assert_close(whole[at : at + 1], own, rtol=1e-12, atol=1e-14)
