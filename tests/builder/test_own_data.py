"""What people bring of their own: logs, parts, terms, folders of odd splits, and the commands that they give twice."""

import gzip
import json
import random
import re
from dataclasses import replace
from itertools import chain
from pathlib import Path
from unicodedata import normalize

import polars as pl
import pytest
from drafts import faults
from huggingface_hub import DatasetCard
from msgspec.structs import replace as replace_field

from builder import audit, rebuilt, variations
from builder import release as releases
from builder.collection import split_name
from builder.export import export
from builder.lite import of_passages
from builder.permission import permitted_part
from builder.shifts import given, length, resttest
from builder.sources import beir, log, mini, released
from builder.verify import verify
from eval_kit import question_words
from eval_kit.errors import UserError
from eval_kit.models import typos
from eval_kit.release import Release, open_release, read_manifest, title
from eval_kit.shifts import SHIFTS


def build(folder: Path, out: Path, shift: str, *settings: str) -> Release:
    parameters = rebuilt.defaults(collection := beir.collection(folder)).with_settings(settings)
    releases.write(rebuilt.draft(collection, [shift], None, parameters), out)
    return open_release(out)


def test_a_test_set_named_twice_is_varied_once(toy: Path, tmp_path: Path) -> None:
    build(toy, tmp_path / "own", "length")
    release, names = variations.add_typos(tmp_path / "own", ["length.short", "length.short"])
    assert len(names) == len(set(names)) == len(typos.KINDS) and not faults(release.folder)


def test_the_length_of_a_query_does_not_depend_on_the_others(toy: Path, tmp_path: Path) -> None:
    blanks = pl.Series("text", [" a b c d e"])
    assert length.lengths(pl.concat([blanks, pl.Series("text", ["什么 是 爱"])]))[0] == length.lengths(blanks)[0] == 6
    release = build(toy, tmp_path / "own", "length", "length.words=4")
    checks = [check.what for check in verify(release.folder)]
    assert "clusters follow the length rule (length/train)" in checks and not faults(release.folder)


def test_levels_are_compared_in_the_order_of_their_numbers(toy: Path, tmp_path: Path) -> None:
    draw = random.Random(2)
    runs = {}
    for name in ("a", "b", "c"):
        lines = []
        for number in range(400, 460):
            ranked = [f"p{number}", "p1", "p2"]
            draw.shuffle(ranked)
            lines += [f"q{number} Q0 {passage} {rank} {9 - rank} {name}\n" for rank, passage in enumerate(ranked, 1)]
        runs[name] = tmp_path / f"{name}.trec"
        runs[name].write_text("".join(lines))
    parameters = rebuilt.defaults(beir.collection(toy)).with_settings(["chameleons.levels=5,10,50"])
    draft = rebuilt.draft(beir.collection(toy), ["chameleons"], None, parameters, runs=runs)
    releases.write(draft, tmp_path / "own")
    assert not faults(tmp_path / "own")


def test_whole_words_leave_out_of_training_what_their_own_rule_finds(toy: Path, tmp_path: Path) -> None:
    release = build(toy, tmp_path / "own", "wh", "wh.rule=token")
    texts = SHIFTS["wh"].training(release, "how").queries["text"]
    assert texts.str.contains("what").any() and not texts.str.contains(r"\bhow\b").any()
    shown = question_words.contains(pl.col("text"), ("how",), True)
    assert not pl.DataFrame({"text": ["what is the show"]}).select(shown).item()


def test_names_and_question_words_are_the_same_in_every_unicode_form(toy: Path, tmp_path: Path) -> None:
    texts = pl.DataFrame({"text": [normalize(form, "là gì thế Où") for form in ("NFC", "NFD")]})
    for form in ("NFC", "NFD"):
        for term in ("là gì", "où"):
            assert texts.select(question_words.contains(pl.col("text"), (normalize(form, term),), True))["text"].all()
    (file := tmp_path / "parts.tsv").write_text(normalize("NFC", "q1\tSaúde\n") + normalize("NFD", "q2\tSaúde\n"))
    assert given.read_given(str(file), toy)["part"].n_unique() == 1


