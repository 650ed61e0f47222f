"""The chapters in the book's order, and their table."""

from attnbook.folder import table


def parts() -> list[dict]:
    """The parts of the book with their chapters, as ``chapters.toml`` lists them."""
    return table("chapters.toml")["part"]


def chapters() -> dict[str, str]:
    """The (short) title of each chapter by its name, such as ``"regression/feature_flows"``, in the book's order."""
    return {
        f"{part['folder']}/{chapter['name']}": chapter.get("short", chapter["title"])
        for part in parts()
        for chapter in part["chapter"]
    }


def contents(parts: list[dict]) -> str:
    """The chapters as a Markdown table, with links to the notebooks, which the build turns into links to pages.

    Args:
        parts: the parts, as returned by `parts`.
    """
    rows, links, before = ["| chapter | needs | what you learn |", "|---|---|---|"], {}, ""
    for part in parts:
        for chapter in part["chapter"]:
            name, after = chapter["name"], chapter.get("after", "")
            links[name] = f"[{chapter['title']}]({part['folder']}/{name}.ipynb)"
            needs = ["the previous chapter" if after == before else links[after]] if after else []
            needs += [chapter["needs"]] if "needs" in chapter else []
            rows.append(f"| {links[name]} | {'; '.join(needs)} | {chapter['gives']} |")
            before = name
    return "\n".join(rows)
