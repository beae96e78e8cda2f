"""Hypothesis strategies for programs and schedules, and the differential oracle."""
