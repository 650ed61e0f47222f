"""Explorers: interactive figures, which work with a kernel and, without one, in the built page."""

import importlib
from pathlib import Path

from attnbook.explorer import KINDS, Explorer

for _path in sorted(Path(__file__).parent.glob("*.js")):
    importlib.import_module(f"{__name__}.{_path.stem}")
globals().update({kind.__name__: kind for kind in KINDS.values()})

__all__ = ["Explorer", *sorted(kind.__name__ for kind in KINDS.values())]
