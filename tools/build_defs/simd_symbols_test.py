"""Checks that objects compiled for a wider instruction set share no code.

usage: simd_symbols_test.py LEVEL ARCHIVE...

The linker keeps one of several copies of an inline function. If it kept an AVX-512
copy, baseline code would fail on processors without AVX-512. Therefore all symbols
that these objects define must be in their level's namespace.
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
