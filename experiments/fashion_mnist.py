"""Fashion-MNIST: a linear classifier on noisy images, and what attention blocks with its weights do to images.

    python experiments/fashion_mnist.py [SECTION ...] [--jobs N]

Trains five classifiers as appendix B of Actor, Gruber, Cyr (2025) says, and for each the oracles and variants it is
compared with; then measures, without randomness of its own, everything in results/fashion_mnist.json. Every finished
training is kept in .cache/fashion_mnist and not repeated. About half an hour on one free core. In the
weights' file, the arrays named nearest_… belong to the reading that comes nearest to the printed Table 1.
"""

import os
from collections.abc import Callable
from functools import partial, wraps

import numpy as np
import torch
from fashion_mnist_training import (
    NEAREST,
    NEIGHBOURS,
    NOISE,
    SEEDS,
    VARIANTS,
    cached,
    held,
    pixels,
    run_tasks,
    tasks,
)
from lab import RESULTS, Record, rounded
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot
from tqdm import tqdm

from attnopt.regression import unroll

RECORD = Record("fashion_mnist")
LAYERS = 5
PRINTED = {
    "clean": [0.8424, 0.9788, 0.9963, 0.9992, 0.9998, 0.9999],
    "noisy": [0.8139, 0.9835, 0.9978, 0.9999, 1.0, 1.0],
}


def read(*key) -> dict:
    """What a finished task of the training has kept."""
    return torch.load(cached(*key), weights_only=True)


def by_class(logits: Tensor) -> Tensor:
    """Softmax over the classes."""
    return torch.softmax(logits, -1)


def by_sequence(logits: Tensor, batch: int = 12_000) -> Tensor:
    """Softmax over the images of a batch, for each class."""
    return torch.cat([torch.softmax(tokens, -2) for tokens in logits.split(batch)])


def by_column(labels: Tensor, batch: int = 12_000) -> Tensor:
    """Labels divided by their sums over the images of a batch."""
    return torch.cat([tokens / tokens.sum(-2) for tokens in labels.split(batch)])


def blocks(
    products: Tensor,
    theta: Tensor,
    bias: Tensor,
    labels: Tensor,
    step: float = 1.0,
    inside: bool = True,
    share: Callable[[Tensor], Tensor] = by_class,
    target: Callable[[Tensor], Tensor] = lambda labels: labels,
    rows: Callable[[Tensor], Tensor] = lambda theta: theta,
    keep: float = 1.0,
) -> Tensor:
    """Logits before and after each of five blocks, without touching the images.

    Images move by step · (C - σ(N)) θ, so their products with θ move by step · (C - σ(N)) θθᵀ.

    Args:
        products: Zθᵀ of the images at the input, shape (S, 10).
        theta: the classifier's weights.
        bias: the classifier's bias; always used to classify.
        labels: C, shape (S, 10).
        step: of a block.
        inside: whether the softmax sees the bias.
        share: the softmax.
        target: what stands for C.
        rows: what stands for the outer θ.
        keep: weight of the residual connection.

    Returns:
        Shape (6, S, 10).
    """
    move, wanted, seen = step * rows(theta) @ theta.T, target(labels), [products]
    for _ in range(LAYERS):
        shares = share(seen[-1] + bias if inside else seen[-1])
        seen.append(keep * seen[-1] + (wanted - shares) @ move)
    return torch.stack(seen) + bias


