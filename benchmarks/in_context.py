"""What exact formulas save in Part II: each beside the plain computation of the same thing, in one run.

    python3 run.py bench [--quick]

Writes results/in_context_benchmark.json. Long plain computations are timed on a part and scaled up; the record says which.
With --quick all runs at tiny sizes, whose times say little, and nothing is written.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from attnopt.in_context import (
    optimal_step_sizes,
    prompt_losses,
    sample_grams,
    sample_prompts,
    spectral_moments,
    step_loss,
    wishart,
    wishart_trace_moment,
)

DIM, CONTEXT, LAYERS, RUNS, PROMPTS = 5, 20, 3, 5, 20_000
DEGREE, DIGITS, PART = 26, 3, 50_000
QUICK = {"RUNS": 2, "PROMPTS": 200, "DEGREE": 8, "PART": 1000}
sys.path.append(str(Path(__file__).resolve().parents[1] / "experiments"))
import lab  # noqa: E402

RESULT = lab.RESULTS / "in_context_benchmark.json"


def seconds(function: Callable[[], object], repeats: int = 3) -> float:
    """The shortest of some runs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def forget() -> None:
    """Empty the caches of the exact moments and what follows from them, so that every run computes."""
    for function in vars(wishart).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def exact_loss() -> dict:
    """Loss and optimum of three layers, exactly and by sampling to as many digits."""

    def exactly() -> Tensor:
        forget()
        return step_loss(optimal_step_sizes(DIM, CONTEXT, LAYERS)[0], DIM, CONTEXT)

    generator = torch.Generator().manual_seed(0)
    steps, best = optimal_step_sizes(DIM, CONTEXT, LAYERS)
    A = steps[:, None, None] * torch.eye(DIM)

    def by_sampling() -> Tensor:
        return prompt_losses(sample_grams(PART, DIM, CONTEXT, generator), A)

    values = by_sampling()
    wanted = (values.std().item() / (0.5 * 10**-DIGITS * float(best))) ** 2  # a standard error of half a unit
    exact, part = seconds(exactly), seconds(by_sampling)
    return {
        "exact_loss": float(best),
        "exact_seconds": round(exact, 4),
        "samples_for_three_digits": round(wanted, -5),
        "sampling_seconds_scaled": round(part * wanted / PART, 2),
        "ratio": round(part * wanted / PART / exact),
    }


def moments() -> dict:
    """All moments up to degree 26, by both routes."""

    def recursion() -> None:
        forget()
        wishart_trace_moment([DEGREE], DIM, CONTEXT)

    def walks() -> None:
        forget()
        spectral_moments(DIM, CONTEXT, DEGREE + 1)

    same = wishart_trace_moment([DEGREE], DIM, CONTEXT) == spectral_moments(DIM, CONTEXT, DEGREE + 1)[DEGREE]
    return {"recursion_seconds": round(seconds(recursion, 1), 2), "walks_seconds": round(seconds(walks), 2), "equal": same}


def reduced(grams: Tensor, A: Tensor) -> Tensor:
    """Mean of `prompt_losses` over the prompts of each run."""
    error = torch.eye(DIM).expand(grams.shape)
    for layer in A.unbind(1):
        error = error + ((error @ grams).flatten(1, 2) @ layer).unflatten(1, grams.shape[1:3])
    return error.square().sum((-2, -1)).mean(1)


def token_by_token(prompts: Tensor, targets: Tensor, A: Tensor) -> Tensor:
    """The loss of each run as the paper's (4) and (5) are written, Z in columns with all its attention."""
    mask = torch.eye(CONTEXT + 1)
    mask[-1, -1] = 0
    P = torch.zeros(DIM + 1, DIM + 1)
    P[-1, -1] = 1
    Z = prompts.mT
    for layer in A.unbind(1):
        Q = torch.nn.functional.pad(layer, (0, 1, 0, 1))[:, None]
        Z = Z + P @ Z @ mask @ (Z.mT @ Q @ Z) / CONTEXT
    return (Z[..., -1, -1] + targets).square().mean(1)


def training() -> dict:
    """Five runs of section 5.3 as one optimization of reduced losses, against one evaluation on the tokens themselves."""
    generators = [torch.Generator().manual_seed(100 + run) for run in range(RUNS)]
    grams = torch.stack([sample_grams(PROMPTS, DIM, CONTEXT, g) for g in generators])
    start = torch.stack([0.1 * torch.randn(LAYERS, DIM, DIM, generator=g) for g in generators])
    evaluations = 0

    def train() -> Tensor:
        nonlocal evaluations
        A, evaluations = start.clone().requires_grad_(), 0
        optimizer = torch.optim.LBFGS(
            [A], max_iter=100, history_size=50, tolerance_grad=1e-4, tolerance_change=1e-9, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            nonlocal evaluations
            evaluations += 1
            optimizer.zero_grad()
            total = reduced(grams, A).sum()
            total.backward()
            return total

        optimizer.step(closure)
        return A.detach()

    began = time.perf_counter()
    trained = train()
    whole = time.perf_counter() - began
    prompts, targets = map(
        torch.stack, zip(*(sample_prompts(PROMPTS, torch.eye(DIM), CONTEXT, g) for g in generators), strict=True)
    )

    def tokens() -> None:
        A = start.clone().requires_grad_()
        token_by_token(prompts, targets, A).sum().backward()

    def matrices() -> None:
        A = start.clone().requires_grad_()
        reduced(grams, A).sum().backward()

    plain, small = seconds(tokens, 2), seconds(matrices)
    return {
        "five_runs_seconds": round(whole, 1),
        "evaluations": evaluations,
        "losses": [round(value, 4) for value in reduced(grams, trained).tolist()],
        "seconds_per_evaluation": {"reduced": round(small, 3), "token by token": round(plain, 3)},
        "ratio": round(plain / small, 1),
    }


def main(arguments: list[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, and nothing is written")
    quick = parser.parse_args(arguments).quick
    globals().update(QUICK if quick else {})
    torch.set_default_dtype(torch.float64)
    settings = {
        "load_average_before": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "setting": f"d = {DIM}, n = {CONTEXT}, {LAYERS} layers, {RUNS} runs of {PROMPTS} prompts",
    }
    found: dict[str, dict] = {"provenance": {}, "settings": settings}
    found["provenance"]["settings"] = lab.provenance("python3 run.py bench", 0)
    for name, part in (("exact loss", exact_loss), ("moments", moments), ("training", training)):
        print(f"{name} …", flush=True)
        began = time.perf_counter()
        found[name] = part()
        found["provenance"][name] = lab.provenance("python3 run.py bench", time.perf_counter() - began)
    if not quick:
        lab.store(RESULT, found)
    print(lab.written(found))


if __name__ == "__main__":
    main()
