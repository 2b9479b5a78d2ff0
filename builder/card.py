"""The dataset card: the manifest in readable form, and the YAML that tells ``load_dataset`` where the splits are."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from operator import attrgetter
from pathlib import Path
from typing import Any

from pyarrow.parquet import read_table

from builder import reports
from builder.collection import LEFT_OUT, OWN, UNSTATED
from builder.features import features
from eval_kit.documents import Manifest, TableEntry
from eval_kit.errors import UserError
from eval_kit.files import atomic
from eval_kit.files.text import read_utf8
from eval_kit.languages import function_words
from eval_kit.release import Release, read_manifest, reference, title
from eval_kit.release.manifest import is_of_ms_marco, is_synthetic, language
from eval_kit.shifts import SHIFTS, TOPICS, named
from eval_kit.stats.typical import about
from eval_kit.tables.markdown import escape, to_markdown
from eval_kit.tables.table import Table, text_columns

CARD = "README.md"
LICENCES = "LICENSE.md"
"""The Hub links to a licence of no standard name only by this file name, or by a URL."""
_DEFAULT_CONFIG = "topic"
"""What ``load_dataset`` gives whoever names no config; the first config where there is no such one."""
TEMPLATES = Path(__file__).parent.parent / "hub_cards"
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
_SIDES = {"inter": "in", "extra": "out", "delta": "loss"}
"""What CIKM 2022 calls the figures of models that saw a part, of those that did not, and the difference."""
EXPECTED = ("ecir2023-table2", "ecir2023-table3", "cikm2022-table7")
"""Published tables of models that were trained by these lists."""
_ON_THE_HUB = (
    "apache-2.0", "mit", "cc0-1.0", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-nc-4.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0",
    "cc-by-nc-nd-4.0", "cc-by-3.0", "cc-by-sa-3.0", "odbl", "odc-by", "pddl", "cdla-permissive-2.0", "cdla-sharing-1.0",
)  # fmt: skip
"""Licences of data that the Hub has names for; it refuses a card with any other."""
_IN_WORDS = "lists CC BY-NC-SA 4.0 and MIT; queries and judgements of MS MARCO for non-commercial research only"
_TAGS = ("information-retrieval", "distribution-shift", "evaluation", "benchmark")
HOLDS = {name: shift.holds or shift.title for name, shift in SHIFTS.items()} | {
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
"""Every config of releases in words, the shifts first: for the card's table and for the Hub's own pages."""


def texts(folder: Path, manifest: Manifest) -> dict[str, str]:
    """The files that describe the release in ``folder`` to people, by name.

    The card is made from the manifest, the tables and ``reports/``. Each report is optional, and one made from content
    other than the manifest's is left out.
    """
    from jinja2 import Template

    configs, of_mini, ms_marco = _configs(manifest), is_synthetic(manifest), is_of_ms_marco(manifest)
    sources = _grouped(manifest.inputs, lambda file: source_of(file.id, manifest))
    variations = _grouped(manifest.variations, attrgetter("base", "family", "source", "licence"))
    rules = {table.split: table.rule.text for table in configs.get("variations", ())}
    queries_alone = _is_own(manifest) and not manifest.test_sets
    without = function_words() if queries_alone else frozenset[str]()
    subjects = {} if of_mini else about(Release(folder, manifest), without)  # mini's words mean nothing
    card = Template((TEMPLATES / "dataset.md").read_text(encoding="utf-8")).render(
        yaml=_yaml(card_data(folder, manifest)),
        title=title(manifest),
        holds={config: _holds(config, manifest) for config in configs},
        columns={
            config: _grouped(one.columns, lambda each: tuple(each.labels or ()))
            for config, (one, *_) in configs.items()
        },
        licences=_licences(manifest),
        reports=reports.read(folder, manifest),
        about=[to_markdown(table).rstrip() for table in subjects.values()],
        expected=_expected() if manifest.kind == "published" else {},
        test_sets=_grouped(manifest.test_sets, lambda one: (one.shift, tuple(one.measures), one.qrels)),
        variations=[
            (*key, entries, dict.fromkeys(rules.get(entry.split, "") for entry in entries))
            for key, entries in variations.items()
        ],
        sources=sources,
        unstated=[name for name, files in sources.items() if files[0].licence in UNSTATED],
        citations=_citations(manifest, {*sources, *configs}),
        LEFT_OUT=LEFT_OUT,
        shown=escape,
        manifest=manifest,
        configs=configs,
        synthetic=of_mini,
        ms_marco=ms_marco,
        queries_alone=queries_alone,
        shifts=[name for name in SHIFTS if name in configs],
    )
    return {CARD: f"{card}\n", LICENCES: licence_text(manifest)}


def licence_text(manifest: Manifest) -> str:
    """The file that says under which licences a release, or a part of it, is."""
    return f"# Licences of {title(manifest)} {manifest.version}\n\n{_licences(manifest)}\n"


def _licences(manifest: Manifest) -> str:
    from jinja2 import Template

    template = Template((TEMPLATES / "licences.md").read_text(encoding="utf-8"))
    of_mini, ms_marco = is_synthetic(manifest), is_of_ms_marco(manifest)
    facts = {"manifest": manifest, "configs": _configs(manifest), "synthetic": of_mini, "ms_marco": ms_marco}
    facts |= {"licence": _licence_of(manifest), "is_log": any(each.licence == OWN for each in manifest.inputs)}
    return str(template.render(facts, shown=escape))


def source_of(file: str, manifest: Manifest) -> str:
    """The repository or collection of a file that the release was built from, by the file's id."""
    parts = file.split("/")
    return parts[0] if parts[0] == manifest.built_from else "/".join(parts[:2])


