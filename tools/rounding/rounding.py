"""Rounding as on another machine: results of floating-point kernels are moved by up to two units in the last place.

Where a sum, a product of matrices, an exponential or a decomposition is computed by another library or processor, its last
digits are others. This module moves them at random, in PyTorch by a dispatch mode, in NumPy and SciPy by wrapped functions
(the operator ``@`` of NumPy alone is out of reach: other kernels of its BLAS are tried instead, see `run.py portability`).
Numbers of at most 32 significant bits (16 in single precision) stay, as any order of summation gives them exactly.
Eigenvectors and singular vectors change their signs, too, and bases of a repeated eigenvalue turn, since what is decomposed
is moved before. Whatever then changes in a notebook or a test would be otherwise on somebody's machine.

In a notebook, a formatted string that rounds a number which might as well have been rounded the other way is an error.

Kernels of notebooks call `install` through `sitecustomize.py`; for tests this module is a plugin of pytest:

    ROUNDING_NOISE=1 PYTHONPATH=tools/rounding .venv/bin/python -m pytest -p rounding tests/regression
"""

import ast
import builtins
import functools
import importlib
import os
import random

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

KERNELS = """
    mm bmm addmm baddbmm dot vdot mv addmv addbmm addr matmul einsum _trilinear trace exp exp2 expm1 log log2 log10
    log1p logsumexp logaddexp logcumsumexp xlogy sum nansum mean nanmean prod cumsum cumprod norm linalg_vector_norm
    var std var_mean std_mean dist cdist _cdist_forward hypot pow rsqrt addcmul addcdiv lerp sigmoid
    sigmoid_backward tanh tanh_backward gelu gelu_backward sin cos tan asin acos atan atan2 sinh cosh asinh acosh
    atanh erf erfc erfinv lgamma digamma polygamma mvlgamma _softmax _log_softmax _softmax_backward_data
    _log_softmax_backward_data native_layer_norm native_layer_norm_backward cholesky cholesky_inverse cholesky_solve
    triangular_solve lu_unpack
"""  # of PyTorch, whose last digits depend on the machine
NOISY = frozenset(KERNELS.split())
METHODS = ("outer", "reduce", "accumulate", "at", "nin", "nout", "nargs", "ntypes", "types", "identity", "signature")
# The integer of the same size, the bits that are zero in a short fraction, and those that are zero in a subnormal number.
SIZES = {
    np.dtype(np.float64): (np.int64, 0x1FFFFF, 0x7FF << 52),
    np.dtype(np.float32): (np.int32, 0xFF, 0xFF << 23),
}
POOL = 1 << 14
UNSURE = 3e-13  # numbers are taken to be known to this share of them


class Shaker:
    """Moves numbers in place, by a stream of its own."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        steps = np.random.default_rng(seed).integers(-2, 3, 2 * POOL)
        self.pools = {kind: steps.astype(kind) for kind, *_ in SIZES.values()}

    def move(self, values: np.ndarray) -> None:
        """Add up to two units in the last place to each number that is no short binary fraction."""
        kind, low, exponent = SIZES[values.dtype]
        flat = values.reshape(-1).view(kind)
        pool = self.pools[kind]
        for start in range(0, len(flat), POOL):
            part = flat[start : start + POOL]
            offset = self.random.randrange(POOL)
            part += pool[offset : offset + len(part)] * (((part & low) != 0) & ((part & exponent) != 0))

    def shaken(self, values: object) -> object:
        """Moved copies of the arrays and numbers in what NumPy or SciPy returns."""
        if isinstance(values, np.floating | float) and not isinstance(values, bool):
            array = np.array([values])
            if array.dtype not in SIZES:
                return values
            self.move(array)
            return type(values)(array[0])
        if isinstance(values, np.ndarray):
            if values.dtype.kind == "c" and values.dtype.itemsize in (8, 16):
                return self.shaken(values.real) + 1j * self.shaken(values.imag)
            if values.dtype in SIZES:
                values = np.array(values, order="C", copy=True)
                self.move(values)
            return values
        if isinstance(values, tuple):
            parts = [self.shaken(part) for part in values]
            return type(values)(*parts) if hasattr(values, "_fields") else tuple(parts)
        return values

    def signs(self, count: int) -> np.ndarray:
        """So many ones and minus ones."""
        return np.array([self.random.choice((-1.0, 1.0)) for _ in range(count)])


def is_moved(value: object) -> bool:
    """Whether a result is a tensor in the main memory whose numbers can be moved."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.dtype in (torch.float64, torch.float32)
        and value.device.type == "cpu"
        and value.numel() > 0
        and not (value._is_zerotensor() or value.is_neg())
    )


