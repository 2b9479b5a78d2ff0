"""One module a system."""
