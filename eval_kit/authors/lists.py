"""The authors' test sets, id for id: each part names the files it needs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path

import polars as pl

from eval_kit.authors.draft import Draft, Table, input_record
from eval_kit.authors.fetch import obtain
from eval_kit.authors.sources import ANSERINI, RESTTEST, SHIFT_TEST, SourceFile
from eval_kit.authors.test_sets import BUCKETS, CHAMELEON_SETS, LEVELS, OBSTINACY, TOPICS, test_sets
from eval_kit.documents import Lack, Rule, Variation
from eval_kit.files.formats import by_id, read_json_qrels, read_qrels, read_queries
from eval_kit.release import MS_MARCO
from eval_kit.shifts import WH_TERMS

CLUSTERING = "naver/ms-marco-shift/TRAIN/queries_clustering.tsv"
RESTRAIN = "jingtaozhan/extrapolate-eval/restrain_files/msmarco-passage"
CHAMELEONS = "Narabzad/Chameleons/datasets"

SIZES = ("14k", "45k", "200k")
REGIMES = {
    "interpolate": "training queries among the most similar to a TREC DL 2019/2020 query",
    "extrapolate": "training queries not among the most similar to any TREC DL 2019/2020 query",
}
CHAMELEON_FILES = {"veiled": ("Veiled", 4), "pygmy": ("Pygmy", 5), "lesser": ("Lesser", 6)}

_DEV_TOPICS = f"{ANSERINI}/topics/topics.msmarco-passage.dev-subset.txt"
_DEV_QRELS = f"{ANSERINI}/qrels/qrels.msmarco-passage.dev-subset.txt"
DL_TOPICS = {"dl19": f"{ANSERINI}/topics/topics.dl19-passage.txt", "dl20": f"{ANSERINI}/topics/topics.dl20.txt"}
_DL_QRELS = {"dl19": f"{ANSERINI}/qrels/qrels.dl19-passage.txt", "dl20": f"{ANSERINI}/qrels/qrels.dl20-passage.txt"}
RESTTEST_SOURCE = "CIKM 2022 §4.1.3"
LENGTHS = ("short", "long")
LONGEST_SHORT = 5
LENGTH_RULE = f"short if len(text.split(' ')) <= {LONGEST_SHORT}, else long"
LENGTH_SOURCE = "ECIR 2023 §3.1; exact on the published EVAL/queries/queries_{short,long}.tsv"
WH_RULE = "in a cluster if the lower-cased text contains one of its terms as a substring; may be in several"
WH_SOURCE = "ECIR 2023 §3.1; exact on the published EVAL/queries/queries_{wha,how,who}.tsv"

_ORDER = ("cluster", "bucket", "query_id", "query-id", "corpus-id")
"""Columns by which a table's rows are sorted, so far as it has them."""


