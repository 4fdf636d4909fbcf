"""Keras 3 metrics of detections and of sequences."""
