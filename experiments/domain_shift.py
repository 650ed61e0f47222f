"""Three layers away from the prompts they were made for: other scales, other eigenvectors of Σ, other numbers of examples.

    python experiments/domain_shift.py

Reads results/gdpp_training.json, writes results/domain_shift.json. Made for d = 5, n = 20; the shifts are

    scaled      Σ' = s²Σ, s² = 2^(j/4) from ¼ to 4
    context     n' from 5 to 80 examples
    rotated     Σ' = VΣVᵀ with uniformly random rotations V, ROTATIONS of them
    turned      Σ' = VᵗΣV⁻ᵗ, the same rotations by a fraction t of their angles

with w⋆ ~ N(0, Σ'⁻¹), so that predicting 0 always loses d = 5. The models:

    constant        A_i = aΣ⁻¹ with the one best step a in all layers
    plain           A_i = a_i Σ⁻¹, optimal steps
    gdpp            A_i = a_i Σ⁻¹, B_i = b_i I, optimal
    plain trained   A_i trained from random matrices as in gdpp_training.py with B_i = 0, on the same Σ and prompts
    gdpp trained    the run at n = 20 of gdpp_training.json with the least loss on its training batch

Keys of "shifts": "settings", "models" (for each "A_whitened", "B_whitened": Σ^½ A_i Σ^½, Σ^(-½) B_i Σ^½) and
the four shifts. "scaled", "context" and "turned" hold for each model a list of

    scale, n_context or fraction    where
    median, mean                    of the losses over PROMPTS prompts (in "turned" PROMPTS/ROTATIONS a rotation); points
                                    with the same n_context share their prompts
    exact                           the exact loss in "scaled" and "context", for the three models on S

and "rotated" for each model the lists "medians" and "means" over the rotations (PROMPTS/ROTATIONS prompts each), "median"
and "mean" of all, "median_unrotated" and "mean_unrotated". "harmless_below": for the models on S the s² from which on the
exact loss exceeds d, what predicting 0 would lose.
"""

import functools

import numpy as np
import torch
from covariances import DIM, random_covariance, random_orthogonal, square_roots
from gdpp_training import BATCH, LAYERS, SCALE, lbfgs, scalar_matrices, value_and_slope
from lab import Record, rounded
from scipy.linalg import expm, logm
from scipy.optimize import brentq, minimize_scalar
from torch import Tensor

from attnbook.folder import results
from attnopt.in_context import gdpp_loss, gdpp_optimum, optimal_step_sizes, prompt_losses, sample_grams, step_loss

RECORD = Record("domain_shift")
N_CONTEXT, PROMPTS, ROTATIONS, PART = 20, 100_000, 10, 10_000
SCALES = [2 ** (j / 4) for j in range(-8, 9)]
FRACTIONS = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
CONTEXTS = [5, 6, 7, 8, 10, 12, 14, 17, 20, 25, 30, 40, 60, 80]


def exact_loss(steps: Tensor, curvatures: Tensor | None, scale: float, n_context: int) -> float:
    """Loss on S when the covariance is s²Σ: R(s²λ), so that steps and curvatures act s² times as strongly."""
    if curvatures is None:
        return step_loss(scale * steps, DIM, n_context).item()
    return gdpp_loss(scale * steps, scale * curvatures, DIM, n_context).item()


def shifted(A: Tensor, B: Tensor, old: Tensor, new: Tensor) -> tuple[Tensor, Tensor]:
    """The same layers, whitened by another covariance.

    Args:
        A: Σ^½ A_i Σ^½.
        B: Σ^(-½) B_i Σ^½.
        old: Σ.
        new: Σ'.

    Returns:
        Σ'^½ A_i Σ'^½ and Σ'^(-½) B_i Σ'^½.
    """
    (root, inverse), (new_root, new_inverse) = square_roots(old), square_roots(new)
    change, back = new_root @ inverse, new_inverse @ root
    return change @ A @ change.mT, back @ B @ inverse @ new_root


def trained_plain(seed: int) -> Tensor:
    """Whitened A_i of three plain layers trained as in gdpp_training.py, on the same Σ and prompts."""
    generator = torch.Generator().manual_seed(1000 * N_CONTEXT + seed)
    root, _ = square_roots(random_covariance(generator))
    grams = sample_grams(BATCH, DIM, N_CONTEXT, generator)
    start = SCALE * torch.randn(LAYERS, DIM, DIM, dtype=torch.float64, generator=generator)

    def loss(grams: Tensor, point: Tensor) -> Tensor:
        return prompt_losses(grams.permute(2, 0, 1), root @ point.reshape(start.shape) @ root).mean()

    last = grams.permute(1, 2, 0)
    points, _, _ = lbfgs([lambda point: value_and_slope(loss, last, point)], start.numpy().ravel(), 1000)
    return root @ torch.from_numpy(points[-1]).reshape(start.shape) @ root