class Noise(TorchDispatchMode):
    """Moves what PyTorch's kernels return."""

    def __init__(self, shaker: Shaker):
        super().__init__()
        self.shaker, self.kinds = shaker, {}

    def kind(self, func: object) -> str:
        """Whether a kernel's results are exact, rounded or those of a decomposition."""
        name = func._schema.name.split("::")[-1]
        if name.startswith(("linalg_", "_linalg_")) and not name.endswith("_norm"):
            return "decomposition"
        return "rounded" if name.removesuffix("_") in NOISY or name.startswith("special_") else "exact"

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run a kernel and move its results in place."""
        kind = self.kinds.get(func)
        if kind is None:
            kind = self.kinds[func] = self.kind(func)
        if kind == "exact":
            return func(*args, **(kwargs or {}))
        if kind == "decomposition":
            args = tuple(self.moved(arg.clone()) if is_moved(arg) else arg for arg in args)
        out = func(*args, **(kwargs or {}))
        if is_moved(out):
            return self.moved(out)
        if isinstance(out, tuple | list):
            for part in out:
                if is_moved(part):
                    self.moved(part)
            self.flip(func._schema.name, out)
        return out

    def moved(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, moved in place."""
        if tensor.is_contiguous():
            self.shaker.move(tensor.detach().numpy())
        else:
            copy = tensor.detach().contiguous()
            self.shaker.move(copy.numpy())
            tensor.detach().copy_(copy)
        return tensor

    def flip(self, name: str, out: tuple) -> None:
        """Other signs of eigenvectors and of pairs of singular vectors."""
        if "_linalg_eigh" in name and out[1].numel() and not out[1].is_complex():
            out[1].mul_(torch.from_numpy(self.shaker.signs(out[1].shape[-1])).to(out[1].dtype))
        if "_linalg_svd" in name and out[0].numel() and not out[0].is_complex():
            signs = torch.from_numpy(self.shaker.signs(min(out[0].shape[-1], out[2].shape[-2]))).to(out[0].dtype)
            out[0][..., : len(signs)].mul_(signs)
            out[2][..., : len(signs), :].mul_(signs[:, None])


# What is wrapped where: results moved; "fun": so is what the function handed over returns.
WRAPPED = {
    "numpy": "exp log log2 log10 log1p expm1 sin cos tan arcsin arccos arctan arctan2 sinh cosh tanh hypot sum nansum mean "
    "nanmean std var prod cumsum cumprod dot vdot inner outer tensordot einsum convolve trace "
    "average polyval polyfit interp power float_power trapezoid cov corrcoef kron vander roots",
    "numpy.linalg": "norm inv solve lstsq eigvalsh eigvals eig cholesky det slogdet pinv qr matrix_power cond",
    "numpy.polynomial.legendre": "leggauss",
    "numpy.polynomial.hermite_e": "hermegauss",
    "scipy.linalg": "eigvalsh_tridiagonal eigh_tridiagonal eigvalsh solve inv expm sqrtm logm cholesky lstsq norm qr",
    "scipy.special": "roots_hermitenorm roots_genlaguerre roots_legendre roots_jacobi gammaln gamma erf erfc softmax "
    "logsumexp comb binom betainc betaln lambertw expit",
    "scipy.optimize": "brentq",
}
GIVEN = {"scipy.optimize": "brentq minimize minimize_scalar least_squares root fsolve", "scipy.integrate": "solve_ivp quad"}


