"""Files for a paper: figures whose words are text, a table that LaTeX reads, a reference."""

import re
import shutil
import subprocess

import numpy as np
import pytest
from attack_rows import MASKED, PLAIN, Played, local, shown_of, suite

from zerosum.simulations.attacks.harness.interface import Defense, Metric
from zerosum.simulations.attacks.harness.results import rows_of
from zerosum.simulations.attacks.report.forest import forest_figure, forests
from zerosum.simulations.attacks.report.latex import escaped, to_latex
from zerosum.simulations.attacks.report.paper_files import paper_files
from zerosum.simulations.attacks.report.protections import judged

HOSTILE = r"""\input{x} & 50 % $x$ #_{^~} <a> "q" | é ∞"""

PICTURES = {"reconstruction": np.linspace(0, 1, 2 * 2 * 36).reshape(2, 2, 6, 6)}

PLAYED = (
    Played(PLAIN),
    Played(local(0.1), figure=14.5, epsilon=285),
    Played(local(1.0), figure=12.0, epsilon=10),
    Played(MASKED, units=2),
)


@pytest.fixture(scope="module")
def files():
    cells, outcomes = suite(*PLAYED, pictures=PICTURES)
    rows = rows_of(cells, outcomes)
    return paper_files(rows, outcomes, cells, "svg")


@pytest.mark.slow
def test_every_figure_is_a_file_with_words_as_text(files):
    assert set(files) == {
        *("forest-inversion.svg", "images-inversion.svg", "sigma-inversion.svg"),
        *("table.tex", "attacks.bib"),
    }
    forest = re.findall(r"<text[^>]*>([^<]*)</text>", files["forest-inversion.svg"].decode())
    assert {"plain", "local noise 0.1 C", "PSNR, dB", "too few units"} <= set(forest)
    strip = re.findall(r"<text[^>]*>([^<]*)</text>", files["images-inversion.svg"].decode())
    assert "target" in strip
    assert files["attacks.bib"].startswith(b"@software{zerosum,")


def test_figures_are_as_wide_as_a_column(files):
    for name in ("forest-inversion.svg", "images-inversion.svg"):
        width = re.search(rb'<svg[^>]* width="([\d.]+)pt"', files[name])
        assert width is not None
        assert float(width[1]) == pytest.approx(3.35 * 72)


def test_labels_of_a_forest_stay_within_the_figure():
    long = Defense("masked + distributed noise 0.001 C, with a long name of its own", "double")
    cells, outcomes = suite(Played(PLAIN), Played(long, 10), Played(MASKED, 50))
    (forest,) = forests(judged(shown_of(cells, outcomes), cells))
    figure = forest_figure(forest)
    figure.draw_without_rendering()
    labels = figure.axes[0].get_yticklabels()
    assert len(labels) == 3
    assert min(each.get_window_extent().x0 for each in labels) > 0
    labels[1].set_text("a line that nobody has broken " * 3)  # the control
    assert labels[1].get_window_extent().x0 < 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pdf", "png"])
def test_the_same_rows_give_the_same_bytes(kind):
    cells, outcomes = suite(*PLAYED, pictures=PICTURES)
    made = [paper_files(rows_of(cells, outcomes), outcomes, cells, kind) for _ in range(2)]
    assert made[0] == made[1]
    assert made[0][f"forest-inversion.{kind}"].startswith(b"%PDF" if kind == "pdf" else b"\x89PNG")


def test_attacks_with_one_file_name_have_files_of_their_own():
    cells, outcomes = suite(Played(PLAIN), name="a/b")
    more, others = suite(Played(PLAIN), name="a b")
    for each in others:
        outcomes.append(type(each)(**{**vars(each), "number": each.number + len(cells)}))
    cells += more
    names = set(paper_files(rows_of(cells, outcomes), outcomes, cells, "svg"))
    assert {"forest-a-b.svg", "forest-a-b-2.svg"} <= names


def columns(line: str) -> int:
    return len(re.findall(r"(?<!\\)&", line)) + 1


def test_the_table_is_latex_whatever_names_say():
    cells, outcomes = suite(*PLAYED, name=HOSTILE, metric=Metric(HOSTILE, "%", whole=40.0))
    text = to_latex(shown_of(cells, outcomes), notice="Incomplete: a\n\\end{x}")
    code = [line for line in text.split("\n") if not line.startswith("%")]
    assert "\\input" not in "\n".join(code)
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") == 1
    lines = [line for line in code if line.endswith(r"\\") and "multicolumn" not in line]
    assert len(lines) == 1 + len(PLAYED)
    assert {columns(line) for line in lines} == {5}
    for sign in "%$#":
        assert not re.search(rf"(?<!\\)\{sign}", re.sub(r"\$\\infty\$", "", "\n".join(code)))
    assert "too few units & 2 & -- & $\\infty$" in text
    assert next(line for line in text.split("\n") if "Incomplete" in line).startswith("% ")


def test_signs_that_latex_reads_are_escaped():
    assert escaped("50 % & $x_1$") == r"50 \% \& \$x\_1\$"
    assert escaped("\\a{b}~^") == r"\textbackslash{}a\{b\}\textasciitilde{}\textasciicircum{}"
    assert escaped("é – ∞") == r"é -- $\infty$"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex here")
def test_latex_compiles_the_table_with_booktabs_alone(tmp_path):
    def compiled(package):
        (tmp_path / "main.tex").write_text(
            f"\\documentclass{{article}}\n{package}\n\\begin{{document}}\n\\input{{table}}\n"
            "\\end{document}\n"
        )
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "main.tex"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    long = Defense("as in the run: masked + distributed noise 4.51 C", "double")
    hostile = suite(*PLAYED, Played(long), name=HOSTILE, metric=Metric(HOSTILE, "%", whole=40.0))
    text = to_latex(shown_of(*hostile), notice="Incomplete: a\n\\end{x}")
    (tmp_path / "table.tex").write_text(text, encoding="utf-8")
    done = compiled("\\usepackage{booktabs}")
    assert done.returncode == 0, done.stdout
    assert "Overfull" not in done.stdout
    assert compiled("").returncode != 0  # the control: LaTeX does stop at what it does not know
