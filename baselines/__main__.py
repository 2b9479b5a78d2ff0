"""``python -m baselines``."""

from baselines.cli import main

main()
