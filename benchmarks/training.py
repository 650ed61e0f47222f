"""How fast ensembles of Part III's transformer train: ours beside a straightforward PyTorch loop, in one run.

    python3 run.py bench [--quick]

Writes results/training_benchmark.json. Both train at the paper's settings and evaluate on training and test set; rounds
alternate between them, so that whatever else the machine does falls on both, and medians count. Rates are by the clock, and
by processor time ("cpu"): what the clock would say if the machine did nothing else. Of several processes the slowest counts.
With --quick all runs at tiny sizes, whose times say little, and nothing is written.
"""

import argparse
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from joblib import Parallel, delayed
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset

from attnopt.clustering import PAPER, Settings, Task, Watch, initial_models, train

RUNS, ROUNDS, PROCESSES = 100, 3, 2
EPOCHS = {1: 20, 10: 40}  # by how often is evaluated
MODELS, SEQUENCES, HELD = (1, 3, 10, 30, 100, 300), (256, 512, 1024, 2048, 4096), (1, 50, 100, 200, 400)
QUICK = {"RUNS": 4, "ROUNDS": 1, "EPOCHS": {1: 1, 10: 1}, "MODELS": (1, 3), "SEQUENCES": (32, 64), "HELD": (1, 3)}
sys.path.append(str(Path(__file__).resolve().parents[1] / "experiments"))
import lab  # noqa: E402

RESULT = lab.RESULTS / "training_benchmark.json"
MEMORY = """
import sys
from attnopt.clustering import Settings, train
train(range(int(sys.argv[1])), Settings(epochs=1))
print(next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


class Plain(nn.Module):
    """One model, as one would write it without the package."""

    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(2, 2), nn.Embedding(12, 2)
        self.query, self.value = nn.Linear(2, 1, bias=False), nn.Linear(2, 2, bias=False)
        self.receptors, self.assemblers = nn.Linear(2, 32), nn.Linear(32, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (n, 2) of sequences (n, 12)."""
        z = self.norm(self.token(tokens) + self.position.weight)
        attention = (self.query(z).squeeze(-1) / 2**0.5).softmax(-1)
        sequence = (attention.unsqueeze(-1) * self.value(z)).sum(1)
        output = sequence + self.assemblers(gelu(self.receptors(self.norm(sequence))))
        return output @ self.token.weight.T

    @staticmethod
    def norm(vectors: Tensor) -> Tensor:
        """Vectors over their root mean square."""
        return vectors / (vectors.square().mean(-1, keepdim=True).sqrt() + 1e-5)


def plain_epoch(by_index: bool, **adam) -> Callable[[], None]:
    """An epoch of the plain loop with evaluation; batches are fetched item by item, or all at once (``by_index``)."""
    generator = torch.Generator().manual_seed(0)
    data, test = (Task().sample(2048, generator) for _ in range(2))
    model = Plain()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3, **adam)
    dataset = TensorDataset(*data)
    at_once = BatchSampler(RandomSampler(dataset), 32, drop_last=False)
    how = {"sampler": at_once, "batch_size": None} if by_index else {"batch_size": 32, "shuffle": True}
    loader = DataLoader(dataset, **how)

    def epoch() -> None:
        for tokens, targets in loader:
            optimiser.zero_grad()
            cross_entropy(model(tokens), targets).backward()
            optimiser.step()
        with torch.no_grad():
            for tokens, targets in (data, test):
                logits = model(tokens)
                cross_entropy(logits, targets).item(), (logits.argmax(1) == targets).float().mean().item()

    return epoch


def same_model() -> None:
    """The plain model is the package's."""
    model, plain = initial_models([0]), Plain()
    weights = {"token.weight": "token", "position.weight": "position", "query.weight": "query", "value.weight": "value"}
    weights |= {"receptors.weight": "receptors", "receptors.bias": "receptor_biases"}
    weights |= {"assemblers.weight": "assemblers", "assemblers.bias": "assembler_bias"}
    plain.load_state_dict({ours: model.weights[name].view_as(plain.state_dict()[ours]) for ours, name in weights.items()})
    tokens = Task().all()[0]
    torch.testing.assert_close(plain(tokens), model.logits(tokens)[0])


