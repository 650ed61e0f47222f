"""What archives read of a release: `.zenodo.json` and `codemeta.json`, from CITATION.cff; `codecheck.yml`, from results/.

    .venv/bin/python tools/release.py

writes them; a test asks whether they are up to date.
"""

import json
import tomllib
from pathlib import Path

import yaml

from attnbook.ledger import made, minutes

ROOT = Path(__file__).resolve().parents[1]


def citation() -> dict:
    """What CITATION.cff says."""
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def zenodo() -> str:
    """Zenodo's description of the release."""
    about = citation()
    found = {
        "title": about["title"],
        "description": about["abstract"],
        "upload_type": "software",
        "version": about["version"],
        "publication_date": str(about["date-released"]),
        "license": about["license"],
        "creators": [{"name": author["name"]} for author in about["authors"]],
        "keywords": about["keywords"],
        "related_identifiers": [
            {"identifier": paper["doi"], "scheme": "doi", "relation": "reviews"} for paper in about["references"]
        ],
    }
    return json.dumps(found, ensure_ascii=False, indent=2) + "\n"


def codemeta() -> str:
    """CodeMeta's description of the release."""
    about, project = citation(), tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = {
        "@context": "https://w3id.org/codemeta/3.0",
        "@type": "SoftwareSourceCode",
        "name": about["title"],
        "description": about["abstract"],
        "version": about["version"],
        "dateModified": str(about["date-released"]),
        "license": f"https://spdx.org/licenses/{about['license']}",
        "author": [{"@type": "Organization", "name": author["name"]} for author in about["authors"]],
        "keywords": about["keywords"],
        "programmingLanguage": "Python",
        "runtimePlatform": f"Python {project['requires-python']}",
        "citation": [
            {
                "@type": "ScholarlyArticle",
                "@id": f"https://doi.org/{paper['doi']}",
                "name": paper["title"],
                "author": [
                    {"@type": "Person", "givenName": who["given-names"], "familyName": who["family-names"]}
                    for who in paper["authors"]
                ],
                "datePublished": str(paper["year"]),
            }
            for paper in about["references"]
        ],
    }
    if "repository-code" in about:
        found["codeRepository"] = about["repository-code"]
    return json.dumps(found, ensure_ascii=False, indent=2) + "\n"


def codecheck() -> str:
    """CODECHECK's manifest: every stored result, and the commands that make it."""
    entries = []
    for path in sorted((ROOT / "results").iterdir()):
        if path.suffix == ".json":
            comment = "; ".join(f"{command} ({minutes(time)})" for command, time in made(path.stem))
        else:  # arrays, which bear no record
            script = next(
                script for script in sorted((ROOT / "experiments").glob("*.py")) if path.name in script.read_text()
            )
            comment = f"python experiments/{script.name}"
        entries.append({"file": f"results/{path.name}", "comment": comment})
    about = citation()
    said = {
        "version": "https://codecheck.org.uk/spec/config/1.0/",
        "paper": {"title": about["title"], "authors": about["authors"]},
        "manifest": entries,
    }
    head = (
        "# Made by tools/release.py. Nobody has checked these results yet; a check adds codechecker, report, certificate.\n"
    )
    return head + yaml.safe_dump(said, sort_keys=False, allow_unicode=True, width=200)


FILES = {".zenodo.json": zenodo, "codemeta.json": codemeta, "codecheck.yml": codecheck}

if __name__ == "__main__":
    for name, text in FILES.items():
        (ROOT / name).write_text(text(), encoding="utf-8", newline="\n")
