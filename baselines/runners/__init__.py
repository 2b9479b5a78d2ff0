"""Where a grid's cells are run and passages encoded: processes on this machine, or a Ray cluster."""
