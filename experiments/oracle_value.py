"""Fashion-MNIST: what oracles are worth to a linear classifier of noisy images, by the information that they have.

    python experiments/oracle_value.py

Writes results/oracle_value.json. The features are an image with Gaussian noise of standard deviation NOISE (gray levels in
[0, 1]), one draw for each image. For each of SEEDS, on the 48,000 training images of the seed's split, with noise drawn anew
for every image and epoch: a linear classifier, and perceptrons 784-256-10 for images with noise NOISE, NOISE/2, NOISE/3 and
0. Each model's number of epochs and then its temperature are those with the smallest cross-entropy on the 12,000 held-out
images; the test file serves for testing alone. θ and b are the classifier's weights, divided by its temperature.

Oracles: the true label; the classifier's own softmax σ(N/t) for t in SHARPNESS; its hard decision; the perceptron that sees
the same noisy image; those that see the mean of VIEWS noisy images of the same clean one, the features among them, which is
as good as seeing them all (the mean is sufficient); the one that sees the clean image.

"models": epochs, temperature, cross-entropy before and after the temperature, accuracy, and the error of calibration, the
mean distance of confidence and accuracy over BINS bins of equally many test images, before and after.
"oracles": for the labels Q of each, on the test file, with s the classifier's softmax and C the true labels:

    square        mean ‖(s - Q)θ‖²: what V would be if s were calibrated and Q the posterior of what the oracle sees
    slope         mean ⟨(s - C)θ, (s - Q)θ⟩, to which a short step's gain is h times, without any such assumption
    error         the standard error of the slope, over images
    gain          the fall of the mean cross-entropy after one step of each of STEPS, in units of 1/L, L = ½‖θ‖²
    flow          its fall when the flow has run for ever: from the classifier's to that of Q
    flow, solved  the same after LAYERS steps of 1/L, not for Q with a zero
    accuracy      of the oracle's decision
    after         accuracy of the classifier after one step of 1/L

"classifier": cross-entropy, L, trace (mean of tr θᵀJ(s)θ), the smallest singular value of the differences of θ's rows.
"part one": the classifiers of the chapter "What the Fashion-MNIST table shows", noise 1/3, likewise.
"""

import itertools

import numpy as np
import torch
from joblib import Parallel, delayed
from lab import RESULTS, Record
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from attnopt.datasets import fashion_mnist

RECORD = Record("oracle_value", digits=5)
SEEDS, NOISE, VIEWS = 5, 1.0, (4, 9)
HIDDEN, EPOCHS, BATCH, RATE = 256, 15, 256, 1e-3
STEPS, LAYERS, BINS = (0.01, 0.5, 1, 1.5, 2, 4), 3000, 15
SHARPNESS = (0.5, 2)
Model = list[Tensor]


def pixels(split: str) -> tuple[Tensor, Tensor]:
    """Images as float32 vectors with entries in [0, 1], and their labels."""
    images, labels = fashion_mnist(split)
    return images.flatten(1).float() / 255, labels


def parts(seed: int) -> tuple[Tensor, Tensor]:
    """A seed's 48,000 training and 12,000 held-out images."""
    order = torch.randperm(60_000, generator=torch.Generator().manual_seed(seed))
    return order[:48_000], order[48_000:]


def logits(model: Model, images: Tensor) -> Tensor:
    """Of a linear classifier (θ, b), or of a perceptron with one hidden layer of ReLUs."""
    if len(model) == 4:
        images = torch.relu(images @ model[0].T + model[1])
    return images @ model[-2].T + model[-1]


