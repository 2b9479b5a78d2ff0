"""A grid of cells: what each is, what it has done, and how it is shown."""
