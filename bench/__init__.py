"""What is timed, with its peers and results."""
