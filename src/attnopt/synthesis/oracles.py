"""The value of labels Q to the block Z ← Z - h(s - Q)θ of a classifier s = σ(Zθᵀ), given the knowledge of their oracle.

An oracle is a source of side information. C_O is the posterior of the class given the features and all that the oracle has
seen; rows are tokens, and columns are classes. Values are those of single tokens; the chapter's values are their means.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from attnopt.checks import check_broadcast, check_labels, check_matrices, check_matrix_shape, check_number


def oracle_value(weights: Tensor, predictions: Tensor, posterior: Tensor) -> Tensor:
    """The squared length of a block's step if its labels are an oracle's posterior, ‖(s - C_O)θ‖².

    C_O is the posterior of the class given the features and all that the oracle has seen. The mean over tokens is the
    oracle's value V. A step of size h lowers the mean cross-entropy of the true labels by at most hV and at least
    h(1 - hL/2)V, where L = ¼d², and d is the largest distance between two class vectors.

    Args:
        weights: θ, the class vectors, shape (..., K, F).
        predictions: s, the predicted probabilities, shape (..., S, K); rows sum to 1.
        posterior: C_O, shape (..., S, K); rows sum to 1.

    Returns:
        One number per token, shape (..., S).

    Source: the chapter "What an oracle is worth".
    """
    _check(weights, predictions=predictions, posterior=posterior)
    return ((predictions - posterior) @ weights).square().sum(-1)


def attention_spread(weights: Tensor, predictions: Tensor) -> Tensor:
    """The spread of the class vectors around their average under the predicted probabilities, Σ s_k ‖θ_k - sθ‖².

    It is the trace of θᵀJ(s)θ, the Jacobian of the token's cross-attention z ↦ σ(zθᵀ)θ. If s is calibrated, the mean of
    the spread is the value of the true label (see `oracle_value`).

    Args:
        weights: θ, the class vectors, shape (..., K, F).
        predictions: s, the predicted probabilities, shape (..., S, K); rows sum to 1.

    Returns:
        One number per token, shape (..., S).

    Source: the chapter "What an oracle is worth".
    """
    _check(weights, predictions=predictions)
    away = weights.unsqueeze(-3) - (predictions @ weights).unsqueeze(-2)
    return (predictions * away.square().sum(-1)).sum(-1)


def gain_bounds(
    weights: Tensor, predictions: Tensor, labels: Tensor, posterior: Tensor, step: float
) -> tuple[Tensor, Tensor]:
    """Bounds on the amount by which one step with labels Q lowers the expected cross-entropy of the true label.

    With D = ⟨(s - C_O)θ, (s - Q)θ⟩ and W = ‖(s - Q)θ‖², the expected gain, given what the oracle saw, is between
    hD - h²LW/2 and hD, where L = ¼d², and d is the largest distance between two class vectors. For Q = C_O, these bounds
    are h(1 - hL/2)V and hV, where V is the `oracle_value`.

    Args:
        weights: θ, the class vectors, shape (..., K, F).
        predictions: s, the predicted probabilities, shape (..., S, K); rows sum to 1.
        labels: Q, the supplied labels, shape (..., S, K); rows sum to 1.
        posterior: C_O, the oracle's posterior of the class, shape (..., S, K); rows sum to 1.
        step: step size h.

    Returns:
        The lower and the upper bound, each one number per token, shape (..., S).

    Source: the chapter "What an oracle is worth".
    """
    _check(weights, predictions=predictions, labels=labels, posterior=posterior)
    check_number("step", step)
    move = (predictions - labels) @ weights
    most = step * (((predictions - posterior) @ weights) * move).sum(-1)
    apart = weights.unsqueeze(-2) - weights.unsqueeze(-3)
    curvature = apart.square().sum(-1).amax((-2, -1)).unsqueeze(-1) / 4
    return most - step**2 * curvature / 2 * move.square().sum(-1), most


class Split(NamedTuple):
    """The three parts of a classifier's cross-entropy, in nats."""

    remaining: Tensor  #: Entropy of the class given the features and the oracle.
    information: Tensor  #: Information of the oracle about the class.
    miscalibration: Tensor  #: Divergence of the predictions from the true probabilities.


