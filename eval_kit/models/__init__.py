"""Models as retrievers: each architecture with its way of indexing and searching."""
