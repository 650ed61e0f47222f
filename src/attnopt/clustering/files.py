"""Arrays and texts in files, each written atomically, so nobody ever sees a partial file."""

import glob
import os
import socket
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np


def write_text(file: Path, text: str) -> None:
    """Write a text to a file."""
    write_bytes(file, f"{text}\n".encode())


def write_bytes(file: Path, content: bytes) -> None:
    """Write bytes to a file."""
    with _in_one_move(file) as partial:
        partial.write_bytes(content)


def write_arrays(file: Path, arrays: dict[str, Any], description: str) -> None:
    """Write named arrays and a description to an npz file."""
    with _in_one_move(file) as partial, partial.open("wb") as stream:
        np.savez(stream, description=np.frombuffer(description.encode(), np.uint8), **arrays)


def read_arrays(file: Path) -> tuple[dict[str, np.ndarray], str]:
    """Read the arrays and the description that `write_arrays` wrote.

    Raises:
        ValueError: if the file cannot be read, or something else wrote it.
    """
    try:
        with file.open("rb") as stream:
            if not zipfile.is_zipfile(stream):
                raise zipfile.BadZipFile("it is not a whole npz file")
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as archive:
                if "description" not in archive:
                    raise zipfile.BadZipFile("it has no description, so something else wrote it")
                arrays = {name: archive[name] for name in archive.files}
        return arrays, arrays.pop("description").tobytes().decode()
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError) as error:
        reason = "it holds Python objects" if "allow_pickle" in str(error) else error  # NumPy would advise loading them
        raise ValueError(f"{file} cannot be read ({reason}); if it is a checkpoint, remove it and start again") from error


@contextmanager
def _in_one_move(file: Path) -> Iterator[Path]:
    """A temporary file for this process, which replaces ``file`` after it is written; the folder is created."""
    file.parent.mkdir(parents=True, exist_ok=True)
    mine = f".{socket.gethostname()}-"
    for left in file.parent.glob(f"{glob.escape(file.stem + mine)}*.partial"):
        if _ended(left.name.removeprefix(file.stem + mine).removesuffix(".partial")):
            left.unlink(missing_ok=True)
    partial = file.with_suffix(f"{mine}{os.getpid()}.partial")
    try:
        yield partial
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def _ended(process: str) -> bool:
    """Whether a process of this machine is known to have ended; on Windows, the test would end it."""
    if os.name != "posix" or not process.isdecimal():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
