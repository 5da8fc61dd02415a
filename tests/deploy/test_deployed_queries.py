"""Six questions to three registered SuperNodes over TLS: the answers of a simulation."""

import json

import pytest
from clinics import NODE, NODES, PLAN, assert_same_answers, simulated, write_clinics

from zerosum.client.protocol.file_store import FileStore
from zerosum.server.analytics.query_files import ANSWERS, ENDED
from zerosum.server.analytics.stored_answers import read_answers
from zerosum.simulations.rehearsal import federation

APP = PLAN.parent


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(1500)
def test_three_nodes_over_tls_answer_as_a_simulation_does(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.1")  # of nodes: a second otherwise
    write_clinics(tmp_path, NODE.format(epsilon="inf"))
    out = tmp_path / "run"
    with federation(tmp_path / "all", NODES) as built:
        for index in range(NODES):
            policy = tmp_path / f"clinic{index}" / "zerosum-node.toml"
            built.start_supernode(index, f'policy="{policy}"')
        run = built.submit(APP, built.keys_of_server, out)
        status = built.wait_for_run(run, 1200, out / ENDED)
        assert status == "finished:completed", built.run_log(run)
        stores = [FileStore(built.folder / f"state{index}") for index in range(NODES)]
        contributions = {store.contributions for store in stores}
    assert built.running() == []
    found = read_answers(out)
    wanted = simulated(tmp_path)
    assert len(found) == 6
    assert_same_answers(found, wanted)
    assert contributions == {7}, "five questions of one sum, and words of four letters in two"
    ended = json.loads((out / ENDED).read_text())
    assert (ended["answers"], ended["clients"]) == (6, NODES)
    assert (out / ANSWERS).is_file()
