"""Where queries, qrels and passages come from: one module a kind of source."""
