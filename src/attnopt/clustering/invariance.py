"""How invariant a model's sequence embedding is to the suffix and to the order of the prefix, and what attention leaks."""

import torch
from torch import Tensor

from attnopt.checks import check_count
from attnopt.clustering.model import Norm, Params, check_params, embedding_table, forward
from attnopt.clustering.task import check_all_sequences, check_task, modular_addition


def invariance(params: Params, p: int, k: int, norm: Norm = "unit") -> dict[str, Tensor]:
    """Shares of the variance of ξ over all pᴸ sequences that a change of suffix, or of the prefix's order, leaves alone.

    By the law of total variance Var ξ = E Var(ξ | prefix) + E Var(E[ξ | prefix] | counts) + Var E[ξ | counts], where counts
    says how often each token stands in the prefix. Suffix invariance is one minus the first share, permutation invariance
    one minus the second.

    Args:
        params: as from `init_model`, with at least p tokens.
        p: sequences of the tokens 0 … p - 1 are used.
        k: length of the prefix.
        norm: the models' normalisation.

    Returns:
        A dict with the keys ``suffix`` and ``permutation`` and shares from 0 to 1, each of shape (M,). Where ξ does not vary
        both are 1.

    Raises:
        TypeError: if a number is not an integer, or a parameter not a tensor.
        ValueError: if p < 2, k is not in 1 … L, p exceeds the tokens of the model, pᴸ exceeds 2²⁴, or parameters do not fit.

    Source: the chapter "The ideal circuit".
    """
    check_params(params)
    length = params["position"].shape[-2]
    p, length, k = check_task(p, length, k)
    if p > params["token"].shape[-2]:
        raise ValueError(f"p must be at most the model's {params['token'].shape[-2]} tokens, got {p}")
    tokens = modular_addition(p, length, k)[0].to(params["token"].device)
    sequence = forward(params, tokens, return_stages=True, norm=norm)[1]["sequence"]
    return variance_shares(sequence, p, length, k)


def variance_shares(sequence: Tensor, p: int, length: int, k: int) -> dict[str, Tensor]:
    """What `invariance` returns, from sequence embeddings that are at hand.

    Args:
        sequence: ξ of all pᴸ sequences in lexicographic order, shape (M, pᴸ, d).
        p: size of the vocabulary.
        length: L, tokens a sequence.
        k: length of the prefix.

    Raises:
        TypeError: if sequence is no tensor of floating-point numbers, or p, the length or k no integer.
        ValueError: if it is not of all sequences, or k not in 1 … L.
    """
    check_all_sequences(sequence, p, length)
    check_task(p, length, k)
    prefixes = modular_addition(p, k, k)[0].to(sequence.device).sort(1).values
    by_prefix = sequence.unflatten(1, (p**k, p ** (length - k)))
    prefix_means = by_prefix.mean(2)
    _, cluster = prefixes.unique(dim=0, return_inverse=True)
    sizes = torch.bincount(cluster)
    sums = prefix_means.new_zeros(len(prefix_means), len(sizes), prefix_means.shape[-1])
    cluster_means = sums.index_add(1, cluster, prefix_means) / sizes[:, None]
    total = (sequence - sequence.mean(1, keepdim=True)).square().sum(-1).mean(1)
    within_prefix = (by_prefix - prefix_means.unsqueeze(2)).square().sum(-1).mean((1, 2))
    within_cluster = (prefix_means - cluster_means[:, cluster]).square().sum(-1).mean(1)
    varies = total > torch.finfo(total.dtype).eps ** 2 * sequence.square().sum(-1).mean(1)
    share = lambda part: torch.where(varies, 1 - part / torch.where(varies, total, 1.0), 1.0)  # noqa: E731
    return {"suffix": share(within_prefix), "permutation": share(within_cluster)}


def spurious_attention(params: Params, k: int, norm: Norm = "unit") -> tuple[Tensor, Tensor]:
    """The least and the most attention that all tokens after the first k get together, over all sequences, exactly.

    The share of the spurious tokens grows with each of their scores and falls with each score of the prefix, and every
    position's token is free, so the extremes are reached position by position.

    Args:
        params: as from `init_model`.
        k: length of the prefix.
        norm: the models' normalisation.

    Returns:
        Least and most, each of shape (M,); both 0 if k is the whole length.

    Raises:
        TypeError: if k is not an integer, or a parameter not a tensor.
        ValueError: if k is not in 1 … L, or parameters do not fit.

    Source: the chapter "The ideal circuit".
    """
    check_params(params)
    length, dim = params["position"].shape[-2:]
    if check_count("k", k) > length:
        raise ValueError(f"k must be at most the models' {length} positions, got {k}")
    scores = torch.einsum("mptd,md->mpt", embedding_table(params, norm), params["query"]) / dim**0.5
    low, high = scores.amin(1), scores.amax(1)
    share = lambda spurious, prefix: (spurious[:, k:].logsumexp(1) - prefix[:, :k].logsumexp(1)).sigmoid()  # noqa: E731
    return share(low, high), share(high, low)
