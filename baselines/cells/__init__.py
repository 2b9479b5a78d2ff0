"""One training of a grid: what decides it, and the journal of how far it is."""
