"""Arithmetic has one thread, also in libraries that are loaded after the first time."""

import subprocess
import sys

import pytest

CODE = """
from threadpoolctl import ThreadpoolController, threadpool_info
from zerosum.client.training.threads import one_thread
with one_thread():
    pass
before = {each["filepath"] for each in threadpool_info()}
import sklearn.cluster  # brings an OpenMP of its own
ThreadpoolController().limit(limits=3)
with one_thread():
    inside = {each["filepath"]: each["num_threads"] for each in threadpool_info()}
print(len(inside.keys() - before), *set(inside.values()))
"""


@pytest.mark.slow
def test_a_library_that_is_loaded_later_has_one_thread_too() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    new, *threads = done.stdout.split()
    assert int(new) > 0
    assert threads == ["1"]
