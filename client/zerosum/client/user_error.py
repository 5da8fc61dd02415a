"""Show an error of a user's in a notebook without the frames of this package."""

import contextlib
import traceback
from pathlib import Path

import zerosum

_SHELL = ("IPython", "ipykernel")


class UserError(Exception):
    """An error whose one line is for the user, whatever called what inside this package."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows: the user's own frames, and what each error says."""
        causes: list[BaseException] = [self]
        while (cause := causes[-1].__cause__) is not None and cause not in causes:
            causes.append(cause)
        lines: list[str] = []
        for error in reversed(causes):
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _own(frame)]
            lines += [line.rstrip("\n") for line in traceback.format_list(frames)]
            lines += [line.rstrip("\n") for line in traceback.format_exception_only(error)]
        return lines


def _own(frame: traceback.FrameSummary) -> bool:
    """Return whether a frame is neither of this package nor of the notebook's shell."""
    path = Path(frame.filename)
    inside = any(path.is_relative_to(part) for part in zerosum.__path__)
    inside = inside or frame.filename == contextlib.__file__  # through which a context is left
    return not inside and not set(_SHELL) & set(path.parts) and not frame.filename.startswith("<")
