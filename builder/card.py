"""The dataset card: the manifest for people, and the YAML that tells ``load_dataset`` where the splits are."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from builder.release import Table, features

TEMPLATE = Path(__file__).parent.parent / "hub_cards" / "dataset.md"


def render(manifest: Mapping[str, Any], tables: Sequence[Table]) -> str:
    """The text of the release's ``README.md``."""
    from huggingface_hub import DatasetCard

    # from_template renders the given template with jinja2 and validates the YAML block by the library's classes
    card = DatasetCard.from_template(card_data(manifest, tables), template_path=str(TEMPLATE), manifest=manifest)
    return str(card)


def card_data(manifest: Mapping[str, Any], tables: Sequence[Table]) -> Any:
    """The card's YAML block.

    ``load_dataset`` of a local folder keys its cache on the card alone, so each config carries the version and
    the digest of its content: a rebuilt release is never served from an old cache.
    """
    from huggingface_hub import DatasetCardData

    configs: dict[str, list[Table]] = {}
    for table in tables:
        configs.setdefault(table.config, []).append(table)
    digests = {(entry["config"], entry["split"]): entry["digest"] for entry in manifest["tables"]}
    synthetic = manifest["kind"] == "mini"
    return DatasetCardData(
        pretty_name="ms-marco-shift",
        language="en" if not synthetic else "zxx",
        license="apache-2.0" if synthetic else "other",
        license_name=None if synthetic else "see-card",
        task_categories=["text-retrieval"],
        tags=["information-retrieval", "distribution-shift", "ms-marco", "evaluation"],
        configs=[
            {
                "config_name": config,
                "version": manifest["version"],
                "description": "sha256:" + ",".join(digests[config, table.split][:16] for table in splits),
                "data_files": [{"split": table.split, "path": table.path} for table in splits],
            }
            for config, splits in configs.items()
        ],
        dataset_info=[
            {
                "config_name": config,
                "features": features(splits[0])._to_yaml_list(),
                "splits": [
                    {"name": table.split, "num_bytes": 0, "num_examples": table.frame.height} for table in splits
                ],
            }
            for config, splits in configs.items()
        ],
    )
