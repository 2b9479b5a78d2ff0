"""Single elements of HTML and SVG, built in Python: every string that is not markup already is escaped."""

import re

from markupsafe import Markup, escape

_VOID = {"meta", "link", "br", "input", "circle", "line", "path", "rect", "polyline", "polygon", "use"}

_UNSEEN = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What moves a cursor, colours a terminal or turns the order of letters round, wherever a page is looked at."""

type Attribute = str | float | bool | None


def element(name: str, *children: str, **attributes: Attribute) -> Markup:
    """One element with its children.

    Plain text is escaped. ``class_`` stands for ``class`` and ``aria_label`` for ``aria-label``; True gives an
    attribute without a value, None and False give none.
    """
    start = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID and not children:
        return Markup(f"<{start}/>")
    return Markup(f"<{start}>{Markup().join(children)}</{name}>")


def visible(markup: str) -> Markup:
    """Markup with a replacement character for each control character and bidirectional mark in it."""
    return Markup(_UNSEEN.sub("\N{REPLACEMENT CHARACTER}", markup))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.removesuffix("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f' {name}="{escape(text)}"'
