"""The Hugging Face Hub: limits on waiting, the one way to commit, and its errors in plain words."""

import errno
import json
import re
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eval_kit.errors import UserError
from eval_kit.files.network import MOST_ANSWER, MOST_BYTES, EndlessError, at_most

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub import HfApi

CLIENT = (2, 4)
"""The version of huggingface_hub that this module is written for."""
SILENCES = 3
"""Requests end once the Hub has answered none of them for this many times the wait for one answer."""
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
MARKS_OF_A_FULL_DISK = ("No space left on device", "Disk quota exceeded", "os error 28", "os error 122")
XET_STATUS = re.compile(r"HTTP status \w+ error \((\d{3})")
XET_BREAKS = ("error sending request", "error decoding response body", "request or response body error")
HIDDEN = "the Hub shows no such repository without a valid token; log in with 'hf auth login', and check the name"
UNREADABLE = "the Hub's answer is not readable; try again later"
CHECK_NETWORK = "check the network (and HF_ENDPOINT) and try again"
BROKEN = "the connection to the Hub broke; check the network and try again"
NOT_A_NAME = "that is not the name of a repository; it is written NAMESPACE/NAME"
UNCHANGED = "nothing was changed"
REFUSALS = {
    401: "the Hub does not accept the token; log in with 'hf auth login', or set HF_TOKEN to a valid one",
    403: "the token may not do that; get access from the repository's owner, or name one of your own",
    404: "there is no such repository, or the token may not see it; check the name and the token",
    409: "the Hub reports a conflict with another change; wait until that is done and try again",
    412: "somebody else changed the repository meanwhile; look at what changed and try again",
    429: "too many requests; wait some minutes and try again",
}


@contextmanager
def patience(seconds: float | None = None) -> Iterator[None]:
    """Within the block, limit how long the Hub's client waits for an answer, and keep its retries silent.

    Args:
        seconds: to wait for an answer before a request is given up; ``HF_HUB_DOWNLOAD_TIMEOUT`` if None.
    """
    from huggingface_hub import constants, get_session
    from huggingface_hub.utils import logging

    if not hasattr(get_session(), "event_hooks"):  # an older client, whose limits are its own
        yield
        return
    most = seconds or constants.HF_HUB_DOWNLOAD_TIMEOUT
    silent_since: float | None = None

    def limit(request: "httpx2.Request") -> None:
        nonlocal silent_since
        timeouts = request.extensions["timeout"]
        request.headers["Accept-Encoding"] = "identity"  # what is packed may become any size
        request.extensions["timeout"] = {kind: min(value or most, most) for kind, value in timeouts.items()}
        if request.method in ("GET", "HEAD"):  # uploads may take their time
            now = time.monotonic()
            silent_since = silent_since or now
            if now - silent_since > SILENCES * most:
                raise TimeoutError

    def hear(response: "httpx2.Response") -> None:
        nonlocal silent_since
        silent_since = None
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise EndlessError("it is compressed, which was not asked for")
        in_memory = response.request.url.path.startswith("/api/")
        response.stream = _bounded_stream(response.stream, MOST_ANSWER if in_memory else MOST_BYTES)
        for name in ("Retry-After", "RateLimit"):  # which may demand any wait
            response.headers.pop(name, None)

    session, verbosity = get_session(), logging.get_verbosity()
    before = session.event_hooks
    session.event_hooks = {"request": [*before["request"], limit], "response": [*before["response"], hear]}
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # its notices of retries show signed addresses
    try:
        yield
    finally:
        session.event_hooks = before
        logging.set_verbosity(verbosity)


