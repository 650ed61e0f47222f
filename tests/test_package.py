"""The package `attnopt` as others import it."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import attnopt
from attnopt.clustering.training.compiled import compiler

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_package_reaches_its_parts_and_imports_none_before():
    script = """
import sys
import attnopt
assert "torch" not in sys.modules
assert set(attnopt.__all__) <= set(dir(attnopt))
for part in attnopt.__all__:
    if part != "__version__":
        assert getattr(attnopt, part) is sys.modules[f"attnopt.{part}"]
assert attnopt.clustering.Task().p == 2
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    with pytest.raises(AttributeError, match="module 'attnopt' has no attribute 'nothing'"):
        _ = attnopt.nothing
    parts = {path.stem for path in (ROOT / "src" / "attnopt").iterdir() if path.suffix in ("", ".py")}
    assert set(attnopt.__all__) - {"__version__"} == parts - {"__init__", "__pycache__", "checks", "data", "integrate"}


def test_the_version_is_the_projects():
    assert attnopt.__version__ == PROJECT["version"]
    assert f"version: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def built(folder, project="."):
    """The wheel of a copy of a project, and the files that it holds: a build leaves files in its folder."""
    pytest.importorskip("setuptools", minversion="77", reason="an older setuptools does not read the license")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder]
    subprocess.run([*pip, folder / project], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return wheel, {name: archive.read(name).decode(errors="replace") for name in archive.namelist()}


def sources(name):
    """The files of one of the packages, by the names that they have in its wheel."""
    kept = (path for path in (ROOT / "src" / name).rglob("*") if path.is_file() and path.name != "pyproject.toml")
    names = {path.relative_to(ROOT / "src").as_posix() for path in kept}
    return {name for name in names if "__pycache__" not in name and ".egg-info" not in name}


def test_the_books_own_package_is_whole_where_colab_installs_it(tmp_path):
    _, files = built(tmp_path, "src/attnbook")
    assert {name for name in files if ".dist-info/" not in name} == sources("attnbook")
    assert "attnbook.mount:ExplorerRenderer" in files["attnbook-1.0.0.dist-info/entry_points.txt"]


def test_the_wheel_is_the_package_alone_and_runs_the_examples_elsewhere(tmp_path):
    (tmp_path / "source").mkdir()
    wheel, files = built(tmp_path / "source")
    assert {name for name in files if ".dist-info/" not in name} == sources("attnopt")
    assert "attnopt/py.typed" in files
    assert "attnopt-1.0.0.dist-info/licenses/LICENSE" in files
    assert "attnopt-1.0.0.dist-info/entry_points.txt" not in files
    about = files["attnopt-1.0.0.dist-info/METADATA"]
    for line in ("License-Expression: MIT", f"Author: {PROJECT['authors'][0]['name']}", "Requires-Dist: torch>=2.6"):
        assert f"\n{line}\n" in about

    # An environment of its own, which finds what the package needs, and nothing editable, in this one.
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", python, "install", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True)
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = Path(subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip())
    others = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (site / "others.pth").write_text("".join(f"{path}\n" for path in others), encoding="utf-8")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    *examples, cluster = re.findall(r"```python\n(.*?)```", text, re.S)
    assert "distributed" in cluster
    examples = [re.sub(r"epochs=\d+", "epochs=2", example) for example in examples]
    script = f"""
import sys
for example in {examples!r}:
    exec(example, {{}})
import attnopt.datasets, attnopt.in_context, attnopt.regression, attnopt.symbolic, attnopt.synthesis
assert attnopt.__file__.startswith({str(site)!r}), attnopt.__file__
assert attnopt.__version__ == {PROJECT["version"]!r}
assert {{"attnbook", "ipywidgets", "anywidget"}}.isdisjoint(sys.modules)
assert len(attnopt.clustering.load_models()) == 200
attnopt.clustering.train([0], attnopt.clustering.Settings(epochs=1), compiled={compiler() is not None})
try:
    import attnbook
except ImportError:
    print("done")
"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"MPLBACKEND": "agg"}
    done = subprocess.run(
        [python, "-W", "ignore", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")
