"""``python -m baselines``."""

from eval_kit.errors import environment

with environment("baselines"):
    from baselines.cli import main

main()
