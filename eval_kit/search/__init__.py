"""Passages on disk and the engines that search them."""
