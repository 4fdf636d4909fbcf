"""Checks of ops: gradients against numeric ones, and TensorFlow's execution modes against each other."""

from tensorflow_ops.testing.python.gradients import (
    GradientError,
    InputGradientError,
    assert_gradients,
    gradient_error,
)
from tensorflow_ops.testing.python.opcheck import (
    OpCheckError,
    OpCheckResult,
    OpCheckResults,
    OpSample,
    opcheck,
    opcheck_samples,
)

__all__ = [
    "GradientError",
    "InputGradientError",
    "OpCheckError",
    "OpCheckResult",
    "OpCheckResults",
    "OpSample",
    "assert_gradients",
    "gradient_error",
    "opcheck",
    "opcheck_samples",
]
