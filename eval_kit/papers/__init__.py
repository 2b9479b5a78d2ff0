"""The papers' tables and figures beside our own, and the command for each."""