def train(seed: int, hidden: int, noise: float, x: Tensor, y: Tensor, held: tuple[Tensor, Tensor], epochs: int) -> tuple:
    """The model of the epoch that is best on held-out images, that epoch, and its temperature."""
    generator = torch.Generator().manual_seed(7000 + seed)
    sizes = [784, hidden, 10] if hidden else [784, 10]
    model = []
    for inner, outer in itertools.pairwise(sizes):
        for shape in ((outer, inner), (outer,)):
            start = (2 * torch.rand(shape, generator=generator) - 1) * inner**-0.5
            model.append(start.requires_grad_())
    adam = torch.optim.Adam(model, lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, epochs)
    best = np.inf, model, 0
    for epoch in range(1, epochs + 1):
        for batch in torch.randperm(len(x), generator=generator).split(BATCH):
            images = x[batch]
            if noise:
                images = images + noise * torch.randn(images.shape, generator=generator)
            adam.zero_grad()
            cross_entropy(logits(model, images), y[batch]).backward()
            adam.step()
        schedule.step()
        with torch.no_grad():
            loss = cross_entropy(logits(model, held[0]), held[1]).item()
        if loss < best[0]:
            best = loss, [value.detach().clone() for value in model], epoch
    return best[1], best[2], temperature(logits(best[1], held[0]), held[1])


def temperature(scores: Tensor, truth: Tensor) -> float:
    """The temperature by which logits are divided that gives the smallest cross-entropy."""
    scores = scores.double()
    return float(
        np.exp(
            minimize_scalar(lambda t: cross_entropy(scores / np.exp(t), truth).item(), bounds=(-2, 2), method="bounded").x
        )
    )


def calibration_error(scores: Tensor, truth: Tensor) -> float:
    """Mean distance of confidence and accuracy, over bins with equally many images, ordered by confidence."""
    confidence, decision = scores.double().softmax(-1).max(-1)
    order = confidence.argsort()
    right = (decision == truth).double()
    pairs = zip(confidence[order].tensor_split(BINS), right[order].tensor_split(BINS), strict=True)
    return sum(abs((c.sum() - r.sum()).item()) for c, r in pairs) / len(truth)


def draws(images: Tensor, noise: float, seed: int) -> dict[str, Tensor]:
    """What the classifier and the oracles see: one noisy view, means of several, this one among them, the clean image."""
    generator = torch.Generator().manual_seed(seed)
    total, seen = torch.zeros_like(images), {}
    for view in range(1, max(VIEWS) + 1):
        total += images + noise * torch.randn(images.shape, generator=generator)
        if view in (1, *VIEWS):
            seen[str(view)] = total / view
    return seen | {"clean": images}


def worth(labels: Tensor, start: Tensor, theta: Tensor, truth: Tensor) -> dict:
    """What is listed above, of one oracle's labels."""
    gram, true = theta @ theta.T, one_hot(truth, 10).double()
    own = start.softmax(-1)
    top = torch.linalg.matrix_norm(theta, 2).item() ** 2 / 2
    before = cross_entropy(start, truth, reduction="none")
    slopes = (((own - true) @ gram) * (own - labels)).sum(-1)
    move = (labels - own) @ gram / top
    gains = [(before - cross_entropy(start + step * move, truth, reduction="none")).mean().item() for step in STEPS]
    share = (labels * true).sum(-1)
    found = {
        "square": (((own - labels) @ gram) * (own - labels)).sum(-1).mean().item(),
        "slope": slopes.mean().item(),
        "error": (slopes.std() / len(slopes) ** 0.5).item(),
        "gain": [gain * top for gain in gains],  # to be set beside slope · step
        "accuracy": (labels.argmax(-1) == truth).double().mean().item(),
        "after": ((start + move).argmax(-1) == truth).double().mean().item(),
    }
    if share.min() > 0:
        found["flow"] = (before + share.log()).mean().item()
        scores = start
        if labels.min() > 0:
            for _ in range(LAYERS):
                scores = scores + (labels - scores.softmax(-1)) @ gram / top
            found["flow, solved"] = (before - cross_entropy(scores, truth, reduction="none")).mean().item()
    return found


