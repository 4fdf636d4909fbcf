"""What registered gradients read from the op that they differentiate."""


def attrs(op, names):
    """Returns the op's attrs of these names: those that it shares with its gradient op."""
    return {name: op.get_attr(name) for name in names}


def is_needed(op, index):
    """Returns whether a gradient to the input is used.

    An eager tape lists the inputs that it skips. A graph has no such list: it computes all
    gradients and prunes unused ones.
    """
    return index not in (getattr(op, "skip_input_indices", None) or ())
