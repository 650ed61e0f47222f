"""The tool that moves results as another machine's rounding would: what it moves, by how much, and what it leaves alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "rounding"
PROBE = """
import json, os, sys
import rounding
import numpy as np, torch
seed, *others = sys.argv[1:]
while others and os.fork():  # each seed in a process of its own that has seen no other
    os.wait()
    seed, *others = others
rounding.install(int(seed))
torch.set_default_dtype(torch.float64)
generator = torch.Generator().manual_seed(0)
draw = lambda *shape: torch.randn(*shape, generator=generator)
a, whole = draw(6, 6), torch.arange(16.0).reshape(4, 4)
found = {}
def units(one, other):  # in the last place
    return float(((one - other).abs() / torch.finfo(one.dtype).eps / torch.maximum(one.abs(), other.abs())).max())
for name, make in {
    "product": lambda: a @ a, "exp": lambda: a.exp(), "sum": lambda: a.sum(0), "single": lambda: a.float().exp(),
    "numpy": lambda: torch.from_numpy(np.exp(a.numpy())), "mean": lambda: torch.tensor(np.mean(a.numpy(), 0)),
}.items():
    found[name] = units(make(), make())
sums = torch.tensor([24.0, 28.0, 32.0, 36.0])
found["exact"] = bool((whole @ whole == (whole @ whole).round()).all()) and torch.equal(whole.sum(0), sums)
found["zero"] = float((a * 0).sum()) == 0 and float((a - a).exp().sum()) == 36
found["stream"] = [float(value).hex() for value in a.exp()[0]]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def probed():
    """What the probe finds under the seeds 1, 1 again and 2."""
    environment, seeds, found = os.environ | {"PYTHONPATH": str(TOOL)}, ["1", "1", "2"], []
    for asked in [seeds] if hasattr(os, "fork") else [[seed] for seed in seeds]:
        done = subprocess.run([sys.executable, "-c", PROBE, *asked], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        found += map(json.loads, done.stdout.splitlines())
    assert len(found) == len(seeds), done.stderr
    return found


@pytest.fixture
def found(probed):
    return probed[0]


@pytest.mark.parametrize("what", ["product", "exp", "sum", "single", "numpy", "mean"])
def test_results_move_by_some_units_in_the_last_place(what, found):
    assert 0 < found[what] <= 4  # each of the two by up to two


def test_what_every_order_of_summation_gives_exactly_stays(found):
    assert found["exact"]
    assert found["zero"]


def test_a_seed_says_how_everything_moves(probed):
    first, again, other = probed
    assert again == first
    assert other["stream"] != first["stream"]


STRINGS = """
import rounding
rounding.watch_strings()
from IPython.core.interactiveshell import InteractiveShell
import torch
shell = InteractiveShell.instance()
shell.user_ns["torch"] = torch
def run(text):
    done = shell.run_cell(text)
    return type(done.error_in_exec).__name__ + ": " + str(done.error_in_exec)
for text in {texts!r}:
    print(run("x = " + text))
"""


def test_a_string_that_hangs_on_the_last_digits_is_an_error():
    fine = ["f'{0.99854:.4f}'", "f'{0.125:.2f}'", "f'{7}'", "f'{3:5}'", "f'{1/3:.3g} {True} {\"a\":>4}'", "f'{1e3:.1e}'"]
    tensor = "torch.tensor(0.99855, dtype=torch.float64, requires_grad=True)"
    bad = ["f'{0.99855:.4f}'", "f'{0.2885:6.1%}'", "f'{1/3:.14f}'", f"f'{{{tensor}:.4f}}'"]
    environment = os.environ | {"PYTHONPATH": str(TOOL)}
    done = subprocess.run(
        [sys.executable, "-c", STRINGS.format(texts=fine + bad)], capture_output=True, text=True, env=environment
    )
    said = [line for line in done.stdout.splitlines() if line.startswith(("NoneType", "ValueError"))]
    assert said[: len(fine)] == ["NoneType: None"] * len(fine), done.stderr
    assert said[len(fine)] == "ValueError: 0.99855 may print as 0.9985 or 0.9986: use `decimal` of attnbook.printing"
    assert all(line.startswith("ValueError") for line in said[len(fine) :])
    assert len(said) == len(fine) + len(bad)
