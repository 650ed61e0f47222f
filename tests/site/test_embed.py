"""The explorers' pages of their own, and their pictures as files."""

import base64
import xml.etree.ElementTree as ElementTree

import pytest
from explorer_pages import PAGES, mounted
from explorer_states import NAMES
from test_pages import faults

SVG = "{http://www.w3.org/2000/svg}"


def saved(page, explorer, kind):
    """The picture of an explorer, as the bytes of a file."""
    with page.expect_download() as download:
        explorer.get_by_role("button", name=f"save the picture as {kind}").click()
    assert download.value.suggested_filename.endswith(f".{kind.lower()}")
    return download.value.path().read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_every_explorer_has_a_page_of_its_own_and_its_picture_can_be_saved(name, open_page):
    page = open_page(f"embed/{name}.html", mathematics=False, width=390 if len(name) % 2 else 1280)
    explorer = mounted(page)
    assert explorer.get_attribute("data-mounted") == name
    assert explorer.get_by_role("link", name="embed").count() == 0  # it is the page to embed
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    explorer.locator("svg text").first.wait_for(state="attached")  # the laboratory's panels know their size a frame later
    drawing = ElementTree.fromstring(saved(page, explorer, "SVG"))
    shapes = [node.tag.removeprefix(SVG) for node in drawing.iter()]
    shown = explorer.locator("svg > *, svg g > *").count()
    assert drawing.tag == f"{SVG}svg"
    assert len(shapes) > min(shown, 12)
    texts = {node.text for node in drawing.iter(f"{SVG}text") if node.text}
    assert texts & set(explorer.locator("svg text").all_text_contents())
    assert page.complaints == []


def test_the_png_shows_what_the_svg_shows(open_page):
    page = open_page("embed/plateaus.html", mathematics=False)
    explorer = mounted(page)
    picture = saved(page, explorer, "PNG")
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(picture[at : at + 4], "big") for at in (16, 20))
    drawing = ElementTree.fromstring(saved(page, explorer, "SVG"))
    assert (width, height) == (2 * int(drawing.get("width")), 2 * int(drawing.get("height")))
    colors = page.evaluate(  # of a curve, read back from the file
        """async encoded => {
          const bytes = Uint8Array.from(atob(encoded), (sign) => sign.charCodeAt(0));
          const image = await createImageBitmap(new Blob([bytes]));
          const canvas = new OffscreenCanvas(image.width, image.height), pen = canvas.getContext("2d");
          pen.drawImage(image, 0, 0);
          const { data } = pen.getImageData(0, 0, image.width, image.height);
          const parts = (color) => [color & 255, (color >> 8) & 255, (color >> 16) & 255];
          return [...new Set(new Uint32Array(data.buffer))].map(parts);
        }""",
        base64.b64encode(picture).decode(),
    )
    assert {(0, 114, 178), (213, 94, 0)} <= set(map(tuple, colors))  # the two layers, blue and orange


@pytest.mark.parametrize("name", ["attention_field", "plateaus"])
def test_the_link_carries_the_state_to_the_page_of_its_own(name, open_page):
    page = open_page(PAGES[name], mathematics=False)
    explorer = mounted(page)
    explorer.get_by_role("slider").first.press("End")
    said = explorer.get_by_role("status").text_content()
    address = explorer.get_by_role("link", name="embed").get_attribute("href")
    assert f"/embed/{name}.html#{name}=" in address
    page.goto(address)
    assert mounted(page).get_by_role("status").text_content() == said
    assert page.complaints == []


def test_the_laboratory_has_its_own_name(open_page):
    page = open_page("embed/sandbox.html", mathematics=False)
    assert page.title() == "The laboratory – Attention as Optimization"
    assert page.locator("h1").inner_text() == "The laboratory"


def test_a_page_of_its_own_is_accessible(open_page):
    page = open_page("embed/attention_field.html", mathematics=False)
    mounted(page)
    assert faults(page) == []
