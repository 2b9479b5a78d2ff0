"""The shifts that can be rebuilt, and their parameters: how a user sets one (``topic.k=20``)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import msgspec

from builder.assembly import TESTED, Build, ShiftResult, lacks_train
from builder.mini import RESTRAIN_SHARES
from builder.shifts import chameleons, crossed, given, length, restrain, resttest, topic, wh
from builder.shifts.chameleons import ChameleonParameters
from builder.shifts.crossed import CrossedParameters
from builder.shifts.given import GivenParameters
from builder.shifts.length import LONGEST_SHORT, LengthParameters
from builder.shifts.restrain import RestrainParameters
from builder.shifts.resttest import ResttestParameters
from builder.shifts.topic import TopicParameters
from builder.shifts.wh import WhLanguage, WhParameters
from builder.sources.mini.planted import TOPIC_SHARES
from eval_kit.errors import UserError
from eval_kit.files.numbers import whole_number

SEED = "seed"
_MOST_USED = 0.8  # our choice, for small collections; the paper's topics need 0.31 of MS MARCO's
"""Largest share of the training queries that the topics together may need."""
_FEWEST_IN_A_CLUSTER = 10  # our choice; the paper's 100 clusters hold 5,000 each
"""Queries in a cluster of k-means on average, in small collections."""
MS_MARCO_TRAINING = 502_939
"""Training queries of MS MARCO with a relevant passage; the papers' sizes are scaled as shares of them."""


@dataclass(frozen=True)
class Rebuildable:
    """A shift whose algorithm can be run on any collection.

    ``limits`` say what no rebuild can reproduce of the published lists, and why; ``lacking`` what a collection lacks
    for it; empty if nothing. One ``on_request`` is built only if it is asked for by name.
    """

    rebuild: Callable[[Build, Any], ShiftResult]
    limits: tuple[str, ...]
    encodes: bool = False
    lacking: Callable[[Build], str] = lambda build: ""
    on_request: bool = False


REBUILDABLE = {
    "topic": Rebuildable(topic.rebuild, topic.LIMITS, encodes=True, lacking=lacks_train),
    "wh": Rebuildable(wh.rebuild, wh.LIMITS, lacking=lacks_train),
    "length": Rebuildable(length.rebuild, length.LIMITS, lacking=length.lacking),
    "resttest": Rebuildable(resttest.rebuild, resttest.LIMITS, encodes=True),
    "restrain": Rebuildable(restrain.rebuild, restrain.LIMITS, encodes=True, lacking=restrain.lacking),
    "given": Rebuildable(given.rebuild, given.LIMITS, lacking=given.lacking),
    "crossed": Rebuildable(crossed.rebuild, crossed.LIMITS, encodes=True, lacking=lacks_train, on_request=True),
    "chameleons": Rebuildable(chameleons.rebuild, chameleons.LIMITS, lacking=chameleons.lacking),
}


@dataclass(frozen=True)
class ShiftParameters:
    """The parameters of each shift, by default those of its paper."""

    topic: TopicParameters = field(default_factory=TopicParameters)
    wh: WhParameters = field(default_factory=WhParameters)
    length: LengthParameters = field(default_factory=LengthParameters)
    resttest: ResttestParameters = field(default_factory=ResttestParameters)
    restrain: RestrainParameters = field(default_factory=RestrainParameters)
    given: GivenParameters = field(default_factory=GivenParameters)
    crossed: CrossedParameters = field(default_factory=CrossedParameters)
    chameleons: ChameleonParameters = field(default_factory=ChameleonParameters)

    def with_seed(self, seed: int) -> "ShiftParameters":
        """The same with one seed for all shifts that draw."""
        drawing = {}
        for shift in REBUILDABLE:
            parameters = getattr(self, shift)
            if hasattr(parameters, SEED):
                drawing[shift] = replace(parameters, seed=seed)
        return replace(self, **drawing)

    def with_settings(self, settings: Sequence[str]) -> "ShiftParameters":
        """The same with ``settings`` such as ``topic.k=20``, ``wh.rule=token`` or ``restrain.sizes=a:100,b:300``."""
        new_parameters, names = self, _papers_values()
        for setting in settings:
            name, equals, text = setting.partition("=")
            if not equals or name not in names:
                raise UserError(
                    f"--set {setting} is not name=value with a known name", do=f"Choose from: {', '.join(names)}"
                )
            shift, _, parameter = name.partition(".")
            parameters = getattr(new_parameters, shift)
            try:
                given = msgspec.convert({parameter: _structure(text, names[name])}, type(parameters), strict=False)
            except (ValueError, msgspec.ValidationError):
                kind = f"of the kind of the papers' value, {_text(names[name])}"
                raise UserError(f"{text!r} in --set {setting} is not {kind}") from None
            changed = replace(parameters, **{parameter: getattr(given, parameter)})
            new_parameters = replace(new_parameters, **{shift: changed})
        return new_parameters


