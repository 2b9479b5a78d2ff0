"""Results of a model for the Hub: which tasks, which values, and into its repository by unmodified clients."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_kit import api
from eval_kit.errors import UserError
from eval_kit.exchange import hub_results
from eval_kit.protocols.scoring import score
from eval_kit.release import Release
from eval_kit.runs import writer

hub_server = pytest.importorskip("hub_server", exc_type=ImportError)
parse_eval_result_entries = pytest.importorskip("huggingface_hub", minversion="2.4").parse_eval_result_entries
type Done = subprocess.CompletedProcess[str]

DATASET, MODEL = "org/ms-marco-shift", "org/splade"


def row(system: str, cluster: str, measure: str, out: float, rel_loss: float | None) -> dict[str, Any]:
    figures = {"avg_in": 0.5, "out": out, "rel_loss": rel_loss}
    return {"cluster": cluster, "system": system, "measure": measure, **figures, "queries": 9, "trained_on": "no"}


def protocol(*rows: dict[str, Any], digest: str = "0" * 64) -> dict[str, Any]:
    return {"protocols": {"topic": list(rows)}, "provenance": {"release": {"version": "1.0.0", "digest": digest}}}


def written(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_tasks_are_out_and_rel_loss_of_each_shift_and_its_test_sets(mini_release: Release) -> None:
    tasks = hub_results.tasks(mini_release)
    ids = [task["id"] for task in tasks]
    shifts = ("topic", "wh", "length", "resttest", "restrain")
    losses = [f"{shift}_{figure}" for shift in shifts for figure in ("out", "rel_loss")]
    clusters = [f"topic_c{number}" for number in range(5)]
    clusters += ["wh_wha", "wh_how", "wh_who", "length_short", "length_long"]
    assert sorted(ids) == sorted([*losses, *clusters, "dev", "dl19", "dl20"]) and len(ids) == len(set(ids))
    assert all(mini_release.table(task["config"], task["split"]).height for task in tasks)
    assert {"id": "topic_rel_loss", "config": "topic", "split": "test"} in tasks


def test_a_shift_is_the_mean_of_its_parts_by_its_main_measure(tmp_path: Path) -> None:
    rows = [
        row("splade", "c0", "ASL@100", 7.0, -0.4),
        row("splade", "c1", "ASL@100", 7.0, -0.4),
        row("splade", "c0", "RR@10", 0.30, 0.10),
        row("splade", "c1", "RR@10", 0.20, 0.30),
        row("dense", "c0", "RR@10", 0.0, None),
        row("dense", "c1", "RR@10", 0.4, 0.2),
    ]
    path = written(tmp_path / "protocol.json", protocol(*rows))
    out, loss = hub_results.read(path, "splade").values
    assert (out.task, out.value) == ("topic_out", pytest.approx(0.25))
    assert (loss.task, loss.value) == ("topic_rel_loss", pytest.approx(0.20))
    assert loss.notes == "Rel Loss of RR@10, mean of 2 parts; trained on the test queries: no"
    assert [result.task for result in hub_results.read(path, "dense").values] == ["topic_out"], "no loss: In is 0"


def test_scores_give_the_first_measure_of_each_test_set(mini_release: Release, tmp_path: Path) -> None:
    run = tmp_path / "mine.trec"
    queries = [*mini_release.test_sets["topic.c0"].queries, *mini_release.test_sets["dev"].queries]
    writer.write(((query, "1", 1, 1.0) for query in queries), run, "mine")
    scores = score([run], mini_release)
    results = hub_results.read(written(tmp_path / "scores.json", scores.as_json()))
    own = {(figure.test_set, figure.measure): figure.value for figure in scores.means}
    assert {one.task for one in results.values} == {"topic_c0", "dev", "length_short", "length_long"}
    values = {one.task: one.value for one in results.values}
    assert values["topic_c0"] == own["topic.c0", "RR@10"] and (results.system, results.version) == ("mine", "1.0.0")
    assert "trained on them: unknown" in results.values[0].notes


NO_NUMBER = {"run": "r", "test_set": "dev", "measure": "RR@10", "queries": 1, "trained_on": "no", "value": "high"}


def test_mistakes(tmp_path: Path) -> None:
    two = protocol(row("a", "c0", "RR@10", 1, 0), row("b", "c0", "RR@10", 1, 0))
    no_results = "is not what --json of eval_kit protocol, score, run or"
    for document, system, words in (
        ([], None, no_results),
        ({"measures": [NO_NUMBER]}, None, no_results),
        ({"protocols": {"topic": [{}]}, "provenance": {}}, None, no_results),
        (two, None, "there are a, b"),
        (protocol(row("a", "c0", "RR@10", 1, 0)), "c", "there are a"),
    ):
        with pytest.raises(UserError, match=words):
            hub_results.read(written(tmp_path / "results.json", document), system)


@pytest.fixture
def hub(mini_release: Release) -> Iterator[Any]:
    """A Hub with the release's manifest as v1.0.0, and a model repository."""
    server = hub_server.Hub()
    manifest = hub_server.Blob((mini_release.folder / "manifest.json").read_bytes(), False)
    for name, blobs in ((DATASET, {"manifest.json": manifest}), (MODEL, {})):
        repository = server.repositories[name] = hub_server.Repository()
        repository.tags["v1.0.0"] = repository.commit("initial commit", blobs).oid
    yield server
    server.stop()


