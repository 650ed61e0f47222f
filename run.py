#!/usr/bin/env python3
"""The project's one command line: build the book, test it, write its notebooks.

    python3 run.py book [--no-serve] [--port N]   build the HTML, then serve it on localhost
    python3 run.py test [PYTEST ARGUMENTS]        everything; with arguments, pytest alone with those arguments
    python3 run.py notebooks [--all] [NAME ...]   execute stale chapters, or those named, and write their notebooks
    python3 run.py new PART NAME                  start a chapter from the template
    python3 run.py pdf [--output FILE]            the built book as one PDF
    python3 run.py video RUN [--output FILE]      a recorded training run of Part III as an mp4 film
    python3 run.py bench [--quick]                how fast things are, compared with plain code
    python3 run.py oldest                         the unit tests with the oldest supported versions
    python3 run.py newest                         the book built by the newest Sphinx alone, compared with the usual pages
    python3 run.py portability [TIMES [NAME ...]] the notebooks compared as other machines compute, many times
    python3 run.py lint                           style of code and prose, notebooks in step with their text

Standard library only. The environment lives in `.venv` and is made on the first call.

An older Python can read this file, so that it can say which one is needed.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import http.server
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
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
CHROMIUM = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
OLDEST, NEWEST = (3, 11), (3, 14)  # the Pythons with which everything is tested
NEWEST_FOR_OLDEST = (3, 12)  # up to here the oldest versions that pyproject.toml admits are built
TOOL_TESTS = ("tools", "run", "pdf", "commands", "stills", "newest", "release")  # tests with requirements of their own
CHOSEN = "ATTNOPT_PYTHON_CHOSEN"  # set in the environment of the Python that uv starts


class Failure(Exception):
    """A step failed; the message says what to do."""


def say(text: str) -> None:
    """Print a progress line at once, also into a pipe."""
    print(text, flush=True)


def unfit(newest: tuple = NEWEST) -> str:
    """Why this Python is none of those with which everything is tested; empty if it is one."""
    if sys.version_info[:2] < OLDEST:
        return "too old"
    if sys.version_info[:2] > newest:
        return "too new"
    if platform.python_implementation() != "CPython":
        return platform.python_implementation()
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "a build without the global lock"
    return "" if sys.maxsize > 2**32 else "a 32-bit build"


def right_python() -> None:
    """Require one of the Pythons with which everything is tested; where there is uv, go on with the newest of them."""
    reason, least, most = unfit(), *(".".join(map(str, limit)) for limit in (OLDEST, NEWEST))
    if not reason:
        return
    reason = f"Python {platform.python_version()} ({sys.executable}) is {reason}"
    if shutil.which("uv") and not os.environ.get(CHOSEN):
        say(f"{reason}: going on with uv's Python {most}")
        os.environ[CHOSEN] = "1"
        command = ["uv", "run", "--no-project", "--python", most, "python", str(Path(__file__).resolve())]
        sys.exit(subprocess.run([*command, *sys.argv[1:]]).returncode)
    raise Failure(
        f"{reason}, and Python {least} to {most} is needed: install one from your distribution (with its venv package), "
        "Homebrew, or python.org, and start run.py with it; or install uv and call again."
    )


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
    for name in ("requirements.txt", "constraints.txt", "pyproject.toml", "src/attnbook/pyproject.toml"):
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


def usable() -> bool:
    """Whether `.venv` has a Python of this version, with pip; what it was made from may be gone."""
    check = f"import pip, sys; sys.exit(sys.version_info[:2] != {tuple(sys.version_info[:2])})"
    try:
        return not subprocess.run([PYTHON, "-c", check], capture_output=True).returncode
    except OSError:
        return False


def environment() -> None:
    """Make `.venv`, or renew it; the stamp is written last, so an interrupted attempt is recognized and made again.

    A `.venv` that is a link belongs to another checkout and is used as it is.
    """
    if VENV.is_symlink():
        return
    wanted = fingerprint()
    if STAMP.exists() and STAMP.read_text() == wanted:
        return
    say("setting up .venv (a few minutes the first time)")
    if not STAMP.exists() or not usable():
        if importlib.util.find_spec("ensurepip") is None:
            package = "python{}.{}-venv".format(*sys.version_info)
            raise Failure(
                f"{sys.executable} cannot make environments: install your distribution's {package} and call again."
            )
        venv.create(VENV, with_pip=True, clear=True)  # half an installation cannot be trusted
    STAMP.unlink(missing_ok=True)
    pip = [PYTHON, "-m", "pip", "install", "--progress-bar", "on" if sys.stdout.isatty() else "off"]
    install_torch(PYTHON)
    advice = "The packages could not be installed: see pip's message above, fix its cause and call again."
    call([*pip, "--requirement", "requirements.txt"], advice)
    call([*pip, "--no-deps", "--editable", ".", "--editable", "src/attnbook"], advice)
    STAMP.write_text(wanted)


def apt(*packages: str) -> bool:
    """Install some of Debian's packages where that can be done; say whether they were."""
    if not (shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0):
        return False
    names = " and ".join(packages)
    say(f"installing Debian's {names}")
    try:
        for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", *packages]):
            call(["apt-get", *command], f"apt-get could not install {names}.", DEBIAN_FRONTEND="noninteractive")
    except Failure as failure:
        say(str(failure))
        return False
    return True