def settings() -> list[str]:
    """Every parameter with the papers' value, in the form that ``--set`` takes."""
    return [f"{name}={_text(value)}" for name, value in _papers_values().items()]


def for_collection(training: int, longest_short: int = LONGEST_SHORT, language: WhLanguage = "en") -> ShiftParameters:
    """The papers' parameters, with sizes scaled to a collection.

    Sizes are the same shares of ``training`` queries as of MS MARCO's, or larger, so that a test part has 100 queries;
    where there are too few queries for that, up to half of them are tested on.
    """
    papers = ShiftParameters()
    sizes = {}
    for size in papers.restrain.sizes.values():
        count = _share(size, training)
        sizes[str(count) if count < 1_000 else f"{round(count / 1_000)}k"] = count  # the paper's style: 14k
    return replace(
        papers,
        topic=_topic(papers.topic, training),
        wh=replace(_wh(papers.wh, training), language=language),
        length=replace(papers.length, words=longest_short, size=max(1, _share(papers.length.size, training))),
        restrain=RestrainParameters(MappingProxyType(sizes)),
    )


def _topic(paper: TopicParameters, training: int) -> TopicParameters:
    least = max(_share(paper.size, training), round(TESTED / paper.test_share))
    size = max(2, min(least, round(_MOST_USED * training / paper.topics)))
    k = min(paper.k, max(2 * paper.topics, training // _FEWEST_IN_A_CLUSTER))
    return replace(paper, k=k, size=size, test_share=_test_share(paper.test_share, size))


def _wh(paper: WhParameters, training: int) -> WhParameters:
    size = max(2, _share(paper.size, training), min(round(TESTED / paper.test_share), training))
    third = min(size, max(2, training // 3))  # how many queries of a cluster there may be
    return replace(paper, size=size, test_share=_test_share(paper.test_share, third))


def _test_share(paper: float, size: int) -> float:
    return min(0.5, max(paper, round(TESTED / size, 3)))


def _share(size: int, training: int) -> int:
    return round(size * training / MS_MARCO_TRAINING)


def for_mini(training: int) -> ShiftParameters:
    """Parameters for a mini collection with ``training`` queries: topics and ReSTrain sets of the planted shares."""
    sizes = {name: round(share * training) for name, share in RESTRAIN_SHARES.items()}
    return ShiftParameters(
        topic=TopicParameters(k=20, size=round(TOPIC_SHARES[0] * training)),
        restrain=RestrainParameters(MappingProxyType(sizes)),
    )


def _papers_values() -> dict[str, Any]:
    """The papers' values of all that can be set, by name; the seed is common to all and not among them."""
    of_shifts = {shift: vars(getattr(ShiftParameters(), shift)) for shift in REBUILDABLE}
    return {f"{shift}.{name}": own[name] for shift, own in of_shifts.items() for name in own if name != SEED}


def _text(value: Any) -> str:
    """The text that ``--set`` reads as this value."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}:{size}" for name, size in value.items())
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _structure(text: str, like: Any) -> Any:
    """The text as a mapping of texts or in its numbers' order, where the papers' value is such; the inverse of _text.

    Raises:
        ValueError: it has not that form.
    """
    if isinstance(like, Mapping):
        pairs = [part.split(":") for part in text.split(",")]
        if len(sizes := dict(pairs)) < len(pairs):
            raise ValueError(text)
        return sizes
    return sorted(set(map(_whole, text.split(",")))) if isinstance(like, tuple) else text


def _whole(text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise ValueError(text)
    return number
