"""Experiments: each is run by one function, and gives plain data."""
