"""Searching spaces of schedules by measurement."""
