"""Run files: read strictly, ranked once, matched with test sets, named by their cells."""
