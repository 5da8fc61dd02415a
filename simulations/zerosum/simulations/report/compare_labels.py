"""Say in one line what tells a method of a comparison from the others."""

from collections.abc import Mapping, Sequence

PRIVACY_KEYS = ("privacy.epsilon", "privacy.noise_multiplier")
"""Keys along which one method trades accuracy for privacy."""

NAME = "name"
"""Key that no method differs by, and that may stand for those it does."""


def label_of(settings: Mapping[str, str]) -> str:
    """Write settings in one line: the last word of each key, the whole where two have the same.

    Of the runs' name the value alone.
    """
    last = [key.rpartition(".")[2] for key in settings]
    names = [
        word if last.count(word) == 1 else key for word, key in zip(last, settings, strict=True)
    ]
    parts = zip(names, settings.items(), strict=True)
    return ", ".join(value if key == NAME else f"{word}={value}" for word, (key, value) in parts)


def told_of(
    settings: Mapping[str, Mapping[str, str]], names: Mapping[str, set[str]]
) -> dict[str, Mapping[str, str]]:
    """Return by method what its label says: the name in place of the keys that follow from it.

    Keys that trade accuracy for privacy stay. Without other keys that follow from the names, or
    where one method has runs of two names, all keys that differ stay.

    Parameters
    ----------
    settings : dict of dict
        Of each method, by key; all have the same keys.
    names : dict of set of str
        Of each method's runs.

    Returns
    -------
    dict of dict
        By method.
    """
    every_key = dict(settings)
    if any(len(each) > 1 for each in names.values()):
        return every_key
    name_of = {key: next(iter(each)) for key, each in names.items()}
    follows = [
        d
        for d in next(iter(settings.values()), {})
        if d not in PRIVACY_KEYS
        # One value under each name: then name and the other keys tell all methods apart.
        and len({(name_of[k], of[d]) for k, of in settings.items()}) == len({*name_of.values()})
    ]
    if not follows:
        return every_key
    return {
        key: {NAME: name_of[key], **{d: v for d, v in of.items() if d not in follows}}
        for key, of in settings.items()
    }


def differences_of(
    settings: Sequence[Mapping[str, str]], asked: Sequence[str]
) -> dict[str, list[str]]:
    """Return the values of each key that differs.

    In the order in which sweeps asked for the keys; others after these as the configuration has
    them, those that trade accuracy for privacy last.

    Parameters
    ----------
    settings : sequence of dict
        Of each method, by key.
    asked : sequence of str
        Keys that change over sweeps.

    Returns
    -------
    dict of str to list of str
        By key.
    """
    keys = dict.fromkeys(key for each in settings for key in each)
    values = {key: list(dict.fromkeys(e.get(key, "not set") for e in settings)) for key in keys}
    found = {key: of for key, of in values.items() if len(of) > 1}

    def place(key: str) -> tuple[int, bool]:
        parts = (n for n, of in enumerate(asked) if key == of or key.startswith(f"{of}."))
        return next(parts, len(asked)), key in PRIVACY_KEYS

    return {key: found[key] for key in sorted(found, key=place)}