class TestLists:
    """The files at hand, and what the parts that need them have given so far."""

    __test__ = False

    def __init__(self, files: dict[str, SourceFile], upstream: Path | None) -> None:
        self.files = files
        self.paths, self.lacking = obtain(files.values(), upstream)
        self.tables: list[Table] = []
        self.variations: list[Variation] = []
        self.missing: list[Lack] = []
        self.remarks: list[str] = []
        self.reports: dict[str, str] = {}

    def test_tables(self, chameleons: bool) -> Iterator[Table]:
        """The queries and judgements of all test sets; of the Chameleons, whose authors state no licence, if asked."""
        for part in (self._shift_tests, self._resttest, self._trec_dl, self._evaluation_qrels):
            yield from part()
        if chameleons:
            yield from self._chameleons()

    def to_draft(self, tables: Iterable[Table]) -> Draft:
        """A release of these tables, each in its order of rows."""
        in_order, inputs = [], []
        for table in tables:
            order = [column for column in _ORDER if column in table.frame.columns]
            in_order.append(replace(table, frame=by_id(table.frame, *order)))
        for id in sorted(set(chain.from_iterable(table.rule.inputs for table in in_order)) & set(self.paths)):
            file = self.files[id]
            inputs.append(input_record(self.paths[id], id, file.licence, file.url, file.git_blob))
        return Draft(
            kind="published",
            collection=MS_MARCO,
            seed=None,
            tables=in_order,
            test_sets=test_sets(in_order),
            variations=self.variations,
            inputs=inputs,
            missing=self.missing,
            remarks=self.remarks,
            reports=self.reports,
        )

    def _miss(self, what: str, because: str) -> None:
        self.missing.append(Lack(what, because))

    def _lack(self, what: str, files: Iterable[str]) -> bool:
        """Record ``what`` as missing if one of its files cannot be obtained."""
        lacking = [self.lacking[file] for file in files if file in self.lacking]
        if lacking:
            more = f" (and {len(lacking) - 1} more files)" if len(lacking) > 1 else ""
            self._miss(what, lacking[0] + more)
        return bool(lacking)

    def _shift_tests(self) -> Iterator[Table]:
        files = {"topic": list(map(str, range(len(TOPICS)))), "wh": tuple(WH_TERMS), "length": LENGTHS}
        for shift, (clusters, text, source) in SHIFTS.items():
            queries = [f"{SHIFT_TEST}/queries/queries_{name}.tsv" for name in files[shift]]
            qrels = [f"{SHIFT_TEST}/qrel/qrel_{name}.json" for name in files[shift]]
            if self._lack(f"{shift}/test", [*queries, *qrels]):
                continue
            parts, judged_parts = [], []
            for cluster, cluster_queries, judgements in zip(clusters, queries, qrels, strict=True):
                part, pairs = read_queries(self.paths[cluster_queries]), read_json_qrels(self.paths[judgements])
                self._note_queries_without_text(f"{shift} {cluster}", part, pairs)
                parts.append(part.with_columns(cluster=pl.lit(cluster, pl.Enum(clusters))))
                judged_parts.append(pairs)
            yield Table(shift, "test", pl.concat(parts), Rule(text, source, queries))
            if shift != "length":  # its judgements are dev-small's, which are in qrels/dev
                rule = Rule("the authors' judgements of the test queries", "EVAL/qrel", qrels)
                yield Table("qrels", f"{shift}_test", pl.concat(judged_parts).unique(), rule)

    def _resttest(self) -> Iterator[Table]:
        """The bucket of each test query."""
        topics = {"dev": _DEV_TOPICS, **DL_TOPICS}
        for split, name in {"dev": "dev", "dl19": "trec19", "dl20": "trec20"}.items():
            files = [*buckets(f"extrapolate.{name}-qrel.txt"), topics[split]]
            if self._lack(f"resttest/{split}", files):
                continue
            members = self._members(files[:-1])
            frame = members.join(read_queries(self.paths[topics[split]]), on="query_id", how="left")
            text = "the bucket in which the query is scored as extrapolation; k-means of train and test queries, k = 5"
            yield Table(
                "resttest", split, frame.select("query_id", "text", "bucket"), Rule(text, RESTTEST_SOURCE, files)
            )

    def _members(self, files: Sequence[str]) -> pl.DataFrame:
        """``query_id`` and ``bucket`` from a file of judgements for each bucket."""
        parts = []
        for bucket, file in zip(BUCKETS, files, strict=True):
            ids = read_qrels(self.paths[file]).select(pl.col("query-id").alias("query_id")).unique()
            parts.append(ids.with_columns(bucket=pl.lit(bucket, pl.Enum(BUCKETS))))
        return pl.concat(parts)

    def _chameleons(self) -> Iterator[Table]:
        files = {}
        for name, level in product(CHAMELEON_SETS, LEVELS):
            title, rankers = CHAMELEON_FILES[name]
            files[name, level] = f"{CHAMELEONS}/{title}(common{rankers})/{title}_common{rankers}_0.{level // 10}"
        if self._lack("chameleons/dev", [*files.values(), _DEV_TOPICS]):
            return
        frame = read_queries(self.paths[_DEV_TOPICS])
        for level in LEVELS:
            label = pl.lit(OBSTINACY[0])
            for name in CHAMELEON_SETS:  # each set contains the next, so the last that holds a query names it
                members = read_queries(self.paths[files[name, level]])["query_id"]
                label = pl.when(pl.col("query_id").is_in(members.implode())).then(pl.lit(name)).otherwise(label)
            frame = frame.with_columns(label.cast(pl.Enum(OBSTINACY)).alias(f"level_{level}"))
        rule = Rule(
            "the strictest set that holds the query: among the bottom X % by average precision of at least 4 "
            "(veiled), 5 (pygmy) or all 6 (lesser) rankers",
            "CIKM 2021 §3, Table 3",
            [*files.values(), _DEV_TOPICS],
        )
        yield Table("chameleons", "dev", frame, rule)

    def _trec_dl(self) -> Iterator[Table]:
        for split, file in DL_TOPICS.items():
            if self._lack(f"trec_dl/{split}", [file, _DL_QRELS[split]]):
                continue
            judged_ids = read_qrels(self.paths[_DL_QRELS[split]])["query-id"].unique()
            label = pl.when(pl.col("query_id").is_in(judged_ids.implode())).then(pl.lit("yes")).otherwise(pl.lit("no"))
            frame = read_queries(self.paths[file]).with_columns(judged=label.cast(pl.Enum(["no", "yes"])))
            rule = Rule("all topics of the track, and whether NIST judged them", file, [file, _DL_QRELS[split]])
            yield Table("trec_dl", split, frame, rule)

    def _evaluation_qrels(self) -> Iterator[Table]:
        for split, file in {"dev": _DEV_QRELS, **_DL_QRELS}.items():
            if not self._lack(f"qrels/{split}", [file]):
                pairs = self._unique_pairs(f"qrels/{split}", read_qrels(self.paths[file]))
                yield Table("qrels", split, pairs, Rule("the official judgements", file, [file]))

    def _unique_pairs(self, what: str, pairs: pl.DataFrame) -> pl.DataFrame:
        unique = pairs.unique(maintain_order=True)
        if extra := pairs.height - unique.height:
            self.remarks.append(f"{what}: {extra} (query, passage) pairs appear twice upstream; kept once")
        return unique

    def _note_queries_without_text(self, what: str, queries: pl.DataFrame, qrels: pl.DataFrame) -> None:
        odd = sorted(set(qrels["query-id"]) - set(queries["query_id"]), key=lambda query_id: (len(query_id), query_id))
        if odd:
            self.remarks.append(
                f"{what}: the authors' judgements hold {len(odd)} query ids without a query ({', '.join(odd)}); "
                "the judgements are kept, the ids are in no test set"
            )


def buckets(name: str) -> list[str]:
    """The files of that name, one a bucket."""
    return [f"{RESTTEST}/bucket-{number}/{name}" for number in range(1, len(BUCKETS) + 1)]


_TOPIC_RULE = "the authors' lists: k-means (k = 100) of DistilBERT [CLS] vectors, five far clusters, each expanded"
SHIFTS = {
    "topic": (TOPICS, _TOPIC_RULE, "ECIR 2023 §3.1"),
    "wh": (tuple(WH_TERMS), WH_RULE, WH_SOURCE),
    "length": (LENGTHS, LENGTH_RULE, LENGTH_SOURCE),
}
"""MS-Shift's shifts: clusters, rule and source."""
