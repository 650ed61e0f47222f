"""The explorer of the ideal circuit in the built page: the same numbers as Python's, and a readout that says them."""

import numpy as np
from explorer_pages import CIRCUIT, assert_same, in_page, mounted, status

from attnopt.explorers import IdealCircuitExplorer


def test_ideal_circuit_module_computes_what_python_computes(open_page):
    page = open_page(CIRCUIT, alone=True)
    rng = np.random.default_rng(0)
    states = [
        {},
        {"length": 16.0, "angle": 180.0, "split": 1.0, "noise": 1.0},
        {"length": 0.0, "noise": 0.3},
        {"length": 0.0},
    ]
    for _ in range(6):
        length, part, split, noise = rng.uniform(size=4)
        states.append({"length": 16 * length, "angle": 360 * part - 180, "split": split, "noise": noise**2})
    for state in states:
        explorer = IdealCircuitExplorer(**state)
        assert_same(explorer.compute(), in_page(page, "ideal_circuit", explorer.state()))


def test_ideal_circuit_shows_its_numbers_and_loses_them_under_strain(open_page):
    page = open_page(CIRCUIT, alone=True)
    explorer = mounted(page)
    assert "Right on 100.0 % of the 4096 sequences. Suffix invariance 1.000" in status(explorer)
    assert "overlap" not in status(explorer)
    start = IdealCircuitExplorer().state()
    for label, name, value in (
        ("query length", "length", 2.0),
        ("query angle", "angle", 60.0),
        ("split positions", "split", 0.6),
        ("noise", "noise", 0.4),
    ):
        explorer.get_by_role("slider", name=label).fill(f"{value:g}")
        start[name] = value
        numbers = IdealCircuitExplorer(**start).compute()
        assert f"Right on {100 * numbers['accuracy']:.1f} %" in status(explorer)
        assert f"permutation invariance {numbers['permutation']:.3f}" in status(explorer)
        ends = dict.fromkeys(f"{100 * numbers[end]:.2f} %" for end in ("least", "most"))  # one if they are equal
        assert f"get {' to '.join(ends)} of" in status(explorer)
    assert "overlap" in status(explorer)
    assert page.complaints == []
