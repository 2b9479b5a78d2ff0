"""Build, verify, compare and export ms-marco-shift releases."""
