"""A grid of cells: their stages, their documents, and how far they are."""
