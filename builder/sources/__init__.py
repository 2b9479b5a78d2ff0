"""Sources of queries, qrels and passages: one module per kind."""
