"""The small transformer of the clustering-head paper, many models at once."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import gelu

from attnopt.checks import check_count, check_dtype, check_generator, check_integers, check_tensors, check_word
from attnopt.clustering.task import check_task

Params = dict[str, Tensor]
Norm = Literal["unit", "rms", "smooth"]
TRAINED = ("query", "value", "receptors", "assemblers")  # the weights of the paper's theory
BIASES = ("receptor_biases", "assembler_bias")
NEAR = 0.01  # so near to 0, and to 1, the smooth step is 0, and 1, but for e⁻⁹⁸


def init_model(
    n_models: int,
    p: int,
    length: int,
    dim: int = 2,
    width: int = 32,
    *,
    generator: torch.Generator,
    biases: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Params:
    """Random weights for an ensemble of models: embeddings N(0, 1), the rest uniform in ± 1/√(inputs).

    Args:
        n_models: how many models, M.
        p: size of the vocabulary.
        length: L, tokens a sequence.
        dim: d, the width of the embeddings.
        width: h, neurons of the feed-forward layer.
        generator: draws them, on its device.
        biases: whether the feed-forward layer has them (section 2.2 and the released code do, the theory does not).
        dtype: of the weights.

    Returns:
        ``token`` E (M, p, d), ``position`` P (M, L, d), ``query`` q (M, d), ``value`` V (M, d, d),
        ``receptors`` W (M, h, d), ``assemblers`` U (M, d, h), and with biases ``receptor_biases``
        (M, h), ``assembler_bias`` (M, d).

    Raises:
        TypeError: if a number is not an integer, ``generator`` none or ``dtype`` not that of real numbers.
        ValueError: if a number is smaller than 1, or p than 2.

    Source: Odonnat, Bouaziz, Cabannes (2025), section 2.2; the initialisation is that of their released code.
    """
    p, length, _ = check_task(p, length, 1)
    check_generator("generator", generator)
    check_dtype("dtype", dtype)
    models, dim, width = check_count("n_models", n_models), check_count("dim", dim), check_count("width", width)
    like = {"dtype": dtype, "device": generator.device, "generator": generator}

    def uniform(*shape: int, inputs: int) -> Tensor:
        return (2 * torch.rand(models, *shape, **like) - 1) / inputs**0.5

    params = {
        "token": torch.randn(models, p, dim, **like),
        "position": torch.randn(models, length, dim, **like),
        "query": uniform(dim, inputs=dim),
        "value": uniform(dim, dim, inputs=dim),
        "receptors": uniform(width, dim, inputs=dim),
        "assemblers": uniform(dim, width, inputs=width),
    }
    if biases:
        params["receptor_biases"] = uniform(width, inputs=dim)
        params["assembler_bias"] = uniform(dim, inputs=width)
    return params


def normalise(vectors: Tensor, norm: Norm) -> Tensor:
    """Vectors of length 1 ("unit"), or divided by 1e-5 plus their root mean square ("rms"), or smoothed ("smooth").

    The paper's formula is "unit"; its released code is "rms", with vectors of length √d. "smooth" is √d σ(r) x/r
    for a vector x of length r, as section 4.2 proposes (without √d) for a smooth σ with σ(0) = 0 that is 1 from 1 on. Ours
    goes over from r to 1 as `smooth_step` does, and has derivatives of every order. The zero vector stays zero. There "unit"
    has no derivative, and gets the derivative 0; "rms" has the derivative 10⁵ times the identity, "smooth" √d times.

    Raises:
        TypeError: if ``vectors`` is not a real floating-point tensor.
        ValueError: if ``norm`` is none of the three, or ``vectors`` is a single number.
    """
    check_word("norm", norm, get_args(Norm))
    check_tensors(vectors=vectors)
    if vectors.ndim < 1 or vectors.shape[-1] == 0:
        raise ValueError(f"vectors must have components, got shape {tuple(vectors.shape)}")
    lengths = vectors.norm(dim=-1, keepdim=True)
    if norm == "unit":
        return torch.where(lengths > 0, vectors / torch.where(lengths > 0, lengths, 1.0), 0.0)
    if norm == "rms":
        return vectors / (lengths / vectors.shape[-1] ** 0.5 + 1e-5)
    lengths = lengths.clamp_min(NEAR)
    step = smooth_step(lengths)
    return vectors.shape[-1] ** 0.5 * vectors * (1 - step + step / lengths)


def smooth_step(values: Tensor) -> Tensor:
    """e(r)/(e(r) + e(1 - r)) with e(r) = exp(-1/r): 0 up to 0, 1 from 1 on, all derivatives 0 at both; 1/2 at 1/2."""
    inner = values.clamp(NEAR, 1 - NEAR)
    return torch.sigmoid((2 * inner - 1) / (inner * (1 - inner)))


def embedding_table(params: Params, norm: Norm = "unit") -> Tensor:
    """Z(x, t), the normalised sum of the embeddings of token x and position t, for all pairs, shape (M, p, L, d).

    Raises:
        TypeError: if ``token`` or ``position`` is not a real floating-point tensor.
        ValueError: if one of them is missing or does not fit the other, or ``norm`` is unknown.
    """
    check_embeddings(params)
    return normalise(params["token"].unsqueeze(-2) + params["position"].unsqueeze(-3), norm)


def forward(
    params: Params, tokens: Tensor, return_stages: bool = False, norm: Norm = "unit"
) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
    """Logits of every model on every sequence.

    Normalised, the zero vector stays zero: ξ = 0 gives the logits of the feed-forward layer at 0, and with "unit" its
    gradient comes through the residual connection alone (likewise where ‖ξ‖² underflows to 0). A model with weights that
    are not finite has such logits; the others of the ensemble are not affected.

    Args:
        params: as from `init_model`.
        tokens: sequences, integers in 0 … p - 1, shape (n, L), the same for all models, or (M, n, L).
        return_stages: also return what each stage holds.
        norm: which normalisation both layers use, "unit", "rms" or "smooth".

    Returns:
        Logits ζ, shape (M, n, p). With ``return_stages`` also a dict of ``embeddings`` z (M, n, L, d), ``attention`` s
        (M, n, L), ``mixture`` zs, the mean embedding under attention (M, n, d), ``sequence`` ξ (M, n, d), ``direction`` ξ
        normalised (M, n, d), ``activations`` (M, n, h) before the GELU, ``output`` ψ (M, n, d).

    Raises:
        TypeError: if tokens are not integers.
        ValueError: if tokens lie outside 0 … p - 1, their length is not that of the positions, or a parameter is missing,
            unknown or of a shape that does not fit.

    Source: Odonnat, Bouaziz, Cabannes (2025), section 2.2, Appendix C.2.
    """
    check_params(params)
    check_tokens(params, tokens)
    table = embedding_table(params, norm)
    models, _, length, dim = table.shape
    scores = torch.einsum("mptd,md->mpt", table, params["query"]) / dim**0.5
    tokens = tokens.expand(models, -1, -1) if tokens.ndim == 2 else tokens
    at = tokens * length + torch.arange(length, device=tokens.device)
    flat = at.flatten(1)
    embeddings = table.flatten(1, 2).gather(1, flat.unsqueeze(-1).expand(-1, -1, dim)).unflatten(1, at.shape[1:])
    attention = scores.flatten(1).gather(1, flat).unflatten(1, at.shape[1:]).softmax(-1)
    mixture = torch.einsum("mnt,mntd->mnd", attention, embeddings)
    sequence = mixture @ params["value"].mT
    direction = normalise(sequence, norm)
    activations = direction @ params["receptors"].mT
    if "receptor_biases" in params:
        activations = activations + params["receptor_biases"].unsqueeze(1)
    output = sequence + gelu(activations) @ params["assemblers"].mT
    if "assembler_bias" in params:
        output = output + params["assembler_bias"].unsqueeze(1)
    logits = output @ params["token"].mT
    if not return_stages:
        return logits
    return logits, {
        "embeddings": embeddings,
        "attention": attention,
        "mixture": mixture,
        "sequence": sequence,
        "direction": direction,
        "activations": activations,
        "output": output,
    }


def sequences_by_table(params: Params, tokens: Tensor, norm: Norm = "unit") -> Tensor:
    """The sequence embeddings ξ of `forward` as one matrix product for all models and sequences.

    A sequence, as a row of L ones among pL zeros, times the table with the rows (eˢVZ, eˢ) gives numerator and denominator
    of ξ. Nothing is subtracted from a score s before exponentiating.

    Args:
        params: as from `init_model`.
        tokens: sequences, integers in 0 … p - 1, shape (n, L).
        norm: the normalisation.

    Returns:
        ξ, shape (M, n, d).

    Raises:
        TypeError: if tokens are not integers.
        ValueError: if tokens or parameters do not fit, or exponentials of the scores may over- or underflow: scores must
            stay within about ±700 in float64, ±80 in float32.

    Source: the chapter "The task and the model".
    """
    check_params(params)
    check_tokens(params, tokens)
    if tokens.ndim != 2:
        raise ValueError(f"tokens must have shape (n, L), the same sequences for all models, got {tuple(tokens.shape)}")
    table = embedding_table(params, norm).flatten(1, 2)
    models, pairs, dim = table.shape
    scores = table @ params["query"].unsqueeze(-1) / dim**0.5
    values = table @ params["value"].mT
    numbers, largest = torch.finfo(scores.dtype), max(values.abs().max().item(), 1.0)
    safe = min(math.log(numbers.max / tokens.shape[1] / largest), -math.log(numbers.tiny))
    if not scores.abs().max() < safe:
        raise ValueError(f"scores must lie within ±{safe:.0f}, got one of size {scores.abs().max().item():.4g}")
    rows = torch.cat([scores.exp() * values, scores.exp()], -1)
    at = tokens * tokens.shape[1] + torch.arange(tokens.shape[1], device=tokens.device)
    marks = torch.zeros(len(tokens), pairs, dtype=table.dtype, device=table.device).scatter_(1, at, 1.0)
    sums = (marks @ rows.permute(1, 0, 2).flatten(1)).unflatten(1, (models, dim + 1)).movedim(0, 1)
    return sums[..., :-1] / sums[..., -1:]


def check_embeddings(params: Params) -> None:
    """Require ``token`` (M, p, d) and ``position`` (M, L, d).

    Raises:
        TypeError: if params is no dict, or one of them not a real floating-point tensor, or of another dtype.
        ValueError: if one of them is missing, or of a shape or on a device that does not fit.
    """
    if not isinstance(params, dict):
        raise TypeError(f"params must be a dict as from init_model, got {type(params).__name__}")
    if missing := [name for name in ("token", "position") if name not in params]:
        raise ValueError(f"params must have the names of init_model, missing {missing}")
    token, position = params["token"], params["position"]
    check_tensors(token=token, position=position)
    for name, value in (("token", token), ("position", position)):
        if value.ndim != 3 or 0 in value.shape:
            raise ValueError(f"{name} must have three dimensions, none empty, got {tuple(value.shape)}")
    if position.shape[::2] != token.shape[::2]:
        raise ValueError(f"position must have shape ({len(token)}, L, {token.shape[2]}), got {tuple(position.shape)}")


def check_params(params: Params) -> None:
    """Require the parameters of an ensemble, each shaped to fit ``token`` (M, p, d), ``position`` (M, L, d) and h.

    Raises:
        TypeError: if params is no dict, or one of them not a real floating-point tensor, or of another dtype.
        ValueError: if one is missing, unknown, of another shape or on another device.
    """
    check_embeddings(params)
    missing = [name for name in TRAINED if name not in params]
    unknown = [name for name in params if name not in ("token", "position", *TRAINED, *BIASES)]
    if missing or unknown:
        raise ValueError(f"params must have the names of init_model, missing {missing}, unknown {unknown}")
    check_tensors(**params)
    models, _, dim = params["token"].shape
    if params["receptors"].ndim != 3 or 0 in params["receptors"].shape:
        raise ValueError(f"receptors must have three dimensions, none empty, got {tuple(params['receptors'].shape)}")
    width = params["receptors"].shape[1]
    for name, shape in {
        "query": (models, dim),
        "value": (models, dim, dim),
        "receptors": (models, width, dim),
        "assemblers": (models, dim, width),
        "receptor_biases": (models, width),
        "assembler_bias": (models, dim),
    }.items():
        if name in params and params[name].shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {tuple(params[name].shape)}")


def check_tokens(params: Params, tokens: Tensor) -> None:
    """Require sequences of tokens that the models know.

    Raises:
        TypeError: if tokens are not integers.
        ValueError: if their shape or a token does not fit the parameters.
    """
    models, p, _ = params["token"].shape
    check_integers("tokens", tokens, p)
    length = params["position"].shape[-2]
    if tokens.ndim not in (2, 3) or tokens.shape[-1] != length or 0 in tokens.shape:
        raise ValueError(f"tokens must have shape (n, {length}) or ({models}, n, {length}), got {tuple(tokens.shape)}")
    if tokens.ndim == 3 and tokens.shape[0] != models:
        raise ValueError(f"tokens must have one set of sequences a model, {models}, got {tokens.shape[0]}")
