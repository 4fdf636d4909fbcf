"""Compositions of the ops of tensorflow_ops/zero_out/."""
