"""One module per shift: the rule or algorithm that says which query belongs to which cluster."""
