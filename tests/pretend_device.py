"""A device named "pretend", in which PyTorch believes and for which the CPU computes.

It refuses what an accelerator refuses: an operation on numbers here and numbers there, but for copies, single numbers and
lists of places. `import pretend_device` registers it, once a process and for good: meant for processes of their own.
"""

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretend"
COPIES = (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)
LOOKED_UP = torch.ops.aten.index.Tensor  # by a list of places, which may be here
_setup_privateuseone_for_python_backend(NAME)


class There(Tensor):
    """Numbers on the device; `held` has them on the CPU."""

    @staticmethod
    def __new__(cls, held: Tensor):
        like = {"strides": held.stride(), "storage_offset": held.storage_offset(), "dtype": held.dtype}
        made = Tensor._make_wrapper_subclass(cls, held.size(), device=f"{NAME}:0", **like)
        made.held = held
        return made

    def tolist(self):
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, function, types, given=(), named=None):
        return carry_out(function, given, named or {})


def held(value):
    """A value on the CPU, be it there or here."""
    return value.held if isinstance(value, There) else value


def carry_out(function, given, named):
    """An operation, for whichever device it is meant.

    Raises:
        RuntimeError: if it mixes numbers of both.
    """
    arrays = [value for value in tree_leaves((given, named)) if isinstance(value, Tensor)]
    there = [value for value in arrays if isinstance(value, There)]
    here = [value for value in arrays if not isinstance(value, There) and value.dim()]
    if there and here and function not in COPIES and not (function is LOOKED_UP and isinstance(given[0], There)):
        raise RuntimeError(f"{function} of numbers here and there: {[tuple(value.shape) for value in here]} are here")
    device = named.get("device")
    named = named | ({} if device is None else {"device": "cpu"})
    found = function(*tree_map(held, given), **tree_map(held, named))
    for value in there:
        if found is value.held:  # changed in place
            return value
    goes = bool(there) if device is None else torch.device(device).type == NAME
    if not goes or function is torch.ops.aten.copy_.default:
        return found
    return tree_map(lambda value: There(value) if isinstance(value, Tensor) else value, found)


class Pretended(TorchDispatchMode):
    """Within it, what is asked of the device is done."""

    def __torch_dispatch__(self, function, types, given=(), named=None):
        return carry_out(function, given, named or {})


def empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    """Room for numbers there: what PyTorch asks for to bring lists of numbers."""
    return There(torch.empty_strided(size, stride, dtype=dtype))


def copy_from(source, target, non_blocking=False):
    """Numbers brought into such room."""
    held(target).copy_(held(source))
    return target


LIBRARY = torch.library.Library("aten", "IMPL")
LIBRARY.impl("empty_strided", empty_strided, "PrivateUse1")
LIBRARY.impl("_copy_from", copy_from, "PrivateUse1")
