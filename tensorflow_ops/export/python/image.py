"""Compositions of the ops of tensorflow_ops/image/."""
