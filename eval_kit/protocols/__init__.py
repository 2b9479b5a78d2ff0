"""The papers' protocols."""
