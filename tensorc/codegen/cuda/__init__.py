"""From bound nests to CUDA C++."""
