"""What is known of the runs that figures rest on: one list, made here, which every result that is made of scores has.

It follows from the runs of a provenance (:func:`eval_kit.protocols.scoring.score` writes them), so no result can lose
it on the way.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from eval_kit.errors import choices
from eval_kit.measures.definitions import parse
from eval_kit.sentences import and_more, counted, joined, most_telling, weightiest

JUDGED = "Judged@10"
MARK = "†"
"""Behind figures of models that were trained on the test queries."""
_FEW_JUDGED, _APART = 0.5, 0.05
"""The share of judged passages below which, and the difference beyond which, figures are also of the judgements."""
_RANKS = "Scores win, as in trec_eval. Without scores, ranks do, and of a repeated rank the last line"
NOTHING_JUDGED = "No passage of {} is judged. Check that its passage ids are the collection's"

_NAMED = 4
"""Names in one sentence."""

type Runs = Sequence[Mapping[str, Any]]
type Weighed = Iterator[tuple[float, str]]
"""Sentences with their weights, of which the weightiest are said."""


def first(provenance: Mapping[str, Any]) -> list[str]:
    """What may make a figure another one, a sentence each; said before any answer."""
    runs = provenance.get("runs", ())
    kinds = (_lacking, _contradicting, _of_one_score, _tied, _of_several_tags, _unjudged)
    nouns = dict.fromkeys(kinds, "run") | {_at_chance: "figure"}
    of_runs = (weightiest(list(kind(runs)), noun) for kind, noun in nouns.items())
    return list(dict.fromkeys([*_not_in_corpus(provenance.get("not_in_corpus", {})), *chain.from_iterable(of_runs)]))


def further(provenance: Mapping[str, Any]) -> list[str]:
    """What else a reader must know of the runs, a sentence each."""
    runs = provenance.get("runs", ())
    kinds = (_on_judgements, _cut_short, _left_out, _trained_on)
    of_runs = chain.from_iterable(kind(runs) for kind in kinds)
    notes = chain(_together(provenance.get("groups", {})), of_runs, _topics(provenance.get("topics", {})))
    return list(dict.fromkeys(notes))


def contradicts_throughout(run: Mapping[str, Any]) -> bool:
    """Whether a run's ranks contradict its scores in all queries of several passages: distances, say, for scores."""
    return bool(run.get("rank_contradictions")) and run["rank_contradictions"] >= run.get("of_several", 0)


