"""The exact in-context loss of several plain layers with any weights, as a sum over pairings of Gaussian variables."""

import itertools

import torch
from torch import Tensor

from attnopt.checks import check_broadcast, check_count, check_covariance, check_matrices, check_matrix_shape

MOST = 4  # layers: 15!! = 2,027,025 pairings of the examples, about a minute; a fifth would take a day
Word = tuple[Tensor, ...]  # of matrices M_1 … M_m, for the trace of S M_1 S M_2 … S M_m


def layers_loss(A: Tensor, covariance: Tensor, n_context: int, weight_covariance: Tensor | None = None) -> Tensor:
    """The exact in-context loss of plain layers with any matrices A_i, for weights w⋆ of any covariance Ω.

    The prediction error at a query x is w⋆ᵀ T x, where T = Π (I + H A_i), and H = XXᵀ/n is the second-moment matrix of
    the covariates. So the loss is E tr(Ω T Σ Tᵀ), a sum of traces of products in which H occurs up to 2k times, each exact
    by Wick's theorem. Only the covariance of w⋆ matters. For `in_context_loss`, which samples this loss, plain layers are
    ``P[:, d, d] = 1`` and ``Q[:, :d, :d] = A`` with zeros elsewhere.

    Args:
        A: the matrices A_0 … A_{k-1} in the order of the layers, shape (..., k, d, d); k at most 4.
        covariance: Σ of the covariates, shape (..., d, d), positive definite.
        n_context: n, the number of labeled examples in a prompt.
        weight_covariance: Ω, shape (..., d, d), positive definite; the identity unless given.

    Returns:
        The loss, shape (...), not divided by d; differentiable in ``A`` and both covariances. Three layers take less than a
        second, four about a minute.

    Raises:
        ValueError: if there are more than four layers. Then use `in_context_loss` with `sample_prompts` for a sampled loss,
            or `step_loss` for the exact loss of layers A_i = a_i Σ⁻¹.

    Source: Ahn, Cheng, Daneshmand, Sra (2023), (9), for the layers; the chapter "Layers are steps" for T; Isserlis (1918)
    for the pairings.
    """
    n_context = check_count("n_context", n_context)
    check_covariance("covariance", covariance)
    dim = covariance.shape[-1]
    if weight_covariance is None:
        weight_covariance = torch.eye(dim, dtype=covariance.dtype, device=covariance.device)
    check_covariance("weight_covariance", weight_covariance)
    check_matrices(covariance=covariance, A=A, weight_covariance=weight_covariance)
    if A.ndim < 3:
        raise ValueError(f"A must have a dimension of layers, (..., k, {dim}, {dim}), got {tuple(A.shape)}")
    for name, value in {"A": A, "weight_covariance": weight_covariance}.items():
        check_matrix_shape(name, value, (dim, dim), "to match covariance")
    check_broadcast(
        {"A": 3, "covariance": 2, "weight_covariance": 2}, A=A, covariance=covariance, weight_covariance=weight_covariance
    )
    layers = A.unbind(-3)
    if len(layers) > MOST:
        raise ValueError(
            f"A must have at most {MOST} layers, or the exact loss has too many terms, got {len(layers)}: sample it by "
            "in_context_loss of sample_prompts, or take step_loss if all are multiples of the inverse covariance"
        )
    root = torch.linalg.cholesky(covariance)
    subsets = [part for count in range(len(layers) + 1) for part in itertools.combinations(layers, count)]
    total = _trace(weight_covariance @ covariance)
    for (i, left), (j, right) in itertools.product(enumerate(subsets), repeat=2):
        if i < j:  # the transposed product has the same trace
            continue
        # Ω H left_1 H left_2 … Σ … right_2ᵀ H right_1ᵀ H, where each H is root G rootᵀ
        between = [*left, *(matrix.mT for matrix in reversed(right))]
        if left and right:
            between[len(left) - 1 : len(left) + 1] = [left[-1] @ covariance @ right[-1].mT]
            between.append(weight_covariance)
        elif left:
            between[-1] = left[-1] @ covariance @ weight_covariance
        else:
            continue
        word = tuple(root.mT @ matrix @ root for matrix in between)
        total = total + (1 if i == j else 2) * _moment((word,), n_context) / n_context ** len(word)
    return total


def _moment(words: tuple[Word, ...], dof: int) -> Tensor | int:
    """E Π tr(S M_1 S M_2 … S M_m) over words, where S = XXᵀ, and X is a d × ``dof`` matrix of independent standard normals.

    The first X is paired with each other factor. An Xᵀ of the same word splits the word in two, an X of the same word
    reverses a part of it, and a factor of another word joins the two words.
    """
    if not words:
        return 1
    word, others = words[0], words[1:]
    total: Tensor | int = 0
    for j, matrix in enumerate(word):  # S M_1 … S M_j and M_{j+1} S … S M_m; the first X's own Xᵀ gives tr I = dof
        front, back = word[:j], word[j + 1 :]
        factor = 1 if front else dof
        if back:
            rest: tuple[Word, ...] = ((*back[:-1], back[-1] @ matrix),)
        else:
            factor, rest = factor * _trace(matrix), ()
        total = total + factor * _moment((front, *rest, *others) if front else (*rest, *others), dof)
        if front:
            turned = (part.mT for part in reversed(front[:-1]))
            joint = (*word[j:-1], word[-1] @ front[-1].mT, *turned)
            total = total + _moment((joint, *others), dof)
    for at, other in enumerate(others):
        left = *others[:at], *others[at + 1 :]
        for way in (other, tuple(part.mT for part in reversed(other))):
            for i in range(len(way)):
                total = total + _moment(((*word[:-1], word[-1] @ way[i], *way[i + 1 :], *way[:i]), *left), dof)
    return total


def _trace(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1).sum(-1)
