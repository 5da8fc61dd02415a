"""A survival app, as the page shows it: the curve of all nodes, from counts over a grid."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from query_apps import POLICY
from survivors import APP, counted, people, survival_of, write_people

from zerosum.simulations.engine.grid import InProcessGrid

NODES = 3
PAGE = Path(__file__).parents[2] / "docs" / "flower-apps.md"


@pytest.fixture
def app(monkeypatch):
    """Return the app's modules: client_app and server_app."""
    monkeypatch.syspath_prepend(str(APP))
    import survival_app.client_app  # type: ignore[import-not-found] # of the app
    import survival_app.server_app  # type: ignore[import-not-found] # of the app

    yield survival_app
    for name in [name for name in sys.modules if name.startswith("survival_app")]:
        del sys.modules[name]


def run(app, folder, times, died, epsilon):
    """Run both apps on nodes with these people; return what was written."""
    files = write_people(folder, times, died, NODES)
    (folder / "policy.toml").write_text(POLICY)
    config = {"epsilon": epsilon, "server": "semi-honest", "roster": "", "authority": ""}
    grid = InProcessGrid(
        app.client_app.app,
        NODES,
        run_config=config | {"out": str(folder)},
        node_config=lambda index: {
            "state-dir": str(folder / "state" / str(index)),
            "policy": str(folder / "policy.toml"),
            "people": str(files[index]),
        },
    )
    app.server_app.app(grid, grid._context(1_000))
    return json.loads((folder / "survival.json").read_text())


def furthest(times, died, epsilon, level):
    """The largest error of a curve that noise of these cells makes, by so many draws of it."""
    rng, counts = np.random.default_rng(1), counted(times, died)
    ratio = np.exp(-epsilon)
    shape = (500, *counts.shape)
    # The constant noise of three nodes of which two make the guarantee is 1.5 times that of one
    # discrete Laplace: two of it are more.
    noise = sum(rng.geometric(1 - ratio, shape) - rng.geometric(1 - ratio, shape) for _ in "ab")
    lost, dead = np.moveaxis((counts + noise).clip(0), -1, 0)
    at_risk = (lost + dead)[:, ::-1].cumsum(axis=1)[:, ::-1]
    curves = np.cumprod(1 - dead / np.maximum(at_risk, 1), axis=1)
    return np.quantile(np.abs(curves - survival_of(times, died)).max(axis=1), level)


@pytest.mark.slow
def test_the_curve_is_right_without_noise_and_within_it_with_noise(app, tmp_path):
    times, died = people(1500)
    found = run(app, tmp_path, times, died, epsilon=1.0)
    assert found["plain"]["counts"] == counted(times, died).ravel().tolist()
    np.testing.assert_allclose(found["plain"]["survival"], survival_of(times, died), rtol=1e-12)
    error = np.abs(found["noisy"]["survival"] - survival_of(times, died)).max()
    assert 0 < error < 2 * furthest(times, died, 1.0, 0.998)
    assert 2 * furthest(times, died, 1.0, 0.998) < 0.1 < furthest(times, died, 0.02, 0.5)


def test_the_page_shows_what_this_app_does():
    page = PAGE.read_text(encoding="utf-8")
    client = (APP / "survival_app" / "client_app.py").read_text(encoding="utf-8")
    server = (APP / "survival_app" / "server_app.py").read_text(encoding="utf-8")
    for line in client.splitlines():
        if line.startswith(("GRID", "    left", "    counts", "    return")):
            assert line in page, line
    for line in server.splitlines():
        if line.strip().startswith(("seen", "at_risk")):
            said = line.strip().replace("(counts, ", '(reply.content["left"]["counts"], ')
            assert said in page, line


@pytest.mark.slow
def test_the_curve_is_lifelines_own_on_its_flies(app, tmp_path):
    datasets = pytest.importorskip("lifelines.datasets", reason="lifelines is not installed")
    from lifelines import KaplanMeierFitter  # type: ignore[import-untyped, import-not-found, unused-ignore]

    flies = datasets.load_waltons()
    times, died = flies["T"].to_numpy(), flies["E"].to_numpy(dtype=float)
    found = run(app, tmp_path, times, died, epsilon=4.0)
    # Of times that are the intervals' own beginnings nothing is lost by counting.
    fitted = KaplanMeierFitter().fit(5.0 * (times // 5), died)
    wanted = fitted.survival_function_at_times(np.arange(0.0, 80.0, 5.0)).to_numpy()
    np.testing.assert_allclose(found["plain"]["survival"], wanted, rtol=1e-9)
    error = np.abs(found["noisy"]["survival"] - wanted).max()
    assert error < 2 * furthest(times, died, 4.0, 0.998)
