"""The part that needs both sides in one place: simulation, the command line, reports.

``run`` and ``resume`` simulate an experiment, and raise ``NothingLearntError`` where no client's
training got into the model, ``BusyError`` where something else simulates in this process;
``Result`` is what they return, and ``Result.open`` reads one of earlier; ``plan``
says what an experiment buys and costs, ``attack`` what leaks; ``load_experiment`` reads one;
``sweep`` runs one over lists of values and seeds, in parallel, and returns a table; ``compare``
sets methods side by side; ``write_board`` writes a run's two pages for an ethics board.
Names are imported on first use: the command line answers --help without loading torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
