"""Every stage of a benchmark at a share of MS MARCO's size, on passages that are made up."""
