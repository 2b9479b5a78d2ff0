"""Mini and its queries' vectors, made once for all tests of shifts."""

import pytest

from builder.encoders import Lsa, embed
from builder.sources.mini import Mini, generate
from eval_kit.stats.vectors import Vectors

MINI_LSA = {"dimensions": 6, "most": 0.02}
"""Mini has six vocabularies (five topics and the rest) and its common words are in more than 2 % of the passages."""


@pytest.fixture(scope="session")
def mini() -> Mini:
    return generate()


@pytest.fixture(scope="session")
def mini_embedded(mini: Mini) -> dict[str, Vectors]:
    """Population -> queries by LSA learnt from the passages: from queries alone no encoder can know mini's topics."""
    encoder = Lsa(**MINI_LSA, corpus=mini.passages["text"].to_list())  # type: ignore[arg-type]
    everything = embed(mini.queries, encoder)
    population = mini.queries["population"].to_numpy()
    return {
        name: Vectors("planted", everything.query_ids.filter(population == name), everything.values[population == name])
        for name in ("train", "dev", "dl19", "dl20")
    }
