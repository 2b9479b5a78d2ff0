"""``python -m builder``."""

from eval_kit.errors import environment

with environment("builder"):
    from builder.cli import main

main()
