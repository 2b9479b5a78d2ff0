"""Figures of speed on the pages are those of the JSON in ``bench/results``."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def measured(name: str) -> Any:
    return json.loads((ROOT / "bench" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_page_of_speed_has_the_measured_figures():
    text = page("docs/speed.md")
    scoring = measured("scoring")["results"]["6.98M"]["costs"]
    bench = measured("baselines")
    dense = next(row for row in bench["synthetic"]["rows"] if row["name"] == "dense flat")
    rows = {row["name"]: row for row in bench["slice"]["rows"]}
    alone, together = dense["one_at_a_time"], dense["in_one_call"]
    bm25 = rows["BM25"]["one_at_a_time"]
    claims = [
        f"{scoring['eval_kit score']['wall_s']} s | trec_eval's library",
        f"(pytrec_eval) {scoring['pytrec_eval']['wall_s']} s, ir_measures {scoring['ir_measures']['wall_s']} s",
        f"{bench['slice']['encoding']['ours']['passages_per_second']:.0f} passages/s",
        f"{alone['ours']['ms']:.0f} ms | faiss `IndexFlatIP` {alone['peer']['ms']:.0f} ms",
        f"{together['ours']['ms']:.0f} ms a query | {together['peer']['ms']:.0f} ms",
        f"{rows['late exact']['in_one_call']['ours']['ms']:.0f} ms a query",
        f"{bm25['ours']['ms']:.0f} ms | Pyserini {bm25['peer']['ms']:.0f} ms",
        f"{rows['sparse csr']['one_at_a_time']['ours']['ms']:.1f} ms",
    ]
    for figures in (bench["training"]["training"], bench["training"]["encoding"]):
        overheads = [100 * figure["overhead"]["cpu_s"] for figure in figures.values()]
        claims.append(f"{min(overheads):+.1f} to {max(overheads):+.1f} % CPU time")
    assert not [claim for claim in claims if claim not in text]
    assert f"{scoring['eval_kit score']['wall_s']} s for 6.98 million lines" in page("README.md")


def test_the_page_of_the_audit_has_the_measured_thresholds():
    for name in ("trigrams", "characters", "words", "lsa"):
        encoder = measured("near_duplicates")["encoders"][name]
        shares = [100 * share for share in encoder["taken for duplicates"].values()]
        [row] = re.findall(rf"^\| {name} \| (.*) \|$", page("docs/audit.md"), re.MULTILINE)
        printed = [float(cell.strip(" %")) for cell in row.split("|")]
        assert printed[:3] == pytest.approx([encoder[key] for key in ("cosine", "precision", "recall")], abs=0.011)
        assert printed[3:] == pytest.approx(shares, abs=0.061)


def test_the_page_of_generalise_has_the_measured_figures():
    text, figures = page("docs/generalise.md"), measured("generalise")
    names = {"level, raw": "raw", "gain over BM25": "less BM25", "gain, adjusted, pivot LSA": "adjusted, LSA"}
    names |= {"**gain, adjusted, pivot BM25**": "adjusted, BM25", "gain, adjusted, both pivots": "adjusted, both"}
    for label, name in names.items():
        row = figures[name]
        shares = [f"{100 * row[share]:.1f} %" for share in ("alarms", "alarms_by_queries", "finds")]
        cells = [f"{row['rmse']:.3f}", f"{row['r']:.2f}", f"{row['spread']:.3f}", *shares]
        assert " | ".join([label, *cells]) in text
    by_size: dict[int, list[str]] = {}
    for row in figures["power"]:
        by_size.setdefault(row["queries"], []).append(f"{100 * row['finds']:.{0 if row['loss'] else 1}f} %")
    for size, (*shares,) in by_size.items():
        pairs = [f"{without} / {with_spread}" for without, with_spread in zip(shares[::2], shares[1::2], strict=True)]
        assert " | ".join([f"| {size:,}", *pairs]) in text
    thinned, shuffled = figures["thinned"], figures["shuffled"]
    assert f"−{-thinned['truth']:.3f} on average are found in {100 * thinned['finds']:.1f} %" in text
    assert f"{shuffled['alarms'] * shuffled['draws']:.0f} of 1,000 contrasts" in text


def test_the_page_of_beir_has_the_measured_memory():
    text = page("docs/beir.md")
    for stage in measured("beir_memory"):
        if stage["stage"] == "words":  # the kit no longer counts the words of collections
            continue
        assert f"{stage['peak_mb']:,.0f} MB" in text, stage
