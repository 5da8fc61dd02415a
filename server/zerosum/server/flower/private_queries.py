"""Privacy around the queries of other people's ServerApps.

One line of a ServerApp changes::

    grid = PrivateQueries(grid, {"query_results": {"ages": Counts(10)}}, epsilon=0.5, budget=1.0)

and one of its ClientApp (:mod:`zerosum.client.flower.private_mod`). What the ServerApp sends by
``grid.send_and_receive`` is answered by one reply, as of one client that holds everybody's data:
each declared value is the sum over the nodes, with noise, and nothing else of any reply is seen.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from flwr.app import Message, MessageType, RecordDict, UserConfig
from flwr.serverapp import Grid

from zerosum.client.flower.app_query import AppSumRequest, sums_reply
from zerosum.client.flower.app_request import TASK
from zerosum.client.flower.flower_internals import fused_config
from zerosum.client.protocol.noise_source import Entropy, SystemEntropy
from zerosum.client.queries.declared_sums import SumQuestion
from zerosum.client.queries.errors import QueryError
from zerosum.secagg.randomness import SystemRandomness
from zerosum.server.config import ConfigError, parse_experiment
from zerosum.server.flower.app_answers import AppAnswer, AppAnswers
from zerosum.server.flower.app_grid import AppGrid, StrategyGrid
from zerosum.server.flower.app_records import check_alike, cohort_of
from zerosum.server.flower.app_sums import (
    CostedSums,
    Declared,
    SumTerms,
    checked,
    cost_of,
    terms_of,
)
from zerosum.server.flower.argument_words import in_arguments, sections
from zerosum.server.flower.node_registry import meet
from zerosum.server.flower.serving import (
    ONE_PROCESS,
    is_simulation,
    keep_from_others,
    read_deployment_keys,
    simulated_app_nodes,
    warn_of_packing,
)
from zerosum.server.private_sum.coordinator import Coordinator, Nodes
from zerosum.server.private_sum.reply_errors import TRAINING_LOOP
from zerosum.server.runs.run_outcome import NODE_LOGS
from zerosum.server.spec import Experiment

if TYPE_CHECKING:  # whose accountant takes a second to import
    from zerosum.server.analytics.query_spending import QuerySpending

log = logging.getLogger("flwr")

Section = Mapping[str, Any]

_RUN_ID_BYTES = 8

_SIMULATION = b"simulation"
"""In place of a roster's digest: that of a simulation is of its run alone."""


