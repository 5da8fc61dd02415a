"""Pages as a browser renders them: on a phone, in the dark, under a pointer, without a script."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attack_rows
import numpy as np
import pytest
from browser import CHROMIUM, Tab, browser
from made_runs import bound, made_run

from zerosum.server.privacy.observers import OBSERVERS
from zerosum.server.runs.records import RoundRecord, Summary
from zerosum.server.runs.run_folder import TEST_SET, RunFolder
from zerosum.server.training.class_figures import Classified, class_figures
from zerosum.simulations.attacks.harness.results import rows_of
from zerosum.simulations.attacks.report.page import write_attack_report
from zerosum.simulations.config import load_experiment
from zerosum.simulations.report import write_report
from zerosum.simulations.report.compare import compare
from zerosum.simulations.report.compare_page import write_comparison
from zerosum.simulations.report.queries import write_query_report
from zerosum.simulations.sweeps.compare_runs import candidates

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine"),
]

QUERIES = Path(__file__).parents[2] / "vectors" / "report" / "queries"

# Text that is seen, each with its size, and its contrast against what is painted behind it.
SMALLEST = """
(() => {
  const light = (c) => { const v = c.map((x) => x / 255).map(
    (x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
  const parts = (text) => { const v = text.match(/[\\d.]+/g).map(Number);
    return text.startsWith("color(") ? [...v.slice(0, 3).map((x) => 255 * x), ...v.slice(3)] : v; };
  const behind = (e) => {
    if (!e) return [255, 255, 255];
    const [r, g, b, alpha = 1] = parts(getComputedStyle(e).backgroundColor);
    if (alpha === 1) return [r, g, b];
    const below = behind(e.parentElement);
    return [r, g, b].map((x, i) => alpha * x + (1 - alpha) * below[i]); };
  const out = [];
  document.querySelectorAll("details").forEach((each) => each.open = true);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, e = node.parentElement, range = document.createRange();
    if (!node.textContent.trim() || e.closest("script, style, title")) continue;
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect(), style = getComputedStyle(e);
    if (!box.width || style.visibility === "hidden") continue;
    const matrix = e.getScreenCTM ? e.getScreenCTM() : { a: 1, d: 1 };
    const ink = light(parts(e.namespaceURI.endsWith("svg") ? style.fill : style.color));
    const paper = light(behind(e)), two = [ink, paper].sort((a, b) => a - b);
    out.push([parseFloat(style.fontSize) * Math.min(matrix.a, matrix.d),
      (two[1] + 0.05) / (two[0] + 0.05), node.textContent.trim().slice(0, 60)]);
  }
  return out;
})()
"""

BEYOND = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of many rounds and ten classes, a comparison with long names, and queries."""
    root = tmp_path_factory.mktemp("pages")
    run = RunFolder.create(root / "run", load_experiment("digits", ["rounds=120"]))
    lines = [_line(number) for number in range(1, 121)]
    run.rewrite_rounds(lines)
    labels = np.repeat(np.arange(10), 30)
    guesses = np.where(np.arange(300) % 4 == 0, np.roll(labels, 30), labels)
    found = Classified(labels, guesses, np.linspace(0.1, 1, 300), 10, "softmax", 0)
    run.write_json(TEST_SET, {"round": 120, **class_figures(found)})
    figures = dict(zip(OBSERVERS, (2.5, 40.0, 9e3), strict=True))
    bounds = {observer: bound(value, observer) for observer, value in figures.items()}
    run.write_summary(Summary(name="digits", rounds=120, epsilon=bounds, population=400))
    compared = [
        made_run(
            root / f"{optimizer}{seed}",
            [f"server.optimizer={optimizer}", f"seed={seed}", "data.label=" + "long_name_" * 9],
            [0.1, 0.4 + seed / 10, 0.5 + seed / 9],
            epsilon=epsilon,
        )
        for optimizer, epsilon in (("SGD", 1.0), ("Adam", 4.0), ("Adagrad", 8.0))
        for seed in (0, 1)
    ]
    made = write_comparison(compare(candidates(compared)), root / "comparison", ["runs"])
    queries = root / "queries"
    queries.mkdir()
    for each in QUERIES.iterdir():
        (queries / each.name).write_bytes(each.read_bytes())
    return {
        "run": write_report(run),
        "comparison": made[0],
        "queries": write_query_report(queries),
        "attacks": _attacks(root),
    }


def _attacks(folder: Path) -> Path:
    """Write a report with every kind of cell, a curve, pictures and long names."""
    noise = [attack_rows.local(each) for each in (0.01, 0.1, 1.0)]
    figures = (26.0, 16.0, 12.0)
    cells, outcomes = attack_rows.suite(
        attack_rows.Played(attack_rows.PLAIN),
        attack_rows.Played(attack_rows.CLIP, figure=30.0),
        attack_rows.Played(attack_rows.MASKED, figure=None, status="not applicable"),
        attack_rows.Played(attack_rows.distributed(1.0), figure=None, status="failed"),
        attack_rows.Played(attack_rows.distributed(2.0), units=2, epsilon=5.0),
        *(attack_rows.Played(each, figure=of, epsilon=10.0 / each.sigma)
          for each, of in zip(noise, figures, strict=True)),
        name="an attack of a long name " * 3,
        pictures={"reconstruction": np.linspace(0, 1, 2 * 2 * 36).reshape(2, 2, 6, 6)},
    )  # fmt: skip
    rows = rows_of(cells, outcomes)
    (folder / "attacks").mkdir()
    return write_attack_report(folder / "attacks", rows, outcomes, cells, "Incomplete: of a test.")


def _line(number: int) -> RoundRecord:
    return RoundRecord(
        round=number, status="completed" if number % 10 else "abandoned", reason="too few",
        cohort=100, survivors=90, seconds=1.5, dropouts={"share": 4, "contribute": 6},
        metrics={"test_accuracy": 1 - 1 / number, "test_loss": 1 / number},
        epsilon={"release": 0.2 * number, "sum": 3.0 * number, "local": 800.0 * number},
    )  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390, 320])
