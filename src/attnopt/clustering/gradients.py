"""The loss's gradients in closed form, and bounds on their norm: a rigorous one and the paper's."""

import math

import torch
from torch import Tensor
from torch.nn.functional import gelu, one_hot

from attnopt.checks import check_integers, check_tensors
from attnopt.clustering.model import TRAINED, Models, Params, check_models

GELU_SLOPE = (1 + math.erf(1)) / 2 + math.exp(-1) / math.sqrt(math.pi)  # the largest derivative of GELU, at √2: 1.1289


def gelu_derivative(x: Tensor) -> Tensor:
    """Derivative Φ(x) + xφ(x) of the GELU xΦ(x), with the standard normal distribution function Φ and density φ."""
    check_tensors(x=x)
    return torch.special.ndtr(x) + x * torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)


def closed_form_gradients(models: Models, tokens: Tensor, targets: Tensor) -> Params:
    """Gradients of the mean cross-entropy in query, value, receptors, and assemblers, from their formulas.

    Let s be the attention, ξ̄ the normalized ξ, p̂ the predicted probabilities, and σ the GELU (see `Models`). With
    C_x = Σ_j (p̂(j|x) - 1{y = j}) E(j), M = (I - ξ̄ξ̄ᵀ)/‖ξ‖, and Q = U diag(σ′(Wξ̄)) W M, the gradients are the means of
    z(diag s - ssᵀ)(Vz)ᵀ(I + Qᵀ)C_x/√d, (I + Qᵀ)C_x (zs)ᵀ, diag(σ′(Wξ̄))UᵀC_x ξ̄ᵀ, and C_x σ(Wξ̄)ᵀ over sequences.

    Args:
        models: models without biases, with the paper's norm "unit".
        tokens: sequences, shape (n, L) or (M, n, L).
        targets: labels 0 … p - 1, shape (n,) or (M, n).

    Returns:
        A dict with the keys ``query``, ``value``, ``receptors``, ``assemblers``, each shaped like the parameter.

    Raises:
        ValueError: if the models have biases or a norm other than "unit".

    Source: Odonnat, Bouaziz, Cabannes (2025), lemma after (5), Appendix D.1.
    """
    stages, pull, _ = _discrepancies(models, tokens, targets)
    dim = models.dim
    lengths = stages["sequence"].norm(dim=-1, keepdim=True)
    slopes = gelu_derivative(stages["activations"])
    hidden = slopes * (pull @ models.weights["assemblers"])
    back = hidden @ models.weights["receptors"]
    direction = stages["direction"]
    tangent = back - (back * direction).sum(-1, keepdim=True) * direction
    through = pull + torch.where(lengths > 0, tangent / torch.where(lengths > 0, lengths, 1.0), 0.0)
    seen = torch.einsum("mntd,mnd->mnt", stages["embeddings"], through @ models.weights["value"])
    attention = stages["attention"]
    pulls = attention * (seen - (attention * seen).sum(-1, keepdim=True))
    count = attention.shape[1]
    return {
        "query": torch.einsum("mnt,mntd->md", pulls, stages["embeddings"]) / (count * dim**0.5),
        "value": through.mT @ stages["mixture"] / count,
        "receptors": hidden.mT @ direction / count,
        "assemblers": pull.mT @ gelu(stages["activations"]) / count,
    }


def gradient_bound_terms(models: Models, tokens: Tensor, targets: Tensor) -> Params:
    """Rigorous upper bounds on the norms of the four gradients of `closed_form_gradients`, as means over the sequences.

    The bounds are the means of ‖V‖κδ/√d, κδ, c‖U‖δ, and ‖W‖δ, with operator norms, c = max σ′ for the GELU σ,
    κ = 1 + c‖U‖‖W‖/‖ξ‖, and δ = d_TV(p̂, p) · max_ij ‖E(i) - E(j)‖, where d_TV(p̂, p) is the total variation distance
    between predicted probabilities and label.

    Args:
        models: models without biases, with the paper's norm "unit".
        tokens: sequences, shape (n, L) or (M, n, L).
        targets: labels 0 … p - 1, shape (n,) or (M, n).

    Returns:
        A dict with the keys ``query``, ``value``, ``receptors``, ``assemblers``, each of shape (M,). The first two are
        infinite if some sequence has ξ = 0 and δ > 0, unless U or W is 0; the first is 0 if V is.

    Raises:
        ValueError: if the models have biases or a norm other than "unit".

    Source: the chapter "Gradients and their bound".
    """
    stages, _, distance = _discrepancies(models, tokens, targets)
    diameter = torch.cdist(models.weights["token"], models.weights["token"]).amax((-2, -1))
    discrepancy = distance * diameter.unsqueeze(-1)
    value, receptors, assemblers = (torch.linalg.matrix_norm(models.weights[name], 2) for name in TRAINED[1:])
    layer = (GELU_SLOPE * receptors * assemblers).unsqueeze(-1)
    kappa = 1 + torch.where(layer > 0, layer / stages["sequence"].norm(dim=-1), 0.0)
    mean = discrepancy.mean(-1)
    through = torch.where(discrepancy > 0, kappa * discrepancy, 0.0).mean(-1)  # and not 0 · ∞
    return {
        "query": torch.where(value > 0, value * through, 0.0) / models.dim**0.5,
        "value": through,
        "receptors": GELU_SLOPE * assemblers * mean,
        "assemblers": receptors * mean,
    }