class PrivateQueries(StrategyGrid):
    """A grid whose query messages are answered by sums over the nodes, and by nothing else.

    It is a ServerApp's grid: ``get_node_ids`` waits for the nodes and returns those that take part,
    and ``send_and_receive`` of messages that are all alike returns one reply. The same query again
    has the stored answer and costs nothing, unless ``fresh``.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        Of a deployment, or of Flower's simulation runtime.
    sums : mapping of str to mapping
        By record and value of the app's reply: :class:`~.app_sums.Counts` or
        :class:`~.app_sums.Reals`. Nothing else of a reply leaves a node.
    epsilon : float, optional
        What one query may cost; required under noise.
    budget : float, optional
        What all queries may cost together; required under noise.
    delta : float, optional
        Below one over the nodes. Default: 1e-6.
    privacy : mapping
        Further keys: ``unit``, ``adjacency``, ``rule``, ``observer``, ``mechanism``,
        ``honest_fraction``. Without noise: ``privacy={"model": "none"}``.
    secagg, deployment : mapping
        Sections of an experiment file.
    run_config : mapping, optional
        As of :class:`~.private_strategy.PrivateStrategy`.
    message_type : str
        By which nodes are greeted: "query", or, of an app that has functions for actions alone, one
        of these, "query.count". Messages may have any.
    fresh : bool
        Pay for a new answer where the same was asked before: the nodes' data have changed.
    out : str or Path, optional
        Folder of queries: ledger, sums, answers. Default: ``runs/RUN_ID-queries``, beside that of
        a PrivateStrategy. One that holds queries of the same budget is gone on with.

    Raises
    ------
    ConfigError
        If a setting is wrong, or nothing is declared.
    """

    entropy: Entropy = SystemEntropy()

    def __init__(
        self,
        grid: Grid,
        sums: Declared | None = None,
        *,
        epsilon: float | None = None,
        budget: float | None = None,
        delta: float | None = None,
        privacy: Section | None = None,
        secagg: Section | None = None,
        deployment: Section | None = None,
        run_config: UserConfig | None = None,
        message_type: str = MessageType.QUERY,
        fresh: bool = False,
        out: str | Path | None = None,
    ) -> None:
        super().__init__(grid, (), self._answer)
        short = {"epsilon": epsilon, "budget": budget, "delta": delta}
        given = {key: value for key, value in short.items() if value is not None}
        spoken = {"privacy": privacy, "secagg": secagg, "deployment": deployment}
        own = sections("PrivateQueries", spoken, {"privacy": SumTerms.model_fields})
        with in_arguments():
            self._terms = terms_of({**own["privacy"], **given})
            self._experiment = _experiment(own["secagg"], own["deployment"])
        self._declared = checked(sums, self._terms)
        self._run_config, self._fresh, self._out = run_config, fresh, out
        _check_types({message_type}, "PrivateQueries greets nodes by a message")
        self._app_grid = AppGrid(grid, message_type)
        self._answers: AppAnswers | None = None
        self._closed = False
        self._by_index: Mapping[int, int] = {}
        self.last: AppAnswer | None = None
        """The latest answer, with the deviations of its noise."""

    @property
    def spending(self) -> "QuerySpending | None":
        """What is spent of the budget, by which query; None without noise, or before the first."""
        ledger = None if self._answers is None else self._answers.ledger
        if ledger is None:
            return None
        from zerosum.server.analytics.query_spending import spending_of

        return spending_of(ledger)

    def get_node_ids(self) -> Iterable[int]:
        """Wait for the nodes, once, and return those of them that are connected."""
        self._opened()
        return super().get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Refuse, as :class:`~.app_grid.StrategyGrid` does.

        Parameters
        ----------
        messages : iterable of flwr.app.Message
            Of a ServerApp that sends some by itself.

        Returns
        -------
        iterable of str
            Never.

        Raises
        ------
        ConfigError
            Always.
        """
        raise ConfigError(
            "PrivateQueries: messages are sent by grid.send_and_receive, all of a query at once: "
            "a message alone is no private sum, and what push_messages sends would be answered in "
            "plain"
        )

    def close(self) -> None:
        """Let go of the folder: nothing more can be asked."""
        self._closed = True
        if self._answers is not None:
            self._answers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _opened(self) -> AppAnswers:
        """Meet the nodes and open the folder, once."""
        if self._answers is not None:
            return self._answers
        if self._closed:
            raise QueryError("PrivateQueries is closed: make another to ask more")
        path = Path(self._out or f"runs/{self._grid.run.run_id}-queries")
        simulated, spec = is_simulation(self._grid), self._experiment.deployment
        log.info("PrivateQueries waits for its nodes; folder of queries: %s", path.resolve())
        warn_of_packing(path, log)
        if simulated:
            log.warning("PrivateQueries: %s", ONE_PROCESS)
            nodes = simulated_app_nodes(self._app_grid, spec.min_nodes)
        else:
            server = self._experiment.secagg.server
            roster = read_deployment_keys(spec, server, "secagg.server")
            nodes = meet(self._app_grid, spec, roster)
        _check_delta(self._terms, len(nodes))
        coordinator = self._coordinator(nodes, simulated)
        asked = _SIMULATION if simulated else nodes.roster and nodes.roster.digest
        if not simulated:
            keep_from_others(path)
        self._answers = AppAnswers(path, self._terms, len(nodes), coordinator, asked or b"")
        self._by_index, self._nodes = nodes.by_index, set(nodes.by_index.values())
        if self._terms.model == "none":
            log.warning('PrivateQueries: privacy.model = "none": masks, but no noise, no epsilon')
        return self._answers

    def _coordinator(self, nodes: Nodes, simulated: bool) -> Coordinator:
        return Coordinator(
            self._app_grid,
            nodes,
            self._experiment.secagg,
            # A ServerApp that starts again opens other sessions than before.
            run_id=self._grid.run.run_id.to_bytes(_RUN_ID_BYTES, "little")
            + SystemRandomness().take(_RUN_ID_BYTES),
            entropy=self.entropy,
            timeouts=None if simulated else self._experiment.deployment,
        )

    def _answer(self, messages: list[Message]) -> list[Message]:
        """Run the private sum that these messages ask for, and reply to the first of them."""
        if not messages:
            return []
        answers = self._opened()
        records, message_type = _common(messages)
        cohort = self._cohort(messages)
        costed = cost_of(self._declared, self._terms, len(cohort))
        config = self._config()
        self._app_grid.carry(records, message_type)

        def request_of(costed: CostedSums, round: int) -> AppSumRequest:
            question = SumQuestion(
                round=round,
                seed=0,
                population=len(self._by_index),
                privacy=costed.privacy,
                sums=costed.sums,
            )
            return AppSumRequest.of(question, records, message_type=message_type, run_config=config)

        made = answers.ask(cohort, costed, request_of, fresh=self._fresh)
        self.last = made
        self._tell(made, len(cohort))
        return [Message(sums_reply(made.sums, made.values), reply_to=messages[0])]

    def _cohort(self, messages: list[Message]) -> tuple[int, ...]:
        """Return who is asked, by index."""
        cohort = cohort_of(messages, self._by_index, "ServerApp")
        if len(cohort) < 2:
            raise ConfigError("the ServerApp asks one node: a sum of fewer than 2 hides nothing")
        return cohort

    def _config(self) -> UserConfig:
        """Return the run config that Flower hands every app of the run."""
        config = fused_config(self._grid.run) if self._run_config is None else self._run_config
        if config is None:
            raise ConfigError(
                "this version of Flower does not tell a grid the run config, to which masks are "
                "bound: give it, PrivateQueries(..., run_config=context.run_config)"
            )
        return config

    def _tell(self, made: AppAnswer, cohort: int) -> None:
        who = f"{made.clients} of {cohort} nodes are in the sum"
        if made.stored:
            who = "it was asked before: the stored answer, for free (fresh=True pays for another)"
        noise = ", ".join(f"{name} {std:.3g}" for name, std in made.std.items() if std)
        spending = self.spending
        log.info(
            "private %s: %s%s%s",
            made.name,
            who,
            f"; deviation of the noise: {noise}" if noise else "",
            "" if spending is None else f"; {spending.sentence()}",
        )
        if made.drowned:
            log.warning(
                "private %s: all its numbers together are no more than their noise: does the reply "
                "hold what is declared, by name and length? The reason is in %s",
                made.name,
                NODE_LOGS,
            )


def _experiment(secagg: Section, deployment: Section) -> Experiment:
    """Read the sections of an experiment file that queries share with training."""
    experiment = parse_experiment(
        {
            "name": "PrivateQueries",
            "task": TASK,
            "rounds": 1,
            "privacy": {"model": "none", "clip": "none"},
            "encoding": {"range": 1.0},
            "secagg": secagg,
            "deployment": deployment,
        }
    )
    if experiment.secagg.protocol != "pairwise":
        raise ConfigError(
            f'secagg.protocol = "{experiment.secagg.protocol}": a deployed client takes part in '
            '"pairwise" alone: write secagg.protocol=pairwise, or leave it out'
        )
    return experiment


def _check_delta(terms: SumTerms, nodes: int) -> None:
    if terms.model != "none" and terms.delta * nodes >= 1:
        raise ConfigError(
            f"delta = {terms.delta:g} is not below 1/nodes = {1 / nodes:g}, so that one of them "
            "could be shown whole: lower it"
        )


def _common(messages: list[Message]) -> tuple[RecordDict, str]:
    """Return the records and the type that all messages have."""
    types = {message.metadata.message_type for message in messages}
    _check_types(types, "the ServerApp sends messages")
    check_alike(messages, "ServerApp")
    return messages[0].content, next(iter(types))


def _check_types(types: set[str], which: str) -> None:
    if len(types) != 1 or next(iter(types)).partition(".")[0] != MessageType.QUERY:
        raise ConfigError(
            f"{which} of type {', '.join(sorted(types))}: PrivateQueries answers those of one "
            f'type, "query"; PrivateStrategy answers "train" and "evaluate": {TRAINING_LOOP}'
        )
