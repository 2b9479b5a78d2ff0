"""A model's results as the Hugging Face Hub shows them: values for the tasks of a benchmark dataset.

The dataset's ``eval.yaml`` names the tasks; ``.eval_results/*.yaml`` of a model repository holds the values
(huggingface.co/docs/hub/eval-results). Our tasks are Out and Rel Loss of each shift, which ``eval_kit protocol`` gives,
and each test set of a shift, which ``eval_kit score`` gives: never one number over all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from eval_kit.errors import UserError
from eval_kit.files import hub, strict_json, strict_yaml
from eval_kit.files.hub import UNCHANGED
from eval_kit.files.text import read_utf8
from eval_kit.protocols.in_out import main_measure
from eval_kit.release import MANIFEST, Release
from eval_kit.shifts import BENCHMARKS, CLUSTERED, SHIFTS

if TYPE_CHECKING:
    from huggingface_hub import HfApi

FILE = ".eval_results/ms-marco-shift.yaml"
FIGURES = {"out": "Out", "rel_loss": "Rel Loss"}
MOST_BYTES = 1 << 20
TIMEOUT_SECONDS = 120.0
COMMITTING = "main is as it was, or holds the results; run the same command again to finish"


@dataclass(frozen=True)
class Result:
    """The value of one task, and what to know about it."""

    task: str
    value: float
    notes: str


@dataclass(frozen=True)
class Results:
    """What is published about a system.

    Attributes:
        system: its name, or its run's.
        version: of the release that was scored on.
        digest: of its content.
        values: one per task.
    """

    system: str
    version: str
    digest: str
    values: Sequence[Result]


@dataclass(frozen=True)
class Publication:
    """The file as it is or would be, and the commit that holds it (None if it was not written)."""

    text: str
    commit: str | None
    done: bool


def task(name: str) -> str:
    """The id of a task: ``topic_rel_loss``, ``topic_c0``."""
    return name.replace(".", "_")


def tasks(release: Release) -> list[dict[str, str]]:
    """The tasks of a release as ``eval.yaml`` lists them: ``id``, and the ``config`` and ``split`` of their queries."""
    task_names = {}
    for shift in SHIFTS.values():
        if shift.name not in release.configs or not (tables := shift.test_tables(release)):
            continue
        for figure in FIGURES:
            task_names[task(f"{shift.name}.{figure}")] = tables[0]
    for entry in release.manifest.test_sets:
        if _is_task(entry.name):
            task_names[task(entry.name)] = (entry.config, entry.split)
    return [{"id": id, "config": config, "split": split} for id, (config, split) in task_names.items()]


def read(path: Path, system: str | None = None) -> Results:
    """The results in a file that ``--json`` of ``eval_kit protocol``, ``score``, ``run`` or ``compare`` wrote.

    Args:
        path: the file.
        system: one of the protocol's systems or of the scored runs; needed only if there are several.

    Raises:
        UserError: the file is none of these, or has no such system or several (the message names them).
    """
    document = strict_json.read(path)
    try:
        rows = _of_protocols(document) if "protocols" in document else _of_scores(document)
        by_system: dict[str, list[Result]] = {}
        for name, result in rows:
            by_system.setdefault(name, []).append(result)
        release = document["provenance"]["release"]
        version, digest = str(release["version"]), str(release["digest"])
    except (KeyError, TypeError, ValueError, AttributeError, pl.exceptions.PolarsError):
        commands = "eval_kit protocol, score, run or compare"
        raise UserError(f"{path}: is not what --json of {commands} writes") from None
    system_name = system or (next(iter(by_system)) if len(by_system) == 1 else None)
    if system_name not in by_system:
        names = ", ".join(by_system) or "none"
        raise UserError(f"{path}: name one of its systems with --system; there are {names}")
    return Results(system_name, version, digest, by_system[system_name])


def _of_protocols(document: Any) -> Iterator[tuple[str, Result]]:
    """For each system and shift, the plain means over its parts, by the shift's main measure."""
    for shift, rows in document["protocols"].items():
        frame = pl.DataFrame(rows, infer_schema_length=None)
        measure = main_measure(frame)
        of_measure = frame.filter(pl.col("measure") == measure)
        for (system,), parts in of_measure.group_by("system", maintain_order=True):
            trained_on = ", ".join(parts["trained_on"].unique().sort())
            for figure, words in FIGURES.items():
                values = parts[figure].drop_nulls().to_list()
                notes = f"{words} of {measure}, mean of {parts.height} parts; trained on the test queries: {trained_on}"
                if len(values) == parts.height:
                    yield str(system), Result(task(f"{shift}.{figure}"), sum(values) / len(values), notes)


