"""The one exception that a user is meant to read, and how a command line shows it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_USER_ERROR = 2


class UserError(Exception):
    """Something the user can mend, said in one clear sentence (with file and line where there is one)."""


@contextmanager
def reported(program: str) -> Iterator[None]:
    """Turn a :class:`UserError` into its sentence on standard error and exit status 2, without a traceback.

    A closed pipe (``| head``) ends quietly, and Ctrl-C ends with the shell's usual status 130.
    """
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
