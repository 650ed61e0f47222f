"""Switches `rounding` on in Jupyter's kernels, where `ROUNDING_NOISE` holds a seed."""

import importlib.abc
import importlib.util
import os
import sys


class Hook(importlib.abc.MetaPathFinder):
    """Installs the noise once the kernel's own modules are there."""

    def find_spec(self, name, path, target=None):
        """The kernel's module, whose loading ends with the noise on; nothing else."""
        if name != "ipykernel.ipkernel":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def loaded(module):
            load(module)
            import rounding

            rounding.install(int(os.environ["ROUNDING_NOISE"]))
            rounding.watch_strings()

        spec.loader.exec_module = loaded
        return spec


if os.environ.get("ROUNDING_NOISE"):
    sys.meta_path.insert(0, Hook())
