"""Why the Hugging Face Hub could not be used, in one clause; all else of it is huggingface_hub's own."""

_HIDDEN = "the Hub shows no such repository; check the name, and log in with 'hf auth login' if it is private"
UNREADABLE = "the Hub's answer is not readable; try again later"
_BROKEN = "the connection to the Hub broke; check the network and try again"
_TIMEOUTS = {"TimeoutException", "Timeout", "TimeoutError"}
_UNREACHED = {"HTTPError", "RequestException", "ConnectionError", *_TIMEOUTS}
_REFUSALS = {
    401: "the Hub does not accept the token; log in with 'hf auth login', or set HF_TOKEN to a valid one",
    403: "the token may not do that; get access from the repository's owner, or name one of your own",
    404: "the Hub has no such file or repository; check the name and the token",
    409: "the Hub reports a conflict with another change; wait until that is done and try again",
    412: "somebody else changed the repository meanwhile; look at what changed and try again",
    429: "too many requests; wait some minutes and try again",
}


def reason(error: BaseException) -> str | None:
    """One clause that says why the Hub could not be used, and what to do about it.

    Returns:
        None for an error that has nothing to do with the Hub, the network or the disk: a bug, which should show.
    """
    from huggingface_hub.errors import LocalEntryNotFoundError

    why = reason(error.__cause__) if error.__cause__ else None
    if isinstance(error, LocalEntryNotFoundError):
        return why or "it is incomplete in the local cache, and the Hub cannot be reached; try again online"
    if isinstance(error, RuntimeError):  # of an upload, or of hf_xet, whose own words hold signed addresses
        return why or _BROKEN
    return _reason(error) or why


def is_away(error: BaseException) -> bool:
    """Whether the Hub did not answer, or only that it failed: what it said before may still hold."""
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    status = error.response.status_code if isinstance(error, HfHubHTTPError) else 0
    if status or isinstance(error, OfflineModeIsEnabled):
        return not 400 <= status < 500
    return bool(_kinds(error) & _UNREACHED) or (error.__cause__ is not None and is_away(error.__cause__))


def _kinds(error: BaseException) -> set[str]:
    """Names of the error's classes: versions of the client differ in the package that they ask by."""
    return {kind.__name__ for kind in type(error).__mro__}


def _reason(error: BaseException) -> str | None:
    from huggingface_hub.constants import ENDPOINT
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, RevisionNotFoundError):
        return "the Hub has no such revision; check its name"
    if isinstance(error, HfHubHTTPError):
        code = error.response.status_code
        if isinstance(error, RepositoryNotFoundError) and code in (401, 404):
            return _HIDDEN
        failed = f"the Hub failed (HTTP {code}); try again later"
        return failed if code >= 500 else _REFUSALS.get(code, f"the Hub refused with HTTP {code}")
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set; unset it and try again"
    if isinstance(error, HFValidationError):
        return "that is not the name of a repository; it is written NAMESPACE/NAME"
    kinds = _kinds(error)
    if kinds & _TIMEOUTS:
        return "the Hub did not answer in time; check the network and try again"
    if "ConnectError" in kinds:
        return f"the Hub cannot be reached at {ENDPOINT}; check the network (and HF_ENDPOINT) and try again"
    if kinds & _UNREACHED:
        return _BROKEN
    return f"{error.filename or 'a file'}: {error.strerror or error}" if isinstance(error, OSError) else None
