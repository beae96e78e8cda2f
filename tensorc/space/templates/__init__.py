"""The templates: one file a rule, pure generators over frozen facts."""
