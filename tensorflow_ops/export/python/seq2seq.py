"""Compositions of the ops of tensorflow_ops/seq2seq/."""
