"""How fast ensembles of Part III's transformer train: ours beside straightforward PyTorch, in one run.

    python3 run.py bench [--quick]

Writes results/training_benchmark.json. Both train at the paper's settings and evaluate on training and test set; rounds
alternate between them, so that whatever else the machine does falls on both, and medians count. Rates are by the clock, and
by processor time ("cpu"): what the clock would say if the machine did nothing else. Of several processes the slowest counts.
Beside the plain loops stand PyTorch's own ways to be faster: a loop translated by `torch.compile`, and all models at once by
`torch.func`; and JAX, where it is installed (`pip install jax`). What needs a C compiler is left out where there is none;
translation is not timed. "where the time goes"
compares what a step moves and computes with what this processor was seen to move and compute in the same run.
With --quick all runs at tiny sizes, whose times say little, and nothing is written.
"""

import argparse
import importlib.metadata
import importlib.util
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
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.functional import cross_entropy, gelu
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from torch.utils.flop_counter import FlopCounterMode

from attnopt.clustering import PAPER, Settings, Task, Watch, initial_models, train, training_data
from attnopt.clustering.training.compiled import compiler
from attnopt.clustering.training.trainer import advance, begin, one_thread

TRANSLATED = "loop translated by torch.compile, fused Adam, batches fetched at once"
RUNS, ROUNDS, PROCESSES, BACKEND = 100, 3, 2, "inductor"
SHORT, STEADY = 3, 7  # repeats of a short task in a round, and of a pass
EPOCHS = {1: 20, 10: 40}  # by how often is evaluated
HELD = (1, 50, 100, 200, 400)
QUICK = {"RUNS": 4, "ROUNDS": 1, "EPOCHS": {1: 1, 10: 1}, "HELD": (1, 3), "SHORT": 1, "STEADY": 1}
QUICK |= {"BACKEND": "aot_eager"}  # traced, but not handed to the C++ compiler, which takes half a minute
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


def plain_epoch(by_index: bool, translated: bool = False, **adam) -> Callable[[], None]:
    """An epoch of the plain loop with evaluation; batches are fetched item by item, or all at once (``by_index``).

    Args:
        by_index: how batches are fetched.
        translated: whether the model and its loss are handed to `torch.compile`.
        adam: how Adam is to compute.
    """
    generator = torch.Generator().manual_seed(0)
    data, test = (Task().sample(2048, generator) for _ in range(2))
    model = Plain()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, **adam)
    dataset = TensorDataset(*data)
    at_once = BatchSampler(RandomSampler(dataset), 32, drop_last=False)
    how = {"sampler": at_once, "batch_size": None} if by_index else {"batch_size": 32, "shuffle": True}
    loader = DataLoader(dataset, **how)
    loss = lambda tokens, targets: cross_entropy(model(tokens), targets)  # noqa: E731
    loss = torch.compile(loss, dynamic=False, backend=BACKEND) if translated else loss

    def epoch() -> None:
        for tokens, targets in loader:
            optimizer.zero_grad()
            loss(tokens, targets).backward()
            optimizer.step()
        with torch.no_grad():
            for tokens, targets in (data, test):
                logits = model(tokens)
                cross_entropy(logits, targets).item(), (logits.argmax(1) == targets).float().mean().item()

    return epoch


