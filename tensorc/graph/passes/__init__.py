"""Passes over graphs: each is a function from a graph to a graph of the same meaning."""
