"""A small part of ``bench/zoo.py``: the rates that its full run has on the pages, of the cages that once were wrong."""

import json

import pytest

from bench import zoo

DRAWS = 60
CAGES = {
    "1 of 50 loses all, n = 43": ("not worse, gate", "interval", "≈"),
    "1 of 20 loses all, n = 200": ("not worse, gate", "worse, gate", "interval", "≈"),
    "each loses .1, n = 43": ("not worse, gate", "better, worse"),
    "nothing changed, n = 43": ("not worse, gate", "better, worse", "≈"),
    "RR, 2 % change, n = 200": ("needed queries", "interval"),
    "graded, n = 43": ("needed queries", "interval", "better, worse"),
    "graded, 20 systems": ("interval", "better, worse"),
    "jitter of .01, 1 of 50 loses all, n = 43": ("not worse, gate", "≈"),
    "jitter of .01, 1 of 20 loses all, n = 200": ("not worse, gate", "worse, gate", "≈"),
    "1 of 20 loses half, 40 × 30": ("such kinds", "parts differ"),
    "1 of 20 loses all, 20 × 10": ("such kinds", "not worse, parts"),
    "small gains, great losses, 60 % and 19": ("such kinds",),
    "groups of 2, alike by 0.8": ("better, worse", "interval", "not worse, gate", "a kind loses"),
    "groups of 5, alike by 0.8": ("better, worse", "interval", "not worse, gate", "a kind loses"),
    "4 divisions of 6": ("worse, parts", "parts differ"),
    "12 parts of unequal noise": ("parts differ",),
    "graded, 5 × 100, 195 × 3": ("would be found", "worse, parts"),
    "kinds that differ: size, uneven": ("such kinds",),
    "8 parts × 40": ("over parts", "parts differ"),
    "20 parts × 20": ("over parts", "parts differ"),
    "8 clusters, even": ("p of ρ given size", "p of ρ"),
    "8 clusters, two shifts": ("p of ρ given size", "p of ρ"),
    "3 trainings, SD 0.02": ("° with trainings",),
    "3 replicas, SD 0.0": ("° of wordings", "interval of wordings"),
    "panel, dl19, TAS-B": ("places in the panel",),
    "panel, dl20, BM25+RankVicuna": ("places in the panel",),
    "small gains, great losses, 200 kinds": ("a kind loses",),
    "RR, 15 % change, 200 kinds": ("a kind loses",),
    "harder by .10, n = 1,000": ("degrades", "far minus near"),
    "easier for one of two pivots, n = 1,000": ("degrades",),
}
SLOW = ("small gains, great losses, 200 × 3", "small gains, great losses, 60 % and 19", "panel, dl20, BM25+RankVicuna")
"""Claims that quicker cages make too."""


@pytest.fixture(scope="module")
def cages():
    return {name: [ask for each, ask in zoo.cages({}) if each == name] for name in CAGES}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in CAGES]
)
def test_claims_are_wrong_no_more_often_than_they_say(name: str, cages) -> None:
    found = {row["claim"]: row for ask in cages[name] for row in zoo.rates(name, ask, DRAWS)}
    for claim in CAGES[name]:
        row = found[claim]
        # four errors: one of a hundred thousand such tests fails by chance
        allowed = row["nominal"] + 4 * (row["nominal"] * (1 - row["nominal"]) / max(row["printed"], 1)) ** 0.5
        assert row["wrong"] <= allowed * row["printed"], row


@pytest.mark.parametrize("cage", ["5 clusters, even", "3 of 20 tags", "A × B", "200 × 3"])
def test_what_cannot_hold_is_not_printed(cage: str) -> None:
    [name, ask], *_ = [(name, ask) for name, ask in zoo.cages({}) if name.endswith(cage)]
    found = {row["claim"]: row["printed"] for row in zoo.rates(name, ask, 5)}
    silent = ("interval of ρ", "interval of ρ given size") if "clusters" in cage else ("such kinds",)
    assert not any(found[claim] for claim in silent)


def test_losses_are_found() -> None:
    """A rule that says nothing would never be wrong."""
    for name, claim, most in (
        ("a loss of a tenth, as hard, n = 5,000", "degrades is found", 0.2),
        ("as hard, n = 5,000", "does not is found", 0.6),
    ):
        [ask] = [ask for each, ask in zoo.cages({}) if each == name]
        row = {row["claim"]: row for row in zoo.rates(name, ask, 20)}[claim]
        assert row["wrong"] <= most * row["printed"], row


def test_the_kept_rates_have_every_claim_and_cage() -> None:
    """Of another version's claims the pages would show rates that nobody measured."""
    kept = json.loads(zoo.RESULTS.read_text(encoding="utf-8"))["rates"]
    names = {name for name, _ in zoo.cages({})}
    assert names <= {row["cage"] for row in kept}
    claims = {claim for claims in CAGES.values() for claim in claims}
    assert claims <= {row["claim"] for row in kept}
