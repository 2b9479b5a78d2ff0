"""Losses, intervals, similarities and the vectors that they are computed from."""
