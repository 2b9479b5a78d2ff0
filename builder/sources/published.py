"""The canonical release: the authors' own lists, id for id.

Each part names the files it needs; a part whose files cannot be obtained is left out and named.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, product
from pathlib import Path

import polars as pl

from builder import validation
from builder.collection import NONE_STATED, input_record
from builder.release import Draft, Table
from builder.shifts import length, wh
from builder.sources import irds, variations
from builder.sources.fetch import UnavailableError, declared_files, obtain
from builder.sources.train_join import Join, join_by_text
from builder.test_sets import BUCKETS, CHAMELEON_SETS, LEVELS, OBSTINACY, TOPICS, in_order, test_sets
from eval_kit.documents import Lack, Rule
from eval_kit.errors import UserError
from eval_kit.files.formats import QUERIES_SCHEMA, by_id, read_json_qrels, read_queries, read_trec_qrels
from eval_kit.release import MS_MARCO, Variation

TRAIN = "msmarco-passage/train"

SHIFT_TEST = "naver/ms-marco-shift/EVAL"
CLUSTERING = "naver/ms-marco-shift/TRAIN/queries_clustering.tsv"
RESTRAIN = "jingtaozhan/extrapolate-eval/restrain_files/msmarco-passage"
RESTTEST = "jingtaozhan/extrapolate-eval/resttest_files/msmarco-passage"
CHAMELEONS = "Narabzad/Chameleons/datasets"
ANSERINI = "castorini/anserini-tools"

SIZES = ("14k", "45k", "200k")
REGIMES = {
    "interpolate": "training queries among the most similar to a TREC DL 2019/2020 query",
    "extrapolate": "training queries not among the most similar to any TREC DL 2019/2020 query",
}
CHAMELEON_FILES = {"veiled": ("Veiled", 4), "pygmy": ("Pygmy", 5), "lesser": ("Lesser", 6)}

DEV_TOPICS = f"{ANSERINI}/topics/topics.msmarco-passage.dev-subset.txt"
DEV_QRELS = f"{ANSERINI}/qrels/qrels.msmarco-passage.dev-subset.txt"
DL_TOPICS = {"dl19": f"{ANSERINI}/topics/topics.dl19-passage.txt", "dl20": f"{ANSERINI}/topics/topics.dl20.txt"}
DL_QRELS = {"dl19": f"{ANSERINI}/qrels/qrels.dl19-passage.txt", "dl20": f"{ANSERINI}/qrels/qrels.dl20-passage.txt"}

ORDER = ("cluster", "bucket", "query_id", "query-id", "corpus-id")
"""Columns by which a table's rows are sorted, so far as it has them."""


def draft(upstream: Path | None = None, allow_partial: bool = False, unlicensed: bool = False) -> Draft:
    """Gather the published lists.

    Args:
        upstream: folder with the files at ``owner/name/path``; without it they are downloaded.
        allow_partial: leave out what cannot be obtained and name it in ``missing``, instead of stopping.
        unlicensed: include the variations and test sets whose authors state no licence.

    Raises:
        UserError: something cannot be obtained (without ``allow_partial``), or a file is not the declared one.
    """
    return _Gathering(upstream, unlicensed).draft(allow_partial)


