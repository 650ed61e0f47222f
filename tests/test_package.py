"""The package `attnopt` as others import it."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import attnopt

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
