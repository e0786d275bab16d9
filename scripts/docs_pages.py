"""Hooks of `mkdocs.yml`: draw formulas as MathML, which needs no script, and name the search for screen readers."""

from __future__ import annotations

import html
import re

from latex2mathml.converter import convert

# A formula as pymdownx.arithmatex leaves it: TeX in its delimiters, within a line or as a block.
INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def on_page_content(content: str, **_: object) -> str:
    """Return a page's HTML with TeX formulas replaced by MathML."""
    content = BLOCK.sub(_block, content)
    return INLINE.sub(_inline, content)


def on_post_page(output: str, **_: object) -> str:
    """Return a whole page with the names that the theme leaves out."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def _block(found: re.Match[str]) -> str:
    tex = html.unescape(found[1])
    formula = convert(tex, display="block")
    return f'<div class="formula" tabindex="0">{formula}</div>'


def _inline(found: re.Match[str]) -> str:
    tex = html.unescape(found[1])
    return convert(tex)
