"""One softmax head trained on clustered contexts, and the two terms that it reads there.

    python experiments/one_head.py

Writes results/one_head.json.

A prompt has n tokens from a mixture of CLUSTERS equally likely normal clusters in DIM dimensions with one covariance Σ, and
a query z; the head answers Va + Bz, where a is attention over the tokens with scores ⟨x_j, Az⟩. A, V, B are free matrices,
trained by Adam on the squared error over fresh prompts. Tasks:

    clusters    means uniform on the sphere of radius RADIUS, Σ = I; the query is one more token, the target its cluster's
                mean
    one normal  all means 0, Σ new in every prompt, uniformly random axes, eigenvalues log-uniform from 10⁻¹ to 10^0.5; the
                query is one more token plus N(0, I), the target this token without the noise
    both        means as in the first, Σ, query and target as in the second

"tasks": for each task, trained with CONTEXT tokens and by seed, the mean squared error on fresh prompts of this length of
the "head", of Bayes' rule that knows means and Σ ("bayes"), of the "query" itself, and of the head's "limit" for a long
context, V(σθ + ΣAz) + Bz; A, V, B and VA as multiples of the identity (mean of the diagonal), and by how much they are none
("shape", the largest relative distance).
"lengths": for contexts of LENGTHS tokens the root mean squares, relative to the head's output Va, of the part between
clusters Vσθ, of the part within VΣAz, and of their sum's distance from Va ("off"); and "unit", the mean over prompts of the
squared distance in units of what `mixture_error` predicts for the prompt, whose limit is 1.

"linear": the error, on the same prompts, of trained linear attention Σ ⟨x_j, Az⟩ x_j / n in the place of softmax.

"context": for the first task, by the number of tokens in training and test and by seed, errors and multiples again, and the
error of the head with A = V = I, B = -I ("exact"), which is Bayes' rule in the limit.
"""

from collections.abc import Iterator

import torch
from lab import Record
from torch import Tensor

from attnopt.synthesis import mixture_error, mixture_limit

RECORD = Record("one_head", digits=5)
SEEDS, DIM, CLUSTERS, RADIUS = 5, 4, 3, 3.0
CONTEXT, CONTEXTS, LENGTHS = 256, (16, 64, 256, 1024), (16, 64, 256, 1024, 4096, 16384)
STEPS, PROMPTS, RATE, TESTED = 2000, 256, 0.02, 4000
TASKS = ("clusters", "one normal", "both")


def draw(
    task: str, count: int, n: int, generator: torch.Generator, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, ...]:
    """Contexts, queries, targets, means and covariances."""
    normal = lambda *shape: torch.randn(*shape, generator=generator, dtype=dtype)  # noqa: E731
    means = RADIUS * torch.nn.functional.normalize(normal(count, CLUSTERS, DIM), dim=-1)
    factor = torch.eye(DIM, dtype=dtype).expand(count, DIM, DIM)
    if task != "clusters":
        values = 10 ** (1.5 * torch.rand(count, DIM, generator=generator, dtype=dtype) - 1)
        factor = torch.linalg.qr(normal(count, DIM, DIM))[0] * values[:, None].sqrt()
    if task == "one normal":
        means = torch.zeros_like(means)
    classes = torch.randint(CLUSTERS, (count, n + 1), generator=generator)
    centres = means[torch.arange(count)[:, None], classes]
    tokens = centres + normal(count, n + 1, DIM) @ factor.mT
    context, last = tokens[:, :n], tokens[:, n]
    if task == "clusters":
        return context, last, centres[:, n], means, factor @ factor.mT
    return context, last + normal(count, DIM), last, means, factor @ factor.mT


def attended(kind: str, key: Tensor, context: Tensor, queries: Tensor) -> Tensor:
    """What attention returns, before V and the skip."""
    scores = (context @ (queries @ key.mT)[..., None])[..., 0]
    weights = torch.softmax(scores, -1) if kind == "softmax" else scores / context.shape[-2]
    return (weights[..., None, :] @ context)[..., 0, :]