STEPS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.5, 2.0)
VARIANT_STEPS = (0.7, 0.5, 0.4, 0.3)
CONTROL_STEPS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
AS_STATED = "as stated: class axis, step 1"
READINGS = {
    AS_STATED: {},
    "bias only to classify": {"inside": False},
    **{f"step {step}": {"step": step} for step in STEPS},
    "softmax of N/√784": {"share": lambda logits: by_class(logits / 28)},
    "softmax of N/√10": {"share": lambda logits: by_class(logits / 10**0.5)},
    "outer θ with unit rows": {"rows": lambda theta: theta / theta.norm(dim=1, keepdim=True)},
    "outer θ divided by its operator norm": {"rows": lambda theta: theta / torch.linalg.matrix_norm(theta, 2)},
    "no residual connection": {"keep": 0.0},
    "labels without attention": {"share": torch.zeros_like},
    "attention without labels": {"target": torch.zeros_like},
    "sequence axis, one-hot labels, whole set": {"share": by_sequence},
    "sequence axis, one-hot labels, batches of 1024": {"share": partial(by_sequence, batch=1024)},
    "sequence axis, one-hot labels, one image a sequence": {"share": torch.ones_like},
    "sequence axis, normalized labels, whole set": {"share": by_sequence, "target": by_column},
    "sequence axis, normalized labels, batches of 1024": {
        "share": partial(by_sequence, batch=1024),
        "target": partial(by_column, batch=1024),
    },
}


def outcome(name: str, seed: int, kept: int = -1) -> tuple[Tensor, Tensor]:
    """Weights and bias of a linear classifier in float64; no bias is a bias of zero."""
    theta, *bias = (parameter[kept].double() for parameter in read(name, seed)["parameters"])
    return theta, bias[0] if bias else torch.zeros(10, dtype=torch.float64)


def onehot(labels: Tensor) -> Tensor:
    """Labels as rows of the identity, float64."""
    return one_hot(labels, 10).double()


def right(logits: Tensor, truth: Tensor) -> list[float]:
    """Accuracy, for each block of logits of shape (blocks, S, 10)."""
    return [round(hits, 5) for hits in (logits.argmax(-1) == truth).double().mean(-1).tolist()]


def products(images: dict[str, Tensor], theta: Tensor) -> dict[str, Tensor]:
    """Zθᵀ of clean and noisy images, float64."""
    return {kind: torch.cat([some.double() @ theta.T for some in z.split(4096)]) for kind, z in images.items()}


def rows_of_table(starts: dict[str, Tensor], truth: Tensor, model: tuple[Tensor, Tensor], labels=None, **reading) -> dict:
    """Accuracy after 0 to 5 blocks, from products of clean and noisy images; labels are the true ones if not given."""
    table = {}
    for kind, start in starts.items():
        given = onehot(truth) if labels is None else labels[kind]
        table[kind] = right(blocks(start, *model, given, **reading), truth)
    return table


def readings(seed: int) -> dict:
    """Table 1 by every reading of it; those that need a training of their own only for the variants' seeds."""
    images, truth = held("validation", seed)
    base, fitted = outcome("classifier", seed), outcome("logistic", seed)
    starts = products(images, base[0])
    tables = {name: rows_of_table(starts, truth, base, **reading) for name, reading in READINGS.items()}
    tables["bias nowhere"] = rows_of_table(starts, truth, (base[0], torch.zeros_like(base[1])))
    clipped = {kind: z.clamp(0, 1) for kind, z in images.items()}
    tables["noisy images clipped to [0, 1]"] = rows_of_table(products(clipped, base[0]), truth, base)
    tables["converged logistic regression on clean images"] = rows_of_table(products(images, fitted[0]), truth, fitted)
    for part in ("test", "training"):
        starts, y = starts_of(part, seed, base[0])
        tables[f"on the {part} images"] = rows_of_table(starts, y, base)
        tables[f"on the {part} images, bias only to classify"] = rows_of_table(starts, y, base, inside=False)
    for name, how in VARIANTS.items() if seed == 0 else [(NEAREST, VARIANTS[NEAREST])]:
        for kept, epoch in enumerate(how["keep"]):
            model, label = outcome(name, seed, kept), f"{name}, {epoch} epochs"
            starts, _ = starts_of("validation", seed, model[0], **how)
            tables[label] = rows_of_table(starts, truth, model)
        for step in VARIANT_STEPS:
            tables[f"{label}, step {step:g}"] = rows_of_table(starts, truth, model, step=step)
        if name == NEAREST:
            tables[f"{label}, bias only to classify"] = rows_of_table(starts, truth, model, inside=False)
            for part in ("test", "training"):
                starts, y = starts_of(part, seed, model[0], **how)
                tables[f"{label}, on the {part} images"] = rows_of_table(starts, y, model)
    return tables


