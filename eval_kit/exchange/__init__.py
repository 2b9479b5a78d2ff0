"""Other people's results: submissions, comparisons and the leaderboard's entries."""
