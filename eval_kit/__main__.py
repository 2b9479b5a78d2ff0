"""``python -m eval_kit``: the same commands as the ``eval_kit`` script."""

from eval_kit.errors import environment

with environment("eval_kit"):
    from eval_kit.cli import main

main()
