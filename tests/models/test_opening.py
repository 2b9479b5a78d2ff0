"""Models that come with code of their own, and models whose files do not say what they are."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from eval_kit.errors import UserError
from eval_kit.models.dense import Dense
from eval_kit.models.opening import opened
from eval_kit.models.sparse import Sparse
from tests.tiny_checkpoints import tiny

CODE = """
from transformers import BertConfig, BertModel
class OwnConfig(BertConfig):
    model_type = "own"
class OwnModel(BertModel):
    config_class = OwnConfig
"""


@pytest.fixture
def with_code(tmp_path: Path) -> Path:
    """A dense encoder of a type that transformers does not know, as many on the Hub are."""
    model = tmp_path / "own"
    shutil.copytree(tiny("dense"), model)
    (model / "own_code.py").write_text(CODE)
    path = model / "config.json"
    names = {"AutoConfig": "own_code.OwnConfig", "AutoModel": "own_code.OwnModel"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "own", "auto_map": names}))
    return model


def test_the_code_of_a_model_runs_where_its_user_says_so(with_code: Path) -> None:
    with pytest.raises(UserError, match=r"own: .* code of its own, .*--option trust_remote_code=true$"):
        opened(str(with_code))[0].encode_queries(["alpha beta"])  # type: ignore[attr-defined]
    vectors = [
        opened(str(model), options)[0].encode_queries(["alpha beta"])  # type: ignore[attr-defined]
        for model, options in ((with_code, {"trust_remote_code": True}), (tiny("dense"), {}))
    ]
    torch.testing.assert_close(*vectors)


def test_a_plain_masked_model_is_searched_as_splade_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="masked: is a masked language model, searched as SPLADE; if"):
        assert isinstance(opened(str(tiny("masked")))[0], Sparse)
    assert isinstance(opened(str(tiny("masked")), {"pooling": "cls"})[0], Dense)
