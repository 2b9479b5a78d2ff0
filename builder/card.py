"""The dataset card: the manifest in readable form, and the YAML that tells ``load_dataset`` where the splits are."""

import json
import re
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from builder import reports
from builder.features import features
from eval_kit.documents import Input, Manifest, TableEntry
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.files.text import read_utf8
from eval_kit.release import Release, read_manifest, title
from eval_kit.release.manifest import is_of_ms_marco, is_synthetic, language, read_table
from eval_kit.stats.typical import about
from eval_kit.tables.markdown import escape, to_markdown

CARD = "README.md"
LICENCES = "LICENSE.md"
"""The Hub links to a licence of no standard name only by this file name, or by a URL."""
DEFAULT_CONFIG = "topic"
"""What ``load_dataset`` gives whoever names no config; the first config where there is no such one."""
AGAIN = "run 'python -m builder card {}' to write it again"
TEMPLATES = Path(__file__).parent.parent / "hub_cards"
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
SAMPLE_LENGTH = 200
TAGS = ("information-retrieval", "distribution-shift", "evaluation", "benchmark")
HOLDS = {
    "topic": "MS-Shift: queries by topic, c0 … c4; one row for each query and cluster",
    "wh": "MS-Shift: queries by wh-word, wha, how, who; a query may be in several clusters",
    "length": "MS-Shift: queries by length, short or long",
    "resttest": "ReSTTest: queries in five buckets, b1 … b5; extrapolation is to a bucket that training left out",
    "given": "the collection's own parts, such as articles or fields, or groups of them",
    "crossed": "crossed hold-outs: small clusters, and each query's role for each model: train, in or out",
    "restrain": "ReSTrain: training queries near to (interpolate) or far from (extrapolate) the test queries",
    "chameleons": "MS MARCO Chameleons: how obstinate a query is (none, veiled, pygmy, lesser) at five levels",
    "trec_dl": "the TREC Deep Learning topics, and which of them are judged",
    "dl_typo": "DL-Typo: real mistyped queries, corrected, with their own judgements",
    "dlhard": "DL-HARD: hard TREC DL queries, annotated with intent, answer type and topic, in five folds",
    "variations": "other wordings of test sets' queries; ids and judgements are those of the test set",
    "validation": "queries outside every shift, for model selection",
    "qrels": "judgements, with BEIR's column names",
    "negatives": "passages for training that rank high and are not judged relevant",
    "passages": "the passages to be ranked",
}
"""The configs in words, for the card's table and for the Hub's own pages."""


def texts(folder: Path, manifest: Manifest) -> dict[str, str]:
    """The files that describe the release in ``folder`` to people, by name.

    The card is made from the manifest, the tables and ``reports/``. Each report is optional, and one made from content
    other than the manifest's is left out.

    Raises:
        UserError: a report is not readable.
    """
    from huggingface_hub import DatasetCard
    from jinja2 import Template

    configs, synthetic = _configs(manifest), is_synthetic(manifest)
    facts: dict[str, Any] = {
        "manifest": manifest,
        "configs": configs,
        "synthetic": synthetic,
        "ms_marco": is_of_ms_marco(manifest),
        "shown": escape,
        "link": _link,
    }
    licences = Template((TEMPLATES / "licences.md").read_text(encoding="utf-8")).render(facts)
    subjects = {} if synthetic else about(Release(folder, manifest))  # mini's words mean nothing
    # from_template renders the given template with jinja2 and validates the YAML block by the library's classes
    card = DatasetCard.from_template(
        card_data(manifest),
        template_path=str(TEMPLATES / "dataset.md"),
        title=title(manifest),
        holds=HOLDS,
        licences=licences,
        samples={config: sample(folder, tables) for config, tables in configs.items()},
        reports=reports.read(folder, manifest),
        about={shift: to_markdown(table) for shift, table in subjects.items()},
        **facts,
    )
    return {CARD: str(card), LICENCES: f"# Licences of {title(manifest)} {manifest.version}\n\n{licences}\n"}


def write(folder: Path) -> None:
    """Rewrite the card of the release in ``folder``, in place.

    Raises:
        UserError: the folder is no release or cannot be written, or a report is not readable.
    """
    manifest = read_manifest(folder)
    for name, text in texts(folder, manifest).items():
        atomic.write_text(folder / name, text)


