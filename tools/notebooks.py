"""Keep each chapter's notebook in step with its text: execute, write deterministically, and check.

A chapter is a pair, `name.md` (MyST, edited by people) and `name.ipynb` (generated, executed, committed).
Running unchanged text again writes the identical bytes.
"""

import argparse
import base64
import math
import os
import re
import sys
import time
from pathlib import Path

sys.modules.setdefault("rfc3987_syntax", None)  # with which notebooks are validated: seconds for a grammar of addresses
import jupytext  # noqa: E402
import nbformat  # noqa: E402
from nbclient import NotebookClient  # noqa: E402
from nbclient.exceptions import CellExecutionError  # noqa: E402

from attnbook.folder import cited  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
MANY = 4  # faults named of one pair
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
COLAB = """\
# On Colab, fetch the book and install its package; elsewhere do nothing.
import sys

if "google.colab" in sys.modules:
    import os
    from subprocess import check_call

    if not os.path.exists("/content/book"):
        address = {address}
        check_call(["git", "clone", "--depth=1", address, "/content/book"])
        check_call([sys.executable, "-m", "pip", "install", "-q", "/content/book", "/content/book/src/attnbook"])
    os.chdir("/content/book/{folder}")"""
DOC = re.compile(r"\{doc\}`(?:([^`<]+) <)?([^`<>]+)>?`")
FOLDED = {"hide-input", "remove-input", "remove-cell"}  # tags of cells whose code the page folds or leaves out
LIVE = "live"  # the tag of a cell that shows live widgets only: executed, its output neither stored nor compared
EXPLORER = "application/vnd.attnopt.explorer+json"
NUMBER = re.compile(r"(?<![\w.])[-−]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+−]?\d+)?(?![\w])")
LEAST, DIGITS = 1e-12, 10  # a smaller number is a rounding error, and so are digits beyond so many
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def sources(book: Path = BOOK) -> list[Path]:
    """The texts that have a notebook: every MyST file in `book` with a kernel in its header."""
    return sorted(
        path for path in book.rglob("*.md") if "_build" not in path.parts and has_kernel(path.read_text(encoding="utf-8"))
    )


def has_kernel(text: str) -> bool:
    """Whether a text has a notebook."""
    return "\nkernelspec:" in text[:400]


def linked(source: str, folder: Path) -> str:
    """Prose with its references to other texts as ordinary links, which every viewer follows."""

    def link(reference: re.Match) -> str:
        words, name = reference.groups()
        path = folder / f"{name}.md"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        title = re.search(r"^# (.+)$", text, re.M)
        if not title:  # the build names it
            return reference[0]
        return f"[{words or title[1]}]({name}{'.ipynb' if has_kernel(text) else '.md'})"

    return DOC.sub(link, source)


def read_text(path: Path) -> nbformat.NotebookNode:
    """The notebook that a text describes: cells with fixed ids, no outputs."""
    notebook = jupytext.read(path, fmt="md:myst")
    notebook.metadata = nbformat.from_dict(METADATA)
    for number, cell in enumerate(notebook.cells):
        cell.id = f"{path.stem.replace('_', '-')[:50]}-{number:03d}"
        if cell.cell_type == "markdown":
            cell.source = linked(cell.source, path.parent)
    first = next((number for number, cell in enumerate(notebook.cells) if cell.cell_type == "code"), len(notebook.cells))
    notebook.cells.insert(first, colab_cell(path))
    for cell in notebook.cells:
        if FOLDED & set(cell.metadata.get("tags", [])):  # JupyterLab folds by this, the page by the tag
            cell.metadata.jupyter = nbformat.from_dict({"source_hidden": True})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def colab_cell(path: Path) -> nbformat.NotebookNode:
    """The notebook's own first cell, which the page leaves out and which does nothing but on Colab."""
    folder = path.parent.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else "."
    known = cited("repository-code")
    address = repr(known) if known else 'input("Address of the book\'s Git repository: ")'
    return nbformat.v4.new_code_cell(
        COLAB.format(folder=folder, address=address), id="colab", metadata={"tags": ["remove-cell"]}
    )


