"""Spaces of schedules: templates with choices, and the drivers that resolve them."""
