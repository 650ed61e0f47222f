"""States of every explorer, always the same: the first, chosen corners, and random ones within its traits' own bounds."""

import itertools
import random

import torch
from helpers import image_steps

from attnbook.explorers import KINDS
from attnopt.clustering import Models
from attnopt.clustering.sandbox import run_names

COUNT = 24
NAMES = [name for name, kind in KINDS.items() if kind.__module__.startswith("attnbook.explorers.")]
# How far the page's numbers may be from Python's, relatively and absolutely, unless 1e-9: solvers, cancellation.
TOLERANCES = {
    "attention_field": (1e-9, 1e-11),
    "feature_flow": (1e-7, 1e-8),  # the solver's
    "quadratic_field": (1e-6, 1e-7),  # the solver's
    "layers": (1e-6, 1e-7),
    "one_layer": (1e-6, 1e-7),
    "second_valley": (1e-6, 1e-6),  # the solvers'
    "layer_steps": (1e-6, 1e-9),
    "labels_in_context": (1e-6, 1e-7),  # long steps magnify rounding
    "layer_training": (1e-6, 1e-7),  # the solvers'
    "plateaus": (1e-6, 1e-7),  # the solvers'
    "step_sizes": (1e-9, 1e-11),
    "gdpp": (1e-6, 1e-9),
    "gradient_bound": (1e-6, 1e-12),
    "image_steps": (1e-9, 1e-10),
    "product": (1e-7, 1e-12),
    "sandbox": (1e-6, 1e-9),
}
LIVE = [
    (2, 12, 5, 2, 32, "rms"),
    (2, 5, 2, 2, 3, "unit"),
    (2, 6, 6, 1, 4, "rms"),
    (3, 4, 2, 3, 5, "unit"),
    (5, 16, 3, 2, 7, "rms"),
]


def live_frame(p, length, k, dim, width, norm):
    """What the page sends of a training of its own, with random weights and some neurons and a position switched off."""
    generator = torch.Generator().manual_seed(p * length + k)
    models = Models.random(1, p, length, dim, width, norm=norm, generator=generator, biases=True)
    shares = {"loss": 0.5, "train": 0.75, "unseen": None, "all": 0.5, "suffix": None, "permutation": 0.25, "parity": None}
    return {
        "p": p, "length": length, "k": k, "norm": norm, "epoch": 1.5, "frame": 96,
        "weights": {name: value[0].tolist() for name, value in models.weights.items()},
        "neurons": [int(at != 1) for at in range(width)],
        "positions": [int(at != 2) for at in range(length)],
        "evaluation": shares | {"influences": None},
    }  # fmt: skip


SAMPLES = {
    "attention_field": [
        {"weights": weights, "axis": axis, "softness": softness, "steps": 3, "selected": 1}
        for weights, softness in (
            ([[0.3, -1.0], [1.2, 0.4], [0.8, -0.1]], 0.4),
            ([[1.0, 0.0], [0.5, 0.2], [0.0, 0.4]], 0.0),  # class 2 between the others: there is a zero over classes
            ([[1.0, 0.0], [0.5, 0.2], [0.0, 1.0]], 0.0),  # and inside the cone of the others: over tokens
            ([[1.0, 0.5], [-0.4, -0.2], [2.0, 1.0]], 0.2),  # on a line: it is the nearest of many
            ([[0.0, 0.0]] * 3, 0.0),
        )
        for axis in ("class", "sequence")
    ],
    "feature_flow": [
        {"weights": [[-1.0, -0.5], [0.0, 0.0], [2.0, 1.0]]},  # on a line, one between the others
        {"weights": [[-1.0, -0.5], [0.0, 0.0], [2.0, 1.0]], "softness": 0.3},
        {"weights": [[0.5, 0.5]] * 3},
    ],
    "ideal_circuit": [
        {"query": [0.0, 0.0]},
        {"query": [-16.0, 0.0], "split": 1.0, "noise": 1.0},
        *({"query": query, "rest": [0.0, 2.0]} for query in ([2.0, 0.0], [8.0, 0.0])),
    ],
    "circuits": [{"seed": seed, "shown": shown} for seed in (2, 4, 11, 199) for shown in ("trained", "levels")],
    "gdpp": [{"context": n, "layers": 4, "scale": scale} for n in (3, 100) for scale in (0.5, 1.5)],
    "gradient_bound": [dict.fromkeys(("value", "receptors", "assemblers", "logits"), end) for end in (0.001, 10.0)],
    "image_steps": [
        {"image": 0, "label": "true"},  # which has none: the first class stands in
        *(
            {"seed": seed, "image": seed, "label": label}
            for seed in (1, 2)
            for label in ("true", "predicted", "soft", "Bag")
        ),
    ],
    "layers": [  # beyond all bounds
        {"model": model, "scheme": "strang", "step": 4.0, "layers": 3, "scale": 3.0} for model in ("linear", "quadratic")
    ],
    "layer_training": [  # equal starts, all or some, a difference that is small, and steps that blow up
        *({"starts": [0.3] * 4, "layers": layers, "tied": tied} for layers, tied in ((1, False), (4, False), (4, True))),
        {"starts": [0.3, 1.2, 0.3, 0.3], "layers": 4},
        {"starts": [0.3, 0.301, 0.302, 0.303], "layers": 4, "n_context": 100, "time": 0.7},
        *({"starts": [3.0, -1.0, 2.0, 2.5], "layers": 4, "dim": dim, "n_context": n} for dim, n in ((10, 2), (1, 100))),
    ],
    "plateaus": [
        *({"layers": 3, "spread": spread, "pair": pair} for spread, pair in ((-2.0, 5.0), (-9.0, -5.0), (-4.0, 4.75))),
        *({"dim": dim, "n_context": n, "start": 1.0, "layers": k} for dim, n, k in ((10, 5, 3), (1, 40, 2))),
    ],
    "forward_pass": [{"examples": n, "mask": mask, "layers": k} for n in (1, 12) for mask in ("on", "off") for k in (0, 8)],
    "one_head": [
        {"axis": [0.0, 0.0], "tokens": 10, "clusters": 1},
        {"query": [0.0, 0.0], "clusters": 2, "number": 99},
        {"query": [2.5, 2.5], "axis": [1.0, -1.0], "tokens": 2000},
        *({"tokens": 10, "number": number} for number in range(6)),
    ],
    "one_layer": [{"examples": n} for n in (1, 2, 40, 1000)],
    "one_layer_knows": [
        *({"knows": knows, "length": 20, "weight": weight} for knows in ("positions", "counts") for weight in (1, 20)),
        *({"knows": "nothing", "length": length, "weight": weight} for length, weight in ((2, 20), (12, 6), (20, 3))),
        *({"knows": "sequences", "length": length} for length in (2, 20)),
        {"knows": "nothing", "sharpness": 0.2, "length": 20, "weight": 20},
    ],
    "one_step": [{"prompt": prompt, "examples": n} for prompt in range(10) for n in (1, 30)][::2],
    "oracle_value": [
        {"oracle": oracle, "reliability": sure, "truth": truth, "temperature": 0.2}
        for oracle, sure in (("witness", 0.0), ("witness", 1.0), ("hint", 1.0), ("own", 0.0))
        for truth in (1.0, 2.5)
    ],
    "one_picture": [
        {"context": context, "ones": ones, "query": query}
        for context, ones in ((0.0, 2), (0.5, 5), (1.0, 0), (1.3, 1), (2.0, 0), (2.0, 4), (2.0, 5))
        for query in ([1.2, 1.2], [-2.4, 0.7])
    ],
    "product": [
        {"run": "two", "epoch": 0, "factors": [400.0, 0.3, 17.0, 350.0, 2.5]},  # each as far as it reaches
        *(
            {"run": run, "epoch": epoch, "factors": [1.0, 0.5, 2.0, f, 1.0]}
            for run, epoch, f in (("three", 0, 1.0), ("two", 400, 0.0), ("none", 269, 1.0), ("never", 1000, 0.0))
        ),
    ],
    "second_valley": [{"start": start} for start in ([0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.4, 1.2])],
    "sandbox": [
        *({"run": "own", "live": live_frame(*sizes)} for sizes in LIVE),
        *({"runs": (name,), "epoch": epoch} for epoch in (517, 0, 150, 1000) for name in run_names()),
    ],
    "spike_steps": [{"step": step} for step in (0, 1, 26, 31, 33, 64)],
    "task_model": [{"model": model, "value_scale": 0.0} for model in ("trained", "untrained", "ideal")],
}


