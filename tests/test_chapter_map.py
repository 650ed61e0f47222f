import xml.etree.ElementTree as ET

import pytest

from bookkit.chapter_map import ChapterMap

PARTS = [
    ("one", "I <&>", [("a", "First & foremost of all", ""), ("b", "Second", "a"), ("c", "Third", "a")]),
    ("two", "II", [("d", "Far", "a")]),
]


def test_map_is_wellformed_and_links_every_chapter():
    drawn = ET.fromstring(ChapterMap(PARTS)._repr_html_())
    assert [link.get("href") for link in drawn.iter("a")] == ["one/a.html", "one/b.html", "one/c.html", "two/d.html"]
    texts = ["".join(node.itertext()) for node in drawn.iter("text")]
    assert texts[:2] == ["I <&>", "II"]
    assert {"First & foremost", "of all"} <= set(texts)
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
        ChapterMap([("two", "II", [("d", "Far", "e")])])
