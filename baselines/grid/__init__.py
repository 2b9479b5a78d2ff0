"""A grid of cells: their definition, their state, and their display."""
