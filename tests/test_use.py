"""The scripts with which the README and the API page open."""

import json
import math
import re
from dataclasses import fields, replace
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch

from attnbook.explorers import Sandbox
from attnopt.clustering import Settings, Task, train
from attnopt.clustering.training.laboratory import random_model

ROOT = Path(__file__).resolve().parents[1]
TEXT = re.search(r"<!-- use -->\n(.*)<!-- used -->", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)[1]
TRAIN, OWN, LOOK, GRID, CLUSTER = re.findall(r"```python\n(.*?)```", TEXT, re.S)
PAGE = (ROOT / "book" / "api.md").read_text(encoding="utf-8")
ENOUGH, TRACK, BRANCH, JOINED, LABORATORY, MODULE = re.findall(r"```{code-block} python\n(.*?)```", PAGE, re.S)


@pytest.fixture(autouse=True)
def shown(monkeypatch):
    """Figures that were shown, each by what its axes hold."""
    figures = []
    monkeypatch.setattr(plt, "show", lambda: figures.append(plt.gcf()))
    yield figures
    plt.close("all")


def test_twenty_models_are_trained_and_plotted(shown):
    assert "epochs=1000" in TRAIN
    held = {}
    exec(TRAIN.replace("epochs=1000", "epochs=2"), held)
    assert len(held["training"].models) == 20
    (figure,) = shown
    lines = figure.axes[0].lines
    assert len(lines) == 20
    for model, line in enumerate(lines):
        assert line.get_ydata().tolist() == held["training"].history["accuracy_all"][:, model].tolist()


def test_a_task_of_ones_own_is_learned(capsys):
    held = {}
    exec(OWN, held)
    said, *numbers = capsys.readouterr().out.split(":")[:2]
    accuracies = [float(number) for number in numbers[0].split()]
    assert said == "accuracies on all sequences"
    assert len(accuracies) == 4
    assert min(accuracies) > 0.95
    tokens, labels = Task(rule=held["majority"]).all()
    assert torch.equal(labels == 1, tokens[:, :5].double().mean(1) > 0.5)
    apart = Task(rule=held["majority"]).labels(tokens.unflatten(0, (2, -1)))  # of any leading dimensions, as Task says
    assert torch.equal(apart.flatten(), labels)
    right = (held["training"].models.logits(tokens).argmax(-1) == labels).double().mean(1)
    assert right.tolist() == pytest.approx(accuracies)
    weighted = eval(re.search(r"`(Task\(p=3.*?\))`", TEXT)[1], {"Task": Task})
    assert weighted.labels(torch.tensor([2, 2, 1, 2, 1, 1])) == (2 + 4 + 2) % 3


def test_one_model_is_looked_at(shown, capsys):
    held = {}
    exec(LOOK, held)
    assert capsys.readouterr().out.splitlines() == [
        "4096 of 4096 sequences right",
        "it adds up the tokens with the weights 1 -1 1 -1 1 -2 0 0 0 0 0 0",
        "this sum explains 99.7% of the variance of its sequence embeddings",
    ]
    left, right = shown[0].axes
    heights = [bar.get_height() for bar in left.patches]
    assert len(heights) == 12
    assert sum(heights) == pytest.approx(1)
    assert len(right.collections[0].get_offsets()) == 4096
    # reversed in order, sequences have all tokens flipped: five are an odd number, and so every answer turns
    assert torch.equal(held["swapped"]["logits"].argmax(-1)[0], 1 - held["labels"])
    assert held["model"].norm == "rms"  # which the scripts never say
    assert "norm" not in TRAIN + LOOK + GRID


