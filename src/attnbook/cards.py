"""A Sphinx extension that draws preview cards: a page's title and first picture, which other sites show with a link."""

import html
import re
import textwrap
from pathlib import Path
from urllib.parse import unquote

from matplotlib import get_data_path
from PIL import Image, ImageDraw, ImageFont
from sphinx.application import Sphinx

FOLDER = "_static/cards"
SIZE, MARGIN = (1200, 630), 60
PICTURE = re.compile(r'<img [^>]*src="(?:\.\./)*(_images/[^"]+\.png)"')
FONT = Path(get_data_path(), "fonts", "ttf", "DejaVuSans-Bold.ttf")


def card(title: str, picture: Image.Image, book: str) -> Image.Image:
    """The card: title above, picture below, and the book's name in the corner.

    Args:
        title: the page's title.
        picture: the picture, which is scaled to the space below the title.
        book: the book's name.
    """
    made = Image.new("RGB", SIZE, "white")
    draw, large, small = ImageDraw.Draw(made), ImageFont.truetype(FONT, 54), ImageFont.truetype(FONT, 26)
    lines = "\n".join(textwrap.wrap(title, 32))
    draw.multiline_text((MARGIN, MARGIN - 10), lines, fill="#16213a", font=large, spacing=10)
    top = int(draw.multiline_textbbox((MARGIN, MARGIN - 10), lines, font=large, spacing=10)[3]) + 30
    room = SIZE[0] - 2 * MARGIN, SIZE[1] - top - MARGIN - 20
    scale = min(room[0] / picture.width, room[1] / picture.height)
    shown = picture.convert("RGBA").resize((round(picture.width * scale), round(picture.height * scale)))
    made.paste(shown, ((SIZE[0] - shown.width) // 2, top), shown)
    draw.text((MARGIN, SIZE[1] - 50), book, fill="#5a6478", font=small)
    return made


def choose(app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object) -> None:
    """Record a page's title and first picture, and set the path of its card."""
    found = PICTURE.search(context.get("body", ""))
    if doctree is None or not found:
        return
    chosen = app.env.__dict__.setdefault("ao_cards", {})
    chosen[pagename] = html.unescape(re.sub(r"<[^>]+>", "", context["title"])), unquote(found[1])
    context["ao_card"] = f"{FOLDER}/{pagename}.png"


def write(app: Sphinx, exception: Exception | None) -> None:
    """Draw the cards of the recorded pages."""
    if exception or app.builder.format != "html":
        return
    for page, (title, source) in getattr(app.env, "ao_cards", {}).items():
        path = Path(app.outdir, FOLDER, f"{page}.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(Path(app.outdir, source)) as picture:
            card(title, picture, app.config.html_title).save(path, optimize=True)


def setup(app: Sphinx) -> dict:
    """Register the functions above with Sphinx; a page's card must be chosen before the page's head is written."""
    app.connect("html-page-context", choose)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
