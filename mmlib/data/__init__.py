"""Readers of data sets that users bring, and their downloads."""