def test_a_release_is_named_as_the_hub_takes_it(mini_release: Release) -> None:
    for name, word in (
        ("beir/nfcorpus", "nfcorpus-shift"),
        ("Coleção – nº 1 (v1.0)", "Colecao-no-1-v1.0-shift"),
        ("質問", "shift"),
    ):
        assert title(replace_field(mini_release.manifest, built_from=name)) == word


def test_a_bucket_without_a_test_query_is_remarked_on() -> None:
    buckets = pl.Series("bucket", ["b1"] * 40 + ["b2"] * 3, dtype=pl.Enum(["b1", "b2", "b3"]))
    assert resttest._size_remarks(buckets)[1].endswith("too few to conclude from: b2 (3), b3 (0)")


def test_crossed_hold_outs_are_audited(tmp_path: Path) -> None:
    collection = mini.collection(mini.MiniParameters(queries=2_000))
    numbers = collection.train.select("query_id").with_row_index("n")
    collection = replace(collection, parts=numbers.select("query_id", part=pl.format("a{}", pl.col("n") % 32)))
    parameters = rebuilt.defaults(collection).with_settings(["crossed.models=4"])
    releases.write(rebuilt.draft(collection, ["crossed"], None, parameters), tmp_path / "own")
    release = open_release(tmp_path / "own")
    found = list(audit.pairs(release))
    names = [pair.name for pair in found]
    assert set(found[0].test) == release.test_sets["crossed.m1"].query_ids
    assert names == [f"crossed.m{number} held out" for number in range(1, 5)]
    assert {"crossed.m1"} < set(release.test_sets) and audit.audit(release)["pairs"][0]["train"] > 100


def test_ids_of_a_log_are_those_of_its_texts_or_numbers(tmp_path: Path) -> None:
    file = tmp_path / "LOG.CSV"
    file.write_text("id,query,n\nu1,what is a dog,1\nu1,how to fly,5\nu2,cat,2\n")
    collection = log.collection(file)
    assert collection.queries["train"].rows() == [("1", "what is a dog"), ("2", "how to fly"), ("3", "cat")]
    assert "3 distinct queries" in collection.remarks[0] and "number of its first row" in collection.remarks[-1]
    file.write_text("id,query\na,dog\na,dog\nb,cat\n")
    assert log.collection(file).queries["train"].rows() == [("a", "dog"), ("b", "cat")]


@pytest.mark.parametrize(
    ("name", "content", "texts", "searches"),
    [
        ("log.csv", 'query,count\na b,3.0\n"c ""d"",",2\n', ["a b", 'c "d",'], 5),
        ("log.csv", 'query,count\na b,"1,234"\nc, 2 \n', ["a b", "c"], 1_236),
        ("log.csv", "id;query;count\nx;a, b;1e3\ny;c;2\n", ["a, b", "c"], 1_002),
        ("log.csv", 'query\n"a, b"\nc\n', ["a, b", "c"], 2),
        ("log.tsv.gz", "query\tn\na b\t3\n", ["a b"], 3),
        ("log.tsv", 'query\tid\n"say ""hi"""\t1\n"new york"\t2\n', ['say "hi"', '"new york"'], 2),
        ("log.tsv", "question\na b\n\nc;d\n#e, f\na b\n", ["a b", "c;d", "#e, f"], 4),
        ("log.txt", "berlin,germany\na; query\n", ["berlin,germany", "a; query"], 2),
        ("log.txt", "1\tid\n2\ttext\n", ["id", "text"], 2),
        ("log.jsonl", '{"query": "a", "count": 2.0}\n{"query": "b", "count": 1}\n', ["a", "b"], 3),
        *(("log.csv", f"query,count\na,3\nb,{count}\n", [], 3) for count in ("٣", "1.5", '"3,0"', "-2", "", "many")),
        ("log.tsv", "a\nb\0c\n", [], 2),
        ("log.tsv", "x\ta\nb\n", [], 2),
    ],
)
def test_a_log_is_read_as_any_file_is(name: str, content: str, texts: list[str], searches: int, tmp_path: Path) -> None:
    """Where there are no texts, the line of the fault."""
    file = tmp_path / name
    file.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    if not texts:
        with pytest.raises(UserError, match=rf"{name}:{searches}: "):
            log.collection(file)
        return
    found = log.collection(file)
    assert found.queries["train"]["text"].to_list() == texts
    assert f" asked {searches:,} times, hold {len(texts)} distinct" in found.remarks[0]