def card_data(manifest: Manifest) -> Any:
    """The card's YAML block.

    ``load_dataset`` of a local folder keys its cache on the card alone, so each config carries the version and
    the digest of its content: a rebuilt release is never served from an old cache.
    """
    from huggingface_hub import DatasetCardData

    synthetic, ms_marco = is_synthetic(manifest), is_of_ms_marco(manifest)
    configs, rows = _configs(manifest), sum(table.rows for table in manifest.tables)
    return DatasetCardData(
        pretty_name=title(manifest),
        language=language(manifest),
        license="apache-2.0" if synthetic else "other",
        license_name=None if synthetic else "see-card",
        license_link=None if synthetic else LICENCES,
        size_categories=[next((name for limit, name in SIZES if rows < limit), "1M<n<10M")],
        source_datasets=["original" if synthetic else "extended|ms_marco" if ms_marco else "extended"],
        task_categories=["text-retrieval"],
        tags=[*TAGS, *["ms-marco"] * ms_marco],
        configs=_config_entries(manifest),
        dataset_info=[_dataset_info(config, splits) for config, splits in configs.items()],
    )


def check_card(folder: Path, manifest: Manifest) -> None:
    """Check that the card's YAML is of this manifest's version, content, columns and rows: no digest covers it.

    Raises:
        UserError: there is no card, its YAML is not valid, or it describes something else.
    """
    path = folder / CARD
    data, splits = yaml_data(path), _configs(manifest).items()
    infos = [_dataset_info(config, tables) for config, tables in splits]
    configs = _described(data.get("configs")), _described(_config_entries(manifest))
    if configs[0] != configs[1] or data.get("dataset_info") != infos:
        raise UserError(f"{path}: is not that of the release; {AGAIN.format(folder)}")


def _described(entries: Any) -> list[list[Any]]:
    """What ``load_dataset`` goes by of the configs: a description's words may be those of an older kit."""
    return [
        [entry.get("config_name"), entry.get("version"), entry.get("data_files"), str(entry.get("description"))[-24:]]
        for entry in entries or []
    ]


def yaml_data(path: Path) -> dict[str, Any]:
    """The card's YAML, checked by the library's classes.

    Raises:
        UserError: there is no card, or its YAML is not valid.
    """
    import yaml
    from huggingface_hub import DatasetCard

    try:
        text = read_utf8(path)
    except UserError as error:
        raise UserError(f"{error}; {AGAIN.format(path.parent)}") from error
    try:
        data: dict[str, Any] = DatasetCard(text).data.to_dict()  # type: ignore[no-untyped-call]
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise UserError(
            f"{path}: its YAML is not valid: {str(error).splitlines()[0]}; {AGAIN.format(path.parent)}"
        ) from error
    return data


def sample(folder: Path, tables: Sequence[TableEntry]) -> str:
    """The first complete row of a config, as JSON on one line; long values are cut.

    Raises:
        ReleaseError: a table that is no file, or not what the manifest says.
    """
    for table in tables:
        rows = read_table(folder, table).drop_nulls().head(1)
        for row in rows.iter_rows(named=True):
            cells = {name: _cut(value) for name, value in row.items()}
            return json.dumps(cells, ensure_ascii=False).replace("```", "'''")
    return ""


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > SAMPLE_LENGTH:
        return value[:SAMPLE_LENGTH] + "…"
    if isinstance(value, list) and len(value) > 5:
        return [*value[:5], "…"]
    return value


def _link(source: Input) -> str:
    is_address = re.fullmatch(r"https?://[\w./?=&%~:@+-]+", source.url)
    return f"[{escape(source.id)}]({source.url})" if is_address else escape(source.id)


def _dataset_info(config: str, splits: Sequence[TableEntry]) -> dict[str, Any]:
    return {
        "config_name": config,
        "features": features(splits[0].columns)._to_yaml_list(),
        "splits": [{"name": table.split, "num_bytes": 0, "num_examples": table.rows} for table in splits],
    }


def _config_entries(manifest: Manifest) -> list[dict[str, Any]]:
    entries = []
    configs = _configs(manifest)
    default = DEFAULT_CONFIG if DEFAULT_CONFIG in configs else next(iter(configs))
    for config, splits in configs.items():
        digest = sha256("".join(table.digest for table in splits).encode()).hexdigest()
        about = f"{HOLDS.get(config, config)} (content sha256:{digest[:16]})"
        files = [{"split": table.split, "path": table.path} for table in splits]
        entry: dict[str, Any] = {"config_name": config, "version": manifest.version, "description": about}
        entries.append(entry | ({"default": True} if config == default else {}) | {"data_files": files})
    return entries


def _configs(manifest: Manifest) -> dict[str, list[TableEntry]]:
    configs: dict[str, list[TableEntry]] = {}
    for table in manifest.tables:
        configs.setdefault(table.config, []).append(table)
    return configs
