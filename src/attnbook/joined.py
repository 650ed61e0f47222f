"""A Sphinx extension that puts the ledger and the errata into the site as files that other programs can read.

Each file names its papers by arXiv number and DOI, and the JSON Schema that it follows. A schema's version number increases
whenever programs that read the files would have to change.
"""

import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

from pybtex.database import parse_file
from sphinx.application import Sphinx

from attnbook.claims import claims
from attnbook.folder import cited, find, table
from attnbook.graph import nodes
from attnbook.ledger import as_csv

SCHEMAS = Path(__file__).with_name("schemas")
ENTRY = re.compile(
    r"### (?P<place>[^\n]+)\n\n\*\*Printed\.\*\* (?P<printed>.+?)\n\n\*\*True\.\*\* (?P<true>.+?)\n\n(?P<reason>.+?)\n\n"
    r"\{download\}`[^\n]+?<(?P<script>[^\n]+?)>`[^\n]*\"ledger\.html#(?P<id>[\w-]+)\"[^\n]* · (?P<severity>[^\n·]+)\n",
    re.S,
)


def sources() -> dict[str, dict]:
    """Authors, title, year, arXiv number, arXiv DOI, and the version whose numbers we quote, for each paper by its key."""
    known, found = parse_file(find("book/references.bib")).entries, {}
    for paper, row in table("claims.toml")["sources"].items():
        entry = known[row["cite"]]
        number = entry.fields["eprint"]
        found[paper] = {
            "authors": [" ".join([*who.first_names, *who.middle_names, *who.last_names]) for who in entry.persons["author"]],
            "title": entry.fields["title"],
            "year": int(entry.fields["year"]),
            "arxiv": number,
            "doi": f"10.48550/arXiv.{number}",
            "version": row["version"],
        }
    return found


def file_of(kind: str, rows: list[dict]) -> str:
    """The text of a JSON file with its schema, the version of the book, the papers, and the given rows.

    Args:
        kind: "claims" or "corrections".
        rows: the rows to list.
    """
    said = {"$schema": f"{'ledger' if kind == 'claims' else 'errata'}-1.schema.json", "book": cited("version")}
    return json.dumps(said | {"papers": sources(), kind: rows}, ensure_ascii=False, indent=1) + "\n"


def ledger_json() -> str:
    """All claims as JSON, with the fields of `attnbook.claims.Claim`."""
    return file_of("claims", [asdict(row) for row in claims().values()])


def errata_json() -> str:
    """All corrections of the errata page as JSON: place in the paper, published and true text, reason, and severity.

    Raises:
        ValueError: if an entry of the page lacks a part or has an unknown severity.
    """
    page = find("book/errata.md").read_text(encoding="utf-8").partition("## Holds with a caveat")[0]
    schema = json.loads((SCHEMAS / "errata-1.schema.json").read_text(encoding="utf-8"))
    rows, severities = [], schema["$defs"]["row"]["properties"]["severity"]["enum"]
    for text in re.split(r"(?m)^(?=### )", page)[1:]:
        entry = ENTRY.match(text)
        if not entry or entry["severity"] not in severities:
            raise ValueError(f"an entry must have all parts and one of the severities {severities}, got {text[:80]!r}")
        row = {"id": entry["id"], "paper": claims()[entry["id"]].paper} | entry.groupdict()
        rows.append(row | {"chapter": claims()[entry["id"]].chapter, "script": f"book/{entry['script']}"})
    return file_of("corrections", rows)


def graph_json() -> str:
    """All nodes of the graph as JSON, a list of objects with the fields of `attnbook.graph.Node`."""
    return json.dumps([asdict(node) for node in nodes().values()], ensure_ascii=False, indent=1) + "\n"


FILES = {"ledger.json": ledger_json, "ledger.csv": as_csv, "errata.json": errata_json, "graph.json": graph_json}


def write_files(app: Sphinx, exception: Exception | None) -> None:
    """Put the files and their schemas next to the pages."""
    if exception or app.builder.format != "html":
        return
    for name, text in FILES.items():
        Path(app.outdir, name).write_text(text(), encoding="utf-8", newline="\n")
    for schema in SCHEMAS.glob("*.json"):
        shutil.copyfile(schema, Path(app.outdir, schema.name))


def setup(app: Sphinx) -> dict:
    """Register the functions above with Sphinx."""
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