def measured(classifier: Model, views: dict[str, tuple], seen: dict[str, Tensor], truth: Tensor) -> dict:
    """All oracles' worth to one classifier, given with its temperature in it; `views` holds perceptrons and temperatures."""
    theta, bias = (value.double() for value in classifier)
    start = seen["1"].double() @ theta.T + bias
    own = start.softmax(-1)
    labels = {"label": one_hot(truth, 10).double(), "own": own}
    labels |= {f"own, {sharpness:g}": (start / sharpness).softmax(-1) for sharpness in SHARPNESS}
    labels["own, hard"] = one_hot(start.argmax(-1), 10).double()
    for view, (model, warmth) in views.items():
        labels[f"views, {view}"] = (logits(model, seen[view]).double() / warmth).softmax(-1)
    mean = own @ theta
    return {
        "classifier": {
            "cross-entropy": cross_entropy(start, truth).item(),
            "accuracy": (start.argmax(-1) == truth).double().mean().item(),
            "L": torch.linalg.matrix_norm(theta, 2).item() ** 2 / 2,
            "trace": (own @ theta.square().sum(-1) - mean.square().sum(-1)).mean().item(),
            "apart": torch.linalg.svdvals(theta[1:] - theta[0])[-1].item(),
        },
        "oracles": {name: worth(of_one, start, theta, truth) for name, of_one in labels.items()},
    }


def of_one_seed(seed: int, size: int = 60_000, epochs: int = EPOCHS) -> dict:
    """The trainings and measurements of a seed, on the first images of each file if fewer are asked for."""
    torch.set_num_threads(1)
    x, y = pixels("train")
    training, held = (members[members < size] for members in parts(seed))
    tested, truth = (values[: max(size // 6, 1)] for values in pixels("test"))
    aside, seen = draws(x[held], NOISE, 2 * seed), draws(tested, NOISE, 2 * seed + 1)
    models, fitted = {}, {}
    for name, hidden, noise, view in (
        ("linear", 0, NOISE, "1"),
        ("views, 1", HIDDEN, NOISE, "1"),
        *((f"views, {views}", HIDDEN, NOISE / views**0.5, str(views)) for views in VIEWS),
        ("clean", HIDDEN, 0.0, "clean"),
    ):
        model, epoch, warmth = train(seed, hidden, noise, x[training], y[training], (aside[view], y[held]), epochs)
        fitted[name] = model, warmth
        scores = logits(model, seen[view]).double()
        models[name] = {
            "epochs": epoch,
            "temperature": warmth,
            "cross-entropy": [cross_entropy(scores / t, truth).item() for t in (1, warmth)],
            "calibration error": [calibration_error(scores / t, truth) for t in (1, warmth)],
            "accuracy": (scores.argmax(-1) == truth).double().mean().item(),
        }
    ladder = {view: fitted[f"views, {view}"] for view in ("1", *map(str, VIEWS))} | {"clean": fitted["clean"]}
    model, warmth = fitted["linear"]
    found = {"models": models} | measured([value / warmth for value in model], ladder, seen, truth)

    # the classifiers of Part I see noise of a third; their oracle is the perceptron that was trained for it
    stored = np.load(RESULTS / "fashion_mnist_weights.npz", allow_pickle=False)
    classifier = [torch.from_numpy(stored[name][seed]) for name in ("weights", "bias")]
    aside, seen = draws(x[held], 1 / 3, 100 + 2 * seed), draws(tested, 1 / 3, 101 + 2 * seed)
    cool = temperature(logits(classifier, aside["1"]), y[held])
    of_third = fitted[f"views, {VIEWS[-1]}"][0]
    ladder = {"1": (of_third, temperature(logits(of_third, aside["1"]), y[held])), "clean": fitted["clean"]}
    scores = logits(classifier, seen["1"]).double()
    errors = [calibration_error(scores / t, truth) for t in (1, cool)]
    first = {"temperature": cool, "calibration error": errors}
    return found | {
        "part one": first | measured([value / cool for value in classifier], ladder, seen, truth),
    }


@RECORD.section
def settings() -> dict:
    """What the numbers rest on."""
    return {
        "seeds": SEEDS,
        "noise": NOISE,
        "views": VIEWS,
        "hidden": HIDDEN,
        "epochs": EPOCHS,
        "steps": STEPS,
        "layers": LAYERS,
    }


@RECORD.section
def seeds() -> list[dict]:
    """One entry a seed."""
    return list(Parallel()(delayed(of_one_seed)(seed) for seed in range(SEEDS)))


if __name__ == "__main__":
    RECORD.main()
