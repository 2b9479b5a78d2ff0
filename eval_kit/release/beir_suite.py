"""The datasets of BEIR (Thakur et al., NeurIPS Datasets and Benchmarks 2021, Table 1), one JSON file each.

Checksums and addresses are those of BEIR's own list (README of the package ``beir`` 2.2.0), which lacks
:data:`ANNOTATED`; Table 7 has its address.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

from eval_kit.errors import UserError
from eval_kit.release.reference import published_cells

CQADUPSTACK = "cqadupstack"
MS_MARCO = "msmarco"
ANNOTATED = "trec-covid-beir"
"""TREC-COVID with more judgements (Table 4), which is not among the 19 of Table 1."""


@dataclass(frozen=True)
class BeirDataset:
    """One dataset: domain and sizes as in Table 1, licence as in Appendix E, ``split`` and title as in Table 2.

    ``published_as`` names it in the kit's reference tables, ``beir.<published_as>``. ``url`` and ``md5`` are of the
    zip, None where BEIR does not distribute it or says none. ``folders`` are of datasets within it, whose mean is its
    figure.
    """

    name: str
    title: str
    published_as: str
    domain: str
    licence: str
    url: str | None
    md5: str | None
    split: str
    folders: list[str]
    passages: int
    queries: int
    remarks: list[str]


@cache
def datasets() -> Mapping[str, BeirDataset]:
    """Every dataset by its name, sorted."""
    paths = sorted((Path(__file__).parent / "beir").glob("*.json"))
    return {path.stem: BeirDataset(**json.loads(path.read_text(encoding="utf-8"))) for path in paths}


def dataset_named(name: str) -> BeirDataset:
    """The dataset of that name."""
    if name not in datasets():
        raise UserError(f"BEIR has no dataset {name!r}", do=f"Choose from: {', '.join(datasets())}")
    return datasets()[name]


def dataset_name(folder: Path) -> str:
    """The folder's name; of CQADupStack's folders ``cqadupstack.android`` and so on."""
    path = folder.resolve()
    return f"{CQADUPSTACK}.{path.name}" if path.parent.name == CQADUPSTACK else path.name


def split_of(folder: Path) -> str:
    """The split that Table 2 reports: ``test``, and ``dev`` for MS MARCO."""
    dataset = datasets().get(folder.resolve().name)
    return dataset.split if dataset else "test"


def parts(folder: Path) -> list[Path]:
    """The folders that a dataset's folder consists of: CQADupStack's twelve, or itself."""
    dataset = datasets().get(folder.resolve().name)
    return [folder / name for name in dataset.folders] if dataset and dataset.folders else [folder]


@cache
def published_values() -> Mapping[tuple[str, str], Mapping[str, float]]:
    """(system, BEIR's name of a dataset) -> measure -> value, of Tables 2, 4 and 9."""
    names = {f"beir.{dataset.published_as}": dataset.name for dataset in datasets().values()}
    values: dict[tuple[str, str], dict[str, float]] = {}
    for cell in chain.from_iterable(published_cells(f"beir2021-table{number}") for number in (2, 4, 9)):
        if cell["figure"] == "value":
            measure = cell["measure"].replace("Hole", "hole")
            values.setdefault((cell["system"], names[cell["test_set"]]), {})[measure] = cell["value"]
    return values
