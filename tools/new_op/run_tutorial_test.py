"""Tests of run_tutorial: what counts as printed, and what its blocks do."""

import contextlib
import io
import os
import pathlib
import sys
from unittest import mock

import run_tutorial
from absl.testing import absltest, parameterized

_PRINTED = """
INFO: something else
//a:b      PASSED in 93.4s
//a:c      (cached) PASSED in 1.4s
[1.  2.]
size 7 MB, of which 3 are mine
"""


class MissingTest(parameterized.TestCase):
    @parameterized.parameters(
        ("//a:b  PASSED in 1.5s",),
        ("//a:b PASSED in 7s\n\n[1. 2.]",),
        ("//a:c  PASSED in 1.5s\n//a:b PASSED in 7s",),
        ("size ... MB, of which ...",),
        ("...else\nsize 7 MB, of which 3 are mine",),
    )
    def test_is_printed(self, expected):
        self.assertIsNone(run_tutorial.missing(expected, _PRINTED))

    @parameterized.parameters(
        ("//a:b FAILED in 1.5s", "//a:b FAILED in 1.5s"),
        ("size...\n[1. 2.]", "[1. 2.]"),  # the other way round
        ("[1. 2.", "[1. 2."),  # the end is missing
        ("[1x 2.]", "[1x 2.]"),
        ("size 8 MB...", "size 8 MB..."),
    )
    def test_is_not(self, expected, line):
        self.assertEqual(run_tutorial.missing(expected, _PRINTED), line)


class PageTest(absltest.TestCase):
    def run_page(self, page):
        folder = pathlib.Path(self.create_tempdir().full_path)
        (folder / "page.md").write_text(page)
        before = os.getcwd()
        self.addCleanup(os.chdir, before)
        os.chdir(folder)
        with mock.patch.object(sys, "argv", ["run_tutorial", "page.md"]), contextlib.redirect_stdout(io.StringIO()):
            run_tutorial.main()

    def test_files_environment_and_output(self):
        self.run_page(
            "```python\n# a/b.py\nimport os\nprint(os.environ['WHO'])\n```\n"
            "```bash\nexport WHO=me\n```\n"
            f"```bash\n{sys.executable} a/b.py\n```\nshows\n```text\nme\n```\n"
        )

    def test_other_output_is_an_error(self):
        with self.assertRaisesRegex(SystemExit, "(?s)not printed, or not in its place:\nyou\n.*but:\nme"):
            self.run_page("```bash\necho me\n```\n```text\nyou\n```\n")

    def test_a_command_that_fails_is_an_error(self):
        with self.assertRaisesRegex(SystemExit, "(?s)partly.*exit status 3 of:\necho partly"):
            self.run_page("```bash\necho partly\nexit 3\n```\n")


if __name__ == "__main__":
    absltest.main()
