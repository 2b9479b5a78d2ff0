"""What a model made of the passages, on the disk, and the ways to search it."""