def test_topics_of_queries_alone_are_topics_and_not_wordings(shared: Path, tmp_path: Path) -> None:
    articles, lines, parts = set[str](), "", "query_id\tpart\n"
    for row in (shared / "beir" / "squad" / "queries.jsonl").open():
        query = json.loads(row)
        if len(articles | {query["metadata"]["article"]}) <= 30:
            articles.add(query["metadata"]["article"])
            lines += f"{query['_id']}\t{' '.join(query['text'].split())}\n"
            parts += f"{query['_id']}\t{query['metadata']['article']}\n"
    (tmp_path / "log.tsv").write_text(lines)
    (tmp_path / "parts.tsv").write_text(parts)
    told = given.read_given(str(tmp_path / "parts.tsv"), tmp_path)
    source = replace(log.collection(tmp_path / "log.tsv"), parts=told)
    draft = rebuilt.draft(source, ["topic"])
    [remark] = [each for each in draft.remarks if "mutual information" in each]
    real, chance = map(float, re.findall(r"0\.\d+", remark))
    assert real > 2 * chance > 0, remark
    terms = [row.split("\t")[2].split() for row in draft.reports["topics.tsv"].splitlines()[1:]]
    assert len(terms) == 5 and not {"what", "how", "the", "of", "in", "did"} & set(chain.from_iterable(terms))


def test_a_licence_that_nobody_states_is_not_lost_on_the_way(toy: Path, tmp_path: Path) -> None:
    first = build(toy, tmp_path / "first", "topic", "topic.topics=2", "topic.k=20", "topic.size=155")
    files = [file.licence for file in first.manifest.inputs]
    assert f"| toy | {len(files)} |" in (card := (first.folder / "README.md").read_text()) and files[0] in card
    again = rebuilt.draft(released.collection(first.folder), ["length"])
    releases.write(again, tmp_path / "again")
    of_passages(first, toy, tmp_path / "lite")
    for release in ("first", "again", "lite"):
        with pytest.raises(UserError, match="licence"):
            permitted_part(read_manifest(tmp_path / release), [], [])


def test_the_card_of_a_log_of_ones_own_says_what_it_is_and_no_more(shared: Path, tmp_path: Path, command) -> None:
    rows = [json.loads(line) for line in (shared / "beir/xquad/de/queries.jsonl").read_text().splitlines()]
    (tmp_path / "log.tsv").write_text("".join(f"{row['_id']}\t{row['text']}\n" for row in rows))
    arguments = ["--queries", tmp_path / "log.tsv", "--shift", "wh", "--shift", "length"]
    for name, more, facts in (
        ("plain", [], {"language": "de", "license": "other", "license_name": "see-card"}),
        ("named", ["--licence", "CC-BY-4.0", "--language", "nds"], {"language": "nds", "license": "cc-by-4.0"}),
        ("odd", ["--licence", "Our Terms (2024)"], {"license": "other", "license_name": "our-terms-2024"}),
    ):
        done = command("builder", "build", "rebuilt", *arguments, *more, "--out", tmp_path / name)
        assert done.returncode == 0, done.stderr
        card = DatasetCard.load(tmp_path / name / "README.md")
        assert facts.items() <= card.data.to_dict().items() and not faults(tmp_path / name)
        assert "## Score" not in card.text and "eval_kit score" not in card.text
        assert card.text.count("\n@") == 1 and "lupart2023msshift" in card.text, "it holds no other paper's parts"
        assert "topic" not in card.text.split("## Remarks")[0].split("## Configs")[1]
    assert "Our Terms (2024)" in (tmp_path / "odd/LICENSE.md").read_text()
    digests = {read_manifest(tmp_path / name).digest for name in ("plain", "named", "odd")}
    assert len(digests) == 1, "of the same content"
    for more in (["--language", "German"], ["--collection", "mini", "--licence", "mit"]):
        given = more if "--collection" in more else [*arguments, *more]
        done = command("builder", "build", "rebuilt", *given, "--out", tmp_path / "refused")
        assert done.returncode == 2 and more[-2] in done.stderr and not (tmp_path / "refused").exists()


