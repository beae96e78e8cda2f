"""Running compiled code: arrays at the boundary, modules, threads, the compile cache, timing."""
