"""Answers of clients that a test gives in place of their training."""

from collections.abc import Callable
from typing import Any

import pytest

from zerosum.client.training.compute import LocalComputation


def answer_by(monkeypatch: pytest.MonkeyPatch, update: Callable[..., Any]) -> None:
    """Let a function answer for each client, by itself also where clients are trained together."""
    monkeypatch.setattr(LocalComputation, "update", update)
    monkeypatch.setattr(LocalComputation, "_together", lambda self, question: None)
