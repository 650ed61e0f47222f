"""Settings shared by the tests, and the rule that the ledger's evidence must have run."""

import os
import sys

import pytest

from attnbook.claims import claims

collect_ignore = ["test_commands.py", "test_faults.py"] if os.name == "nt" else []  # fork, signals, links
sys.modules.setdefault("rfc3987_syntax", None)  # seconds for a grammar that no notebook asks for


def prepare():
    """Settings of the libraries that tests use."""
    import hypothesis
    import torch

    hypothesis.settings.register_profile("book", deadline=None, derandomize=True, max_examples=40)
    hypothesis.settings.load_profile("book")
    torch.set_num_threads(1)  # tests run side by side, and on small tensors more threads only wait for each other


def pytest_addoption(parser):
    parser.addoption("--evidence", action="store_true", help="fail unless every test that the ledger names has passed")


def unproven(rows, passed):
    """The (claim, test) pairs whose test is not among the node ids that passed; parametrised cases count as one."""
    names = {node.partition("[")[0] for node in passed}
    return [(row.id, test) for row in rows for test in row.tests if test not in names]


class Evidence:
    """Collects what passed and failed, and turns the run red if a test named in the ledger did not pass."""

    def __init__(self):
        self.passed, self.missing = set(), []

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)

    def pytest_sessionfinish(self, session):
        self.missing = unproven(claims().values(), self.passed)
        if self.missing and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        for claim, test in self.missing:
            terminalreporter.write_line(f"claim {claim}: its evidence {test} did not run and pass", red=True)


def pytest_configure(config):
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):  # not in what only spreads the tests
        prepare()
    if config.getoption("--evidence") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Evidence())


def pytest_collection_modifyitems(items):
    """Begin with the file that takes longest: last of all, it would go on alone."""
    items.sort(key=lambda item: item.path.name != "test_commands.py")


@pytest.fixture
def generator():
    """A seeded generator."""
    import torch

    return torch.Generator().manual_seed(0)
