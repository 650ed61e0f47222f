"""The output of softmax attention over a context: class by class, in the limit of a long context, and its error before that.

Tokens are keys and values; scores are inner products with the query. For scores ⟨x, Az⟩ and values Vx, use the query Az and
apply V to the result. In the limit, the context is a mixture Σ π_k N(θ_k, Σ) of clusters with a common covariance.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attnopt.checks import check_broadcast, check_labels, check_matrices, check_matrix_shape, check_symmetric, check_vectors


class Reading(NamedTuple):
    """Attention over a context, divided by class; shares @ classes is attention over all tokens."""

    shares: Tensor  #: The attention on each class.
    classes: Tensor  #: The output of attention over each class alone.


def read_context(queries: Tensor, tokens: Tensor, members: Tensor) -> Reading:
    """Attention of queries over a context, divided by the classes of its tokens.

    Attention over all tokens is Part I's cross-attention in which the output of attention over each class replaces that
    class's vector. For labels C, the gradient of -Σ C_k log shares_k in the query is (shares - C) @ classes: attention over
    all tokens minus attention over the labels' classes.

    Args:
        queries: q, shape (..., Q, F).
        tokens: x_j, shape (..., n, F).
        members: the class of each token as a one-hot row, or its shares in the classes, shape (..., n, K).

    Returns:
        The attention on each class, shape (..., Q, K), and the output of attention over each class alone, shape
        (..., Q, K, F), which is 0 for a class without tokens.

    Source: the chapter "One head, three contexts".
    """
    check_matrices(queries=queries, tokens=tokens, members=members)
    check_matrix_shape("queries", queries, (queries.shape[-2], tokens.shape[-1]), "to match tokens")
    check_matrix_shape("members", members, (tokens.shape[-2], members.shape[-1]), "to match tokens")
    check_broadcast(queries=queries, tokens=tokens, members=members)
    check_labels(members, "class", "members")
    logs = (queries @ tokens.mT).unsqueeze(-2) + members.mT.log().unsqueeze(-3)  # query, class, token
    masses = torch.logsumexp(logs, -1)
    there = masses > -torch.inf
    within = torch.softmax(logs.where(there.unsqueeze(-1), 0), -1) * there.unsqueeze(-1)
    return Reading(torch.softmax(masses, -1), within @ tokens.unsqueeze(-3))


class Limit(NamedTuple):
    """The limit of attention over a long clustered context, between + within."""

    belief: Tensor  #: The attention on each cluster.
    between: Tensor  #: Attention over the clusters' means.
    within: Tensor  #: Linear attention within the clusters.


def mixture_limit(queries: Tensor, means: Tensor, shares: Tensor, covariance: Tensor) -> Limit:
    """The limit of attention over tokens from Σ π_k N(θ_k, Σ): σ(qθᵀ + log π)θ between the clusters, plus qΣ within them.

    Args:
        queries: q, shape (..., Q, F).
        means: θ, shape (..., K, F).
        shares: π, positive numbers that sum to 1, shape (..., K).
        covariance: Σ, symmetric positive semidefinite, shape (..., F, F); it may be 0.

    Returns:
        The belief σ(qθᵀ + log π), shape (..., Q, K), and the two terms, each of shape (..., Q, F).

    Source: the chapter "One head, three contexts".
    """
    _check(queries, means, shares, covariance)
    belief = torch.softmax(queries @ means.mT + shares.log().unsqueeze(-2), -1)
    return Limit(belief, belief @ means, queries @ covariance)


class Error(NamedTuple):
    """Mean and covariance of the deviation of attention over n tokens from its limit, multiplied by n."""

    spread: Tensor  #: The effective number of tokens is n / spread.
    bias: Tensor  #: Mean of the deviation, times n.
    covariance: Tensor  #: Covariance of the deviation, times n.


def mixture_error(queries: Tensor, means: Tensor, shares: Tensor, covariance: Tensor, labels: Tensor | None = None) -> Error:
    """Bias and covariance, times n, of attention over n tokens from Σ π_k N(θ_k, Σ), to leading order in 1/n.

    With labels, attention over the labels' classes is subtracted. The spread is exp(K(2q) - 2K(q)), where
    K(q) = log E exp⟨q, x⟩; n/spread is the effective number of tokens.

    Args:
        queries: q, shape (..., Q, F).
        means: θ, shape (..., K, F).
        shares: π, positive numbers that sum to 1, shape (..., K).
        covariance: Σ, symmetric positive semidefinite, shape (..., F, F); it may be 0.
        labels: C, shape (..., Q, K), to subtract attention over the labels' classes from attention over all tokens; None
            for attention over all tokens.

    Returns:
        An `Error`, with spread of shape (..., Q), bias of shape (..., Q, F), and covariance of shape (..., Q, F, F).

    Raises:
        ValueError: if a result is too large for the dtype.

    Source: the chapter "One head, three contexts".
    """
    _check(queries, means, shares, covariance)
    if labels is not None:
        check_matrices(queries=queries, labels=labels)
        check_matrix_shape("labels", labels, (queries.shape[-2], means.shape[-2]), "to match queries and means")
        check_broadcast(
            {"queries": 2, "means": 2, "shares": 1, "covariance": 2, "labels": 2},
            queries=queries, means=means, shares=shares, covariance=covariance, labels=labels,
        )  # fmt: skip
        check_labels(labels, "class", "labels")
    logits, prior = queries @ means.mT, shares.log().unsqueeze(-2)
    belief, twice = (torch.softmax(scale * logits + prior, -1) for scale in (1, 2))
    pull = queries @ covariance
    log_spread = torch.logsumexp(2 * logits + prior, -1) - 2 * torch.logsumexp(logits + prior, -1) + (pull * queries).sum(-1)
    spread = log_spread.exp()
    weight = torch.zeros_like(belief) if labels is None else labels / belief
    kept = 1 - weight
    away = means.unsqueeze(-3) - (belief @ means).unsqueeze(-2) + kept.unsqueeze(-1) * pull.unsqueeze(-2)
    noise = (twice * kept.square()).sum(-1)[..., None, None] * covariance.unsqueeze(-3)
    scatter = (twice.unsqueeze(-1) * away).mT @ away
    shift = (twice - belief) @ means + (1 - (twice * weight / belief).sum(-1)).unsqueeze(-1) * pull
    error = Error(spread, -spread.unsqueeze(-1) * shift, spread[..., None, None] * (noise + scatter))
    if not all(part.isfinite().all() for part in error):
        raise ValueError(f"queries or means are too long: the error is not a finite number of {queries.dtype}")
    return error


def _check(queries: Tensor, means: Tensor, shares: Tensor, covariance: Tensor) -> None:
    """Require queries and a mixture of the same dimension."""
    check_matrices(queries=queries, means=means, covariance=covariance)
    check_vectors(queries=queries, shares=shares)
    size = means.shape[-1]
    check_matrix_shape("queries", queries, (queries.shape[-2], size), "to match means")
    check_matrix_shape("covariance", covariance, (size, size), "to match means")
    if shares.shape[-1] != means.shape[-2]:
        raise ValueError(f"shares must have {means.shape[-2]} entries, one for each of the means, got {shares.shape[-1]}")
    check_broadcast(
        {"queries": 2, "means": 2, "shares": 1, "covariance": 2},
        queries=queries, means=means, shares=shares, covariance=covariance,
    )  # fmt: skip
    check_labels(shares, "class", "shares")
    if (shares <= 0).any():
        raise ValueError(f"shares must be positive, got {shares.min().item():.3g}")
    check_symmetric("covariance", covariance)
    least, most = torch.linalg.eigvalsh(covariance)[..., [0, -1]].unbind(-1)
    if (least < -(torch.finfo(covariance.dtype).eps ** 0.5) * most.abs()).any():
        raise ValueError(f"covariance must be positive semidefinite, got the eigenvalue {least.min().item():.3g}")
