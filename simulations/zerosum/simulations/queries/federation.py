"""A federation that is asked questions: simulated here, of one table, within one budget."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from zerosum.client.files.operating_system import named_path, readable
from zerosum.client.protocol.noise_source import SeededEntropy
from zerosum.client.queries.errors import QueryError
from zerosum.client.queries.schema import Schema
from zerosum.client.queries.table import Table
from zerosum.client.request import MAX_RECORDS
from zerosum.server.analytics.analyst import Analyst
from zerosum.server.analytics.answers import Answer
from zerosum.server.analytics.asks import Rule
from zerosum.server.analytics.costs import Costed
from zerosum.server.analytics.drafts import Draft
from zerosum.server.analytics.plan_terms import terms_of
from zerosum.server.analytics.query_folder import create_folder, fingerprint, read_folder
from zerosum.server.analytics.query_plan import DEFAULT_DELTA, PlanFile, plan_of
from zerosum.server.analytics.query_setting import check_costs, schema_of, secagg_of
from zerosum.server.runs.run_folder import CLIENT_LOG, SERVER_LOG, new_folder
from zerosum.simulations.engine.one_at_a_time import alone
from zerosum.simulations.queries.clients import (
    Clients,
    TableEnvironment,
    run_id,
    table_coordinator,
)
from zerosum.simulations.queries.tables import DealtTable, deal_file, dealt_of
from zerosum.simulations.terminal.logs import logged

if TYPE_CHECKING:
    import pandas as pd

Data: TypeAlias = "str | Path | Mapping[str, Sequence[Any]] | Table | pd.DataFrame"


class Federation(Analyst):
    """Clients that hold tables, one budget, and all that was asked of them.

    Made by :meth:`simulate` or :meth:`resume`; a context manager, for the folder is locked.

    Parameters
    ----------
    file : PlanFile
        Data, domains, budget and queries.
    dealt : DealtTable
        Whose rows are whose.
    folder : Path or None
        Where all of it is kept; None keeps it in memory.
    environment : callable
        Makes the clients: by default they are honest.

    Raises
    ------
    QueryError
        If the plan's parts do not go together, or cost more than its budget.
    """

    def __init__(
        self,
        file: PlanFile,
        dealt: DealtTable,
        folder: Path | None,
        *,
        environment: Clients = TableEnvironment,
    ) -> None:
        plan, terms = file.plan, terms_of(file, dealt.clients)
        self._failed = ""
        entropy = SeededEntropy(plan.seed)
        coordinator = table_coordinator(
            dealt,
            entropy,
            secagg_of(plan, terms),
            run_id=run_id(file),
            dropout=plan.dropout,
            seed=plan.seed,
            environment=environment,
        )
        super().__init__(file, terms, coordinator, folder, reproducible=entropy.reproducible)

    @classmethod
    def simulate(
        cls,
        data: Data,
        *,
        schema: Schema | Mapping[str, object] | str | Path,
        clients: int | None = None,
        budget: float,
        delta: float = DEFAULT_DELTA,
        rule: Rule = "sum",
        unit: Literal["record", "client"] = "record",
        adjacency: Literal["zero_out", "replace"] = "zero_out",
        observer: Literal["sum", "release"] = "sum",
        cap: int | None = None,
        max_records: int = MAX_RECORDS,
        records: int | None = None,
        honest_fraction: float = 0.8,
        by: str | None = None,
        rename: Mapping[str, str] | None = None,
        seed: int = 0,
        protocol: Literal["ideal", "pairwise"] = "ideal",
        server: Literal["malicious", "semi-honest"] = "malicious",
        dropout: float = 0.0,
        allow_large_delta: bool = False,
        queries: Sequence[Draft] = (),
        out: str | Path | None = None,
    ) -> Self:
        """Deal a table to simulated clients and open a budget for questions about it.

        Parameters
        ----------
        data : path, mapping, DataFrame or Table
            A CSV or Parquet file, or columns in memory.
        schema : Schema, mapping or path
            The declared domains, or the TOML file that has them under ``[schema]``.
        clients : int, optional
            Rows are dealt to so many clients, by the seed.
        budget : float
            Epsilon of all questions together.
        delta : float
            Of the budget.
        rule : str
            "sum", "renyi", or "plan" for ``queries`` alone.
        unit, adjacency, observer : str
            What is protected, how neighbours differ, and against whom.
        cap : int, optional
            Under unit "client": records of a client that count.
        max_records, records : int
            Public bounds, of one client and of all.
        honest_fraction : float
            Part of the clients whose noise makes the guarantee.
        by : str, optional
            In place of ``clients``: a column whose values are the clients.
        rename : mapping, optional
            What the file calls columns of the schema.
        seed : int
            Of rows, dropouts and noise.
        protocol, server : str
            "ideal" for a trusted sum, "pairwise" for masks; the server that these withstand.
        dropout : float
            Part of the clients that vanish in a sum.
        allow_large_delta : bool
            Take a delta that is not below one over the population.
        queries : sequence of Draft
            Under rule "plan": all that will be asked.
        out : str or Path, optional
            Folder of queries, new or empty. Default: a new one under ``runs/``.

        Returns
        -------
        Federation
            Its folder is locked until it is closed.

        Raises
        ------
        QueryError, ConfigError
            One line, before anything is asked.
        """
        plan = plan_of(
            {
                "clients": clients,
                "by": by,
                "rename": dict(rename or {}),
                "seed": seed,
                "protocol": protocol,
                "server": server,
                "dropout": dropout,
                "honest_fraction": honest_fraction,
                "cap": cap,
                "max_records": max_records,
                "records": records,
                "budget": {
                    "epsilon": budget,
                    "delta": delta,
                    "rule": rule,
                    "observer": observer,
                    "unit": unit,
                    "adjacency": adjacency,
                    "allow_large_delta": allow_large_delta,
                },
            }
        )
        domains = schema_of(schema)
        file = PlanFile(plan=plan, domains=domains, queries=tuple(queries))
        return cls.begin(file, data, out)

    @classmethod
    def begin(
        cls, file: PlanFile, data: "Data | None" = None, out: str | Path | None = None
    ) -> Self:
        """Begin what a plan describes, in a folder of its own.

        Parameters
        ----------
        file : PlanFile
            Settings, domains and queries.
        data : path, mapping, DataFrame or Table, optional
            In place of the plan's own.
        out : str or Path, optional
            New or empty. Default: a new one under ``runs/``.

        Returns
        -------
        Federation
            With its folder locked.

        Raises
        ------
        QueryError, ConfigError
            One line, before anything is asked.
        """
        file = file.changed(deployment=None)  # of the same plan on nodes of their own
        given = file.plan.data if data is None else data
        if given is None:
            raise QueryError("data is missing: name a CSV or Parquet file, as data = table.csv")
        if isinstance(given, str | Path):
            path = named_path(str(given)).resolve()
            known = {"data": readable(str(path)), "fingerprint": fingerprint(path)}
            file = file.changed(**known)
            dealt = deal_file(file.plan, file.domains)
        else:
            dealt = dealt_of(given, file.plan, file.domains)
            file = file.changed(data=None, fingerprint=dealt.digest)
        terms = terms_of(file, dealt.clients)
        secagg_of(file.plan, terms)
        check_costs(file, terms)
        folder = create_folder(Path(out) if out is not None else new_folder("queries"), file)
        return cls(file, dealt, folder)

    @classmethod
    def resume(cls, path: str | Path, data: "Data | None" = None) -> Self:
        """Go on with a folder of queries: nothing that was paid for is paid for again.

        Parameters
        ----------
        path : str or Path
            The folder.
        data : path, mapping, DataFrame or Table, optional
            Where the same data are now; those of memory have to be given again.

        Returns
        -------
        Federation
            With its folder locked.

        Raises
        ------
        QueryError, ConfigError
            If the folder holds no queries, or the data are not those of before.
        """
        folder = Path(path)
        file = read_folder(folder)
        if file.plan.deployment is not None:
            raise QueryError(
                f"{folder}: its questions were asked of deployed nodes; go on with flwr run and "
                f"--run-config 'resume=\"{folder}\"'"
            )
        given = file.plan.data if data is None else data
        if given is None:
            raise QueryError(f"{folder}: its data were in memory: give them again")
        if isinstance(given, str | Path):
            path = named_path(str(given)).resolve()
            plan = file.plan.model_copy(update={"data": readable(str(path))})
            now = fingerprint(path)
            dealt = deal_file(plan, file.domains)
        else:
            dealt = dealt_of(given, file.plan, file.domains)
            now = dealt.digest
        if now != file.plan.fingerprint:
            # Noise follows from the seed: a sum that is done again on other records would show
            # what they differ by, without any noise.
            named = f" = {str(given)!r}" if isinstance(given, str | Path) else ""
            raise QueryError(
                f"data{named} is not what this folder began with: with the same noise two answers "
                "would show what differs; restore it, or choose another --out"
            )
        return cls(file, dealt, folder)

    def ask(self, draft: Draft, upcoming: Costed | None = None) -> Answer:
        """Answer a question, or return the stored answer to the same one.

        Parameters
        ----------
        draft : Draft
            As :func:`~zerosum.analytics.count` and its like make it.
        upcoming : Costed, optional
            Of no use here: in one process nothing is gained by preparing the next sum.

        Returns
        -------
        Answer
            With its standard error, intervals and epsilons.

        Raises
        ------
        QueryError
            If the question does not fit the schema or the budget, or the federation is closed.
        BudgetExceeded
            Before anything is sent, if too little is left.
        QueryAbandoned
            If too few clients were left in every attempt that the question has.
        """
        if not isinstance(draft, Draft):
            raise QueryError(f"{draft!r} is no question: ask(count(epsilon=0.1)) asks one")
        if self._closed:
            # Without the lock another process may spend the same budget, and use the same noise.
            raise QueryError(
                "this federation is closed, and its folder no longer locked: ask inside of its "
                f"with block, or go on with Federation.resume({str(self.folder)!r})"
            )
        with ExitStack() as around:
            around.enter_context(alone("query"))
            if self.folder is not None:
                around.enter_context(logged("zerosum.client", self.folder / CLIENT_LOG))
                around.enter_context(logged("zerosum.server", self.folder / SERVER_LOG))
            if self._failed:
                raise QueryError(self._failed)
            try:
                answer = super().ask(draft, upcoming)
            except OSError as error:
                # The clients of this process have answered, and would not answer again.
                self._failed = (
                    f"{self.folder} cannot be written: {error.strerror or error}; make room, and "
                    f"go on with --resume {self.folder}: what was paid for is not paid for again"
                )
                raise QueryError(self._failed) from None
            return replace(answer, reporter=self.report)

    def report(self) -> Path:
        """Draw ``report.html`` of the folder.

        Returns
        -------
        Path
            The page.

        Raises
        ------
        QueryError
            If everything is kept in memory.
        """
        from zerosum.simulations.report.queries import write_query_report

        if self.folder is None:
            raise QueryError("this federation is in memory: give it out = a folder for a report")
        return write_query_report(self.folder)
