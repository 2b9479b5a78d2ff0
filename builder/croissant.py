"""The release in Croissant, MLCommons' vocabulary for data sets (version 1.0), with its responsible-AI terms.

``mlcroissant`` and catalogues read it: every table is a file with its sha256 and a record set of the same name.
"""

import json
from pathlib import Path
from typing import Any

from eval_kit.documents import Manifest, TableEntry
from eval_kit.release import title
from eval_kit.release.manifest import is_of_ms_marco, is_synthetic

CROISSANT = "croissant.json"
TEMPLATE = Path(__file__).parent.parent / "hub_cards" / CROISSANT
"""The vocabulary's context, and what is said of people and limits for each kind of data."""
TYPES = {"int64": "sc:Integer"}
CITE = (
    "Lupart et al. (ECIR 2023) for MS-Shift, Zhan et al. (CIKM 2022) for ReSTrain and ReSTTest, Arabzadeh et al. "
    "(CIKM 2021) for Chameleons; BibTeX is in README.md"
)


def render(manifest: Manifest, licence: str) -> str:
    """The text of ``croissant.json``; the licence by its name, or by the file that states it."""
    template = json.loads(TEMPLATE.read_text(encoding="utf-8"))
    kind = "synthetic" if is_synthetic(manifest) else "ms_marco" if is_of_ms_marco(manifest) else "other"
    document = {
        "@context": template["context"],
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": title(manifest),
        "description": "Query splits that measure how a retrieval model generalises when its queries shift.",
        "version": manifest.version,
        "license": licence,
        "citeAs": CITE,
        **template["rai"][kind],
        "distribution": list(map(_file, manifest.tables)),
        "recordSet": list(map(_record_set, manifest.tables)),
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _file(table: TableEntry) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": table.path,
        "name": table.path,
        "contentUrl": table.path,
        "encodingFormat": "application/x-parquet",
        "sha256": table.sha256,
    }


def _record_set(table: TableEntry) -> dict[str, Any]:
    name, fields = f"{table.config}/{table.split}", []
    for column in table.columns:
        many = column.type.startswith("list<")
        fields.append(
            {
                "@type": "cr:Field",
                "@id": f"{name}/{column.name}",
                "name": column.name,
                "dataType": TYPES.get(column.type, "sc:Text"),
                **({"repeated": True} if many else {}),
                "source": {"fileObject": {"@id": table.path}, "extract": {"column": column.name}},
            }
        )
    about = f"{table.rule.text} ({table.rule.source})"
    return {"@type": "cr:RecordSet", "@id": name, "name": name, "description": about, "field": fields}
