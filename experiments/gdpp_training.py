"""Section 6.1 of Ahn, Cheng, Daneshmand, Sra (2023) again: three layers (13) trained with L-BFGS on one batch of prompts.

    python experiments/gdpp_training.py [SECTION ...] [--jobs N]

Writes results/gdpp_training.json; finished runs are kept in .cache/gdpp_training and not repeated.

Setting: d = 5; n = 10 as in the paper and n = 20 as in the authors' released code; Σ = UᵀD²U with D = diag(1, 1, ½, ¼, 1)
and a random orthogonal U for each seed. Trained are A_0, A_1, A_2, B_0, B_1, any d × d matrices (nothing is symmetrised),
from independent N(0, SCALE²) entries. The objective is the mean over BATCH fixed prompts of the expected squared error on
each, w⋆ and the query integrated out (`attnopt.in_context.prompt_losses`).

L-BFGS remembers HISTORY steps. The objective is computed in single precision until the line search finds no step, then in
double; all that is reported is double. The line search bisects for the weak Wolfe conditions and takes an overflow for a
failed decrease, so that no step into infinity is accepted. A run stops after ITERATIONS iterations, when the batch's loss
fell by less than a relative TOLERANCE over the last WINDOW of them, or when the line search finds no step.

Sections: "settings", "optimum" and "runs". For each n, "optimum" holds the exact optimum on Theorem
5's set S (A_i = a_i Σ⁻¹, B_i = b_i I): "steps" a_i, "b" (b_0, b_1), "curvatures" a_i b_i, "loss" E tr R(G)², and, over
OPTIMUM_PROMPTS sampled prompts, "test_mean", "test_se", "test_median" and "test_share_top_…" as for a run.
A run has

    n_context, seed             the setting
    iterations                  the recorded ones, at most KEPT and the last among them; the following lists go with them
    loss                        the batch's mean loss
    dist_A_whitened             Dist(Σ^½ A_i Σ^½, I), a list for each of the three layers
    dist_A, dist_B              Dist(A_i, I) for the three layers, Dist(B_i, I) for the first two
    A_whitened, B_whitened      Σ^½ A_i Σ^½ and Σ^(-½) B_i Σ^½ at the end
    A, B, covariance            A_i, B_i at the end, Σ
    train_loss                  the batch's mean loss at the end
    test_mean, test_se          mean loss over TEST fresh prompts and its standard error
    test_median                 their median
    test_share_top_0.001        share of the sum that the worst 0.1 % of these prompts carry; likewise 0.0001
    exact_on_S                  exact loss of the nearest point of S, a_i = tr Σ^½A_iΣ^½/d and b_i = tr B_i/d
    optimum_on_test             mean loss of the exact optimum over the run's test prompts
    optimum_on_batch            loss of the exact optimum on the run's training batch
    best_on_S_on_batch          least loss on that batch among the points of S, from the exact optimum downhill
    stalled                     whether test_median is more than twice that of the exact optimum: the run ended elsewhere
    stop                        why it ended: "iterations", "converged" or "line search"
    evaluations, seconds        calls of the objective, time
"""

import json
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from covariances import DIAGONAL, DIM, dist, random_covariance, square_roots
from joblib import Parallel, delayed
from lab import CACHE, Record, rounded, store
from torch import Tensor
from tqdm import tqdm

from attnopt.in_context import gdpp_loss, gdpp_optimum, prompt_losses, sample_grams

RECORD = Record("gdpp_training")
LAYERS = 3
CONTEXTS, SEEDS = (10, 20), range(10)
BATCH, TEST, OPTIMUM_PROMPTS = 20_000, 200_000, 2_000_000
SCALE, HISTORY, ITERATIONS, TOLERANCE, WINDOW, KEPT = 0.1, 600, 2000, 1e-3, 50, 120
CHUNK = 10_000


class Product(torch.autograd.Function):
    """Products of many small matrices, shape (d, d, prompts): several times faster than torch.bmm where d is 5."""

    @staticmethod
    def forward(ctx, left: Tensor, right: Tensor) -> Tensor:
        """Left times right, prompt by prompt."""
        ctx.save_for_backward(left, right)
        return product(left, right)

    @staticmethod
    def backward(ctx, slope: Tensor) -> tuple[Tensor, Tensor]:
        """The slopes in both factors."""
        left, right = ctx.saved_tensors
        needs = ctx.needs_input_grad
        return (
            product(slope, right.transpose(0, 1)) if needs[0] else None,
            product(left.transpose(0, 1), slope) if needs[1] else None,
        )