def seconds(function: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock and of this process's processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def ours(processes: int, epochs: int, every: int) -> tuple[float, float]:
    """Seconds that training takes, divided as `ensemble` does."""

    def part(seeds: range) -> tuple[float, float]:
        return seconds(lambda: train(seeds, Settings(epochs=epochs), Watch(every=every)))

    if processes == 1:
        return part(range(RUNS))
    wall = time.perf_counter()
    size = RUNS // processes
    parts = Parallel(n_jobs=processes)(delayed(part)(range(at, at + size)) for at in range(0, RUNS, size))
    return time.perf_counter() - wall, max(cpu for _, cpu in parts)


def speed() -> dict:
    """Models·epochs a second, medians over the rounds."""
    tasks: dict[str, tuple[int, Callable[[], tuple[float, float]]]] = {}
    for name, epoch in {
        "plain loop": plain_epoch(by_index=False),
        "plain loop, fused Adam": plain_epoch(by_index=False, fused=True),
        "plain loop, fused Adam, batches fetched at once": plain_epoch(by_index=True, fused=True),
    }.items():
        tasks[name] = 1, partial(seconds, epoch)
    plain = list(tasks)
    for every, epochs in EPOCHS.items():
        for processes in (1, PROCESSES):
            name = f"{processes} process{'es' * (processes > 1)}, evaluating every {'epoch' if every == 1 else '10 epochs'}"
            tasks[name] = RUNS * epochs, partial(ours, processes, epochs, every)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
    ours(PROCESSES, 1, 1)  # starts them
    for _ in range(ROUNDS):
        for name, (count, task) in tasks.items():
            taken[name] += [task() for _ in range(3 if name in plain else 1)]
            print(f"  {name}: {count / taken[name][-1][0]:.1f} (cpu {count / taken[name][-1][1]:.1f})", flush=True)
    rates = {
        name: {
            "clock": round(count / statistics.median(wall for wall, _ in taken[name]), 1),
            "cpu": round(count / statistics.median(cpu for _, cpu in taken[name]), 1),
        }
        for name, (count, _) in tasks.items()
    }
    best = {kind: max(rates[name][kind] for name in plain) for kind in ("clock", "cpu")}
    ratios = {
        name: {kind: round(rate / best[kind], 1) for kind, rate in found.items()}
        for name, found in rates.items()
        if name not in plain
    }
    return {"models·epochs a second": rates, "times the best plain loop": ratios}


def cost(name: str, runs: int, n_train: int = PAPER.n_train) -> dict:
    """Milliseconds of processor time for one model's epoch, evaluating every tenth, in one process."""
    epochs = 10
    run = lambda: train(range(runs), Settings(n_train=n_train, epochs=epochs), Watch(every=10))  # noqa: E731
    cpu = statistics.median(seconds(run)[1] for _ in range(3))
    found = 1000 * cpu / epochs / runs
    print(f"  {name}: {found:.2f} ms", flush=True)
    return {name: round(found, 3)}


def memory(runs: int) -> float:
    """Megabytes that a process has had at most, having trained so many models."""
    done = subprocess.run([sys.executable, "-c", MEMORY, str(runs)], capture_output=True, text=True, check=True)
    print(f"  {runs} models: {float(done.stdout):.0f} MB", flush=True)
    return round(float(done.stdout), 1)


def main(arguments: list[str] | None = None) -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, and nothing is written")
    quick = parser.parse_args(arguments).quick
    globals().update(QUICK if quick else {})
    torch.set_num_threads(1)
    same_model()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else math.nan
    began = time.perf_counter()
    found = speed()
    print("cost …", flush=True)
    by_runs, by_data = {}, {}
    for runs in MODELS:
        by_runs |= cost(f"{runs} models", runs)
    for size in SEQUENCES:
        by_data |= cost(f"{size} sequences", RUNS, size)
    found["milliseconds of processor time for a model's epoch"] = {"of many": by_runs, f"of {RUNS}": by_data}
    if platform.system() == "Linux":
        print("memory …", flush=True)
        used = {runs: memory(runs) for runs in HELD}
        slope, base = statistics.linear_regression(list(used), list(used.values()))
        found["memory, MB"] = {
            "of many models": used,
            "a model": round(slope, 2),
            "without models": round(base),
            "largest deviation from the line": round(max(abs(mb - base - slope * runs) for runs, mb in used.items()), 1),
        }
    found["settings"] = {
        "load_average": [round(load, 1), round(os.getloadavg()[0], 1)] if hasattr(os, "getloadavg") else None,
        "setting": f"R = {RUNS} models of Part III's defaults, medians of {ROUNDS} rounds; the plain loop has one thread",
    }
    made = lab.provenance("python3 run.py bench", time.perf_counter() - began)
    found = {"provenance": dict.fromkeys(found, made)} | found
    if not quick:
        lab.store(RESULT, found)
    print(lab.written(found))


if __name__ == "__main__":
    main()
