"""nbval, made strict: what is left out of the comparison, and a gate that says how many cells were compared."""

import atexit
import collections
import functools
import os
import shutil
import sys
import tempfile
from pathlib import Path

import jupyter_client.provisioning.local_provisioner as provisioner
import nbval.kernel
import pytest
from jupyter_client.manager import KernelManager

EXPLORER = "application/vnd.attnopt.explorer+json"  # bulky, and tested on its own
KERNELS = Path(__file__).parents[1] / "tools" / "kernels.py"  # lacking beside a copy of this file
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
    """Counts the cells that were compared, notebook by notebook; workers of pytest-xdist hand their counts over."""

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

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        """Take over a worker's counts: each collects every cell and compares some."""
        expected, compared, excused = getattr(node, "workeroutput", {}).get("gate", ({}, {}, []))
        self.expected |= collections.Counter(expected)
        self.compared += collections.Counter(compared)
        self.excused += [line for line in excused if line not in self.excused]

    def pytest_sessionfinish(self, session):
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["gate"] = dict(self.expected), dict(self.compared), self.excused
        elif session.exitstatus == 0 and (self.excused or not self.expected or self.compared != self.expected):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter):
        if not self.expected:
            terminalreporter.write_line("no cell was compared", red=True)
        for name, total in self.expected.items():
            done = self.compared[name]
            terminalreporter.write_line(f"{name}: compared {done} of {total} cells", red=done < total, green=done == total)
        for line in self.excused:
            terminalreporter.write_line(line, red=True)


def use_files_for_ports():
    """Let kernels listen on files in a folder of this process: on TCP, two that start together can choose the same port."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    kernel = functools.partial(KernelManager, transport="ipc", connection_file=os.path.join(folder, "kernel.json"))
    nbval.kernel.KernelManager = kernel


def fork_kernels(config):
    """Start kernels as forks of a process that has done their imports."""
    import kernels

    forks = kernels.Forks(provisioner.launch_kernel)
    provisioner.launch_kernel = forks.launch
    config.add_cleanup(forks.stop)


def pytest_configure(config):
    """Register the gate where notebooks are validated."""
    if config.getoption("nbval", False):
        config.pluginmanager.register(Gate())
        if os.name != "nt":  # where ZeroMQ has no such transport
            use_files_for_ports()
        if sys.platform == "linux" and config.getoption("nbval_current_env") and KERNELS.exists():
            fork_kernels(config)