def test_a_training_is_stopped_followed_and_branched():
    held = {}
    exec(ENOUGH.replace("0.99", "0.4"), held)  # which they reach at once
    assert held["training"].history["epoch"].tolist() == [0]
    assert held["training"].stopped.keys() == set(range(5))
    accuracy = torch.tensor([[0.995, math.nan, 0.999]])  # of three models, of which one diverged
    exec(ENOUGH.split("training")[0], held)
    assert held["enough"](10, None, {"accuracy_all": accuracy})
    assert not held["enough"](10, None, {"accuracy_all": accuracy - 0.01})
    rows = []
    held["tracker"] = type("Tracker", (), {"log": staticmethod(rows.append)})
    exec(TRACK, held)
    assert [row["epoch"] for row in rows] == [0, 10, 20, 30, 40, 50]
    assert rows[-1]["loss"] == held["training"].history["loss"][-1].mean().item()
    exec(BRANCH.replace("300", "2").replace("Settings(", "Settings(epochs=4, "), held)
    assert held["slower"].history["epoch"].tolist() == [4]
    exec(JOINED.replace("300", "2"), held)
    assert held["curves"]["epoch"].tolist() == [0, 4]
    assert held["curves"]["loss"].shape == (2, 5)


def test_a_run_of_the_laboratory_is_repeated():
    held = {}
    exec(LABORATORY.replace("epochs=200", "epochs=2"), held)
    settings, training = held["settings"], held["training"]
    address = dict(part.split(":") for part in re.search(r"#sandbox=(run:own;.*?)\"", PAGE)[1].split(";"))
    assert address.pop("rule").replace("%20", " ") == " ".join(map(str, settings.task.rule))
    ours = {"count": settings.n_train, "rate": settings.learning_rate, "decay": settings.weight_decay, "goal": 200}
    ours |= {"discount": settings.mlp_discount, "seed": 3}
    assert {name: float(value) for name, value in address.items() if name != "run"} == ours
    weights = random_model(3, 2, 12, 2, 32, "rms").weights
    found = train([3], replace(settings, epochs=0), dtype=torch.float64)
    assert all(torch.equal(value, weights[name]) for name, value in found.models.weights.items())
    assert training.models.weights["query"].dtype == torch.float64


