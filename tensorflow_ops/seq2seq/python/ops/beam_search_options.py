"""What beam_search is asked for."""

import dataclasses
from collections.abc import Callable
from typing import Any

from tensorflow_ops.seq2seq.python.ops import seq2seq_arguments as arguments


@dataclasses.dataclass(frozen=True)
class Options:
    """What beam_search was asked for, checked."""

    beam_width: int
    max_length: Any
    eos_ids: tuple[int, ...]
    pad_id: int
    min_length: Any
    length_penalty: Any
    length_normalization: str
    cut_off: str
    early_stopping: Any
    num_return_sequences: int
    num_groups: int
    diversity_penalty: float
    logits_processor: Callable | None
    process_log_probs: bool

    @property
    def counts_cut_off(self):
        """Whether sequences that are cut off at max_length are hypotheses."""
        return self.cut_off == "count" or not self.eos_ids

    @property
    def group_width(self):
        return self.beam_width // self.num_groups

    @classmethod
    def checked(cls, **options):
        """Raises ValueError."""
        for name in ("beam_width", "num_return_sequences", "num_groups"):
            options[name] = arguments.static_int(name, options[name], 1)
        width, groups, returned = (options[n] for n in ("beam_width", "num_groups", "num_return_sequences"))
        if returned > width:
            raise ValueError(f"num_return_sequences is {returned}, expected [1, {width}]: beam_width is {width}")
        if width % groups:
            raise ValueError(f"num_groups is {groups}, expected a divisor of beam_width, {width}")
        options["eos_ids"] = arguments.eos_tuple(options["eos_ids"])
        options["pad_id"] = arguments.pad(options["pad_id"], options["eos_ids"])
        options["max_length"] = arguments.int_scalar("max_length", options["max_length"], 1)
        options["min_length"] = arguments.int_scalar("min_length", options["min_length"], 0)
        for name, values in (("length_normalization", ("gnmt", "length")), ("cut_off", ("end", "count"))):
            if options[name] not in values:
                raise ValueError(f"{name} is {options[name]!r}, expected {values[0]!r} or {values[1]!r}")
        least, most = options["min_length"], options["max_length"]
        if (
            options["eos_ids"]
            and options["cut_off"] == "end"
            and isinstance(least, int)
            and isinstance(most, int)
            and least >= most
        ):
            raise ValueError(
                f"min_length is {least}, expected less than max_length, {most}, which counts the end token"
            )
        options["length_penalty"] = arguments.number("length_penalty", options["length_penalty"])
        early_stopping = options["early_stopping"]
        if not (isinstance(early_stopping, bool) or early_stopping == "never"):
            raise ValueError(f"early_stopping is {early_stopping!r}, expected True, False or 'never'")
        penalty = arguments.number(
            "diversity_penalty", options["diversity_penalty"], "a finite number that is not negative", lambda x: x >= 0
        )
        if not isinstance(penalty, float):
            raise ValueError("diversity_penalty is a tensor without a known value, expected a float")
        if (groups > 1) != (penalty > 0):
            hint = "groups need a penalty above 0, else all find the same, and a penalty needs groups"
            raise ValueError(f"num_groups is {groups} and diversity_penalty is {penalty}: {hint}")
        options["diversity_penalty"] = penalty
        processor = arguments.function_or_none("logits_processor", options["logits_processor"])
        if not isinstance(options["process_log_probs"], bool):
            raise ValueError(f"process_log_probs is {options['process_log_probs']!r}, expected a bool")
        if options["process_log_probs"] and processor is None:
            raise ValueError("process_log_probs is True, but there is no logits_processor")
        return cls(**options)
