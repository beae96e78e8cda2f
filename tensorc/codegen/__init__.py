"""From a scheduled nest to code: named lowering stages, then LLVM."""
