"""Sections of an experiment: the text below a field is its meaning."""

import inspect

import pytest

from zerosum.client.spec import section


class Weather(section.Spec):
    """A section of its own."""

    wind: float = 0.0
    """Metres a second."""
    rain: float = 0.0


def test_the_text_below_a_field_is_its_description() -> None:
    found = section.described(Weather)
    assert found["wind"].description == "Metres a second."
    assert found["rain"].description is None
    assert Weather.model_fields["wind"].description is None


def test_the_source_of_a_section_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shells ask for a key's values one key at a time; each source is a parsed file."""
    read, getsource = [], inspect.getsource

    def counted(spec: type) -> str:
        read.append(spec)
        return getsource(spec)

    monkeypatch.setattr(inspect, "getsource", counted)
    section._texts_below.cache_clear()
    for _ in range(3):
        section.described(Weather)
    assert sorted(spec.__name__ for spec in read) == ["Spec", "Weather"]
