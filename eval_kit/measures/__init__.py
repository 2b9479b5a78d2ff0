"""The definitions of measures, and the scores of runs."""
