"""Training steps in C: `kernel.c`, compiled by the machine's own compiler for the given model sizes."""

import ctypes
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_double, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from attnopt.clustering.model import Norm
from attnopt.clustering.training.backward import Layout, too_far
from attnopt.clustering.training.step import Pace, Predictions, Sequences, State

SOURCE = Path(__file__).with_name("kernel.c")
COMPILERS = "cc", "gcc", "clang"
NATIVE = "-march=native"  # not supported by the compilers for some processors
OPTIONS = "-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"
MOST = 2**20  # at most this many numbers of a step are on the stack, which has room for twice as many
ORDER = "token", "position", "query", "value", "receptors", "assemblers", "receptor_biases", "assembler_bias"


def compiler() -> str | None:
    """The path of this machine's C compiler, or None if there is none."""
    return next(filter(None, map(shutil.which, COMPILERS)), None)


def too_large(vocabulary: int, length: int, dim: int, width: int) -> bool:
    """Whether models of these sizes are too large for compiled steps."""
    pairs = vocabulary * length
    return max(pairs * (7 * dim + 12), width * (64 + 4 * dim), vocabulary * 64) > MOST or pairs > 2**16


@cache
def library(vocabulary: int, length: int, dim: int, width: int, norm: Norm) -> ctypes.CDLL:
    """The functions of `kernel.c` for models of these sizes, compiled once per process and not kept in a file.

    Raises:
        RuntimeError: if there is no compiler, or compilation fails.
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
    """The training steps of `Plain` in C, for models that each have their own data.

    Args:
        layout: layout of the models' rows.
        norm: the models' normalization.
        tokens: training sequences, shape (M, n, L).
        targets: their labels, shape (M, n).
        threads: number of threads that share the models, which does not change the results.

    Raises:
        RuntimeError: if there is no compiler, or compilation fails.
        ValueError: if the models are too large.
    """

    def __init__(self, layout: Layout, norm: Norm, tokens: Tensor, targets: Tensor, threads: int = 1):
        (vocabulary, dim), (width, _) = layout.shapes["token"], layout.shapes["receptors"]
        self.layout, self.norm, self.dtype = layout, norm, torch.float32
        self.dim, self.length = dim, tokens.shape[-1]
        if too_large(vocabulary, self.length, dim, width):
            sizes = f"with {vocabulary * self.length} pairs and {width} neurons"
            raise ValueError(f"compiled must be False for models as large as these, {sizes}")
        self.functions = library(vocabulary, self.length, dim, width, norm)
        self.threads = min(threads, len(tokens))
        self.pool = ThreadPoolExecutor(self.threads)
        spans = layout.spans()
        self.starts = torch.tensor([spans[name].start for name in ORDER], dtype=torch.int32)
        self.ends = torch.tensor([span.stop for span in spans.values()], dtype=torch.int32)
        self.data = self.sequences(tokens, targets)

    def sequences(self, tokens: Tensor, labels: Tensor) -> Sequences:
        """Sequences (…, n, L) as indices of their pairs, and labels (…, n), in the compiled functions' types."""
        pairs = tokens * self.length + torch.arange(self.length)
        return pairs.to(torch.uint16).contiguous(), labels.to(torch.int32).contiguous()

    def epoch(self, state: State, order: Tensor, pace: Pace, squares: Tensor, spread: Tensor | None = None) -> None:
        """Do what `Plain.epoch` does, for an order of all sequences; ``spread`` is as for `call`.

        Raises:
            ValueError: if the order is shorter or longer than the training set.
        """
        count, width = order.shape[-1], state.rows.shape[1]
        if count != (held := self.data[1].shape[-1]):  # the distance from one model's data to the next one's
            raise ValueError(f"order must name all {held} training sequences once, got {count} numbers")
        orders, apart = order.to(torch.int32).contiguous(), count * (order.ndim - 1)
        what = count, width, self.starts, self.ends, *self.data, orders, apart, pace.size, state.steps
        how = *pace.betas, pace.eps, pace.rates, pace.shrink, pace.clip
        self.call("epoch", len(state.rows), *what, *how, *state[:3], squares, spread=spread)

    def predict(self, rows: Tensor, data: Sequences | None = None, spread: Tensor | None = None) -> Predictions:
        """Return what `Plain.predict` returns; ``spread`` is as for `call`."""
        pairs, labels = self.data if data is None else data
        (models, width), count = rows.shape, labels.shape[-1]
        apart = 0 if labels.ndim == 1 else count  # from model to model
        losses, right = rows.new_empty(models, count), rows.new_empty(models, count)
        sequence = rows.new_empty(models, self.dim, count)
        what = count, width, self.starts, pairs, apart * self.length, labels, apart
        self.call("predict", models, *what, rows, losses, right, sequence, spread=spread)
        return losses, right, sequence

    def call(self, name: str, models: int, *values: Tensor | float | None, spread: Tensor | None) -> None:
        """Call a compiled function; tensors are passed by address and must be contiguous.

        Args:
            name: name of the function.
            models: number of models, M.
            values: the function's other arguments.
            spread: if the scores of a model differ too much, its entry is raised to that spread, shape (M,), for the caller
                to judge; the model is not changed further, and its results are meaningless.

        Raises:
            ValueError: if the scores of a model differ too much and ``spread`` is not given.
        """
        found, given = torch.zeros(models), []
        for value in values:
            if isinstance(value, Tensor):
                if not value.is_contiguous():
                    raise ValueError(f"{name} must get contiguous tensors, got one of strides {value.stride()}")
                given.append(c_void_p(value.data_ptr()))
            else:
                given.append(value if value is None else c_double(value) if isinstance(value, float) else c_int64(value))
        function, ends = getattr(self.functions, name), [models * at // self.threads for at in range(self.threads + 1)]
        part = lambda begin, end: function(c_int64(begin), c_int64(end), *given, c_void_p(found.data_ptr()))  # noqa: E731
        if self.threads == 1:
            part(0, models)
        else:  # the interpreter's lock is released while a compiled function runs
            list(self.pool.map(part, ends[:-1], ends[1:]))
        if spread is not None:
            torch.maximum(spread, found, out=spread)
        elif found.any():
            raise too_far(int(found.argmax()), found.max().item())
