"""Measuring candidates in processes that may hang or die, and the records of what came out."""
