"""Checks that objects compiled for different instruction sets share no code.

usage: simd_symbols_test.py OBJECT...

The linker keeps one of several copies of an inline function. If it kept an AVX-512
copy, baseline code would fail on processors without AVX-512. Therefore all symbols
that these objects define must be in their level's namespace. The level of an object
is the end of its folder's name; others are not checked.
"""

import os
import subprocess
import sys
import unittest

_LEVELS = ("baseline", "avx2", "avx512")


class SimdSymbolsTest(unittest.TestCase):
    objects = ()

    def test_all_symbols_are_in_the_namespace_of_the_level(self):
        for path in self.objects:
            level = os.path.basename(os.path.dirname(path)).rpartition("_")[2]
            if level not in _LEVELS:
                continue
            with self.subTest(path):
                command = ["nm", "--demangle", "--defined-only", "--extern-only", "--format=just-symbols", path]
                symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
                is_empty = os.path.basename(path).startswith("amx_") and level != "avx512"
                self.assertEqual(not symbols, is_empty)
                self.assertEqual([s for s in symbols if f"tfo::cpu_{level}::" not in s], [])


if __name__ == "__main__":
    SimdSymbolsTest.objects = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