def browser() -> None:
    """Make a Chromium available to the site tests: the system's, one of Debian's packages, or Playwright's own."""
    if any(shutil.which(name) for name in CHROMIUM) or any(apt(package) for package in CHROMIUM[:2]):
        return
    say("installing Playwright's own Chromium")
    call(
        [PYTHON, "-m", "playwright", "install", "chromium"],
        "No Chromium for the site tests: none is on the PATH, apt-get as root could not install it here and Playwright "
        "could not download its own. Install Chromium or Chrome and call again.",
    )


def other_browsers() -> None:
    """Make Firefox and WebKit available to a few of the site tests, on Debian; elsewhere these are skipped."""
    if not all(map(shutil.which, ("firefox-esr", "WebKitWebDriver", "Xvfb"))):
        apt("firefox-esr", "webkit2gtk-driver", "xvfb")


def data() -> None:
    """Make Fashion-MNIST available to the tests: Debian's package, the user's cache, or a download into it."""
    lacking = [str(PYTHON), "-c", "from attnopt.datasets import missing; raise SystemExit(len(missing()))"]
    if FASHION_MNIST.is_dir() or not subprocess.run(lacking, cwd=ROOT).returncode or apt("dataset-fashion-mnist"):
        return
    say("downloading Fashion-MNIST into the user's cache (30 MB)")
    call(
        [PYTHON, "-m", "attnopt.datasets"],
        "No Fashion-MNIST for the tests: Debian's package dataset-fashion-mnist is not installed and cannot be installed "
        "here, and the download failed. Install the package or go online and call again.",
    )


