"""The one exception that a user is meant to read, and how a command line shows it."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_USER_ERROR = 2


class UserError(Exception):
    """Something the user can mend, said in one clear sentence (with file and line where there is one)."""


def in_one_sentence(error: BaseException) -> str:
    """What went wrong: the sentence of a :class:`UserError`, else the error's kind and first line."""
    if isinstance(error, UserError):
        return str(error)
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}".removesuffix(": ")


@contextmanager
def reported(program: str) -> Iterator[None]:
    """Turn a :class:`UserError` into its sentence on standard error and exit status 2, without a traceback.

    Warnings are shown in the same plain form. A closed pipe (``| head``) ends quietly, and Ctrl-C ends with the
    shell's usual status 130.
    """
    warnings.showwarning = lambda message, *_: print(f"{program}: {message}", file=sys.stderr)
    try:
        yield
    except UserError as error:
        print(f"{program}: {error}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