def code_cells(notebook: nbformat.NotebookNode) -> enumerate:
    """The code cells with their numbers; the one for Colab has number 1."""
    return enumerate((cell for cell in notebook.cells if cell.cell_type == "code"), 1)


def essence(notebook: nbformat.NotebookNode) -> list[tuple]:
    """What a text and its notebook must agree on, cell by cell: id, type, source, metadata."""
    return [(cell.id, cell.cell_type, cell.source, dict(cell.metadata)) for cell in notebook.cells]


def tidy(notebook: nbformat.NotebookNode) -> None:
    """Trim everything from outputs that varies between identical runs."""
    notebook.metadata = nbformat.from_dict(METADATA)
    for count, cell in code_cells(notebook):
        cell.execution_count = count
        outputs = []
        for output in [] if LIVE in cell.metadata.get("tags", []) else cell.outputs:
            if output.output_type == "stream" and outputs and outputs[-1].get("name") == output.name:
                outputs[-1].text += output.text
                continue
            output.get("data", {}).pop(WIDGET_VIEW, None)
            output.pop("transient", None)
            if output.output_type == "execute_result":
                output.execution_count = count
            outputs.append(output)
        cell.outputs = outputs
        cell.metadata.pop("execution", None)


def rounding(text: str) -> list[str]:
    """The numbers in an output that show how they were rounded, which another machine does otherwise."""
    found = []
    for number in NUMBER.findall(text):
        plain = number.replace("−", "-")
        digits = re.sub(r"[eE].*", "", plain).lstrip("-")
        significant = digits.replace(".", "").lstrip("0")
        if float(plain) == 0:
            wrong = plain.startswith("-")
        else:
            wrong = abs(float(plain)) < LEAST or ("." in digits and len(significant) > DIGITS)
        if wrong or not math.isfinite(float(plain)):
            found.append(number)
    return found


def printed(output: nbformat.NotebookNode) -> str:
    """What an output prints, its text or its formulas."""
    data = output.get("data", {})
    if EXPLORER in data:
        return ""  # its text repeats its state, which is data
    return "\n".join([output.get("text", ""), data.get("text/plain", ""), data.get("text/latex", "")])


def faults(path: Path) -> list[str]:
    """Ways in which a text's notebook is not its executed twin; empty if it is."""
    twin = path.with_suffix(".ipynb")
    if not twin.exists():
        return ["has no notebook"]
    try:
        notebook = nbformat.read(twin, as_version=4)
    except (ValueError, nbformat.ValidationError, AttributeError, KeyError, TypeError) as error:  # no JSON, or other JSON
        return [f"its notebook cannot be read: {error}"]
    found = []
    text, stored = essence(read_text(path)), essence(notebook)
    for number, (mine, theirs) in enumerate(zip(text, stored, strict=False)):
        if mine != theirs:
            found.append(f"cell {number} ({mine[1]}) differs from its notebook")
    if len(text) != len(stored):
        found.append(f"has {len(text)} cells, its notebook {len(stored)}")
    for count, cell in code_cells(notebook):
        if cell.execution_count != count:
            found.append(f"code cell {count} was not executed in order (count {cell.execution_count})")
        for output in cell.outputs:
            if output.output_type == "error":
                found.append(f"code cell {count} stores an error: {output.ename}")
            elif output.output_type == "stream" and output.name == "stderr":
                found.append(f"code cell {count} writes to stderr: {output.text.strip()[:80]}")
            elif LIVE in cell.metadata.get("tags", []):
                found.append(f"code cell {count} is tagged {LIVE} but stores an output")
            for number in rounding(printed(output)):
                found.append(f"code cell {count} prints {number}, which is rounding: decide with a tolerance, then print")
    if dict(notebook.metadata) != METADATA:
        found.append("its notebook's metadata are not the fixed ones")
    return found


def draw(notebook: nbformat.NotebookNode) -> None:
    """Give the explorers among the outputs the static image that viewers without scripts show."""
    data = [output.data for _, cell in code_cells(notebook) for output in cell.outputs if EXPLORER in output.get("data", {})]
    if not data:
        return
    from attnbook.stills import still, studio  # takes seconds, and most calls only check

    with studio() as mount:
        for one in data:
            one["image/png"] = base64.b64encode(still(mount, one[EXPLORER])).decode()


