"""What a row of the switch returns where our op does not fit."""


class Original(str):
    """Sends a call to the function that is replaced. The text is the reason, which `fused_ops` counts; "": no miss."""

    __slots__ = ()
