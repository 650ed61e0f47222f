"""What a trained model is made of: where its attention goes, what its embeddings depend on, how many neurons it uses."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import gelu, one_hot

from attnopt.checks import as_numbers, check_count, check_integers, check_matrices, check_tensors
from attnopt.clustering.task import Task, check_all_sequences


def attention_by_pair(attention: Tensor, tokens: Tensor) -> Tensor:
    """The attention that each token gets at each position where it stands, as a mean over sequences.

    Args:
        attention: on each token of the sequences, shape (M, n, L), as from `Models.stages`.
        tokens: sequences, shape (n, L); each of the tokens 0 … p - 1 must occur at each position in one of them.

    Returns:
        Shape (M, p, L). Over all sequences, its mean over the tokens is the attention on each position.

    Raises:
        ValueError: if a token never occurs at some position.
    """
    check_tensors(attention=attention)
    check_integers("tokens", tokens)
    if attention.ndim != 3 or attention.shape[1:] != tokens.shape or not tokens.numel():
        raise ValueError(f"attention must have shape (M, *{tuple(tokens.shape)}), got {tuple(attention.shape)}")
    check_integers("tokens", tokens, len(tokens))  # of more tokens one would be missing somewhere
    there = torch.stack([tokens == token for token in range(int(tokens.max()) + 1)]).to(attention.dtype)
    if (there.sum(1) == 0).any():
        raise ValueError("tokens must have every token at every position, got none of one of them somewhere")
    return torch.einsum("mnt,vnt->mvt", attention, there) / there.sum(1)


def activation_sparsity(activations: Tensor, thresholds: Sequence[float]) -> Tensor:
    """Share of the activations σ(Wξ̄ + b), over sequences and neurons, whose size lies below each threshold.

    Args:
        activations: before the GELU, shape (M, n, h), as from `Models.stages`.
        thresholds: ε, E of them, in any order.

    Returns:
        Shape (M, E), in their order, 1 if all activations are within ε of 0, 0 if none is.

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
    """The share of the variance of ξ that remains if all other tokens are known, for each position: E Var(ξ | others)/Var ξ.

    Args:
        sequence: ξ of all pᴸ sequences in lexicographic order, shape (M, pᴸ, d).
        task: whose.

    Returns:
        Shape (M, L). The total-effect index of sensitivity analysis.
    """
    check_all_sequences(sequence, task)
    total = (sequence - sequence.mean(1, keepdim=True)).square().sum(-1).mean(1)
    left = []
    for position in range(task.length):
        alone = sequence.unflatten(1, (task.p**position, task.p, -1))
        left.append((alone - alone.mean(2, keepdim=True)).square().sum(-1).flatten(1).mean(1))
    return torch.stack(left, 1) / total.unsqueeze(1)


def counting_form(sequence: Tensor, task: Task) -> tuple[Tensor, Tensor]:
    """The integer weights m for which ξ is most nearly a function of Σ m_t x_t, and how nearly, for p = 2.

    Sizes are the roots of the positions' total effects, in units of the least at a relevant position, rounded; signs are
    those of E[ξ | x_t = 1] - E[ξ | x_t = 0] along the axis on which these differences are longest. A label
    that is the sum of the relevant tokens modulo 2 is Σ m_t x_t modulo 2 if their weights are odd and the others even.

    Args:
        sequence: ξ of all 2ᴸ sequences in lexicographic order, shape (M, 2ᴸ, d).
        task: whose, with p = 2; see `Task.relevant` for the positions that count.

    A share near 1 means counting only where the weights are small: with large ones almost every sequence has a sum of its
    own, which explains whatever ξ is.

    Returns:
        Weights, shape (M, L), that of the first relevant position positive, and the share of the variance of ξ that
        Σ m_t x_t explains, shape (M,). Where the token at some relevant position has no effect, both are 0.

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
    """For each sequence the mean of ξ over those of its level, both of shape (M, n, …)."""
    means = torch.empty_like(sequence)
    for at, (xi, own) in enumerate(zip(sequence, level, strict=True)):
        values, member = own.unique(return_inverse=True)
        sums = xi.new_zeros(len(values), xi.shape[1]).index_add(0, member, xi)
        means[at] = (sums / torch.bincount(member).unsqueeze(1))[member]
    return means


def token_effects(sequence: Tensor, tokens: Tensor, p: int) -> tuple[Tensor, Tensor]:
    """What each token at each position adds to ξ along its main axis: the best f in ξ ≈ a Σ f_t(x_t) + constant.

    Args:
        sequence: ξ of sequences whose tokens are independent and uniform, shape (M, n, d).
        tokens: these sequences, shape (n, L), integers in 0 … p - 1, every token at every position.
        p: size of the vocabulary.

    Returns:
        f, of mean 0 at each position, shape (M, L, p), and the share of the variance of ξ that its sum explains, shape (M,).
        The axis points such that at the first position the last token adds no less than the first one.

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
    sign = torch.where(along[:, p - 1] < along[:, 0], -1.0, 1.0).to(along).unsqueeze(1)  # svd leaves it open
    along, seen = sign * along, sign * seen
    gained = seen.square().mean(1) - (seen - along @ pairs.T).square().mean(1)
    return along.unflatten(1, (-1, p)), gained / centered.square().sum(-1).mean(1)


def cyclic_step(effects: Tensor, k: int) -> Tensor:
    """The u for which the ranks r_t of f_t at each of the first k positions are u x + c_t modulo p, 0 if there is none.

    Args:
        effects: f from `token_effects`, shape (M, L, p).
        k: length of the prefix.

    Returns:
        Integers in 0 … p - 1, shape (M,).

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
