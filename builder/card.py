"""The dataset card: the manifest in readable form, and the YAML that tells ``load_dataset`` where the splits are."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from builder import benchmarks, reports
from builder.release import features
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.release import MS_MARCO, Release, read_manifest, title
from eval_kit.tables.markdown import to_markdown
from eval_kit.tables.topics import about

CARD = "README.md"
AGAIN = "run 'python -m builder card {}' to write it again"
TEMPLATE = Path(__file__).parent.parent / "hub_cards" / "dataset.md"
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
SAMPLE_LENGTH = 200
TAGS = ("information-retrieval", "distribution-shift", "evaluation", "benchmark", "ir-datasets")
"""ir_datasets 2 finds the dataset on the Hub by the last of them."""


def render(folder: Path, manifest: Mapping[str, Any]) -> str:
    """The text of the release's ``README.md``, from its manifest, its tables and its ``reports/``.

    Each report is optional, and one made from content other than the manifest's is left out.

    Raises:
        UserError: a report is not readable.
    """
    from huggingface_hub import DatasetCard

    configs = _configs(manifest)
    # from_template renders the given template with jinja2 and validates the YAML block by the library's classes
    card = DatasetCard.from_template(
        card_data(manifest),
        template_path=str(TEMPLATE),
        manifest=manifest,
        title=title(manifest),
        configs=configs,
        samples={config: sample(folder, tables) for config, tables in configs.items()},
        reports=reports.read(folder, manifest),
        about=_about(folder, manifest),
    )
    return str(card)


def write(folder: Path) -> None:
    """Rewrite the card of the release in ``folder`` and the files that other tools read, in place.

    Raises:
        UserError: the folder is no release or cannot be written, or a report is not readable.
    """
    manifest = read_manifest(folder)
    try:
        benchmarks.write(folder, manifest, title(manifest))
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror or error}") from error
    atomic.write_text(folder / CARD, render(folder, manifest))


def card_data(manifest: Mapping[str, Any]) -> Any:
    """The card's YAML block.

    ``load_dataset`` of a local folder keys its cache on the card alone, so each config carries the version and
    the digest of its content: a rebuilt release is never served from an old cache.
    """
    from huggingface_hub import DatasetCardData

    synthetic, ms_marco = manifest["kind"] == "mini", manifest["collection"] == MS_MARCO
    configs = _configs(manifest)
    return DatasetCardData(
        pretty_name=title(manifest),
        language="zxx" if synthetic else "en" if ms_marco else None,
        license="apache-2.0" if synthetic else "other",
        license_name=None if synthetic else "see-card",
        size_categories=[_size_category(sum(table["rows"] for table in manifest["tables"]))],
        source_datasets=["original" if synthetic else "extended|ms_marco" if ms_marco else "extended"],
        task_categories=["text-retrieval"],
        tags=[*TAGS, *["ms-marco"] * ms_marco],
        configs=_config_entries(manifest),
        dataset_info=[_dataset_info(config, splits) for config, splits in configs.items()],
        ir_datasets=benchmarks.block(manifest),
    )


def check_card(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Check that the card and the files for other tools match this manifest and the reports beside it exactly.

    Raises:
        UserError: there is no card, its YAML is not valid, or it describes something else.
    """
    path = folder / CARD
    if yaml_data(path).get("configs") != _config_entries(manifest):
        raise UserError(f"{path}: its configs are not those of the release; {AGAIN.format(folder)}")
    if path.read_text(encoding="utf-8") != render(folder, manifest):
        raise UserError(f"{path}: is not the card of the release and its reports; {AGAIN.format(folder)}")
    benchmarks.check(folder, manifest, title(manifest))


def check_version(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Check that the card's YAML names this manifest's version, which no content digest covers.

    Raises:
        UserError: there is no card, its YAML is not valid, or it is of another version.
    """
    path = folder / CARD
    versions = {config.get("version") for config in yaml_data(path).get("configs") or []}
    if versions != {manifest["version"]}:
        stated = ", ".join(sorted(map(str, versions))) or "none"
        raise UserError(f"{path}: is of version {stated}, the manifest says {manifest['version']}")


def yaml_data(path: Path) -> dict[str, Any]:
    """The card's YAML, checked by the library's classes.

    Raises:
        UserError: there is no card, or its YAML is not valid.
    """
    import yaml
    from huggingface_hub import DatasetCard

    try:
        data: dict[str, Any] = DatasetCard(path.read_text(encoding="utf-8")).data.to_dict()  # type: ignore[no-untyped-call]
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; {AGAIN.format(path.parent)}") from error
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise UserError(
            f"{path}: its YAML is not valid: {str(error).splitlines()[0]}; {AGAIN.format(path.parent)}"
        ) from error
    return data


def sample(folder: Path, tables: Sequence[Mapping[str, Any]]) -> str:
    """The first complete row of a config, as JSON on one line; long values are cut."""
    for table in tables:
        labels = {column["name"]: column["labels"] for column in table["columns"] if column["type"] == "label"}
        rows = pl.scan_parquet(folder / table["path"], hive_partitioning=False).drop_nulls().head(1).collect()
        for row in rows.iter_rows(named=True):
            shown = {name: labels[name][value] if name in labels else _cut(value) for name, value in row.items()}
            return json.dumps(shown, ensure_ascii=False).replace("```", "'''")
    return ""


def _about(folder: Path, manifest: Mapping[str, Any]) -> dict[str, str]:
    """What the topics and buckets are about, in Markdown; empty for mini, whose words mean nothing."""
    if manifest["kind"] == "mini":
        return {}
    return {shift: to_markdown(table) for shift, table in about(Release(folder, manifest)).items()}


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > SAMPLE_LENGTH:
        return value[:SAMPLE_LENGTH] + "…"
    if isinstance(value, list) and len(value) > 5:
        return [*value[:5], "…"]
    return value


def _dataset_info(config: str, splits: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "config_name": config,
        "features": features(splits[0]["columns"])._to_yaml_list(),
        "splits": [{"name": table["split"], "num_bytes": 0, "num_examples": table["rows"]} for table in splits],
    }


def _config_entries(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries = []
    for config, splits in _configs(manifest).items():
        digests = ",".join(table["digest"][:16] for table in splits)
        files = [{"split": table["split"], "path": table["path"]} for table in splits]
        content = {"version": manifest["version"], "description": f"sha256:{digests}"}
        entries.append({"config_name": config, **content, "data_files": files})
    return entries


def _configs(manifest: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    configs: dict[str, list[Mapping[str, Any]]] = {}
    for table in manifest["tables"]:
        configs.setdefault(table["config"], []).append(table)
    return configs


def _size_category(rows: int) -> str:
    return next((name for limit, name in SIZES if rows < limit), "1M<n<10M")