def _not_in_corpus(lost: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    for name, each in lost.items():
        what = f"{each['lacking']:,} of the {each['of']:,} relevant passages of {name} are not in the corpus"
        yield f"{what}, so R at any cutoff is at most {each['most']:.4f}"


def _together(groups: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Of each test set where tests count groups of queries: how many there are, and what that does to intervals."""
    for name, each in groups.items():
        yield (
            f"The {each['queries']:,} queries of {name} hang together in {each['groups']:,} groups (by their texts or "
            f"relevant passages, if not by what you named), so intervals are up to {each['ratio']:.2f} times as wide"
        )


def _topics(names: Mapping[str, str]) -> Iterator[str]:
    if names:
        yield f"Topics (ECIR 2023, Table 1): {', '.join(map(' '.join, names.items()))}"


def _lacking(runs: Runs) -> Weighed:
    """For each run, the test set of which it lacks most queries."""
    for run in runs:
        lacking = {name: each for name, each in run.get("scored", {}).items() if each["missing"]}
        if lacking:
            name, most = max(lacking.items(), key=lambda item: (item[1]["missing"], item[1]["queries"]))
            others = counted(len(lacking) - 1, "other test set")
            further = f". It lacks queries of {others} too" * (len(lacking) > 1)
            what = f"{most['missing']:,} of the {most['queries']:,} queries of {name}, scored as 0{further}"
            yield most["missing"] / most["queries"], f"{run['run']} has no results for {what}"


def _contradicting(runs: Runs) -> Weighed:
    for run in runs:
        if count := run.get("rank_contradictions"):
            what = f"{run['run']} has ranks that contradict its scores or lines for {counted(count, 'query')}. {_RANKS}"
            yield count, what


def _of_one_score(runs: Runs) -> Weighed:
    for run in runs:
        if count := run.get("one_score"):
            what = f"{run['run']} gives all passages one score in {count:,} of {counted(run['queries'], 'query')}"
            yield count / run["queries"], what


def _tied(runs: Runs) -> Weighed:
    """Of each run and test set, the figures whose printed digits depend on ties; the widest ranges first."""
    found: dict[tuple[str, str], list[tuple[float, str]]] = {}
    queries: dict[tuple[str, str], int] = {}
    for run in runs:
        for tie in run.get("ties", ()):
            show = parse(tie["measure"]).show
            worst, best = show(tie["worst"]), show(tie["best"])
            if worst != best:
                key, width = (run["run"], tie["test_set"]), abs(tie["best"] - tie["worst"])
                found.setdefault(key, []).append((width, f"{tie['measure']} is {worst} to {best}"))
                queries[key] = max(queries.get(key, 0), tie["tied"])
    for (run_name, test_set), ranges in found.items():
        named, rest = most_telling(ranges, lambda each: each[0], 2)
        shown = ", ".join(text for _, text in named) + and_more(rest)
        ties = f"depending on the order of tied passages ({counted(queries[run_name, test_set], 'query')})"
        yield max(width for width, _ in ranges), f"{run_name} on {test_set}: {shown}, {ties}"


def _of_several_tags(runs: Runs) -> Weighed:
    for run in runs:
        if tags := run.get("tags"):
            what = f"The lines of {run['run']} have several tags ({choices(tags)}), and are ranked together as one run"
            yield len(tags), what


def _unjudged(runs: Runs) -> Weighed:
    for run in runs:
        if run.get("judged_passages") == 0:
            yield run["queries"], NOTHING_JUDGED.format(run["run"])


def _at_chance(runs: Runs) -> Weighed:
    """The first figures that a random order of the run's own passages would have too, of the most queries first."""
    for run in runs:
        for each in run.get("at_chance", ()):
            value, expected = map(parse(each["measure"]).show, (each["value"], each["expected"]))
            figures = f"its {each['measure']} is {value}, that of a random order of its passages {expected}"
            what = f"{run['run']} is not shown to be better than chance on {each['test_set']}: {figures}"
            yield each["queries"], what


def _left_out(runs: Runs) -> Iterator[str]:
    """Queries and passages of runs that were not scored."""
    for run in runs:
        if queries := run.get("unjudged_queries"):
            yield f"{run['run']} has {counted(queries, 'query')} that no test set here judges. They were left out"
        if left_out := run.get("own_passages_left_out"):
            had = f"{run['run']} had a passage with the query's own id for {counted(left_out, 'query')}"
            yield f"{had}. It was left out, as BEIR's evaluator does"


def _on_judgements(runs: Runs) -> Iterator[str]:
    """Of each test set where few passages of a run, or other shares of runs, are judged: what that means."""
    shares: dict[str, dict[str, float]] = {}
    for run in runs:
        for name, share in run.get("judged", {}).items():
            shares.setdefault(name, {})[run["run"]] = share
    for name, of_runs in shares.items():
        least, most = min(of_runs.values()), max(of_runs.values())
        if least < _FEW_JUDGED or most - least > _APART:
            ends = min(of_runs, key=of_runs.__getitem__), max(of_runs, key=of_runs.__getitem__)
            told = " to ".join(f"{run} {of_runs[run]:.2f}" for run in dict.fromkeys(ends))
            yield (
                f"{JUDGED} on {name}: {told}. Differences are of the judgements too: what nobody judged counts as not "
                "relevant"
            )


def _cut_short(runs: Runs) -> Iterator[str]:
    """Of runs that are less deep than the deepest cutoff they are scored at: what that cutoff is there."""
    found: dict[tuple[int, int], dict[str, None]] = {}
    for run in runs:
        depth, cutoff = run["depth"], run.get("cutoff", 0)
        if depth < cutoff:
            found.setdefault((depth, cutoff), {})[_system(run)] = None
    for (depth, cutoff), names in found.items():
        have = "has" if len(names) == 1 else "have"
        yield f"{_several(names)} {have} at most {counted(depth, 'passage')} a query, so @{cutoff} is really @{depth}"


def _system(run: Mapping[str, Any]) -> str:
    """What a run is called where its system is meant: all of a grid's runs are of a few."""
    return str(run.get("system", run["run"]))


def _trained_on(runs: Runs) -> Iterator[str]:
    """Which runs are of models that were trained on test queries, and of which nobody says so or not."""
    names: dict[str, dict[str, None]] = {"yes": {}, "unknown": {}}
    for run in runs:
        of_run = {each["trained_on"] for each in run.get("scored", {}).values()}
        if verdict := next((word for word in names if word in of_run), ""):
            names[verdict][_system(run)] = None
    if seen := names["yes"]:
        yield f"{MARK} trained on these test queries, so the figure is not for unseen queries: {_several(seen)}"
    told = {_system(run): run["training_data"] for run in runs if run.get("training_data")}
    for name in [each for each in names["unknown"] if each in told]:
        del names["unknown"][name]
        yield f"{name} was trained on {choices(told[name])}, and nobody says whether on these queries"
    if unknown := names["unknown"]:
        yield f"{_several(unknown)} may have seen these queries. Declare the training data in NAME.training.json"


def _several(names: Iterable[str]) -> str:
    """A few names, and how many more there are: a list of a whole grid is a line that nobody reads."""
    first, rest = list(names)[:_NAMED], list(names)[_NAMED:]
    return ", ".join(first) + and_more(len(rest)) if rest else joined(first)