def shake_numpy(shaker: Shaker) -> None:
    """Wrap the functions of NumPy and SciPy whose last digits depend on the machine."""

    def returned(function):
        @functools.wraps(function, updated=())
        def wrapper(*args, **kwargs):
            out = function(*args, **kwargs)
            return out if kwargs.get("out") is not None else shaker.shaken(out)

        for part in (
            "outer",
            "reduce",
            "accumulate",
            "at",
            "nin",
            "nout",
            "nargs",
            "ntypes",
            "types",
            "identity",
            "signature",
        ):
            if isinstance(function, np.ufunc):  # others use its methods
                setattr(wrapper, part, getattr(function, part))
        return wrapper

    def given(function):
        @functools.wraps(function)
        def wrapper(fun, *args, **kwargs):
            return function(lambda *a, **k: shaker.shaken(fun(*a, **k)), *args, **kwargs)

        return wrapper

    for table, wrap in ((GIVEN, given), (WRAPPED, returned)):
        for place, names in table.items():
            module = importlib.import_module(place)
            for name in names.split():
                if hasattr(module, name) and not isinstance(getattr(module, name), type):
                    setattr(module, name, wrap(getattr(module, name)))
    module = np.linalg
    eigh, svd = module.eigh, module.svd

    def signed_eigh(a, *args, **kwargs):
        found = eigh(shaker.shaken(np.asarray(a)), *args, **kwargs)
        return type(found)(shaker.shaken(found[0]), found[1] * shaker.signs(found[1].shape[-1]))

    def signed_svd(a, *args, **kwargs):
        found = svd(shaker.shaken(np.asarray(a)), *args, **kwargs)
        if isinstance(found, np.ndarray):
            return shaker.shaken(found)
        left, values, right = (np.array(part) for part in found)
        signs = shaker.signs(values.shape[-1])
        left[..., : len(signs)] *= signs
        right[..., : len(signs), :] *= signs[:, None]
        return type(found)(left, shaker.shaken(values), right)

    module.eigh, module.svd = signed_eigh, signed_svd


def install(seed: int) -> None:
    """Move results from here on, in this process."""
    import scipy.stats  # noqa: F401  (which takes functions from the modules that are wrapped below, and needs them as they are)

    shaker = Shaker(seed)
    shake_numpy(shaker)
    Noise(shaker).__enter__()


def told(value: object, spec: str) -> object:
    """A value that is about to be formatted, if its text does not hang on its last digits.

    Raises:
        ValueError: if it does; short binary fractions, which are exact, never do.
    """
    number = value.detach() if isinstance(value, torch.Tensor) else value
    if isinstance(number, bool | int | str) or spec[-1:] not in ("e", "f", "g", "%"):
        return value
    try:
        number = np.float64(number)
    except (TypeError, ValueError):
        return value
    kind, low, _ = SIZES[number.dtype]
    texts = {format(float(number * (1 + change)), spec) for change in (-UNSURE, UNSURE)}
    if len(texts) > 1 and number.view(kind) & low:
        raise ValueError(f"{float(number)!r} may print as {' or '.join(sorted(texts))}: use `decimal` of attnbook.printing")
    return value


class Ties(ast.NodeTransformer):
    """Sends what formatted strings format through `told`."""

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.FormattedValue:
        """One number and its format."""
        self.generic_visit(node)
        if node.format_spec is not None and node.conversion == -1:
            name = ast.Name("_told_by_rounding", ast.Load())
            node.value = ast.copy_location(ast.Call(name, [node.value, node.format_spec], []), node.value)
            ast.fix_missing_locations(node)
        return node


def watch_strings() -> None:
    """Let every cell that IPython runs from here on format its numbers through `told`."""
    from IPython.core.interactiveshell import InteractiveShell

    builtins._told_by_rounding = told
    make = InteractiveShell.__init__

    @functools.wraps(make)
    def made(shell, *args, **kwargs):
        make(shell, *args, **kwargs)
        shell.ast_transformers.append(Ties())

    InteractiveShell.__init__ = made


def pytest_configure(config) -> None:
    """As a plugin of pytest."""
    if os.environ.get("ROUNDING_NOISE"):
        install(int(os.environ["ROUNDING_NOISE"]))
