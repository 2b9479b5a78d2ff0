"""Why the Hugging Face Hub could not be used, in sentences; all else of it is huggingface_hub's own."""

_HIDDEN = "The Hub shows no such repository. Check the name, and log in with 'hf auth login' if it is private"
_CLOSED = "The Hub gives these files to nobody without access. Ask for it on the page, then log in with 'hf auth login'"
TOO_LARGE = "The commit is too large for the Hub. Install hf_xet, which sends it in parts"
UNREADABLE = "The Hub's answer is not readable. Try again later"
_BROKEN = "The connection to the Hub broke. Check the network and try again"
_TIMEOUTS = {"TimeoutException", "Timeout", "TimeoutError"}
_UNREACHED = {"HTTPError", "RequestException", "ConnectionError", *_TIMEOUTS}
_REFUSALS = {
    401: "The Hub does not accept the token. Log in with 'hf auth login', or set HF_TOKEN to a valid one",
    403: "Your token has no write access. Ask the owner, or use a repository of your own",
    404: "The Hub has no such file or repository. Check the name and the token",
    409: "The Hub reports a conflict with another change. Wait until that is done and try again",
    413: TOO_LARGE,
    412: "The repository changed meanwhile. Check the change, then try again",
    429: "The Hub got too many requests. Wait some minutes and try again",
}


def reason(error: BaseException) -> str | None:
    """Why the Hub could not be used, and what to do about it, without the last full stop.

    Returns None for an error that has nothing to do with the Hub, the network or the disk: a bug, which should show.
    """
    from huggingface_hub.errors import LocalEntryNotFoundError

    why = reason(error.__cause__) if error.__cause__ else None
    if isinstance(error, LocalEntryNotFoundError):
        return why or "It is incomplete in the local cache, and the Hub cannot be reached. Try again online"
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
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, RevisionNotFoundError):
        return "The Hub has no such revision. Check its name"
    if isinstance(error, HfHubHTTPError):
        code = error.response.status_code
        if isinstance(error, GatedRepoError) or (code == 403 and error.response.request.method in ("GET", "HEAD")):
            return _CLOSED
        if isinstance(error, RepositoryNotFoundError) and code in (401, 404):
            return _HIDDEN
        failed = f"The Hub failed (HTTP {code}). Try again later"
        return failed if code >= 500 else _REFUSALS.get(code, f"The Hub refused with HTTP {code}")
    if isinstance(error, OfflineModeIsEnabled):
        return "HF_HUB_OFFLINE is set. Unset it and try again"
    if isinstance(error, HFValidationError):
        return "That is not the name of a repository. Write NAMESPACE/NAME"
    kinds = _kinds(error)
    if kinds & _TIMEOUTS:
        return "The Hub did not answer in time. Check the network and try again"
    if "ConnectError" in kinds:
        return f"The Hub cannot be reached at {ENDPOINT}. Check the network (and HF_ENDPOINT) and try again"
    if kinds & _UNREACHED:
        return _BROKEN
    return f"{error.filename or 'A file'}: {error.strerror or error}" if isinstance(error, OSError) else None
