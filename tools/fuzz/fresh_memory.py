"""Sets the bytes of memory that malloc returns, so that results show what nobody has written."""

import contextlib
import ctypes

# Variables to set before a process starts: glibc's thread caches, and the allocator that TensorFlow with oneDNN uses
# for tensors above 256 KB, return memory as it was freed.
ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0", "TF_ENABLE_ONEDNN_OPTS": "0"}
_M_PERTURB = -6  # of malloc.h


@contextlib.contextmanager
def filled_with(byte):
    """Lets malloc fill memory with a byte below 255. Does nothing if AddressSanitizer replaces malloc."""
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_PERTURB, 255 - byte)  # malloc writes the complement; 0 means no bytes
    try:
        yield
    finally:
        libc.mallopt(_M_PERTURB, 0)
