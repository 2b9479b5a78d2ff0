"""Each page links the first use of a glossary word in its prose to the word's row of the glossary."""

import re
from posixpath import dirname, relpath

PAGE = "glossary.md"
ROW = re.compile(r"^\| (?!word |---)(?P<words>[^|]+) \|", re.MULTILINE)
PLAIN = frozenset(
    ["In", "Out", "near", "far", "gain", "run", "cell", "grid", "measure", "part", "release", "leaked", "clean"]
)
"""Words with an everyday meaning: linked only where the page sets them in italics."""
APART = re.compile(r"```.*?```|`[^`\n]*`|<[^>]+>|!?\[[^]]*\]\([^)]*\)|^(?:#|\||    |---).*?$", re.DOTALL | re.MULTILINE)
"""Pieces of a page in which no word is linked: code, tags, links, headings, tables."""


def _anchor(word: str) -> str:
    """The id of a word's row."""
    return re.sub(r"\W+", "-", word.lower()).strip("-")


def anchored(glossary: str) -> str:
    """The glossary's page, each word of which can be linked to."""

    def row(match: re.Match[str]) -> str:
        ids = "".join(f'<a id="{_anchor(word)}"></a>' for word in match["words"].split(", ") if _anchor(word))
        return f"| {ids}{match['words']} |"

    return ROW.sub(row, glossary)


def linked(page: str, path: str, glossary: str) -> str:
    """A page with its first use of each glossary word as a link.

    Args:
        page: the page in Markdown.
        path: where it is below ``docs/``, with slashes.
        glossary: the text of the glossary.
    """
    target = relpath(PAGE, dirname(path) or ".")
    words = [word for match in ROW.finditer(glossary) for word in match["words"].split(", ") if _anchor(word)]
    pieces = APART.split(page)
    apart = APART.findall(page)
    for word in words:
        shape = rf"\*{re.escape(word)}\*" if word in PLAIN else rf"(?<![\w.*/-]){re.escape(word)}s?(?![\w*/-])"
        for number, piece in enumerate(pieces):
            if (found := re.search(shape, piece)) is None:
                continue
            link = f"[{found[0]}]({target}#{_anchor(word)})"
            before, after = piece[: found.start()], piece[found.end() :]
            # the link becomes a piece apart, in which no further word is linked
            pieces[number : number + 1] = [before, after]
            apart.insert(number, link)
            break
    rest = [*apart, ""]
    return "".join(piece + between for piece, between in zip(pieces, rest, strict=True))