def starts_of(part: str, seed: int, theta: Tensor, **how) -> tuple[dict[str, Tensor], Tensor]:
    """Products of a part's images with θ, and the labels; `how` as in `held`."""
    images, truth = held(part, seed, **how)
    return products(images, theta), truth


def controls(seed: int) -> dict:
    """Blocks fed with labels, or images, that carry no information, and with the classifier's own predictions."""
    images, truth = held("validation", seed)
    theta, bias = model = outcome("classifier", seed)
    generator = torch.Generator().manual_seed(6000 + seed)
    drawn = torch.randint(10, truth.shape, generator=generator)
    imposed = {
        "all-black image, each of the 10 labels": (torch.zeros(10, 784), torch.arange(10)),
        "pure noise, random labels": (NOISE * torch.randn(12_000, 784, generator=generator), drawn),
        "uniform pixels, random labels": (torch.rand(12_000, 784, generator=generator), drawn),
    }
    found = {
        name: {"imposed label": right(blocks(z.double() @ theta.T, *model, onehot(labels)), labels)}
        for name, (z, labels) in imposed.items()
    }
    for name, labels in {"random labels": drawn, "labels moved on by one": (truth + 1) % 10}.items():
        for kind, start in products(images, theta).items():
            after = blocks(start, *model, onehot(labels))
            found[f"{kind} images, {name}"] = {"imposed label": right(after, labels), "true label": right(after, truth)}
    for kind, start in products(images, theta).items():
        own = onehot((start + bias).argmax(-1))
        found[f"{kind} images, own hard predictions"] = {"true label": right(blocks(start, *model, own), truth)}
        after = blocks(start, *model, by_class(start + bias))
        change = (after - after[0]).abs().max().item()
        found[f"{kind} images, own soft predictions"] = {"true label": right(after, truth), "largest change": change}
        for step in CONTROL_STEPS:
            after = blocks(start, *model, onehot(truth), step=step)
            found[f"{kind} images, true labels, step {step:g}"] = {"true label": right(after, truth)}
    return found


def oracles(seed: int) -> dict:
    """Oracles in place of the true labels: their own accuracy, and the linear classifier's after 0 to 5 blocks."""
    images, truth = held("validation", seed)
    model = outcome("classifier", seed)
    starts = products(images, model[0])
    first, first_bias, second, second_bias = (value[-1] for value in read("mlp", seed)["parameters"])
    advice = {"mlp": {}}
    for kind, z in images.items():
        scores = torch.relu(z @ first.T + first_bias) @ second.T + second_bias
        advice["mlp"][kind] = by_class(scores.double())
    votes = read("neighbours", seed)["votes"]
    advice["five nearest neighbours"] = {kind: vote / NEIGHBOURS for kind, vote in votes.items()}
    found = {}
    for name, soft in advice.items():
        soft = {kind: shares.double() for kind, shares in soft.items()}
        hard = {kind: onehot(shares.argmax(-1)) for kind, shares in soft.items()}
        found[name] = {
            "oracle alone": {kind: right(shares[None], truth)[0] for kind, shares in soft.items()},
            "blocks, hard labels": rows_of_table(starts, truth, model, hard),
            "blocks, soft labels": rows_of_table(starts, truth, model, soft),
        }
    return found


def spectra(seed: int) -> dict:
    """How far a block may overshoot, for the classifier as stated and for the one nearest to the printed table."""
    return {"as stated": overshoot("classifier", seed), NEAREST: overshoot(NEAREST, seed, **VARIANTS[NEAREST])}


