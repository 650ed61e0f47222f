"""Where the book is: the package may be installed from elsewhere, and a notebook runs in a folder of the book."""

import tomllib
from pathlib import Path


def table(name: str) -> dict:
    """What one of the book's tables holds: of the book around the working folder, or else of the package's own checkout.

    Args:
        name: the file in the folder ``book``, as ``"claims.toml"``.

    Raises:
        FileNotFoundError: if neither is there.
    """
    return tomllib.loads(find(name).read_text(encoding="utf-8"))


def find(name: str) -> Path:
    """The path of a file of the book; see `table`."""
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).parents[2]):
        if (path := folder / "book" / name).is_file():
            return path
    raise FileNotFoundError(f"no book/{name} in {here} or a folder around it: start from the book's checkout")
