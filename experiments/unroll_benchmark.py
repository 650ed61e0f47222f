"""How fast five attention blocks run on 60,000 images: `unroll_logits` and `unroll` against a loop in plain PyTorch.

    python experiments/unroll_benchmark.py

Writes results/unroll_benchmark.json. All three run in one process, one after another, three times; the best time counts.
"""

import os
import time
from collections.abc import Callable

import torch
from lab import Record
from torch import Tensor

from attnopt.regression import unroll, unroll_logits

IMAGES, PIXELS, CLASSES, LAYERS, BATCH = 60_000, 784, 10, 5, 1024
RECORD = Record("unroll_benchmark")


def per_batch(images: Tensor, weights: Tensor, labels: Tensor) -> list[Tensor]:
    """The logits after each block, batch by batch, as one would write it without the package."""
    seen: list[list[Tensor]] = [[] for _ in range(LAYERS + 1)]
    for z, c in zip(images.split(BATCH), labels.split(BATCH), strict=True):
        for layer in range(LAYERS + 1):
            logits = z @ weights.T
            seen[layer].append(logits)
            if layer < LAYERS:
                z = z - torch.softmax(logits, -1) @ weights + c @ weights
    return [torch.cat(parts) for parts in seen]


def best(function: Callable[[], object]) -> float:
    """The shortest of three runs, in seconds."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


@RECORD.section
def speed() -> dict:
    """Seconds of each, and the loop's as a multiple of the best, with all cores."""
    torch.set_num_threads(os.cpu_count() or 1)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(IMAGES, PIXELS, generator=generator)
    weights = 0.1 * torch.randn(CLASSES, PIXELS, generator=generator)
    labels = torch.eye(CLASSES)[torch.randint(CLASSES, (IMAGES,), generator=generator)]
    by_logits = lambda: unroll_logits(images @ weights.T, weights, labels, "class", LAYERS)  # noqa: E731
    torch.testing.assert_close(by_logits(), torch.stack(per_batch(images, weights, labels)), rtol=1e-3, atol=1e-3)
    seconds = {
        "plain loop over batches": best(lambda: per_batch(images, weights, labels)),
        "unroll_logits": best(by_logits),
        "unroll, which keeps all images": best(lambda: unroll(images, weights, labels, "class", LAYERS)),
    }
    return {
        "images": IMAGES,
        "layers": LAYERS,
        "batch": BATCH,
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
        "ratio": round(seconds["plain loop over batches"] / seconds["unroll_logits"], 2),
    }


if __name__ == "__main__":
    RECORD.main()