def make(name, **traits):
    """The explorer of that module."""
    return (image_steps if name == "image_steps" else KINDS[name])(**traits)


def drawn(bound, value, rng):
    """A random value within bounds, of the present one's shape; some numbers at an end, or 0."""
    if isinstance(value, list):
        return [drawn(bound, part, rng) for part in value]
    if "values" in bound:
        return rng.choice(bound["values"])
    low, high = bound["low"], bound["high"]
    if bound.get("whole"):
        return rng.randint(low, high)
    if rng.random() < 0.2:
        return rng.choice((low, high, min(max(low, 0.0), high)))
    return low * (high / low) ** rng.random() if low > 0 and high > 50 * low else rng.uniform(low, high)


def tamed(name, state):
    """Without what no two computations agree on: many long steps may be chaotic."""
    if name == "layers":
        longest = 1 if state["model"] == "linear" else 0.25  # tokens far from 0 attend to each other with long steps
        state |= {"step": min(state["step"], longest / state["scale"]), "layers": min(state["layers"], 24)}
    if name == "attention_field" and sum(value**2 for weight in state["weights"] for value in weight) > 8:
        state |= {"steps": min(state["steps"], 8)}
    return state


def explorers(name):
    """An explorer in its first state, at its samples, and in random states until there are 24 or no others."""
    return list(one_by_one(name))


def one_by_one(name):
    """The same, made when they are asked for."""
    first, rng = make(name), random.Random(0)
    found = {repr(first.state())}
    yield first
    bounds = {trait: bound for trait, bound in first.bounds(kernel=False).items() if "values" in bound or "high" in bound}
    random_states = (
        tamed(name, {trait: drawn(bound, getattr(first, trait), rng) for trait, bound in bounds.items()})
        for _ in range(2 * COUNT)
    )
    for state in itertools.chain(SAMPLES.get(name, ()), () if name == "sandbox" else random_states):
        if len(found) < COUNT:
            explorer = make(name, **state)
            if (shown := repr(explorer.state())) not in found:
                found.add(shown)
                yield explorer


def settled(name, numbers):
    """The numbers but for what is not determined: an eigenvector's sign, and all of it where eigenvalues lie close.

    What is left of eigenvectors is so small that it need only agree up to 1e-6.
    """
    if name == "softmax" and isinstance(numbers, dict) and "eigenvectors" in numbers:
        (large, small), vectors = numbers["eigenvalues"], numbers.pop("eigenvectors")
        clear = None not in (large, small) and large - small > 1e-4 and small > 1e-7
        numbers["axes"] = [[[1e-3 * x * y for x in v] for y in v] for v in vectors] if clear else []
    return numbers
