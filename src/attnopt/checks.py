"""Checks of arguments: each error names the argument and says what was expected and what was given."""

import numbers
import operator
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

Axis = Literal["sequence", "class"]


def axis_dim(axis: Axis) -> int:
    """The tensor dimension of an axis of an (..., S, K) array: -2 for "sequence", -1 for "class"."""
    check_word("axis", axis, get_args(Axis))
    return -2 if axis == "sequence" else -1


def check_word(name: str, value: str, words: Sequence[str]) -> None:
    """Require one of the given words."""
    if not isinstance(value, str) or value not in words:
        *others, last = (f'"{word}"' for word in words)
        raise ValueError(f"{name} must be {', '.join(others)} or {last}, got {value!r}")


def check_matrices(**arguments: Tensor) -> None:
    """Require finite, nonempty, real matrices (any leading dimensions) of one dtype and device."""
    _check_arrays(2, "a matrix or a batch of matrices", arguments)


def check_vectors(**arguments: Tensor) -> None:
    """Require finite, nonempty, real vectors (any leading dimensions) of one dtype and device."""
    _check_arrays(1, "a vector or a batch of vectors", arguments)


def _check_arrays(least: int, kind: str, arguments: dict[str, Tensor]) -> None:
    """Require nonempty tensors with finite entries and at least ``least`` dimensions."""
    check_tensors(**arguments)
    for name, value in arguments.items():
        if value.ndim < least:
            raise ValueError(f"{name} must be {kind}, got shape {tuple(value.shape)}")
        check_entries(name, value)


def check_tensors(**arguments: Tensor) -> None:
    """Require tensors of real floating-point numbers, of one dtype and device, with any values."""
    first_name, first = next(iter(arguments.items()))
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")
        if not value.dtype.is_floating_point:
            raise TypeError(f"{name} must have a real floating-point dtype, got {value.dtype}")
        if value.dtype != first.dtype:
            raise TypeError(f"{name} must have the dtype of {first_name}, {first.dtype}, got {value.dtype}")
        if value.device != first.device:
            raise ValueError(f"{name} must be on the device of {first_name}, {first.device}, got {value.device}")
        check_dense(name, value)


def check_dense(name: str, value: Tensor) -> None:
    """Require a tensor that stores all its numbers: dense, and not on the device meta."""
    if value.is_meta:
        raise ValueError(f"{name} must hold numbers, got a tensor on the device meta")
    if value.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, got the layout {value.layout}")


def as_numbers(name: str, value: Tensor | Sequence[float]) -> Tensor:
    """A tensor of finite real numbers with at least one dimension, float64 unless a tensor is given."""
    if not isinstance(value, Tensor):
        try:
            truths = has_truth(value if isinstance(value, Sequence) else torch.as_tensor(value))
            number = None if truths else torch.as_tensor(value, dtype=torch.float64)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            number = None
        if number is None:
            raise TypeError(f"{name} must be real numbers, got {value!r}")
        value = number
    check_vectors(**{name: value})
    return value


def check_entries(name: str, value: Tensor) -> None:
    """Require a nonempty tensor with finite entries."""
    if 0 in value.shape:
        raise ValueError(f"{name} must not be empty, got shape {tuple(value.shape)}")
    if not torch.isfinite(value).all():
        raise ValueError(f"{name} must be finite, got {value[~torch.isfinite(value)][0].item()}")


def as_column(vector: Tensor) -> Tensor:
    """A vector as a matrix of one column, for these checks; a non-tensor is returned unchanged, for them to reject."""
    return vector.unsqueeze(-1) if isinstance(vector, Tensor) else vector


def check_matrix_shape(name: str, value: Tensor, expected: Sequence[int], why: str) -> None:
    """Require the last two dimensions of ``value`` to be ``expected``; ``why`` says where the expectation comes from."""
    if tuple(value.shape[-2:]) != tuple(expected):
        raise ValueError(f"{name} must have shape (..., {expected[0]}, {expected[1]}) {why}, got {tuple(value.shape)}")


def check_broadcast(own: int | dict[str, int] = 2, /, **arguments: Tensor) -> None:
    """Require leading dimensions to broadcast: all except the last two of each tensor, or the last ``own``."""
    counts = own if isinstance(own, dict) else dict.fromkeys(arguments, own)
    try:
        torch.broadcast_shapes(*(value.shape[: value.ndim - counts[name]] for name, value in arguments.items()))
    except RuntimeError:
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in arguments.items())
        raise ValueError(f"the leading dimensions must broadcast, got {shapes}") from None


def check_symmetric(name: str, value: Tensor, factored: bool = True) -> None:
    """Require symmetric matrices, up to the square root of the dtype's epsilon relative to the largest entry.

    Args:
        name: the argument's name.
        value: the matrices.
        factored: whether they will be factored, which PyTorch does only in float32 and float64.
    """
    if factored and value.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"{name} must be of dtype torch.float32 or torch.float64, got {value.dtype}")
    check_matrix_shape(name, value, (value.shape[-1], value.shape[-1]), "(it must be square)")
    asymmetry = (value - value.mT).abs().amax((-2, -1))
    scale = value.abs().amax((-2, -1))
    if (asymmetry > torch.finfo(value.dtype).eps ** 0.5 * scale).any():
        raise ValueError(f"{name} must be symmetric, got a largest asymmetry of {asymmetry.max().item():.3g}")


