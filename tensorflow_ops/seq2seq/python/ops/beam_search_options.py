"""The options of beam_search and their checks."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

from tensorflow_ops.core.python import arguments
from tensorflow_ops.seq2seq.python.ops import seq2seq_arguments

LengthNormalization: TypeAlias = Literal["gnmt", "length"]
CutOff: TypeAlias = Literal["end", "count"]
EarlyStopping: TypeAlias = bool | Literal["never"]


@dataclasses.dataclass(frozen=True)
class Options:
    """The checked options of beam_search."""

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
        """Whether sequences cut off at max_length are hypotheses."""
        return self.cut_off == "count" or not self.eos_ids

    @property
    def group_width(self):
        return self.beam_width // self.num_groups

    @classmethod
    def checked(cls, **options):
        """Checks and converts the options; max_length has been checked. Raises ValueError."""
        for name in ("beam_width", "num_return_sequences", "num_groups"):
            options[name] = arguments.static_int(name, options[name], 1)
        width, groups, returned = (options[n] for n in ("beam_width", "num_groups", "num_return_sequences"))
        if returned > width:
            raise ValueError(f"num_return_sequences is {returned}, expected [1, {width}]: beam_width is {width}")
        if width % groups:
            raise ValueError(f"num_groups is {groups}, expected a divisor of beam_width, {width}")
        options["eos_ids"] = seq2seq_arguments.eos_tuple(options["eos_ids"])
        options["pad_id"] = seq2seq_arguments.pad_id_or_default(options["pad_id"], options["eos_ids"])
        options["min_length"] = arguments.int_scalar("min_length", options["min_length"], 0)
        for name, values in (("length_normalization", LengthNormalization), ("cut_off", CutOff)):
            options[name] = arguments.one_of(name, options[name], get_args(values))
        shortest, longest = options["min_length"], options["max_length"]
        if (
            options["eos_ids"]
            and options["cut_off"] == "end"
            and isinstance(shortest, int)
            and isinstance(longest, int)
            and shortest >= longest
        ):
            raise ValueError(
                f"min_length is {shortest}, expected less than max_length, {longest}, which counts the end token"
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
            hint = "groups need a penalty above 0, else all find the same sequences, and a penalty needs groups"
            raise ValueError(f"num_groups is {groups} and diversity_penalty is {penalty}: {hint}")
        options["diversity_penalty"] = penalty
        processor = seq2seq_arguments.function_or_none("logits_processor", options["logits_processor"])
        process_log_probs = arguments.static_bool("process_log_probs", options["process_log_probs"])
        options["process_log_probs"] = process_log_probs and processor is not None
        return cls(**options)
