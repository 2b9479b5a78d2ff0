"""A model's card: what it does on a release beside its pivots, said first, then drawn, then in tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import polars as pl

from eval_kit import plots, svg
from eval_kit.divisions import FEW, WORDS
from eval_kit.errors import choices
from eval_kit.measures.definitions import parse
from eval_kit.models.opening import BM25
from eval_kit.models.shown import Shown
from eval_kit.protocols import panel
from eval_kit.protocols.by_part import label
from eval_kit.protocols.clean import Clean
from eval_kit.protocols.compare import Comparison
from eval_kit.protocols.differences_shown import BETTER, FIRST_MEASURE, counts, difference_shown, gain, word
from eval_kit.protocols.generalise import DISTANCE, Generalisation
from eval_kit.protocols.scores import Scores
from eval_kit.protocols.variations import ALL, Variations
from eval_kit.release import Release
from eval_kit.release.manifest import data_name
from eval_kit.results import Fact, Picture, Result
from eval_kit.runs import contamination
from eval_kit.runs.names import RunName, cell_of
from eval_kit.sentences import counted, joined
from eval_kit.shifts import SHIFTS, benchmarks
from eval_kit.stats.differences import WORSE
from eval_kit.tables import markdown
from eval_kit.tables.table import Table, share

_SCATTERED = 600
"""Queries that the scatter shows, with their texts: a page of thousands would be megabytes."""
_MOST_RUNS = 8
"""Runs of a grid that a command names; of more it names the folder."""


@dataclass(frozen=True, repr=False)
class Card(Result):
    """What a model does on a release.

    ``figures_of`` are its figures beside the pivots', or alone; ``trained_on`` is what its card or the kit's registry
    says, None where neither does. ``leaks`` and ``generalises`` are None where the training queries are not known.
    ``limit`` is how many passages a try searched; ``again`` the words of the command, none in Python.
    """

    title = "A model's card"

    figures_of: Comparison | Scores
    variations: Variations | None
    trained_on: list[str] | None
    provenance: dict[str, Any]
    model: str
    system: str
    release: Release
    leaks: Clean | None = None
    generalises: Generalisation | None = None
    shown: Shown | None = None
    limit: int | None = None
    again: Sequence[str] = ()

    @property
    def otherwise(self) -> Sequence[str]:  # type: ignore[override]
        """Those of its parts."""
        return list(chain.from_iterable(part.otherwise for part in self._results()))

    @property
    def heading(self) -> str:
        """The model and the data."""
        return f"{self.model} on {data_name(self.release.manifest)}"

    def summary(self) -> list[str]:
        """How it does beside the first pivot, on all test sets and on the main one."""
        main = self._test_sets()[0]
        if not isinstance(self.figures_of, Comparison):
            means = sorted(self.figures_of.means, key=lambda mean: mean.test_set != main)
            return replace(self.figures_of, means=means).summary()
        queries = self.figures_of.per_query()["query_id"].n_unique()
        verdicts = [self.figures_of.verdict_on(self.system, where) for where in (None, main)]
        return [" ".join([*dict.fromkeys(filter(None, verdicts)), f"{counted(queries, 'query')} were searched."])]

    def _test_sets(self) -> list[str]:
        """Those that it has figures on, the main one first: dev or else test, then TREC DL."""
        searched = self.to_polars()["test_set"].unique(maintain_order=True).to_list()
        return list(dict.fromkeys([*benchmarks(searched), *searched]))

    def facts(self) -> list[Fact]:
        """What was found, and the command that adds what is lacking; of paths the names, as cards are passed on."""
        return [*self._found(), *self._commands(names_alone=True)]

    def _found(self) -> list[Fact]:
        """Each shift, the worst part, other wordings, leaks and far queries."""
        facts: list[Fact] = []
        if isinstance(self.figures_of, Comparison):
            facts += [*self._by_shift(), *self._worst(self.figures_of)]
        own = self.figures_of.per_query().rename({"system": "run"}, strict=False).filter(run=pl.lit(self.system))
        for standing in panel.standings(own):
            facts.append(Fact(f"Among known systems, {standing.test_set}", str(standing), standing.places, "open"))
        if self.variations:
            facts += self._wordings(self.variations)
        if self.leaks:
            facts.append(Fact("Leaks", self.leaks.summary()[0]))
        elif self.trained_on != []:
            facts.append(Fact("Leaks", self._declared()))
        for fact in self.generalises.facts() if self.generalises else []:
            about = "Far from training" if fact.about == DISTANCE else f"Far by {fact.about}"
            facts.append(replace(fact, about=about))
        return facts

    def _commands(self, names_alone: bool) -> list[Fact]:
        """What to do next; in Python, where no command was typed, what takes one of its own."""
        next_one = self._next(names_alone)
        return [*self._kinds(names_alone), *[next_one] * (next_one.command[:1] == ["eval_kit"])]

    def _next(self, names_alone: bool) -> Fact:
        """What is lacking, and the command that adds it, as it was typed or with ``names_alone`` of absolute paths."""
        lacking, further = [], []
        if self.limit:
            again = [word for word in self.again if word not in ("--limit", str(self.limit))]
            return Fact("Next (search all passages)", "", command=again)
        cell = cell_of(self.system)
        if cell and cell.shift in self.release.configs and cell.held_out in SHIFTS[cell.shift].parts(self.release):
            return self._of_grid(cell, names_alone)
        if "--no-pivot" in self.again and self.model != BM25:
            lacking.append("the difference from BM25")
        if not self.variations and "--first" not in self.again:  # a run has no passages for other wordings
            lacking.append("what typos cost")
            searched = self._test_sets()
            of_release = (each.base for each in self.release.variations.values() if each.family == "typo")
            base = next((base for base in of_release if base in searched), searched[0])
            further += ["--variation", f"{base}.typo"]
        if not self.leaks and self.trained_on != []:
            lacking += ["leaks", "the loss on queries far from training"]
            further += ["--trained-on", "FILE"]
        if isinstance(self.figures_of, Comparison) and self.figures_of.parts.is_empty():
            lacking.append("the kinds of query where it is worst")
            further += ["--by", WORDS]
        command = [*self.again, *further]
        why = joined(lacking)
        if not lacking:
            files = [source["file"] for source in self.provenance["runs"]]
            command = ["eval_kit", "compare", *files, "RUN", "--release", str(self.release.folder)]
            why = "compare another model with it"
        if "the difference from BM25" in lacking:
            command.remove("--no-pivot")
        names = {word: Path(word).name for word in command if Path(word).is_absolute()} if names_alone else {}
        if (folder := self.release.folder.name) in names.values():
            why += f". Run it in the folder of {folder}"
        if "FILE" in command:
            why += ". FILE has its training queries: id, tab, text"
        return Fact(f"Next ({why})", "", command=[names.get(word, word) for word in command])

    def _of_grid(self, cell: RunName, names_alone: bool) -> Fact:
        """The command that compares the runs of all held-out parts, and how many of them are still to be made."""
        own = next(Path(source["file"]) for source in self.provenance["runs"] if source["run"] == self.system)
        parts = SHIFTS[cell.shift].complete([cell.held_out], self.release)
        runs = [own.with_name(replace(cell, held_out=part).file) for part in parts]
        lacking = [run.name for run in runs if not run.exists()]
        why = "what the shift costs" + (f", once there are {choices(lacking)}" if lacking else "")
        words = [*map(str, runs if len(runs) <= _MOST_RUNS else [own.parent]), "--release", str(self.release.folder)]
        words = [Path(word).name if names_alone and Path(word).is_absolute() else word for word in words]
        return Fact(f"Next ({why})", "", command=["eval_kit", "protocol", *words])

    def _kinds(self, names_alone: bool) -> Iterator[Fact]:
        """The command that finds the kinds of query that it loses to the first pivot."""
        files = {source["run"]: source["file"] for source in self.provenance["runs"]}
        pair = self.figures_of.systems[0] if isinstance(self.figures_of, Comparison) else "", self.system
        if all(each in files for each in pair):
            words = [*(files[each] for each in pair), "--release", str(self.release.folder)]
            words = [Path(word).name if names_alone and Path(word).is_absolute() else word for word in words]
            yield Fact("Next (the kinds of query that it loses)", "", command=["eval_kit", "discover", *words])

    def _declared(self) -> str:
        """Whether training held queries of the release, as declared."""
        rows = self.to_polars()
        own = rows.filter(pl.col("system" if "system" in rows.columns else "run") == self.system)
        return {
            contamination.Seen.YES: "Its declared training data include test queries",
            contamination.Seen.NO: "Its declared training data do not include test queries",
            contamination.Seen.UNKNOWN: "Its declared training data do not say whether test queries are included",
        }[contamination.worst(own["trained_on"])]

    def _differences(self) -> pl.DataFrame:
        """The model's differences from the first pivot, by the first measure of each test set."""
        assert isinstance(self.figures_of, Comparison)
        return self.figures_of.first_measures().filter(pl.col("system") == self.system)

    def _by_shift(self) -> Iterator[Fact]:
        """The difference on each shift or test set: its mean over queries, and in how many parts it was shown."""
        differences = self._differences()
        if differences.height == 1:
            return
        shift = pl.col("test_set").str.split(".").list.first().alias("shift")
        weighted = (pl.col("difference") * pl.col("queries")).sum() / pl.col("queries").sum()
        for (name, measure), rows in differences.group_by(shift, "measure", maintain_order=True):
            parts = rows.to_dicts()
            if len(parts) == 1:
                verdict, text = word(parts[0]), difference_shown(parts[0])
            else:
                better, worse = counts(parts)
                verdict = "mixed" if better and worse else BETTER if better else WORSE if worse else ""
                mean = parse(str(measure)).show(rows.select(weighted).item(), with_sign=True).replace("-", "\u2212")
                text = f"{mean} {measure}, better in {better} of {len(parts)} parts, worse in {worse}"
            words: dict[str, Literal["good", "bad"]] = {BETTER: "good", WORSE: "bad"}
            yield Fact(str(name), text, verdict or "not significant", words.get(verdict, "open"))

    def _worst(self, comparison: Comparison) -> Iterator[Fact]:
        """The test set, and the part of each division, with the least gain; of few queries none is named."""
        rows = self._differences().filter(pl.col("queries") >= FEW).to_dicts()
        if len(rows) > 1:
            row = min(rows, key=gain)
            yield self._least(row, "test set", row["test_set"])
        parts = comparison.parts.filter(pl.col("system") == self.system, pl.col("queries") >= FEW)
        for (test_set, by), group in parts.filter(FIRST_MEASURE).group_by("test_set", "by", maintain_order=True):
            if group.height > 1:
                row = min(group.to_dicts(), key=gain)
                where = f"by {by}" + f", {test_set}" * (len(comparison.rows["test_set"].unique()) > 1)
                yield self._least(row, where, ("queries of " if by == WORDS else "") + label(str(by), row["part"]))

    def _least(self, row: dict[str, Any], where: str, what: str) -> Fact:
        """The place of the least gain, which is the worst one where something is lost."""
        text = difference_shown(row) + ("" if word(row) else ", not significant after correction")
        return Fact(f"{'Least gain' if gain(row) > 0 else 'Worst'} {where}", text, what)

    def _wordings(self, variations: Variations) -> Iterator[Fact]:
        """What each family of other wordings, such as typos, costs the model and each pivot, and which costs most."""
        rows = variations.results.filter(FIRST_MEASURE, pl.col("rel_loss").is_not_null(), queries_are=ALL)
        family = pl.col("method").str.split(".").list.first().alias("family")
        for (test_set, name), group in rows.group_by("test_set", family, maintain_order=True):
            losses = dict(group.group_by("system", maintain_order=True).agg(pl.col("rel_loss").mean()).iter_rows())
            own = group.filter(pl.col("system") == self.system).sort("rel_loss", descending=True, maintain_order=True)
            if own.is_empty():
                continue
            row, mean = own.row(0, named=True), losses.pop(self.system)
            beside = "".join(f" ({system}: {share(value)})" for system, value in losses.items())
            lost = f"{share(mean)} of {row['measure']} lost on {test_set}{beside}"
            text = f"n = {row['queries']:,}"
            if own.height > 1:
                most = f"{row['method'].partition('.')[2]} ({share(row['rel_loss'])})"
                text += f", the mean of {own.height} kinds, most by {most}"
            yield Fact("Typos" if name == "typo" else f"Query variation {name}", text, lost)

    def to_polars(self) -> pl.DataFrame:
        """The rows of the figures."""
        return self.figures_of.to_polars()

    def tables(self) -> list[Table]:
        """The figures; then what other wordings cost in each test set's first measure."""
        changes = self.variations.by_test_set() if self.variations else []
        further = [part.tables() for part in (self.leaks, self.generalises) if part]
        return [*self.figures_of.tables(), *(tables[0] for tables in changes), *chain.from_iterable(further)]

    def figures(self) -> list[Picture]:
        """The pictures of all; after the first, the model against the first pivot, query by query."""
        parts = (self.figures_of, self.variations, self.generalises)
        pictures = list(chain.from_iterable(part.figures() for part in parts if part))
        if isinstance(self.figures_of, Comparison):
            pictures.insert(1, self._against(self.figures_of))
        return pictures

    def _against(self, comparison: Comparison) -> Picture:
        """A point a query: the pivot's value and the model's, on the main test set; its text on hover."""
        pivot = comparison.systems[0]
        row = (
            self._differences().sort(pl.col("test_set") != self._test_sets()[0], maintain_order=True).row(0, named=True)
        )
        values = comparison.values.filter(test_set=pl.lit(row["test_set"]), measure=pl.lit(row["measure"]))
        both = values.pivot("system", index="query_id", values="value").rename({pivot: "x", self.system: "y"})
        both = both.join(self.release.queries(row["test_set"]).select("query_id", "text"), on="query_id")
        shown = both.sort("query_id").gather_every(-(-both.height // _SCATTERED))
        rows = shown.select("x", "y", "text").iter_rows()
        marks = [svg.Point(x, y, f"{text}: {pivot} {x:.3f}, {self.system} {y:.3f}") for x, y, text in rows]
        above, below = (both.filter(pl.col(more) > pl.col(less)).height for more, less in (("y", "x"), ("x", "y")))
        drawn = "" if shown.height == both.height else f", of which {shown.height:,} are drawn"
        caption = (
            f"{row['measure']} of each of the {both.height:,} queries of {row['test_set']}{drawn}. "
            f"{self.system} is higher on {above:,} (above the diagonal), {pivot} on {below:,}."
        )
        picture = plots.points({self.system: marks}, pivot, self.system, caption, diagonal=True)
        return Picture(picture, caption)

    def notes(self) -> list[str]:
        """What the model was trained on, and the notes of both."""
        sources = "unknown" if self.trained_on is None else ", ".join(self.trained_on) or "nothing"
        notes = chain.from_iterable(part.notes() for part in self._results())
        said = self.shown.sentences() if self.shown else []
        if self.limit:
            said.insert(0, f"A try on the first {self.limit:,} passages: no figure here compares with another")
        return [f"Declared training data: {sources}", *said, *dict.fromkeys(notes)]

    def method(self) -> list[str]:
        """The method of all."""
        return list(dict.fromkeys(chain.from_iterable(part.method() for part in self._results())))

    def _results(self) -> Iterator[Result]:
        return filter(None, (self.figures_of, self.variations, self.generalises, self.leaks))

    def to_markdown(self) -> str:
        """A model card for the Hub: the heading, then as of every result."""
        return f"# {markdown.escape(self.heading)}\n\n{super().to_markdown()}"

    def following(self) -> list[str]:
        """The next commands, as this one was typed."""
        return list(map(str, self._commands(names_alone=False)))

    def content(self) -> dict[str, Any]:
        """The documents of both, and the declared training data."""
        varied_figures = self.variations.as_json() if self.variations else None
        leaks = None if self.leaks is None else self.leaks.counts().to_dicts()
        further: dict[str, Any] = {"variations": varied_figures, "training_data": self.trained_on, "model": self.model}
        further["leaks"] = leaks
        further |= {"shown": dict(self.shown.lines) if self.shown else None, "first_passages": self.limit}
        return self.figures_of.content() | further | {"generalises": self.generalises and self.generalises.as_json()}
