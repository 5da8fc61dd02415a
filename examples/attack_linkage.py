"""A table without names, and a register with them: who is who, and what k-anonymity does not hide.

From anywhere: ``python attack_linkage.py``. It takes about ten seconds. With the Adult census file
as its argument, ``python attack_linkage.py adult.csv``, it links that.
"""

import sys

from zerosum.simulations.attacks import Case, Cell, Defense, Linkage, ReleasedSetting, play


def main(path: str = "") -> None:
    """Link by more and more attributes, against rows as they are and against classes of five."""
    attack = Linkage(path=path)
    for attributes in (3, 5, 7):
        for k in (1, 5):
            setting = ReleasedSetting(attributes, k=k, path=path)
            protection = Defense("as they are" if k == 1 else f"k-anonymous, k = {k}")
            outcome = play(0, Cell(attack, Case(setting, protection)), seed=0)
            if outcome.status != "value":
                raise SystemExit(outcome.note)
            unique, certain = (
                outcome.units[name].hits.mean()
                for name in ("unique rows", "sensitive value certain")
            )
            print(
                f"{attributes} attributes, rows {protection.name}: {unique:.1%} of the people "
                f"are unique, the secret of {certain:.1%} is certain"
            )


if __name__ == "__main__":
    main(*sys.argv[1:2])
