"""A command and its functions in Python say the same, and no option of a command is given for nothing."""

import ast
import inspect
import re
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
import typer

import eval_kit
from eval_kit import cli
from eval_kit.errors import UserError
from eval_kit.papers.beside import of_paper
from eval_kit.program import names_of
from eval_kit.release import Release
from tests.beir_folders import beir_folder
from tests.eval_kit.plain_runs import plain_run

FUNCTIONS: dict[str, list[Callable[..., Any]]] = {
    "score": [eval_kit.score, eval_kit.beir, eval_kit.chameleons],
    "run": [eval_kit.run],
    "protocol": [eval_kit.report, of_paper],
    "similarity": [eval_kit.similarity],
    "generalise": [eval_kit.generalise],
    "clean": [eval_kit.clean],
    "variations": [eval_kit.variations],
    "compare": [eval_kit.compare],
    "discover": [eval_kit.discover],
}
OF_THE_SHELL = {"format", "json_file", "page", "per_query", "parts", "example", "no_pivot", "help"}
"""Where results go, runs that come with the kit, and no pivots at all."""
CONVERTED = {"options"}
"""Options ``KEY=VALUE``, which a command makes a dictionary of."""
OF_PYTHON = {"outputs"}
"""What else a caller of ``run`` will write."""


def parameters(*functions: Callable[..., Any]) -> set[str]:
    return {name for function in functions for name in inspect.signature(function).parameters}


def commands() -> dict[str, Any]:
    return typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]


def test_a_command_has_the_options_that_its_functions_have() -> None:
    assert commands().keys() == FUNCTIONS.keys()
    for name, functions in FUNCTIONS.items():
        assert names_of(commands()[name]).keys() - OF_THE_SHELL == parameters(*functions) - OF_PYTHON, name


def test_what_messages_call_a_parameter_is_one() -> None:
    public = parameters(*(getattr(eval_kit, name) for name in eval_kit.__all__ if name != "UserError"), of_paper)
    sources = "".join(path.read_text() for path in Path(eval_kit.__file__).parent.rglob("*.py"))
    assert set(re.findall(r"""\bparameter\(["'](\w+)["']\)""", sources)) <= public


def test_no_call_of_the_library_rests_on_the_order_of_many_arguments() -> None:
    calls = [node for node in ast.walk(ast.parse(Path(cli.__file__).read_text())) if isinstance(node, ast.Call)]
    assert [ast.unparse(call) for call in calls if len(call.args) > 3 and not ast.unparse(call).startswith("_")] == []


WRONG = {
    **dict.fromkeys(("--release", "--qrels", "--queries", "--trained-on", "--dataset"), "nowhere"),
    **dict.fromkeys(("--bm25", "--untrained", "--vectors"), "nowhere"),
    **dict.fromkeys(("--measure", "--test-set", "--by", "--baseline", "--paper"), "nosuch"),
    "--per-query": "nowhere/values.tsv",
}
RIGHT = {"--seed": ["1"], "--no-worse-than": ["0.1"], "--allow-missing": [], "--example": []}
"""Where nothing can be wrong, an option is its function's or refused."""
BRANCHES = {
    "score": (
        ("toy.trec --release toy", eval_kit.score),
        ("toy.trec --dataset toy", eval_kit.beir),
        ("all.trec --release mini --by chameleons", eval_kit.chameleons),
    ),
    "compare": (("toy.trec other.trec --release toy", eval_kit.compare),),
    "protocol": (
        ("s.length.short.trec s.length.long.trec --release mini", eval_kit.report),
        ("grid --release mini --paper ecir2023-table2", of_paper),
        ("--paper ecir2023-table2", of_paper),
    ),
}


@pytest.fixture(scope="module")
def place(mini_release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs and what they are scored on, by short names."""
    folder = tmp_path_factory.mktemp("verbs")
    (folder / "mini").symlink_to(mini_release.folder.resolve())
    beir_folder(folder / "toy", [], {"q1": "a b", "q2": "a"}, [("q1", "d1"), ("q2", "d1")])
    for name, first in (("toy", "d1"), ("other", "d2")):
        (folder / f"{name}.trec").write_text("".join(f"{query} Q0 {first} 1 2.0 t\n" for query in ("q1", "q2")))
    (folder / "all.trec").write_text(plain_run(mini_release, *mini_release.test_sets))
    (folder / "grid").mkdir()
    for part in ("short", "long"):
        for path in (folder, folder / "grid"):
            (path / f"s.length.{part}.trec").write_text(plain_run(mini_release, "length.short", "length.long"))
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BRANCHES)
def test_every_option_is_used_or_refused_in_every_branch(name: str, place: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(place)
    monkeypatch.delenv("MS_MARCO_SHIFT_RELEASE", raising=False)

    def status(line: str, *more: str) -> int:
        monkeypatch.setattr(sys, "argv", ["eval_kit", name, *line.split(), *more])
        with pytest.raises(SystemExit) as end:
            cli.main()
        capsys.readouterr()
        return int(end.value.code or 0)

    for line, function in BRANCHES[name]:
        assert status(line) == 0, line
        names = names_of(commands()[name])
        takes = {names[each] for each in parameters(function) if each in names}
        for option in (each.opts[0] for each in commands()[name].params if each.param_type_name == "option"):
            if option in WRONG:
                assert status(line, option, WRONG[option]) == 2, (line, option)
            elif option in RIGHT:
                assert (option in takes) == (status(line, option, *RIGHT[option]) != 2), (line, option)
    assert status("toy.trec --dataset toy --by words --qrels nowhere --trained-on nowhere") == 2


@pytest.mark.parametrize("function", [eval_kit.score, eval_kit.compare])
def test_training_queries_that_no_division_needs_are_refused(function: Any, place: Path) -> None:
    with pytest.raises(UserError, match="trained_on"):
        function([place / "toy.trec", place / "other.trec"], place / "toy", trained_on=["a b"])


def fits(given: Any, taken: Any) -> bool:
    """Whether a function's parameter takes what an option gives, by their types."""
    given, taken = (getattr(each, "__value__", each) for each in (given, taken))
    if get_origin(given) in (Union, UnionType):
        return all(fits(each, taken) for each in get_args(given) if each is not NoneType)
    if get_origin(taken) in (Union, UnionType):
        return any(fits(given, each) for each in get_args(taken))
    if taken is Any or get_origin(given) is not list:
        return taken is Any or issubclass(given, get_origin(taken) or taken) or (given is int and taken is float)
    holds = get_origin(taken) in (list, Sequence, Collection)
    return holds and fits(get_args(given)[0], get_args(taken)[0])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_takes_what_its_command_gives(name: str) -> None:
    options = {
        key: get_args(hint)[0]
        for key, hint in get_type_hints(getattr(cli, name), include_extras=True).items()
        if get_args(hint)
    }
    for function in FUNCTIONS[name]:
        hints = get_type_hints(function)
        for key in (options.keys() & hints.keys()) - CONVERTED:
            assert fits(options[key], hints[key]), (name, function, key, options[key], hints[key])
