"""The best GD++ layers found for many d, n and k, beside plain steps: data of a chapter and of its explorer.

    python experiments/gdpp_optima.py

Writes src/attnopt/data/gdpp_optima.json, one case at a time; cases that are there already are skipped, so that an
interrupted run goes on where it stopped. About twenty minutes on one core.

    optima["d,n,k"]     steps a_i, curvatures a_i b_i and the exact loss E tr R(G)², not divided by d: the best of
                        `gdpp_optimum`, of descents from the optima of other d and n, and of what the file already held
    spectra["d,n"]      nodes and weights of the mean spectrum, exact for k ≤ 4; plain: the optimal steps of k = 1 … 4 plain
                        layers; constant: the best step if all k take the same; plain_losses: of 1 … 45 optimal plain steps
"""

import itertools
import json
import time

import numpy as np
import torch
from lab import ROOT, guarded, provenance, store
from scipy.optimize import least_squares, minimize_scalar
from tqdm import tqdm

from attnopt.in_context import (
    gdpp_optimum,
    gdpp_residuals,
    optimal_step_sizes,
    step_loss,
    wishart_quadrature,
    wishart_recurrence,
)

CONTEXTS = (3, 5, 8, 10, 15, 20, 30, 50, 100)
DEPTHS, MOST = (1, 2, 3, 4), 45
CASES = [(5, n, k) for n in CONTEXTS for k in DEPTHS]
CASES += [(d, n, k) for d in (1, 2, 3, 10) for n in (3, 5, 10, 20, 50) for k in (2, 3)]
RESULT = ROOT / "src" / "attnopt" / "data" / "gdpp_optima.json"


def plain_losses(dim: int, n_context: int) -> list[float]:
    """Loss of 1, 2, … optimal plain steps: 1 / Σ_j p_j(0)² over the orthonormal polynomials of the mean spectrum."""
    alpha, beta = wishart_recurrence(dim, n_context, MOST + 1)
    before, now, norm, total, losses = 0, 1, 1, 0, []
    for j, (a, b) in enumerate(zip(alpha, beta, strict=True)):
        norm *= b
        total += now**2 / norm
        losses.append(float(1 / total))
        before, now = now, -a * now - (b * before if j else 0)
    return losses[1:]


def spectrum(dim: int, n_context: int) -> dict:
    """The mean spectrum's quadrature and what plain steps make of it."""
    nodes, weights = wishart_quadrature(dim, n_context, 41)
    constant = [
        minimize_scalar(lambda a, k=k: step_loss([a] * k, dim, n_context).item(), bounds=(-1, 0), options={"xatol": 1e-12}).x
        for k in DEPTHS
    ]
    return {
        "nodes": nodes.tolist(),
        "weights": weights.tolist(),
        "plain": [optimal_step_sizes(dim, n_context, k)[0].tolist() for k in DEPTHS],
        "constant": constant,
        "plain_losses": plain_losses(dim, n_context),
    }


def descend(start: dict, dim: int, n_context: int) -> dict:
    """The local minimum for d and n below the layers that are best elsewhere."""
    k = len(start["steps"])
    nodes, weights = map(torch.tensor, wishart_quadrature(dim, n_context, (3**k + 1) // 2))
    scales = np.array(start["steps"] + start["curvatures"])

    def residuals(factors: np.ndarray) -> np.ndarray:
        point = torch.from_numpy(factors * scales)
        return (weights.sqrt() * gdpp_residuals(point[:k], point[k:], nodes)[0][-1]).numpy()

    found = least_squares(residuals, np.ones_like(scales), method="lm", xtol=1e-14, ftol=1e-14, gtol=1e-14, max_nfev=4000)
    point = (found.x * scales).tolist()
    return {"steps": point[:k], "curvatures": point[k:], "loss": 2 * found.cost}


def share(optima: dict, k: int) -> bool:
    """Start each case of k layers from the layers of every other; keep what is better, and say whether anything was."""
    cases = [case for case in CASES if case[2] == k]
    better = False
    for case, other in tqdm(list(itertools.permutations(cases, 2))):
        key = ",".join(map(str, case))
        found = descend(optima[",".join(map(str, other))], *case[:2])
        if found["loss"] < optima[key]["loss"] * (1 - 1e-7):
            optima[key], better = found, True
    return better


def main() -> None:
    """Find and write what is missing."""
    torch.set_num_threads(1)
    found: dict[str, dict] = {"provenance": {}, "optima": {}, "spectra": {}}
    if RESULT.is_file():
        found |= json.loads(RESULT.read_text(encoding="utf-8"))
    began = time.perf_counter()

    def keep(part: str) -> None:
        found["provenance"][part] = provenance("python experiments/gdpp_optima.py", time.perf_counter() - began)
        store(RESULT, found)

    tasks = [("spectra", (5, n)) for n in CONTEXTS] + [("optima", case) for case in CASES]
    for part, case in tqdm(tasks):
        key = ",".join(map(str, case))
        if key in found[part]:
            continue
        if part == "spectra":
            found[part][key] = spectrum(*case)
        else:
            steps, curvatures, loss = gdpp_optimum(*case)
            found[part][key] = {"steps": steps.tolist(), "curvatures": curvatures.tolist(), "loss": loss}
        keep(part)
    for k in DEPTHS[2:]:  # two layers have one good valley
        while share(found["optima"], k):
            keep("optima")


if __name__ == "__main__":
    guarded(main)