class Left(torch.autograd.Function):
    """One matrix times many, shape (d, d, prompts)."""

    @staticmethod
    def forward(ctx, matrix: Tensor, many: Tensor) -> Tensor:
        """The matrix times each."""
        ctx.save_for_backward(matrix, many)
        return product(matrix[:, :, None], many)

    @staticmethod
    def backward(ctx, slope: Tensor) -> tuple[Tensor, Tensor]:
        """The slopes in both factors."""
        matrix, many = ctx.saved_tensors
        in_matrix = slope.reshape(len(slope), -1) @ many.reshape(len(many), -1).mT
        return in_matrix, product(matrix.mT[:, :, None], slope) if ctx.needs_input_grad[1] else None


def product(left: Tensor, right: Tensor) -> Tensor:
    """Matrix products along the first two dimensions."""
    result = left[:, 0, None] * right[0]
    for j in range(1, left.shape[1]):
        result.addcmul_(left[:, j, None], right[j])
    return result


def batch_loss(grams: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """The mean of `prompt_losses` for three layers, with fewer products; Gram matrices with the prompts last.

    With G the Gram matrices, shape (d, d, prompts), X_i the whitened covariates before layer i, K_i and T_i as there,

        X_0 X_1ᵀ/n = G K_1ᵀ = G + (G A_0ᵀ G) B_0ᵀ = N,    P = G A_0 N,
        T_1 X_0 X_1ᵀ/n = N + P,    X_1 X_1ᵀ/n = N + B_0 P.
    """
    if len(A) != LAYERS:
        raise ValueError(f"A must have {LAYERS} layers, got {len(A)}")

    left = Left.apply

    def right(many: Tensor, matrix: Tensor) -> Tensor:
        return matrix.mT @ many

    identity = torch.eye(len(grams), dtype=grams.dtype)[:, :, None]
    step = right(grams, A[0])
    mixed = grams + right(Product.apply(right(grams, A[0].mT), grams), B[0].mT)
    moved = Product.apply(grams, left(A[0], mixed))
    carrier = identity + left(B[0], step)
    seen = left(A[1], carrier)
    error = identity + step + Product.apply(mixed + moved, seen)
    carrier = carrier + left(B[1], Product.apply(mixed + left(B[0], moved), seen))
    seen = Product.apply(Product.apply(error, grams), carrier.transpose(0, 1))
    error = error + Product.apply(seen, left(A[2], carrier))
    return error.square().sum() / grams.shape[-1]


def value_and_slope(
    function: Callable[[Tensor, Tensor], Tensor], grams: Tensor, point: np.ndarray
) -> tuple[float, np.ndarray]:
    """The mean of function(grams, point) over chunks of prompts that fit a cache, and its gradient at a point."""
    value, slope = 0.0, np.zeros_like(point)
    for chunk in grams.split(CHUNK, -1):
        variable = torch.from_numpy(point).requires_grad_()
        part = function(chunk, variable)
        share = chunk.shape[-1] / grams.shape[-1]
        value += share * part.item()
        slope += share * torch.autograd.grad(part, variable)[0].numpy()
    return value, slope


def lbfgs(
    objectives: Sequence[Callable[[np.ndarray], tuple[float, np.ndarray]]],
    start: np.ndarray,
    iterations: int,
    history: int = HISTORY,
    tolerance: float = TOLERANCE,
    window: int = WINDOW,
) -> tuple[list[np.ndarray], list[float], str]:
    """L-BFGS with a bisection for the weak Wolfe conditions, to which an overflow is a step too long.

    Args:
        objectives: value and gradient at a point; the same function with more and more precision, the next one used once the
            line search finds no step by the one before.
        start: where to start.
        iterations: at most so many.
        history: how many steps to remember.
        tolerance: stop when the value fell by less than this, relatively, over the last ``window`` iterations.
        window: see there.

    Returns:
        The points from the start on, their values, which do not increase, and why it ended.
    """
    objective, *finer = objectives
    point, (value, slope) = start, objective(start)
    points, values, memory, stop = [point], [value], deque(maxlen=history), "iterations"
    for _ in range(iterations):
        if not slope.any():
            stop = "converged"
            break
        direction, coefficients = -slope, []
        for moved, change, inverse in reversed(memory):
            coefficients.append(inverse * (moved @ direction))
            direction = direction - coefficients[-1] * change
        if memory:
            moved, change, _ = memory[-1]
            direction = direction * (moved @ change) / (change @ change)
        for (moved, change, inverse), coefficient in zip(memory, reversed(coefficients), strict=True):
            direction = direction + (coefficient - inverse * (change @ direction)) * moved
        along = slope @ direction
        if along >= 0:  # rounding
            direction, along = -slope, -slope @ slope
            memory.clear()
        low, high = 0.0, np.inf
        length = 1.0 if memory else min(1.0, 0.1 / np.linalg.norm(slope))
        for _ in range(60):
            new, new_slope = objective(point + length * direction)
            if not (np.isfinite(new) and np.isfinite(new_slope).all() and new <= value + 1e-4 * length * along):
                high = length
            elif new_slope @ direction < 0.9 * along:
                low = length
            else:
                break
            length = (low + high) / 2 if np.isfinite(high) else 2 * length
        else:
            if not finer:
                stop = "line search"
                break
            objective, *finer = finer
            value, slope = objective(point)
            continue
        moved, change = length * direction, new_slope - slope
        memory.append((moved, change, 1 / (moved @ change)))
        point, value, slope = point + moved, new, new_slope
        points.append(point)
        values.append(value)
        if len(values) > window and values[-1 - window] - value < tolerance * value:
            stop = "converged"
            break
    return points, values, stop


def summary(losses: Tensor, prefix: str = "test_") -> dict[str, float]:
    """Mean, standard error, median and the shares of the worst prompts."""
    ordered, total = losses.sort(descending=True).values, losses.sum()
    found = {"mean": losses.mean(), "se": losses.std() / len(losses) ** 0.5, "median": losses.median()}
    found |= {f"share_top_{part:g}": ordered[: round(part * len(losses))].sum() / total for part in (0.001, 0.0001)}
    return {prefix + key: rounded(value, 6) for key, value in found.items()}


def sampled(n_context: int, A: Tensor, B: Tensor, prompts: int, seed: int) -> Tensor:
    """Losses on fresh prompts."""
    generator = torch.Generator().manual_seed(seed)
    parts = [min(20_000, prompts - first) for first in range(0, prompts, 20_000)]
    return torch.cat([prompt_losses(sample_grams(part, DIM, n_context, generator), A, B) for part in parts])


def scalar_matrices(numbers: Tensor) -> Tensor:
    """Multiples of I."""
    return numbers[..., None, None] * torch.eye(DIM, dtype=numbers.dtype)


def optimum(n_context: int) -> dict:
    """The exact optimum on S and what a sample says there."""
    steps, curvatures, loss = gdpp_optimum(DIM, n_context, LAYERS)
    b = curvatures / steps[:-1]
    losses = sampled(n_context, scalar_matrices(steps), scalar_matrices(torch.cat([b, b.new_zeros(1)])), OPTIMUM_PROMPTS, 7)
    exact = {"steps": steps, "b": b, "curvatures": curvatures, "loss": float(loss)}
    return {key: rounded(value, 10) for key, value in exact.items()} | summary(losses)


def beside_optimum(run: dict) -> dict[str, float]:
    """The exact loss of a run's nearest point of S, and the exact optimum on the run's test prompts."""
    n, seed = run["n_context"], run["seed"]
    a, b = (torch.tensor(run[key]).double().diagonal(dim1=-2, dim2=-1).mean(-1) for key in ("A_whitened", "B_whitened"))
    steps, curvatures, _ = gdpp_optimum(DIM, n, LAYERS)
    matrices = scalar_matrices(steps), scalar_matrices(torch.cat([curvatures / steps[:-1], curvatures.new_zeros(1)]))
    return {
        "exact_on_S": rounded(gdpp_loss(a, a[:-1] * b, DIM, n).item(), 6),
        "optimum_on_test": rounded(sampled(n, *matrices, TEST, test_seed(n, seed)).mean().item(), 6),
    }


def test_seed(n_context: int, seed: int) -> int:
    """What a run's test prompts are drawn from."""
    return 10**6 + 1000 * n_context + seed


def train(n_context: int, seed: int, iterations: int = ITERATIONS, batch: int = BATCH, test: int = TEST) -> dict:
    """One run of the experiment.

    Args:
        n_context: n.
        seed: of Σ, the prompts and the initial matrices.
        iterations: at most so many.
        batch: number of training prompts.
        test: number of test prompts.

    Returns:
        What the top of this file lists.
    """
    began = time.perf_counter()
    generator = torch.Generator().manual_seed(1000 * n_context + seed)
    covariance = random_covariance(generator)
    root, inverse_root = square_roots(covariance)
    grams = sample_grams(batch, DIM, n_context, generator).permute(1, 2, 0).contiguous()
    start = SCALE * torch.randn(2 * LAYERS - 1, DIM, DIM, dtype=torch.float64, generator=generator)
    evaluations = 0

    def whitened(point: Tensor) -> tuple[Tensor, Tensor]:
        matrices = point.reshape(start.shape)
        A, B = matrices[:LAYERS], matrices[LAYERS:]
        return root @ A @ root, torch.cat([inverse_root @ B @ root, torch.zeros_like(A[:1])])

    def loss(grams: Tensor, point: Tensor) -> Tensor:
        return batch_loss(grams, *(matrices.to(grams.dtype) for matrices in whitened(point)))

    def objective(batch: Tensor, point: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal evaluations
        evaluations += 1
        return value_and_slope(loss, batch, point)

    points, values, stop = lbfgs(
        [partial(objective, grams.float()), partial(objective, grams)], start.numpy().ravel(), iterations
    )
    last = len(points) - 1
    kept = sorted({0, last, *np.rint(np.geomspace(1, max(last, 1), KEPT - 2)).astype(int).tolist()})
    kept = [i for i in kept if i <= last]
    path = torch.from_numpy(np.stack([points[i] for i in kept])).reshape(-1, *start.shape)
    A, B = whitened(path[-1].ravel())
    found = {
        "n_context": n_context,
        "seed": seed,
        "iterations": kept,
        "loss": [values[i] for i in kept],
        "dist_A_whitened": dist(root @ path[:, :LAYERS] @ root).mT,
        "dist_A": dist(path[:, :LAYERS]).mT,
        "dist_B": dist(path[:, LAYERS:]).mT,
    }
    found = {key: rounded(value, 4) for key, value in found.items()}
    final = {"A_whitened": A, "B_whitened": B[:-1], "A": path[-1, :LAYERS], "B": path[-1, LAYERS:], "covariance": covariance}
    found |= {key: rounded(value, 6) for key, value in final.items()}

    steps, curvatures, _ = gdpp_optimum(DIM, n_context, LAYERS)

    def loss_on_S(grams: Tensor, point: Tensor) -> Tensor:
        return batch_loss(grams, scalar_matrices(point[:LAYERS]), scalar_matrices(point[LAYERS:]))

    def on_S(point: np.ndarray) -> tuple[float, np.ndarray]:
        return value_and_slope(loss_on_S, grams, point)

    exact = torch.cat([steps, curvatures / steps[:-1]]).numpy()
    found["train_loss"] = rounded(value_and_slope(loss, grams, points[-1])[0], 6)
    found |= summary(sampled(n_context, A, B, test, test_seed(n_context, seed)))
    found["optimum_on_batch"] = rounded(on_S(exact)[0], 6)
    found["best_on_S_on_batch"] = rounded(lbfgs([on_S], exact, 200)[1][-1], 6)
    return found | {"stop": stop, "evaluations": evaluations, "seconds": round(time.perf_counter() - began, 1)}


def kept(n_context: int, seed: int) -> Path:
    """Where a run is kept."""
    return CACHE / "gdpp_training" / f"n{n_context} seed{seed}.json"


def finish(n_context: int, seed: int) -> None:
    """One run on one thread, kept; the file appears only when it is complete."""
    torch.set_num_threads(1)
    store(kept(n_context, seed), train(n_context, seed))


@RECORD.section
def settings() -> dict:
    """The constants above."""
    return {
        "dim": DIM,
        "layers": LAYERS,
        "diagonal": DIAGONAL,
        "batch": BATCH,
        "test_prompts": TEST,
        "optimum_prompts": OPTIMUM_PROMPTS,
        "initial_scale": SCALE,
        "history": HISTORY,
        "iterations": ITERATIONS,
        "tolerance": TOLERANCE,
        "window": WINDOW,
        "seeds": list(SEEDS),
        "n_contexts": list(CONTEXTS),
    }


@RECORD.section
def optimum_() -> dict:
    """The exact optima on S."""
    return {str(n): optimum(n) for n in CONTEXTS}


@RECORD.section
def runs() -> list[dict]:
    """Train what is missing, and measure all beside the optima."""
    paths = {(n, seed): kept(n, seed) for n in CONTEXTS for seed in SEEDS}
    missing = sorted((key for key, path in paths.items() if not path.exists()), key=lambda key: key[1])
    results = Parallel(return_as="generator_unordered")(delayed(finish)(*key) for key in missing)
    for _ in tqdm(results, "runs", len(missing), ncols=79):
        pass
    found = [json.loads(path.read_text(encoding="utf-8")) for path in paths.values()]
    optima = RECORD.stored().get("optimum") or optimum_()
    for run in tqdm(found, "measured", ncols=79):
        run |= beside_optimum(run)
        run["stalled"] = run["test_median"] > 2 * optima[str(run["n_context"])]["test_median"]
    return found


if __name__ == "__main__":
    RECORD.main()