def test_clusters_of_numbers_are_not_read_as_topics(tmp_path: Path) -> None:
    draw = random.Random(3)
    models = [f"{letter}{number}" for letter in "xyz" for number in range(90)]
    lines = [
        f"{draw.choice(models)} {draw.choice(models)} {draw.choice(models)} {draw.randint(100, 139)}"
        for _ in range(1_500)
    ]
    (tmp_path / "log.tsv").write_text("\n".join(re.sub("[xyz]", "", line) for line in lines))
    release = rebuilt.draft(log.collection(tmp_path / "log.tsv"), ["topic"])
    assert any("numbers; do not read them as topics" in remark for remark in release.remarks)


def test_an_edit_stays_inside_the_word_whatever_its_lower_case() -> None:
    texts = ["İstanbul hava", "İzmir nüfusu kaç ve nerede", *["Türkiye'nin başkenti neresi ve kaç kişi yaşıyor"] * 30]
    queries = pl.DataFrame({"query_id": [str(n) for n in range(len(texts))], "text": texts})
    for seed in range(20):
        for variation, table in typos.plant("dev", queries, seed=seed):
            pairs = zip(texts[:2], table.frame["text"][:2], strict=True)
            assert all(len(old.split()) == len(new.split()) for old, new in pairs), variation.method


def test_a_split_called_training_is_train() -> None:
    names = [split_name(name) for name in ("training", "TRAIN", "validation", "dl-19")]
    assert names == ["train", "train", "dev", "dl_19"]


def test_topics_without_the_judged_passages_are_built_all_the_same(toy: Path, tmp_path: Path) -> None:
    for path in ("queries.jsonl", "qrels/train.tsv", "qrels/test.tsv"):
        (tmp_path / "absent" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "absent" / path).write_bytes((toy / path).read_bytes())
    lines = (toy / "corpus.jsonl").read_text().replace('"_id": "p', '"_id": "x')
    (tmp_path / "absent" / "corpus.jsonl").write_text(lines)
    settings = ("topic.topics=2", "topic.k=20", "topic.size=155")
    release = build(tmp_path / "absent", tmp_path / "own", "topic", *settings)
    assert any("without passages nothing says" in remark for remark in release.manifest.remarks)


def test_terms_are_words_and_no_patterns() -> None:
    terms = question_words.parse("Wha: was? | wa(s, how:wie")
    assert terms == {"wha": ("was?", "wa(s"), "how": ("wie",)}
    frame = pl.DataFrame({"text": ["wa da", "was? das", "x wa(s y"]})
    wha, token = (question_words.contains(pl.col("text"), *rule) for rule in ((terms["wha"], False), (("wa(s",), True)))
    assert frame.select(wha=wha, token=token).rows() == [(False, False), (True, False), (True, True)]
    for refused in ("wha:,how:wie", "w ha:was,how:wie", "wha:was,wha:wer", "wer", ""):
        with pytest.raises(ValueError):
            question_words.parse(refused)


def test_a_beir_folder_is_exported_with_its_passages(toy: Path, tmp_path: Path) -> None:
    export(open_release(toy), tmp_path / "out", "beir")
    exported = next(path for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert len((exported / "corpus.jsonl").read_text().splitlines()) == 460


def test_a_new_version_is_an_option(toy: Path, tmp_path: Path, command) -> None:
    arguments = ("build", "rebuilt", "--collection", toy, "--shift", "length", "--out", tmp_path / "own")
    assert command("builder", *arguments, "--version", "1.2.0").returncode == 0
    assert read_manifest(tmp_path / "own").version == "1.2.0"
