"""``python -m bench.zoo``: every sign, interval and word of the kit, on values whose truth is known.

A *cage* draws per-query values: losses that are rare, skewed, tied or absent, few queries or many, parts of every size.
A *claim* says of them what a command would print, and whether that is wrong. Each claim is asked in each cage that has
what it is about; the rates go to ``bench/results/zoo.json``, and from there to the pages. ``--values FILE`` adds cages
that resample real values, from ``eval_kit score --per-query``.
"""

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from bench import zoo_generalise
from eval_kit.divisions import FEWEST, WHOLE, Division
from eval_kit.protocols import by_part, differences_shown, panel
from eval_kit.stats import losses
from eval_kit.stats.differences import NOT_WORSE, WORSE, difference, verdict
from eval_kit.stats.halves import worst
from eval_kit.stats.parts import Floats, Parts, heterogeneity
from eval_kit.tables.table import ALPHA

RESULTS = Path(__file__).parent / "results" / "zoo.json"
MEASURE, MARGIN, RESAMPLES = "RR@10", 0.02, 1_000
NIGHTS = 30

type Rng = np.random.Generator
type Outcomes = dict[str, bool | None]
"""Whether what each claim says is wrong; None where it is not printed."""


@dataclass(frozen=True)
class Animal:
    """Values of one kind: ``draw`` gives those of n queries before and after; ``truth`` is the expected difference."""

    draw: Callable[[Rng, int], tuple[Floats, Floats]]
    truth: float = 0.0
    level: float = 1.0


def rr(rng: Rng, n: int) -> Floats:
    """Reciprocal ranks, a quarter of which are 0."""
    return np.where(rng.random(n) < 0.25, 0, 1 / np.minimum(rng.geometric(0.6, n), 10))


def _rare(share: float, lost: float) -> Animal:
    return Animal(lambda rng, n: (np.ones(n), 1.0 - lost * (rng.random(n) < share)), -share * lost)


def _lose_all(share: float) -> Animal:
    def draw(rng: Rng, n: int) -> tuple[Floats, Floats]:
        before = rr(rng, n)
        return before, before * (rng.random(n) >= share)

    level = float(rr(np.random.default_rng(0), 1_000_000).mean())
    return Animal(draw, -share * level, level)


def _changed(share: float) -> Animal:
    """Of this share of the queries another draw, so that neither system is better."""

    def draw(rng: Rng, n: int) -> tuple[Floats, Floats]:
        before = rr(rng, n)
        return before, np.where(rng.random(n) < share, rr(rng, n), before)

    return Animal(draw, 0.0, 0.583)


def _jitter(share: float) -> Animal:
    """A little noise in every query, as of a quantised index, and a share that loses all."""

    def draw(rng: Rng, n: int) -> tuple[Floats, Floats]:
        before = rng.beta(4, 2, n)
        return before, np.where(rng.random(n) < share, 0.0, before + rng.normal(0, 0.01, n))

    return Animal(draw, -share * 2 / 3, 2 / 3)


def _around(noise: Callable[[Rng, int], Floats]) -> Animal:
    return Animal(lambda rng, n: (before := rng.beta(2, 2, n), before + noise(rng, n)), 0.0, 0.5)


