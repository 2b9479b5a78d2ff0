"""Read a text file whole, with its faults told by file and line."""

from pathlib import Path

from eval_kit.errors import UserError


def read_utf8(path: Path, hint: str = "") -> str:
    """The file's text, line ends as they are.

    Args:
        path: the file.
        hint: is added to the sentence about a file that cannot be read.

    Raises:
        UserError: it cannot be read, or (with the line) is not UTF-8.
    """
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}{hint}") from error
    except UnicodeDecodeError as error:
        number = error.object[: error.start].count(b"\n") + 1
        raise UserError(f"{path}:{number}: is not UTF-8 text") from None
