"""The C interface (c_api.h) for torch tensors, which own the memory and the stream."""

import ctypes

import torch

# A dtype's code in c_api.h.
DTYPES = {torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3}


class Place(ctypes.Structure):
    _fields_ = (("on_gpu", ctypes.c_int32), ("stream", ctypes.c_void_p))


class ZeroOutArgs(ctypes.Structure):
    """zero_out.h explains the fields."""

    _fields_ = tuple((name, ctypes.c_int64) for name in ("num_elements", "element_size", "keep_index"))


class RoiArgs(ctypes.Structure):
    """c_api.cc and roi_box.h explain the fields."""

    _fields_ = (
        *(
            (name, ctypes.c_int64)
            for name in ("batch", "height", "width", "channels", "num_boxes", "pooled_height", "pooled_width")
        ),
        ("spatial_scale", ctypes.c_float),
        ("channels_first", ctypes.c_bool),
        ("yxyx", ctypes.c_bool),
    )


MOST_LEVELS = 16


class RoiLevel(ctypes.Structure):
    """roi_average.h explains the fields."""

    _fields_ = (
        ("height", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("spatial_scale", ctypes.c_float),
        ("smallest_box", ctypes.c_float),
    )


class RoiAverageArgs(ctypes.Structure):
    """c_api.cc and roi_average.h explain the fields."""

    _fields_ = (
        ("roi", RoiArgs),
        ("bins", ctypes.c_int32),
        ("ratio", ctypes.c_int32),
        ("aligned", ctypes.c_bool),
        ("order", ctypes.c_int32),
        ("num_levels", ctypes.c_int32),
        ("levels", RoiLevel * MOST_LEVELS),
    )


# The enums in roi_average.h.
BINS = {"samples": 0, "pixels": 1}
ORDERS = {"all": 0, "channel_major": 1, "bin_major": 2}


class RowArgs(ctypes.Structure):
    """nn_c_api.cc explains the fields."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("rows", "classes", "ignore_index")),
        *((name, ctypes.c_double) for name in ("label_smoothing", "z_loss")),
        *((name, ctypes.c_bool) for name in ("ignores", "log_prob", "log", "wide_labels", "unit")),
    )


class BeamArgs(ctypes.Structure):
    """beam_search_step.h explains the fields."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("batch", "beams", "vocabulary", "beam_width", "num_eos")),
        ("length_penalty", ctypes.c_double),
        ("eos_rule", ctypes.c_int32),
    )


# The enum in beam_search_step.h.
EOS_RULES = {"any": 0, "none": 1, "only": 2}


class TreeArgs(ctypes.Structure):
    """gather_tree.h and seq2seq_c_api.cc explain the fields."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("time", "batch", "beams", "pad_id")),
        ("wide", ctypes.c_bool),
    )


STRUCTS = {
    "zero_out_args": ZeroOutArgs,
    "roi_args": RoiArgs,
    "roi_average_args": RoiAverageArgs,
    "row_args": RowArgs,
    "beam_args": BeamArgs,
    "tree_args": TreeArgs,
}


def flatten(values):
    """Returns what tuples hold, in one list."""
    return [item for value in values for item in (value if isinstance(value, tuple) else (value,))]


class Ops:
    """The algorithms on one device: "cpu", "cuda", or "emulated", CUDA kernels on the processor."""

    def __init__(self, library, device):
        self.device = device
        self.memory = "cuda" if device == "cuda" else "cpu"  # where tensors live
        self._library = ctypes.CDLL(library)
        for name, struct in STRUCTS.items():
            size_of = self._library[f"tfo_size_of_{name}"]
            size_of.restype = ctypes.c_int64
            if size_of() != ctypes.sizeof(struct):
                raise TypeError(f"bindings.py declares {name} with {ctypes.sizeof(struct)} bytes, C++ has {size_of()}")

    def cpu_level(self):
        """Returns the instruction set that the processor's algorithms use."""
        level = self._library.tfo_cpu_level
        level.restype = ctypes.c_char_p
        return level().decode()

    def row_scratch(self, args):
        """Returns how many values the scratch memory of a row function has."""
        size = self._library.tfo_row_scratch
        size.restype = ctypes.c_int64
        return size(ctypes.c_int64(args.rows), ctypes.c_int64(args.classes))

    def beam_scratch(self, args, dtype):
        """Returns how many bytes the scratch memory of beam_search_step has on a GPU, of logits of a dtype."""
        size = self._library.tfo_beam_scratch
        size.restype = ctypes.c_int64
        return size(ctypes.byref(args), ctypes.c_bool(dtype == torch.float64))

    def __call__(self, name, args, *tensors):
        """Calls tfo_NAME. On a GPU it only enqueues.

        The first tensor has the dtype. None is a null pointer, a tuple an array of pointers in host memory.
        """
        function = self._library[f"tfo_{name}"]
        function.restype = ctypes.c_char_p
        flat = flatten(tensors)
        for tensor in flat:
            if tensor is not None and not (tensor.is_contiguous() and tensor.device.type == self.memory):
                raise ValueError(f"{name} on {self.device} takes contiguous tensors there, got {tensor.device}")
        stream = torch.cuda.current_stream().cuda_stream if self.device == "cuda" else None
        place = Place(self.device != "cpu", stream)
        dtype = ctypes.c_int32(DTYPES.get(flat[0].dtype, -1))
        error = function(ctypes.byref(place), dtype, ctypes.byref(args), *map(self._pointer, tensors))
        if error:
            raise RuntimeError(f"tfo_{name} on {self.device}: {error.decode()}")

    def _pointer(self, tensors):
        if isinstance(tensors, tuple):
            return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
        return ctypes.c_void_p(tensors.data_ptr() if tensors is not None else None)
