"""Tests of the site's tools: `python -m pytest tools/docs`."""

import re

import doctest_fences
import public_names
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


def test_doctests_become_fences_and_brackets_are_escaped():
    text = "First.\n\n    >>> f(x)[0][1]\n    1\n\n    >>> g()\n\nThen x[0][1] and `x[0][1]`."
    assert doctest_fences.fence(text) == (
        "First.\n\n    ```pycon\n    >>> f(x)[0][1]\n    1\n\n    >>> g()\n    ```\n\nThen x[0]\\[1] and `x[0][1]`."
    )


def test_cells_of_tables_have_the_names_of_their_columns():
    head = '<thead><tr><th></th><th style="a">the <code>"b"</code></th></tr></thead>'
    table = f"<table>{head}<tr><td>1</td><td style='a'>2</td></tr>\n<tr><td>3</td><td></td></tr></table>"
    other = '<table class="c"><tr><td>4</td></tr></table>'
    label = 'data-label="the &quot;b&quot;"'
    assert stage.on_page_content(table + other) == (
        f"<table>{head}<tr><td>1</td><td {label} style='a'>2</td></tr>\n"
        f"<tr><td>3</td><td {label}></td></tr></table>{other}"
    )


def test_index_has_what_source_says(tmp_path):
    files = {
        "__init__.py": "from pack import nn\n__all__ = ['__version__', 'nn']\n",
        "nn/__init__.py": "from pack.nn.f import Result, f, g\n__all__ = ['Result', 'f', 'g']\n",
        "nn/f.py": (
            "@overload\ndef f(): ...\n"
            'def f():\n    """Sums a | b.\n\n    More."""\n'
            'def g():\n    """As `f`."""\n    f()\n'
            'class Result:\n    """R."""\n'
        ),
    }
    for path, text in files.items():
        (tmp_path / "pack" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pack" / path).write_text(text)
    names = public_names.public_names(tmp_path / "pack")
    others = "| elsewhere | here |\n|---|---|\n| `np.sum(a, b)`, `add` or `c` | `tfo.nn.f(a, b)` |\n"
    assert stage.index(names, others).split("|---|\n")[-1] == (
        "| [`f`](nn.md#pack.nn.f.f) | Sums a \\| b. | `np.sum`, `np.add` |\n| [`g`](nn.md#pack.nn.f.g) | As `f`. |  |\n"
    )


def test_home_page_lists_titles():
    home = (stage.ROOT / "docs/index.md").read_text()
    pages = re.findall(r"\[([^]]*)\]\(([\w/]+\.md)\)", home.partition("## Where to go")[2].partition("\n\n!")[0])
    titles = [(title, (stage.ROOT / "docs" / path).read_text()) for title, path in pages if "coming_from_" not in path]
    assert [title for title, page in titles if not page.startswith(f"# {title}\n")] == []
    assert len(titles) > 20


def test_readme_names_every_namespace():
    readme = (stage.ROOT / "README.md").read_text()
    modules = filter(None, public_names.public_names(stage.ROOT / "tensorflow_ops"))
    assert [module for module in modules if f"`tfo.{module}`" not in readme] == []
