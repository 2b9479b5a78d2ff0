"""``python -m baselines cost``: what a grid would cost."""

from pathlib import Path
from typing import Annotated

import typer


def cost(
    config: Annotated[str, typer.Option(help="paper, paper-cikm2022, mini, mini-long, or a JSON file of your own.")],
    measured: Annotated[Path, typer.Option(metavar="FILE", help="Throughputs of a device, as bench/ writes them.")],
    release: Annotated[str | None, typer.Option(help="Release folder or Hub id; else as for eval_kit.")] = None,
    system: Annotated[list[str] | None, typer.Option(help="Only this system; repeatable.")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the projection as JSON ('-': to the screen).")
    ] = None,
) -> None:
    """Device hours that a grid would take: measured throughput, times what the config asks for."""
    from dataclasses import asdict

    from baselines import config as configs
    from baselines import cost as library
    from baselines.grid.grid import cells
    from eval_kit.console import refuse_overwriting, screen, write_json
    from eval_kit.release import open_release

    refuse_overwriting([measured], [json_file])
    throughput = library.measured(measured, config)
    wanted = cells(configs.chosen(config, system), open_release(release), Path(), configs.shifts(config))
    costs = library.projected(wanted, throughput)
    document = {"device": throughput["device"], "projected": [asdict(one) | {"hours": one.hours} for one in costs]}
    if not write_json(document, json_file):
        library.show(costs, throughput["device"], screen())
