"""Training on another device than the CPU: on a pretended one, which refuses numbers that were left behind, and on a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from attnopt.clustering import Settings, Task, Watch, train

TESTS = Path(__file__).parents[1]
PROBE = """
import sys, warnings
from dataclasses import replace
import torch
from pretend_device import NAME, Pretended, There
from attnopt.clustering import Settings, Task, Watch, train
from attnopt.clustering.training.record import Record

save = Record.save

def save_and_stop(*given):
    save(*given)
    raise KeyboardInterrupt

def same(one, other):
    assert type(one) is torch.Tensor, "it stayed there"
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)

torch.set_num_threads(1)
each = {"weight_decay": [0.1, 0, 0.01], "clip": [1.0, 0.1, 3.0], "mlp_discount": [2.0, 1.0, 1.0]}
each |= {"width": [4, 8, 8], "learning_rate": [1e-2, 1e-3, 1e-3], "betas": (0.8, 0.9)}
small = {"n_train": 48, "epochs": 3}
for settings, dtype in (
    (Settings(Task(2, 6, 3), batch_size=[16, 48, 16], **small), torch.float32),
    (Settings(Task(3, 4, 2), norm="unit", dim=3, vocabulary=4, **small, **each), torch.float64),
    (Settings(Task(2, 20, 3), norm="smooth", batch_size=20, **small), torch.float32),
):
    how, file = {"watch": Watch(snapshots=(0, 2)), "dtype": dtype}, f"{sys.argv[1]}/{settings.norm}"
    here = train([5, 6, 7], settings, **how)
    with Pretended():
        there = train([5, 6, 7], settings, device=NAME, **how)
        Record.save = save_and_stop
        try:
            train([5, 6, 7], settings, device=NAME, checkpoint=file, checkpoint_every=1, **how)
        except KeyboardInterrupt:
            Record.save = save
        again = train([5, 6, 7], settings, device=NAME, checkpoint=file, **how)  # goes on from what was saved
    for found in (there, again):
        assert set(found.snapshots) == {0, 2}
        for models, others in zip([found.models, *found.snapshots.values()], [here.models, *here.snapshots.values()]):
            for name, value in models.weights.items():
                same(value, others.weights[name])
        for name, value in found.history.items():
            same(value, here.history[name])

diverging = Settings(learning_rate=[1e-3, 3e38, 1e-3], n_train=48, epochs=2)
with warnings.catch_warnings(action="ignore"):
    here = train([5, 6, 7], diverging)
    with Pretended():
        there = train([5, 6, 7], diverging, device=NAME)
assert here.stopped == there.stopped and list(there.stopped) == [1]
assert torch.equal(there.history["loss"].isnan(), here.history["loss"].isnan())

with Pretended():
    numbers = torch.ones(2, device=NAME)
    assert isinstance(numbers, There) and numbers.device.type == NAME
    try:
        numbers + torch.ones(2)
    except RuntimeError as error:
        assert "here and there" in str(error)
    else:
        raise AssertionError("the device minds nothing")
"""


def test_training_leaves_nothing_behind_on_the_cpu(tmp_path):
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", PROBE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(
    "settings",
    [
        Settings(Task(2, 6, 3), batch_size=[16, 48, 16], n_train=48, epochs=4),
        Settings(Task(3, 4, 2), norm="unit", dim=3, n_train=40, epochs=4, weight_decay=[0.1, 0, 0.01], clip=[1.0, 0.1, 3.0]),
        Settings(Task(2, 6, 3), n_train=48, epochs=4, draws="laboratory"),
    ],
    ids=["batch sizes", "decay and clipping", "own orders"],
)
def test_a_gpu_takes_the_steps_of_the_cpu(settings, tmp_path):
    how = {"watch": Watch(every=1, snapshots=(0, 2), resumable=True), "dtype": torch.float64}
    here = train([5, 6, 7], settings, **how)
    for there in (train([5, 6, 7], settings, device="cuda", **how), train([5, 6, 7], settings, device="cuda", **how)):
        for name, value in there.history.items():
            torch.testing.assert_close(value, here.history[name], rtol=1e-9, atol=1e-9)
        for name, value in there.models.weights.items():
            torch.testing.assert_close(value, here.models.weights[name], rtol=1e-9, atol=1e-9)
    if len(set(settings.each(3).batch_size)) == 1:
        rest = train([5, 6, 7], settings, Watch(every=1), start=there.states[2], device="cuda", dtype=torch.float64)
        for name, value in rest.models.weights.items():
            torch.testing.assert_close(value, here.models.weights[name], rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_model_that_diverges_on_a_gpu_leaves_the_others():
    diverging = Settings(learning_rate=[1e-3, 3e38, 1e-3], n_train=48, epochs=3)
    with pytest.warns(RuntimeWarning, match="diverged"):
        there = train([5, 6, 7], diverging, Watch(every=1), device="cuda")
    assert list(there.stopped) == [1]
    assert there.history["loss"][:, [0, 2]].isfinite().all()