def _bounded_stream(stream: Any, most: int) -> Any:
    import httpx2

    class BoundedStream(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            return at_most(stream, most)

        def close(self) -> None:
            stream.close()

    return BoundedStream()


def require_client() -> None:
    """Refuse a client library that lacks what downloads and uploads need.

    Raises:
        UserError: with the version that is installed.
    """
    from huggingface_hub import __version__

    if tuple(map(int, __version__.split(".")[:2])) < CLIENT:
        raise UserError(
            f"the Hub is used with huggingface_hub {'.'.join(map(str, CLIENT))} or newer, and {__version__} is "
            "installed; run: pip install --upgrade huggingface_hub, or name a folder"
        )


def check_may_write(repo_id: str) -> None:
    """Check what can be checked without the Hub: that there is a token, and that the name has the form of one.

    Raises:
        UserError: there is no token, or the name has another form.
    """
    from huggingface_hub import get_token

    require_client()
    if get_token() is None:
        raise UserError(
            f"{repo_id}: there is no token to publish with; log in with 'hf auth login', or set HF_TOKEN; {UNCHANGED}"
        )
    if repo_id.count("/") != 1:
        raise UserError(f"{repo_id}: {NOT_A_NAME}")


def commit(
    api: "HfApi", repo_id: str, repo_type: str, operations: Sequence[Any], message: str, description: str, parent: str
) -> str:
    """Make all changes in one commit on top of ``parent``, or none if main has moved on; returns the commit's id."""
    return api.create_commit(
        repo_id,
        list(operations),
        commit_message=message,
        commit_description=description,
        repo_type=repo_type,
        parent_commit=parent,
        num_threads=1,  # several threads do not always survive a server's restart
    ).oid


@contextmanager
def explaining(repo_id: str, state: str) -> Iterator[None]:
    """Turn an error of the Hub, the network or the disk into one sentence, with the state that it leaves behind."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        why = reason(error) or (UNREADABLE if _is_of_client(error) else None)
        if why is None:
            raise
        raise UserError(f"{repo_id}: {why}; {state}") from error


def reason(error: BaseException) -> str | None:
    """One clause that says why the Hub could not be used, and what to do about it.

    Returns:
        None for an error that has nothing to do with the Hub, the network or the disk: a bug, which should show.
    """
    return next((sentence for cause in _chain(error) if (sentence := _reason(cause))), None)


def _is_of_client(error: BaseException) -> bool:
    """Whether the client library raised it, on an answer that makes no sense to it."""
    modules = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(name.split(".")[0] in ("huggingface_hub", "httpx2") for name in modules)


def status(error: BaseException) -> int | None:
    """The HTTP status of the Hub's answer, where it gave one."""
    from huggingface_hub.errors import HfHubHTTPError

    return next((cause.response.status_code for cause in _chain(error) if isinstance(cause, HfHubHTTPError)), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what caused it: uploads wrap what went wrong."""
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__


def _reason(error: BaseException) -> str | None:
    import httpx2
    from huggingface_hub.constants import ENDPOINT, HF_HOME
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    full = isinstance(error, OSError) and error.errno in FULL_DISK
    if full or any(mark in str(error) for mark in MARKS_OF_A_FULL_DISK):
        return f"the disk is full; free some space in {HF_HOME}, or set HF_HOME to another place, and try again"
    if isinstance(error, RevisionNotFoundError):
        return "the Hub has no such revision; check its name"
    if isinstance(error, RepositoryNotFoundError) and error.response.status_code == 401:
        return HIDDEN
    if isinstance(error, HfHubHTTPError):
        return _refusal(error.response.status_code, error.server_message)
    if answer := XET_STATUS.search(str(error)):  # hf_xet says it in words only
        return _refusal(int(answer[1]))
    if any(mark in str(error) for mark in XET_BREAKS):  # with a signed address, which nobody should see
        return BROKEN
    if isinstance(error, LocalEntryNotFoundError):
        why = reason(error.__cause__) if error.__cause__ else None
        return why or "it is incomplete in the local cache, and the Hub cannot be reached; try again online"
    sentences: dict[Any, str] = {
        OfflineModeIsEnabled: "HF_HUB_OFFLINE is set; unset it and try again",
        HFValidationError: NOT_A_NAME,
        EndlessError: f"the Hub's answer cannot be right: {error}; try again later",
        (httpx2.TimeoutException, TimeoutError): "the Hub did not answer in time; check the network and try again",
        httpx2.ConnectError: f"the Hub cannot be reached at {ENDPOINT}; {CHECK_NETWORK}",
        (httpx2.HTTPError, ConnectionError): BROKEN,
        json.JSONDecodeError: UNREADABLE,
    }
    if sentence_of := next((sentence for kinds, sentence in sentences.items() if isinstance(error, kinds)), None):
        return sentence_of
    return f"{error.filename or 'a file'}: {error.strerror or error}" if isinstance(error, OSError) else None


def _refusal(code: int, message: str | None = None) -> str:
    if code >= 500:
        return f"the Hub failed (HTTP {code}); try again later"
    words = f": {message.splitlines()[0].rstrip('.')}" if message else ""
    return REFUSALS.get(code, f"the Hub refused with HTTP {code}{words}")
