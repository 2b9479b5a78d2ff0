"""Benchmarks, with peers and results."""
