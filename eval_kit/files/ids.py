"""What an id of a query or passage is, wherever it stands: in qrels, queries, passages, runs and dataframes.

A text without what divides the lines of a file or its columns by tabs. Blanks may stand inside, as LIMIT's ids have
them: JSON and columns separated by tabs hold these, columns separated by blanks do not.
"""

import re

import polars as pl

LONGEST_ID = 8 << 10
"""Bytes; the longest ids, web addresses, have two thousand."""
QUERY_NAMES = ("query_id", "qid", "q_id", "query-id", "topic", "query")
PASSAGE_NAMES = (
    *("passage_id", "doc_id", "docno", "corpus-id", "corpus_id", "pid", "docid", "document_id"),
    *("passage", "doc", "document"),
)
"""What tools call the two ids, in headers, columns, keys and attributes; the first that is there counts."""
RUN_NAMES = ("run", "system", "model", "run_id", "tag")
"""What they call the column of a run's name, where a file may hold several."""
GRADE_NAMES = ("relevance", "rel", "grade", "label", "score")
"""What they call the grade of judgements; of a sheet with one of the others, ``score`` is a retriever's."""
NO_ID = "[\t\n\r\0\ufeff]|^ | $|^$"
"""A regular expression, for Python and polars, that is found in what is no id."""
_NO_ID = re.compile(NO_ID)


def why_no_id(text: str) -> str:
    """Why a text is no id; empty for an id."""
    if not text:
        return "is empty"
    if _NO_ID.search(text):
        return "begins or ends with a blank, or contains a tab, a line break, a zero byte or a byte-order mark"
    if len(text) > LONGEST_ID // 4 and len(text.encode()) > LONGEST_ID:
        return f"is longer than {LONGEST_ID:,} bytes"
    return ""


def no_ids(ids: pl.Series) -> pl.Series:
    """Those of a column of texts that are no ids; see :func:`why_no_id`."""
    return ids.filter(ids.str.contains(NO_ID) | (ids.str.len_bytes() > LONGEST_ID))
