"""What a loop nest does: effects, affine maps, exact dependences, footprints, legality theorems."""
