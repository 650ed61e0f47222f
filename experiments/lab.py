"""What experiments share: a record that keeps every finished section, numbers rounded for storage, and their origin."""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import joblib
import numpy as np
import scipy
import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
RESULTS, CACHE = ROOT / "results", ROOT / ".cache"


class Record:
    """The result of a script, results/NAME.json: what each section returns, and under "provenance" what made it.

    Args:
        name: of the script and of the file.
        digits: significant ones that are stored; all unless given.
        engine: of `attnopt.clustering.train`, "plain" or "compiled", where models of Part III are trained.
    """

    def __init__(self, name: str, digits: int = 17, engine: str | None = None):
        self.name, self.digits, self.engine, self.path = name, digits, engine, RESULTS / f"{name}.json"
        self.sections: dict[str, Callable[[], object]] = {}

    def section(self, function: Callable[[], object]) -> Callable[[], object]:
        """Decorate a function of no arguments: what it returns is a section of its name, unless it is None.

        An underscore at the name's end keeps it apart from another function's and is left out.
        """
        self.sections[function.__name__.rstrip("_")] = function
        return function

    def stored(self) -> dict:
        """What the file holds."""
        return json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {"provenance": {}}

    def main(self) -> None:
        """Compute the sections named on the command line, or else those that are missing, and store each at once."""
        guarded(self._main)

    def _main(self) -> None:
        description = sys.modules[self.sections[next(iter(self.sections))].__module__].__doc__
        parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
        known = ", ".join(self.sections)
        parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"computed again: {known}")
        parser.add_argument("--jobs", type=int, default=1, help="trainings at a time, where a section has several")
        options = parser.parse_args()
        if unknown := set(options.sections) - set(self.sections):
            parser.error(f"SECTION must be one of {known}, got {', '.join(sorted(unknown))}")
        torch.set_num_threads(1)
        for name in options.sections or [name for name in self.sections if name not in self.stored()]:
            began = time.perf_counter()
            with joblib.parallel_config(n_jobs=options.jobs):
                value = self.sections[name]()
            if value is None:
                print(f"{name}: left out, what it needs is missing", flush=True)
                continue
            seconds = max(time.perf_counter() - began, training_seconds(value) / options.jobs)  # some may have been kept
            made = provenance(f"python experiments/{self.name}.py {name}", seconds, self.engine)
            found = self.stored()  # other sections may have been stored meanwhile
            found["provenance"][name] = made
            store(self.path, found | {name: rounded(value, self.digits)})
            print(f"{name}: {made['seconds']:.0f} s", flush=True)


def training_seconds(value: object) -> float:
    """What a section says under "seconds" of its trainings, added up."""
    if isinstance(value, dict):
        own = value.get("seconds") or 0.0
        own = sum(filter(None, own)) if isinstance(own, list) else own
        return own + sum(training_seconds(inner) for name, inner in value.items() if name != "seconds")
    return sum(map(training_seconds, value)) if isinstance(value, list) else 0.0


def rounded(value: object, digits: int = 4) -> object:
    """Numbers to so many significant digits, all the way down; tensors become lists, what is not finite null."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: rounded(inner, digits) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(inner, digits) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if np.isfinite(value) else None
    return value


def guarded(main: Callable[[], None]) -> None:
    """Run a script; a fault ends it with a sentence, and a protected folder does so before anything is computed."""
    if not os.access(RESULTS, os.W_OK):
        sys.exit(f"{RESULTS} may not be written by you here: nothing was computed")
    try:
        main()
    except OSError as error:  # a full disk, a cache that may not be written
        sys.exit(f"{error}: mend its cause and call again; what is finished and stored is not computed again")
    except KeyboardInterrupt:
        sys.exit("interrupted; what is finished and stored is not computed again")


def store(path: Path, value: object) -> None:
    """Write JSON at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(written(value) + "\n", encoding="utf-8")
    os.replace(part, path)


def store_arrays(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write a compressed .npz at once or not at all."""
    part = path.with_suffix(".part.npz")
    np.savez_compressed(part, **arrays)
    os.replace(part, path)


def kept(folder: str) -> Callable[[Callable[[str, int], dict]], Callable[[str, int], dict]]:
    """Decorate a training of a setting and a seed: what it returns stays in .cache/FOLDER and is read from there again."""

    def decorate(run: Callable[[str, int], dict]) -> Callable[[str, int], dict]:
        @wraps(run)
        def once(setting: str, seed: int) -> dict:
            path = CACHE / folder / f"{setting}-{seed}.pt"
            if path.exists():
                return torch.load(path, weights_only=True)
            found = run(setting, seed)
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_suffix(".part")
            torch.save(found, part)
            os.replace(part, path)
            return found

        return once

    return decorate


def written(value: object, indent: int = 0) -> str:
    """JSON with a line for each entry of a dictionary and for each dictionary of a list."""
    gap = " " * (indent + 1)
    if isinstance(value, dict):
        items = [
            f"{gap}{json.dumps(str(key), ensure_ascii=False)}: {written(inner, indent + 1)}" for key, inner in value.items()
        ]
        return "{\n" + ",\n".join(items) + "\n" + " " * indent + "}"
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(gap + written(inner, indent + 1) for inner in value) + "\n" + " " * indent + "]"
    return json.dumps(value, ensure_ascii=False)


def provenance(command: str, seconds: float, engine: str | None = None) -> dict:
    """What made a result, on what, and how long it took.

    Args:
        command: that made it.
        seconds: taken.
        engine: that trained models of Part III, as for `Record`.
    """
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    facts = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = [line.split(":")[1].strip() for line in facts if line.startswith("model name")] or [platform.machine()]
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    return {
        "command": command,
        "commit": commit or "unknown",
        "versions": versions | {"numpy": np.__version__, "scipy": scipy.__version__},
        "device": f"CPU, {model[0]}",
        "threads": torch.get_num_threads(),
        "seconds": round(seconds, 1),
    } | ({} if engine is None else {"engine": engine})
