"""The chapters in the book's order, and their table."""

from attnbook.folder import table


def parts() -> list[dict]:
    """The parts of the book with their chapters, as ``chapters.toml`` lists them."""
    return table("chapters.toml")["part"]


def chapters() -> dict[str, str]:
    """The names of all chapters in the book's order, as in ``"regression/feature_flows"``, and their titles."""
    return {
        f"{part['folder']}/{chapter['name']}": chapter.get("short", chapter["title"])
        for part in parts()
        for chapter in part["chapter"]
    }


def contents(parts: list[dict]) -> str:
    """The chapters as a Markdown table: its links lead to notebooks, which the build takes for their pages.

    Args:
        parts: as `parts` gives them.
    """
    rows, links, before = ["| chapter | needs | what you learn |", "|---|---|---|"], {}, ""
    for part in parts:
        for chapter in part["chapter"]:
            name, after = chapter["name"], chapter.get("after", "")
            links[name] = f"[{chapter['title']}]({part['folder']}/{name}.ipynb)"
            needs = ["the chapter before" if after == before else links[after]] if after else []
            needs += [chapter["needs"]] if "needs" in chapter else []
            rows.append(f"| {links[name]} | {', '.join(needs)} | {chapter['gives']} |")
            before = name
    return "\n".join(rows)
