"""The trainer of the pages succeeds as often as the package's models do; what it computes is tested in tests/site."""

import pytest
from laboratory import EPOCHS, RUNS, SUCCESS
from scipy.stats import binom, fisher_exact

from attnbook.folder import results
from attnbook.printing import wilson
from attnopt.clustering.trained import load_overview


@pytest.fixture(scope="module")
def stored():
    return results("laboratory")


def test_shares_and_intervals_are_those_of_the_accuracies(stored):
    assert len(stored["page"]["accuracy"]) == RUNS == 100
    assert EPOCHS == 1000
    assert stored["package"]["accuracy"] == pytest.approx(load_overview()["accuracy"].tolist(), abs=1e-6)
    for found in (stored["page"], stored["package"]):
        count, of, low, high = found["succeeded"]
        assert count == sum(accuracy > SUCCESS for accuracy in found["accuracy"])
        assert of == len(found["accuracy"])
        assert (low, high) == pytest.approx(wilson(count, of), abs=1e-6)
        assert all(4096 * accuracy == pytest.approx(round(4096 * accuracy), abs=0.01) for accuracy in found["accuracy"])


def test_the_page_succeeds_as_often_as_the_package(stored):
    (here, runs, *mine), (there, models, *theirs) = stored["page"]["succeeded"], stored["package"]["succeeded"]
    assert mine[0] < theirs[1]
    assert theirs[0] < mine[1]
    low, high = binom.interval(0.95, runs, there / models)
    assert low <= here <= high
    assert fisher_exact([[here, runs - here], [there, models - there]]).pvalue > 0.05
