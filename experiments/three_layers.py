"""Three layers in two dimensions: a certificate for symmetric weights, and a search among all weights.

    python experiments/three_layers.py [certificate | search]

Writes results/three_layers.json. The loss is that of whitened plain layers with n = EXAMPLES, and f⋆ is its least value
among multiples of the identity.

certificate  A matrix Q such that the loss of symmetric weights minus SHARE f⋆ is zᵀQz, for `three_layer_certificate`. It is
             found by Douglas-Rachford splitting between the matrices whose eigenvalues are at least FLOOR f⋆ and those with
             the right coefficients, until the latter is positive definite. Decided: if the certificate accepts it, no
             symmetric weights have a loss below SHARE f⋆.
search       From STARTS starts without symmetry, entries normal with a standard deviation that is log-uniform from 0.1 to
             10, at most STEPS steps of Levenberg and Marquardt. Reported: how many end within 1e-6 f⋆ of f⋆, at another
             point where the gradient is below 1e-8 (relative to the loss, times the weights' size), or elsewhere; and the
             least loss over f⋆. Decided: an end below (1 - 1e-6) f⋆ would be a better algorithm; if there is none, the
             question stays open for weights without symmetry.
"""

from fractions import Fraction

import numpy as np
import torch
from lab import Record
from torch import Tensor

from attnopt.in_context import gram_quadrature, optimal_step_sizes, prompt_losses
from attnopt.in_context.three_layers import (
    MONOMIALS,
    monomial_pairs,
    three_layer_certificate,
    three_layer_loss,
)

RECORD = Record("three_layers", digits=12)
EXAMPLES, LAYERS = 20, 3
SHARE, FLOOR, ROUNDS = "9999/10000", 1e-6, 40_000
STARTS, STEPS, AT_ONCE = 10_000, 400, 500


@RECORD.section
def certificate() -> dict:
    """The matrix Q, and what it proves."""
    least = float(optimal_step_sizes(2, EXAMPLES, LAYERS)[1])
    pairs, loss = monomial_pairs(), three_layer_loss(EXAMPLES)
    counts, target = np.bincount(pairs.ravel()), np.zeros(pairs.max() + 1)
    for i, one in enumerate(MONOMIALS):
        for j, other in enumerate(MONOMIALS):
            target[pairs[i, j]] = float(loss.get(tuple(map(sum, zip(one, other, strict=True))), 0))
    target[pairs[0, 0]] -= float(Fraction(SHARE)) * least

    def with_coefficients(matrix: np.ndarray) -> np.ndarray:
        missing = (target - np.bincount(pairs.ravel(), matrix.ravel(), len(target))) / counts
        return matrix + missing[pairs]

    point = with_coefficients(np.zeros(pairs.shape))
    for rounds in range(1, ROUNDS + 1):
        values, vectors = np.linalg.eigh(point)
        definite = (vectors * np.maximum(values, FLOOR * least)) @ vectors.T
        point = point + with_coefficients(2 * definite - point) - definite
        if rounds % 500 == 0:
            found = with_coefficients(definite)
            lowest = np.linalg.eigvalsh(found)[0]
            print(rounds, lowest, flush=True)
            if lowest > FLOOR * least / 2:
                break
    gram = torch.from_numpy(np.vectorize(lambda value: float(f"{value:.12g}"))((found + found.T) / 2))
    bound = three_layer_certificate(EXAMPLES, gram, Fraction(SHARE))
    lower = torch.tril_indices(len(gram), len(gram))
    return {"share": SHARE, "bound": str(bound), "rounds": rounds, "lowest": lowest, "gram": gram[lower[0], lower[1]]}


@RECORD.section
def search() -> dict:
    """Where descents without symmetry end."""
    grams, mass = (torch.from_numpy(part.copy()) for part in gram_quadrature(2, EXAMPLES, 2 * LAYERS))
    least = float(optimal_step_sizes(2, EXAMPLES, LAYERS)[1])
    generator = torch.Generator().manual_seed(0)
    scales = 10 ** (2 * torch.rand(STARTS, 1, 1, 1, generator=generator, dtype=torch.float64) - 1)
    starts = scales * torch.randn(STARTS, LAYERS, 2, 2, generator=generator, dtype=torch.float64)
    ends = torch.cat([descend(part, grams, mass) for part in starts.split(AT_ONCE)]).requires_grad_()
    losses = (prompt_losses(grams, ends[:, None]) * mass).sum(1)
    gradients = torch.autograd.grad(losses.sum(), ends)[0].flatten(1).norm(dim=1)
    still = gradients * ends.detach().flatten(1).norm(dim=1) < 1e-8 * losses.detach()
    ratio = losses.detach() / least
    best = ratio < 1 + 1e-6
    others = ratio[still & ~best]
    return {
        "starts": STARTS,
        "best": int(best.sum()),
        "other": len(others),
        "elsewhere": int((~still & ~best).sum()),
        "least": ratio.min(),
        "least minus one": ratio.min() - 1,
        "others": others.quantile(torch.tensor([0, 0.5, 1], dtype=torch.float64)) if len(others) else [],
    }


def descend(weights: Tensor, grams: Tensor, mass: Tensor) -> Tensor:
    """Levenberg and Marquardt on the residuals √w_q T_q, from weights of shape (S, 3, 2, 2)."""
    eye, root = torch.eye(2, dtype=torch.float64), mass.sqrt()[:, None, None]
    damping = torch.ones(len(weights), dtype=torch.float64)

    def parts(at: Tensor) -> tuple[list[Tensor], Tensor]:
        """Factors I + GA_i, shape (S, q, 2, 2), and residuals, shape (S, 4q)."""
        factors = [eye + grams @ at[:, None, i] for i in range(LAYERS)]
        return factors, ((factors[0] @ factors[1] @ factors[2]) * root).flatten(1)

    factors, residual = parts(weights)
    for _ in range(STEPS):
        before, after, columns = eye.expand_as(factors[0]), [eye.expand_as(factors[0])], []
        for factor in factors[:0:-1]:
            after.insert(0, factor @ after[0])
        for factor, rest in zip(factors, after, strict=True):
            left = before @ grams * root  # dT = left E rest, with E a unit matrix
            columns.append(torch.einsum("sqia,sqbj->sqijab", left, rest).flatten(1, 3).flatten(2))
            before = before @ factor
        jacobian = torch.cat(columns, 2)
        normal, slope = jacobian.mT @ jacobian, jacobian.mT @ residual[..., None]
        diagonal = torch.diag_embed(normal.diagonal(dim1=1, dim2=2) + 1e-12)
        move = torch.linalg.solve(normal + damping[:, None, None] * diagonal, slope)[..., 0]
        trial = weights - move.view_as(weights)
        found, there = parts(trial)
        better = (there.square().sum(1) <= residual.square().sum(1)) & trial.flatten(1).isfinite().all(1)
        weights = torch.where(better[:, None, None, None], trial, weights)
        residual = torch.where(better[:, None], there, residual)
        factors = [torch.where(better[:, None, None, None], new, old) for new, old in zip(found, factors, strict=True)]
        damping = torch.where(better, damping / 3, damping * 4).clamp(1e-12, 1e12)
    return weights


if __name__ == "__main__":
    RECORD.main()
