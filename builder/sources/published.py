"""The canonical release: the authors' own lists, id for id.

Each part names the files it needs; a part whose files cannot be obtained is left out and named.
"""

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import polars as pl

from builder import validation
from builder.collection import NONE_STATED
from builder.release import in_order
from builder.sources import irds, variations
from builder.sources.train_join import Join, join_by_text
from eval_kit.authors.draft import Draft, Table
from eval_kit.authors.fetch import UnavailableError
from eval_kit.authors.lists import CLUSTERING, REGIMES, RESTRAIN, RESTTEST_SOURCE, SHIFTS, SIZES, TestLists, buckets
from eval_kit.authors.sources import declared_files
from eval_kit.authors.test_sets import BUCKETS, test_sets
from eval_kit.documents import Rule
from eval_kit.errors import UserError
from eval_kit.files.formats import QUERIES_SCHEMA, read_qrels
from eval_kit.sentences import counted

TRAIN = "msmarco-passage/train"


def draft(upstream: Path | None = None, allow_partial: bool = False, unlicensed: bool = False) -> Draft:
    """Gather the published lists.

    Without ``upstream``, a folder with the files at ``owner/name/path``, they are downloaded. ``allow_partial`` names
    what cannot be obtained in ``missing``, instead of stopping. ``unlicensed`` includes variations and test sets whose
    authors state no licence.
    """
    return _Gathering(upstream, unlicensed).draft(allow_partial)


class _Gathering(TestLists):
    """One gathering of all parts, training lists and other wordings too."""

    def __init__(self, upstream: Path | None, unlicensed: bool) -> None:
        files = declared_files()
        self.variation_parts: list[variations.Part] = []
        self.left_out: list[variations.Part] = []
        for part in variations.parts():
            if unlicensed or part.licence != NONE_STATED:
                self.variation_parts.append(part)
            else:
                self.left_out.append(part)
                for file in part.files:
                    del files[file]
        super().__init__(files, upstream)
        self.train_queries: pl.DataFrame | None = None

    def draft(self, allow_partial: bool) -> Draft:
        parts = [
            self._ms_marco_train,
            self._shift_tests,
            self._shift_trains,
            self._resttest,
            self._resttest_train,
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
            more = f" and {counted(rest, 'more part')}" if rest else ""
            raise UserError(
                f"Could not get {first.what}{more}, so nothing was built",
                first.because,
                "Add --allow-partial to build the rest and record what is missing",
            )
        if not self.tables:
            raise UserError(
                "Could not get any source file", "There is no internet, or --upstream names the wrong folder"
            )
        return self.to_draft(in_order(self.tables))

    def _ms_marco_train(self) -> Iterator[Table]:
        try:
            self.train_queries = irds.queries(TRAIN)
            pairs = irds.qrels(TRAIN)
        except UnavailableError as error:
            self._miss("qrels/train", str(error))
        else:
            yield Table("qrels", "train", self._unique_pairs("qrels/train", pairs), _TRAIN_QRELS_RULE)

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
        for shift, (clusters, text, _) in SHIFTS.items():
            text = f"{text}; ids found by joining the authors' query texts to MS MARCO train"
            rule = Rule(text, "TRAIN/queries_clustering.tsv", [CLUSTERING])
            yield Table(shift, "train", join.members(shift, clusters), rule)

    def _resttest_train(self) -> Iterator[Table]:
        """The bucket of each training query."""
        files = buckets("train-qrel.txt")
        if not self._lack("resttest/train", files):
            frame = self._with_text("resttest/train", _own_bucket(self._members(files)))
            text = "the bucket of the training query: the model that extrapolates to a bucket trains on the other four"
            yield Table("resttest", "train", frame, Rule(text, RESTTEST_SOURCE, files))

    def _restrain(self) -> Iterator[Table]:
        for size, regime in product(SIZES, REGIMES):
            split = f"{regime}_{size}"
            file = f"{RESTRAIN}/{size}/{regime}.train-qrel.txt"
            if self._lack(f"restrain/{split}", [file]):
                continue
            pairs = self._unique_pairs(f"restrain/{split}", read_qrels(self.paths[file]))
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


def _own_bucket(members: pl.DataFrame) -> pl.DataFrame:
    """A training query's own bucket, from the files that list it: its own, or all four others."""
    counts = members.group_by("query_id").len()["len"].unique().to_list()
    if counts == [1]:
        return members
    if counts == [len(BUCKETS) - 1]:
        buckets = pl.DataFrame({"bucket": BUCKETS}, {"bucket": pl.Enum(BUCKETS)})
        every = members.select("query_id").unique().join(buckets, how="cross")
        return every.join(members, on=["query_id", "bucket"], how="anti")
    raise UserError(f"ReSTTest's train files have a query in {counts} of 5 buckets, neither buckets nor complements")


_TRAIN_QRELS_RULE = Rule("MS MARCO's own training judgements", f"ir_datasets {TRAIN}")