def gradient_bound(models: Models, tokens: Tensor, targets: Tensor) -> Tensor:
    """A rigorous upper bound on ‖∇L‖: the norm of `gradient_bound_terms`.

    The gradient is taken in query, value, receptors, and assemblers (see `Models`).

    Args:
        models: models without biases, with the paper's norm "unit".
        tokens: sequences, shape (n, L) or (M, n, L).
        targets: labels 0 … p - 1, shape (n,) or (M, n).

    Returns:
        The bound on the norm, not squared, shape (M,).

    Raises:
        ValueError: if the models have biases or a norm other than "unit".

    Source: the chapter "Gradients and their bound".
    """
    terms = gradient_bound_terms(models, tokens, targets)
    return torch.stack(list(terms.values())).norm(dim=0)


def gradient_bound_of_paper(models: Models, tokens: Tensor, targets: Tensor) -> Tensor:
    """The paper's bound on ‖∇L‖, which is false: √(B̃ E d_TV), with B̃ from the paper's (33) and the line below it.

    For d_TV, see `gradient_bound_terms`.

    Args:
        models: models without biases, with the paper's norm "unit".
        tokens: sequences, shape (n, L) or (M, n, L).
        targets: labels 0 … p - 1, shape (n,) or (M, n).

    Returns:
        The paper's bound on the norm, not squared, shape (M,).

    Raises:
        ValueError: if the models have biases or a norm other than "unit".

    Source: Odonnat, Bouaziz, Cabannes (2025), (29)-(33).
    """
    _, _, distance = _discrepancies(models, tokens, targets)
    factor = torch.stack(list(_printed_factors(models).values())).square().sum(0)
    largest = models.weights["token"].abs().amax((-2, -1))
    return (4 * models.weights["token"].shape[-1] * largest**2 * factor * distance.mean(-1)).sqrt()


def gradient_bound_terms_of_paper(models: Models, tokens: Tensor, targets: Tensor) -> Params:
    """The paper's bounds on the norm of each of the four gradients; those for query and value are false.

    The bounds are √(E‖C_x‖²) times 2L√d‖V‖(1 + √(2/π)‖W‖²‖U‖), √d(1 + 2‖W‖‖U‖), 2‖U‖, and ‖W‖, with operator norms and
    with C_x as in `closed_form_gradients`.

    Args:
        models: models without biases, with the paper's norm "unit".
        tokens: sequences, shape (n, L) or (M, n, L).
        targets: labels 0 … p - 1, shape (n,) or (M, n).

    Returns:
        A dict with the keys ``query``, ``value``, ``receptors``, ``assemblers``, each of shape (M,).

    Raises:
        ValueError: if the models have biases or a norm other than "unit".

    Source: Odonnat, Bouaziz, Cabannes (2025), (29)-(32).
    """
    _, pull, _ = _discrepancies(models, tokens, targets)
    size = pull.square().sum(-1).mean(-1).sqrt()
    return {name: factor * size for name, factor in _printed_factors(models).items()}


def _printed_factors(models: Models) -> Params:
    """The factors in the paper's (29)-(32), not squared, each of shape (M,)."""
    value, receptors, assemblers = (torch.linalg.matrix_norm(models.weights[name], 2) for name in TRAINED[1:])
    length, dim = models.length, models.dim
    return {
        "query": 2 * length * dim**0.5 * value * (1 + math.sqrt(2 / math.pi) * receptors**2 * assemblers),
        "value": dim**0.5 * (1 + 2 * receptors * assemblers),
        "receptors": 2 * assemblers,
        "assemblers": receptors,
    }


def _discrepancies(models: Models, tokens: Tensor, targets: Tensor) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Stages, C_x for each sequence, shape (M, n, d), and the total variation between p̂ and the label, shape (M, n)."""
    check_models(models)
    if models.biased or models.norm != "unit":
        raise ValueError(f"models must have no biases and the norm 'unit', as in the paper's gradients, got {models}")
    stages = models.stages(tokens)
    logits = stages["logits"]
    ensemble, count, p = logits.shape
    check_integers("targets", targets, p)
    if targets.shape not in ((count,), (ensemble, count)):
        raise ValueError(f"targets must have shape ({count},) or ({ensemble}, {count}), got {tuple(targets.shape)}")
    right = one_hot(targets, p).bool().expand(ensemble, -1, -1)
    wrong = logits.softmax(-1).masked_fill(right, 0.0)
    distance = wrong.sum(-1)
    # 1 - p̂(y|x) as the sum of the other probabilities, which keeps its digits however small it is
    errors = torch.where(right, -distance.unsqueeze(-1), wrong)
    return stages, errors @ models.weights["token"], distance
