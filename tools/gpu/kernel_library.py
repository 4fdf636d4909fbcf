"""Calls of CUDA kernels by name: kernel_call.h has the rules, the families' files list kernels and buffers."""

import ctypes


class KernelLibrary:
    """//tools/gpu:kernels.so, or :emulated_kernels.so, which runs the kernels on the CPU."""

    def __init__(self, path):
        self._run = ctypes.CDLL(str(path)).tfo_run
        self._run.restype = ctypes.c_char_p

    def __call__(self, kernel, buffers, *, scratch=0, scratch_bytes=0, stream=None, **options):
        """Enqueues a kernel.

        Args:
          kernel: its name.
          buffers: the addresses of its inputs and outputs; None is a null pointer.
          scratch: the address of scratch memory.
          scratch_bytes: its size.
          stream: a cudaStream_t; None is the default stream.
          **options: the kernel's. One with value None is left out.

        Raises:
          ValueError: An argument is wrong, or CUDA returns an error.
        """
        text = " ".join(f"{name}={_text(value)}" for name, value in options.items() if value is not None)
        addresses = (ctypes.c_void_p * len(buffers))(*buffers)
        error = self._run(
            kernel.encode(),
            text.encode(),
            addresses,
            ctypes.c_void_p(scratch),
            ctypes.c_int64(scratch_bytes),
            ctypes.c_void_p(stream),
        )
        if error:
            raise ValueError(error.decode())


def _text(value):
    return int(value) if isinstance(value, bool) else value
