"""The trainings behind fashion_mnist.py: classifiers, variants of them, oracles and a baseline, each kept once finished."""

import itertools
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from joblib import Parallel, delayed
from lab import CACHE
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot
from tqdm import tqdm

from attnopt.datasets import fashion_mnist

SEEDS = range(5)
NOISE, NEIGHBOURS = 1 / 3, 5
LONG, SHORT = {"keep": (1, 3, 10, 30, 100)}, {"epochs": 30, "keep": (10, 30)}
NEAREST = "noise, clipping, then pixels in [-1, 1]"
VARIANTS = {
    NEAREST: {"center": 0.5, "spread": 0.5, "early": True, "clip": True, **LONG},
    "noise, clipping, then pixels standardised": {"center": 0.286, "spread": 0.353, "early": True, "clip": True, **LONG},
    "noisy images clipped": {"clip": True, **LONG},
    "pixels in [-1, 1], noisy images clipped": {"center": 0.5, "spread": 0.5, "clip": True, **LONG},
    "pixels in [-1, 1]": {"center": 0.5, "spread": 0.5, **SHORT},
    "as stated": {"epochs": 200, "keep": (1, 3, 10, 30, 200)},
    "weight decay 0.001": {"decay": 1e-3, **SHORT},
    "trained on clean images": {"noise": 0.0, **SHORT},
    "no bias": {"bias": False, **SHORT},
    "pixels standardised": {"center": 0.286, "spread": 0.353, **SHORT},
}


def pixels(split: str, center: float = 0.0, spread: float = 1.0) -> tuple[Tensor, Tensor]:
    """All images of a file as float32 vectors, gray levels in [0, 1] before (x - center) / spread; and their labels."""
    images, labels = fashion_mnist(split)
    return (images.flatten(1).float() / 255 - center) / spread, labels


def parts(seed: int) -> tuple[Tensor, Tensor]:
    """Indices of a seed's 48,000 training and 12,000 validation images."""
    order = torch.randperm(60_000, generator=torch.Generator().manual_seed(seed))
    return order[:48_000], order[48_000:]


def train(
    seed: int,
    hidden: int = 0,
    epochs: int = 100,
    keep: tuple[int, ...] = (),
    noise: float = NOISE,
    bias: bool = True,
    decay: float = 0.0,
    center: float = 0.0,
    spread: float = 1.0,
    early: bool = False,
    clip: bool = False,
) -> dict:
    """Adam at 1e-3 on batches of 1024, Gaussian noise drawn anew for every image and epoch.

    Args:
        seed: of the split, the initial weights (uniform as in torch.nn.Linear), the order and the noise.
        hidden: width of one hidden layer of ReLUs; 0 for the linear classifier.
        epochs: how many.
        keep: epochs after which to keep the parameters; the last one if empty.
        noise: standard deviation of the noise.
        bias: whether layers have one.
        decay: weight of Adam's L2 term.
        center: subtracted from the gray levels in [0, 1].
        spread: what they are then divided by.
        early: whether the noise is added before the scaling, not after it.
        clip: whether noisy images are clipped to the range of clean ones.

    Returns:
        The parameters, each stacked over the kept epochs, and the seconds taken.
    """
    began = time.perf_counter()
    x, y = pixels("train", center, spread)
    members = parts(seed)[0]
    generator = torch.Generator().manual_seed(1000 + seed)
    sizes = [784, hidden, 10] if hidden else [784, 10]
    layers = [torch.nn.Linear(*size, bias=bias) for size in itertools.pairwise(sizes)]
    model = torch.nn.Sequential(*([layers[0], torch.nn.ReLU(), layers[1]] if hidden else layers))
    with torch.no_grad():
        for layer in layers:
            for parameter in layer.parameters():
                parameter.uniform_(-(layer.in_features**-0.5), layer.in_features**-0.5, generator=generator)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=decay)
    kept, deviation = [], noise / spread if early else noise
    for epoch in range(1, epochs + 1):
        for batch in members[torch.randperm(len(members), generator=generator)].split(1024):
            images = x[batch] + deviation * torch.randn(len(batch), 784, generator=generator)
            images = images.clamp(-center / spread, (1 - center) / spread) if clip else images
            adam.zero_grad()
            cross_entropy(model(images), y[batch]).backward()
            adam.step()
        if epoch in (keep or (epochs,)):
            kept.append([parameter.detach().clone() for parameter in model.parameters()])
    return {"parameters": [torch.stack(same) for same in zip(*kept, strict=True)], "seconds": time.perf_counter() - began}


