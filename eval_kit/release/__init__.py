"""A release: opened and verified, its ir_datasets ids, and the published tables beside which its figures stand."""

from eval_kit.release.release import (
    DEFAULT,
    ENVIRONMENT_VARIABLE,
    MANIFEST,
    PartialRelease,
    Release,
    ReleaseError,
    TestSet,
    Variation,
    check_content,
    open_release,
    read_manifest,
    verified_manifest,
)

__all__ = [
    "DEFAULT",
    "ENVIRONMENT_VARIABLE",
    "MANIFEST",
    "PartialRelease",
    "Release",
    "ReleaseError",
    "TestSet",
    "Variation",
    "check_content",
    "open_release",
    "read_manifest",
    "verified_manifest",
]
