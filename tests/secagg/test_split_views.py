"""What a server that shows clients different survivor sets can do without a confirm stage.

On the complete graph a split view yields both shares of one client exactly when
colluders >= 2 t - k; below, the server ends with fewer than t shares of one kind.
"""

import numpy as np
import pytest

from zerosum.secagg import ClientParty, UnmaskRequest, request_digest
from zerosum.secagg.keys import Hkdf, KeyPair, PairMasks, self_mask
from zerosum.secagg.messages import SHARE_BYTES
from zerosum.secagg.prg import accumulate
from zerosum.secagg.shamir import combine
from zerosum.secagg.wire import from_bitmap, to_bitmap

REQUEST = request_digest(b"model", b"configuration")


def share_of(answer, dealer):
    """The share of one dealer in an unmask answer, or None."""
    dealers = from_bitmap(answer.dealers).tolist()
    table = np.frombuffer(answer.shares, "<u4").reshape(-1, SHARE_BYTES // 4)
    return table[dealers.index(dealer)] if dealer in dealers else None


def gather(play, views, victim):
    """Ask each holder for its answer to each view, and return the victim's shares by kind."""
    kept: dict[str, dict[int, np.ndarray]] = {"self": {}, "mask": {}}
    n = play.session.size
    for position, kinds in views.items():
        state = play.clients[play.session.cohort[position]].export()
        for kind in kinds:
            survivors = set(range(n)) - ({victim} if kind == "mask" else set())
            party = ClientParty.restore(state)
            message = UnmaskRequest(play.session.digest, to_bitmap(survivors, n))
            kept[kind][position + 1] = share_of(party.unmask(message).send, victim)
    return kept


def attack(play, views, victim):
    """Recover the victim's vector from a split view, or None if a kind has too few shares."""
    session, index = play.session, play.session.cohort[victim]
    threshold, secrets = session.threshold, {}
    for kind, shares in gather(play, views, victim).items():
        if len(shares) < threshold:
            return None
        points = sorted(shares)[:threshold]
        secrets[kind] = combine(points, np.array([shares[point] for point in points]))
    vector = np.array(play.sent["contribute"][index].vector)
    hkdf = Hkdf(session.digest)
    masks = PairMasks(KeyPair(secrets["mask"], hkdf), REQUEST)
    accumulate(vector, (), [self_mask(hkdf, secrets["self"], REQUEST, index)])
    for other in session.cohort:
        if other != index:
            key = play.sent["advertise"][other].mask_key
            stream = masks.stream(key, min(index, other), max(index, other))
            accumulate(vector, *(([], [stream]) if other > index else ([stream], [])))
    return session.ring.reduce(vector)


def splits(n, victim, colluders):
    """Every split of the honest holders (they are alike) between the two views."""
    others = [position for position in range(n) if position != victim]
    crooked, honest = others[:colluders], others[colluders:]
    for told_alive in range(len(honest) + 1):
        views = dict.fromkeys(crooked, ("self", "mask"))
        for place, position in enumerate(honest):
            views[position] = ("self",) if place < told_alive else ("mask",)
        yield views


@pytest.mark.parametrize(("n", "threshold"), [(9, 6), (8, 5), (6, 4)])
@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_a_split_view_opens_a_vector_exactly_from_the_bound_on(lab, n, threshold, offset):
    colluders = 2 * threshold - (n - 1) + offset
    victim = 3
    play = lab.Play(lab.session(n, threshold=threshold)).until("contribute")
    play.stage()
    play.close()
    truth = play.session.ring.encode(play.vectors[play.session.cohort[victim]])
    opened = [attack(play, views, victim) for views in splits(n, victim, colluders)]
    got = [vector for vector in opened if vector is not None]
    assert bool(got) == (offset >= 0)
    for vector in got:
        np.testing.assert_array_equal(vector, truth)
