"""A grid of cells: what is checked before them, how each is done, its documents, and how far they are."""