@pytest.mark.parametrize("name", ["run", "comparison", "queries", "attacks"])
def test_all_text_is_12_pixels_and_has_a_contrast_of_4_5(
    tab: Tab, pages: dict[str, Path], name: str, width: int, scheme: Any
) -> None:
    tab.show(pages[name], width, scheme=scheme)
    texts = tab.value(SMALLEST)
    assert len(texts) > 100
    assert name != "run" or "Reliability" in [each[2] for each in texts]
    assert [each for each in texts if each[0] < 12] == []
    assert [each for each in texts if each[1] < 4.5] == []
    assert tab.value(BEYOND) == 0
    # The control: the same measure sees what is small, faint, and too wide.
    tab.value(
        "document.querySelector('.key, .legend').style.cssText = 'font-size: 11px; color: #777'"
    )
    assert min(each[0] for each in tab.value(SMALLEST)) == 11
    assert min(each[1] for each in tab.value(SMALLEST)) < 4.5
    tab.value("document.querySelector('h1').style.width = '2000px'")
    assert tab.value(BEYOND) > 0


# Elements of the contents that scroll to a side, or would if their scroll bar were drawn.
SCROLLING = """
[...document.querySelectorAll("nav, nav *")].filter((e) =>
  e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX !== "visible").length
"""


@pytest.mark.parametrize("width", [1280, 900, 390])
@pytest.mark.parametrize("name", ["run", "comparison", "queries", "attacks"])
def test_the_contents_have_no_scroll_bar(
    tab: Tab, pages: dict[str, Path], name: str, width: int
) -> None:
    tab.show(pages[name], width)
    assert tab.value(SCROLLING) == 0
    # The control: as it was, the list had one line, whatever its length.
    tab.value("document.querySelector('nav ol').style.cssText = "
              "'display: flex; flex-wrap: nowrap; overflow-x: auto'")  # fmt: skip
    assert width > 390 or tab.value(SCROLLING) > 0


def test_a_pointer_and_arrow_keys_read_the_values(tab: Tab, pages: dict[str, Path]) -> None:
    tab.show(pages["run"])
    tab.value("document.querySelector('.frame').focus()")
    tip = "document.querySelector('.chart output')"
    assert tab.value(f"{tip}.hidden")
    for key in ("Home", "ArrowRight"):
        tab.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key)
    assert tab.value(f"{tip}.textContent") == "round 2test data 50.0 %"
    assert not tab.value(f"{tip}.hidden")
    tab.call("Input.dispatchKeyEvent", type="keyDown", key="Escape", code="Escape")
    assert tab.value(f"{tip}.hidden")
    place = "const b = document.querySelector('.area').getBoundingClientRect();"
    x, y = tab.value(f"(() => {{ {place} return [b.right - 1, b.top + 50] }})()")
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    assert tab.value(f"{tip}.textContent") == "round 120test data 99.2 %"
    tab.show(pages["run"], 390)
    tab.value("document.querySelector('.area').scrollIntoView({block: 'center'})")
    x, y = tab.value(f"(() => {{ {place} return [b.left + 2, b.top + 50] }})()")
    tab.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    tab.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    assert tab.value(f"{tip}.textContent") == "round 1test data 0.0 %"
    assert tab.value(BEYOND) == 0


def test_without_a_script_the_page_is_whole(tab: Tab, pages: dict[str, Path]) -> None:
    said = "document.body.innerText"
    tab.show(pages["run"], script=False)
    alone = tab.value(said)
    tab.show(pages["run"])
    assert tab.value(said) == alone
    assert "Who is protected against whom" in alone


def test_the_policy_lets_no_other_script_run(
    tab: Tab, pages: dict[str, Path], tmp_path: Path
) -> None:
    """The control: without the policy the same page runs both."""
    html = pages["run"].read_text(encoding="utf-8")
    planted = '<script>window.ran = 1</script><img src="data:," onerror="window.ran = 2"></main>'
    hostile = html.replace("</main>", planted)
    assert hostile != html
    (tmp_path / "hostile.html").write_text(hostile, encoding="utf-8")
    tab.show(tmp_path / "hostile.html")
    assert tab.value("window.ran") is None
    assert tab.value("document.querySelector('.frame').tabIndex") == 0  # ours did run
    policy = html[html.index("<meta http-equiv") : html.index("<title>")]
    (tmp_path / "open.html").write_text(hostile.replace(policy, ""), encoding="utf-8")
    tab.show(tmp_path / "open.html")
    assert tab.value("window.ran") in (1, 2)
    # A script of which one letter is another does not run.
    changed = html.replace("Values of a chart", "values of a chart")
    assert hashlib.sha256(changed.encode()).digest() != hashlib.sha256(html.encode()).digest()
    (tmp_path / "changed.html").write_text(changed, encoding="utf-8")
    tab.show(tmp_path / "changed.html")
    assert tab.value("document.querySelector('.frame').tabIndex") == -1


def test_links_of_the_contents_lead_to_the_sections(tab: Tab, pages: dict[str, Path]) -> None:
    for name in pages:
        tab.show(pages[name])
        found = tab.value(
            "[...document.querySelectorAll('nav a')].map(a => [a.textContent,"
            " document.getElementById(a.hash.slice(1))?.querySelector('h2').textContent])"
        )
        assert len(found) > 4
        assert all(link == heading for link, heading in found)
        assert len(found) == tab.value("document.querySelectorAll('main h2').length")