def overshoot(name: str, seed: int, **how) -> dict:
    """Norms, curvatures, cross-entropies, margins and movements on the validation images."""
    images, truth = held("validation", seed, **how)
    theta, _ = model = outcome(name, seed)
    gram = theta @ theta.T
    root = torch.linalg.cholesky(gram)
    found = {"squared operator norm of θ": rounded(torch.linalg.matrix_norm(theta, 2).item() ** 2, 5)}
    centered = torch.linalg.matrix_norm(theta - theta.mean(0), 2).item() ** 2
    found["squared operator norm of θ less its mean row"] = rounded(centered, 5)
    found["eigenvalues of θθᵀ"] = [rounded(value, 5) for value in torch.linalg.eigvalsh(gram).tolist()]
    for kind, start in products(images, theta).items():
        after = blocks(start, *model, onehot(truth))
        shares = by_class(after)
        curvature = torch.linalg.eigvalsh(
            root.T @ (torch.diag_embed(shares[0]) - shares[0].unsqueeze(2) * shares[0].unsqueeze(1)) @ root
        )[:, -1]
        losses = torch.stack([cross_entropy(logits, truth, reduction="none") for logits in after])
        own = after.gather(2, truth.expand(len(after), -1).unsqueeze(2)).squeeze(2)
        others = after.masked_fill(one_hot(truth, 10).bool(), -torch.inf).amax(2)
        falls = ((own.unsqueeze(2) - after).diff(dim=0) < 0).any(2).any(0)
        moved = (onehot(truth) - shares[:-1]).cumsum(0) @ root
        relative = moved.norm(dim=2) / images[kind].double().norm(dim=1)
        found[kind] = {
            "largest curvature: maximum": rounded(curvature.max().item(), 5),
            "largest curvature: median": rounded(curvature.median().item(), 5),
            "fraction whose cross-entropy ever rises": round((losses.diff(dim=0) > 0).any(0).double().mean().item(), 5),
            "fraction whose cross-entropy rises at each block": [
                round(part, 5) for part in (losses.diff(dim=0) > 0).double().mean(1).tolist()
            ],
            "fraction with a margin that ever falls": round(falls.double().mean().item(), 5),
            "mean cross-entropy": [rounded(loss, 5) for loss in losses.mean(1).tolist()],
            "least margin": [rounded(margin, 5) for margin in (own - others).amin(1).tolist()],
            "movement over norm: median": [rounded(part, 5) for part in relative.median(1).values.tolist()],
            "movement over norm: maximum": [rounded(part, 5) for part in relative.amax(1).tolist()],
        }
    return found


def baseline(seed: int) -> dict:
    """Logistic regression on clean images, and how long trainings took."""
    images, truth = held("validation", seed)
    fitted = read("logistic", seed)
    theta, bias = outcome("logistic", seed)
    test, test_truth = pixels("test")
    return {
        "validation": right((images["clean"].double() @ theta.T + bias)[None], truth)[0],
        "test": right((test.double() @ theta.T + bias)[None], test_truth)[0],
        "objective": rounded(fitted["loss"], 6),
        "largest slope": rounded(fitted["slope"], 2),
        "iterations": fitted["steps"],
        "seconds of logistic regression": round(fitted["seconds"], 1),
        "seconds of the classifier": round(read("classifier", seed)["seconds"], 1),
    }


def differences(seed: int) -> float:
    """Largest difference in logits between `blocks` and the recursion on 300 images themselves, three readings, float64."""
    images, truth = held("validation", seed)
    theta, bias = outcome("classifier", seed)
    z, labels = images["noisy"][:300].double(), onehot(truth[:300])
    start = z @ theta.T
    stages = [z]
    for _ in range(LAYERS):
        stages.append(stages[-1] - by_class(stages[-1] @ theta.T + bias) @ theta + labels @ theta)
    by_image = {
        AS_STATED: torch.stack(stages),
        "bias only to classify": unroll(z, theta, labels, "class", LAYERS),
        "sequence axis, normalized labels, whole set": unroll(z, theta, by_column(labels), "sequence", LAYERS),
    }
    gaps = [blocks(start, theta, bias, labels, **READINGS[name]) - z @ theta.T - bias for name, z in by_image.items()]
    return rounded(torch.stack(gaps).abs().max().item(), 1)


