"""A Ray cluster: cells as its tasks, and passages encoded by its actors."""
