"""Synthetic typos: one edit of its kind, in a word that may be mistyped, and the same for the same seed."""

import shutil
import warnings
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from builder import variations, verify
from eval_kit.errors import UserError
from eval_kit.models import typos
from eval_kit.models.typos import KINDS
from eval_kit.release import Release, open_release

TEXTS = st.lists(st.text("abcdefgh'1é", min_size=1, max_size=8) | st.sampled_from(["the", "what", "is"]), min_size=1)


def queries(*texts: str) -> pl.DataFrame:
    return pl.DataFrame({"query_id": [str(i) for i in range(len(texts))], "text": list(texts)})


ENGLISH = ["what is the name of the river in the north of england and where is it"] * 20
"""Other queries, from which the language is seen whatever the first one is."""


def mistyped(frame: pl.DataFrame, replica: int = 1, seed: int = 13) -> dict[str, list[str]]:
    """The texts of each kind of typo."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pairs = typos.plant("dev", frame, replica, seed)
        return {
            str(variation.method): table.frame["text"].to_list()
            for variation, table in pairs
            if variation.replica == replica
        }


@settings(max_examples=20)
@given(texts=st.lists(TEXTS, min_size=1, max_size=20), seed=st.integers(0, 100))
def test_one_edit_of_one_word(texts: list[list[str]], seed: int):
    by_kind = mistyped(queries(*map(" ".join, texts), *ENGLISH), seed=seed)
    assert set(by_kind) == set(KINDS)
    for kind, typed in by_kind.items():
        for words, text in zip(texts, typed, strict=False):
            changed = [(old, new) for old, new in zip(words, text.split(" "), strict=True) if old != new]
            assert len(changed) <= 1
            for old, new in changed:
                assert len(old) >= 3 and old not in ENGLISH_STOP_WORDS
                assert len(new) - len(old) == {"delete": -1, "insert": 1}.get(kind, 0)
                if kind == "swap_adjacent":
                    assert sorted(new) == sorted(old)


def test_every_edit_is_drawn_and_no_other():
    by_kind = mistyped(queries(*["the cat"] * 300, *ENGLISH))
    keys = {f"{key}at" for key in "xvdf"} | {f"c{key}t" for key in "qwsz"} | {f"ca{key}" for key in "ryfg"}
    for kind, possible in {"delete": {"at", "ct", "ca"}, "swap_adjacent": {"act", "cta"}, "swap_key": keys}.items():
        assert set(by_kind[kind][:300]) == {f"the {word}" for word in possible}


def test_without_a_word_that_may_be_mistyped_the_text_stays():
    texts = ["what is the", "is ip qa?", "..."]
    assert {tuple(typed[:3]) for typed in mistyped(queries(*texts, *ENGLISH)).values()} == {tuple(texts)}


def test_draws_depend_on_seed_replica_and_id_alone():
    frame = queries(*["rent increases in belgium"] * 50)
    first = mistyped(frame, 1, seed=1)["insert"]
    assert first == mistyped(frame.reverse(), 1, seed=1)["insert"][::-1]
    assert len(set(first)) > 25
    assert first != mistyped(frame, 2, seed=1)["insert"]
    assert first != mistyped(frame, 1, seed=2)["insert"]


def test_other_languages_have_their_own_stop_words_and_other_scripts_three_kinds():
    german = typos.keyboard(pl.Series(["Wie viele Züge gab es in Köln?", "Wer war der Trainer?"]))
    assert not {"wie", "wer", "der"} - german.stop_words and german.kinds == tuple(KINDS)
    greek = typos.keyboard(pl.Series(["Ποια είναι η πρωτεύουσα"]))
    assert set(greek.letters) == set("ποιαείναηρωτεύυσ") and "swap_key" not in greek.kinds


def test_kinds_that_cannot_apply_say_so():
    chinese = queries("黑豹队的防守丢了多少分", "约什诺曼拦截了多少球")
    with pytest.warns(UserWarning, match="no insert, swap_key"):
        made = {variation.method: table for variation, table in typos.plant("dev", chinese)}
    assert list(made) == ["delete", "substitute", "swap_adjacent"]
    for old, new in zip(chinese["text"], made["swap_adjacent"].frame["text"], strict=True):
        assert old != new and sorted(old) == sorted(new)
    with pytest.warns(UserWarning, match="2 of the 2 queries of dev .* delete"):
        list(typos.plant("dev", queries("ab cd", "12")))


def test_typos_become_variations_of_a_release(mini_release: Release, tmp_path: Path):
    folder = tmp_path / "ms-marco-shift"
    shutil.copytree(mini_release.folder, folder)
    release, added = variations.add_typos(folder, ["dev"], replicas=2, seed=13)
    assert set(mini_release.variations) | set(added) == set(release.variations) and "dev.typo.delete.2" in added
    assert release.digest != mini_release.digest
    assert not [check for check in verify.verify(folder) if check.fault]
    assert variations.add_typos(folder, ["dev"], replicas=2, seed=13)[0].digest == release.digest
    with pytest.raises(UserError, match="has no test set 'dev3'"):
        variations.add_typos(folder, ["dev3"], replicas=1, seed=13)


def test_texts_become_variations_of_a_release(mini_release: Release, tmp_path: Path, command):
    folder = tmp_path / "ms-marco-shift"
    shutil.copytree(mini_release.folder, folder)
    queries = mini_release.queries("dl19")
    files = []
    for number in (1, 2):
        files += ["--texts", tmp_path / f"{number}.tsv"]
        texts = queries.with_columns(pl.col("text") + str(number))
        texts.write_csv(files[-1], separator="\t", include_header=False, quote_style="never")
    line = ("builder", "variations", folder, "--test-set", "dl19", *files)
    done = command(*line, "--name", "typo.mine")
    assert (done.returncode, done.stdout.splitlines()[:2]) == (0, ["dl19.typo.mine.1", "dl19.typo.mine.2"]), done.stderr
    release = open_release(folder)
    variation = release.variations["dl19.typo.mine.2"]
    assert variation.source.startswith("2.tsv (sha256 ") and variation.licence == "own"
    added = release.wordings(variation).sort("query_id")["text"].to_list()
    assert added == (queries.sort("query_id")["text"] + "2").to_list()
    assert not [check for check in verify.verify(folder) if check.fault]
    (tmp_path / "1.tsv").write_text("no-such-query\ta text\n")
    for options, words in (
        (["--name", "mine"], "<family>.<method>"),
        (["--name", "typo.mine"], "not in dl19, such as no-such-query"),
        (["--name", "typo.mine", "--test-set", "dev"], "Add one --test-set"),
    ):
        done = command(*line, *options)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1) and words in done.stderr


def test_typos_are_made_where_a_release_has_none(mini_release):
    assert typos.with_typos(mini_release, ["dl19.typo", "dl20.reformulation", "all"]) is mini_release
    release = typos.with_typos(mini_release, ["dev.typo", "dl19.typo"])
    made = [variation for variation in release.variations.values() if variation.base == "dev"]
    assert [variation.method for variation in made] == list(KINDS)
    assert release.digest == mini_release.digest and release.variations.keys() >= mini_release.variations.keys()
    [[_, table]] = [pair for pair in typos.plant("dev", release.queries("dev")) if pair[0].method == "delete"]
    assert release.wordings(made[0]).equals(table.frame)
