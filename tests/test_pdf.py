"""The book in one file: links from page to page become links inside it, and its bookmarks lead where they say."""

import io

import pdf
import pytest
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, DictionaryObject, FloatObject, NameObject, NumberObject, TextStringObject

BASE = "http://localhost:1/"


def printed(pages, destinations=(), links=()):
    """A document as Chromium prints it: destinations by name, links to a name (`#name`) or to an address."""
    writer = PdfWriter()
    for _ in range(pages):
        writer.add_blank_page(595, 842)
    named = {
        NameObject(f"/{name}"): ArrayObject(
            [writer.pages[page].indirect_reference, NameObject("/XYZ"), FloatObject(0), FloatObject(top), NumberObject(0)]
        )
        for name, page, top in destinations
    }
    writer.root_object[NameObject("/Dests")] = DictionaryObject(named)
    for page, target in links:
        link = DictionaryObject({NameObject("/Type"): NameObject("/Annot"), NameObject("/Subtype"): NameObject("/Link")})
        link[NameObject("/Rect")] = ArrayObject([FloatObject(value) for value in (10, 10, 20, 20)])
        if target.startswith("#"):
            link[NameObject("/Dest")] = NameObject(f"/{target[1:]}")
        else:
            action = {NameObject("/S"): NameObject("/URI"), NameObject("/URI"): TextStringObject(target)}
            link[NameObject("/A")] = DictionaryObject(action)
        writer.pages[page].setdefault(NameObject("/Annots"), ArrayObject()).append(writer._add_object(link))
    buffer = io.BytesIO()
    writer.write(buffer)
    return PdfReader(buffer)


@pytest.fixture
def book(tmp_path):
    """Two bound pages of a site behind one leaf of front matter, read back."""
    one = printed(2, [("here", 1, 300)], [(0, "#here"), (0, f"{BASE}part/two.html#there"), (0, "https://example.org/")])
    two = printed(1, [("there", 0, 500)], [(0, f"{BASE}one.html"), (0, f"{BASE}lost.html")])
    front = printed(1, [], [(0, f"{BASE}part/two.html")])
    sheets = [
        pdf.Sheet("one", "", "One", [("here", "Here")], one, 1),
        pdf.Sheet("part/two", "Part I", "Two", [("there", "There"), ("nowhere", "Nowhere")], two, 3),
    ]
    path = tmp_path / "book.pdf"
    pdf.bind(front, sheets, printed(4), BASE).write(path)
    return PdfReader(path)


def targets(book, number):
    """Where the links of a page lead: page and height, or an address."""
    found = []
    for reference in book.pages[number].get("/Annots", []):
        link = reference.get_object()
        if "/Dest" in link:
            page, _, _, top, _ = link["/Dest"]
            found.append((book.get_page_number(page.get_object()), float(top)))
        else:
            found.append(str(link["/A"]["/URI"]))
    return found


def test_links_lead_inside_the_book(book):
    assert len(book.pages) == 4
    assert targets(book, 0) == [(3, 842)]
    assert targets(book, 1) == [(2, 300), (3, 500), "https://example.org/"]
    assert targets(book, 3) == [(1, 842)]  # a link that leads nowhere is none


def test_bookmarks_follow_the_contents(book):
    one, sections, part, [two, below] = book.outline
    assert [one.title, part.title, two.title] == ["One", "Part I", "Two"]
    assert [book.get_destination_page_number(item) for item in (one, *sections, part, two, *below)] == [1, 2, 3, 3, 3]
    assert [item.title for item in (*sections, *below)] == ["Here", "There"]


def test_the_book_has_every_page_of_the_site_in_order():
    sheets = pdf.table_of_contents()
    assert sheets[0].name == "index"
    assert sheets[1].name == "regression/softmax_and_lse"
    assert sheets[1].part.startswith("Part I:")
    text = (pdf.ROOT / "_toc.yml").read_text(encoding="utf-8")
    assert [sheet.name for sheet in sheets[1:]] == [line.split()[-1] for line in text.splitlines() if "- file:" in line]


def test_addresses_name_a_page_and_a_place():
    assert pdf.target("/part/two.html#a%20b") == ("part/two", "a b")
    assert pdf.target("index.html") == ("index", "")


def test_what_other_pages_link_to_is_wanted(tmp_path):
    (tmp_path / "part").mkdir()
    body = "<article><h1>{}<a class='headerlink' href='#x'>#</a></h1>{}</article>"
    one = '<section id="s"><h2>Its <em>section</em></h2></section><a href="part/two.html#t">x</a><a href="https://e.org/#u">y</a>'
    (tmp_path / "one.html").write_text(body.format("One", one), encoding="utf-8")
    (tmp_path / "part" / "two.html").write_text(body.format("Two", '<a href="../one.html#o">x</a>'), encoding="utf-8")
    sheets = [pdf.Sheet("one"), pdf.Sheet("part/two")]
    assert pdf.anchors_wanted(sheets, tmp_path) == {"one": {"s", "o"}, "part/two": {"t"}}
    assert [sheet.title for sheet in sheets] == ["One", "Two"]
    assert sheets[0].sections == [("s", "Its section")]
