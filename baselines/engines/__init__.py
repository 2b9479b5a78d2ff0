"""Ways to search what a model made of the passages, all exact unless their name says otherwise."""
