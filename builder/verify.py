"""Recompute everything that a release claims: digests, counts, and the rules its tables follow."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path

import polars as pl
from msgspec.structs import replace

from builder import negatives
from builder.card import CARD, LICENCES, check_card
from builder.release import files
from builder.shifts import length, wh
from eval_kit.authors.test_sets import OBSTINACY, levels_in, models_in
from eval_kit.documents import TableEntry
from eval_kit.errors import UserError
from eval_kit.files.digests import release_digest
from eval_kit.release import Release, Variation, read_manifest, read_table
from eval_kit.shifts import CLUSTERED, SHIFTS

_AUTHORS_LISTS = ("published", "lite")
"""Kinds of release whose lists may overlap as the authors' do."""

type Rule = Callable[[pl.DataFrame], str]
"""Says what is wrong with a table; empty if nothing is."""
type Rules = dict[str, Rule]
"""Rules by what they say."""


@dataclass(frozen=True)
class Check:
    """One recomputed claim, and what is wrong with it (nothing, if ``fault`` is empty)."""

    what: str
    fault: str = ""


def verify(folder: Path) -> list[Check]:
    """Check a release folder, table by table and rule by rule, continuing after a fault."""
    manifest = read_manifest(folder)
    release = Release(folder, replace(manifest, missing=[]))  # what it lacks is told once, by who opens it
    fault = "" if release_digest(manifest) == manifest.digest else "is not that of the tables listed"
    checks = [Check("release digest", fault)]
    checks.append(Check("the card is of this release", _fault(partial(check_card, folder, manifest))))
    checks.append(Check("the folder holds what the manifest lists", _strangers(folder, files(folder, manifest))))
    contents = []
    for table in manifest.tables:
        what = f"content of {table.config}/{table.split} ({table.rows:,} rows)"
        contents.append(Check(what, _fault(partial(read_table, folder, table))))
    checks += contents
    if any(check.fault for check in contents):
        return checks  # rules of damaged tables would only repeat the fault
    checks.append(Check("test sets and their counts", _fault(lambda: release.test_sets)))
    return checks if checks[-1].fault else [*checks, *_rules(release)]


def _rules(release: Release) -> Iterator[Check]:
    for table in release.manifest.tables:
        frame = release.table(*table.key)
        for what, rule in (_RULES.get(table.config, {}) | _stated_rule(table)).items():
            yield Check(f"{what} ({table.config}/{table.split})", rule(frame))
    for shift in CLUSTERED if release.manifest.kind not in _AUTHORS_LISTS else ():
        if {"train", "test"} <= set(release.configs.get(shift, [])):
            yield Check(f"train and test of {shift} share no query", _train_and_test_overlap(release, shift))
    if "validation" in release.configs:
        yield Check("the validation queries are outside every shift", _validation_inside(release))
    if restrain := release.configs.get("restrain"):
        yield Check("interpolate and extrapolate share no query", _regimes_overlap(release, restrain))
    for variation in release.variations.values():
        yield Check(f"{variation.full_name} words queries of {variation.base}", _miswordings(release, variation))
    if negatives.CONFIG in release.configs:
        yield Check("negatives are passages of the collection that nobody judged relevant", negatives.fault(release))
    for name, test_set in release.test_sets.items():
        judgements = release.qrels(test_set.qrels)["query_id"]
        lacking = test_set.queries.filter(~test_set.queries.is_in(judgements.implode()))
        if len(lacking):
            yield Check(f"every query of {name} is judged", f"{len(lacking)} are not, first {lacking[0]}")


def _stated_rule(table: TableEntry) -> Rules:
    """The rule of length or wh that a table states, by its parameters; the authors' training lists state none."""
    parameters_stated = table.rule.parameters
    if table.config == "length" and (parameters_stated or table.rule.text == length.RULE):
        words = parameters_stated.get("words", length.LONGEST_SHORT)
        return {"clusters follow the length rule": lambda frame: _length_rule(frame, words)}
    if table.config == "wh" and (parameters_stated or table.rule.text == wh.RULE):
        names = {"rule", "language", "terms"} & parameters_stated.keys()
        parameters = wh.WhParameters(**{name: parameters_stated[name] for name in names})
        kind = "wh-word rule" if wh.rule_of(parameters) == "substring" else "wh-word rule for whole words"
        return {f"clusters follow the {kind}": lambda frame: _wh_rule(frame, parameters)}
    return {}


def _length_rule(frame: pl.DataFrame, words: int) -> str:
    return _count(frame, frame["cluster"] != length.cluster(frame["text"], words).cast(pl.String))


