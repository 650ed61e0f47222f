"""Finds the book's files, because the package may be installed elsewhere and notebooks run in the book's folders."""

import json
import re
import tomllib
from pathlib import Path


def table(name: str) -> dict:
    """The contents of one of the book's tables, from the book around the working folder or else the package's checkout.

    Args:
        name: the file's name in the folder ``book``, as in ``"claims.toml"``.

    Raises:
        FileNotFoundError: if neither has the file.
    """
    return tomllib.loads(find(f"book/{name}").read_text(encoding="utf-8"))


def results(name: str) -> dict:
    """The stored results of an experiment: its sections and, under "provenance", how each of them was made.

    Args:
        name: the experiment's name, as in ``"loss_spikes"``.

    Raises:
        FileNotFoundError: as for `table`.
    """
    return json.loads(find(f"results/{name}.json").read_text(encoding="utf-8"))


def find(name: str) -> Path:
    """The path of a file in the checkout around the working folder, or else in the package's own checkout.

    Args:
        name: the file's path relative to the checkout's root.

    Raises:
        FileNotFoundError: if neither has the file.
    """
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).parents[2]):
        if (path := folder / name).is_file():
            return path
    raise FileNotFoundError(f"no {name} in {here} or a folder around it: start from the book's checkout")


def cited(field: str) -> str:
    """The value of a field of ``CITATION.cff``, such as ``"version"``; empty if the field is missing.

    The field ``repository-code`` is the repository's address, to which the site links and from which Colab fetches the book.

    Args:
        field: the field's name.
    """
    found = re.search(rf"^{re.escape(field)}: *['\"]?(.*?)['\"]?$", find("CITATION.cff").read_text(encoding="utf-8"), re.M)
    return found[1] if found else ""