ANIMALS = {
    "1 of 100 loses all": _rare(0.01, 1),
    "1 of 50 loses all": _rare(0.02, 1),
    "1 of 20 loses all": _rare(0.05, 1),
    "1 of 20 loses half": _rare(0.05, 0.5),
    "RR, a tenth loses all": _lose_all(0.1),
    "jitter of .01, 1 of 50 loses all": _jitter(0.02),
    "jitter of .01, 1 of 20 loses all": _jitter(0.05),
    "small gains, great losses": _around(lambda rng, n: np.where(rng.random(n) < 0.1, -0.36, 0.04)),
    "heavy tails": _around(lambda rng, n: 0.1 * rng.standard_t(2.5, n)),
    "graded": _around(lambda rng, n: rng.normal(0, 0.15, n)),
    "RR, 2 % change": _changed(0.02),
    "RR, 15 % change": _changed(0.15),
    "nothing changed": Animal(lambda rng, n: (before := rr(rng, n), before), 0.0, 0.583),
    "each loses .1": Animal(lambda rng, n: (before := rng.beta(2, 2, n), before - 0.1), -0.1, 0.5),
}
SIZES = (15, 43, 200, 1_000, 20_000)
UNEVEN = [10, 12, 15, 20, 25, 30, 40, 60, 80, 100, 150, 200, 300, 400, 500, 50, 25, 15, 12, 10]
LAYOUTS: dict[str, list[int]] = {"5 × 50": [50] * 5, "20 × 10": [10] * 20, "40 × 30": [30] * 40, "200 × 3": [3] * 200}
LAYOUTS |= {
    "6 × 100": [100] * 6,
    "12 × 60": [60] * 12,
    "60 % and 19": [600] + [21] * 19,
    "10 to 500": UNEVEN,
    "5 × 100, 195 × 3": [100] * 5 + [3] * 195,
}
TAGS, CROSSED = {"3 of 20 tags": 3, "6 of 20 tags": 6}, "A × B"


def compared(animal: Animal, rng: Rng, size: int, systems: int = 1) -> Outcomes:
    """The signs, intervals and ≈ of ``compare``, beside one baseline."""
    pairs = [animal.draw(rng, size) for _ in range(systems)]
    figures = [difference(after - before) for before, after in pairs]
    alike = losses.holm([losses.p_equivalent(*pair) for pair in pairs])
    signs, hold = [], []
    for figure, (ends, p) in zip(figures, losses.simultaneous(figures), strict=True):
        row = {"p_holm": p, "difference": figure.value, "measure": MEASURE}
        signs.append(_wrong_sign(differences_shown.word(row), animal.truth))
        hold += [_misses(ends, animal.truth)] if ends[0] is not None else []
    is_loss = -animal.truth >= losses.MARGIN * animal.level
    equivalent = is_loss and any(p is not None and p < ALPHA for p in alike)
    return {"better, worse": any(signs), "interval": any(hold) if hold else None, "≈": equivalent}


def lost(animal: Animal, rng: Rng, size: int) -> Outcomes:
    """The interval of a Rel Loss, and that of the difference of two systems' losses."""
    before, after = animal.draw(rng, size)
    _, _, loss = losses.relative_loss(before, after, resamples=RESAMPLES)
    other = before + np.subtract(*animal.draw(rng, size)[::-1])
    apart = losses.difference_of_losses((before, after), (before, other)).interval
    return {
        "Rel Loss": _misses(loss.interval, -animal.truth / animal.level) if loss.interval[0] is not None else None,
        "difference of losses": _misses(apart, 0.0) if apart[0] is not None else None,
    }


def gated(animal: Animal, rng: Rng, size: int) -> Outcomes:
    """The gate of a whole test set, at a margin that is the true loss."""
    before, after = animal.draw(rng, size)
    margin = -animal.truth or MARGIN
    [row], _ = _by_part(before, after, None, margin)
    return _verdicts([row["verdict"]], animal.truth, margin, "gate")


def planned(animal: Animal, rng: Rng, size: int) -> Outcomes:
    """Whether "not worse" needs as many queries as the gate says, where nothing is lost."""
    [row], _ = _by_part(*animal.draw(rng, size), None, MARGIN)
    if animal.truth or not FEWEST <= row["needed"] < 20_000:
        return {}
    [again], _ = _by_part(*animal.draw(rng, row["needed"]), None, MARGIN)
    return {"needed queries": again["verdict"] != NOT_WORSE}


def night_after_night(animal: Animal, rng: Rng, size: int) -> Outcomes:
    """Whether one of thirty nights, on new queries each, says *worse* though nothing was lost."""
    nights = [animal.draw(rng, size) for _ in range(NIGHTS)]
    return {"thirty nights": WORSE in [_by_part(*each, None, MARGIN)[0][0]["verdict"] for each in nights]}


