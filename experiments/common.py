"""What several experiments share: random covariances, distances, numbers rounded for storage, results and their origin."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy
import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[1]
DIM, DIAGONAL = 5, (1.0, 1.0, 0.5, 0.25, 1.0)  # of Ahn, Cheng, Daneshmand, Sra (2023), sections 5.3 and 6.1


def random_orthogonal(generator: torch.Generator) -> Tensor:
    """A uniformly distributed orthogonal matrix."""
    basis, triangle = torch.linalg.qr(torch.randn(DIM, DIM, dtype=torch.float64, generator=generator))
    return basis * triangle.diagonal().sign()


def random_covariance(generator: torch.Generator) -> Tensor:
    """Σ = UᵀD²U with a uniformly distributed orthogonal U."""
    basis = random_orthogonal(generator)
    return basis.mT * torch.tensor(DIAGONAL, dtype=torch.float64).square() @ basis


def square_roots(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """Σ^½ and Σ^(-½)."""
    values, basis = torch.linalg.eigh(covariance)
    return basis * values.sqrt() @ basis.mT, basis * values.rsqrt() @ basis.mT


def dist(matrices: Tensor) -> Tensor:
    """Dist(M, I) = min_α ‖M - αI‖ / ‖M‖, attained at α = tr M / d, for matrices (..., d, d)."""
    mean = matrices.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    identity = torch.eye(matrices.shape[-1], dtype=matrices.dtype)
    return torch.linalg.matrix_norm(matrices - mean * identity) / torch.linalg.matrix_norm(matrices)


def figures(value: object, digits: int = 6) -> object:
    """Numbers, also in nested lists and tensors, rounded to significant digits."""
    if isinstance(value, Tensor | np.ndarray):
        value = value.tolist()
    if isinstance(value, list):
        return [figures(inner, digits) for inner in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def guarded(main: Callable[[], None]) -> None:
    """Run a script; a fault ends it with a sentence, and a protected folder does so before anything is computed."""
    if not os.access(ROOT / "results", os.W_OK):
        sys.exit(f"{ROOT / 'results'} may not be written by you here: nothing was computed")
    try:
        main()
    except OSError as error:  # a full disk, a cache that may not be written
        sys.exit(f"{error}: mend its cause and call again; what is finished and stored is not computed again")
    except KeyboardInterrupt:
        sys.exit("interrupted; what is finished and stored is not computed again")


def store(path: Path, value: object) -> None:
    """Write JSON at once or not at all."""
    put(path, written(value))


def put(path: Path, text: str) -> None:
    """Write a text at once or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(text + "\n", encoding="utf-8")
    os.replace(part, path)


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


def provenance(script: str, seconds: float) -> dict:
    """What made the results, on what, and how long it took."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    facts = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = [line.split(":")[1].strip() for line in facts if line.startswith("model name")] or [platform.machine()]
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    return {
        "command": f"python experiments/{script}",
        "commit": commit or "unknown",
        "versions": versions | {"numpy": np.__version__, "scipy": scipy.__version__},
        "device": f"CPU, {model[0]}, machine shared",
        "threads": 1,
        "seconds": round(seconds, 1),
    }
