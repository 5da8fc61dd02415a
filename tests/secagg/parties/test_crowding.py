"""Colluders who all draw the same victims neither cut them off nor go unnamed."""

import dataclasses

import numpy as np
import pytest

from zerosum.secagg import ServerMode
from zerosum.secagg.graph.graphs import CROWD, crowders
from zerosum.secagg.messages.all_messages import advert_statement
from zerosum.secagg.wire import to_positions


def drawn_graph(rng, n, k, colluders=0, victims=0):
    """N(u) of n clients, the first of which draw among the last only, as many as they can."""
    named = []
    for u in range(n):
        if u < colluders:
            named.append(np.sort(n - victims + rng.choice(victims, k, replace=False)))
        else:
            others = rng.choice(n - 1, k, replace=False)
            named.append(np.sort(others + (others >= u)))
    return named


def in_degrees(named):
    return np.bincount(np.concatenate(named), minlength=len(named))


def crowd(lab, session, namers, victim):
    """A play in which so many clients draw one victim as their neighbour, and sign for it."""

    def change(stage, index, advert):
        place = session.position(index)
        if stage != "advertise" or place == victim or place not in namers:
            return advert
        circle = [(place + step) % session.size for step in range(1, session.size)]
        others = [p for p in circle if p != victim][: session.degree - 1]
        neighbours = to_positions(np.array(sorted([*others, victim])), session.size)
        other = dataclasses.replace(advert, neighbours=neighbours)
        statement = advert_statement(other.session, other.index, other.fields)
        return dataclasses.replace(other, signature=lab.identity(other.index).sign(statement))

    return lab.Play(session, change=change)


@pytest.mark.parametrize("namers", [9, 10, 15])
def test_a_client_that_many_more_drew_than_chance_allows_stays_in_the_sum(lab, namers):
    """Three times the degree is 9: above, a client used to be left out."""
    session = lab.session(16, degree=3, threshold=1, mode=ServerMode.MALICIOUS)
    victim = 15
    play = crowd(lab, session, set(range(namers)), victim).until("share")
    client, asked = play.clients[session.cohort[victim]], play.messages[session.cohort[victim]]
    assert client.share(asked).send.index == session.cohort[victim]
    assert len(client._around.naming) >= namers


def test_the_sum_of_a_crowded_client_is_exact(lab, monkeypatch):
    """Every party draws by the same seed as the colluders would: the whole session runs."""
    from zerosum.secagg.parties import client_stages

    victim, original = 15, client_stages.draw_neighbours

    def drawn_with(session, position, seed):
        found = original(session, position, seed)
        if position == victim or victim in found:
            return found
        return np.sort(np.append(found[1:], victim))

    monkeypatch.setattr(client_stages, "draw_neighbours", drawn_with)
    session = lab.session(16, degree=5, threshold=2, mode=ServerMode.MALICIOUS)
    play = lab.Play(session)
    result = play.finish({session.cohort[3]: "contribute", session.cohort[8]: "confirm"})
    assert session.cohort[victim] in result.survivors
    expected = lab.plain_sum(session, play.vectors, result.survivors)
    np.testing.assert_array_equal(result.total, expected)


def test_colluders_who_crowd_are_named_and_nobody_else():
    rng = np.random.default_rng(1)
    named = drawn_graph(rng, n=1500, k=20, colluders=150, victims=40)
    assert (in_degrees(named)[-40:] > CROWD * 20).all()
    assert crowders(named, 20).tolist() == list(range(150))


def test_a_server_names_the_crowders_of_its_session_once_all_have_drawn(lab):
    session = lab.session(200, degree=16, threshold=5, mode=ServerMode.MALICIOUS)
    colluders, victims = range(60), np.arange(184, 200)

    def change(stage, index, advert):
        if session.position(index) not in colluders:
            return advert
        other = dataclasses.replace(advert, neighbours=to_positions(victims, session.size))
        statement = advert_statement(other.session, other.index, other.fields)
        return dataclasses.replace(other, signature=lab.identity(other.index).sign(statement))

    play = lab.Play(session, change=change)
    assert play.server.crowders == ()
    play.stage()
    messages = play.close()
    assert play.server.crowders == tuple(session.cohort[place] for place in colluders)
    assert messages.keys() == set(session.cohort), "named, and nobody is left out"


def test_nobody_is_named_where_all_draw_by_chance_even_if_chance_crowds_some():
    rng, crowded = np.random.default_rng(2), 0
    for _ in range(20):
        named = drawn_graph(rng, n=300, k=2)
        crowded += (in_degrees(named) > CROWD * 2).sum()
        assert not crowders(named, 2).size
    assert crowded > 20


def test_a_clients_own_edge_does_not_make_it_a_crowder():
    """Each of 3k + 1 clients draws the same k victims: without its own, none is crowded."""
    k, n = 3, 40
    alone = [np.array([37, 38, 39]) if u < 3 * k + 1 else np.array([30, 31, 32]) for u in range(n)]
    only = [each if u < 3 * k + 1 else np.empty(0, int) for u, each in enumerate(alone)]
    assert not crowders(only, k).size


def test_absent_and_empty_neighbour_lists_crowd_nobody():
    assert not crowders([np.empty(0, np.intp)] * 5, 2).size


@pytest.mark.slow
@pytest.mark.statistical
def test_five_hundred_colluders_of_ten_thousand_leave_nobody_out_and_are_all_named():
    """The attack that left out 186 of 220 chosen clients where 3k in-edges were a refusal."""
    rng, n, k, colluders, victims = np.random.default_rng(3), 10_000, 61, 500, 220
    named = drawn_graph(rng, n, k, colluders, victims)
    refused = int((in_degrees(named)[-victims:] > CROWD * k).sum())
    assert refused >= 180, "the control: the rule that was"
    assert crowders(named, k).tolist() == list(range(colluders))
    # What a victim pays: at most one mask and one share more for each colluder.
    assert in_degrees(named)[-victims:].max() <= 3 * k + colluders
    honest = drawn_graph(rng, n, k)
    assert not crowders(honest, k).size
