"""Where the cells of a grid are done: processes of this machine, or a Ray cluster."""
