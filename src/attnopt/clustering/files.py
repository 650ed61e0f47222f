"""Arrays and texts in files, each written in one move: nobody ever sees half of one."""

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np


def write_text(file: Path, text: str) -> None:
    """Write a text."""
    write_bytes(file, f"{text}\n".encode())


def write_bytes(file: Path, content: bytes) -> None:
    """Write bytes."""
    partial = _beside(file)
    partial.write_bytes(content)
    partial.replace(file)


def write_arrays(file: Path, arrays: dict[str, Any], description: str) -> None:
    """Write named arrays and a description to an npz file."""
    partial = _beside(file)
    with partial.open("wb") as stream:
        np.savez(stream, description=np.frombuffer(description.encode(), np.uint8), **arrays)
    partial.replace(file)


def read_arrays(file: Path) -> tuple[dict[str, np.ndarray], str]:
    """What `write_arrays` wrote: the arrays, and the description.

    Raises:
        ValueError: if the file cannot be read.
    """
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        return arrays, arrays.pop("description").tobytes().decode()
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError) as error:
        raise ValueError(f"{file} cannot be read ({error}); if it is a checkpoint, remove it and start again") from error


def _beside(file: Path) -> Path:
    """A file of this process next to one that is to be written, whose folder is made if there is none."""
    file.parent.mkdir(parents=True, exist_ok=True)
    return file.with_suffix(f".{os.getpid()}.partial")
