"""Tests of the site's tools: `python -m pytest tools/docs`."""

import check_site
import doctest_fences
import op_index
import pytest
import run_examples
import stage

PAGE = """Text.

```python
x = 1
print(x)
```

```text
1
```

<!-- run: no, it takes an hour -->
```python
print(x / 0)
```
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Returns a function that runs a page's text and returns the number of failed blocks."""
    monkeypatch.setattr(run_examples, "ROOT", tmp_path)

    def run(text):
        path = tmp_path / "page.md"
        path.write_text(text)
        return run_examples.run_page(path)

    return run


def test_blocks_have_line_mark_and_output():
    first, second = run_examples.blocks_of(PAGE)
    assert first == (4, "", "x = 1\nprint(x)\n", "1\n")
    assert (second.mark, second.output) == ("run: no, it takes an hour", "")


@pytest.mark.parametrize(
    "old, new, failed, printed",
    [
        ("", "", 0, "page.md:14: skipped: it takes an hour\npage.md: 1 blocks ran, 0 failed"),
        ("```text\n1\n", "```text\n2\n", 1, "page.md:4: the block prints\n\n1\n\nbut the page says\n\n2\n"),
        ("```text\n1\n```\n", "", 1, "page.md:4: the block prints"),
        ("print(x)", "print(x / 0)", 1, "ZeroDivisionError"),
        ("run: no, it takes an hour", "run: nowhere", 1, 'unknown mark "run: nowhere"'),
        ("print(x)", "import no_such_module", 1, "ModuleNotFoundError"),
        ("print(x)", "print(y)", 1, "NameError"),
    ],
)
def test_page_is_run_and_compared(page, capsys, old, new, failed, printed):
    assert page(PAGE.replace(old, new, 1)) == failed
    assert printed in capsys.readouterr().out


def test_wide_output_is_compared_as_wrapped(page, capsys):
    code = 'print("  " + "word " * 20 + "\\nnarrow")'
    shown = f"  {'word ' * 16}word\n      word word word\nnarrow"
    assert page(f"```python\n{code}\n```\n\n```text\n{shown}\n```\n") == 0
    assert page(f"```python\n{code}\n```\n\n```text\n{shown.replace('      word', '    word')}\n```\n") == 1
    assert f"the block prints\n\n{shown}\n" in capsys.readouterr().out


def test_blocks_that_need_a_missing_peer_are_skipped(page, capsys, monkeypatch):
    monkeypatch.setattr(run_examples, "PEERS", ("no_such_peer",))
    blocks = ["import no_such_peer\ny = 1", "z = y", "y = 2", "def f(y):\n    return y", "assert y == 2"]
    assert page("".join(f"```python\n{block}\n```\n\n" for block in blocks)) == 0
    output = capsys.readouterr().out
    assert "page.md:2: skipped: needs no_such_peer" in output and "page.md:7: skipped: needs y" in output
    assert "3 blocks ran, 0 failed" in output


@pytest.mark.parametrize("code, failed", [("int a;\n", 0), ("int\n        a;\n", 0), ("int b;\n", 1)])
def test_part_of_a_file_is_compared_and_not_run(page, capsys, tmp_path, code, failed):
    (tmp_path / "a.py").write_text("if True:\n    int a;\n    f()\n")
    page_text = f"<!-- part of a.py -->\n```cpp\n    {code}```\n\n<!-- part of a.py -->\n```python\n    f()\n```\n"
    assert page(page_text) == failed
    assert ("page.md:3: the block is not part of a.py" in capsys.readouterr().out) == bool(failed)


SITE = """<html><head><link rel="stylesheet" href="a.css"></head><body><a href="b.html#there">b</a>
<a href="https://example.org/">elsewhere</a><img src="a.png" alt="A"><p>Text.</p></body></html>"""


@pytest.mark.parametrize(
    "old, new, error",
    [
        ("", "", None),
        ("b.html#there", "c.html", "index.html: c.html leads nowhere"),
        ("#there", "#nowhere", "index.html: b.html#nowhere: there is no such anchor"),
        ('src="a.png"', 'src="https://example.org/a.png"', "loads https://example.org/a.png from elsewhere"),
        ('href="a.css"', 'href="//example.org/a.css"', "loads //example.org/a.css from elsewhere"),
        (' alt="A"', "", "no text for those who cannot see it"),
        ("Text.", "Text:\n- one\n- two", "a list needs an empty line before it"),
    ],
)
def test_site_is_checked(tmp_path, old, new, error):
    (tmp_path / "index.html").write_text(SITE.replace(old, new, 1))
    (tmp_path / "b.html").write_text('<h1 id="there">B</h1>')
    (tmp_path / "a.css").write_text("body { color: black }")
    (tmp_path / "a.png").write_bytes(b"")
    errors = check_site.check(tmp_path.resolve())
    assert len(errors) == (error is not None)
    assert not errors or error in errors[0]


def test_style_that_loads_from_another_site_is_found(tmp_path):
    (tmp_path / "a.css").write_text("@font-face { src: url(https://example.org/a.woff2) }")
    assert check_site.check(tmp_path) == ["a.css: loads https://example.org/a.woff2 from elsewhere"]