def trained(task: str, kind: str, n: int, seed: int, steps: int = STEPS) -> tuple[Tensor, ...]:
    """A, V, B."""
    generator = torch.Generator().manual_seed(seed)
    matrices = [(0.1 * torch.randn(DIM, DIM, generator=generator)).requires_grad_() for _ in range(3)]
    adam = torch.optim.Adam(matrices, lr=RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    for _ in range(steps):
        context, queries, targets, _, _ = draw(task, PROMPTS, n, generator)
        key, value, skip = matrices
        answers = attended(kind, key, context, queries) @ value.mT + queries @ skip.mT
        adam.zero_grad()
        (answers - targets).square().sum(-1).mean().backward()
        adam.step()
        schedule.step()
    return tuple(matrix.detach().double() for matrix in matrices)


def bayes(task: str, queries: Tensor, means: Tensor, covariance: Tensor) -> Tensor:
    """The mean of the target given the query, means and covariance."""
    noise = torch.zeros_like(covariance) if task == "clusters" else torch.eye(DIM, dtype=covariance.dtype)
    away = queries[:, None] - means
    solved = torch.linalg.solve(covariance + noise, away.mT).mT
    belief = torch.softmax(-(away * solved).sum(-1) / 2, -1)
    places = means if task == "clusters" else means + solved @ covariance
    return (belief[:, None] @ places)[:, 0]


def error(answers: Tensor, targets: Tensor) -> float:
    """Mean squared."""
    return (answers - targets).square().sum(-1).mean().item()


def multiples(key: Tensor, value: Tensor, skip: Tensor) -> dict:
    """The matrices as multiples of the identity."""
    middle = lambda matrix: matrix.diag().mean()  # noqa: E731
    unit, off = torch.eye(DIM, dtype=key.dtype), []
    for matrix in (key, value, skip):
        off.append(((matrix - middle(matrix) * unit).norm() / matrix.norm()).item())
    found = {"A": middle(key), "V": middle(value), "B": middle(skip), "VA": middle(value @ key)}
    return {name: number.item() for name, number in found.items()} | {"shape": max(off)}


def terms(task: str, matrices: tuple[Tensor, ...], n: int, generator: torch.Generator, count: int = TESTED) -> dict:
    """What the theorem says of the head's output over contexts of n tokens, and how far off it is."""
    key, value, _ = matrices
    shares = torch.full((CLUSTERS,), 1 / CLUSTERS, dtype=torch.float64)
    sums, units, part = torch.zeros(4, dtype=torch.float64), [], min(count, max(1, 2**21 // n))
    for first in range(0, count, part):
        context, queries, _, means, covariance = draw(task, min(part, count - first), n, generator, torch.float64)
        asked = (queries @ key.mT)[:, None]
        limit = mixture_limit(asked, means, shares, covariance)
        read = attended("softmax", key, context, queries) @ value.mT
        between, within = limit.between[:, 0] @ value.mT, limit.within[:, 0] @ value.mT
        off = (read - between - within).square().sum(-1)
        spread = mixture_error(asked, means, shares, covariance).covariance[:, 0]
        units.append(n * off / (value @ spread @ value.mT).diagonal(dim1=-2, dim2=-1).sum(-1))
        sums += torch.stack([part.square().sum() for part in (read, between, within)] + [off.sum()])
    found = (sums[1:] / sums[0]).sqrt().tolist()
    return dict(zip(("between", "within", "off"), found, strict=True)) | {"unit": torch.cat(units).mean().item()}


def tested(task: str, n: int, seed: int) -> Iterator[tuple[Tensor, ...]]:
    """Fresh prompts, the same for all models, in parts."""
    generator = torch.Generator().manual_seed(1000 + seed)
    for _ in range(5):
        yield draw(task, TESTED // 5, n, generator, torch.float64)


def measured(task: str, n: int, seed: int) -> tuple[tuple[Tensor, ...], dict]:
    """A trained head and its errors."""
    matrices = trained(task, "softmax", n, seed)
    key, value, skip = matrices
    sums, shares = {}, torch.full((CLUSTERS,), 1 / CLUSTERS, dtype=torch.float64)
    for context, queries, targets, means, covariance in tested(task, n, seed):
        read = attended("softmax", key, context, queries)
        limit = mixture_limit((queries @ key.mT)[:, None], means, shares, covariance)
        answers = {
            "head": read @ value.mT + queries @ skip.mT,
            "limit": (limit.between + limit.within)[:, 0] @ value.mT + queries @ skip.mT,
            "bayes": bayes(task, queries, means, covariance),
            "query": queries,
            "exact": attended("softmax", torch.eye(DIM).double(), context, queries) - queries,
        }
        for name, answer in answers.items():
            sums[name] = sums.get(name, 0) + error(answer, targets) / 5
    return matrices, sums | multiples(*matrices)


@RECORD.section
def tasks() -> dict:
    """Three tasks."""
    found = {}
    for task in TASKS:
        rows = []
        for seed in range(SEEDS):
            matrices, row = measured(task, CONTEXT, seed)
            generator = torch.Generator().manual_seed(2000 + seed)
            row["lengths"] = [{"n": n} | terms(task, matrices, n, generator) for n in LENGTHS]
            row.pop("exact")
            rows.append(row)
            print(task, seed, row, flush=True)
        found[task] = rows
    return found


@RECORD.section
def linear() -> dict:
    """Linear attention in the head's place, on its prompts."""
    found = {}
    for task in TASKS:
        found[task] = []
        for seed in range(SEEDS):
            key, value, skip = trained(task, "linear", CONTEXT, seed)
            answer = lambda context, queries: attended("linear", key, context, queries) @ value.mT + queries @ skip.mT  # noqa: B023, E731
            errors = [error(answer(some, queries), targets) for some, queries, targets, _, _ in tested(task, CONTEXT, seed)]
            found[task].append(sum(errors) / 5)
            print(task, seed, found[task][-1], flush=True)
    return found


@RECORD.section
def context() -> list:
    """The first task with contexts of several lengths."""
    rows = []
    for n in CONTEXTS:
        rows.append({"n": n, "seeds": [measured("clusters", n, seed)[1] for seed in range(SEEDS)]})
        print(rows[-1], flush=True)
    return rows


if __name__ == "__main__":
    RECORD.main()
