"""HTML and SVG that cannot be broken by what stands in it: every plain string is escaped, everywhere.

Pages are one file each: styles, scripts and data are inside, and a content security policy keeps a browser from
fetching anything or running any script but the page's own.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

_VOID = {"meta", "link", "br", "input", "circle", "line", "path", "rect", "polyline", "polygon", "use"}
_FOR_SCRIPTS = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}

type Attribute = str | float | bool | None


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def text(value: str) -> Html:
    """Markup that shows exactly this text."""
    return value if isinstance(value, Html) else Html(escape(value, quote=True))


def element(name: str, *children: str, **attributes: Attribute) -> Html:
    """One element with its children.

    Args:
        name: of the element.
        children: markup, or plain text that is escaped.
        attributes: ``class_`` stands for ``class`` and ``aria_label`` for ``aria-label``; True gives an attribute
            without a value, None and False give none.
    """
    start = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID and not children:
        return Html(f"<{start}/>")
    return Html(f"<{start}>{joined(*children)}</{name}>")


def joined(*parts: str) -> Html:
    """The parts one after the other."""
    return Html("".join(map(text, parts)))


def data(identifier: str, value: Any) -> Html:
    """JSON that the page's script reads by the element's id; no text in it can end the element."""
    encoded = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).translate(_FOR_SCRIPTS)
    return Html(f'<script type="application/json" id="{escape(identifier)}">{encoded}</script>')


def page(title: str, body: Html, scripts: Sequence[str]) -> str:
    """A whole page, with the shared styles and the named scripts of ``eval_kit/assets`` inside."""
    assets = files("eval_kit.pages") / "assets"
    style = (assets / "page.css").read_text(encoding="utf-8")
    code = [(assets / name).read_text(encoding="utf-8") for name in scripts]
    digests = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in code]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name_="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        Html(f"<style>{style}</style>"),
    )
    ends = Html("".join(f"<script>{one}</script>" for one in code))
    return "<!DOCTYPE html>\n" + element("html", head, element("body", body, ends), lang="en") + "\n"


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.removesuffix("_").replace("_", "-")
    if value is True:
        return f" {name}"
    shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f' {name}="{escape(shown, quote=True)}"'
