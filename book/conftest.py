"""nbval, made strict: what is left out of the comparison, and a gate that says how many cells were compared."""

import collections

import pytest

EXPLORER = "application/vnd.attnopt.explorer+json"  # bulky, and tested on its own
LIVE = "live"  # cells that only show live widgets: executed, not compared


def excuse(cell):
    """Why a code cell would not be compared; empty if it is."""
    tags = cell.cell.metadata.get("tags", [])
    if cell.options["skip"]:
        return "marked to be skipped"
    if cell.cell.execution_count is None:
        return "never executed"
    if not cell.options["check"] and LIVE not in tags:
        return f"its output is ignored although it is not tagged {LIVE!r}"
    return ""


class Gate:
    """Counts the cells that were compared, notebook by notebook."""

    def __init__(self):
        self.expected, self.compared = collections.Counter(), collections.Counter()
        self.excused = []

    def pytest_itemcollected(self, item):
        if not hasattr(item, "cell_num"):
            return
        book = item.parent
        if EXPLORER not in book.skip_compare:
            book.skip_compare = (*book.skip_compare, EXPLORER)
        reason = excuse(item)
        if reason:
            self.excused.append(f"{item.nodeid}: {reason}")
        if item.options["check"] or reason:
            self.expected[book.nodeid] += 1

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        outcome = yield
        if hasattr(item, "cell_num") and outcome.excinfo is None and item.options["check"] and not excuse(item):
            self.compared[item.parent.nodeid] += 1

    def pytest_sessionfinish(self, session):
        if session.exitstatus == 0 and (self.excused or self.compared != self.expected):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        for name, total in self.expected.items():
            done = self.compared[name]
            terminalreporter.write_line(f"{name}: compared {done} of {total} cells", red=done < total, green=done == total)
        for line in self.excused:
            terminalreporter.write_line(line, red=True)


def pytest_configure(config):
    """Register the gate where notebooks are validated."""
    if config.getoption("nbval", False):
        config.pluginmanager.register(Gate())
