"""How fast ensembles of Part III's transformer train on a GPU, beside the CPU of the same machine.

    python3 benchmarks/gpu.py

Writes results/gpu_benchmark.json; it takes five minutes on an H200. On the GPU an epoch is one CUDA graph; beside it stand
the same steps launched one by one, and a graph of steps whose loss and gradients `torch.compile` has translated. On the CPU,
steps are compiled C. All evaluate every tenth epoch, at the paper's settings; setting up, translation, and capture are timed
apart.
"""

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from attnopt.clustering import PAPER, Settings, Watch, initial_models, train
from attnopt.clustering.training import step
from attnopt.clustering.training.trainer import advance, begin

sys.path.append(str(Path(__file__).resolve().parents[1] / "experiments"))
import lab

MODELS, TRANSLATED, EPOCHS, ROUNDS, AGREEMENT, OUTCOMES = (1, 10, 100, 1000, 10_000), (100, 1000, 10_000), 20, 3, 20, 4000
PLAIN = step.loss_and_gradients


def seconds(function: Callable[[], object]) -> float:
    """Seconds by the clock until the GPU has nothing left to do."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def rates(models: int) -> dict:
    """Models·epochs a second in each way, what setting up took, and memory."""
    settings = Settings(epochs=10**6)
    grid, start, found = settings.each(models), initial_models(range(models), settings), {}

    def measure(name: str, parts: tuple, **more: float) -> None:
        def epochs(count: int) -> None:
            for _ in range(count):
                advance(*parts)
                parts[3].keep(parts[1])

        first = seconds(lambda: epochs(1))
        few = EPOCHS if seconds(lambda: epochs(EPOCHS)) < 4 else 10
        taken = statistics.median(seconds(lambda: epochs(few)) for _ in range(ROUNDS))
        entry = {"models·epochs a second": models * few / taken, "milliseconds an epoch": 1e3 * taken / few}
        found[name] = lab.rounded(entry | more | {"seconds of the first epoch": first}, 4)
        print(f"{models} models, {name}: {found[name]}", flush=True)

    for threads in (2, os.cpu_count()) if models <= 1000 else ():
        measure(f"CPU, {threads} threads", begin(list(range(models)), grid, Watch(), start, True, threads))
    torch.cuda.reset_peak_memory_stats()
    began, there = time.perf_counter(), start.map(lambda value: value.to("cuda"))
    engine, *rest = begin(list(range(models)), grid, Watch(), there, False)
    torch.cuda.synchronize()
    setup = time.perf_counter() - began
    measure("graph", (engine, *rest), **{"seconds to set up": setup})
    found["graph"]["MB a model"] = round(torch.cuda.max_memory_reserved() / 1e6 / models, 4)
    if models in TRANSLATED:
        engine.captured, step.loss_and_gradients = None, torch.compile(PLAIN, dynamic=False)
        replay, engine.replay = engine.replay, engine.run
        advance(engine, *rest)  # translated before anything is captured
        engine.replay = replay
        try:
            measure("graph, translated by torch.compile", (engine, *rest))
        except RuntimeError as error:
            print(f"{models} models, translated: {str(error)[-500:]}", flush=True)
        step.loss_and_gradients = PLAIN
    engine.captured, engine.replay = None, engine.run
    measure("one by one", (engine, *rest))
    return found


def ceilings() -> dict:
    """What this card was seen to move and compute."""
    one = torch.rand(2**28, device="cuda")
    other = torch.empty_like(one)
    left = torch.rand(8192, 8192, device="cuda")
    other.copy_(one), left @ left
    copied = statistics.median(seconds(lambda: [other.copy_(one) for _ in range(10)]) for _ in range(3)) / 10
    product = statistics.median(seconds(lambda: left @ left) for _ in range(3))
    rates = {"copies, GB a second": 2 * one.nbytes / copied / 1e9}
    rates["float32 products, 10¹² operations a second"] = 2 * 8192**3 / product / 1e12
    return lab.rounded(rates, 3)


def agreement() -> dict:
    """How far histories on a GPU are from those on the CPU, and from those of weights that differ by rounding there."""
    found = {}
    for dtype, near in ((torch.float32, 1e-3), (torch.float64, 1e-6)):
        watch, settings = Watch(every=1), Settings(epochs=100)
        start = initial_models(range(AGREEMENT), settings, dtype)
        nudge = 1 + torch.finfo(dtype).eps
        here = train(range(AGREEMENT), settings, watch, compiled=False, dtype=dtype, start=start).history["loss"]
        nudged = start.map(lambda value, nudge=nudge: value * nudge)
        for name, how in {
            "the GPU": {"device": "cuda", "start": start},
            "the CPU, weights times 1 + ε": {"compiled": False, "start": nudged},
        }.items():
            apart = (train(range(AGREEMENT), settings, watch, dtype=dtype, **how).history["loss"] - here).abs()
            each = found[f"{dtype}, {name}"] = {}
            for at in (0, 1, 10, 30, 100):
                each[f"after epoch {at}"] = {"largest difference": apart[at].max(), "median": apart[at].median()}
                each[f"after epoch {at}"][f"below {near}"] = (apart[at] < near).sum()
    return lab.rounded({"models": AGREEMENT} | found, 3)


def success() -> dict:
    """How many models have learned the task after 1000 epochs on the CPU and on the GPU."""
    right = {
        name: train(range(OUTCOMES), PAPER, Watch(every=1000), **how).history["accuracy_all"][-1] == 1
        for name, how in {"CPU": {"compiled": True}, "GPU": {"device": "cuda"}}.items()
    }
    found = {"models": OUTCOMES} | {name: int(value.sum()) for name, value in right.items()}
    return found | {"same outcome": int((right["CPU"] == right["GPU"]).sum())}


def speed() -> dict:
    """Rates by the number of models."""
    return {str(models): rates(models) for models in MODELS}


def main() -> None:
    """Measure and write."""
    found = {"provenance": {}}
    for section in (agreement, success, ceilings, speed):
        began = time.perf_counter()
        value = section()
        made = lab.provenance("python3 benchmarks/gpu.py", time.perf_counter() - began)
        found["provenance"][section.__name__] = made | {"device": f"{torch.cuda.get_device_name()}, {made['device']}"}
        found[section.__name__] = value
        print(section.__name__, value, flush=True)
    lab.store(lab.RESULTS / "gpu_benchmark.json", found)


if __name__ == "__main__":
    main()