@pytest.fixture
def publish(hub: Any, tmp_path: Path, command: Callable[..., Done]) -> Callable[..., Done]:
    """Run ``publish-result`` on a file, with options and variables of its environment."""
    names = ("--repo-id", MODEL, "--dataset", DATASET)
    variables = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home"), "NO_PROXY": "127.0.0.1"}

    def run(file: Path, *options: str, **own: str) -> Done:
        return command("eval_kit", "publish-result", file, *names, *options, **variables, **own)

    return run


@pytest.mark.slow
def test_publishing_to_a_model_repository(
    hub: Any, mini_release: Release, tmp_path: Path, publish: Callable[..., Done]
) -> None:
    losses = [row("splade", "c0", "RR@10", 0.30, 0.10), row("splade", "c1", "RR@10", 0.20, 0.30)]
    path = written(tmp_path / "protocol.json", protocol(*losses, digest=mini_release.digest))
    token, model = {"HF_TOKEN": hub_server.TOKEN}, hub.repositories[MODEL]
    planned = publish(path, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert planned.stdout.startswith(f"{MODEL}: would write .eval_results/ms-marco-shift.yaml: 2 results of splade")
    assert len(model.commits) == 1 and "commit" not in hub.steps()
    done = publish(path, **token)
    assert done.returncode == 0 and f"at commit {model.head}" in done.stdout, done.stderr
    text = model.commits[model.head].tree[hub_results.FILE].content.decode()
    assert planned.stdout.partition("\n")[2] == text
    entries = parse_eval_result_entries(yaml.safe_load(text))
    assert [entry.task_id for entry in entries] == ["topic_out", "topic_rel_loss"]
    assert {(entry.dataset_id, entry.dataset_revision) for entry in entries} == {
        (DATASET, hub.repositories[DATASET].head)
    }
    assert "nothing to do" in publish(path, **token).stdout and len(model.commits) == 2

    runs = [tmp_path / "splade.trec", tmp_path / "bm25.trec"]
    for passage, run in enumerate(runs):
        writer.write(((query, str(passage), 1, 1.0) for query in mini_release.test_sets["dl19"].queries), run, run.stem)
    scores = written(tmp_path / "scores.json", score(runs[:1], mini_release).as_json())
    source = ("--source", "https://example.org/runs")
    assert publish(scores, *source, **token).returncode == 0
    entries = parse_eval_result_entries(yaml.safe_load(model.commits[model.head].tree[hub_results.FILE].content))
    assert [entry.task_id for entry in entries] == ["dl19", "topic_out", "topic_rel_loss"]
    assert entries[0].source_url == "https://example.org/runs"
    compared = written(tmp_path / "compared.json", api.compare(runs, mini_release).as_json())
    again = publish(compared, "--system", "splade", *source, **token)
    assert "are published already; nothing to do" in again.stdout

    before = model.head
    other = written(tmp_path / "other.json", protocol(*losses, digest="1" * 64))
    hub.accounts["hf_reader"] = set()
    for file, own, words in (
        (compared, token, "name one of its systems with --system; there are "),
        (other, token, "v1.0.0 differs in content from the release that was scored; nothing was changed"),
        (scores, {"HF_TOKEN": "hf_reader"}, "the token may not do that"),
        (scores, {"HF_TOKEN": ""}, "there is no token to publish with"),
    ):
        refused = publish(file, **own)
        assert words in refused.stderr and refused.stderr.count("\n") == 1, refused.stderr
    assert model.head == before


@pytest.mark.slow
def test_hostile_yaml_in_a_model_repository_is_one_sentence(
    hub: Any, mini_release: Release, tmp_path: Path, publish: Callable[..., Done]
) -> None:
    """Of what any YAML is refused for, test_ir_metadata has all cases."""
    results = written(tmp_path / "protocol.json", protocol(row("a", "c0", "RR@10", 1, 0), digest=mini_release.digest))
    model = hub.repositories[MODEL]
    for content, words in (
        (b"- &a [x, x]\n- &b [*a, *a]\n", "ms-marco-shift.yaml:2: has an alias"),
        (b"#" * (2 << 20), "is larger than 1,048,576 bytes"),
        (b"- \xff", "is not UTF-8 text"),
        (b"- !!python/object/apply:os.getpid []", "its content is not a list of results; nothing was changed"),
        (b"- {dataset: {id: a, task_id: b}, date: 2026-99-99}", "its content is not a list of results"),
    ):
        head = model.commit("odd", {hub_results.FILE: hub_server.Blob(content, False)}).oid
        refused = publish(results, "--dry-run")
        assert refused.returncode == 2 and words in refused.stderr, (refused.stdout, refused.stderr)
        assert refused.stderr.count("\n") == 1 and model.head == head


def test_in_and_out_of_submissions_are_no_figure_of_a_test_set(tmp_path: Path) -> None:
    same = {"system": "a", "measure": "RR@10", "queries": 4, "trained_on": "no"}
    rows = [
        {**same, "test_set": name, "figure": figure, "value": value}
        for name, figure, value in (("topic.c0", "Out", 0.7), ("topic.c1", "In", 0.8), ("dev", "", 0.5))
    ]
    document = {"comparison": rows, "provenance": {"release": {"version": "1.0.0", "digest": "0" * 64}}}
    results = hub_results.read(written(tmp_path / "compare.json", document))
    assert [(result.task, result.value) for result in results.values] == [("dev", 0.5)]
