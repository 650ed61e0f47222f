"""Explorers: widgets that a reader steers, live with a kernel and in the static page without one."""

import importlib
from pathlib import Path

from bookkit.explorers import KINDS, Explorer

for _name in sorted(path.stem for path in Path(__file__).with_name("js").glob("*.js")):  # each beside a module of its name
    importlib.import_module(f"{__name__}.{_name}")
globals().update({kind.__name__: kind for kind in KINDS.values()})

__all__ = ["Explorer", *sorted(kind.__name__ for kind in KINDS.values())]


def setup(app) -> dict:
    """As a Sphinx extension: what explorers need in the built page, these explorers' scripts among it."""
    from bookkit.explorers.html import setup as beside_the_pages

    return beside_the_pages(app)
