"""Checks that objects compiled for a wider instruction set share no code.

usage: simd_symbols_test.py LEVEL ARCHIVE...

Of two copies of an inline function the linker keeps one, for everyone: were it the
AVX-512 copy, a processor without AVX-512 would fail in code that asked for nothing.
So whatever these objects offer to the linker lies in their level's own namespace.
"""

import subprocess
import sys
import unittest


class SimdSymbolsTest(unittest.TestCase):
    level, archives = "", ()

    def test_all_symbols_are_in_the_namespace_of_the_level(self):
        symbols = []
        for archive in self.archives:
            command = ["nm", "--demangle", "--defined-only", "--extern-only", "--no-sort", archive]
            lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
            # A line without a space is an object's name.
            symbols += [line.partition(" ")[2] for line in lines if " " in line]
        self.assertTrue(symbols, f"no symbols in {self.archives}")
        self.assertEqual([s for s in symbols if f"tfo::cpu_{self.level}::" not in s], [])


if __name__ == "__main__":
    _, SimdSymbolsTest.level, *SimdSymbolsTest.archives = sys.argv
    unittest.main(argv=sys.argv[:1])
