"""Open a release by name; or, where none is named and none is there, the one that comes by itself."""

import os
import warnings
from dataclasses import replace
from pathlib import Path

from eval_kit.authors.judgements import Judgements, Texts, judgements_of, texts_of
from eval_kit.errors import UserError, parameter
from eval_kit.files.opening import is_input
from eval_kit.release import NoReleaseError, Release, ReleaseError, beir_folder, has_default
from eval_kit.release import open_release as open_given

PUBLISHED = "the published test sets"


type ReleaseSource = Release | Judgements | None
"""An open release, a folder or Hub id, or judgements; None: ``$MS_MARCO_SHIFT_RELEASE``, else ``./ms-marco-shift``,
else the published test sets."""


def release_of(release: ReleaseSource = None, qrels: Judgements | None = None, queries: Texts | None = None) -> Release:
    """The release, or the judgements in its place."""
    if qrels is None:
        if queries is not None:
            raise UserError(
                f"{parameter('qrels')} contains the texts of the queries too", do=f"Leave {parameter('queries')} out"
            )
        return open_release(release)
    if release is not None:
        raise UserError(
            f"{parameter('qrels')} takes the place of {parameter('release')}", do="Leave one of the two out"
        )
    return open_judgements(qrels, queries)


def open_release(source: ReleaseSource = None) -> Release:
    """As :func:`eval_kit.release.open_release`; where no release is named and none is there, the published test sets.

    A file is judgements of one's own (:func:`open_judgements`).

    Raises:
        ReleaseError: as there.
        UserError: the authors' files cannot be obtained.
    """
    if source is None and not has_default():
        from eval_kit.authors.release import published_test_sets

        folder = published_test_sets()
        try:
            return replace(open_given(folder), given_as=PUBLISHED)
        except ReleaseError as error:  # the cache is the kit's own
            warnings.warn(f"{error}. The kit takes the published test sets again", stacklevel=2)
            return replace(open_given(published_test_sets(again=True)), given_as=PUBLISHED)
    if not isinstance(source, Release | str | os.PathLike | None):
        return open_judgements(source, of="release")
    if isinstance(source, str | os.PathLike) and is_input(Path(source)):
        return open_judgements(source)
    try:
        return open_given(source)
    except NoReleaseError as error:
        raise ReleaseError(
            f"{error}",
            do=f"A BEIR folder works too. Without {parameter('release')}, the kit uses the published test sets",
        ) from None


def open_judgements(qrels: Judgements, queries: Texts | None = None, of: str = "qrels") -> Release:
    """One's own judgements as a release of one test set, in memory.

    Files are those of :func:`eval_kit.release.beir_folder.of_judgements`.
    """
    judged = judgements_of(qrels, of)
    tables = beir_folder.of_judgements(judged, texts_of(queries))
    folder, shown = (judged.parent, str(judged)) if isinstance(judged, Path) else (Path(), "judgements given in Python")
    return Release(folder, *tables, given_as=shown)
