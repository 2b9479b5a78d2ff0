"""The reference systems."""
