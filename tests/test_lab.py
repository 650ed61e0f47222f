"""An experiment's record keeps what is finished, and every stored result says where it comes from in the same way."""

import json
import math

import lab
import numpy as np
import pytest
import torch


@pytest.fixture
def record(tmp_path, monkeypatch):
    """A record of three sections, and how often each was computed."""
    monkeypatch.setattr(lab, "RESULTS", tmp_path)
    record = lab.Record("toy", digits=3)
    record.calls = []

    @record.section
    def first():
        record.calls.append("first")
        return {"numbers": torch.tensor([1 / 3, 2.0]).double(), "none": np.array([math.inf])}

    @record.section
    def second_():
        record.calls.append("second")
        if record.calls.count("second") == 1:
            raise OSError(28, "No space left on device")
        return record.stored()["first"]["numbers"]

    @record.section
    def absent():
        record.calls.append("absent")

    return record


def call(record, monkeypatch, *words):
    monkeypatch.setattr("sys.argv", ["toy.py", *words])
    record.main()


def test_a_finished_section_is_stored_at_once_and_computed_again_only_when_named(record, monkeypatch, capsys):
    with pytest.raises(SystemExit, match="No space left on device: mend its cause"):
        call(record, monkeypatch)
    assert record.stored()["first"] == {"numbers": [0.333, 2.0], "none": [None]}
    call(record, monkeypatch)
    assert record.stored()["second"] == [0.333, 2.0]
    assert record.calls == ["first", "second", "second", "absent"]
    assert "absent: left out, what it needs is missing" in capsys.readouterr().out
    call(record, monkeypatch, "first")
    assert record.calls[-1:] == ["first"]
    assert set(record.stored()["provenance"]) == {"first", "second"}
    assert record.stored()["provenance"]["second"]["command"] == "python experiments/toy.py second"


def test_trainings_that_were_kept_count_as_if_made_again(record, monkeypatch):
    @record.section
    def trained():
        return {"seconds": [None, 1200], "seeds": [{"seconds": 2400, "error": 0.5}]}

    call(record, monkeypatch, "trained", "--jobs", "2")
    assert record.stored()["provenance"]["trained"]["seconds"] == 1800


def test_a_kept_training_is_done_once_and_an_interrupted_one_again(tmp_path, monkeypatch):
    monkeypatch.setattr(lab, "CACHE", tmp_path)
    trained = []

    @lab.kept("toy")
    def run(setting, seed):
        trained.append((setting, seed))
        if len(trained) == 1:
            raise KeyboardInterrupt
        return {"weights": {"a": torch.full((2,), float(seed))}}

    with pytest.raises(KeyboardInterrupt):
        run("base", 3)
    assert torch.equal(run("base", 3)["weights"]["a"], run("base", 3)["weights"]["a"])
    run("base", 4)
    assert trained == [("base", 3), ("base", 3), ("base", 4)]
    assert sorted(path.name for path in (tmp_path / "toy").iterdir()) == ["base-3.pt", "base-4.pt"]


def test_an_unknown_section_is_named(record, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        call(record, monkeypatch, "third")
    assert "SECTION must be one of first, second, absent, got third" in capsys.readouterr().err


def test_numbers_are_rounded_all_the_way_down():
    assert lab.rounded([{"a": (1.23456, 7, True, None, "x")}, np.float64(1e-9 / 3)], 2) == [
        {"a": [1.2, 7, True, None, "x"]}, 3.3e-10,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "path", [*lab.RESULTS.glob("*.json"), lab.ROOT / "src/attnopt/data/gdpp_optima.json"], ids=lambda p: p.stem
)
def test_every_section_of_a_result_says_where_it_comes_from(path):
    found = json.loads(path.read_text(encoding="utf-8"), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert set(found["provenance"]) == set(found) - {"provenance"}
    for made in found["provenance"].values():
        assert made.get("engine", "plain") in ("plain", "compiled")
        assert set(made) - {"engine"} == {"command", "commit", "versions", "device", "threads", "seconds"}
