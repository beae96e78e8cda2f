"""The primitives: one file and one Step each."""
