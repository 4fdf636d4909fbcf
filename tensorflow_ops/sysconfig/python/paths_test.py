"""Tests of tfo.sysconfig: C++ that calls the algorithms."""

import os
import pathlib
import subprocess

import numpy as np
import tensorflow as tf

import tensorflow_ops as tfo

_PROGRAM = """
#include <cstdio>

#include "tensorflow_ops/nn/cc/kernels/rows/softmax.h"
#include "tensorflow_ops/zero_out/cc/kernels/zero_out.h"

int main() {
  const double x[] = {1, -2, 3, 0, 800, 801};
  double softmax[6], kept[6];
  const tfo::SoftmaxArgs<double> args{2, 3, /*log=*/false, x, softmax};
  const char* error = tfo::RunRowFunction(tfo::Cpu(), args);
  if (!error) error = tfo::ZeroOut(tfo::Cpu(), {6, sizeof(double), 4}, x, kept);
  if (error) return puts(error);
  for (double value : softmax) printf("%.17g ", value);
  for (double value : kept) printf("%.17g ", value);
}
"""


def _headers():
    folder = pathlib.Path(tfo.sysconfig.get_include())
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.h"))


class PathsTest(tf.test.TestCase):
    def _compile(self, program, *flags):
        command = ["c++", "-x", "c++", "-", "-Wall", "-Werror", *tfo.sysconfig.get_compile_flags(), *flags]
        done = subprocess.run(command, input=program, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_program_calls_algorithms(self):
        program = os.path.join(self.get_temp_dir(), "program")
        libraries = [flag.removeprefix("-L") for flag in tfo.sysconfig.get_link_flags() if flag.startswith("-L")]
        rpaths = ["-Wl,-rpath," + folder for folder in libraries]
        self._compile(_PROGRAM, "-o", program, *tfo.sysconfig.get_link_flags(), *rpaths)
        printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        softmax, kept = np.split(np.array(printed.split(), np.float64), 2)
        x = np.array([[1.0, -2, 3], [0, 800, 801]])
        exponentials = np.exp(x - x.max(axis=1, keepdims=True))
        self.assertAllClose(softmax.reshape(2, 3), exponentials / exponentials.sum(axis=1, keepdims=True), 1e-14, 0)
        self.assertAllEqual(kept, [0, 0, 0, 0, 800, 0])

    def test_each_header_includes_what_it_needs(self):
        """Neither TensorFlow's headers nor a header that the folder lacks."""
        for header in _headers():
            self._compile(f'#include "{header}"\n', "-fsyntax-only")

    def test_a_program_may_include_all_headers(self):
        """No two of them declare different things of one name."""
        self._compile("".join(f'#include "{header}"\n' for header in _headers()), "-fsyntax-only")

    def test_headers_are_those_of_algorithms(self):
        headers = _headers()
        self.assertContainsSubset(
            {
                "tensorflow_ops/core/cc/device.h",
                "tensorflow_ops/detection/cc/kernels/nms/nms.h",
                "tensorflow_ops/seq2seq/cc/kernels/gather_tree/gather_tree.h",
            },
            headers,
        )
        self.assertEmpty([header for header in headers if header.endswith(("_cpu.h", "_op.h", "_testing.h"))])


if __name__ == "__main__":
    tf.test.main()