def figure_1(draws: int = 1000) -> dict:
    """A noisy test image of a T-shirt that seed 0's classifier takes for a bag at first and not after five blocks.

    Among the first 40 T-shirts of the test file and the noise of seeds 0, 1, …, the pair most surely taken for a bag.
    """
    test, truth = pixels("test")
    theta, bias = outcome("classifier", 0)
    shirts = (truth == 0).nonzero().flatten()[:40]
    clean, labels = test[shirts].double() @ theta.T, onehot(truth[shirts])
    best, chosen = 0.0, {}
    for draw in range(draws):
        added = NOISE * torch.randn(784, dtype=torch.float64, generator=torch.Generator().manual_seed(draw))
        after = blocks(clean + added @ theta.T, theta, bias, labels)
        classes, shares = after.argmax(-1), by_class(after)
        sure = shares[0, :, 8] * ((classes[0] == 8) & (classes[-1] == 0))
        if sure.max() > best:
            best, at = sure.max().item(), sure.argmax().item()
            chosen = {
                "test index": shirts[at].item(),
                "noise seed": draw,
                "classes": classes[:, at].tolist(),
                "probability of bag": [rounded(share, 4) for share in shares[:, at, 8].tolist()],
                "probability of T-shirt": [rounded(share, 4) for share in shares[:, at, 0].tolist()],
                "class of the clean image": (clean[at] + bias).argmax().item(),
            }
    return chosen


def gather(dictionaries: list[dict]) -> dict:
    """One dictionary of the same shape whose leaves are lists over the seeds that have them."""
    keys = dict.fromkeys(key for dictionary in dictionaries for key in dictionary)
    gathered = {}
    for key in keys:
        values = [dictionary[key] for dictionary in dictionaries if key in dictionary]
        gathered[key] = gather(values) if isinstance(values[0], dict) else values
    return gathered


def add_distances(tables: dict) -> dict:
    """Add the distance of each reading's means to the printed table: all 12 numbers, and the 10 after a block."""
    printed = np.array([PRINTED[kind] for kind in PRINTED])
    for table in tables.values():
        gaps = np.array([np.mean(table[kind], axis=0) for kind in PRINTED]) - printed
        table["rms 0-5"] = rounded(np.sqrt(np.square(gaps).mean()), 4)
        table["rms 1-5"] = rounded(np.sqrt(np.square(gaps[:, 1:]).mean()), 4)
    return dict(sorted(tables.items(), key=lambda item: item[1]["rms 0-5"]))


def over_seeds(measure: Callable[[int], dict]) -> Callable[[], dict]:
    """A section: train what is missing, then measure with every seed's classifier."""

    @wraps(measure)
    def section() -> dict:
        run_tasks()
        found = [{"found": measure(seed)} for seed in tqdm(SEEDS, measure.__name__, ncols=79)]
        return gather(found)["found"]

    return section


@RECORD.section
def settings() -> dict:
    """What was scored, the paper's table, the seeds, and what their trainings took."""
    run_tasks()
    images = {"validation": 12_000, "training": 48_000, "test": 10_000, "pure noise": 12_000, "uniform pixels": 12_000}
    seconds = round(sum(read(*key)["seconds"] for key in tasks()), 1)
    return {"images": images, "printed": PRINTED, "seeds": list(SEEDS), "seconds of trainings": seconds}


@RECORD.section
def readings_() -> dict:
    """The readings of the experiment, those nearest to the printed table first."""
    return add_distances(over_seeds(readings)())


for of_one_seed in (controls, oracles, baseline, spectra, differences):
    RECORD.section(over_seeds(of_one_seed))
RECORD.section(figure_1)


@RECORD.section
def weights() -> list[str]:
    """Write results/fashion_mnist_weights.npz; the names of its arrays."""
    run_tasks()
    arrays = {}
    for prefix, name in {"": "classifier", "nearest_": NEAREST}.items():
        models = [read(name, seed)["parameters"] for seed in SEEDS]
        arrays[f"{prefix}weights"] = torch.stack([weights[-1] for weights, _ in models]).numpy()
        arrays[f"{prefix}bias"] = torch.stack([bias[-1] for _, bias in models]).numpy()
    part = RESULTS / "fashion_mnist_weights.part.npz"
    np.savez(part, **arrays)
    os.replace(part, RESULTS / "fashion_mnist_weights.npz")
    return list(arrays)


if __name__ == "__main__":
    RECORD.main()
