"""Tests of the site's tools: `python -m pytest tools/docs`."""

import check_site
import doctest_fences
import op_index
import pytest
import run_examples
import stage

PAGE = """```python
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

<!-- part of a.py -->
```python
int
    a;
```
"""
SKIPPED = "no, it takes an hour -->\n```python\nprint(x / 0)"
WIDE = 'print("  " + "word " * 20)\n'
WRAPPED = f"  {'word ' * 16}word\n      word word word\n"


@pytest.mark.parametrize(
    "old, new, failed, printed",
    [
        ("", "", 0, "page.md:12: skipped: it takes an hour"),
        ("text\n1\n", "text\n2\n", 1, "page.md:2: the block prints\n\n1\n\nbut the page says\n\n2\n"),
        ("```text\n1\n```\n", "", 1, "page.md:2: the block prints"),
        ("print(x)", "print(x / 0)", 1, "ZeroDivisionError"),
        ("run: no, it takes an hour", "run: nowhere", 1, 'unknown mark "run: nowhere"'),
        ("print(x)", "import no_such_module", 1, "ModuleNotFoundError"),
        ("x = 1\n", "import no_such_peer\nx = 1\n", 0, "page.md:2: skipped: needs no_such_peer"),
        ("print(x)\n```\n\n```text\n1\n", f"{WIDE}```\n\n```text\n{WRAPPED}", 0, ""),
        ("print(x)\n```\n\n```text\n1\n", f"{WIDE}```\n\n```text\n {WRAPPED}", 1, f"prints\n\n{WRAPPED}"),
        ("    a;", "    b;", 1, "page.md:17: the block is not part of a.py"),
        (SKIPPED, "bash -->\n```bash\ntrue", 0, ""),
        (SKIPPED, "bash -->\n```bash\nfalse", 1, "page.md:12: the block fails"),
        (SKIPPED, "bash -->\n```bash\npwd", 1, "page.md:12: the block prints"),
    ],
)
def test_page_is_run_and_compared(tmp_path, monkeypatch, capsys, old, new, failed, printed):
    monkeypatch.setattr(run_examples, "ROOT", tmp_path)
    monkeypatch.setattr(run_examples, "PEERS", ("no_such_peer",))
    (tmp_path / "a.py").write_text("if True:\n    int a;\n    f()\n")
    (tmp_path / "page.md").write_text(PAGE.replace(old, new, 1))
    assert run_examples.check_page(tmp_path / "page.md") == failed
    assert printed in capsys.readouterr().out


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
        ("black", "url(https://example.org/a.woff2)", "a.css: loads https://example.org/a.woff2 from elsewhere"),
        (' alt="A"', "", "no text for those who cannot see it"),
        ("Text.", "Text:\n- one\n- two", "needs an empty line before its list"),
    ],
)
def test_site_is_checked(tmp_path, old, new, error):
    (tmp_path / "index.html").write_text(SITE.replace(old, new, 1))
    (tmp_path / "b.html").write_text('<h1 id="there">B</h1>')
    (tmp_path / "a.css").write_text("body { color: black }".replace(old, new, 1))
    (tmp_path / "a.png").write_bytes(b"")
    errors = check_site.check(tmp_path.resolve())
    assert len(errors) == (error is not None)
    assert not errors or error in errors[0]


def test_doctests_become_fences_and_brackets_are_escaped():
    text = "First.\n\n    >>> f(x)[0][1]\n    1\n\n    >>> g()\n\nThen x[0][1] and `x[0][1]`."
    assert doctest_fences.fence(text) == (
        "First.\n\n    ```pycon\n    >>> f(x)[0][1]\n    1\n\n    >>> g()\n    ```\n\nThen x[0]\\[1] and `x[0][1]`."
    )


@pytest.fixture
def staged(tmp_path, monkeypatch):
    """Returns a function that stages docs/a.md with a text, and returns the stage."""
    monkeypatch.setattr(stage, "ROOT", tmp_path)
    for path, text in {
        "src/a.h": "int a;",
        "README.md": "# Readme",
        "results/a.md": "# A\n\n## B\n\n![p](a.png)",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")
    (tmp_path / "results/a.png").write_bytes(b"")
    (tmp_path / "docs").mkdir()

    def add(text):
        (tmp_path / "docs/a.md").write_text(text)
        result = stage.Stage(tmp_path / "pages")
        assert result.add("docs/a.md") == "a.md"
        return result

    return add


def test_links_point_to_pages_of_the_site(staged, tmp_path):
    fenced = "\n```text\n[r](../README.md)\n```\n"
    result = staged(f"[r](../README.md#use) [h](../src/a.h) [d](../src) [w](https://example.org)\n{fenced}")
    assert not result.errors
    links = "[r](readme.md#use) [h](source/src/a.h.md) [d](source/src.md) [w](https://example.org)\n"
    assert (tmp_path / "pages/a.md").read_text() == links + fenced
    assert "int a;" in (tmp_path / "pages/source/src/a.h.md").read_text()
    assert "[a.h](src/a.h.md)" in (tmp_path / "pages/source/src.md").read_text()


def test_broken_links_and_wide_code_are_errors(staged):
    fits, long = "x" * run_examples.COLUMNS, "x" * (run_examples.COLUMNS + 1)
    result = staged(f"[b](../b.h) {long}\n\n```text\n{fits}\n{long}\n```\n\n{long}\n")
    errors = ["docs/a.md:5: a line of code has more than 90 columns", "docs/a.md: the link to ../b.h leads nowhere"]
    assert result.errors == errors


def test_benchmark_results_are_included_without_their_title(staged, tmp_path):
    staged("# A\n\n<!-- include ../results/a.md -->\n")
    assert (tmp_path / "pages/a.md").read_text() == "# A\n\n\n### B\n\n[![p](results/a.png)](results/a.png)\n\n"


def test_cells_of_tables_have_the_names_of_their_columns():
    head = '<thead><tr><th></th><th style="a">the <code>"b"</code></th></tr></thead>'
    table = f"<table>{head}<tr><td>1</td><td style='a'>2</td></tr>\n<tr><td>3</td><td></td></tr></table>"
    other = '<table class="c"><tr><td>4</td></tr></table>'
    label = 'data-label="the &quot;b&quot;"'
    assert stage.label_cells(table + other) == (
        f"<table>{head}<tr><td>1</td><td {label} style='a'>2</td></tr>\n"
        f"<tr><td>3</td><td {label}></td></tr></table>{other}"
    )


@pytest.fixture
def package(tmp_path):
    """Writes files {path: text} of a package "pack" with one op; returns its folder."""
    files = {
        "__init__.py": "from pack import nn\n__all__ = ['__version__', 'nn']\n",
        "nn/__init__.py": "from pack.nn.f import Result, f, g\n__all__ = ['Result', 'f', 'g']\n",
        "nn/f.py": (
            "from pack.nn import call\n"
            "@overload\ndef f(): ...\n"
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
    others = "| elsewhere | here |\n|---|---|\n| `np.sum(a, b)`, `add` or `c` | `tfo.nn.f(a, b)` |\n"
    text = op_index.page(package, others, lambda name, module: f"{module}#{name.anchor}")
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