def build() -> None:
    """Build the HTML from nothing, warnings as errors; one that was killed is known by its lacking inventory."""
    shutil.rmtree(HTML, ignore_errors=True)
    config = ["--path-output", ROOT, "--config", ROOT / "_config.yml", "--toc", ROOT / "_toc.yml"]
    strict = ["--all", "--warningiserror", "--nitpick", "--keep-going", "--quiet"]
    # without the grammar of addresses that jsonschema takes seconds to read and no configuration asks for
    start = "import sys; sys.modules['rfc3987_syntax'] = None; from jupyter_book.cli.main import main; main()"
    call(
        [PYTHON, "-c", start, "build", "book", *config, *strict],
        "The book did not build: fix the warnings above (each names its file and line) and call again.",
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


def pdf(output: str) -> None:
    """Print the built book as one PDF; where it goes may be left empty."""
    if not (HTML / "objects.inv").is_file():  # what Sphinx writes last
        build()
    browser()
    call([PYTHON, "tools/pdf.py", *([output] if output else [])], "The PDF could not be made: see above.")


def oldest() -> None:
    """Run the unit tests in an environment with the oldest versions that `pyproject.toml` admits."""
    folder = ROOT / "_build" / "oldest"
    if unfit(NEWEST_FOR_OLDEST):
        raise Failure("The oldest versions are built for Python 3.11 and 3.12: start run.py with one of these.")
    call([sys.executable, "-m", "venv", "--clear", folder], "The environment could not be made: see above.")
    python = folder / PYTHON.relative_to(VENV)
    install_torch(python)
    advice = "The oldest versions could not be installed: see pip's message above."
    call([python, "-m", "pip", "install", "--quiet", "--requirement", "tests/oldest.txt"], advice)
    call([python, "-m", "pip", "install", "--quiet", "--no-deps", "--editable", "."], advice)
    data()
    tools = [f"--ignore=tests/test_{name}.py" for name in TOOL_TESTS]
    paths = ["tests", "--ignore=tests/site", *tools]
    call([python, "-m", "pytest", "-q", *paths], "Some tests failed with the oldest versions: see above.")


def newest() -> None:
    """Build the book with the newest Sphinx and without Jupyter Book 1, and compare the pages."""
    folder = ROOT / "_build" / "newest"
    place = folder / "venv"
    python = place / PYTHON.relative_to(VENV)
    build()
    call([sys.executable, "-m", "venv", "--clear", place], "The environment could not be made: see above.")
    install_torch(python)
    ours = ["--editable", ".", "--editable", "src/attnbook"]
    call(
        [python, "-m", "pip", "install", "--quiet", pinned("torch"), "--requirement", "tools/newest.txt", *ours],
        "The newest versions could not be installed: see pip's message above.",
    )
    call(
        [python, "tools/newest.py", folder / "html", HTML],
        "The newest versions build another book, or with warnings: each line above names a page.",
    )


def portability(times: int, names: list) -> None:
    """Compare every notebook so many times in a row: as other machines compute, by turns.

    With one thread, with two, with the kernels that BLAS and PyTorch have for older processors, and, every other time, with
    the last digits of results moved at random (`tools/rounding`), by another seed each time. Where no notebook is named, the
    tests of the package hold then, too.
    """
    kernels = ("Prescott", "default", "COMPATIBLE"), ("Sandybridge", "default", "AUTO"), ("Zen", "avx2", "AVX2")
    names_of_kernels = "OPENBLAS_CORETYPE", "ATEN_CPU_CAPABILITY", "MKL_CBWR"
    ways = [{"OMP_NUM_THREADS": n, "OPENBLAS_NUM_THREADS": n} for n in "12"]
    ways += [dict(zip(names_of_kernels, kernel)) for kernel in kernels]  # noqa: B905
    for number in range(times):
        way = ways[number // 2 % len(ways)]
        if number % 2:
            way = {"ROUNDING_NOISE": str(number), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        say(f"\n[{number + 1}/{times}] {' '.join(f'{name}={value}' for name, value in way.items())}")
        if number % 2:
            paths = [str(ROOT / "tools" / "rounding"), *filter(None, [os.environ.get("PYTHONPATH")])]
            way = {"PYTHONPATH": os.pathsep.join(paths), **way}
        compare_notebooks("A notebook gives another output in this setting: see above.", names, **way)
        if number % 2 and not names:
            shaken = [*workers("loadfile"), "-p", "rounding", "-m", "not same_bits", "tests", "--ignore=tests/site"]
            shaken += [f"--ignore=tests/test_{name}.py" for name in (*TOOL_TESTS, "faults", "rounding")]
            call([PYTHON, "-m", "pytest", *shaken], "A test fails where rounding is otherwise: see above.", **way)


def lint() -> None:
    """Check style and pairs, all of it, and then say what to fix."""
    advice = []
    for command, what in (
        (["-m", "ruff", "check", "."], "Style: `.venv/bin/ruff check --fix .` fixes most of what ruff says."),
        (["-m", "ruff", "format", "--check", "."], "Style: `.venv/bin/ruff format .` formats the files named."),
        (["-m", "deno", "fmt", "--quiet", "--check"], "Style: `.venv/bin/deno fmt` formats the scripts named."),
        (["-m", "pyrefly", "check", "--summary=none"], "Types: see the lines above."),
        (["tools/prose.py"], "Style of the chapters: see the lines above."),
        (["tools/notebooks.py", "--check"], "Chapters and notebooks differ: `python3 run.py notebooks`."),
    ):
        try:
            call([PYTHON, *command], what)
        except Failure as failure:
            advice.append(str(failure))
    if advice:
        raise Failure("\n        ".join(advice))


def workers(distribution: str) -> list:
    """Pytest's arguments for tests side by side."""
    return ["-q", "-n", str(min(4, os.cpu_count() or 1)), "--dist", distribution]


def compare_notebooks(advice: str, names=(), **environment: str) -> None:
    """Execute every notebook, or those named, and compare its outputs with the stored ones."""
    paths = [f"book/{name}.ipynb" for name in names] or ["book"]
    # On Windows kernels started side by side can meet on a port; one notebook keeps one worker busy.
    spread = ["-q"] if os.name == "nt" or len(names) == 1 else workers("loadfile")
    early = ["-p", "no:hypothesispytest", "-p", "tools.kernels"]  # what takes seconds of each process and is not used here
    call([PYTHON, "-m", "pytest", *early, *spread, "--nbval", "--nbval-current-env", *paths], advice, **environment)


def together(*steps) -> None:
    """Do steps side by side, and all of them even if one fails."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for step in [pool.submit(step) for step in steps]:
            step.result()


def test(arguments: list) -> None:
    """Run everything, or pytest alone with the arguments given."""
    pytest = [PYTHON, "-m", "pytest"]
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or some sixty processes would compile the same files
    if arguments:
        call([*pytest, *arguments], "Some tests failed: see above.")
        return
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # side by side, more would wait for each other
    # A file's caches stay with one worker; nbval, which only notebooks need, takes seconds to import.
    spread = [*workers("loadfile"), "--no-loadscope-reorder", "-p", "no:nbval"]
    unit = [*pytest, *spread, "tests", "--ignore=tests/site", "--evidence"]
    changed = "A notebook no longer gives what it shows: if the change is meant, `python3 run.py notebooks NAME`."
    notebooks = lambda: compare_notebooks(changed, **one_thread)  # noqa: E731
    site = [*pytest, *workers("worksteal"), "-p", "no:nbval", "tests/site"]
    steps = [
        ("style and pairs", lint),
        ("Fashion-MNIST for the tests", data),
        ("browsers for the book's pages", lambda: (browser(), other_browsers())),
        ("unit and property tests", lambda: call(unit, "Some tests failed: see above.", **one_thread)),
        ("notebooks executed and compared, the book built", lambda: together(notebooks, build)),
        ("the built site in browsers", lambda: call(site, "The built site is at fault: see above.", **one_thread)),
    ]
    start = time.perf_counter()
    for number, (name, step) in enumerate(steps, 1):
        say(f"\n[{number}/{len(steps)}] {name} ({time.perf_counter() - start:.0f} s)")
        step()
    say(f"\nall green in {time.perf_counter() - start:.0f} s")


def main() -> None:
    """Read the command line and run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command")
    commands.required = True
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
    printed.add_argument("--output", default="", metavar="FILE", help="_build/attention-as-optimization.pdf unless given")
    video = commands.add_parser("video", help="write a recorded training run of Part III as an mp4 film")
    video.add_argument("run", metavar="RUN", help="its name; another word lists them")
    video.add_argument("--output", metavar="FILE", help="RUN.mp4 unless given")
    video.add_argument("--every", default="1", metavar="N", help="only the first of every N frames, for a quick look")
    bench = commands.add_parser("bench", help="measure how fast things are beside plain code, and write it to results/")
    bench.add_argument("--quick", action="store_true", help="tiny sizes, only to see that it runs: nothing is written")
    commands.add_parser("oldest", help="run the unit tests with the oldest supported versions")
    commands.add_parser("newest", help="build the book with the newest Sphinx alone and compare the pages")
    portable = commands.add_parser("portability", help="compare the notebooks under other threads and instructions")
    portable.add_argument("times", nargs="?", type=int, default=10)
    portable.add_argument("names", nargs="*", metavar="NAME", help="as in regression/softmax_and_lse; all unless given")
    commands.add_parser("lint", help="style of code and prose, notebooks in step with their text")
    options, rest = parser.parse_known_args()
    if rest and options.command != "test":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    right_python()
    writable()
    environment()
    if options.command == "book":
        build()
        if not options.no_serve:
            serve(options.port)
    elif options.command == "test":
        test(rest)
    elif options.command == "notebooks":
        browser()
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
    elif options.command == "newest":
        newest()
    elif options.command == "portability":
        portability(options.times, options.names)
    elif options.command == "video":
        output = ["--output", options.output] if options.output else []
        film = ["-m", "attnbook.video", options.run, "--every", options.every, *output]
        call([PYTHON, *film], "No film was written: see above.")
    elif options.command == "bench":
        for name in ("in_context", "training", "laboratory"):
            quick = ["--quick"] if options.quick else []
            call([PYTHON, f"benchmarks/{name}.py", *quick], "The benchmark failed: see above.")
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
