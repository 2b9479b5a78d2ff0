"""Files that are read and written: whole or not at all, by digest, by schema, and on the Hub."""
