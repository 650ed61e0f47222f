"""Explorers: widgets that a reader steers, live with a kernel and in the static page without one."""

import importlib

from attnopt.explorers.base import KINDS, MODULES, Explorer

for _name in sorted(path.stem for path in MODULES.glob("*.js")):  # an explorer's Python module is called like its script
    if MODULES.with_name(f"{_name}.py").exists():
        importlib.import_module(f"{__name__}.{_name}")
globals().update({kind.__name__: kind for kind in KINDS.values()})

__all__ = ["Explorer", *sorted(kind.__name__ for kind in KINDS.values())]
