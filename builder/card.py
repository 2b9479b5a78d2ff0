"""The dataset card: the manifest for people, and the YAML that tells ``load_dataset`` where the splits are."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from builder.features import features
from builder.release import Table
from eval_kit.errors import UserError

TEMPLATE = Path(__file__).parent.parent / "hub_cards" / "dataset.md"
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
SAMPLE_LENGTH = 200


def render(manifest: Mapping[str, Any], tables: Sequence[Table]) -> str:
    """The text of the release's ``README.md``."""
    from huggingface_hub import DatasetCard

    # from_template renders the given template with jinja2 and validates the YAML block by the library's classes
    card = DatasetCard.from_template(
        card_data(manifest),
        template_path=str(TEMPLATE),
        manifest=manifest,
        configs=_configs(manifest),
        samples={config: sample(tables, config) for config in _configs(manifest)},
    )
    return str(card)


def card_data(manifest: Mapping[str, Any]) -> Any:
    """The card's YAML block.

    ``load_dataset`` of a local folder keys its cache on the card alone, so each config carries the version and
    the digest of its content: a rebuilt release is never served from an old cache.
    """
    from huggingface_hub import DatasetCardData

    synthetic = manifest["kind"] == "mini"
    configs = _configs(manifest)
    return DatasetCardData(
        pretty_name="ms-marco-shift",
        language="en" if not synthetic else "zxx",
        license="apache-2.0" if synthetic else "other",
        license_name=None if synthetic else "see-card",
        size_categories=[_size_category(sum(table["rows"] for table in manifest["tables"]))],
        source_datasets=["original" if synthetic else "extended|ms_marco"],
        task_categories=["text-retrieval"],
        tags=["information-retrieval", "distribution-shift", "ms-marco", "evaluation", "benchmark"],
        configs=_config_entries(manifest),
        dataset_info=[
            {
                "config_name": config,
                "features": features(splits[0]["columns"])._to_yaml_list(),
                "splits": [{"name": table["split"], "num_bytes": 0, "num_examples": table["rows"]} for table in splits],
            }
            for config, splits in configs.items()
        ],
    )


def check_card(path: Path, manifest: Mapping[str, Any]) -> None:
    """Check that the card's YAML is valid and describes the release of this manifest.

    Raises:
        UserError: there is no card, its YAML is not valid, or it is that of other data.
    """
    import yaml
    from huggingface_hub import DatasetCard

    try:
        found = DatasetCard(path.read_text(encoding="utf-8")).data.to_dict()  # type: ignore[no-untyped-call]
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}; build the release again") from error
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: its YAML is not valid: {str(error).splitlines()[0]}; build it again") from error
    if found.get("configs") != _config_entries(manifest):
        raise UserError(f"{path}: its configs are not those of the release; build the release again")
    if _described(found.get("dataset_info")) != {
        config: ([column["name"] for column in splits[0]["columns"]], [table["rows"] for table in splits])
        for config, splits in _configs(manifest).items()
    }:
        raise UserError(f"{path}: its dataset_info is not that of the release; build the release again")


def sample(tables: Sequence[Table], config: str) -> str:
    """The first whole row of a config, as JSON on one line; what is long is cut."""
    rows = (table.frame.drop_nulls().head(1).to_dicts() for table in tables if table.config == config)
    row = next((found[0] for found in rows if found), None)
    if row is None:
        return ""
    cut = {name: _cut(value) for name, value in row.items()}
    return json.dumps(cut, ensure_ascii=False).replace("```", "'''")


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > SAMPLE_LENGTH:
        return value[:SAMPLE_LENGTH] + "…"
    if isinstance(value, list) and len(value) > 5:
        return [*value[:5], "…"]
    return value


def _config_entries(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "config_name": config,
            "version": manifest["version"],
            "description": "sha256:" + ",".join(table["digest"][:16] for table in splits),
            "data_files": [{"split": table["split"], "path": table["path"]} for table in splits],
        }
        for config, splits in _configs(manifest).items()
    ]


def _described(dataset_info: Any) -> Any:
    """Names of columns and numbers of rows by config, as far as a card tells them."""
    try:
        return {
            info["config_name"]: (
                [feature["name"] for feature in info["features"]],
                [split["num_examples"] for split in info["splits"]],
            )
            for info in dataset_info
        }
    except (KeyError, TypeError):
        return None


def _configs(manifest: Mapping[str, Any]) -> dict[str, list[Mapping[str, Any]]]:
    configs: dict[str, list[Mapping[str, Any]]] = {}
    for table in manifest["tables"]:
        configs.setdefault(table["config"], []).append(table)
    return configs


def _size_category(rows: int) -> str:
    return next((name for limit, name in SIZES if rows < limit), "1M<n<10M")
