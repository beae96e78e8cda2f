"""The lowering stages, each from IR to IR, verifiable and interpretable."""
