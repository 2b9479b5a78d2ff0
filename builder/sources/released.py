"""The queries of an existing release as a collection, to rebuild its shifts from them."""

import warnings
from itertools import starmap
from pathlib import Path

import polars as pl

from builder.collection import UNSTATED, Collection
from eval_kit.authors.draft import input_record
from eval_kit.errors import UserError
from eval_kit.release import MANIFEST, PartialRelease, open_release
from eval_kit.shifts import union

_TOPIC_QRELS = {"train": "train", "test": "topic_test"}


def collection(folder: Path) -> Collection:
    """All queries of the topic shift, for training or test, as train; those of the benchmarks unchanged.

    From a partial release, what it has: the published topic test queries only, say.

    Warns:
        PartialRelease: it has no training queries of the topics.
    """
    release = open_release(folder)
    configs = release.configs
    splits = [split for split in configs.get("topic", []) if _TOPIC_QRELS[split] in configs.get("qrels", [])]
    if not splits:
        raise UserError(f"{folder} has no topic queries with judgements to rebuild from")
    if "train" not in splits:
        warnings.warn(
            f"{folder} is a partial release: of topic only the test queries are rebuilt", PartialRelease, stacklevel=2
        )
    topics = [("topic", split) for split in splits]
    judgements = [("qrels", _TOPIC_QRELS[split]) for split in splits]
    tables = {*topics, *judgements, ("passages", "passages")}
    queries = {"train": union(release, topics)}
    qrels = {"train": pl.concat(starmap(release.table, judgements)).unique()}
    for split in configs.get("resttest", []):
        if split != "train" and split in configs.get("qrels", []):
            queries[split] = release.table("resttest", split).select("query_id", "text")
            qrels[split] = release.table("qrels", split)
            tables |= {("resttest", split), ("qrels", split)}
    files = set().union(*(entry.rule.inputs for entry in release.manifest.tables if entry.key in tables))
    licences = [record.licence for record in release.manifest.inputs if record.id in files]
    licence = next((licence for licence in licences if licence in UNSTATED), "see the release's card")
    return Collection(
        name=release.manifest.built_from or release.collection,  # whose licence and language it keeps
        source=f"the {release.manifest.kind} release {release.version} with digest {release.digest[:16]}",
        queries=queries,
        qrels=qrels,
        irds=release.manifest.collection,
        passages=release.table("passages", "passages") if "passages" in configs else None,
        inputs=[input_record(folder / MANIFEST, f"release/{MANIFEST}", licence)],
    )
