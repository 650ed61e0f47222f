"""Run the scripts of the errata and store what they print, which the page shows and the tests compare: `tools/errata.py`."""

from pathlib import Path

from attnbook.errata import printed

FOLDER = Path(__file__).parent.parent / "book" / "errata"

if __name__ == "__main__":
    for script in sorted(FOLDER.glob("*.py")):
        script.with_suffix(".txt").write_text(printed(script), encoding="utf-8", newline="\n")
        print(script.stem)
