"""Kernels for the comparison of notebooks, forked from a process that has imported what nearly all chapters import.

Each kernel is a process of its own that has seen no other notebook; only the four seconds in which PyTorch, SymPy, SciPy,
Matplotlib and the package are read are spent once. `book/conftest.py` gives `Forks.launch` to Jupyter; run as a program,
this file is the process that forks. It only imports, since a thread or a lock that is held would not outlive a fork.
Pictures are drawn, but neither laid out, which is half of the work, nor as files, since they are not compared.

As an early plugin of pytest (`-p tools.kernels`) it also spares each process a grammar of addresses, which takes seconds to
read: jsonschema, with which notebooks are validated, does without.
"""

import json
import os
import runpy
import select
import signal
import subprocess
import sys

IMPORTED = """
    ipykernel.kernelapp IPython.core.pylabtools torch._dynamo scipy.integrate scipy.optimize matplotlib.pyplot
    attnbook.explorers attnopt.synthesis attnbook.claims attnbook.printing
    sympy.physics.units torch._decomp.decompositions_for_jvp
"""  # the kernel first, with which `tools/rounding` begins; the last line's are read by `simplify` and `torch.func.jvp`
LAUNCHER = "ipykernel_launcher"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
if __name__ == "tools.kernels":
    sys.modules.setdefault("rfc3987_syntax", None)


class Kernel:
    """What a kernel's manager asks of a process, of one that is not its child."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int):
        self.pid, self.handle = pid, os.pidfd_open(pid)

    def poll(self) -> int | None:
        """None while it runs; how it ended is not known."""
        return 0 if select.select([self.handle], [], [], 0)[0] else None

    def wait(self) -> int:
        """Return when it has ended."""
        select.select([self.handle], [], [])
        os.close(self.handle)
        return 0

    def send_signal(self, number: int) -> None:
        """Send a signal to it alone."""
        signal.pidfd_send_signal(self.handle, number)


class Forks:
    """The process that forks, begun with the first kernel."""

    def __init__(self, otherwise):
        self.otherwise, self.process = otherwise, None

    def launch(self, command: list, **options) -> object:
        """Start a kernel, in place of `jupyter_client.launcher.launch_kernel`."""
        if LAUNCHER not in command:
            return self.otherwise(command, **options)
        if not self.process:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self.process = subprocess.Popen([sys.executable, __file__], text=True, **pipes)
        arguments = command[command.index(LAUNCHER) :]
        print(json.dumps([arguments, options["env"], str(options["cwd"])]), file=self.process.stdin, flush=True)
        return Kernel(int(self.process.stdout.readline()))

    def stop(self) -> None:
        """End the process that forks."""
        if self.process:
            self.process.communicate()


def order() -> list | None:
    """In a fork what is to be started; None, in the process that forks, when nothing more is wanted."""
    for line in sys.stdin:
        if not os.fork():
            return json.loads(line)
    return None


def start(arguments: list, environment: dict, folder: str) -> None:
    """Be a kernel: in a session of its own, which the manager can signal, and with a parent whose end it notices."""
    os.setsid()
    print(os.getpid(), flush=True)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment, JPY_PARENT_PID=str(os.getppid()))
    sys.argv = [*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"]  # read from the environment before the fork
    runpy.run_module(LAUNCHER, run_name="__main__", alter_sys=True)


def drawn(figure, *_, **__) -> str | None:
    """Draw once, in place of IPython's `print_figure`, which draws twice, and once more to crop; the picture is left out."""
    if not (figure.axes or figure.lines):
        return None
    figure.set_layout_engine("none")
    figure.canvas.draw()
    inline = sys.modules["matplotlib_inline.backend_inline"]  # which a kernel imports when it first makes a figure
    inline._fetch_figure_metadata = lambda _: {}  # from now on: metadata are not compared, and all ticks are made for them
    return PIXEL


if __name__ == "__main__":
    del sys.path[0]  # this folder, which no kernel has on its path
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")  # as each kernel does for itself
    for name in IMPORTED.split():
        __import__(name)
    sys.modules["matplotlib.pyplot"].install_repl_displayhook = lambda: None  # the inline backend draws figures, once
    sys.modules["IPython.core.pylabtools"].print_figure = drawn
    own = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGCHLD, signal.SIGINT)}  # nobody waits
    if wanted := order():
        for number, handler in own.items():
            signal.signal(number, handler)
        start(*wanted)
