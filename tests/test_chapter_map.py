import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import yaml

from attnbook.chapter_map import ChapterMap, contents, parts

ROOT = Path(__file__).parent.parent
PARTS = [
    {
        "folder": "one",
        "title": "I <&>",
        "chapter": [
            {"name": "a", "title": "First & foremost of all", "needs": "eyes", "gives": "x"},
            {"name": "b", "title": "Second", "after": "a", "needs": "patience", "gives": "y"},
            {"name": "c", "title": "The third, of many words", "short": "Third", "after": "a", "gives": "z"},
        ],
    },
    {"folder": "two", "title": "II", "chapter": [{"name": "d", "title": "Far", "after": "a", "gives": "w"}]},
]


def test_map_is_wellformed_and_links_every_chapter():
    drawn = ET.fromstring(ChapterMap(PARTS)._repr_html_())
    assert [link.get("href") for link in drawn.iter("a")] == ["one/a.html", "one/b.html", "one/c.html", "two/d.html"]
    texts = ["".join(node.itertext()) for node in drawn.iter("text")]
    assert texts[:2] == ["I <&>", "II"]
    assert {"First &", "foremost of", "all", "Third"} <= set(texts)
    assert sum(path.get("marker-end") is not None for path in drawn.iter("path")) == 3
    assert repr(ChapterMap(PARTS)) == "ChapterMap of 4 chapters"


def test_everything_lies_inside_the_picture():
    drawn = ET.fromstring(ChapterMap(PARTS)._repr_html_())
    width, height = (float(number) for number in drawn.get("viewBox").split()[2:])
    for box in drawn.iter("rect"):
        x, y, w, h = (float(box.get(name)) for name in ("x", "y", "width", "height"))
        assert 9 <= x <= width - w - 9  # room for the arrows beside the boxes
        assert 0 <= y <= height - h


def test_a_need_that_is_no_chapter_is_named():
    with pytest.raises(ValueError, match="d needs 'e', which is not on the map"):
        ChapterMap([{"folder": "two", "title": "II", "chapter": [{"name": "d", "title": "Far", "after": "e", "gives": ""}]}])


def test_table_links_what_a_chapter_needs_unless_it_is_the_one_before():
    assert contents(PARTS).splitlines()[2:] == [
        "| [First & foremost of all](one/a.ipynb) | eyes | x |",
        "| [Second](one/b.ipynb) | the chapter before, patience | y |",
        "| [The third, of many words](one/c.ipynb) | [First & foremost of all](one/a.ipynb) | z |",
        "| [Far](two/d.ipynb) | [First & foremost of all](one/a.ipynb) | w |",
    ]


def test_chapters_are_those_of_the_table_of_contents_with_their_headings():
    listed = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))["parts"]
    chapters = [[f"{part['folder']}/{chapter['name']}" for chapter in part["chapter"]] for part in parts()]
    files = [[chapter["file"] for chapter in part["chapters"] if "/" in chapter["file"]] for part in listed]
    assert chapters == [some for some in files if some]  # other pages stand in no part's folder
    for part in parts():
        for chapter in part["chapter"]:
            text = (ROOT / "book" / part["folder"] / f"{chapter['name']}.md").read_text(encoding="utf-8")
            assert re.search(r"^# (.+)$", text, re.M)[1] == chapter["title"]
