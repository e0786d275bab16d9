"""Hooks of `mkdocs.yml`: formulas as MathML, which needs no script; wide pictures that
scroll; a name of the search."""

from __future__ import annotations

import html
import re
from pathlib import Path

from latex2mathml.converter import convert

# A formula as pymdownx.arithmatex leaves it: TeX in its delimiters, within a line or as
# a block.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
PICTURE = re.compile(r'<p>(<img alt="([^"]*)" src="([^"]+\.png)" ?/?>)</p>')
DOCS = Path(__file__).parent.parent / "docs"
# Wider pictures, in pixels, fill a page: in the window of a phone their texts would be
# too small to read.
COLUMN_PIXELS = 1000


def on_page_content(content: str, **_: object) -> str:
    """Return a page's HTML with TeX formulas replaced by MathML, and wide pictures in
    regions that scroll."""
    content = BLOCK.sub(_block, content)
    content = INLINE.sub(_inline, content)
    return PICTURE.sub(_picture, content)


def on_post_page(output: str, **_: object) -> str:
    """Return a whole page with the names that the theme leaves out."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def on_post_template(output_content: str, **_: object) -> str:
    """Return a page that no source is written for, like `404.html`, as `on_post_page`
    does."""
    return on_post_page(output_content)


def _picture(found: re.Match[str]) -> str:
    image, text, source = found.groups()
    header = (DOCS / source).read_bytes()[:24]
    width = int.from_bytes(header[16:20], "big")
    if width <= COLUMN_PIXELS:
        return found[0]
    return (
        '<div class="picture" tabindex="0" role="region" aria-label="Picture: '
        f'{text}">{image}</div>'
    )


def _block(found: re.Match[str]) -> str:
    tex = html.unescape(found[1])
    formula = convert(tex, display="block")
    return f'<div class="formula" tabindex="0">{formula}</div>'


def _inline(found: re.Match[str]) -> str:
    tex = html.unescape(found[1])
    return convert(tex)