def in_parts(animal: Animal, rng: Rng, layout: str) -> Outcomes:
    """All that ``compare --by`` says of parts that differ by chance alone."""
    division, size = _division(layout, rng)
    before, after = animal.draw(rng, size)
    margin = -animal.truth or MARGIN
    rows, over = _by_part(before, after, division, margin)
    kinds = over[0] if over else {}
    tested = [row for row in rows if row["verdict"]]
    outcomes: Outcomes = {
        "such kinds": _misses((kinds["low"], kinds["high"]), animal.truth) if kinds.get("low") is not None else None,
        "parts differ": kinds["p_parts_holm"] < 0.05 if kinds.get("p_parts_holm") is not None else None,
        "parts' intervals": any(_misses((row["low"], row["high"]), animal.truth) for row in tested) if tested else None,
    }
    if tested and not animal.truth and tested[0]["detectable"]:
        moved = np.isin(np.arange(size), _of(division, tested[0]["part"])) * tested[0]["detectable"]
        again = _by_part(before, after - moved, division, margin)[0]
        outcomes["would be found"] = next(row for row in again if row["part"] == tested[0]["part"])["p_holm"] >= 0.05
    return outcomes | _verdicts([row["verdict"] for row in tested], animal.truth, margin, "parts")


def of_kinds(setting: str, rng: Rng) -> Outcomes:
    """Parts whose kinds do differ: the mean of kinds, and the next kind."""
    sizes = np.array(UNEVEN if "uneven" in setting else [30] * 20)
    kinds = rng.normal(0, 0.05, len(sizes) + 1)
    if "size" in setting:  # the larger half of the parts loses
        kinds = np.append(np.where(sizes > np.median(sizes), -0.05, 0.0), np.nan)
    part = np.repeat(np.arange(len(sizes)), sizes)
    noise = np.where(np.arange(len(sizes)) % 2, 0.4, 0.1) if "noise" in setting else np.full(len(sizes), 0.2)
    before = rng.beta(2, 2, len(part))
    after = before + kinds[part] + rng.normal(0, 1, len(part)) * noise[part]
    _, over = _by_part(before, after, Division("parts", _frame(np.arange(len(part)), part), ""), None)
    mean = kinds[:-1].mean() if "size" in setting else 0.0
    return {"such kinds": _misses((over[0]["low"], over[0]["high"]), mean)}


def of_unequal_noise(number: int, rng: Rng) -> Outcomes:
    """Parts of one kind, half of which are four times as noisy."""
    part = np.repeat(np.arange(number), 60)
    before = rng.beta(2, 2, len(part))
    after = before + rng.normal(0, 1, len(part)) * np.where(part % 2, 0.4, 0.1)
    _, over = _by_part(before, after, Division("parts", _frame(np.arange(len(part)), part), ""), None)
    return {"parts differ": over[0]["p_parts_holm"] < 0.05}


