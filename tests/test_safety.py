"""Nothing that the project reads can run code: no pickles, no evaluated text, no shell; data stays data."""

import ast
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = [
    path for folder in ("src", "tools", "experiments", "benchmarks", "book") for path in (ROOT / folder).rglob("*.py")
]
SOURCES += [ROOT / "run.py"]
CELLS = sorted((ROOT / "book").rglob("*.md"))


def cells(path):
    """The Python of a chapter's cells."""
    code, inside = [], False
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            inside = line.startswith("```{code-cell}")
        elif inside and not line.startswith((":", "---", "%", "mystnb", "tags")):
            code.append(line)
    return code


def name(node):
    """The dotted name of a called function."""
    return ast.unparse(node.func)


def dangers(tree):
    """What could run code that a file brings, as (line, what)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            for module in modules:
                if module.partition(".")[0] in ("pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"):
                    yield node.lineno, f"import {module}"
        if not isinstance(node, ast.Call):
            continue
        called, given = name(node), {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if called in ("eval", "exec", "compile", "os.system", "os.popen", "joblib.load", "yaml.load", "yaml.unsafe_load"):
            yield node.lineno, called
        if called in ("torch.load", "load") and called == "torch.load" and given.get("weights_only") != "True":
            yield node.lineno, "torch.load without weights_only=True"
        if called in ("np.load", "numpy.load") and given.get("allow_pickle") != "False":
            yield node.lineno, "np.load without allow_pickle=False"
        if given.get("shell") not in (None, "False"):
            yield node.lineno, f"{called} with a shell"
        if called.rpartition(".")[2] == "to_pickle" or given.get("allow_pickle") == "True":
            yield node.lineno, called


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_file_can_bring_code(path):
    assert list(dangers(ast.parse(path.read_text(encoding="utf-8")))) == []


def test_no_cell_can_bring_code():
    words = ("pickle", "allow_pickle=True", "eval(", "exec(", "os.system", "shell=True", "torch.load", "weights_only=False")
    for path in CELLS:
        for line in cells(path):
            assert not any(word in line for word in words if ".eval(" not in line), f"{path.name}: {line}"


def test_no_file_of_the_project_is_a_pickle():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for entry in filter(None, listed.split("\0")):
        path = ROOT / entry
        assert path.suffix not in (".pkl", ".pickle", ".pt", ".pth", ".joblib"), entry
        if path.suffix == ".npz" and path.is_file():
            assert b"numpy.core.multiarray\n_reconstruct" not in path.read_bytes()


def test_explorers_put_no_text_into_the_page_as_markup():
    for path in [*(ROOT / "src" / "attnbook").rglob("*.js"), *(ROOT / "book" / "_static").glob("*.js")]:
        text = path.read_text(encoding="utf-8")
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc"):
            assert way not in text, f"{path.name} uses {way}"
