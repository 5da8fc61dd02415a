"""Write the table of attacks for a paper: LaTeX, one tabular an attack."""

import re
from collections.abc import Sequence

from zerosum.simulations.attacks.harness.results import Row
from zerosum.simulations.attacks.report.table import (
    baseline_text,
    count_text,
    epsilon_text,
    figure_text,
    threats_text,
)
from zerosum.simulations.terminal.printable import printable

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",  # \textquotedbl is not in every encoding of a font
    "–": "--",
    "∞": r"$\infty$",
    "…": r"\ldots{}",
    "±": r"$\pm$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}

_HEAD = r"""% Attacks, as zerosum played them. In the preamble: \usepackage{booktabs}
% With \input this file follows the text; a tabular of it may stand in a table of yours.
"""

# A line of text is about 345 points wide: names and figures that are longer have several lines.
_BEGIN = r"{\small\setlength{\tabcolsep}{3pt}\noindent" + (
    r"\begin{tabular}{@{}p{.3\linewidth}p{.35\linewidth}rrr@{}}"
)
_SETTING = r"\multicolumn{5}{@{}p{\linewidth}@{}}{\raggedright\emph{SETTING}} \\"


def to_latex(rows: Sequence[Row], notice: str = "") -> str:
    """Return ``table.tex``: a tabular for each attack, of its first metric.

    Parameters
    ----------
    rows : sequence of Row
        The strongest of each cell, pooled.
    notice : str
        Of what the table lacks.

    Returns
    -------
    str
        LaTeX that needs the package booktabs alone.
    """
    parts = [_HEAD + (f"% {printable(notice)}\n" if notice else "")]
    for attack in dict.fromkeys(row.attack for row in rows):
        first = next(row.metric for row in rows if row.attack == attack)
        parts.append(_tabular([r for r in rows if r.attack == attack and r.metric == first]))
    return "\n\\bigskip\n\n".join(parts) if len(parts) > 2 else "\n".join(parts)


def _tabular(rows: Sequence[Row]) -> str:
    first = rows[0]
    metric = f"{first.metric}, {first.unit}" if first.unit else first.metric
    titles = ("Protection", f"{metric} [95 %]", "Units", "Baseline", "Epsilon")
    name, threats = escaped(first.attack), escaped(threats_text(rows))
    lines = [
        f"\\noindent\\textbf{{{name}}} ({threats})\\par\\nopagebreak",
        _BEGIN,
        r"\toprule",
        _line(titles),
    ]
    for setting in dict.fromkeys(row.setting for row in rows):
        lines += [r"\midrule", _SETTING.replace("SETTING", escaped(setting))]
        for row in rows:
            if row.setting == setting:
                cells = (row.protection, _short(row), count_text(row))
                others = (baseline_text(row), epsilon_text(row))
                lines.append(_line((*cells, *others)))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}\par}", ""])


def _line(cells: Sequence[str]) -> str:
    """Return a line of a table; in the first two columns words are broken between lines."""
    broken = [f"\\raggedright {escaped(cell)}" for cell in cells[:2]]
    return " & ".join([*broken, *map(escaped, cells[2:])]) + r" \\"


def _short(row: Row) -> str:
    """Return a figure without the reason why there is none, which is a sentence."""
    text = figure_text(row)
    return text if row.verdict == "above baseline" or row.status == "value" else row.verdict


def escaped(text: str) -> str:
    """Return text that LaTeX prints as it is, on one line.

    Parameters
    ----------
    text : str

    Returns
    -------
    str
    """
    return re.sub(r"[^\w\s]", lambda m: _SPECIAL.get(m[0], m[0]), printable(text)).replace(
        "_", r"\_"
    )
