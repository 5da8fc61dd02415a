"""``--only``: cells by words of their protection and setting."""

import pytest
from attack_rows import CLIP, MASKED, PLAIN, Played, local, suite

from zerosum.server.config import ConfigError
from zerosum.simulations.attacks.harness.only import only_with

CELLS, _ = suite(
    Played(PLAIN, 2), Played(CLIP, 2), Played(MASKED, 2), Played(MASKED, 10),
    Played(local(0.1), 2), Played(local(1.0), 2),
)  # fmt: skip


@pytest.mark.parametrize(
    ("filters", "numbers"),
    [
        ([], [0, 1, 2, 3, 4, 5]),
        (["masked"], [2, 3]),
        (["MASKED"], [2, 3]),
        (["masked 10"], [3]),
        (["10 clients, masked"], [3]),
        (["local noise"], [4, 5]),
        (["plain", "masked"], [0, 2, 3]),
        (["0.1"], [4]),  # not of 1 C
        (["noise 1"], [4, 5]),  # "1 image each" has the word, too
    ],
)
def test_cells_with_all_words_of_one_filter_are_played(filters, numbers):
    assert only_with(CELLS, filters) == [CELLS[number] for number in numbers]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("maskd", "no protection and no setting has 'maskd'; did you mean \"masked\"?"),
        ("mask", "no protection and no setting has 'mask'"),
        ("clip 10", "no cell has all of these words"),
        ("  ", "it has no words"),
    ],
)
def test_words_that_no_cell_has_are_refused_with_those_there_are(words, said):
    with pytest.raises(ConfigError) as refused:
        only_with(CELLS, ["masked", words])
    assert said in str(refused.value)
    assert "write words of: plain; clip; masked; local noise 0.1 C" in str(refused.value)
    assert "10 clients, 1 image each" in str(refused.value)
