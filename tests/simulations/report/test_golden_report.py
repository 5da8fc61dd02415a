"""The report of the shipped experiment ``digits`` keeps its words and its figures.

``tests/vectors/report/digits`` is a run folder with an audit; ``digits.txt`` beside it is the text
of its page, a line an element, with what each figure shows and which colours it draws in. Where a
change of words is wanted, read the difference and write the text anew:
``python tests/simulations/report/test_golden_report.py``, with tests/common in PYTHONPATH.
"""

import shutil
import tempfile
from pathlib import Path

import pytest
from narrowed import present
from report_pages import text_of

from zerosum.simulations.report import html, write_report

GOLDEN = Path(__file__).parents[2] / "vectors" / "report" / "digits.txt"
FILES = ("config.toml", "metrics.jsonl", "summary.json", "sight.npz", "audit.json")


def report_text(folder: Path) -> str:
    """Return the text of the report of a copy of the golden run, made in a folder."""
    run = folder / "digits"
    run.mkdir()
    for name in FILES:
        shutil.copy(GOLDEN.with_suffix("") / name, run)
    page = write_report(run).read_text(encoding="utf-8")
    return text_of(page)


def test_report_of_digits_keeps_text_and_figures(tmp_path: Path) -> None:
    assert report_text(tmp_path) == GOLDEN.read_text(encoding="utf-8")


def test_a_value_is_escaped_wherever_a_template_puts_it(tmp_path: Path) -> None:
    """The control: the same template, unescaped, lets the script through."""
    templates = tmp_path / "hostile_templates" / "templates"
    templates.mkdir(parents=True)
    (templates.parent / "__init__.py").touch()
    (templates / "page.html").write_text('<p title="{{ value }}">{{ value }}</p>')
    hostile = '"><script>alert(1)</script>'
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        escaped = html.fill("hostile_templates", "page.html", value=hostile)
        patch.setattr(html._environment("hostile_templates"), "autoescape", False)
        present(html._environment("hostile_templates").cache).clear()
        naive = html.fill("hostile_templates", "page.html", value=hostile)
    html._environment.cache_clear()
    assert "<script" not in escaped
    assert escaped.count("&lt;script&gt;") == 2
    assert "<script" in naive


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        GOLDEN.write_text(report_text(Path(made)), encoding="utf-8")
