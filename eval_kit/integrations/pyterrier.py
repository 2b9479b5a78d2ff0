"""Test and training sets by name in PyTerrier, which finds providers among the installed packages; nothing to import.

``pt.get_dataset("shift:topic/c0")`` gives the dataset of that name in :mod:`eval_kit.integrations.irds`, of the default
release.
PyTerrier loads every provider that it finds, so nothing is imported before a dataset is requested, and without a
release there are no names.
"""

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

        from eval_kit.integrations import irds

        irds.register(release)
        return pyterrier.get_dataset(f"irds:{release.collection}/shift/{name}")

    def list_dataset_names(self) -> list[str]:
        """The names that :meth:`get_dataset` takes; none without a release that opens, which loading one reports."""
        try:
            from eval_kit.integrations import irds

            return list(irds.datasets_of(open_release())) if has_default() else []
        except (UserError, OSError):
            return []
