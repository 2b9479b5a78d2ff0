"""The class of the command lines: before a command begins, its outputs are compared with all its inputs."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from eval_kit.errors import UserError, end_of_pipe
from eval_kit.files.endings import run_name
from eval_kit.files.numbers import finite_number
from eval_kit.files.opening import is_file, is_folder

_OUTPUTS = ("json_file", "per_query", "out", "page", "report")
"""Parameters that name what a command writes; every other path is something that it reads."""
RELEASE = "manifest.json"
BESIDE = (".training.json", ".ids.txt", ".npy")
"""What commands read beside a file: the declaration of a run, the ids of vectors, the vectors of a run."""


_TYPED: ContextVar[tuple[str, ...]] = ContextVar("_TYPED", default=())


def typed() -> tuple[str, ...]:
    """The command that runs, and its words as typed; empty in Python, and where it can read its input only once."""
    return () if any(word == "-" or word.startswith("/dev/") for word in _TYPED.get()) else _TYPED.get()


class Program(TyperGroup):
    """A group of commands that write over nothing that they read."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        """The context of the arguments; what help is printed to may be closed."""
        with _statuses_of_our_own():
            return super().make_context(*args, **kwargs)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, groups first: ``build`` comes before what needs a release."""
        return sorted(super().list_commands(ctx), key=lambda name: not isinstance(self.commands[name], TyperGroup))

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with _statuses_of_our_own():
            return super().invoke(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, which checks its paths first."""
        command = super().get_command(ctx, cmd_name)
        if isinstance(command, TyperCommand):
            command.invoke = partial(_invoke, command)  # type: ignore[method-assign]
            command.parse_args = partial(_parse, command)  # type: ignore[method-assign]
        return command


@contextmanager
def _statuses_of_our_own() -> Iterator[None]:
    """Typer would end with 1, which is an answer of some commands, where a pipe is closed or a file ends too early."""
    try:
        yield
    except BrokenPipeError:
        end_of_pipe()
    except EOFError as error:
        raise RuntimeError(str(error)) from error


def commands(help: str) -> typer.Typer:
    """A new command line, whose commands are such a group."""
    return typer.Typer(
        cls=Program,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
        help=help,
    )


def check_outputs(parameters: Mapping[str, Any]) -> None:
    """Refuse an output that is an input, or in an input folder; that is named twice, or ``-``.

    In a folder that is read, only pages may be replaced, as no command reads them. Nothing is written into a release.
    """
    outputs = [path for name in _OUTPUTS for path in _paths(parameters.get(name)) if path != Path("-")]
    for name in _OUTPUTS[1:]:
        if parameters.get(name) == Path("-"):
            raise UserError(
                f"--{name.replace('_', '-')} needs the name of a file", "Only --json takes - for the screen"
            )
    if not outputs:
        return
    inputs = [path for name, value in parameters.items() if name not in _OUTPUTS for path in _paths(value)]
    if "release" in parameters and parameters["release"] is None:
        inputs.append(Path(os.environ.get("MS_MARCO_SHIFT_RELEASE") or "ms-marco-shift"))
    folders = set(map(os.path.realpath, filter(is_folder, inputs)))
    in_use = {folder for folder in folders if is_file(Path(folder, RELEASE))}
    for file in filter(is_file, inputs):
        in_use.update(map(os.path.realpath, (file, *(file.with_name(run_name(file) + end) for end in BESIDE))))
        in_use.update(os.path.realpath(file.with_suffix(end)) for end in BESIDE)
    for output in outputs:
        real = os.path.realpath(output)
        replaces = is_file(output) and output.suffix != ".html"
        if real in in_use or (replaces and any(map(Path(real).is_relative_to, folders))):
            raise UserError(f"This command already reads or writes {output}", do="Choose another file to write")
        if releases := [each for each in Path(real).parents if is_file(each / RELEASE)]:
            raise UserError(
                f"{output} is in the release {releases[0]}",
                "A release contains only what its manifest lists",
                "Choose another file to write",
            )
        if not is_folder(output):
            in_use.add(real)
    for page in _paths(parameters.get("page")):
        if page.suffix in ("", ".html", ".htm"):
            continue
        raise UserError(f"A page is HTML, not {page.suffix}", do=f"Name it {page.with_suffix('.html')}")


def _parse(command: TyperCommand, context: Any, arguments: list[str]) -> list[str]:
    """As the command does; what is wrong with a value, without the name of the error's class."""
    texts = list(arguments)
    _TYPED.set((context.command_path.replace("python -m eval_kit", "eval_kit"), *texts))
    try:
        rest = type(command).parse_args(command, context, arguments)
        _check_numbers(command, context, texts)
        _check_once(command, texts)
        return rest
    except typer.BadParameter as error:
        json = "For JSON: --json FILE." if error.param and error.param.name == "format" else ""
        error.message = f"{error.message.removeprefix('Value error, ')} {json}".strip()
        raise


def _check_numbers(command: TyperCommand, context: Any, texts: list[str]) -> None:
    """Refuse options that are numbers to Python alone: ``1_0``, other scripts' digits, infinity."""
    parameters: Iterable[Any] = command.params
    for each in parameters:
        value = context.params.get(each.name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            for at, text in enumerate(texts):
                name, equals, number = text.partition("=")
                number = number if equals else "".join(texts[at + 1 : at + 2])
                if name in each.opts and finite_number(number) is None:
                    raise typer.BadParameter(f"{number!r} is not a finite decimal number.", ctx=context, param=each)


def _check_once(command: TyperCommand, texts: list[str]) -> None:
    """Refuse an option of one value that is given two: the first would be dropped in silence."""
    parameters: Iterable[Any] = command.params
    for each in parameters:
        takes_one = each.param_type_name == "option" and not each.multiple and not each.is_flag
        if takes_one and sum(text.partition("=")[0] in each.opts for text in texts) > 1:
            raise UserError(f"{each.opts[0]} is given twice", "It takes one value")


def _invoke(command: TyperCommand, context: Any) -> Any:
    check_outputs(context.params)
    try:
        return type(command).invoke(command, context)
    except UserError as error:
        raise UserError(error.in_shell(names_of(command))) from error


def names_of(command: TyperCommand) -> dict[str, str]:
    """What the shell calls each parameter of a command: its option, or the name of its argument in the help."""
    names = {}
    for each in command.params:
        is_option = each.param_type_name == "option"
        names[str(each.name)] = each.opts[0] if is_option else each.metavar or str(each.name).upper()
    return names


def _paths(value: Any) -> Iterator[Path]:
    """The paths in the value of a parameter, alone or in a list."""
    values: Iterable[Any] = value if isinstance(value, list | tuple) else [value]
    for item in values:
        if isinstance(item, str | Path) and str(item) and "\0" not in str(item):
            yield Path(item)
            if not is_file(Path(item)):  # NAME=FILE, FILE:COLUMN
                yield from map(Path, filter(None, (str(item).partition("=")[2], str(item).rpartition(":")[0])))