def test_doctests_become_fences_and_brackets_are_escaped():
    text = "First.\n\n    >>> f(x)[0][1]\n    1\n\n    >>> g()\n\nThen x[0][1] and `x[0][1]`."
    assert doctest_fences.fence(text) == (
        "First.\n\n    ```pycon\n    >>> f(x)[0][1]\n    1\n\n    >>> g()\n    ```\n\nThen x[0]\\[1] and `x[0][1]`."
    )


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """Creates a repository with a page, a source file and a folder."""
    monkeypatch.setattr(stage, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.h").write_text("int a;\n")
    (tmp_path / "README.md").write_text("# Readme\n")
    return tmp_path


def test_links_point_to_pages_of_the_site(repository):
    text = "# A\n[r](../README.md#use) [h](../src/a.h) [d](../src) [w](https://example.org)\n\n```text\n[r](../README.md)\n```\n"
    (repository / "docs/a.md").write_text(text)
    staged = stage.Stage(repository / "pages")
    assert staged.add("docs/a.md") == "a.md" and not staged.errors
    assert (repository / "pages/a.md").read_text() == (
        "# A\n[r](readme.md#use) [h](source/src/a.h.md) [d](source/src.md) [w](https://example.org)\n\n"
        "```text\n[r](../README.md)\n```\n"
    )
    assert "int a;" in (repository / "pages/source/src/a.h.md").read_text()
    assert "[a.h](../source/src/a.h.md)" in (repository / "pages/source/src.md").read_text()


def test_broken_link_is_an_error(repository):
    (repository / "docs/a.md").write_text("[b](../b.h)")
    staged = stage.Stage(repository / "pages")
    staged.add("docs/a.md")
    assert staged.errors == ["docs/a.md: the link to ../b.h leads nowhere"]


@pytest.mark.parametrize("path, errors", [("docs/a.md", 1), ("README.md", 1), ("CHANGELOG.md", 0)])
def test_too_wide_code_is_an_error(repository, path, errors):
    fits, long = "x" * run_examples.COLUMNS, "x" * (run_examples.COLUMNS + 1)
    (repository / path).write_text(f"{long}\n\n```text\n{fits}\n{long}\n```\n\n{long}\n")
    staged = stage.Stage(repository / "pages")
    staged.add(path)
    assert staged.errors == [f"{path}:5: a line of code has more than 90 columns"] * errors


def test_benchmark_results_are_included_without_their_title(repository):
    (repository / "results").mkdir()
    (repository / "results/a.md").write_text("# Title\n\n## Part\n\n![plot](a.png)\n")
    (repository / "results/a.png").write_bytes(b"")
    (repository / "docs/a.md").write_text("# A\n\n<!-- include ../results/a.md -->\n")
    staged = stage.Stage(repository / "pages")
    staged.add("docs/a.md")
    expected = "# A\n\n\n### Part\n\n[![plot](results/a.png)](results/a.png)\n\n"
    assert (repository / "pages/a.md").read_text() == expected


@pytest.fixture
def package(tmp_path):
    """Writes files {path: text} of a package "pack" with one op; returns its folder."""
    files = {
        "__init__.py": "from pack import nn\n__all__ = ['__version__', 'nn']\n",
        "nn/__init__.py": "from pack.nn.f import Result, f, g\n__all__ = ['Result', 'f', 'g']\n",
        "nn/f.py": (
            "from pack.nn import call\n"
            'def f():\n    """Sums a | b.\n\n    Returns:\n      A sum. Differentiable\n      once in a; b.\n    """\n'
            "    return call.f()\n"
            'def g():\n    """As `f`."""\n    f()\n'
            'class Result:\n    """R."""\n'
        ),
        "nn/call.py": "def f():\n    return ops.tensorflow_ops_my_sum()\n",
        "nn/my_ops.cc": (
            '#define TFO_ATTRS .Attr("T: {half, float}")\nREGISTER_OP("TensorflowOps>MySum")\n'
            '    .Attr("Tn: {int32}") TFO_ATTRS;\n'
        ),
        "nn/my_op.cc": 'TFO_REGISTER_KERNELS("MySum", MySumOp);\n',
    }
    for path, text in files.items():
        (tmp_path / "pack" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pack" / path).write_text(text)
    return tmp_path / "pack"


def test_index_has_what_source_says(package):
    coming_from = "| elsewhere | here |\n|---|---|\n| `np.sum(a, b)`, `add` or `c` | `tfo.nn.f(a, b)` |\n"
    text = op_index.page(package, coming_from, lambda name, module: f"{module}#{name.anchor}")
    assert text.split("|---|\n")[1] == (
        "| [`tfo.nn.f`](nn#pack.nn.f.f) | Sums a \\| b | once in a | CPU, CUDA | float16, float32 |"
        " `np.sum`, `np.add` |\n"
        "| [`tfo.nn.g`](nn#pack.nn.f.g) | As `f` | as `f` | CPU, CUDA | float16, float32 | |\n"
    )


def test_readme_links_every_namespace_to_the_index():
    readme = (stage.ROOT / "README.md").read_text()
    modules = filter(None, op_index.public_names(stage.ROOT / "tensorflow_ops"))
    assert [module for module in modules if f"[`tfo.{module}`](docs/op_index.md#tfo{module})" not in readme] == []


def test_op_that_says_nothing_of_its_gradient_is_an_error(package):
    file = package / "nn/f.py"
    file.write_text(file.read_text().replace("Differentiable", "Smooth"))
    with pytest.raises(SystemExit, match=r"tfo.nn.f: Returns says neither"):
        op_index.page(package, "", lambda name, module: "")
