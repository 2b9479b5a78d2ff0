"""Submissions by ``ir-metadata.yml``, in the forms that LongEval's template and tirex-tracker give it."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_kit.errors import UserError
from eval_kit.exchange.entries import entries
from eval_kit.exchange.submission import open_submission, validate
from eval_kit.files import strict_yaml
from eval_kit.release import Release
from tests.eval_kit.submissions import plain_run, submit

LONGEVAL = """
tag: Baseline-Dense  # the name of the system
actor:
  team: A Team
research goal:
  description: |
    A dense baseline.
platform:
  hardware: {cpu: {model: AMD EPYC, number of cores: 8}, ram: 64 GB}
  software:
    libraries: [pyterrier 1.0.4]
implementation:
  source:
    repository: https://example.org/code
data:
  training data:
  - name: Nothing
  - {name: all of them, ir_datasets: "https://ir-datasets.com/msmarco-passage.html#msmarco-passage/train"}
method:
  automatic: true
  retrieval:
  - name: NumpyRetriever
    lexical: no
    deep_neural_model: yes
    sparse_neural_model: no
    dense_neural_model: yes
"""


@pytest.fixture
def submission(mini_release: Release, tmp_path: Path) -> Path:
    folder = tmp_path / "board" / "dense"
    (folder / ".tirex-tracker").mkdir(parents=True)
    (folder / ".tirex-tracker" / "notebook.ipynb").write_text("{}")
    (folder / "index-ir-metadata.yml").write_text("tag: x")
    (folder / "ir-metadata.yml").write_text(LONGEVAL)
    (folder / "run.txt").write_text(plain_run(mini_release, "dl19"))
    return folder


def test_each_field_has_its_place(submission, mini_release):
    with pytest.warns(UserWarning, match=r"ir-metadata.yml does not say which release"):
        opened = open_submission(submission, mini_release)
    assert opened.document.as_json() == {
        "system": "Baseline-Dense",
        "team": "A Team",
        "architecture": "dense",
        "training_data": ["none", "msmarco-passage/train"],
        "licence": "unknown",
        "links": ["https://example.org/code"],
        "hardware": "AMD EPYC, 64 GB",
        "notes": "A dense baseline.",
        "release": {"version": mini_release.version, "digest": mini_release.digest},
        "runs": [{"file": "run.txt"}],
    }
    assert [run.name for run in opened.runs] == ["run.txt"]
    with pytest.warns(UserWarning, match="nor the licence"):
        assert validate(submission, mini_release) == []
    with pytest.warns(UserWarning, match="does not say"):
        assert {entry.system for entry in entries(submission.parent, mini_release)} == {"Baseline-Dense"}


def test_it_may_lie_beside_a_submission_of_our_own_which_then_counts(submission, mini_release):
    (submission / "index-ir-metadata.yml").unlink()
    (submission / ".tirex-tracker" / "notebook.ipynb").unlink()
    submit(mini_release, submission, ["run.txt"], "own")
    assert validate(submission, mini_release) == []
    assert open_submission(submission, mini_release).document.system == "own"


def test_the_architecture_follows_from_the_stages(submission, mini_release):
    for changes, architecture in (
        ({}, "dense"),
        ({"lexical: no": "lexical: yes"}, "hybrid"),
        ({"dense_neural_model: yes": "dense_neural_model: false"}, "other"),
        ({"dense_neural_model: yes": "", "sparse_neural_model: no": "sparse_neural_model: true"}, "sparse"),
        ({"  - name: Num": "    name: Num", "dense_neural_model: yes": "", "lexical: no": "lexical: on"}, "lexical"),
    ):
        text = LONGEVAL
        for old, new in changes.items():
            text = text.replace(old, new)
        (submission / "ir-metadata.yml").write_text(f"ir_metadata.start\n{text}ir_metadata.end\n")
        with pytest.warns(UserWarning, match="does not say"):
            assert open_submission(submission, mini_release).document.architecture == architecture
    (submission / "run.txt").unlink()
    assert validate(submission, mini_release) == ["ir-metadata.yml: there is no run beside it"]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("Baseline-Dense", "ENTER_VALUE_HERE", "tag is missing"),
        ("  team: A Team", "  name: A", "actor, team is missing"),
        ("  training data:", "  other:", "data, training data is missing"),
        ("tag: Baseline-Dense", "tag: " + "x" * 81, "$.system: "),
        ("tag: Baseline-Dense", "tag: &a Baseline\nother: *a", "ir-metadata.yml:3: has an alias"),
        ("tag: Baseline-Dense", "tag: x\ntag: y", "ir-metadata.yml:3: the key 'tag' appears twice"),
        ("tag: Baseline-Dense", "tag: [", "is not YAML: "),
        ("tag: Baseline-Dense", "? [a]\n: b", "a key is not plain text"),
        ("tag: Baseline-Dense", "tag: !!python/object/apply:os.system [exit]", "tag is missing"),
        ("tag: Baseline-Dense", "tag: " + "[" * 70, "is nested more than 64 deep"),
        ("tag: Baseline-Dense", "tag: " + "[" * 100_000, "nest"),  # a newer PyYAML refuses it before we do
        (LONGEVAL, "", "tag is missing"),
        (LONGEVAL, "#" * (1 << 20) + "#", "is larger than 1,048,576 bytes"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:.*does not say which release")
def test_faults(submission, mini_release, old, new, fault):
    (submission / "ir-metadata.yml").write_text(LONGEVAL.replace(old, new))
    with pytest.raises(UserError) as raised:
        open_submission(submission, mini_release)
    assert fault in str(raised.value)


@settings(max_examples=75)
@given(st.text(st.sampled_from("ab:-[]{}&*!#|>'\"\n\t ,?\x00\ud7ff1"), max_size=60) | st.text(max_size=60))
def test_any_text_is_read_or_refused_in_a_sentence(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.yml"
    path.write_bytes(text.encode())
    try:
        read = strict_yaml.read(path, 1 << 20)
    except UserError as error:
        assert str(error).startswith(str(path))
    else:
        json.dumps(read)
