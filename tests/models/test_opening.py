"""Models that come with code of their own, and models whose files do not say what they are."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from eval_kit.errors import UserError
from eval_kit.models.dense import Dense
from eval_kit.models.opening import open_retriever
from eval_kit.models.sparse import Sparse
from tests.tiny_checkpoints import tiny

CODE = """
from transformers import BertConfig, BertModel
class OwnConfig(BertConfig):
    model_type = "own"
class OwnModel(BertModel):
    config_class = OwnConfig
"""


def with_code(name: str, folder: Path) -> Path:
    """A tiny checkpoint of a type that transformers does not know, as many on the Hub are."""
    model = folder / "own"
    shutil.copytree(tiny(name), model)
    (model / "own_code.py").write_text(CODE)
    path = model / "config.json"
    names = {"AutoConfig": "own_code.OwnConfig", "AutoModel": "own_code.OwnModel"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "own", "auto_map": names}))
    return model


@pytest.mark.parametrize(("name", "options"), [("dense", {}), ("bert", {"pooling": "cls"})])
def test_the_code_of_a_model_runs_where_its_user_says_so(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    model = with_code(name, tmp_path)
    with pytest.raises(UserError, match=r"own\. .* --option trust_remote_code=true"):
        open_retriever(str(model), options)[0].encode_queries(["alpha beta"])  # type: ignore[attr-defined]
    vectors = [
        open_retriever(str(source), given)[0].encode_passages(["alpha beta"])  # type: ignore[attr-defined]
        for source, given in ((model, options | {"trust_remote_code": True}), (tiny(name), options))
    ]
    torch.testing.assert_close(*vectors)


def test_a_plain_masked_model_is_searched_as_splade_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="is a masked language model"):
        assert isinstance(open_retriever(str(tiny("masked")))[0], Sparse)
    assert isinstance(open_retriever(str(tiny("masked")), {"pooling": "cls"})[0], Dense)
