"""What a trained model is made of: where its attention goes, what its embeddings depend on, how many neurons it uses."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import gelu, one_hot

from attnopt.checks import as_numbers, check_count, check_integers, check_matrices, check_tensors
from attnopt.clustering.task import Task, check_all_sequences


def attention_by_pair(attention: Tensor, tokens: Tensor) -> Tensor:
    """Mean attention on each token at each position, over the sequences that have the token there.

    Args:
        attention: attention on each token of the sequences, shape (M, n, L), as returned by `Models.stages`.
        tokens: sequences, shape (n, L); each of the tokens 0 … p - 1 must occur at each position in one of them.

    Returns:
        Means, shape (M, p, L). If the sequences are all pᴸ, averaging over the tokens gives the mean attention on each
        position.

    Raises:
        ValueError: if a token never occurs at some position.
    """
    check_tensors(attention=attention)
    check_integers("tokens", tokens)
    if attention.ndim != 3 or attention.shape[1:] != tokens.shape or not tokens.numel():
        raise ValueError(f"attention must have shape (M, *{tuple(tokens.shape)}), got {tuple(attention.shape)}")
    check_integers("tokens", tokens, len(tokens))  # if there were more tokens, one would be missing somewhere
    there = torch.stack([tokens == token for token in range(int(tokens.max()) + 1)]).to(attention.dtype)
    if (there.sum(1) == 0).any():
        raise ValueError("tokens must have every token at every position, got none of one of them somewhere")
    return torch.einsum("mnt,vnt->mvt", attention, there) / there.sum(1)


def activation_sparsity(activations: Tensor, thresholds: Sequence[float]) -> Tensor:
    """Share of activations after the GELU, over sequences and neurons, whose absolute value is below each threshold.

    Args:
        activations: activations before the GELU, shape (M, n, h), as returned by `Models.stages`.
        thresholds: E thresholds ε, in any order.

    Returns:
        Shares, shape (M, E), in the order of the thresholds, 1 if all absolute values are below ε and 0 if none is.

    Source: Odonnat, Bouaziz, Cabannes (2025), Appendix A.2.
    """
    check_matrices(activations=activations)
    if activations.ndim != 3:
        raise ValueError(f"activations must have shape (M, n, h), got {tuple(activations.shape)}")
    limits = as_numbers("thresholds", thresholds)
    if limits.ndim != 1:
        raise ValueError(f"thresholds must have shape (E,), got {tuple(limits.shape)}")
    limits, order = limits.sort()
    active, limits = gelu(activations).abs().flatten(1), limits.to(activations)
    passed = torch.bucketize(active, limits, right=True)  # how many thresholds, in ascending order, do not exceed it
    counts = torch.stack([torch.bincount(row, minlength=len(limits) + 1) for row in passed])
    shares = counts.cumsum(1)[:, :-1].to(active.dtype) / active.shape[1]
    return shares[:, order.argsort()]


def position_effects(sequence: Tensor, task: Task) -> Tensor:
    """For each position, the share E Var(ξ | other tokens)/Var ξ of the variance of ξ that the other tokens do not explain.

    Args:
        sequence: ξ of all pᴸ sequences in lexicographic order, shape (M, pᴸ, d).
        task: the task that the sequences belong to.

    Returns:
        Shares, shape (M, L), which are the total-effect indices of sensitivity analysis.
    """
    check_all_sequences(sequence, task)
    total = (sequence - sequence.mean(1, keepdim=True)).square().sum(-1).mean(1)
    left = []
    for position in range(task.length):
        alone = sequence.unflatten(1, (task.p**position, task.p, -1))
        left.append((alone - alone.mean(2, keepdim=True)).square().sum(-1).flatten(1).mean(1))
    return torch.stack(left, 1) / total.unsqueeze(1)


def counting_form(sequence: Tensor, task: Task) -> tuple[Tensor, Tensor]:
    """Integer weights m such that ξ is nearly a function of Σ m_t x_t, and the share of its variance explained, for p = 2.

    The absolute value of a weight is the square root of its position's total effect (`position_effects`), in units of the
    smallest one at a relevant position, rounded. Its sign is that of E[ξ | x_t = 1] - E[ξ | x_t = 0] along the main axis of
    these differences. A label that is the sum of the relevant tokens modulo 2 equals Σ m_t x_t modulo 2 if their weights are
    odd and the others even.

    A share near 1 means counting only if the weights are small: with large weights, almost every sequence has a sum of its
    own, which explains any ξ.

    Args:
        sequence: ξ of all 2ᴸ sequences in lexicographic order, shape (M, 2ᴸ, d).
        task: the task that the sequences belong to, with p = 2; `Task.relevant` gives its relevant positions.

    Returns:
        Weights, shape (M, L), with a positive one at the first relevant position, and the share of the variance of ξ that
        Σ m_t x_t explains, shape (M,). If the token at some relevant position has no effect, both are 0.

    Raises:
        ValueError: if the label depends on no position.

    Source: the chapter "Circuits in the wild".
    """
    check_all_sequences(sequence, task)
    if task.p != 2:
        raise ValueError(
            f"task must have two tokens, got {task.p}: of more tokens, one need not add a multiple of what another adds; "
            "token_effects measures what each adds"
        )
    if not task.relevant:
        raise ValueError(f"task must have a label that depends on some token, got {task}")
    tokens = task.all()[0].to(sequence.dtype)
    effects = position_effects(sequence, task)
    least = effects[:, list(task.relevant)].amin(1, keepdim=True)
    sizes = torch.where(least > 1e-6, effects / least.clamp_min(1e-6), 0.0).sqrt().round()
    differences = torch.einsum("mnd,nt->mtd", sequence, 2 * tokens - 1)
    axis = torch.linalg.svd(differences, full_matrices=False).Vh[:, 0]
    signs = torch.einsum("mtd,md->mt", differences, axis).sign()
    first = task.relevant[0]
    weights = sizes * signs * signs[:, first : first + 1]
    rest = sequence - level_means(sequence, (weights @ tokens.mT).round())
    total = (sequence - sequence.mean(1, keepdim=True)).square().sum((1, 2))
    return weights.long(), 1 - rest.square().sum((1, 2)) / total


def level_means(sequence: Tensor, level: Tensor) -> Tensor:
    """For each sequence, the mean of ξ (M, n, d) over the sequences of the same level (M, n)."""
    means = torch.empty_like(sequence)
    for at, (xi, own) in enumerate(zip(sequence, level, strict=True)):
        values, member = own.unique(return_inverse=True)
        sums = xi.new_zeros(len(values), xi.shape[1]).index_add(0, member, xi)
        means[at] = (sums / torch.bincount(member).unsqueeze(1))[member]
    return means


def token_effects(sequence: Tensor, tokens: Tensor, p: int) -> tuple[Tensor, Tensor]:
    """Effects f of each token at each position on ξ along its main axis a: the best fit ξ ≈ a Σ f_t(x_t) + constant.

    Args:
        sequence: ξ of sequences whose tokens are independent and uniform, shape (M, n, d).
        tokens: these sequences, shape (n, L), integers in 0 … p - 1; every token must occur at every position.
        p: size of the vocabulary.

    Returns:
        f, of mean 0 at each position, shape (M, L, p), and the share of the variance of ξ that Σ f_t explains, shape (M,).
        The axis is oriented so that, at the first position, token p - 1 adds at least as much as token 0.

    Source: the chapter "What decides success".
    """
    check_tensors(sequence=sequence)
    check_integers("tokens", tokens, check_count("p", p, 2))
    if sequence.ndim != 3 or tokens.ndim != 2 or sequence.shape[1] != len(tokens) or not sequence.numel():
        shapes = f"{tuple(sequence.shape)} and {tuple(tokens.shape)}"
        raise ValueError(f"sequence and tokens must have shapes (M, n, d) and (n, L), got {shapes}")
    pairs = one_hot(tokens, p).flatten(1).to(sequence.dtype)
    if not pairs.any(0).all():
        raise ValueError("tokens must have every token at every position")
    centered = sequence - sequence.mean(1, keepdim=True)
    effects = (pairs / pairs.sum(0)).T @ centered
    axis = torch.linalg.svd(effects, full_matrices=False).Vh[:, 0]
    along, seen = ((points @ axis.unsqueeze(-1)).squeeze(-1) for points in (effects, centered))
    sign = torch.where(along[:, p - 1] < along[:, 0], -1.0, 1.0).to(along).unsqueeze(1)  # the SVD does not fix it
    along, seen = sign * along, sign * seen
    gained = seen.square().mean(1) - (seen - along @ pairs.T).square().mean(1)
    return along.unflatten(1, (-1, p)), gained / centered.square().sum(-1).mean(1)


def cyclic_step(effects: Tensor, k: int) -> Tensor:
    """The step u for which, at each of the first k positions t, the rank of f_t(x) is u x + c_t modulo p; 0 if none exists.

    Args:
        effects: f from `token_effects`, shape (M, L, p).
        k: length of the prefix.

    Returns:
        Steps u, integers in 0 … p - 1, shape (M,).

    Source: the chapter "What decides success".
    """
    check_matrices(effects=effects)
    if effects.ndim != 3:
        raise ValueError(f"effects must have shape (M, L, p), got {tuple(effects.shape)}")
    if check_count("k", k) > effects.shape[1]:
        raise ValueError(f"k must be at most the {effects.shape[1]} positions, got {k}")
    ranks = effects[:, :k].argsort(-1).argsort(-1)
    steps = (ranks.roll(-1, -1) - ranks) % effects.shape[-1]
    one = steps.flatten(1)
    return torch.where((one == one[:, :1]).all(1), one[:, 0], 0)
