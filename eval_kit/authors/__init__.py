"""The authors' published lists: which files, fetched and verified, and the test sets that they make."""
