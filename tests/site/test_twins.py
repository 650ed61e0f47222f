"""Each page as Markdown beside it, and the list of these files for language models."""

import posixpath
import re

import pytest
from conftest import HTML
from test_pages import CONTENT

from attnbook.chapter_map import chapters

FENCED = re.compile(r"^```.*?^```$", re.M | re.S)


@pytest.mark.parametrize("page", CONTENT)
def test_a_page_has_a_twin_in_plain_markdown(page):
    twin = (HTML / page).with_suffix(".md")
    text = twin.read_text(encoding="utf-8")
    assert f'<link rel="alternate" type="text/markdown" href="{twin.name}"' in (HTML / page).read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert len(re.findall(r"^```", text, re.M)) % 2 == 0
    prose = FENCED.sub("", text)
    assert not re.search(
        r"^:::|\{(code-cell|eval-rst|doc|ref|eq|term|numref|download|cite:\w|prf:\w+)\}|^:\w+: ", prose, re.M
    )
    assert not re.search(r"</?(a|b|i|p|div|span|svg|details|summary|img)[ >/]", re.sub(r"`[^`\n]*`", "", prose))
    for address in re.findall(r"\]\(([\w./-]+\.md)", prose):
        assert (HTML / posixpath.normpath(posixpath.join(posixpath.dirname(page), address))).is_file(), address
    assert "On Colab, fetch the book" not in text


def test_a_twin_says_what_its_page_says():
    text = (HTML / "synthesis" / "loops_first.md").read_text(encoding="utf-8")
    for words in (
        "**Theorem (Order).**",
        "by Theorem (The loop) below",
        "[Optimal step sizes](../in_context/optimal_step_sizes.md)",
        "*Figure: All critical points of three layers",
        "*(An explorer, which needs the page.)*",
        "We find: Proved",
        "Saxe et al. 2014",
        "```python\nimport itertools",
        "best loop has loss 0.2683",
    ):
        assert words in text, words


def test_the_list_for_language_models_names_every_twin():
    lines = (HTML / "llms.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# Attention as Optimization"
    assert lines[2].startswith("> ")
    listed = re.findall(r"^- \[.+\]\((.+\.md)\)$", "\n".join(lines), re.M)
    assert sorted(listed) == sorted(page.replace(".html", ".md") for page in CONTENT)
    assert listed[: len(chapters())][0] == "regression/softmax_and_lse.md"
