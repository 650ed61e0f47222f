"""Where the book is: the package may be installed from elsewhere, and a notebook runs in a folder of the book."""

import json
import re
import tomllib
from pathlib import Path


def table(name: str) -> dict:
    """What one of the book's tables holds: of the book around the working folder, or else of the package's own checkout.

    Args:
        name: the file in the folder ``book``, as ``"claims.toml"``.

    Raises:
        FileNotFoundError: if neither is there.
    """
    return tomllib.loads(find(f"book/{name}").read_text(encoding="utf-8"))


def results(name: str) -> dict:
    """What an experiment has stored: its sections, and under "provenance" what made each.

    Args:
        name: of the experiment, as ``"loss_spikes"``.

    Raises:
        FileNotFoundError: as `table`.
    """
    return json.loads(find(f"results/{name}.json").read_text(encoding="utf-8"))


def find(name: str) -> Path:
    """The path of a file around the working folder, or else in the package's own checkout.

    Args:
        name: from the checkout's root on.

    Raises:
        FileNotFoundError: if neither is there.
    """
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).parents[2]):
        if (path := folder / name).is_file():
            return path
    raise FileNotFoundError(f"no {name} in {here} or a folder around it: start from the book's checkout")


def cited(field: str) -> str:
    """A field of ``CITATION.cff``, as ``"version"``; empty if it is not there.

    Its ``repository-code`` says where the repository stands: sources in the site link there, notebooks fetch it on Colab.

    Args:
        field: its name.
    """
    found = re.search(rf"^{re.escape(field)}: *['\"]?(.*?)['\"]?$", find("CITATION.cff").read_text(encoding="utf-8"), re.M)
    return found[1] if found else ""
