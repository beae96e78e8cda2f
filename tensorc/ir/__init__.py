"""The loop-nest IR: nodes, text, verification, simplification and the reference interpreter."""
