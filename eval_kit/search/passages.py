"""The passages that a release's queries search, whether it embeds them or names an ir_datasets collection."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from eval_kit.errors import UserError, first_line
from eval_kit.files.beir import read_corpus
from eval_kit.files.digests import file_sha256
from eval_kit.files.text import read_lines
from eval_kit.release import Release
from eval_kit.release.beir_folder import CORPUS_FILE
from eval_kit.search.retriever import Passages


def passages(release: Release) -> Passages:
    """``(passage id, text)`` of the collection: the release's own, else those of its ir_datasets collection.

    They have a length, but where ir_datasets does not know it.
    """
    count = how_many(release)
    return _read(release) if count is None else CountedPassages(partial(_read, release), count)


def has_passages(release: Release) -> bool:
    """Whether the release's own folder holds its passages."""
    return "passages" in release.configs or release.in_beir_format


def of_file(path: Path) -> Iterator[tuple[str, str]]:
    """``(passage id, text)`` of a tab-separated file, line by line."""
    for number, line in read_lines(path):
        passage_id, tab, text = line.partition("\t")
        if not tab or not passage_id.strip() or " " in passage_id or not text.strip():
            raise UserError(f"{path}:{number}: expected a passage id, a tab and a text")
        yield passage_id, text


def how_many(release: Release) -> int | None:
    """The number of passages, for progress; None where the release has none, or ir_datasets does not know it."""
    if release.in_beir_format:
        return _lines(release.folder / CORPUS_FILE)
    collection = release.manifest.collection
    if collection is None:
        return next((table.rows for table in release.manifest.tables if table.config == "passages"), None)
    import ir_datasets

    try:
        count: int | None = ir_datasets.load(collection).docs_count()
    except Exception:  # whatever is wrong, reading the passages will say it
        return None
    return count


@dataclass(frozen=True)
class CountedPassages:
    """Passages with a known length, for progress; ``read`` begins to read them."""

    read: Callable[[], Passages]
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[tuple[str, str]]:
        yield from self.read()


def _lines(path: Path) -> int:
    """The lines of a file, each a passage; 0 where it cannot be read, which reading the passages will say."""
    count, last = 0, b"\n"
    with suppress(OSError), path.open("rb") as file:
        while block := file.read(1 << 20):
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")


def _counted(read: Callable[[], Passages], path: Path) -> Passages:
    return CountedPassages(read, _lines(path))


@dataclass(frozen=True)
class Collection:
    """Passages that a model searches; ``read`` begins to read them.

    Two collections with the same key have the same passages. ``corpus`` is their file in BEIR's format, if they have
    titles of their own.
    """

    read: Callable[[], Passages]
    key: str
    corpus: Path | None


def with_titles(collection: Collection, separator: str) -> Collection:
    """The collection with this between the titles and texts of a corpus in BEIR's format; others as they are."""
    if collection.corpus is None or separator == " ":
        return collection
    read = partial(read_corpus, collection.corpus, separator)
    return replace(
        collection, read=partial(_counted, read, collection.corpus), key=f"{collection.key}, titles by {separator!r}"
    )


def first_of(collection: Collection, count: int) -> Collection:
    """The first passages of a collection alone."""

    def read() -> Passages:
        return CountedPassages(lambda: islice(collection.read(), count), count)

    return Collection(read, f"{collection.key}, the first {count}", None)


def collection_of(release: Release, name: str | None = None) -> Collection:
    """What is searched for a release's queries.

    ``name`` is of a file (passage id, tab, text) to search instead of the release's passages, or of the release's
    ir_datasets collection, to search all of it.
    """
    if name is not None and name != release.manifest.collection:
        if not Path(name).is_file():
            raise UserError(f"The file of passages {name} does not exist")
        return Collection(partial(_counted, partial(of_file, Path(name)), Path(name)), file_sha256(Path(name)), None)
    if name is None and not has_passages(release):
        collection = release.manifest.collection
        raise UserError(
            f"No passages come with {release.name}",
            do="Use a BEIR folder as --release, or make a small release: python -m builder lite "
            f"{shlex.quote(str(release.folder))} --queries 100 --passages 20000"
            + (f". Or search all of {collection}: --passages {collection}" if collection else ""),
        )
    corpus = release.folder / CORPUS_FILE if release.in_beir_format else None
    return Collection(partial(passages, release), collection_key(release), corpus)


def _read(release: Release) -> Iterator[tuple[str, str]]:
    if release.in_beir_format:
        yield from read_corpus(release.folder / CORPUS_FILE)
        return
    collection = release.manifest.collection
    if collection is None:
        yield from release.table("passages", "passages").iter_rows()
        return
    import ir_datasets

    try:
        for doc in ir_datasets.load(collection).docs_iter():
            yield doc.doc_id, doc.default_text()
    except Exception as error:  # ir_datasets lets its HTTP, tar and file errors through as they are
        raise UserError(f"Could not get the passages of {collection} from ir_datasets", first_line(error)) from error


def collection_key(release: Release) -> str:
    """The collection's name in caches: the digest of the embedded passages or of BEIR's file, else the ir_datasets id.

    The files behind an ir_datasets id are pinned by ir_datasets, by their checksums.
    """
    for table in release.manifest.tables:
        if table.config == "passages":
            return str(table.digest)
    if release.in_beir_format:
        return file_sha256(release.folder / CORPUS_FILE)
    return str(release.manifest.collection).replace("/", "-")
