"""The one exception that users are meant to read, and how a command line shows it and any text from outside."""

import difflib
import io
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import NoReturn

_EXIT_USER_ERROR, _EXIT_SOFTWARE = 2, 70
_SIGPIPE = 13
"""The number, which Windows does not name."""
EXTRAS = {
    "release": ("datasets", "huggingface_hub", "ir_datasets", "pyarrow"),
    "builder": ("scipy", "sklearn", "threadpoolctl"),
}
"""What to install for a package that is missing; for any other, what searches with models."""
MOST_SHOWN = 2_000
"""Characters shown of a message; the text that it quotes may be a megabyte long."""

_MOST_CHOICES = 8


_MARK = "\x1f"
"""Around the name of a parameter within a message; no text for readers holds this control character."""


def parameter(name: str) -> str:
    """A parameter of a public function within the message of a :class:`UserError`, which knows it by this."""
    return f"{_MARK}{name}{_MARK}"


class UserError(Exception):
    """Something that the user can fix.

    Args:
        what: what happened, a sentence without its full stop; one about a line of a file begins with ``file:line:``.
        why: another sentence, where the reader would ask.
        do: what to type or to change; it begins with a verb.
    """

    def __init__(self, what: str, why: str = "", do: str = "") -> None:
        super().__init__(". ".join(filter(None, (what, why, do))))

    def __str__(self) -> str:
        """The sentence; parameters as Python's callers write them."""
        return "".join(self._pieces())

    def in_shell(self, options: Mapping[str, str]) -> str:
        """The sentence; parameters as the options of a command, or as most commands call what this one lacks."""
        pieces = self._pieces()
        for place, name in enumerate(pieces[1::2]):
            one = options.get(name) or options.get(name.removesuffix("s"))  # of several, a command may take one
            pieces[2 * place + 1] = one or f"--{name.replace('_', '-')}"
        return "".join(pieces)

    def _pieces(self) -> list[str]:
        """Texts, and the parameters between them."""
        return super().__str__().split(_MARK)


def printable(text: str) -> str:
    """The text for a terminal: control, bidirectional and invisible characters escaped, the end of a long one cut."""
    cut = f"… ({len(text) - MOST_SHOWN:,} characters more)" if len(text) > MOST_SHOWN else ""
    parts = (char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[:MOST_SHOWN])
    return "".join(parts) + cut


def in_one_sentence(error: BaseException) -> str:
    """What went wrong: the sentence of a :class:`UserError`, else the error's kind and first line."""
    if isinstance(error, UserError):
        return str(error)
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}".removesuffix(": ")


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """The question, in brackets, with the nearest of the names but what was typed; empty where none is near."""
    near = difflib.get_close_matches(str(name).lower()[:40], [each for each in names if each != name], 1)
    return f" (did you mean {near[0]}?)" if near else ""


def choices(names: Iterable[object]) -> str:
    """The names, the first :data:`_MOST_CHOICES` of many: a list that can still be read."""
    texts = list(map(str, names))
    rest = len(texts) - _MOST_CHOICES
    return ", ".join(texts[:_MOST_CHOICES]) + (f" and {rest:,} more" if rest > 0 else "")


def first_line(error: BaseException) -> str:
    """The first line of what an error says; its kind if it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def disk_errors(path: Path, do: str = "") -> Iterator[None]:
    """Turn the system's errors on an output into a :class:`UserError` that names ``path`` and says what to ``do``."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UserError(f"Could not write {path}: {error.strerror or error}", do=do) from error


@contextmanager
def environment(program: str) -> Iterator[None]:
    """Say in one sentence that a package is missing: most often, this is another Python than they are installed for."""
    try:
        yield
    except ModuleNotFoundError as error:
        _say(program, f"This Python has no package {error.name!r}. Activate the one that has it: . .venv/bin/activate")
        sys.exit(_EXIT_USER_ERROR)
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException:
        _crash()


@contextmanager
def reporting(program: str) -> Iterator[None]:
    """Turn a :class:`UserError` into its sentence on standard error and exit status 2, without a traceback.

    So do errors of the system: a full disk, a file without read permission. Warnings have the same plain form, and end
    the command too where Python treats them as errors. Characters that the output's encoding lacks are escaped. A
    closed pipe (``| head``) ends quietly; Ctrl-C with one line; SIGTERM runs every ``finally``, which ends workers.
    Standard output or error that is closed from the start, as daemons and cron have it, is a screen that nobody sees.

    Anything else that is raised is a fault of the program: its traceback is shown, and the status is 70
    (``EX_SOFTWARE`` of sysexits.h), which no command answers a question with.
    """
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    say_once = cache(partial(_say, program))  # scoring and comparing warn of the same copies
    warnings.showwarning = lambda message, *_: say_once(str(message))
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
        sys.stdout.flush()
    except (UserError, Warning) as error:
        _say(program, str(error))
        sys.exit(_EXIT_USER_ERROR)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        of_package = next((extra for extra, brings in EXTRAS.items() if package in brings), "models")
        extra = "baselines" if program == "baselines" else of_package
        what = f"This command needs a package that is missing ({error.name}). In a clone, run: pip install '.[{extra}]'"
        _say(program, what)
        sys.exit(_EXIT_USER_ERROR)
    except SystemExit as end:
        if end.code == 128 + signal.SIGTERM:
            _say(program, "terminated")
        raise
    except KeyboardInterrupt:
        _say(program, "interrupted")
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        end_of_pipe()
    except OSError as error:
        _discard_output()
        where = f"Could not use {error.filename!s}: " if error.filename is not None else ""
        _say(program, f"{where}{error.strerror or error}")
        sys.exit(_EXIT_USER_ERROR)
    except MemoryError:
        _say(program, "There is not enough memory. Take fewer files, or raise the limit (ulimit -v)")
        sys.exit(_EXIT_USER_ERROR)
    except BaseException:  # polars' panics are no Exception, and Python's own status, 1, is an answer of gates
        _crash()


def _say(program: str, what: str) -> None:
    with suppress(OSError):  # a full disk would change the status
        print(f"{program}: {printable(what)}", file=sys.stderr, flush=True)


def end_of_pipe() -> NoReturn:
    """End as a shell expects it where the output's reader has gone."""
    _discard_output()
    sys.exit(128 + _SIGPIPE)


def _crash() -> NoReturn:
    """End with the traceback of a fault of the program, and a status that is no answer of any command."""
    with suppress(OSError):
        traceback.print_exc()
    _discard_output()
    sys.exit(_EXIT_SOFTWARE)


def _open_what_is_closed() -> None:
    """Open nothing as those of the three standard streams that are closed, or the next file would be one of them."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def _discard_output() -> None:
    """Discard what standard output still holds: its other end is closed or full, so writing would fail again."""
    number = sys.stdout.fileno()
    os.close(number)  # first, as there may be no other descriptor left
    if (descriptor := os.open(os.devnull, os.O_WRONLY)) != number:
        os.dup2(descriptor, number)
