"""The scripts with which the README and the API page open."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
TEXT = re.search(r"<!-- use -->\n(.*)<!-- used -->", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)[1]
TRAIN, LOOK = re.findall(r"```python\n(.*?)```", TEXT, re.S)


@pytest.fixture(autouse=True)
def shown(monkeypatch):
    """Figures that were shown, each by what its axes hold."""
    figures = []
    monkeypatch.setattr(plt, "show", lambda: figures.append(plt.gcf()))
    yield figures
    plt.close("all")


def test_twenty_models_are_trained_and_plotted(shown):
    assert "epochs=300" in TRAIN
    held = {}
    exec(TRAIN.replace("epochs=300", "epochs=2"), held)
    assert len(held["training"].models) == 20
    (figure,) = shown
    lines = figure.axes[0].lines
    assert len(lines) == 20
    for model, line in enumerate(lines):
        assert line.get_ydata().tolist() == held["training"].history["accuracy_all"][:, model].tolist()


def test_one_model_is_looked_at(shown, capsys):
    held = {}
    exec(LOOK, held)
    assert capsys.readouterr().out.splitlines() == [
        "4096 of 4096 sequences right",
        "it counts tokens with the weights 1 1 1 1 1 0 0 0 0 0 0 0",
        "which explains 99.9 % of its embeddings",
    ]
    left, right = shown[0].axes
    heights = [bar.get_height() for bar in left.patches]
    assert len(heights) == 12
    assert sum(heights) == pytest.approx(1)
    assert len(right.collections[0].get_offsets()) == 4096
    # reversed in order, sequences have all tokens flipped: five are an odd number, and so every answer turns
    assert torch.equal(held["swapped"]["logits"].argmax(-1)[0], 1 - held["labels"])
    assert held["model"].norm == "rms"  # which the scripts never say
    assert "norm" not in TRAIN + LOOK
