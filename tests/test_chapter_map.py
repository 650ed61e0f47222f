import re
from pathlib import Path

import yaml

from attnbook.chapter_map import contents, parts

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


def test_table_links_what_a_chapter_needs_unless_it_is_the_one_before():
    assert contents(PARTS).splitlines()[2:] == [
        "| [First & foremost of all](one/a.ipynb) | eyes | x |",
        "| [Second](one/b.ipynb) | the previous chapter; patience | y |",
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
