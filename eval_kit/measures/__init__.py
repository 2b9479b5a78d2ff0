"""What a measure is, and the scores of runs."""
