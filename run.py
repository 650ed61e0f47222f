#!/usr/bin/env python3
"""The project's one command line: build the book, test it, write its notebooks.

    python3 run.py book [--no-serve] [--port N]   build the HTML, then serve it on localhost
    python3 run.py test [PYTEST ARGUMENTS]        everything; with arguments, pytest alone with those arguments
    python3 run.py notebooks [--all] [NAME ...]   execute stale chapters, or those named, and write their notebooks
    python3 run.py new PART NAME                  start a chapter from the template
    python3 run.py pdf [--output FILE]            the built book as one PDF
    python3 run.py video RUN [--output FILE]      a recorded training run of Part III as an mp4 film
    python3 run.py bench                          what is said to be fast, beside plain code, measured here
    python3 run.py oldest                         the unit tests with the oldest supported versions
    python3 run.py mutants [MODULE ...]           changes the package in small places and sees whether its tests notice; the
                                                  sample is the commit's, or that of --seed WORD, of --sample N places
    python3 run.py portability [TIMES]            the notebooks compared under other threads and instructions, many times
    python3 run.py lint                           style of code and prose, notebooks in step with their text

Standard library only. The environment lives in `.venv` and is made on the first call.
"""

import argparse
import functools
import hashlib
import http.server
import os
import platform
import shutil
import subprocess
import sys
import time
import venv
import webbrowser
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
STAMP = VENV / "complete"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
HTML = ROOT / "_build" / "html"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")  # where Debian's package puts it
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


class Failure(Exception):
    """A step failed; the message says what to do."""


def say(text: str) -> None:
    """Print a progress line at once, also into a pipe."""
    print(text, flush=True)


