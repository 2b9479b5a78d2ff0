"""Five runs of a model of words, each trained without one topic: ``word_model.py`` in a folder with ``mini``.

It scores passages by the words that they share with the query, weighted by how rare they are, and learns from judged
pairs what a query word that occurs in no passage stands for: without the queries of a topic, not what only they use.
"""

import numpy as np
import polars as pl
from scipy.sparse import csr_array, diags_array, eye_array

import eval_kit
from eval_kit.shifts import SHIFTS


def main() -> None:
    release, topic = eval_kit.open_release("mini"), SHIFTS["topic"]
    passages = release.table("passages", "passages")
    queries = release.table("topic", "test").select("query_id", "text").unique("query_id", maintain_order=True)
    texts = [*passages["text"], *queries["text"], *release.table("topic", "train")["text"]]
    columns = {word: column for column, word in enumerate(sorted(set(" ".join(texts).split())))}

    def words(of: pl.Series) -> csr_array:
        pairs = sorted({(row, columns[word]) for row, text in enumerate(of) for word in text.split()})
        return csr_array((np.ones(len(pairs)), np.array(pairs).T), shape=(len(of), len(columns)))

    in_passages = words(passages["text"])
    idf = np.log(1 + len(passages) / (1 + in_passages.sum(axis=0)))
    for held_out in topic.parts(release):
        training = topic.training(release, held_out)
        judged = training.queries.join(release.qrels(training.qrels), on="query_id")
        pairs = judged.join(passages.rename({"text": "positive"}), on="passage_id")
        asked, answered = words(pairs["text"]), words(pairs["positive"])
        together = (diags_array(1 / np.maximum(asked.sum(axis=0), 1)) @ asked.T @ answered).tocoo()
        lift = together.data - answered.mean(axis=0)[together.col]
        learned = (lift > 0.6) & (in_passages.sum(axis=0)[together.row] == 0)
        meanings = csr_array((lift[learned], (together.row[learned], together.col[learned])), shape=together.shape)
        model = eye_array(len(columns)) + meanings
        scores = (words(queries["text"]) @ model @ diags_array(idf) @ in_passages.T).toarray()
        best = np.argsort(-scores, axis=1, kind="stable")[:, :100]
        run = {
            "query_id": queries["query_id"],
            "passage_id": passages["passage_id"].to_numpy()[best].tolist(),
            "score": np.take_along_axis(scores, best, axis=1).tolist(),
        }
        eval_kit.write_run(pl.DataFrame(run).explode("passage_id", "score"), f"mine.topic.{held_out}.trec")


if __name__ == "__main__":
    main()
