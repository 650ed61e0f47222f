"""Start a chapter: its text from the template, its line in the table of contents and its row in book/chapters.toml."""

import re
import sys

from notebooks import BOOK, ROOT

TEMPLATE = ROOT / "tools" / "chapter_template.md"
QUESTION = """
[["{place}"]]
statement = "A statement on a main result."
answer = "{answer}"
reason = "Why, in a sentence, with the theorem's name."
"""


def main(part: str, name: str) -> None:
    """Write `book/PART/NAME.md`, list it after the part's last chapter, and start its questions in book/questions.toml.

    Raises:
        SystemExit: if a name is not a lower-case identifier or the chapter exists.
    """
    for word in (part, name):
        if not re.fullmatch(r"[a-z][a-z0-9_]*", word):
            sys.exit(f"a part and a chapter are named in lower case with underscores, got {word!r}")
    path = BOOK / part / f"{name}.md"
    if path.exists():
        sys.exit(f"{path.relative_to(ROOT)} exists")
    title = name.replace("_", " ").capitalize()
    path.parent.mkdir(exist_ok=True)
    text = TEMPLATE.read_text(encoding="utf-8").replace("TITLE", title).replace("PLACE", f"{part}/{name}")
    path.write_text(text.replace("NAME", name.replace("_", "-")), encoding="utf-8", newline="\n")
    print(f"wrote {path.relative_to(ROOT)}")
    with (BOOK / "questions.toml").open("a", encoding="utf-8", newline="\n") as table:
        for answer in ("true", "false", "under a condition"):
            table.write(QUESTION.format(place=f"{part}/{name}", answer=answer))
    print("began its three questions in book/questions.toml")

    contents = ROOT / "_toc.yml"
    lines = contents.read_text(encoding="utf-8").splitlines()
    places = [number for number, line in enumerate(lines) if f"- file: {part}/" in line]
    if places:
        indent = lines[places[-1]].partition("-")[0]
        lines.insert(places[-1] + 1, f"{indent}- file: {part}/{name}")
        contents.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
        table = BOOK / "chapters.toml"
        row = f'\n\n[[part.chapter]]\nname = "{name}"\ntitle = "{title}"\ngives = "what its reader leaves with"\n'
        parts = table.read_text(encoding="utf-8").split("\n[[part]]\n")
        parts = [text.rstrip() + row if f'folder = "{part}"' in text else text for text in parts]
        table.write_text("\n[[part]]\n".join(parts), encoding="utf-8", newline="\n")
        print("listed it in _toc.yml and book/chapters.toml")
    else:
        print(f"list it in _toc.yml under its part: - file: {part}/{name}")
        print(f"and in book/chapters.toml, and exclude its text from the pages in _config.yml: {part}/*.md")
    print(f"next: write it, then python3 run.py notebooks {part}/{name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