def call(command: list, advice: str, **extra) -> None:
    """Run a command in the project's root; raise `Failure` with advice if it fails."""
    environment = os.environ | {"PYTHONUTF8": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"} | extra
    try:
        code = subprocess.run([str(part) for part in command], cwd=ROOT, env=environment).returncode
    except FileNotFoundError as missing:
        raise Failure(f"cannot start {missing.filename!r}. {advice}") from None
    if code:
        raise Failure(advice)


def fingerprint() -> str:
    """A hash of all that decides what the environment contains."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {platform.system()} {platform.machine()} {VENV}".encode())
    for name in ("requirements.txt", "constraints.txt", "pyproject.toml"):
        digest.update((ROOT / name).read_bytes())
    return digest.hexdigest()


def pinned(package: str) -> str:
    """The requirement line of one package, without its comment."""
    for line in (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{package}=="):
            return line.split("#")[0].strip()
    raise Failure(f"requirements.txt does not pin {package}.")


def install_torch(python: Path) -> None:
    """Install PyTorch's CPU build on Linux, where the default one brings gigabytes of CUDA libraries.

    If its index is out of reach, the next step installs whichever build pip finds.
    """
    if platform.system() == "Linux":
        command = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--retries", "0"]
        command += ["--index-url", TORCH_CPU_INDEX, pinned("torch")]
        subprocess.run([str(part) for part in command], cwd=ROOT, stderr=subprocess.DEVNULL)


def writable() -> None:
    """Tell at once, not after minutes, that a folder in which every command writes may not be written."""
    for folder in (ROOT, ROOT / "_build"):
        if folder.exists() and not os.access(folder, os.W_OK):
            raise Failure(
                f"{folder} may not be written by you here: copy the project to a folder of your own and call again."
            )


def environment() -> None:
    """Make `.venv`, or renew it; the stamp is written last, so an interrupted attempt is recognised and made anew.

    A `.venv` that is a link belongs to another checkout and is used as it is.
    """
    if sys.version_info < (3, 11):
        raise Failure(f"Python 3.11 or later is needed; this is {platform.python_version()}.")
    if VENV.is_symlink():
        return
    wanted = fingerprint()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    say("setting up .venv (a few minutes the first time)")
    if not STAMP.exists() or subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True).returncode:
        venv.create(VENV, with_pip=True, clear=True)  # half an installation cannot be trusted
    STAMP.unlink(missing_ok=True)
    pip = [PYTHON, "-m", "pip", "install", "--progress-bar", "on" if sys.stdout.isatty() else "off"]
    install_torch(PYTHON)
    advice = "The packages could not be installed: see pip's message above, mend its cause and call again."
    call([*pip, "--requirement", "requirements.txt"], advice)
    call([*pip, "--no-deps", "--editable", "."], advice)
    STAMP.write_text(wanted)


def apt(package: str) -> bool:
    """Install one of Debian's packages where that can be done; say whether it was."""
    if not (shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0):
        return False
    say(f"installing Debian's {package}")
    try:
        for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", package]):
            call(["apt-get", *command], f"apt-get could not install {package}.", DEBIAN_FRONTEND="noninteractive")
    except Failure as failure:
        say(str(failure))
        return False
    return True


def browser() -> None:
    """Make a Chromium available to the site tests: the system's, Debian's package, or Playwright's own."""
    if any(shutil.which(name) for name in CHROMIUM) or apt("chromium"):
        return
    say("installing Playwright's own Chromium")
    call(
        [PYTHON, "-m", "playwright", "install", "chromium"],
        "No Chromium for the site tests: none is on the PATH, apt-get as root could not install it here and Playwright "
        "could not download its own. Install Chromium or Chrome and call again.",
    )


def data() -> None:
    """Make Fashion-MNIST available to the tests: Debian's package, the user's cache, or a download into it."""
    lacking = [str(PYTHON), "-c", "from attnopt.datasets import missing; raise SystemExit(len(missing()))"]
    if FASHION_MNIST.is_dir() or not subprocess.run(lacking, cwd=ROOT).returncode or apt("dataset-fashion-mnist"):
        return
    say("downloading Fashion-MNIST into the user's cache (30 MB)")
    call(
        [PYTHON, "-m", "attnopt.datasets"],
        "No Fashion-MNIST for the tests: Debian's package dataset-fashion-mnist is not installed and cannot be installed "
        "here, and the download failed. Install the package or go online and call again; the download goes on where it "
        "stopped.",
    )


def build() -> None:
    """Build the HTML from nothing, warnings as errors; one that was killed is known by its lacking inventory."""
    shutil.rmtree(HTML, ignore_errors=True)
    config = ["--path-output", ROOT, "--config", ROOT / "_config.yml", "--toc", ROOT / "_toc.yml"]
    strict = ["--all", "--warningiserror", "--nitpick", "--keep-going", "--quiet"]
    call(
        [PYTHON, "-c", "from jupyter_book.cli.main import main; main()", "build", "book", *config, *strict],
        "The book did not build: mend the warnings above (each names its file and line) and call again.",
    )


def serve(port: int) -> None:
    """Serve the built book on localhost until interrupted, and open it."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {".js": "text/javascript"}

        def log_message(self, *arguments):
            """Keep the terminal for the address."""

    handler = functools.partial(Handler, directory=HTML)
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError:  # taken: let the system choose
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    address = f"http://localhost:{server.server_address[1]}/"
    say(f"the book is at {address} (Ctrl-C ends)")
    webbrowser.open(address)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        say("")
    finally:
        server.server_close()


def pdf(output: str | None) -> None:
    """Print the built book as one PDF."""
    if not (HTML / "objects.inv").is_file():  # what Sphinx writes last
        build()
    browser()
    call([PYTHON, "tools/pdf.py", *([output] if output else [])], "The PDF could not be made: see above.")


def oldest() -> None:
    """Run the unit tests in an environment with the oldest versions that `pyproject.toml` admits."""
    folder = ROOT / "_build" / "oldest"
    venv.create(folder, with_pip=True, clear=True)
    python = folder / PYTHON.relative_to(VENV)
    install_torch(python)
    advice = "The oldest versions could not be installed: see pip's message above."
    call([python, "-m", "pip", "install", "--quiet", "--requirement", "tests/oldest.txt"], advice)
    call([python, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", "."], advice)
    data()
    tools = [f"--ignore=tests/test_{name}.py" for name in ("tools", "run", "pdf")]  # which have requirements of their own
    paths = ["tests", "--ignore=tests/site", *tools]
    call([python, "-m", "pytest", "-q", *paths], "Some tests failed with the oldest versions: see above.")


def portability(times: int) -> None:
    """Compare every notebook so many times in a row: with one thread, two, without special instructions, and so on."""
    one, two = ({"OMP_NUM_THREADS": n, "OPENBLAS_NUM_THREADS": n} for n in "12")
    ways = [one, two, {"ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Nehalem"}]
    for number in range(times):
        way = ways[number % len(ways)]
        say(f"\n[{number + 1}/{times}] {' '.join(f'{name}={value}' for name, value in way.items())}")
        compare_notebooks("A notebook gives another output in this setting: see above.", **way)


def lint() -> None:
    """Check style and pairs, all of it, and say then what to mend."""
    advice = []
    for command, what in (
        (["-m", "ruff", "check", "."], "Style: `.venv/bin/ruff check --fix .` mends most of what ruff says."),
        (["-m", "ruff", "format", "--check", "."], "Style: `.venv/bin/ruff format .` formats the files named."),
        (["tools/prose.py"], "Style of the chapters: see the lines above."),
        (["tools/notebooks.py", "--check"], "Chapters and notebooks differ: `python3 run.py notebooks`."),
    ):
        try:
            call([PYTHON, *command], what)
        except Failure as failure:
            advice.append(str(failure))
    if advice:
        raise Failure("\n        ".join(advice))


def workers(distribution: str) -> list[str]:
    """Pytest's arguments for tests side by side."""
    return ["-q", "-n", str(min(4, os.cpu_count() or 1)), "--dist", distribution]


def compare_notebooks(advice: str, **environment: str) -> None:
    """Execute every notebook and compare its outputs with the stored ones."""
    spread = ["-q"] if os.name == "nt" else workers("loadfile")  # on Windows kernels started side by side can meet on a port
    call([PYTHON, "-m", "pytest", *spread, "--nbval", "--nbval-current-env", "book"], advice, **environment)


def test(arguments: list[str]) -> None:
    """Run everything, or pytest alone with the arguments given."""
    pytest = [PYTHON, "-m", "pytest"]
    if arguments:
        call([*pytest, *arguments], "Some tests failed: see above.")
        return
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # side by side, more would wait for each other
    unit = [*pytest, *workers("loadfile"), "tests", "--ignore=tests/site", "--evidence"]  # caches stay with one worker
    changed = "A notebook no longer gives what it shows: if the change is meant, `python3 run.py notebooks NAME`."
    site = [*pytest, *workers("worksteal"), "tests/site"]
    steps = [
        ("style and pairs", lint),
        ("Fashion-MNIST for the tests", data),
        ("unit and property tests", lambda: call(unit, "Some tests failed: see above.", **one_thread)),
        ("notebooks executed and compared", lambda: compare_notebooks(changed, **one_thread)),
        ("the book built", build),
        ("a browser for the site tests", browser),
        ("the built site in Chromium", lambda: call(site, "The built site is at fault: see above.")),
    ]
    start = time.perf_counter()
    for number, (name, step) in enumerate(steps, 1):
        say(f"\n[{number}/{len(steps)}] {name} ({time.perf_counter() - start:.0f} s)")
        step()
    say(f"\nall green in {time.perf_counter() - start:.0f} s")


def main() -> None:
    """Read the command line and run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    book = commands.add_parser("book", help="build the HTML and serve it on localhost")
    book.add_argument("--no-serve", action="store_true", help="build only")
    book.add_argument("--port", type=int, default=8000)
    commands.add_parser("test", help="run everything, or pytest with the given arguments", add_help=False)
    notebooks = commands.add_parser("notebooks", help="execute stale chapters, or those named, and write their notebooks")
    notebooks.add_argument("--all", action="store_true", help="execute also those whose text has not changed")
    notebooks.add_argument("names", nargs="*", metavar="NAME", help="as in regression/softmax_and_lse: executed in any case")
    new = commands.add_parser("new", help="start a chapter from the template")
    new.add_argument("part")
    new.add_argument("name")
    printed = commands.add_parser("pdf", help="print the built book as one PDF")
    printed.add_argument("--output", metavar="FILE", help="_build/attention-as-optimization.pdf unless given")
    video = commands.add_parser("video", help="write a recorded training run of Part III as an mp4 film")
    video.add_argument("run", metavar="RUN", help="its name; another word lists them")
    video.add_argument("--output", metavar="FILE", help="RUN.mp4 unless given")
    commands.add_parser("bench", help="measure what is said to be fast beside plain code, and write it to results/")
    commands.add_parser("oldest", help="run the unit tests with the oldest supported versions")
    mutants = commands.add_parser("mutants", help="change the package in small places and see whether its tests notice")
    mutants.add_argument("modules", nargs="*", metavar="MODULE", help="as in regression/gradients; all of the table if none")
    mutants.add_argument("--seed", metavar="WORD", help="what the samples are drawn from; the commit's hash unless given")
    mutants.add_argument("--sample", type=int, metavar="N", help="mutants of each module; the table's number unless given")
    portable = commands.add_parser("portability", help="compare the notebooks under other threads and instructions")
    portable.add_argument("times", nargs="?", type=int, default=20)
    commands.add_parser("lint", help="style of code and prose, notebooks in step with their text")
    options, rest = parser.parse_known_args()
    if rest and options.command != "test":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    writable()
    environment()
    if options.command == "book":
        build()
        if not options.no_serve:
            serve(options.port)
    elif options.command == "test":
        test(rest)
    elif options.command == "notebooks":
        call(
            [PYTHON, "tools/notebooks.py", *(["--all"] if options.all else []), *options.names],
            "A chapter could not be executed: the cell and its error are above.",
        )
    elif options.command == "new":
        call([PYTHON, "tools/new_chapter.py", options.part, options.name], "No chapter was made: see above.")
    elif options.command == "pdf":
        pdf(options.output)
    elif options.command == "oldest":
        oldest()
    elif options.command == "mutants":
        given = [f"--{name}={value}" for name in ("seed", "sample") if (value := getattr(options, name))]
        call([PYTHON, "tools/mutants.py", *given, *options.modules], "Some mutants survive without a reason: see above.")
    elif options.command == "portability":
        portability(options.times)
    elif options.command == "video":
        output = ["--output", options.output] if options.output else []
        call([PYTHON, "-m", "attnopt.clustering.video", options.run, *output], "No film was written: see above.")
    elif options.command == "bench":
        for name in ("in_context", "training"):
            call([PYTHON, f"benchmarks/{name}.py"], "The benchmark failed: see above.")
    else:
        lint()


def start() -> None:
    """Run the command line; a fault ends it with a sentence instead of a traceback."""
    try:
        main()
    except Failure as failure:
        sys.exit(f"run.py: {failure}")
    except KeyboardInterrupt:
        sys.exit("run.py: interrupted; the next call takes up where this one stopped")
    except OSError as error:  # a full disk, a folder that may not be written
        place = f": {error.filename!r}" if error.filename else ""
        sys.exit(
            f"run.py: {error.strerror or error}{place}. Mend its cause and call again: the next call goes on from here."
        )


if __name__ == "__main__":
    start()
