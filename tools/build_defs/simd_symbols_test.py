"""Checks that objects compiled for a wider instruction set share no code.

usage: simd_symbols_test.py LEVEL ARCHIVE...

Of two copies of an inline function the linker keeps one, for everyone: were it the
AVX-512 copy, a processor without AVX-512 would fail in code that asked for nothing.
So whatever these objects offer to the linker lies in their level's own namespace.
"""

import subprocess
import sys


def main(level, *archives):
    """Exits with an error that lists the symbols outside of the namespace."""
    checked, shared = 0, []
    for archive in archives:
        command = ["nm", "--demangle", "--defined-only", "--extern-only", "--no-sort", archive]
        for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
            _, _, symbol = line.partition(" ")
            if not symbol:
                continue  # an object's name
            checked += 1
            if f"tfo::cpu_{level}::" not in symbol:
                shared.append(symbol)
    if shared:
        sys.exit("\n".join([f"These are not in namespace cpu_{level}:", *shared]))
    if not checked:
        sys.exit(f"no symbols in {archives}")
    print(f"{checked} symbols, all of cpu_{level}")


if __name__ == "__main__":
    main(*sys.argv[1:])