def information_split(predictions: Tensor, shares: Tensor, posterior: Tensor) -> Split:
    """A token's expected cross-entropy -Σ P(c) log s_c in three parts: remainder, information, and miscalibration.

    The oracle O gives one of M answers. For each token, with features Z and class c, the parts are H(c|Z,O), I(c;O|Z), and
    KL(P(c|Z)‖s).

    Args:
        predictions: s, the predicted probabilities, shape (..., S, K); rows sum to 1.
        shares: the probability of each answer given the token, shape (..., S, M); rows sum to 1.
        posterior: the posterior of the class for each answer, shape (..., S, M, K); rows sum to 1.

    Returns:
        The three parts, each one number per token, shape (..., S); the last is infinite where a possible class has
        probability 0 in the predictions.

    Source: the chapter "What an oracle is worth".
    """
    check_matrices(predictions=predictions, shares=shares, posterior=posterior)
    if posterior.ndim < 3:
        raise ValueError(f"posterior must have a row for each answer of each token, got shape {tuple(posterior.shape)}")
    tokens, classes = predictions.shape[-2:]
    check_matrix_shape("shares", shares, (tokens, shares.shape[-1]), "to match predictions")
    check_matrix_shape("posterior", posterior, (shares.shape[-1], classes), "to match shares and predictions")
    if posterior.shape[-3] != tokens:
        raise ValueError(f"posterior must have {tokens} tokens, as predictions, got shape {tuple(posterior.shape)}")
    check_broadcast(
        {"predictions": 2, "shares": 2, "posterior": 3}, predictions=predictions, shares=shares, posterior=posterior
    )
    for name, value in (("predictions", predictions), ("shares", shares), ("posterior", posterior)):
        check_labels(value, "class", name)
    true = (shares.unsqueeze(-2) @ posterior).squeeze(-2)
    remaining = (shares * _entropy(posterior)).sum(-1)
    wrong = (torch.xlogy(true, true) - torch.xlogy(true, predictions)).sum(-1)
    return Split(remaining, _entropy(true) - remaining, wrong)


def own_label_energy(logits: Tensor, temperature: float) -> Tensor:
    """The function LSE(N) - T·LSE(N/T), which a block descends if its labels are its own softmax at temperature T.

    Its gradient in N is σ(N) - σ(N/T). For T below 1, it is the mean entropy of σ(N/τ) over τ from T to 1, times 1 - T.

    Args:
        logits: N, shape (..., S, K).
        temperature: T; if it is below 1, labels are sharper than the softmax.

    Returns:
        One number per token, shape (..., S).

    Source: the chapter "What an oracle is worth".
    """
    check_matrices(logits=logits)
    check_number("temperature", temperature)
    logits = logits - logits.amax(-1, keepdim=True)  # a common constant would cost precision in the difference
    return torch.logsumexp(logits, -1) - temperature * torch.logsumexp(logits / temperature, -1)


def _entropy(probabilities: Tensor) -> Tensor:
    """Entropy of distributions along the last dimension, in nats."""
    return -torch.xlogy(probabilities, probabilities).sum(-1)


def _check(weights: Tensor, **distributions: Tensor) -> None:
    """Require class vectors, and one distribution over the classes for each token."""
    check_matrices(weights=weights, **distributions)
    first_name, first = next(iter(distributions.items()))
    for name, value in distributions.items():
        check_matrix_shape(name, value, (first.shape[-2], weights.shape[-2]), f"to match weights and {first_name}")
    check_broadcast(weights=weights, **distributions)
    for name, value in distributions.items():
        check_labels(value, "class", name)
