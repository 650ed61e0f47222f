"""The code behind the book *Attention as Optimization*: one subpackage per part, and the modules that the parts share.

A bad argument raises a `TypeError` (wrong type) or a `ValueError` (a shape, dtype, device, or value that does not fit). The
message names the argument and says what was expected and what was given. Docstrings list only the other errors that a
function raises.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnopt import clustering, datasets, in_context, regression, softmax, standard, symbolic, synthesis

    __version__: str

__all__ = [
    "__version__",
    "clustering",
    "datasets",
    "in_context",
    "regression",
    "softmax",
    "standard",
    "symbolic",
    "synthesis",
]


def __getattr__(name: str) -> Any:
    """Import a part when it is first used, or look up the installed version."""
    if name == "__version__":
        return version("attnopt")
    if name in __all__:
        return import_module(f"attnopt.{name}")
    raise AttributeError(f"module 'attnopt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
