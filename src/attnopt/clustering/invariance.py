"""Invariance of a sequence embedding to the suffix and to the prefix's order, and attention on irrelevant tokens."""

import torch
from torch import Tensor

from attnopt.clustering.model import Models, check_models
from attnopt.clustering.task import Task, check_all_sequences, every, indices


def invariance(models: Models, task: Task) -> dict[str, Tensor]:
    """Suffix and permutation invariance of ξ: one minus the share of its variance due to the suffix, or the prefix's order.

    The variance is over all pᴸ sequences. The prefix consists of the tokens at the task's relevant positions (see
    `Task.relevant`; without a rule, the first k) and the suffix of all other tokens. By the law of total variance,
    Var ξ = E Var(ξ | prefix) + E Var(E[ξ | prefix] | counts) + Var E[ξ | counts], where the counts are the numbers of
    occurrences of each token in the prefix. Suffix invariance is one minus the first term's share of Var ξ, permutation
    invariance one minus the second term's. Under a rule, the label itself may depend on the order of the prefix.

    Args:
        models: models with at least p tokens.
        task: the task that defines the sequences and their relevant positions.

    Returns:
        A dict with the keys ``suffix`` and ``permutation`` and shares from 0 to 1, each of shape (M,). If ξ does not vary,
        both are 1; if it is not finite, both are NaN.

    Raises:
        ValueError: if pᴸ exceeds 2²⁴.

    Source: the chapter "The ideal circuit".
    """
    check_models(models)
    models.check_task(task)
    tokens = task.all()[0].to(models.weights["token"].device)
    return variance_shares(models.stages(tokens)["sequence"], task)


def variance_shares(sequence: Tensor, task: Task) -> dict[str, Tensor]:
    """The shares that `invariance` returns, computed from given sequence embeddings.

    Args:
        sequence: ξ of all pᴸ sequences in lexicographic order, shape (M, pᴸ, d).
        task: the task that the sequences belong to.
    """
    check_all_sequences(sequence, task)
    by_token = sequence.unflatten(1, (task.p,) * task.length)
    by_token = by_token.movedim([1 + at for at in task.relevant], [*range(1, 1 + len(task.relevant))])
    by_prefix = by_token.flatten(1, -2).unflatten(1, (task.p ** len(task.relevant), -1))
    prefix_means = by_prefix.mean(2)
    prefixes = every(task.p, len(task.relevant)).to(sequence.device).sort(1).values
    _, cluster = indices(prefixes, task.p).unique(return_inverse=True)
    sizes = torch.bincount(cluster)
    sums = prefix_means.new_zeros(len(prefix_means), len(sizes), prefix_means.shape[-1])
    cluster_means = sums.index_add(1, cluster, prefix_means) / sizes[:, None]
    total = (sequence - sequence.mean(1, keepdim=True)).square().sum(-1).mean(1)
    within_prefix = (by_prefix - prefix_means.unsqueeze(2)).square().sum(-1).mean((1, 2))
    within_cluster = (prefix_means - cluster_means[:, cluster]).square().sum(-1).mean(1)
    varies = total > torch.finfo(total.dtype).eps ** 2 * sequence.square().sum(-1).mean(1)
    still = torch.where(total.isfinite(), 1.0, torch.nan)
    share = lambda part: torch.where(varies, 1 - part / torch.where(varies, total, 1.0), still)  # noqa: E731
    return {"suffix": share(within_prefix), "permutation": share(within_cluster)}


def spurious_attention(models: Models, task: Task) -> tuple[Tensor, Tensor]:
    """The smallest and the largest total attention on irrelevant tokens over all sequences, exactly.

    Irrelevant tokens are those at positions not in `Task.relevant`; without a rule, those after the first k. Their total
    attention increases with each of their scores and decreases with each score of a relevant token. Tokens can be chosen
    independently, so each position is optimized separately.

    Args:
        models: models with at least p tokens.
        task: the task that defines the tokens and the relevant positions.

    Returns:
        Smallest and largest total attention, each of shape (M,); both are 0 if all positions are relevant, 1 if none is.

    Raises:
        ValueError: if pᴸ exceeds 2²⁴ and `Task.relevant` must compute all labels.

    Source: the chapter "The ideal circuit".
    """
    check_models(models)
    models.check_task(task)
    scores = models.scores()[:, : task.p]
    relevant = torch.zeros(task.length, dtype=torch.bool, device=scores.device)
    relevant[list(task.relevant)] = True
    mass = lambda scores, positions: scores[:, positions].logsumexp(1)  # noqa: E731
    low, high = scores.amin(1), scores.amax(1)
    share = lambda spurious, prefix: (mass(spurious, ~relevant) - mass(prefix, relevant)).sigmoid()  # noqa: E731
    return share(low, high), share(high, low)