def write(folder: Path) -> None:
    """Rewrite the card of the release in ``folder``, in place."""
    manifest = read_manifest(folder)
    for name, text in texts(folder, manifest).items():
        atomic.write_inside(folder, name, text)


def _is_own(manifest: Manifest) -> bool:
    """Whether the queries are of somebody's own: a log, or a folder, and not of a published collection."""
    return (
        manifest.kind == "rebuilt"
        and not manifest.collection
        and not is_of_ms_marco(manifest)
        and not is_synthetic(manifest)
    )


def _licence_of(manifest: Manifest) -> str:
    """The licence that all files of one's own queries are under; empty where none or several are named."""
    named = {each.licence for each in manifest.inputs} if _is_own(manifest) else set()
    return named.pop() if len(named) == 1 and not named & {OWN, *UNSTATED} else ""


def _grouped[Item](items: Iterable[Item], key: Callable[[Item], Any]) -> dict[Any, list[Item]]:
    """The items by their key, in the order in which both come."""
    groups: dict[Any, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _expected() -> dict[str, str]:
    """The papers' own figures of models trained by the lists, as tables, each under what it is."""
    tables = {}
    for id in EXPECTED:
        table, figures = reference.load(id), dict[tuple[str, str], dict[str, str]]()
        for cell in table["cells"]:
            of_cell = figures.setdefault((f"{cell['test_set']}, {cell['measure']}", cell["system"]), {})
            of_cell[_SIDES.get(cell["figure"], cell["figure"])] = reference.as_printed(cell)
        shown = {
            key: ("{in} → {out} ({loss})" if "in" in of else "{value}").format_map(of) for key, of in figures.items()
        }
        names, systems = (list(dict.fromkeys(part)) for part in zip(*shown, strict=True))
        rows = [[name, *(shown[name, system] for system in systems)] for name in names]
        paper = table["paper"]
        text = to_markdown(Table(text_columns("test set", *systems), [rows])).rstrip()
        tables[f"{paper['venue']} {paper['year']}, {table['table']}"] = text
    return tables


def _citations(manifest: Manifest, parts: Collection[str]) -> list[str]:
    """The entries of citations.bib for a release with these configs and sources."""
    judgements = set(map(attrgetter("qrels"), manifest.test_sets))
    is_own = _is_own(manifest)
    cited_for = {
        "lupart2023msshift": not is_own or not {"topic", "wh", "length", "given", "crossed"}.isdisjoint(parts),
        "lupart2022finegrained": not is_own,  # its figures are of MS MARCO
        "zhan2022interpolation": not is_own or not {"resttest", "restrain"}.isdisjoint(parts),
        "arabzadeh2021chameleons": not is_own or "chameleons" in parts,
        "thakur2021beir": not is_of_ms_marco(manifest) and (not is_own or "qrels" in parts),
        "bajaj2016msmarco": is_of_ms_marco(manifest),
        "craswell2020dl19": is_of_ms_marco(manifest) and "dl19" in judgements,
        "craswell2021dl20": is_of_ms_marco(manifest) and "dl20" in judgements,
        "zhuang2022characterbert": "ielab/CharacterBERT-DR" in parts,
        "penha2022variations": "Guzpenha/query_variation_generators" in parts,
        "mackie2021dlhard": "dlhard" in parts,
    }
    entries = (TEMPLATES / "citations.bib").read_text(encoding="utf-8").strip().split("\n\n")
    return [entry for entry in entries if cited_for.get(entry.partition("{")[2].partition(",")[0], True)]


def card_data(folder: Path, manifest: Manifest) -> dict[str, Any]:
    """What the card's YAML block says.

    ``load_dataset`` of a local folder keys its cache on the card alone, so each config carries the version and
    the digest of its content: a rebuilt release is never served from an old cache.
    """
    synthetic, ms_marco = is_synthetic(manifest), is_of_ms_marco(manifest)
    rows = sum(table.rows for table in manifest.tables)
    licence = {"license": "other", "license_name": "see-card", "license_link": LICENCES}
    if (of_own := _licence_of(manifest)).lower() in _ON_THE_HUB:
        licence = {"license": of_own.lower()}
    elif of_own:
        licence["license_name"] = "-".join(re.findall(r"[a-z0-9.]+", of_own.lower())) or "see-card"
    if ms_marco:
        licence |= {"license_name": "non-commercial-research", "license_details": _IN_WORDS}
    return {
        "pretty_name": title(manifest),
        **({"language": language(manifest)} if language(manifest) else {}),
        **({"license": "apache-2.0"} if synthetic else licence),
        "size_categories": [next((name for limit, name in SIZES if rows < limit), "1M<n<10M")],
        "source_datasets": ["original" if synthetic else "extended|ms_marco" if ms_marco else "extended"],
        "task_categories": ["text-retrieval"],
        "tags": [*_TAGS, *["ms-marco"] * ms_marco],
        "configs": _config_entries(manifest),
        "dataset_info": [
            _with_sizes(_dataset_info(config, splits), folder, splits) for config, splits in _configs(manifest).items()
        ],
    }


def _yaml(data: dict[str, Any]) -> str:
    """YAML with a line for each config, as a release has a hundred splits."""
    import yaml

    def dump(value: Any, flow: bool) -> str:
        text = yaml.safe_dump(value, default_flow_style=flow, width=math.inf, allow_unicode=True, sort_keys=False)
        return text.rstrip()

    lines = []
    for key, value in data.items():
        if isinstance(value, list) and isinstance(value[0], dict):
            lines += [f"{key}:", *(f"- {dump(entry, flow=True)}" for entry in value)]
        else:
            lines.append(dump({key: value}, flow=False))
    return "\n".join(lines)


def check_card(folder: Path, manifest: Manifest) -> None:
    """Check that the card's YAML is of this manifest's version, content, columns and rows: no digest covers it."""
    import yaml
    from huggingface_hub import DatasetCard

    path, again = folder / CARD, f"Write it again: python -m builder card {folder}"
    try:
        data = DatasetCard(read_utf8(path)).data.to_dict()  # type: ignore[no-untyped-call]
    except UserError as error:
        raise UserError(f"{error}", do=again) from error
    except (ValueError, TypeError, yaml.YAMLError) as error:
        raise UserError(f"The YAML of {path} is not valid", str(error).splitlines()[0], again) from error
    # damaged tables are for other checks to tell, so their sizes are not looked at
    infos = [_dataset_info(config, splits) for config, splits in _configs(manifest).items()]
    if _described(data) != _described({"configs": _config_entries(manifest), "dataset_info": infos}):
        raise UserError(f"{path} describes another release, or another version of this one", do=again)


def _described(data: Mapping[str, Any]) -> list[Any]:
    """What ``load_dataset`` goes by: files may be packed otherwise."""
    infos = []
    for info in data.get("dataset_info") or ():
        rows = [(split.get("name"), split.get("num_examples")) for split in info.get("splits") or ()]
        infos.append([info.get("config_name"), info.get("features"), rows])
    return [data.get("configs"), infos]


def _dataset_info(config: str, splits: Sequence[TableEntry]) -> dict[str, Any]:
    return {
        "config_name": config,
        "features": features(splits[0].columns)._to_yaml_list(),
        "splits": [{"name": table.split, "num_examples": table.rows} for table in splits],
    }


def _with_sizes(info: dict[str, Any], folder: Path, tables: Sequence[TableEntry]) -> dict[str, Any]:
    """The tables' bytes in Arrow's form, as datasets counts them: without them it calls each split malformed."""
    sizes = [read_table(folder / table.path).nbytes for table in tables]
    splits = [split | {"num_bytes": size} for split, size in zip(info["splits"], sizes, strict=True)]
    files = sum((folder / table.path).stat().st_size for table in tables)
    return info | {"splits": splits, "download_size": files, "dataset_size": sum(sizes)}


def _config_entries(manifest: Manifest) -> list[dict[str, Any]]:
    entries = []
    configs = _configs(manifest)
    default = _DEFAULT_CONFIG if _DEFAULT_CONFIG in configs else next(iter(configs))
    for config, splits in configs.items():
        digest = sha256("".join(table.digest for table in splits).encode()).hexdigest()
        about = f"{_holds(config, manifest)} (content sha256:{digest[:16]})"
        files = [{"split": table.split, "path": f"data/{config}/{table.split}-*"} for table in splits]
        entry: dict[str, Any] = {"config_name": config, "version": manifest.version, "description": about}
        entries.append(entry | ({"default": True} if config == default else {}) | {"data_files": files})
    return entries


def _holds(config: str, manifest: Manifest) -> str:
    """What a config holds, in words; the published topics by name."""
    holds = HOLDS.get(config, config)
    if config == "topic" and manifest.kind == "published":
        holds += f": {', '.join(named(part, manifest) for part in TOPICS)}"
    return holds


def _configs(manifest: Manifest) -> dict[str, list[TableEntry]]:
    return _grouped(manifest.tables, attrgetter("config"))
