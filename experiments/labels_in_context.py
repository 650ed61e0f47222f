"""Depth where one layer is Bayes' rule, depth where it is not, and images of classes that no training has seen.

    python experiments/labels_in_context.py

Writes results/labels_in_context.json.

"tasks": two classes, x = y(μ + noise), DIM coordinates, EXAMPLES labeled points. "fixed": noise N(0, I), μ ~ N(0, ½I), so
that one layer is the Bayes predictor. "random": noise N(0, Λ) with Λ new in every prompt, uniformly random eigenvectors,
eigenvalues log-uniform from 1/10 to 10, and μ ~ N(0, I). Layers step by W ← W - h_i∇CE(W); their h_i, of any sign, minimize
the cross-entropy at the query over FITTED prompts, its label averaged over what Bayes' rule that knows Λ says of it, by
L-BFGS from a start drawn for each of SEEDS. For each task and number of layers: "excess", the cross-entropy on 10⁵ fresh
prompts beyond that of this rule, to a millionth; "accuracy"; "steps". "bayes" is the accuracy of the rule.

"fashion": five-way prompts of Fashion-MNIST, SHOTS images a class, names permuted anew in each. A seed draws five of the
ten classes for all fitting: the mean image, 50 principal components, steps, preconditioner, what other methods choose. The
other five classes, and the test file's images, are for testing alone. Models:

    k layers           steps h_i alone, A = I
    k layers, A        steps and one A = BBᵀ for all layers
    nearest mean       after division by the training classes' standard deviations to the power p
    ridge              likewise, penalty λ; p and λ are chosen on prompts of the training classes
    1-neighbour        likewise, p chosen
    chance             four layers with A on prompts whose context labels are shuffled, anew in each

For each the accuracies by seed: "new", on images and classes never seen, and "old", new images of the training classes.
"""

import itertools

import numpy as np
import torch
from lab import Record
from scipy.optimize import minimize
from torch import Tensor

from attnopt.datasets import fashion_mnist

RECORD = Record("labels_in_context", digits=5)
SEEDS = 5
DIM, EXAMPLES, DEPTHS, FITTED, PART = 5, 40, (1, 2, 3, 4, 6), 5000, 10_000
WAYS, SHOTS, QUERIES, COMPONENTS, LAYERS = 5, 10, 5, 50, (1, 2, 4, 8)
PROMPTS, TESTED, ROUNDS = 64, 2000, 400
POWERS, PENALTIES = (0, 0.25, 0.5, 0.75, 1), tuple(10 ** (j / 2) for j in range(-8, 5))


def descend(points: Tensor, labels: Tensor, steps: Tensor, preconditioner: Tensor | None = None) -> Tensor:
    """Weights W after steps of gradient descent from 0 on the cross-entropy of σ(XW), what the layers compute.

    Args:
        points: X, shape (..., n, d).
        labels: C, shape (..., n, K).
        steps: shape (layers,).
        preconditioner: A, shape (d, d); the identity unless given.
    """
    weights = points.new_zeros(*points.shape[:-2], points.shape[-1], labels.shape[-1])
    for step in steps:
        move = points.mT @ (torch.softmax(points @ weights, -1) - labels) / points.shape[-2]
        weights = weights - step * (move if preconditioner is None else preconditioner @ move)
    return weights


# Two classes


