"""A release, opened and verified; BEIR's datasets; and the published tables to set its figures beside."""

from eval_kit.documents import MS_MARCO, NAME, Variation
from eval_kit.release.manifest import (
    COLUMN_TYPES,
    MANIFEST,
    NoReleaseError,
    ReleaseError,
    read_manifest,
    read_table,
    title,
    verified_manifest,
)
from eval_kit.release.release import (
    DEFAULT,
    ENVIRONMENT_VARIABLE,
    PartialRelease,
    Release,
    TestSet,
    has_default,
    open_release,
)
