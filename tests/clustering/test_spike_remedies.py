"""The remedies beside the usual runs: what is stored follows from its own numbers."""

import json

import pytest
import spike_remedies as script
from lab import RESULTS

from attnbook.printing import wilson

STORED = json.loads((RESULTS / "spike_remedies.json").read_text(encoding="utf-8"))


def test_all_remedies_are_there_with_one_setting_changed():
    assert set(script.REMEDIES) | {"pairs", "threshold", "none", "provenance"} == set(STORED)
    for settings in script.REMEDIES.values():
        changed = [name for name in vars(settings) if getattr(settings, name) != getattr(script.Settings(), name)]
        assert len(changed) == 1


@pytest.mark.parametrize("name", script.REMEDIES)
def test_a_ratio_is_that_of_the_counts_within_its_interval(name):
    plain, other = STORED["none"], STORED[name]
    middle, low, high = other["ratio"]
    assert middle == pytest.approx(other["late"] / other["epochs"] / (plain["late"] / plain["epochs"]), rel=1e-3)
    assert low < middle < high
    assert other["reached"][0] - plain["reached"][0] == other["won"] - other["lost"]
    assert other["reached"][2:] == pytest.approx(wilson(other["reached"][0], 100), rel=1e-3)
