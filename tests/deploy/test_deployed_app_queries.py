"""A survival app on three registered SuperNodes over TLS: counts of all, exactly and with noise."""

import json

import numpy as np
import pytest
from query_apps import POLICY
from survivors import APP, counted, people, survival_of, write_people

from zerosum.client.protocol.file_store import FileStore
from zerosum.simulations.commands.budget import spending_in
from zerosum.simulations.rehearsal import federation

NODES = 3


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(900)
def test_three_nodes_count_for_a_server_that_may_lie(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.1")  # of nodes: a second otherwise
    times, died = people(600)
    files = write_people(tmp_path, times, died, NODES)
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.replace('"semi-honest"', '"malicious"'))
    out = tmp_path / "run"
    out.mkdir()
    with federation(tmp_path / "all", NODES) as built:
        for index in range(NODES):
            built.start_supernode(index, f'policy="{policy}" people="{files[index]}"')
        keys = f'roster="{built.roster}" authority="{built.authority}"'
        run = built.submit_config(APP, f'out="{out}" epsilon=2.0 {keys}')
        status = built.wait_for_run(run, 800, out / "survival.json")
        assert status == "finished:completed", built.run_log(run)
        stores = [FileStore(built.folder / f"state{index}") for index in range(NODES)]
        assert [store.contributions for store in stores] == [2, 2, 2]
    found = json.loads((out / "survival.json").read_text())
    assert found["plain"]["counts"] == counted(times, died).ravel().tolist()
    np.testing.assert_allclose(found["plain"]["survival"], survival_of(times, died), rtol=1e-12)
    errors = np.subtract(found["noisy"]["counts"], found["plain"]["counts"])
    assert 0 < np.abs(errors).max() < 30, "geometric noise of scale 1/2, of deviation .9"
    spent = spending_in(out / "noisy")
    assert not isinstance(spent, dict)
    assert spent.document()["spent"] == pytest.approx(2.0)