def logistic(seed: int, ridge: float = 1.0, iterations: int = 1000) -> dict:
    """Multinomial logistic regression on the clean training part: L-BFGS on the mean loss + ridge/(2n) · ‖θ‖².

    The objective is scikit-learn's default one (C = 1), the bias free. θ = θ'P with P² near the inverse Hessian makes
    L-BFGS fast.
    """
    began = time.perf_counter()
    members = parts(seed)[0]
    x, y = (of_all[members] for of_all in pixels("train"))
    mean, penalty = x.mean(0), ridge / len(y)
    values, basis = torch.linalg.eigh((x - mean).T @ (x - mean) / (10 * len(y)))
    scale = basis * (values.clamp(min=0) + penalty).rsqrt() @ basis.T
    x = (x - mean) @ scale
    free, offset = torch.zeros(10, 784, requires_grad=True), torch.zeros(10, requires_grad=True)
    solver = torch.optim.LBFGS(
        [free, offset], max_iter=iterations, tolerance_grad=1e-5, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        solver.zero_grad()
        value = cross_entropy(x @ free.T + offset, y) + penalty / 2 * (free @ scale).square().sum()
        value.backward()
        return value

    solver.step(loss)
    value, steps = loss().item(), solver.state[free]["n_iter"]
    slope = max(free.grad.abs().max().item(), offset.grad.abs().max().item())
    theta = (free @ scale).detach()
    found = [theta[None], (offset.detach() - theta @ mean)[None]]
    return {"parameters": found, "loss": value, "slope": slope, "steps": steps, "seconds": time.perf_counter() - began}


def neighbours(seed: int) -> dict:
    """Votes of the five nearest clean training images (Euclidean, exact) for the validation images, clean and noisy."""
    began = time.perf_counter()
    members = parts(seed)[0]
    x, y = (of_all[members] for of_all in pixels("train"))
    half_squares, votes = x.square().sum(1) / 2, {}
    for kind, images in held("validation", seed)[0].items():
        nearest = [(chunk @ x.T - half_squares).topk(NEIGHBOURS).indices for chunk in images.split(1000)]
        votes[kind] = one_hot(y[torch.cat(nearest)], 10).sum(1).to(torch.uint8)
    return {"votes": votes, "seconds": time.perf_counter() - began}


def noisy(images: Tensor, seed: int, deviation: float = NOISE) -> Tensor:
    """Images with one draw of the noise."""
    return images + deviation * torch.randn(images.shape, generator=torch.Generator().manual_seed(seed))


def held(
    part: str, seed: int, center: float = 0.0, spread: float = 1.0, early: bool = False, clip: bool = False, **_
) -> tuple[dict[str, Tensor], Tensor]:
    """Images of a part, clean and with one draw of noise, and their labels.

    Args:
        part: "validation" or "training" for a seed's part of the training file, "test" for the test file.
        seed: of the split and of the noise.
        center: as the other arguments, as in `train`.
        spread: see `train`.
        early: see `train`.
        clip: see `train`.
    """
    x, y = pixels("test" if part == "test" else "train", center, spread)
    if part != "test":
        members = parts(seed)[part == "validation"]
        x, y = x[members], y[members]
    first_seed = {"validation": 2000, "test": 4000, "training": 5000}[part]
    images = noisy(x, first_seed + seed, NOISE / spread if early else NOISE)
    images = images.clamp(-center / spread, (1 - center) / spread) if clip else images
    return {"clean": x, "noisy": images}, y


def tasks() -> dict[tuple[str, int], Callable[[], dict]]:
    """All trainings by name and seed, those that others wait for first."""
    jobs = {("classifier", seed): partial(train, seed) for seed in SEEDS}
    jobs |= {(NEAREST, seed): partial(train, seed, **VARIANTS[NEAREST]) for seed in SEEDS}
    jobs |= {("mlp", seed): partial(train, seed, hidden=256, epochs=20) for seed in SEEDS}
    jobs |= {("neighbours", seed): partial(neighbours, seed) for seed in SEEDS}
    jobs |= {("logistic", seed): partial(logistic, seed) for seed in SEEDS}
    return jobs | {(name, 0): partial(train, 0, **how) for name, how in VARIANTS.items()}


def cached(name: str, seed: int) -> Path:
    """Where a training's outcome is kept."""
    return CACHE / "fashion_mnist" / f"{name} {seed}.pt"


def finish(name: str, seed: int, job: Callable[[], dict]) -> None:
    """Run one training on one thread and keep its outcome; the file appears only when it is complete."""
    torch.set_num_threads(1)
    outcome = job()
    part = cached(name, seed).with_suffix(".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    torch.save(outcome, part)
    os.replace(part, cached(name, seed))


def run_tasks() -> None:
    """Do the trainings that are not yet kept, with a progress bar."""
    open_tasks = {key: job for key, job in tasks().items() if not cached(*key).exists()}
    results = Parallel(return_as="generator_unordered")(delayed(finish)(*key, job) for key, job in open_tasks.items())
    for _ in tqdm(results, "trainings", len(open_tasks), ncols=79):
        pass