def mapped_epoch() -> Callable[[], None]:
    """An epoch of all models at once with evaluation, by `torch.func`: Adam on stacked parameters."""
    data, test = training_data(range(RUNS), Task()), training_data(range(RUNS, 2 * RUNS), Task())
    model, starts = Plain(), [named(at) for at in range(RUNS)]
    stacked = {name: torch.stack([start[name] for start in starts]).requires_grad_() for name in starts[0]}
    optimizer = torch.optim.Adam(stacked.values(), lr=3e-3, fused=True)

    def loss(weights: dict[str, Tensor], tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = functional_call(model, weights, (tokens,))
        return cross_entropy(logits, targets), (logits.argmax(1) == targets).float().mean()

    step, judge = vmap(grad_and_value(loss, has_aux=True)), vmap(loss)

    def epoch() -> None:
        for batch in torch.randperm(2048).split(32):
            for name, found in step(stacked, data[0][:, batch], data[1][:, batch])[0].items():
                stacked[name].grad = found
            optimizer.step()
        with torch.no_grad():
            for tokens, targets in (data, test):
                judge(stacked, tokens, targets)

    return epoch


def jax_epoch() -> Callable[[], None]:
    """An epoch of all models at once with evaluation, by JAX: `vmap`, `grad`, a `scan` over batches, translated as one."""
    import jax
    from jax import numpy as jnp

    parts = [{name: weight.numpy() for name, weight in named(at).items()} for at in range(RUNS)]
    weights = jax.tree.map(lambda *each: jnp.stack(each), *parts)
    data, test = (
        tuple(jnp.asarray(part.numpy()) for part in training_data(range(start, start + RUNS), Task())) for start in (0, RUNS)
    )

    def norm(vectors):
        return vectors / (jnp.sqrt(jnp.square(vectors).mean(-1, keepdims=True)) + 1e-5)

    def loss(weights, tokens, targets):
        z = norm(weights["token.weight"][tokens] + weights["position.weight"])
        attention = jax.nn.softmax((z @ weights["query.weight"].T).squeeze(-1) / 2**0.5)
        sequence = (attention[..., None] * (z @ weights["value.weight"].T)).sum(1)
        hidden = norm(sequence) @ weights["receptors.weight"].T + weights["receptors.bias"]
        added = jax.nn.gelu(hidden, approximate=False) @ weights["assemblers.weight"].T + weights["assemblers.bias"]
        logits = (sequence + added) @ weights["token.weight"].T
        right = jnp.take_along_axis(logits, targets[:, None], 1).squeeze(1)
        return (jax.nn.logsumexp(logits, 1) - right).mean(), (logits.argmax(1) == targets).mean()

    def step(state, batch):
        weights, mean, square, count = state
        slope = jax.vmap(jax.grad(loss, has_aux=True))(weights, data[0][:, batch], data[1][:, batch])[0]
        count += 1
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, slope)
        square = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, square, slope)
        root = lambda v: jnp.sqrt(v / (1 - 0.999**count)) + 1e-8  # noqa: E731
        move = lambda w, m, v: w - 3e-3 * m / (1 - 0.9**count) / root(v)  # noqa: E731
        return (jax.tree.map(move, weights, mean, square), mean, square, count), None

    @jax.jit
    def pass_through(state, order):
        state, _ = jax.lax.scan(step, state, order)
        return state, [jax.vmap(loss)(state[0], *examples) for examples in (data, test)]

    zeros = jax.tree.map(jnp.zeros_like, weights)
    state = weights, zeros, zeros, jnp.zeros(())
    theirs = jax.vmap(loss)(weights, *data)[0][0]
    plain = Plain()
    plain.load_state_dict(named(0))
    tokens, targets = (part[0] for part in training_data([0], Task()))
    torch.testing.assert_close(torch.tensor(theirs.item()), cross_entropy(plain(tokens), targets))

    def epoch() -> None:
        nonlocal state
        state, judged = pass_through(state, jnp.asarray(torch.randperm(2048).view(-1, 32).numpy()))
        jax.block_until_ready((state, judged))

    return epoch


def named(seed: int) -> dict[str, Tensor]:
    """The weights that a seed begins with, by the names that the plain model has for them."""
    model, plain = initial_models([seed]), Plain().state_dict()
    weights = {"token.weight": "token", "position.weight": "position", "query.weight": "query", "value.weight": "value"}
    weights |= {"receptors.weight": "receptors", "receptors.bias": "receptor_biases"}
    weights |= {"assemblers.weight": "assemblers", "assemblers.bias": "assembler_bias"}
    return {ours: model.weights[name].view_as(plain[ours]) for ours, name in weights.items()}


