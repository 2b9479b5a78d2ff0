"""Other tools: one file a tool."""