def check_labels(labels: Tensor, axis: Axis, name: str = "labels") -> None:
    """Require non-negative labels, or other shares, that sum to 1 along ``axis``, to within √epsilon."""
    if (labels < 0).any():
        raise ValueError(f"{name} must be non-negative, got {labels.min().item():.3g}")
    sums = labels.sum(axis_dim(axis))
    worst = (sums - 1).abs().argmax()
    tolerance = torch.finfo(labels.dtype).eps ** 0.5
    if (sums.flatten()[worst] - 1).abs() > tolerance:
        raise ValueError(f"{name} must sum to 1 along the {axis} axis, got a sum of {sums.flatten()[worst].item():.6g}")


def check_count(name: str, value: int, least: int = 1) -> int:
    """Require a whole number of at least ``least`` (not a truth value), and return it as an `int`."""
    try:
        if is_truth(value):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None
    if not least <= count < 2**63:
        limit = f"at least {least}" if count < least else "less than 2⁶³"
        raise ValueError(f"{name} must be {limit}, got {count if abs(count) < 2**64 else f'{count.bit_length()} bits'}")
    return count


def check_flag(name: str, value: bool) -> None:
    """Require True or False itself, not a value that merely counts as one."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def check_number(name: str, value: float, above: float = 0.0, least: float | None = None) -> None:
    """Require a finite real number above a limit, or at least ``least`` if that is given."""
    single = isinstance(value, Tensor) and value.ndim == 0 and value.is_floating_point() and not value.is_meta
    if not (isinstance(value, numbers.Real) or single) or is_truth(value):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if isinstance(value, int) and abs(value) >= 2**1023:
        raise ValueError(f"{name} must be a number that float64 can hold, got {value.bit_length()} bits")
    if not (above < value if least is None else least <= value) or not value < float("inf"):
        limit = f"at least {least:g}" if least is not None else "positive" if above == 0 else f"more than {above:g}"
        raise ValueError(f"{name} must be {limit} and finite, got {value}")


def is_truth(value: object) -> bool:
    """Whether something is a truth value, which Python counts among the integers."""
    return isinstance(value, bool | np.bool_) or getattr(value, "dtype", None) == torch.bool


def has_truth(value: object) -> bool:
    """Whether something is a truth value, or a sequence that holds one at any depth."""
    return any(map(has_truth, value)) if isinstance(value, (list, tuple)) else is_truth(value)


MOST_SECONDS, MOST_GIB = 300.0, 4.0  # most seconds on one core, and most memory, that a call may take


def check_cost(names: str, got: object, seconds: float = 0.0, gib: float = 0.0) -> None:
    """Require a call to take no more than `MOST_SECONDS` and `MOST_GIB`, as estimated before it begins."""
    for cost, most, unit in ((seconds, MOST_SECONDS, "seconds"), (gib, MOST_GIB, "GiB")):
        if cost > most:
            raise ValueError(f"{names} must be such that a call takes at most {most:g} {unit}, got {got}: about {cost:.2g}")


def check_generator(name: str, value: torch.Generator) -> None:
    """Require a generator: nothing here draws from torch's global one."""
    if not isinstance(value, torch.Generator):
        raise TypeError(f"{name} must be a torch.Generator, got {value!r}")


def check_dtype(name: str, value: torch.dtype) -> None:
    """Require the dtype of real floating-point numbers."""
    if not isinstance(value, torch.dtype) or not value.is_floating_point:
        raise TypeError(f"{name} must be a real floating-point dtype, got {value!r}")


def check_device(name: str, value: torch.device | str) -> None:
    """Require a device that holds numbers and that PyTorch reaches on this machine."""
    try:
        found = torch.empty(0, device=value)
    except (RuntimeError, TypeError, AssertionError, NotImplementedError):
        found = None
    if found is None or found.is_meta:
        raise ValueError(f"{name} must be a device that holds numbers and is there, got {value!r}")


def check_integers(name: str, value: Tensor, below: int | None = None) -> None:
    """Require a tensor of whole numbers, of any shape; if ``below`` is given, in 0 … below - 1."""
    if not isinstance(value, Tensor) or is_truth(value) or value.is_floating_point() or value.is_complex():
        found = value.dtype if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(f"{name} must be a tensor of integers, got {found}")
    check_dense(name, value)
    if below is not None and value.numel() and (value.min() < 0 or value.max() >= below):
        raise ValueError(f"{name} must lie in 0 … {below - 1}, got {value.min().item()} … {value.max().item()}")


def check_covariance(name: str, value: Tensor) -> None:
    """Require symmetric positive definite matrices."""
    check_matrices(**{name: value})
    check_symmetric(name, value)
    if torch.linalg.cholesky_ex(value).info.any():
        smallest = torch.linalg.eigvalsh(value).min().item()
        raise ValueError(f"{name} must be positive definite, got a smallest eigenvalue of {smallest:.3g}")
