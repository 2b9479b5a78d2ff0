"""The one exception that users are meant to read, and how a command line shows it and any text from outside."""

import io
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

EXIT_USER_ERROR = 2
MOST_THREADS = 1_024
MOST_SHOWN = 2_000
"""Characters shown of a message; the text that it quotes may be a megabyte long."""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_ENDING = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP


class UserError(Exception):
    """Something that the user can fix, stated in one clear sentence (with file and line where known)."""


class _EndedBySignal(SystemExit):
    """Ctrl-C, SIGTERM or SIGHUP, which end a process by way of every ``finally``."""


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


def first_line(error: BaseException) -> str:
    """The first line of what an error says; its kind if it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def disk_errors(path: Path, what: str = "cannot be written") -> Iterator[None]:
    """Turn the system's errors on an output into a :class:`UserError` that names ``path``."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: {what}: {error.strerror or error}") from error


@contextmanager
def reporting(program: str) -> Iterator[None]:
    """Turn a :class:`UserError` into its sentence on standard error and exit status 2, without a traceback.

    So do errors of the system: a full disk, a loop of links, a file without read permission. Warnings have the same
    plain form, and end the command too where Python treats them as errors. Characters that the output's encoding lacks
    are escaped. A closed pipe (``| head``) ends quietly; Ctrl-C, SIGTERM and SIGHUP end with one line and
    the shell's usual status: 128 and the signal's number.
    """
    if sys.stderr is None:  # closed by the caller
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        _say(program, "standard output is closed; send it to a file or to /dev/null")
        sys.exit(EXIT_USER_ERROR)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    say_once = cache(partial(_say, program))  # scoring and comparing warn of the same copies
    warnings.showwarning = lambda message, *_: say_once(str(message))
    try:
        with _signals_raised():
            _check_arguments(sys.argv[1:])
            threads = os.environ.get("POLARS_MAX_THREADS", "1")
            if not (threads.isdecimal() and 1 <= int(threads[:5]) <= MOST_THREADS):  # polars would abort
                raise UserError(
                    f"POLARS_MAX_THREADS is {threads[:40]!r}; unset it, or set it to a number "
                    f"from 1 to {MOST_THREADS:,}"
                )
            try:
                yield
            finally:
                sys.stdout.flush()
    except (UserError, Warning) as error:
        _say(program, str(error))
        sys.exit(EXIT_USER_ERROR)
    except _EndedBySignal as error:
        _say(program, "interrupted" if error.code == 128 + signal.SIGINT else "terminated")
        raise
    except BrokenPipeError:
        _drop(sys.stdout)
        sys.exit(141)
    except OSError as error:
        _drop(sys.stdout)
        where = f"{error.filename!s}: " if error.filename is not None else ""
        _say(program, f"{where}{error.strerror or error}")
        sys.exit(EXIT_USER_ERROR)


def _say(program: str, what: str) -> None:
    try:
        print(f"{program}: {printable(what)}", file=sys.stderr, flush=True)
    except OSError:  # nobody reads it, and the status is the same
        _drop(sys.stderr)


def _check_arguments(arguments: list[str]) -> None:
    """Refuse arguments that would reach the terminal as control characters wherever they are echoed."""
    for argument in arguments:
        if _CONTROLS.search(argument):
            raise UserError(f"the argument {argument} holds control characters; rename the file or type it differently")


def _drop(stream: TextIO) -> None:
    """Discard what a stream still holds: its other end is closed or full, so writing would fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def _signals_raised() -> Iterator[None]:
    """Make the signals that end a process raise an exception; a signal that already has a handler keeps it."""
    before: dict[signal.Signals, Any] = {}
    numbers = [getattr(signal, name) for name in _ENDING if hasattr(signal, name)]
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    raise _EndedBySignal(128 + number)