def write(path: Path, notebook: nbformat.NotebookNode) -> None:
    """Write the twin of `path` in one step, so that an interruption leaves the old one."""
    twin = path.with_suffix(".ipynb")
    draft = twin.with_suffix(".ipynb.part")
    nbformat.validate(notebook)
    draft.write_text(nbformat.writes(notebook).rstrip("\n") + "\n", encoding="utf-8", newline="\n")
    os.replace(draft, twin)


def carry_over(path: Path) -> bool:
    """Where prose alone has changed, write the twin with the outputs it has; say whether that was so."""
    try:
        stored = [cell for _, cell in code_cells(nbformat.read(path.with_suffix(".ipynb"), as_version=4))]
    except (OSError, ValueError, nbformat.ValidationError, AttributeError, KeyError, TypeError):
        return False
    notebook = read_text(path)
    cells = [cell for _, cell in code_cells(notebook)]
    known = [(cell.source, LIVE in cell.metadata.get("tags", []), cell.execution_count) for cell in stored]
    if known != [(cell.source, LIVE in cell.metadata.get("tags", []), count) for count, cell in enumerate(cells, 1)]:
        return False
    for cell, executed in zip(cells, stored, strict=True):
        cell.outputs = executed.outputs
    tidy(notebook)
    write(path, notebook)
    return not faults(path)


def execute(path: Path) -> None:
    """Execute a text from top to bottom in a fresh kernel and write its twin."""
    notebook = read_text(path)
    total = sum(cell.cell_type == "code" for cell in notebook.cells)
    client = NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": path.parent}})
    show = sys.stderr.isatty()
    done = 0

    def progress(cell, cell_index):
        nonlocal done
        if cell.cell_type == "code":
            done += 1
            if show:
                print(f"\r  cell {done} of {total}", end="", file=sys.stderr, flush=True)

    client.on_cell_start = progress
    client.execute()
    if show:
        print("\r", end="", file=sys.stderr)
    tidy(notebook)
    draw(notebook)
    write(path, notebook)


def select(names: list[str], book: Path = BOOK) -> list[Path]:
    """The texts named (`regression/softmax_and_lse`), or all.

    Raises:
        SystemExit: if a name fits no chapter.
    """
    known = {path.relative_to(book).with_suffix("").as_posix(): path for path in sources(book)}
    wanted = [name.removeprefix("book/").removesuffix(".md").removesuffix(".ipynb") for name in names]
    for name in wanted:
        if name not in known:
            sys.exit(f"no chapter {name!r}; there are: {', '.join(known)}")
    return [known[name] for name in wanted] if wanted else list(known.values())


def main() -> None:
    """Execute the stale pairs, those named or all, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a pair has drifted apart")
    parser.add_argument("--all", action="store_true", help="execute also the pairs that agree")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    # One thread and a fixed hash: the same text gives the same bytes.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", PYTHONHASHSEED="0")
    bad = 0
    for path in select(options.names):
        name = path.relative_to(ROOT)
        found = faults(path)
        if options.check:
            for fault in found[:MANY]:
                print(f"{name}: {fault}")
            if len(found) > MANY:  # one cell more or less, and all that follow differ
                print(f"{name}: and {len(found) - MANY} more")
            bad += bool(found)
            continue
        if not (found or options.all or options.names):
            print(f"{name}: up to date")
            continue
        if not (options.all or options.names) and carry_over(path):
            print(f"{name}: prose alone has changed; its outputs stay")
            continue
        start = time.perf_counter()
        try:
            execute(path)
        except CellExecutionError as error:
            print(f"{name}: {error}")
            bad += 1
            continue
        except OSError as error:
            print(f"{name}: not written: {error}")
            bad += 1
            continue
        print(f"{name}: executed in {time.perf_counter() - start:.0f} s", flush=True)
        for fault in faults(path):
            print(f"{name}: {fault}")
            bad += 1
    if bad:
        sys.exit(1)


if __name__ == "__main__":
    main()
