"""Turns TeX into MathML when the site is built, so that a page needs no script to show an equation."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
# A displayed maximum has its range below.
_LIMITS = re.compile(r"<msub><mo>max</mo>(<mrow>.*?</mrow>)</msub>", re.DOTALL)


def on_page_content(html: str, **_: Any) -> str:
    """Replace every formula."""
    return _FORMULA.sub(_mathml, html)


def _mathml(formula: re.Match[str]) -> str:
    tag, bracket, tex = formula.groups()
    markup = convert(unescape(tex).strip(), display="block" if bracket == "[" else "inline")
    if bracket == "[":
        markup = _LIMITS.sub(r"<munder><mo>max</mo>\1</munder>", markup)
    return f'<{tag} class="formula">{markup}</{tag}>'
