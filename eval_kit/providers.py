"""Test and training sets by name in tools that find providers among the installed packages; nothing to import.

``pt.get_dataset("shift:topic/c0")`` of PyTerrier and ``load("shift:topic/c0")`` of ir_datasets 2 give the datasets of
the default release in :mod:`eval_kit.irds`, under the same names. The tools load every provider that they find, so
nothing is imported before a dataset is requested, and without a release there are no names.
"""

from collections.abc import Iterator
from typing import Any

from eval_kit.errors import UserError
from eval_kit.release import has_default, open_release


class PyTerrier:
    """What PyTerrier's entry point ``pyterrier.dataset_provider`` expects."""

    def get_dataset(self, name: str) -> Any:
        """PyTerrier's dataset of that name.

        Raises:
            KeyError: the release has none.
            ReleaseError: there is no release.
        """
        release = open_release()
        import pyterrier

        from eval_kit import irds

        irds.register(release)
        return pyterrier.get_dataset(f"irds:{release.collection}/shift/{name}")

    def list_dataset_names(self) -> list[str]:
        """The names that :meth:`get_dataset` takes."""
        return _names()


class IrDatasets:
    """What ir_datasets 2 expects of its entry point ``ir_datasets.providers``: a prefix and two methods.

    Version 2 is not released; this follows ``ir_datasets/v2/protocols.py`` of its repository.
    """

    prefix = "shift"

    def load(self, name: str) -> Any:
        """The benchmark of a name such as ``shift:topic/c0``.

        Raises:
            KeyError: the release has none.
            ReleaseError: there is no release.
        """
        from ir_datasets import v2

        from eval_kit import irds

        name = name.removeprefix(f"{self.prefix}:")
        dataset = irds.datasets_of(open_release())[name]
        kinds = {"docs": v2.DocTable, "queries": v2.QueryTable, "qrels": v2.QrelTable}
        tables = {
            kind: table(f"{name}-{kind}", handler=getattr(dataset, f"{kind}_handler")())
            for kind, table in kinds.items()
            if getattr(dataset, f"has_{kind}")()
        }
        return v2.Benchmark(name, metrics=dataset.documentation()["official_measures"], **tables)

    def discover_edges(self) -> Iterator[tuple[str, str, str]]:
        """The catalogue: the type of each name that :meth:`load` takes."""
        for name in _names():
            yield f"{self.prefix}:{name}", "type", "irds:Benchmark"


ir_datasets_2 = IrDatasets()


def _names() -> list[str]:
    """The names of all datasets; empty where the default release cannot be opened, which loading one reports."""
    if not has_default():
        return []
    try:
        from eval_kit import irds

        return list(irds.datasets_of(open_release()))
    except (UserError, OSError):
        return []