def draw(task: str, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Points times their labels, so that all signs are plus; the queries, likewise; and Bayes' log-odds for these."""
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    if task == "fixed":
        noise, prior = torch.eye(DIM, dtype=torch.float64).expand(count, DIM, DIM), 0.5
    else:
        frames = torch.linalg.qr(normal(count, DIM, DIM))[0]
        values = 10 ** (2 * torch.rand(count, DIM, generator=generator, dtype=torch.float64) - 1)
        noise, prior = frames * values[:, None] @ frames.mT, 1.0
    mean = prior**0.5 * normal(count, 1, DIM)
    points = mean + normal(count, EXAMPLES + 1, DIM) @ torch.linalg.cholesky(noise).mT
    points, queries = points[:, :-1], points[:, -1]
    rule = 2 * torch.linalg.inv((EXAMPLES + 1) * noise + noise @ noise / prior)
    return points, queries, (queries * (rule @ points.sum(1)[..., None])[..., 0]).sum(-1)


def two_classes(points: Tensor, queries: Tensor, steps: Tensor) -> Tensor:
    """The layers' log-odds: class vectors ½ and -½, labels all plus, as points come multiplied by them."""
    weights = points.new_zeros(len(points), DIM)
    for step in steps:
        weights = weights + step / EXAMPLES * (points.mT @ torch.sigmoid(-points @ weights[..., None]))[..., 0]
    return (queries * weights).sum(-1)


def entropy(odds: Tensor, best: Tensor) -> Tensor:
    """Mean cross-entropy of log-odds, the label averaged over what Bayes' rule knows of it."""
    softplus = torch.nn.functional.softplus
    return (torch.sigmoid(best) * softplus(-odds) + torch.sigmoid(-best) * softplus(odds)).mean()


def trained_steps(task: str, layers: int, generator: torch.Generator, count: int = FITTED) -> Tensor:
    """Steps that minimize the cross-entropy at the query, from a random start."""
    start = torch.rand(layers, generator=generator, dtype=torch.float64) * 2 / layers
    points, queries, best = draw(task, count, generator)

    def value_and_slope(values: np.ndarray) -> tuple[float, np.ndarray]:
        steps = torch.from_numpy(values).requires_grad_()
        loss = entropy(two_classes(points, queries, steps), best)
        loss.backward()
        return loss.item(), steps.grad.numpy()

    options = {"maxiter": 300, "ftol": 1e-13, "gtol": 1e-8}
    return torch.from_numpy(minimize(value_and_slope, start.numpy(), jac=True, method="L-BFGS-B", options=options).x)


@RECORD.section
def tasks() -> dict:
    """Depth in both tasks."""
    found = {}
    for task in ("fixed", "random"):
        fresh = torch.Generator().manual_seed(100)
        prompts = [draw(task, PART, fresh) for _ in range(10)]
        best = torch.cat([odds for _, _, odds in prompts])
        rows = []
        for layers in DEPTHS:
            row = {"layers": layers, "excess": [], "accuracy": [], "steps": []}
            for seed in range(SEEDS):
                steps = trained_steps(task, layers, torch.Generator().manual_seed(seed))
                odds = torch.cat([two_classes(points, queries, steps) for points, queries, _ in prompts])
                row["excess"].append(abs(round((entropy(odds, best) - entropy(best, best)).item(), 6)))
                row["accuracy"].append((odds > 0).double().mean().item())
                row["steps"].append(steps.tolist())
            rows.append(row)
            print(task, layers, row["excess"], row["accuracy"], flush=True)
        right, least = (best > 0).double().mean().item(), entropy(best, best).item()
        found[task] = {"bayes": right, "entropy": least, "depths": rows}
    return found


# Images


def features(split: str, seen: list[int], fit: dict | None = None) -> tuple[list[Tensor], dict]:
    """Images of each class in principal components of the classes seen; what was fitted, unless it is given."""
    images, labels = fashion_mnist(split)
    flat = images.flatten(1).float() / 255
    if fit is None:
        chosen = flat[torch.isin(labels, torch.tensor(seen))]
        mean = chosen.mean(0)
        values, vectors = torch.linalg.eigh(torch.cov(chosen.T))
        frame, spread = vectors[:, -COMPONENTS:].flip(-1), values[-COMPONENTS:].flip(-1).sqrt()
        fit = {"mean": mean, "frame": frame / spread.square().sum().sqrt(), "spread": spread / spread[0]}
    projected = (flat - fit["mean"]) @ fit["frame"]
    return [projected[labels == k] for k in range(10)], fit


def prompts(images: list[Tensor], classes: list[int], count: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Contexts with labels, and queries with theirs: shapes (count, n, d), (count, n, K), (count, q, d), (count, q)."""
    each = SHOTS + QUERIES
    order = torch.stack([torch.randperm(WAYS, generator=generator) for _ in range(count)])
    drawn = []
    for k in classes:
        where = torch.stack([torch.randperm(len(images[k]), generator=generator)[:each] for _ in range(count)])
        drawn.append(images[k][where])
    drawn = torch.stack(drawn, 1)[torch.arange(count)[:, None], order]
    context, asked = drawn[:, :, :SHOTS].flatten(1, 2), drawn[:, :, SHOTS:].flatten(1, 2)
    labels = torch.eye(WAYS).repeat_interleave(SHOTS, 0).expand(count, -1, -1)
    return context, labels, asked, torch.arange(WAYS).repeat_interleave(QUERIES).expand(count, -1)


def correct(scores: Tensor, truth: Tensor) -> float:
    """The share of queries whose own class scores most."""
    return (scores.argmax(-1) == truth).double().mean().item()


def nearest_mean(context: Tensor, labels: Tensor, asked: Tensor) -> Tensor:
    """Minus the squared distances to the classes' means."""
    return -torch.cdist(asked, labels.mT @ context / SHOTS).square()


def neighbour(context: Tensor, labels: Tensor, asked: Tensor) -> Tensor:
    """The label of the nearest example."""
    return labels[0][torch.cdist(asked, context).argmin(-1)]


def ridge(context: Tensor, labels: Tensor, asked: Tensor, penalty: float) -> Tensor:
    """Regression of the labels, less their mean, on the points less theirs."""
    middle = context.mean(-2, keepdim=True)
    points, targets = context - middle, labels - 1 / WAYS
    gram = points @ points.mT + SHOTS * WAYS * penalty * torch.eye(SHOTS * WAYS)
    return (asked - middle) @ points.mT @ torch.linalg.solve(gram, targets)


def fit_layers(images: list[Tensor], classes: list[int], layers: int, learns: bool, generator: torch.Generator) -> tuple:
    """Steps, and a preconditioner if it is learned, that minimize the cross-entropy at the queries."""
    logs = torch.full((layers,), 20.0).log().requires_grad_()
    factor = torch.eye(COMPONENTS).requires_grad_(learns)
    adam = torch.optim.Adam([{"params": [logs], "lr": 0.05}] + [{"params": [factor], "lr": 0.01}] * learns)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(adam, ROUNDS)
    for _ in range(ROUNDS):
        context, labels, asked, truth = prompts(images, classes, PROMPTS, generator)
        adam.zero_grad()
        scores = asked @ descend(context, labels, logs.exp(), factor @ factor.mT)
        torch.nn.functional.cross_entropy(scores.flatten(0, 1), truth.flatten()).backward()
        adam.step()
        rate.step()
    return logs.detach().exp(), (factor @ factor.mT).detach()


@RECORD.section
def fashion() -> dict:
    """Classes never seen."""
    found, splits, chosen = {}, [], []
    for seed in range(SEEDS):
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(10, generator=generator).tolist()
        old, new = sorted(order[:WAYS]), sorted(order[WAYS:])
        splits.append({"old": old, "new": new})
        train, fit = features("train", old)
        held, _ = features("test", old, fit)
        choosing = prompts(train, old, TESTED // 4, generator)
        tests = {"old": prompts(held, old, TESTED, generator), "new": prompts(held, new, TESTED, generator)}

        def scaled(some, power, fit=fit):
            context, labels, asked, truth = some
            return context / fit["spread"] ** power, labels, asked / fit["spread"] ** power, truth

        def told(name, scores, tests=tests, seed=seed):
            for which, some in tests.items():
                found.setdefault(name, {"old": [], "new": []})[which].append(correct(scores(some), some[3]))
            print(seed, name, found[name]["old"][-1], found[name]["new"][-1], flush=True)

        picks = {}
        for name, rule in (("nearest mean", nearest_mean), ("1-neighbour", neighbour)):
            picks[name] = max(POWERS, key=lambda p, rule=rule: correct(rule(*scaled(choosing, p)[:3]), choosing[3]))
            told(name, lambda some, rule=rule, p=picks[name]: rule(*scaled(some, p)[:3]))
        grid = list(itertools.product(POWERS, PENALTIES))
        picks["ridge"] = max(grid, key=lambda pair: correct(ridge(*scaled(choosing, pair[0])[:3], pair[1]), choosing[3]))
        told("ridge", lambda some, pair=picks["ridge"]: ridge(*scaled(some, pair[0])[:3], pair[1]))
        chosen.append(picks)
        for learns, layers in itertools.product((False, True), LAYERS):
            steps, matrix = fit_layers(train, old, layers, learns, generator)

            def answer(some, order=None, steps=steps, matrix=matrix):
                labels = some[1] if order is None else some[1].gather(1, order[..., None].expand_as(some[1]))
                return some[2] @ descend(some[0], labels, steps, matrix)

            told(f"{layers} layers{', A' * learns}", answer)
            if learns and layers == 4:
                mixed = torch.rand(TESTED, WAYS * SHOTS, generator=generator).argsort(-1)
                told("chance", lambda some, order=mixed, answer=answer: answer(some, order))
    return {"splits": splits, "chosen": chosen, "models": found}


if __name__ == "__main__":
    RECORD.main()
