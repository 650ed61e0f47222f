"""A small project in which the commands are run as a user runs them: this checkout's tools, a book of two pages."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
VENV = Path(sys.prefix)
# What a kernel may say as it ends, when its sockets are closed before its last flush.
LAST_WORDS = re.compile(r"^ERROR:tornado\.general:Uncaught.*?^zmq\.error\.ZMQError: [^\n]*", re.DOTALL | re.MULTILINE)
CONTENTS = """format: jb-book
root: index
parts:
  - caption: A part
    chapters:
      - file: ledger
      - file: bibliography
"""
HEADER = """---
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---
"""
INDEX = f"""{HEADER}
# A book

It begins with {{doc}}`ledger`.
"""
PAGE = f"""{HEADER}
# A page

One cell.

```{{code-cell}} ipython3
print(6 * 7)
```
"""


def make(folder: Path) -> Path:
    """Write the project; its `.venv` is this one, through a link."""
    for name in ("run.py", "pyproject.toml", "deno.json"):
        shutil.copy(ROOT / name, folder)
    config = (ROOT / "_config.yml").read_text(encoding="utf-8")
    for spared in ("attnbook.sources", "attnbook.mount"):  # listings of the tests, explorers: not this book's
        assert f"      - {spared}\n" in config
        config = config.replace(f"      - {spared}\n", "")
    (folder / "_config.yml").write_text(config, encoding="utf-8")
    for name in ("tools", "book/_static"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    # What forks import beforehand is of use to this book's chapters only, but takes seconds.
    spare(folder / "tools" / "kernels.py", "IMPORTED", '"ipykernel.kernelapp IPython.core.pylabtools matplotlib.pyplot"')
    for name in ("bibliography.md", "references.bib", "conftest.py"):
        shutil.copy(ROOT / "book" / name, folder / "book")
    (folder / ".venv").symlink_to(VENV)
    (folder / "src" / "attnopt").mkdir(parents=True)
    (folder / "src" / "attnopt" / "__init__.py").write_text('"""What is typed."""\n', encoding="utf-8")
    (folder / "_toc.yml").write_text(CONTENTS, encoding="utf-8")
    (folder / "book" / "ledger.md").write_text(PAGE, encoding="utf-8")
    (folder / "book" / "index.md").write_text(INDEX, encoding="utf-8")
    return folder


def spare(script: Path, name: str, value: str) -> None:
    """Give a constant of a script another value."""
    text = script.read_text(encoding="utf-8")
    found = {ast.unparse(node.targets[0]): node for node in ast.parse(text).body if isinstance(node, ast.Assign)}
    lines = text.splitlines(keepends=True)
    lines[found[name].lineno - 1 : found[name].end_lineno] = [f"{name} = {value}\n"]
    script.write_text("".join(lines), encoding="utf-8")


def line(folder: Path, *words: str) -> list[str]:
    """The command line `run.py WORDS` of the project."""
    return [sys.executable, str(folder / "run.py"), *words]


def command(folder: Path, *words: str, code: int = 0, **environment: str) -> str:
    """Run `run.py WORDS` there; what it printed. Its exit code must be the one given."""
    return _done(line(folder, *words), folder, code, environment)


def tool(folder: Path, program: str, *words: str, code: int = 0, **environment: str) -> str:
    """Run `.venv/bin/PROGRAM WORDS` there; what it printed."""
    return _done([str(VENV / "bin" / program), *words], folder, code, environment)


def _done(words: list[str], folder: Path, code: int, environment: dict) -> str:
    quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "BROWSER": "true", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        words, cwd=folder, env=os.environ | quiet | environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", timeout=600,
    )  # fmt: skip
    assert done.returncode == code, done.stdout
    assert "Traceback" not in LAST_WORDS.sub("", done.stdout) or code, done.stdout
    return done.stdout
