"""Training steps in C: `kernel.c`, translated by the machine's own compiler for the sizes at hand."""

import ctypes
import shutil
import subprocess
import tempfile
from ctypes import c_double, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from attnopt.clustering.model import Norm
from attnopt.clustering.training.adam import Adam
from attnopt.clustering.training.backward import Layout, too_far

SOURCE = Path(__file__).with_name("kernel.c")
COMPILERS = "cc", "gcc", "clang"
NATIVE = "-march=native"  # which compilers for some processors do not know
OPTIONS = "-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"
MOST = 2**20  # numbers that a step keeps on the stack, which has room for twice as many
ORDER = "token", "position", "query", "value", "receptors", "assemblers", "receptor_biases", "assembler_bias"


def compiler() -> str | None:
    """The C compiler of this machine, if there is one."""
    return next(filter(None, map(shutil.which, COMPILERS)), None)


@cache
def library(vocabulary: int, length: int, dim: int, width: int, norm: Norm) -> ctypes.CDLL:
    """The functions of `kernel.c` for models of these sizes, translated once a process and kept in no file.

    Raises:
        RuntimeError: if there is no compiler, or it fails.
    """
    found = compiler()
    if found is None:
        raise RuntimeError(f"compiled steps need a C compiler, one of {', '.join(COMPILERS)}, and there is none here")
    sizes = {"V": vocabulary, "T": length, "D": dim, "H": width, "NORM": get_args(Norm).index(norm)}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "kernel.so"
        said = [*OPTIONS, *(f"-D{name}={size}" for name, size in sizes.items()), str(SOURCE), "-o", str(file), "-lm"]
        for native in ([NATIVE], []):
            done = subprocess.run([found, *native, *said], capture_output=True, text=True)
            if done.returncode == 0:
                break
        else:
            raise RuntimeError(f"{found} cannot translate {SOURCE.name}: {(done.stderr.strip() or 'no reason given')[:500]}")
        return ctypes.CDLL(str(file))


class Kernel:
    """Compiled steps of models that have their own data.

    Args:
        layout: of their rows.
        norm: their normalization.
        tokens: training sequences, shape (M, n, L).
        targets: their labels, shape (M, n).

    Raises:
        RuntimeError: if there is no compiler, or it fails.
        ValueError: if the models are too large.
    """

    def __init__(self, layout: Layout, norm: Norm, tokens: Tensor, targets: Tensor):
        (vocabulary, dim), (width, _) = layout.shapes["token"], layout.shapes["receptors"]
        self.models, self.count, self.length = tokens.shape
        self.dim, pairs = dim, vocabulary * self.length
        if max(pairs * (7 * dim + 12), width * (64 + 4 * dim), vocabulary * 64) > MOST or pairs > 2**16:
            raise ValueError(f"compiled must be False for models as large as these, with {pairs} pairs and {width} neurons")
        self.functions = library(vocabulary, self.length, dim, width, norm)
        spans = layout.spans()
        self.starts = torch.tensor([spans[name].start for name in ORDER], dtype=torch.int32)
        self.ends = torch.tensor([span.stop for span in spans.values()], dtype=torch.int32)
        self.data = self.sequences(tokens, targets)

    def sequences(self, tokens: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Sequences as numbers of pairs, and their labels, as the compiled functions read them."""
        pairs = tokens * self.length + torch.arange(self.length)
        return pairs.to(torch.uint16).contiguous(), labels.to(torch.int32).contiguous()

    def gradients(self, rows: Tensor) -> Tensor:
        """Gradients of the mean losses on the whole training sets, as rows; see `loss_and_gradients`."""
        found = torch.empty_like(rows)
        order = torch.arange(self.count, dtype=torch.int32)
        self.call("gradients", self.models, self.count, rows.shape[1], self.starts, *self.data, order, rows, found)
        return found

    def epoch(
        self, rows: Tensor, adam: Adam, order: Tensor, size: int, rates: Tensor, shrink: Tensor | None, clip: Tensor | None,
        squares: Tensor, spread: Tensor | None = None,
    ) -> None:  # fmt: skip
        """Change rows and moments by an epoch's steps, and add the squared norms of the gradients before clipping.

        Args:
            rows: weights, shape (M, n), as `Layout.rows` makes them.
            adam: of these rows.
            order: of the sequences, shape (n,).
            size: sequences a step.
            rates: learning rates, shape (M, n).
            shrink: what decay leaves of the weights, shape (M, n).
            clip: longest gradients, shape (M, 1).
            squares: of the gradient in each parameter, in the layout's order, shape (M, parameters).
            spread: see `call`.

        Raises:
            ValueError: as `call`.
        """
        many = self.models, self.count, rows.shape[1], self.starts, self.ends, *self.data, order.to(torch.int32), size
        how = adam.steps, *adam.betas, adam.eps, rates, shrink, clip
        self.call("epoch", *many, *how, rows, adam.first, adam.second, squares, spread=spread)

    def predict(
        self, rows: Tensor, sequences: tuple[Tensor, Tensor] | None = None, first: int | None = None,
        spread: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """What `predict` of `evaluate.py` returns.

        Args:
            rows: weights, shape (M, n).
            sequences: tokens (n, L) and labels (n,), the same for all models; every model's own training set unless given.
            first: how many of them; all unless given.
            spread: see `call`.

        Raises:
            ValueError: as `call`.
        """
        pairs, labels = self.data if sequences is None else self.sequences(*sequences)
        count = min(first or labels.shape[-1], labels.shape[-1])
        apart = labels.shape[-1] if sequences is None else 0
        losses, right = rows.new_empty(self.models, count), rows.new_empty(self.models, count)
        sequence = rows.new_empty(self.models, self.dim, count)
        many = self.models, count, rows.shape[1], self.starts, pairs, apart * self.length, labels, apart
        self.call("predict", *many, rows, losses, right, sequence, spread=spread)
        return losses, right, sequence

    def call(self, name: str, *values: Tensor | float | None, spread: Tensor | None = None) -> None:
        """Call a compiled function; tensors are handed over by their address, and must be contiguous.

        Args:
            name: of the function.
            values: what it gets.
            spread: raised to how far a model's scores spread if that is too far, shape (M,), for the caller to judge; such a
                model is left where it is, and what is returned of it means nothing.

        Raises:
            ValueError: if the scores of a model spread too far and ``spread`` is not given.
        """
        found, given = torch.zeros(self.models), []
        for value in values:
            if isinstance(value, Tensor):
                if not value.is_contiguous():
                    raise ValueError(f"{name} must get contiguous tensors, got one of strides {value.stride()}")
                given.append(c_void_p(value.data_ptr()))
            else:
                given.append(value if value is None else c_double(value) if isinstance(value, float) else c_int64(value))
        getattr(self.functions, name)(*given, c_void_p(found.data_ptr()))
        if spread is not None:
            torch.maximum(spread, found, out=spread)
        elif found.any():
            raise too_far(int(found.argmax()), found.max().item())