def test_the_page_names_the_settings_of_the_laboratory():
    rows = re.search(r"\| laboratory \| package \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE)[1].splitlines()
    names = {}
    for theirs, ours in (row.strip("|").split("|") for row in rows):
        names |= dict.fromkeys(re.findall(r"`(\w+)`", theirs), re.search(r"`(\w+)`", ours)[1])
    settings = {field.name for field in fields(Settings)} - {"task", "vocabulary", "draws"}
    told = {"p", "length", "k", "rule", "seed", "start"}  # of the task; in sentences
    shown = {"runs", "run", "epoch", "prefix", "suffix", "sequence", "data", "edits", "fork", "live"}  # none
    assert set(Sandbox.class_own_traits()) - names.keys() - told - shown == settings - set(names.values())


def test_a_module_takes_hooks(capsys):
    held = {}
    exec(MODULE, held)
    shape, share = capsys.readouterr().out.split("]) tensor(")
    assert shape == "torch.Size([4096, 12"
    assert 0.4 < float(share.split(",")[0]) < 0.6  # of the reversed sequences' values with the own attention
    assert held["kept"]["attention"].sum(-1).allclose(torch.ones(4096, dtype=torch.float64))


def test_a_grid_is_one_call(capsys):
    held = {}
    exec(GRID.replace("epochs=60", "epochs=1"), held)
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["16", "32", "64"]
    alone = train([2], Settings(batch_size=32, epochs=1)).history["accuracy_all"][-1].item()
    assert held["grid"].history["accuracy_all"][-1][6].item() == pytest.approx(alone)


def test_the_page_shows_the_defaults_of_the_settings():
    shown = re.search(r"autoclass:: (Settings\(.*\))", PAGE)[1]
    assert eval(shown, {"Settings": Settings, "Task": Task, "inf": math.inf}) == Settings()
    assert re.findall(r"(\w+)=", shown) == [field.name for field in fields(Settings)]


def test_an_ensemble_moves_to_a_cluster(tmp_path):
    distributed = pytest.importorskip("distributed", reason="distributed is not among the oldest versions")
    lines, held = CLUSTER.replace("range(1000)", "range(5)").replace("chunk=20", "chunk=2"), {}
    lines = lines.replace("epochs=500", "epochs=3").replace('"runs"', repr(str(tmp_path)))
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        exec(lines.replace("tcp://scheduler:8786", cluster.scheduler_address), held)
    assert len(list(tmp_path.glob("chunk_*.npz"))) == 3
    alone = train(range(5), Settings(epochs=3))
    for name, value in alone.history.items():
        assert torch.equal(value, held["training"].history[name]), name
    for name, value in alone.models.weights.items():
        assert torch.equal(value, held["training"].models.weights[name]), name


def test_the_rates_on_a_gpu_are_those_stored():
    found = json.loads((ROOT / "results" / "gpu_benchmark.json").read_text(encoding="utf-8"))
    section = PAGE.partition("### On a GPU\n")[2].partition("\n### ")[0]
    rows = [
        [cell.strip().replace(",", "") for cell in line.split("|")[1:-1]] for line in section.splitlines() if "|" in line
    ]
    ways = "graph", "one by one", "CPU, 2 threads", "CPU, 16 threads"
    for models, *cells in rows[2:]:
        speed = found["speed"][models]
        rates = [speed.get(way, {}).get("models·epochs a second", math.nan) for way in ways]
        assert cells == ["not measured" if math.isnan(rate) else f"{rate:.0f}" for rate in rates]
    assert [row[0] for row in rows[2:]] == list(found["speed"])
    translated = [
        round(
            speed["graph, translated by torch.compile"]["models·epochs a second"] / speed["graph"]["models·epochs a second"],
            1,
        )
        for speed in found["speed"].values()
        if "graph, translated by torch.compile" in speed
    ]
    assert f"a further factor of {min(translated)} to {max(translated)}" in section
    many = found["speed"]["10000"]["graph"]
    assert f"{many['MB a model']:.2f} MB" in section
    assert f"takes {many['seconds to set up']:.0f} seconds" in section
    moved = json.loads((ROOT / "results" / "training_benchmark.json").read_text(encoding="utf-8"))
    moved = moved["where the time goes"]["plain steps"]["megabytes moved"]
    share = moved * many["models·epochs a second"] / 1000 / found["ceilings"]["copies, GB a second"]
    assert f"at least {100 * share:.0f}%" in section
    for epoch, words in ((10, "17 of 20 models"), (100, "13 after 100 epochs")):
        at = f"after epoch {epoch}"
        agree = {
            found["agreement"][f"torch.float64, {way}"][at]["below 1e-06"]
            for way in ("the GPU", "the CPU, weights times 1 + ε")
        }
        assert words in section
        assert agree == {int(re.match(r"\d+", words)[0])}
    success = found["success"]
    assert (
        f"{success['CPU']:,} succeed on the CPU and {success['GPU']:,} on the GPU; {success['same outcome']:,} have"
        in section
    )
    assert f"Of {success['models']:,} models" in section


def test_the_rates_beside_other_ways_are_those_stored():
    stored = json.loads((ROOT / "results" / "training_benchmark.json").read_text(encoding="utf-8"))["models·epochs a second"]
    section = PAGE.partition("### Compared with other ways to train\n")[2].partition("\n### ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines() if line.startswith("| ")][1:]
    ways = [name for name in stored if not name.startswith(("1 process, evaluating every 10", "2 processes", "compiled, 2"))]
    ways.sort(key=lambda name: (name.startswith(("1 process", "compiled")), name.startswith("all models")))
    ways.append("compiled, 2 processes, evaluating every 10 epochs")
    best = max(stored[name]["cpu"] for name in ways if name.startswith("plain loop"))
    assert [row[1:] for row in rows] == [[f"{stored[way]['cpu']:,.0f}", f"{stored[way]['cpu'] / best:.1f}"] for way in ways]
    (jax,) = (name for name in ways if "JAX" in name)
    assert jax.split()[4] in section
    assert f"reached {stored[jax]['clock']:,.0f} models" in section