def _crossed_rule(frame: pl.DataFrame) -> str:
    roles = frame.select(models_in(frame))
    times_in, times_out = pl.sum_horizontal(pl.all() == "in"), pl.sum_horizontal(pl.all() == "out")
    fits = roles.select((times_in == 1) & (times_out == roles.width // 2)).to_series()
    return _count(frame, ~fits)


def _wh_rule(frame: pl.DataFrame, parameters: wh.WhParameters) -> str:
    wrong, terms = pl.repeat(False, frame.height, eager=True), wh.terms_of(parameters)
    for cluster in terms:
        wrong |= (frame["cluster"] == cluster) & ~wh.member(frame["text"], cluster, wh.rule_of(parameters), terms)
    return _count(frame, wrong)


def _once(*columns: str) -> Rule:
    """The rule that no two rows have the same values in some columns."""
    return lambda frame: _count(frame, frame.select(columns).is_duplicated())


def _levels_nest(frame: pl.DataFrame) -> str:
    levels = sorted(levels_in(frame), key=lambda name: int(name.removeprefix("level_")))
    ranks = frame.select(pl.col(levels).replace_strict(list(OBSTINACY), range(len(OBSTINACY)), return_dtype=pl.Int64))
    wrong = pl.any_horizontal(pl.col(lower) > pl.col(higher) for lower, higher in pairwise(levels))
    return _count(frame, ranks.select(wrong).to_series())


def _unique_pairs(frame: pl.DataFrame) -> str:
    count = int(frame.select("query-id", "corpus-id").is_duplicated().sum())
    return f"{count} rows are repeated" if count else ""


_ONE_CLUSTER: Rules = {"each query is in one cluster": _once("query_id")}
_ONCE_IN_EACH_CLUSTER: Rules = {"each query is once in a cluster": _once("query_id", "cluster")}
_RULES: dict[str, Rules] = {
    **{name: _ONCE_IN_EACH_CLUSTER if shift.overlaps else _ONE_CLUSTER for name, shift in SHIFTS.items()},
    "chameleons": {"a query of one level is at least as obstinate at the next": _levels_nest} | _ONE_CLUSTER,
    "crossed": {
        "every query is held back from one crossed model, and left out with its cluster by half of them": _crossed_rule
    }
    | _ONE_CLUSTER,
    "variations": {"each query is worded once": _once("query_id")},
    "qrels": {"each pair is judged once": _unique_pairs},
}
"""The rules of each config's tables, in words."""


def _train_and_test_overlap(release: Release, shift: str) -> str:
    train, test = release.table(shift, "train")["query_id"], release.table(shift, "test")["query_id"]
    both = test.filter(test.is_in(train.implode()))
    return f"{both.n_unique()} are in both, first {both[0]}" if len(both) else ""


def _miswordings(release: Release, variation: Variation) -> str:
    wordings, base = release.wordings(variation), release.test_sets[variation.base]
    extra = wordings.filter(~pl.col("query_id").is_in(base.queries.implode()))
    empty = wordings.filter(pl.col("text").str.strip_chars().fill_null("") == "")
    strangers = set(variation.invalid or []) - set(wordings["query_id"])
    if extra.height:
        return f"{extra.height:,} queries are not in {variation.base}, first {extra['query_id'][0]}"
    if empty.height:
        return f"{empty.height:,} queries have no text, first {empty['query_id'][0]}"
    if strangers:
        return f"{len(strangers)} invalid queries have no wording, first {min(strangers)}"
    is_so_many = wordings.height == variation.queries
    return "" if is_so_many else f"it has {wordings.height:,} wordings, the manifest says {variation.queries:,}"


def _validation_inside(release: Release) -> str:
    """Where a validation query is in another list; the authors' ReSTTest lists hold all training queries."""
    queries = release.table("validation", "validation")["query_id"]
    for table in release.manifest.tables:
        holds_all = table.key == ("resttest", "train") and release.manifest.kind in _AUTHORS_LISTS
        if holds_all or table.config in ("validation", "qrels", "negatives", "passages"):
            continue
        inside = queries.filter(queries.is_in(release.table(*table.key)["query_id"].implode()))
        if len(inside):
            return f"{len(inside)} are in {table.config}/{table.split}, first {inside[0]}"
    return ""


def _regimes_overlap(release: Release, splits: list[str]) -> str:
    ids = {split: set(release.table("restrain", split)["query_id"]) for split in splits}
    for first, second in combinations(splits, 2):
        same_size = first.split("_", 1)[1] == second.split("_", 1)[1]
        if same_size and (both := ids[first] & ids[second]):
            return f"{first} and {second} share {len(both)}, first {min(both)}"
    return ""


def _count(frame: pl.DataFrame, wrong: pl.Series) -> str:
    count = int(wrong.sum())
    return f"{count} rows do not, first query {frame.filter(wrong)['query_id'][0]}" if count else ""


def _strangers(folder: Path, listed: Collection[str]) -> str:
    """Files that a release does not have, but for hidden ones, which are never published; and those it must have."""
    if lacking := [name for name in (CARD, LICENCES) if not (folder / name).is_file()]:
        return f"{lacking[0]} is missing"
    inside = list(folder.rglob("*"))
    if linked := sorted(path for path in inside if path.is_symlink() and path.is_dir()):
        return f"{linked[0].relative_to(folder)} is a link to a folder, which no upload follows"
    there = {path.relative_to(folder) for path in inside if not path.is_dir()}
    hidden = {path for path in there if any(part.startswith(".") for part in path.parts)}
    strangers = sorted(path.as_posix() for path in there - hidden - set(map(Path, listed)))
    return f"{strangers[0]} is not part of it ({len(strangers)} files are not)" if strangers else ""


def _fault(check: Callable[[], object]) -> str:
    try:
        check()
    except (UserError, OSError) as error:
        return str(error)
    return ""