def same_model() -> None:
    """The plain model is the package's."""
    plain, tokens = Plain(), Task().all()[0]
    plain.load_state_dict(named(0))
    torch.testing.assert_close(plain(tokens), initial_models([0]).logits(tokens)[0])


def seconds(function: Callable[[], object]) -> tuple[float, float]:
    """Seconds of the clock and of this process's processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def ours(processes: int, epochs: int, every: int, compiled: bool) -> tuple[float, float]:
    """Seconds that training takes, divided as `ensemble` does."""

    def part(seeds: range) -> tuple[float, float]:
        return seconds(lambda: train(seeds, Settings(epochs=epochs), Watch(every=every), compiled=compiled))

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
    tasks["all models by torch.func.vmap and grad, fused Adam"] = RUNS, partial(seconds, mapped_epoch())
    if importlib.util.find_spec("jax"):
        name = f"all models by JAX {importlib.metadata.version('jax')}: vmap, grad and scan in one translation"
        tasks[name] = RUNS, partial(seconds, jax_epoch())
        tasks[name][1]()
    if compiler() is not None:
        tasks[TRANSLATED] = 1, partial(seconds, plain_epoch(by_index=True, translated=True, fused=True))
        tasks[TRANSLATED][1]()
    for compiled in (False, True) if compiler() is not None else (False,):
        ours(PROCESSES, 1, 1, compiled)  # starts them, and translates
        ours(1, 1, 1, compiled)
        for every, epochs in EPOCHS.items():
            for processes in (1, PROCESSES):
                name = (
                    f"{processes} process{'es' * (processes > 1)}, evaluating every {'epoch' if every == 1 else '10 epochs'}"
                )
                name = f"compiled, {name}" if compiled else name
                long = epochs * (4 if compiled else 1)
                tasks[name] = RUNS * long, partial(ours, processes, long, every, compiled)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
    for _ in range(ROUNDS):
        for name, (count, task) in tasks.items():
            taken[name] += [task() for _ in range(SHORT if count == 1 else 1)]
            print(f"  {name}: {count / taken[name][-1][0]:.1f} (cpu {count / taken[name][-1][1]:.1f})", flush=True)
    rates = {
        name: {
            "clock": round(count / statistics.median(wall for wall, _ in taken[name]), 1),
            "cpu": round(count / statistics.median(cpu for _, cpu in taken[name]), 1),
        }
        for name, (count, _) in tasks.items()
    }
    found = {"models·epochs a second": rates}
    for than, loops in {"the best plain loop": plain, f"the {TRANSLATED}": [TRANSLATED]}.items():
        if set(loops) <= set(tasks):
            best = {kind: max(rates[name][kind] for name in loops) for kind in ("clock", "cpu")}
            found[f"times {than}"] = {
                name: {kind: round(rate / best[kind], 1) for kind, rate in rate_of.items()}
                for name, rate_of in rates.items()
                if name not in plain
            }
    return found


def memory(runs: int) -> float:
    """Megabytes that a process has had at most, having trained so many models."""
    done = subprocess.run([sys.executable, "-c", MEMORY, str(runs)], capture_output=True, text=True, check=True)
    print(f"  {runs} models: {float(done.stdout):.0f} MB", flush=True)
    return round(float(done.stdout), 1)


KINDS = {
    "matrix products": ("bmm", "baddbmm", "mm", "addmm"),
    "the GELU and its derivative": ("gelu", "gelu_backward"),
    "sums and largest entries": ("sum", "amax", "amin"),
    "fetching batches": ("index_select", "randperm"),
    "other operations entry by entry": (
        "add", "add_", "sub", "mul", "mul_", "div", "neg", "pow", "square", "sqrt", "sqrt_", "reciprocal", "exp", "log",
        "clamp_min", "lerp_", "addcmul_", "addcdiv_", "copy_", "cat", "lt",
    ),
}  # fmt: skip
REST = "calls, views and memory"
GELU = 60  # operations that compiled code does for an activation and its derivative


class Moved(TorchDispatchMode):
    """Counts the bytes that operations read and write, and the entries that they write."""

    def __init__(self):
        super().__init__()
        self.bytes, self.entries = 0, 0

    def __torch_dispatch__(self, function, types, given=(), named=None):
        found = function(*given, **(named or {}))
        if not function.is_view and isinstance(found, Tensor):
            read = [value for value in (*given, *(named or {}).values()) if isinstance(value, Tensor)]
            self.bytes += sum(value.numel() * value.element_size() for value in [*read, found])
            self.entries += found.numel()
        return found


def median_seconds(function: Callable[[], object]) -> float:
    """Median processor time."""
    function()
    return statistics.median(seconds(function)[1] for _ in range(STEADY))


@one_thread()
def whereabouts() -> dict:
    """Where the time of a step goes, and how far it is from what this processor can do."""
    one, other, into = (torch.rand(RUNS, 32, 32) for _ in range(3))
    left, right = torch.rand(512, 512), torch.rand(512, 512)
    rate = 100 * 3 * one.numel() * 4 / median_seconds(lambda: [torch.add(one, other, out=into) for _ in range(100)])
    power = 2 * 512**3 / median_seconds(lambda: left @ right)
    arrays = f"adding arrays of {one.numel() * 4 / 1e6:.1g} MB, gigabytes a second"
    found = {"this processor, one thread": {arrays: rate / 1e9, "matrix products, 10⁹ operations a second": power / 1e9}}
    for compiled in (False, True) if compiler() is not None else (False,):
        parts = _, state, _, record = begin(
            list(range(RUNS)), PAPER.each(RUNS), Watch(every=1), initial_models(range(RUNS)), compiled
        )
        pass_through, evaluate = partial(advance, *parts), partial(record.keep, state)
        each = RUNS * 1e-3
        spent = median_seconds(pass_through) / each
        entry = {"milliseconds of a model's epoch": spent, "of its evaluation": median_seconds(evaluate) / each}
        if not compiled:
            with profile(activities=[ProfilerActivity.CPU]) as measured:
                pass_through()
            times = {event.key.removeprefix("aten::"): event.self_cpu_time_total for event in measured.key_averages()}
            known = {kind: sum(times.get(name, 0) for name in names) for kind, names in KINDS.items()}
            known[REST] = sum(times.values()) - sum(known.values())
            entry["shares, under the profiler"] = {kind: time / sum(times.values()) for kind, time in known.items()}
            with Moved() as moved, FlopCounterMode(display=False) as products:
                pass_through()
            entry |= {"megabytes moved": moved.bytes / RUNS / 1e6, "10⁶ operations in products": 0.0}
            entry["10⁶ operations in products"] = in_products = products.get_total_flops() / RUNS / 1e6
            at_best = max(moved.bytes / RUNS / rate, 1e6 * in_products / power)
        else:
            count, width = PAPER.n_train, PAPER.each(1).width[0]
            entry["10⁶ operations"] = in_products + GELU * count * width / 1e6
            at_best = 1e6 * entry["10⁶ operations"] / power
        entry["times what these take at the processor's rates"] = spent * 1e-3 / at_best
        found["compiled steps" if compiled else "plain steps"] = entry
    return lab.rounded(found, 3)


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
    print("where the time goes …", flush=True)
    found["where the time goes"] = whereabouts()
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
        "C compiler": compiler() is not None or "no compiler",
    }
    made = lab.provenance("python3 run.py bench", time.perf_counter() - began)
    found = {"provenance": dict.fromkeys(found, made)} | found
    if not quick:
        lab.store(RESULT, found)
    print(lab.written(found))


if __name__ == "__main__":
    main()
