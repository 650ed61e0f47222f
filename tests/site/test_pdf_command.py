"""`run.py pdf`, in a small project that is not built yet."""

import commands
from commands import command
from pypdf import PdfReader


def test_pdf_builds_the_book_and_prints_it(tmp_path):
    folder = commands.make(tmp_path)
    command(folder, "notebooks")
    said = command(folder, "pdf", "--output", "print/book.pdf")
    assert (folder / "_build" / "html" / "objects.inv").is_file()
    book = PdfReader(folder / "print" / "book.pdf")
    assert f"book.pdf: {len(book.pages)} pages" in said
    assert [item.title for item in book.outline if not isinstance(item, list)] == ["A book", "A part"]
    text = "".join(page.extract_text() for page in book.pages)
    assert "A page" in text
    assert "42" in text
