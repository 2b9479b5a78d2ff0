"""Single elements of HTML and SVG, built in Python: every string that is not markup already is escaped."""

from markupsafe import Markup, escape

_VOID = {"meta", "link", "br", "input", "circle", "line", "path", "rect", "polyline", "polygon", "use"}

type Attribute = str | float | bool | None


def element(name: str, *children: str, **attributes: Attribute) -> Markup:
    """One element with its children.

    Args:
        name: of the element.
        children: markup, or plain text that is escaped.
        attributes: ``class_`` stands for ``class`` and ``aria_label`` for ``aria-label``; True gives an attribute
            without a value, None and False give none.
    """
    start = name + "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID and not children:
        return Markup(f"<{start}/>")
    return Markup(f"<{start}>{Markup().join(children)}</{name}>")


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.removesuffix("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return f' {name}="{escape(text)}"'