def of_groups(setting: tuple[int, float], rng: Rng) -> Outcomes:
    """Queries that hang together by so many, and fare alike by so much (ICC); no loss but that of the margin."""
    size, alike = setting
    group = np.repeat(np.arange(1_000 // size), size)
    noise = 0.3 * (
        alike**0.5 * rng.normal(size=group.max() + 1)[group] + (1 - alike) ** 0.5 * rng.normal(size=len(group))
    )
    found, lost = difference(noise, groups=group), difference(noise - MARGIN, groups=group)
    holders = [rng.random(group.max() + 1) < rng.uniform(0.04, 0.4) for _ in range(100)]
    kinds = {str(number): np.flatnonzero(holder[group]) for number, holder in enumerate(holders)}
    said = verdict(lost.p, lost.p_loses(MARGIN), lost.value or 0.0, lost.differ)
    return {
        "better, worse": (found.p or 1.0) < 0.05,
        "interval": _misses(found.interval, 0.0),
        "not worse, gate": said == NOT_WORSE,
        "a kind loses": any(kind.loses for kind in worst(noise, kinds, FEWEST, groups=group)),
    }


def of_divisions(number: int, rng: Rng) -> Outcomes:
    """A gate of one call with several divisions, where nothing is lost."""
    ids = np.arange(600)
    divisions = [Division(str(each), _frame(ids, rng.integers(6, size=600)), "") for each in range(number)]
    before = rng.beta(2, 2, 600)
    rows, over = _by_part(before, before + rng.normal(0, 0.15, 600), divisions, MARGIN)
    differ = any(row["p_parts_holm"] < 0.05 for row in over)
    return {"worse, parts": any(row["verdict"] == WORSE for row in rows), "parts differ": differ}


def over_parts(setting: tuple[int, int], rng: Rng) -> Outcomes:
    """``protocol`` over parts that all lose a tenth."""
    pairs = [ANIMALS["RR, a tenth loses all"].draw(rng, setting[1]) for _ in range(setting[0])]
    found = [
        (1 - after.mean() / before.mean(), (losses.error_of_loss(before, after) or (0.0,))[0])
        for before, after in pairs
    ]
    kinds = heterogeneity(*np.array(found).T, np.full(len(pairs), float(setting[1])))
    if kinds is None:
        return {}
    return {"over parts": _misses(kinds.interval, 0.1), "parts differ": kinds.p_q < 0.05}


def of_trainings(setting: tuple[int, float], rng: Rng) -> Outcomes:
    """° of several trainings that lose nothing, and differ by so much of In."""
    number, spread = setting
    queries = rng.beta(2, 2, 400)
    sides = [queries + rng.normal(0, 0.1, (number, 400)) + rng.normal(0, spread / 2, (number, 1)) for _ in "io"]
    return {"° with trainings": (losses.paired_t_test(*sides).p or 1.0) < 0.05}


def of_replicas(setting: tuple[int, float], rng: Rng) -> Outcomes:
    """Wordings that cost nothing, in so many replicas whose draws cost so much."""
    number, spread = setting
    clean = np.broadcast_to(rng.beta(2, 2, 200), (number, 200))
    other = clean + rng.normal(0, 0.15, clean.shape) + rng.normal(0, spread, (number, 1))
    interval = losses.relative_loss(clean, other, resamples=RESAMPLES)[2].interval
    wrong = (losses.paired_t_test(clean, other).p or 1.0) < 0.05
    return {"° of wordings": wrong, "interval of wordings": _misses(interval, 0.0)}


def of_clusters(setting: tuple[int, str], rng: Rng) -> Outcomes:
    """Spearman's ρ where there is none, alone and given sizes that go with the similarity."""
    size, kind = setting
    sizes = rng.normal(size=size)
    shift = np.sort(np.arange(size) % 2) if kind == "two shifts" else np.zeros(size)
    similar, loss = 0.8 * sizes + 0.6 * rng.normal(size=size) + 2 * shift, rng.normal(size=size) + 2 * shift
    outcomes: Outcomes = {}
    for name, given in (("ρ", None), ("ρ given size", sizes)):
        x = np.exp(similar) if kind == "skewed" else similar
        rho = losses.spearman(x, loss, given=given, within=shift, resamples=RESAMPLES)
        outcomes[f"p of {name}"] = None if rho.p is None else rho.p < 0.05
        if not shift.any():  # of two shifts that differ, ρ itself is not 0
            outcomes[f"interval of {name}"] = _misses(rho.interval, 0.0) if rho.interval[0] is not None else None
    return outcomes


def in_panel(setting: tuple[str, str], rng: Rng) -> Outcomes:
    """The places of a system that is left out of the panel, on queries that are drawn anew."""
    columns = panel.columns_of(setting[0], "nDCG@10")
    rows = rng.integers(len(columns[setting[1]]), size=len(columns[setting[1]]))
    own = columns.pop(setting[1])
    place = 1 + sum(column.mean() > own.mean() for column in columns.values())
    better, worse = panel.apart({name: (column - own)[rows] for name, column in columns.items()})
    return {"places in the panel": not 1 + len(better) <= place <= 1 + len(columns) - len(worse)}


def discovered(animal: Animal, rng: Rng) -> Outcomes:
    """Whether ``discover`` says that a kind loses, of many that overlap, where none does."""
    before, after = animal.draw(rng, 1_000)
    kinds = {str(kind): np.flatnonzero(rng.random(1_000) < rng.uniform(0.02, 0.4)) for kind in range(200)}
    return {"a kind loses": any(kind.loses for kind in worst(after - before, kinds, FEWEST))}


SIMPLE = (compared, lost, gated, planned)
NOMINAL = {"would be found": 0.2, "needed queries": 0.2, "thirty nights": None}
"""How often a claim may be wrong; 0.05 but for these."""


def cages(values: Mapping[str, Animal]) -> Iterator[tuple[str, Callable[[Rng], Outcomes]]]:
    """Each cage by its name, with what is claimed of one draw of it."""
    animals = {**ANIMALS, **values}
    for name, animal in animals.items():
        for size in SIZES:
            for ask in SIMPLE:
                if size < 20_000 or ask is not lost:
                    yield f"{name}, n = {size:,}", lambda rng, ask=ask, animal=animal, size=size: ask(animal, rng, size)
        if not animal.truth or name.endswith("random signs"):
            yield f"{name}, 200 kinds", lambda rng, animal=animal: discovered(animal, rng)
        for layout in (*LAYOUTS, *TAGS, CROSSED):
            yield f"{name}, {layout}", lambda rng, animal=animal, layout=layout: in_parts(animal, rng, layout)
    for name in ("graded", "heavy tails", "small gains, great losses", "RR, 15 % change"):
        for count in (5, 20):
            yield (
                f"{name}, {count} systems",
                lambda rng, name=name, count=count: compared(ANIMALS[name], rng, 200, count),
            )
    yield "graded, n = 200", lambda rng: night_after_night(ANIMALS["graded"], rng, 200)
    for name in ("even", "uneven", "noise, uneven", "noise, even", "size, uneven"):
        yield f"kinds that differ: {name}", lambda rng, name=name: of_kinds(name, rng)
    known = panel.columns_of("dl19", "nDCG@10")
    settings: tuple[tuple[str, Any, list[Any]], ...] = (
        ("groups of {}, alike by {}", of_groups, [(n, icc) for n in (2, 5, 50) for icc in (0.0, 0.3, 0.8)]),
        ("{} parts × {}", over_parts, [(5, 50), (5, 300), (8, 40), (20, 20)]),
        ("{} trainings, SD {}", of_trainings, [(n, sd) for n in (2, 3, 5) for sd in (0.02, 0.05)]),
        ("{} replicas, SD {}", of_replicas, [(n, sd) for n in (1, 2, 3, 10) for sd in (0.0, 0.02)]),
        ("panel, {}, {}", in_panel, [(year, system) for year in ("dl19", "dl20") for system in known]),
        ("{} clusters, {}", of_clusters, [(n, how) for n in (5, 8, 16) for how in ("even", "skewed", "two shifts")]),
    )
    for text, ask, those in settings:
        for setting in those:
            yield text.format(*setting), lambda rng, ask=ask, setting=setting: ask(setting, rng)
    for number in (1, 2, 4, 6):
        yield f"{number} divisions of 6", lambda rng, number=number: of_divisions(number, rng)
        yield f"{6 * number} parts of unequal noise", lambda rng, number=number: of_unequal_noise(6 * number, rng)
    yield from zoo_generalise.cages()


def rates(name: str, ask: Callable[[Rng], Outcomes], draws: int) -> list[dict[str, Any]]:
    """A row for each claim: ``printed`` and ``wrong`` draws; what is not printed is not wrong."""
    found: dict[str, list[bool]] = {}
    for number in range(draws):
        for claim, wrong in ask(np.random.default_rng([number, *name.encode()])).items():
            found.setdefault(claim, []).extend([] if wrong is None else [bool(wrong)])
    return [
        {"cage": name, "claim": claim, "nominal": NOMINAL.get(claim, 0.05), "printed": len(each), "wrong": sum(each)}
        for claim, each in found.items()
    ]


def real(path: Path) -> dict[str, Animal]:
    """Resampled values of the first two runs of a file: as they are, and with differences of random sign."""
    frame = pl.read_csv(path, separator="\t", schema_overrides={"query_id": pl.String})
    frame = frame.filter(measure=frame["measure"][0], test_set=frame["test_set"][0])
    runs = frame["run"].unique(maintain_order=True)[:2]
    before, after = (frame.filter(run=pl.lit(run)).sort("query_id")["value"].to_numpy() for run in runs)

    def draw(rng: Rng, n: int, signed: bool) -> tuple[Floats, Floats]:
        rows = rng.integers(len(before), size=n)
        sign = rng.choice([-1.0, 1.0], n) if signed else 1.0
        return before[rows], before[rows] + sign * (after - before)[rows]

    truth, level = float((after - before).mean()), float(before.mean())
    return {
        path.stem: Animal(lambda rng, n: draw(rng, n, False), truth, level),
        f"{path.stem}, random signs": Animal(lambda rng, n: draw(rng, n, True), 0.0, level),
    }


def _by_part(
    before: Floats, after: Floats, division: Division | list[Division] | None, margin: float | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of ``compare --by``, or of a gate alone."""
    ids = list(map(str, range(len(before))))
    whole = Division(WHOLE, pl.DataFrame({"query_id": ids, "part": "all"}), "")
    parts = division if isinstance(division, list) else [division or whole]
    sides = [
        pl.DataFrame({"query_id": ids, "value": side, "system": name}) for name, side in (("a", before), ("b", after))
    ]
    values = pl.concat(sides).with_columns(test_set=pl.lit("test"), measure=pl.lit(MEASURE), searched=True)
    values = values.with_columns(group=pl.col("query_id").cast(pl.Int64))
    rows, over = by_part.compared(values, ("a", "b"), {"test": parts}, margin)
    return rows.to_dicts(), over.to_dicts()


def _division(layout: str, rng: Rng) -> tuple[Division, int]:
    """The parts of a layout, and how many queries it has."""
    if layout in TAGS:
        members = np.argsort(rng.random((500, 20)), axis=1)[:, : TAGS[layout]]
        return Division(layout, _frame(np.repeat(np.arange(500), TAGS[layout]), members.ravel()), ""), 500
    if layout == CROSSED:
        return Division(layout, _frame(np.arange(1_200), np.arange(1_200) % 60), "", crosses=True), 1_200
    sizes = LAYOUTS[layout]
    return Division(layout, _frame(np.arange(sum(sizes)), np.repeat(np.arange(len(sizes)), sizes)), ""), sum(sizes)


def _frame(queries: Parts, parts: Parts) -> pl.DataFrame:
    return pl.DataFrame({"query_id": queries, "part": parts}).select(pl.all().cast(pl.String))


def _of(division: Division, part: str) -> list[int]:
    return division.parts.filter(part=pl.lit(part))["query_id"].cast(pl.Int64).to_list()


def _verdicts(said: list[str], truth: float, margin: float, where: str) -> Outcomes:
    """Whether any of the words is wrong."""
    return {
        f"not worse, {where}": NOT_WORSE in said and -truth >= margin,
        f"worse, {where}": WORSE in said and truth >= 0,
    }


def _misses(ends: tuple[float | None, float | None], truth: float) -> bool:
    low, high = ends
    return low is not None and high is not None and not low - 1e-12 <= truth <= high + 1e-12


def _wrong_sign(word: str, truth: float) -> bool:
    return (word == differences_shown.BETTER and truth <= 0) or (word == WORSE and truth >= 0)


def _rates(number: int, draws: int, values: list[Path]) -> list[dict[str, Any]]:
    animals = {name: animal for path in values for name, animal in real(path).items()}
    name, ask = list(cages(animals))[number]
    return rates(name, ask, draws)


def main() -> None:
    """Ask every claim in every cage on all cores, and write the rates."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--values", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    names = [
        name for name, _ in cages({name: animal for path in arguments.values for name, animal in real(path).items()})
    ]
    rows = []
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:  # polars does not survive a fork
        draws, values = [[each] * len(names) for each in (arguments.draws, arguments.values)]
        for done, found in enumerate(pool.map(_rates, range(len(names)), draws, values), 1):
            rows += found
            print(f"\r{done} of {len(names)} cages", end="", flush=True)
    rows.sort(key=lambda row: row["claim"])
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    arguments.out.write_text(f'{{"draws": {arguments.draws}, "rates": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
