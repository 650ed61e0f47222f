"""Explorers: widgets that a reader steers, live with a kernel and in the static page without one."""

import importlib
from pathlib import Path

from bookkit.explorers import KINDS, Explorer
from bookkit.explorers.base import SCRIPTS

_scripts = sorted(Path(__file__).with_name("js").glob("*.js"))
_explorers = [path.stem for path in _scripts if Path(__file__).with_name(f"{path.stem}.py").exists()]
SCRIPTS.update({path.stem: path for path in _scripts if path.stem not in _explorers})  # what explorers import
for _name in _explorers:
    importlib.import_module(f"{__name__}.{_name}")
globals().update({kind.__name__: kind for kind in KINDS.values()})

__all__ = ["Explorer", *sorted(kind.__name__ for kind in KINDS.values())]


def setup(app) -> dict:
    """As a Sphinx extension: what explorers need in the built page, these explorers' scripts among it."""
    from bookkit.explorers.html import setup as beside_the_pages

    return beside_the_pages(app)
