"""Lines about cuts are few, and the first, the largest and the count are among them."""

import logging

import numpy as np
import pytest

from zerosum.client.protocol.protection import Protection
from zerosum.client.protocol.saturation_log import CutFilter
from zerosum.client.spec import EncodingSpec, PrivacySpec
from zerosum.secagg.randomness import insecure_keystream
from zerosum.simulations.terminal.logs import logged

OPEN = PrivacySpec(model="none", clip=None)


def sent(largest):
    """Log what a client's vector with this largest coordinate is cut by."""
    protection = Protection.build(
        OPEN, EncodingSpec(range=8.0), cohort=4, dimension=3, rotation_seed=bytes(32)
    )
    coins = insecure_keystream(1, "rounding", 0)
    protection.protect([largest, 0.0, 0.0], rounding=coins, noise=None, whose="client 1")


@pytest.fixture
def lines(tmp_path):
    def lines(values):
        with logged("zerosum.client", tmp_path / "clients.log"):
            for value in values:
                sent(value)
        text = (tmp_path / "clients.log").read_text()
        return [line.partition("client 1: ")[2] for line in text.splitlines()]

    return lines


def test_a_thousand_equal_cuts_are_four_lines(lines):
    first, *others = lines([100.0] * 1000)
    assert first == "1 of 3 coordinates were cut to 8; the largest was 100 (encoding.range)"
    assert others == [f"{first}; cuts so far: {count}" for count in ("10", "100", "1,000")]


def test_the_largest_so_far_is_always_there(lines):
    values = np.random.default_rng(1).uniform(9, 1000, size=300)
    said = lines(values)
    assert any(f"the largest was {values.max():.6g} " in line for line in said)
    assert len(said) < 20


def test_a_run_begins_with_its_own_first_line(lines):
    assert len(lines([100.0] * 2)) == 1
    assert len(lines([100.0] * 2)) == 2


def test_lines_that_are_no_cut_are_always_written():
    kept = CutFilter()
    record = logging.LogRecord("zerosum.client", logging.WARNING, "", 0, "failed", None, None)
    assert all(kept.filter(record) for _ in range(12))