class _Gathering:
    """One gathering of the parts: the files obtained, and what the parts have yielded so far."""

    def __init__(self, upstream: Path | None, unlicensed: bool) -> None:
        self.files = declared_files()
        self.variation_parts: list[variations.Part] = []
        self.left_out: list[variations.Part] = []
        for part in variations.parts():
            if unlicensed or part.licence != NONE_STATED:
                self.variation_parts.append(part)
            else:
                self.left_out.append(part)
                for file in part.files:
                    del self.files[file]
        self.paths, self.lacking = obtain(self.files.values(), upstream)
        self.tables: list[Table] = []
        self.variations: list[Variation] = []
        self.missing: list[Lack] = []
        self.remarks: list[str] = []
        self.reports: dict[str, str] = {}
        self.train_queries: pl.DataFrame | None = None

    def draft(self, allow_partial: bool) -> Draft:
        parts = [
            self._ms_marco_train,
            self._shift_tests,
            self._shift_trains,
            self._resttest,
            self._restrain,
            self._validation,
            self._chameleons,
            self._trec_dl,
            self._evaluation_qrels,
            self._variations,
        ]
        for part in parts:
            self.tables += list(part())  # whole: a part may look at the tables of those before it
        if self.missing and not allow_partial:
            first, rest = self.missing[0], len(self.missing) - 1
            more = f", and {rest} more parts cannot be obtained" if rest else ""
            raise UserError(
                f"{first.what} cannot be obtained: {first.because}{more}; "
                "nothing was built (--allow-partial builds the rest and records what is missing)"
            )
        if not self.tables:
            raise UserError("no source file can be obtained: no internet, or --upstream names the wrong folder")
        tables, inputs = [], []
        for table in in_order(self.tables):
            order = [column for column in ORDER if column in table.frame.columns]
            tables.append(replace(table, frame=by_id(table.frame, *order)))
        for id in sorted(set(chain.from_iterable(table.rule.inputs for table in tables)) & set(self.paths)):
            file = self.files[id]
            inputs.append(input_record(self.paths[id], id, file.licence, file.url, file.git_blob))
        return Draft(
            kind="published",
            collection=MS_MARCO,
            seed=None,
            tables=tables,
            test_sets=test_sets(tables),
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

    def _ms_marco_train(self) -> Iterator[Table]:
        try:
            self.train_queries = irds.queries(TRAIN)
            pairs = irds.qrels(TRAIN)
        except UnavailableError as error:
            self._miss("qrels/train", str(error))
        else:
            yield Table("qrels", "train", self._unique_pairs("qrels/train", pairs), _TRAIN_QRELS_RULE)

    def _shift_tests(self) -> Iterator[Table]:
        files = {"topic": list(map(str, range(len(TOPICS)))), "wh": wh.CLUSTERS, "length": length.CLUSTERS}
        for shift, (clusters, text, source) in _SHIFTS.items():
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

    def _shift_trains(self) -> Iterator[Table]:
        what = "topic/train, wh/train and length/train"
        if self._lack(what, [CLUSTERING]):
            return
        if self.train_queries is None:
            self._miss(what, f"the query ids come from ir_datasets {TRAIN}, which cannot be obtained")
            return
        join: Join = join_by_text(self.paths[CLUSTERING], self.train_queries)
        self.remarks += join.remarks
        if join.report:
            self.reports["train_join.tsv"] = join.report
        for shift, (clusters, text, _) in _SHIFTS.items():
            text = f"{text}; ids found by joining the authors' query texts to MS MARCO train"
            rule = Rule(text, "TRAIN/queries_clustering.tsv", [CLUSTERING])
            yield Table(shift, "train", join.members(shift, clusters), rule)

    def _resttest(self) -> Iterator[Table]:
        """The bucket of each test query, and that of each training query, where the files are at hand."""
        source = "CIKM 2022 §4.1.3"
        topics = {"dev": DEV_TOPICS, **DL_TOPICS}
        for split, name in {"dev": "dev", "dl19": "trec19", "dl20": "trec20"}.items():
            files = [*_buckets(f"extrapolate.{name}-qrel.txt"), topics[split]]
            if self._lack(f"resttest/{split}", files):
                continue
            members = self._members(files[:-1])
            frame = members.join(read_queries(self.paths[topics[split]]), on="query_id", how="left")
            text = "the bucket in which the query is scored as extrapolation; k-means of train and test queries, k = 5"
            yield Table("resttest", split, frame.select("query_id", "text", "bucket"), Rule(text, source, files))
        files = _buckets("train-qrel.txt")
        if not self._lack("resttest/train", files):
            frame = self._with_text("resttest/train", _own_bucket(self._members(files)))
            text = "the bucket of the training query: the model that extrapolates to a bucket trains on the other four"
            yield Table("resttest", "train", frame, Rule(text, source, files))

    def _members(self, files: Sequence[str]) -> pl.DataFrame:
        """``query_id`` and ``bucket`` from a file of judgements for each bucket."""
        parts = []
        for bucket, file in zip(BUCKETS, files, strict=True):
            ids = read_trec_qrels(self.paths[file]).select(pl.col("query-id").alias("query_id")).unique()
            parts.append(ids.with_columns(bucket=pl.lit(bucket, pl.Enum(BUCKETS))))
        return pl.concat(parts)

    def _restrain(self) -> Iterator[Table]:
        for size, regime in product(SIZES, REGIMES):
            split = f"{regime}_{size}"
            file = f"{RESTRAIN}/{size}/{regime}.train-qrel.txt"
            if self._lack(f"restrain/{split}", [file]):
                continue
            pairs = self._unique_pairs(f"restrain/{split}", read_trec_qrels(self.paths[file]))
            ids = pairs.select(pl.col("query-id").alias("query_id")).unique()
            frame = self._with_text(f"restrain/{split}", ids)
            yield Table("restrain", split, frame, Rule(REGIMES[regime], "CIKM 2022 §4.1.2", [file]))
            rule = Rule("the judgements released with the list", "CIKM 2022 §4.1.2", [file])
            yield Table("qrels", f"restrain_{split}", pairs, rule)

    def _validation(self) -> Iterator[Table]:
        """Draw validation queries from the training queries in none of the lists; the authors released none."""
        have = {table.key: table.frame for table in self.tables}
        lists = [*product(("topic", "wh", "length"), ("train", "test"))]
        lists += [("restrain", f"{regime}_{size}") for size, regime in product(SIZES, REGIMES)]
        lacking = [f"{config}/{split}" for config, split in [("qrels", "train"), *lists] if (config, split) not in have]
        if lacking or self.train_queries is None:
            self._miss("validation", f"it is drawn outside the authors' lists, and {lacking[0]} cannot be obtained")
            return
        pairs = have["qrels", "train"]
        is_judged = pl.col("query_id").is_in(pairs.filter(pl.col("score") > 0)["query-id"].implode())
        listed_ids = pl.concat(have[table]["query_id"] for table in lists)
        queries = validation.draw_outside(self.train_queries.filter(is_judged), listed_ids)
        if not queries.height:
            self._miss("validation", "every judged training query is in one of the authors' lists")
            return
        rule = Rule(
            validation.PUBLISHED_RULE, validation.SOURCE, [], {"seed": validation.PUBLISHED_SEED, "n": queries.height}
        )
        yield Table(validation.CONFIG, validation.CONFIG, queries, rule)
        judgements = pairs.filter(pl.col("query-id").is_in(queries["query_id"].implode()))
        yield Table("qrels", validation.CONFIG, judgements, _TRAIN_QRELS_RULE)
        self.remarks.append(
            f"validation: the authors' own list is not released; these are {queries.height:,} training queries in none "
            "of the topic, wh, length and ReSTrain lists, drawn by this project"
        )
        resttest = have.get(("resttest", "train"))
        if resttest is not None and (inside := queries.join(resttest, on="query_id", how="semi").height):
            self.remarks.append(
                f"validation: {inside:,} of its queries are in resttest/train; leave them out of training on ReSTTest"
            )

    def _chameleons(self) -> Iterator[Table]:
        files = {}
        for name, level in product(CHAMELEON_SETS, LEVELS):
            title, rankers = CHAMELEON_FILES[name]
            files[name, level] = f"{CHAMELEONS}/{title}(common{rankers})/{title}_common{rankers}_0.{level // 10}"
        if self._lack("chameleons/dev", [*files.values(), DEV_TOPICS]):
            return
        frame = read_queries(self.paths[DEV_TOPICS])
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
            [*files.values(), DEV_TOPICS],
        )
        yield Table("chameleons", "dev", frame, rule)

    def _trec_dl(self) -> Iterator[Table]:
        for split, file in DL_TOPICS.items():
            if self._lack(f"trec_dl/{split}", [file, DL_QRELS[split]]):
                continue
            judged_ids = read_trec_qrels(self.paths[DL_QRELS[split]])["query-id"].unique()
            label = pl.when(pl.col("query_id").is_in(judged_ids.implode())).then(pl.lit("yes")).otherwise(pl.lit("no"))
            frame = read_queries(self.paths[file]).with_columns(judged=label.cast(pl.Enum(["no", "yes"])))
            rule = Rule("all topics of the track, and whether NIST judged them", file, [file, DL_QRELS[split]])
            yield Table("trec_dl", split, frame, rule)

    def _evaluation_qrels(self) -> Iterator[Table]:
        for split, file in {"dev": DEV_QRELS, **DL_QRELS}.items():
            if not self._lack(f"qrels/{split}", [file]):
                pairs = self._unique_pairs(f"qrels/{split}", read_trec_qrels(self.paths[file]))
                yield Table("qrels", split, pairs, Rule("the official judgements", file, [file]))

    def _variations(self) -> Iterator[Table]:
        """Other wordings of the test sets' queries, and the test sets that came with them."""
        available, own_tables = [], list[Table]()
        for part in self.variation_parts:
            if not self._lack(part.what, part.files):
                available.append(part)
                own_tables.extend(part.test_set(self.paths))
        yield from own_tables
        bases = {base.name for base in test_sets([*self.tables, *own_tables])}
        for part in available:
            for variation, table in part.variations(self.paths):
                if variation.base not in bases:
                    self._miss(
                        f"the variation {variation.full_name}", f"the test set {variation.base} cannot be obtained"
                    )
                    continue
                self.variations.append(variation)
                yield table
        if self.left_out:
            names = ", ".join(part.what for part in self.left_out)
            self.remarks.append(f"left out: {names}; their authors state no licence (--unlicensed includes them)")

    def _with_text(self, what: str, ids: pl.DataFrame) -> pl.DataFrame:
        """Add the query texts that can be obtained; the rest are null and recorded as missing."""
        sources = [pl.DataFrame(schema=QUERIES_SCHEMA) if self.train_queries is None else self.train_queries]
        for table in self.tables:
            if table.key in {("topic", "test"), ("wh", "test")}:
                sources.append(table.frame.select("query_id", "text"))
        texts = pl.concat(sources).unique("query_id", keep="first", maintain_order=True)
        frame = ids.join(texts, on="query_id", how="left").select("query_id", "text", pl.exclude("query_id", "text"))
        if without := frame["text"].null_count():
            self._miss(
                f"text of {without:,} of {frame.height:,} queries of {what}",
                f"it comes from ir_datasets {TRAIN}, which cannot be obtained"
                if self.train_queries is None
                else f"these ids are not in ir_datasets {TRAIN}",
            )
        return frame

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


