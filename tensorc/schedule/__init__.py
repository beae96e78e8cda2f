"""Checked rewrites of loop nests: steps, states, traces and the public Schedule."""
