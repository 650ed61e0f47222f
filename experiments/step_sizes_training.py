"""Section 5.3 of Ahn et al.: three plain layers trained by L-BFGS, five runs with covariances and prompts of their own.

    python experiments/step_sizes_training.py

Writes results/step_sizes_training.json. A prompt enters through its whitened Gram matrix alone. Each run is an optimization
of its own, so that no run's line search and curvature depend on another's.
"""

import torch
from covariances import DIAGONAL, DIM, dist, random_orthogonal
from lab import Record, rounded
from torch import Tensor

from attnopt.in_context import optimal_step_sizes, sample_grams

CONTEXT, LAYERS, SEEDS, ITERATIONS = 20, 3, 5, 120
RECORD = Record("step_sizes_training")


def covariance_root(seed: int) -> Tensor:
    """Σ^(1/2) = UᵀDU of one run, U uniform over the orthogonal matrices."""
    basis = random_orthogonal(torch.Generator().manual_seed(seed))
    return basis.mT @ torch.diag(torch.tensor(DIAGONAL, dtype=torch.float64)) @ basis


def prompts(n_prompts: int, first_seed: int = 100) -> Tensor:
    """Whitened Gram matrices of each run, shape (runs, n_prompts, d, d)."""
    generators = [torch.Generator().manual_seed(first_seed + seed) for seed in range(SEEDS)]
    return torch.stack([sample_grams(n_prompts, DIM, CONTEXT, g) for g in generators])


def losses(grams: Tensor, whitened: Tensor) -> Tensor:
    """Mean of `attnopt.in_context.prompt_losses` over each run's prompts; products with A_i as one matrix product a run."""
    error = torch.eye(DIM).expand(grams.shape)
    for layer in whitened.unbind(1):
        error = error + ((error @ grams).flatten(1, 2) @ layer).unflatten(1, grams.shape[1:3])
    return error.square().sum((-2, -1)).mean(1)


def train(grams: Tensor, roots: Tensor, scale: float, iterations: int) -> dict[str, Tensor]:
    """L-BFGS on all A_i, not symmetrised, from N(0, scale²) entries: the records of every iteration and the last A_i."""
    runs = [_train(grams[[seed]], roots[[seed]], scale, iterations, 200 + seed) for seed in range(len(grams))]
    along = {"loss": 1, "dist_whitened": 1, "dist_plain": 1, "A": 0, "gradient": 0}
    return {name: torch.cat([run[name] for run in runs], dim) for name, dim in along.items()}


def _train(grams: Tensor, roots: Tensor, scale: float, iterations: int, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    A = (scale * torch.randn(1, LAYERS, DIM, DIM, generator=generator)).requires_grad_()
    whiten = roots[:, None]
    optimizer = torch.optim.LBFGS(
        [A], max_iter=1, max_eval=20, tolerance_grad=0, tolerance_change=0, history_size=100, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = losses(grams, whiten @ A @ whiten).sum()
        total.backward()
        return total

    records = {"loss": [], "dist_whitened": [], "dist_plain": []}
    for iteration in range(iterations + 1):
        with torch.no_grad():
            whitened = whiten @ A @ whiten
            records["loss"].append(losses(grams, whitened))
            records["dist_whitened"].append(dist(whitened))
            records["dist_plain"].append(dist(A))
        if iteration < iterations:
            optimizer.step(closure)
    gradient = A.grad.flatten(1).norm(dim=1)
    return {name: torch.stack(values) for name, values in records.items()} | {"A": A.detach(), "gradient": gradient}


@RECORD.section
def training() -> dict:
    """The five runs, and others with fewer prompts or a smaller start."""
    torch.set_default_dtype(torch.float64)
    roots = torch.stack([covariance_root(seed) for seed in range(SEEDS)])
    optimum = optimal_step_sizes(DIM, CONTEXT, LAYERS)[1]
    found = {
        "setting": "d = 5, n = 20, three layers, D = diag(1, 1, 1/2, 1/4, 1), A_i from N(0, 0.1²), prompts seeded 100 + run",
        "exact_optimum": float(optimum),
    }
    main_run = train(prompts(20_000), roots, 0.1, ITERATIONS)
    found["n_prompts"] = 20_000
    for name in ("loss", "dist_whitened", "dist_plain"):
        found[name] = rounded(main_run[name], 5)
    found["A"] = rounded(main_run["A"], 7)
    found["gradient"] = rounded(main_run["gradient"], 2)
    found["final_distances"] = {}
    for count in (1250, 5000):
        found["final_distances"][str(count)] = rounded(train(prompts(count), roots, 0.1, ITERATIONS)["dist_whitened"][-1], 5)
    found["final_distances"]["20000"] = found["dist_whitened"][-1]
    other = train(prompts(5000), roots, 1e-4, ITERATIONS)
    found["from_1e-4"] = {
        "n_prompts": 5000,
        "loss": rounded(other["loss"][-1], 5),
        "dist": rounded(other["dist_whitened"][-1], 5),
    }
    return found


if __name__ == "__main__":
    RECORD.main()