def _of_scores(document: Any) -> Iterator[tuple[str, Result]]:
    """For each run and test set of a shift, the first measure."""
    names = set()
    for figure in document["measures"] if "measures" in document else document["comparison"]:
        run, test_set = figure.get("run") or figure["system"], figure["test_set"]
        in_or_out = figure.get("figure")  # of a grid's runs: the Hub has one figure a test set, over all models
        if _is_task(test_set) and not in_or_out and (run, test_set) not in names:
            names.add((run, test_set))
            notes = f"{figure['measure']} of {figure['queries']} queries; trained on them: {figure['trained_on']}"
            yield str(run), Result(task(test_set), float(figure["value"]), notes)


def _is_task(test_set: str) -> bool:
    return test_set in BENCHMARKS or test_set.partition(".")[0] in CLUSTERED


@hub.patience(TIMEOUT_SECONDS)
def publish(
    results: Results, repo_id: str, dataset: str, source: str | None = None, dry_run: bool = False
) -> Publication:
    """Put results into a model repository, replacing earlier values of the same tasks.

    Args:
        results: from :func:`read`.
        repo_id: an existing model repository, ``namespace/name``.
        dataset: the release's dataset on the Hub.
        source: a page about the results.
        dry_run: change nothing.

    Raises:
        UserError: the Hub refuses; the dataset's version has other content than the release that was scored on.
    """
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(library_name="ms-marco-shift")
    with hub.explaining(dataset, UNCHANGED):
        revision = _commit_of(api, dataset, results)
    with hub.explaining(repo_id, UNCHANGED):
        if not dry_run:
            hub.check_may_write(repo_id)
        head = str(api.model_info(repo_id).sha)
        before = _file(api, repo_id, head)
    text = _text(results, before, dataset, revision, source)
    if text == before or dry_run:
        return Publication(text, head if text == before else None, done=text == before)
    operations = [CommitOperationAdd(FILE, text.encode())]
    message, description = f"Results on {dataset} v{results.version}", f"Of {results.system}."
    with hub.explaining(repo_id, COMMITTING):
        return Publication(text, hub.commit(api, repo_id, "model", operations, message, description, head), done=False)


def _commit_of(api: "HfApi", dataset: str, results: Results) -> str:
    """The commit of the version that was scored on."""
    tag = f"v{results.version}"
    commit = str(api.dataset_info(dataset, revision=tag).sha)
    manifest = Path(api.hf_hub_download(dataset, MANIFEST, repo_type="dataset", revision=commit))
    if strict_json.read(manifest).get("digest") != results.digest:
        raise UserError(f"{dataset}: {tag} differs in content from the release that was scored; {UNCHANGED}")
    return commit


def _file(api: "HfApi", repo_id: str, commit: str) -> str:
    """The text of the file; empty if there is none."""
    from huggingface_hub.errors import RemoteEntryNotFoundError

    try:
        return read_utf8(Path(api.hf_hub_download(repo_id, FILE, revision=commit)), MOST_BYTES)
    except RemoteEntryNotFoundError:
        return ""


def _text(results: Results, before: str, dataset: str, revision: str, source: str | None) -> str:
    """The new values, and those of other tasks already in the file, by dataset and task."""
    import yaml
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    new = [
        EvalResultEntry(
            dataset, result.task, result.value, dataset_revision=revision, source_url=source, notes=result.notes
        )
        for result in results.values
    ]
    entries = {_key(entry): entry for entry in [*_parse(before), *eval_result_entries_to_yaml(new)]}
    in_order = sorted(entries.values(), key=_key)
    return yaml.safe_dump(in_order, sort_keys=False, allow_unicode=True, width=1_000)


def _parse(text: str) -> list[dict[str, Any]]:
    import yaml

    try:
        strict_yaml.check(text, Path(FILE))
        entries: list[dict[str, Any]] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or []
        return [entry for entry in entries if _key(entry)]
    except (yaml.YAMLError, ValueError, TypeError, KeyError):
        raise UserError(f"{FILE}: its content is not a list of results; {UNCHANGED}") from None


def _key(entry: Mapping[str, Any]) -> tuple[str, str]:
    return str(entry["dataset"]["id"]), str(entry["dataset"]["task_id"])