def _buckets(name: str) -> list[str]:
    """The files of that name, one a bucket."""
    return [f"{RESTTEST}/bucket-{number}/{name}" for number in range(1, len(BUCKETS) + 1)]


def _own_bucket(members: pl.DataFrame) -> pl.DataFrame:
    """A training query's own bucket, from the files that list it: its own, or all four others.

    Raises:
        UserError: the files are neither the buckets themselves nor their complements.
    """
    counts = members.group_by("query_id").len()["len"].unique().to_list()
    if counts == [1]:
        return members
    if counts == [len(BUCKETS) - 1]:
        buckets = pl.DataFrame({"bucket": BUCKETS}, {"bucket": pl.Enum(BUCKETS)})
        every = members.select("query_id").unique().join(buckets, how="cross")
        return every.join(members, on=["query_id", "bucket"], how="anti")
    raise UserError(f"ReSTTest's train files hold a query in {counts} of 5 buckets: neither buckets nor complements")


_TOPIC_RULE = "the authors' lists: k-means (k = 100) of DistilBERT [CLS] vectors, five far clusters, each expanded"
_SHIFTS = {
    "topic": (TOPICS, _TOPIC_RULE, "ECIR 2023 §3.1"),
    "wh": (wh.CLUSTERS, wh.RULE, wh.SOURCE),
    "length": (length.CLUSTERS, length.RULE, length.SOURCE),
}
"""MS-Shift's shifts: clusters, rule and source."""
_TRAIN_QRELS_RULE = Rule("MS MARCO's own training judgements", f"ir_datasets {TRAIN}")