@functools.lru_cache(4)
def prompts(n_context: int, count: int, seed: int) -> Tensor:
    """Whitened Gram matrices, the same for all models."""
    return sample_grams(count, DIM, n_context, torch.Generator().manual_seed(seed))


def losses(A: Tensor, B: Tensor, n_context: int, count: int, seed: int) -> Tensor:
    """Losses on sampled prompts."""
    return torch.cat([prompt_losses(part, A, B) for part in prompts(n_context, count, seed).split(PART)])


def random_rotation(generator: torch.Generator) -> Tensor:
    """A uniformly distributed rotation."""
    basis = random_orthogonal(generator)
    basis[:, 0] *= torch.linalg.det(basis).sign()
    return basis


def part_of(rotation: Tensor, fraction: float) -> Tensor:
    """The rotation by a fraction of its angles."""
    return torch.from_numpy(expm(fraction * logm(rotation.numpy()).real))


def center(values: Tensor) -> dict[str, float]:
    """Median and mean."""
    return {"median": rounded(values.median().item(), 6), "mean": rounded(values.mean().item(), 6)}


@RECORD.section
def shifts() -> dict:
    """All models under all shifts."""
    runs = [run for run in results("gdpp_training")["runs"] if run["n_context"] == N_CONTEXT]
    best = min(runs, key=lambda run: run["train_loss"])
    covariance = torch.tensor(best["covariance"], dtype=torch.float64)
    none = torch.zeros(LAYERS, DIM, DIM, dtype=torch.float64)
    best_step = minimize_scalar(
        lambda a: step_loss([a] * LAYERS, DIM, N_CONTEXT).item(), bounds=(-2, 0), method="bounded", options={"xatol": 1e-12}
    )
    constant = torch.full((LAYERS,), best_step.x, dtype=torch.float64)
    plain = optimal_step_sizes(DIM, N_CONTEXT, LAYERS)[0]
    steps, curvatures, _ = gdpp_optimum(DIM, N_CONTEXT, LAYERS)
    on_S = {"constant": (constant, None), "plain": (plain, None), "gdpp": (steps, curvatures)}
    b = torch.cat([curvatures / steps[:-1], curvatures.new_zeros(1)])
    trained_B = torch.cat([torch.tensor(best["B_whitened"], dtype=torch.float64), none[:1]])
    models = {
        "constant": (scalar_matrices(constant), none),
        "plain": (scalar_matrices(plain), none),
        "gdpp": (scalar_matrices(steps), scalar_matrices(b)),
        "plain trained": (trained_plain(best["seed"]), none),
        "gdpp trained": (torch.tensor(best["A_whitened"], dtype=torch.float64), trained_B),
    }
    found: dict[str, dict] = {"scaled": {}, "context": {}, "rotated": {}, "turned": {}}
    generator = torch.Generator().manual_seed(5)
    rotations = [random_rotation(generator) for _ in range(ROTATIONS)]
    for name, (A, B) in models.items():
        for shift, grid in (("scaled", SCALES), ("context", CONTEXTS)):
            rows = found[shift][name] = []
            for value in grid:
                scale, n_context = (value, N_CONTEXT) if shift == "scaled" else (1.0, value)
                row = {"scale": scale} if shift == "scaled" else {"n_context": n_context}
                row |= center(losses(*shifted(A, B, covariance, scale * covariance), n_context, PROMPTS, 11))
                if name in on_S:
                    row["exact"] = exact_loss(*on_S[name], scale, n_context)
                rows.append({key: rounded(number, 6) for key, number in row.items()})
        turned = found["turned"][name] = []
        for fraction in FRACTIONS:
            seen = []
            for i, rotation in enumerate(rotations):
                V = part_of(rotation, fraction)
                layers = shifted(A, B, covariance, V @ covariance @ V.mT)
                seen.append(prompt_losses(prompts(N_CONTEXT, PROMPTS, 11).split(PROMPTS // ROTATIONS)[i], *layers))
            turned.append({"fraction": fraction} | center(torch.cat(seen)))
        unrotated = {f"{key}_unrotated": value for key, value in center(losses(A, B, N_CONTEXT, PROMPTS, 11)).items()}
        lists = {f"{key}s": [center(one)[key] for one in seen] for key in ("median", "mean")}
        found["rotated"][name] = lists | center(torch.cat(seen)) | unrotated
    found["harmless_below"] = {
        name: rounded(brentq(lambda s: np.log(exact_loss(*of, s, N_CONTEXT) / DIM), 1, 10), 6)  # noqa: B023
        for name, of in on_S.items()
    }
    settings = {"dim": DIM, "layers": LAYERS, "n_context": N_CONTEXT, "prompts": PROMPTS, "rotations": ROTATIONS}
    settings |= {"trained_seed": best["seed"], "covariance": best["covariance"]}
    parameters = {name: {"A_whitened": rounded(A, 6), "B_whitened": rounded(B, 6)} for name, (A, B) in models.items()}
    return {"settings": settings, "models": parameters, **found}


if __name__ == "__main__":
    RECORD.main()
