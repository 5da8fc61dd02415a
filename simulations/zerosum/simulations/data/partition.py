"""Partition training records over clients, every record exactly once."""

from dataclasses import dataclass

import numpy as np

from zerosum.client.spec import DataSpec
from zerosum.secagg.randomness import numpy_generator
from zerosum.simulations.data.data_files import DataError
from zerosum.simulations.data.datasets import Records


@dataclass(frozen=True)
class Partition:
    """A permutation of the records and where each client's part of it begins.

    Parameters
    ----------
    order : numpy.ndarray
        int64, shape (n,): record indices, client by client.
    bounds : numpy.ndarray
        int64, shape (clients + 1,): client c holds ``order[bounds[c]:bounds[c + 1]]``.
    """

    order: np.ndarray
    bounds: np.ndarray

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, client: int) -> np.ndarray:
        """Return the record indices of one client, int64; a view."""
        if not 0 <= client < len(self):
            raise IndexError(f"client {client} of {len(self)}")
        return self.order[self.bounds[client] : self.bounds[client + 1]]


def partition(spec: DataSpec, records: Records, clients: int, seed: int) -> Partition:
    """Split records over clients as ``data.partition`` says.

    Parameters
    ----------
    spec : DataSpec
        ``partition`` and the keys that it reads.
    records : Records
        Training records.
    clients : int
    seed : int
        The experiment's seed.

    Returns
    -------
    Partition
        Which records each client holds.

    Raises
    ------
    DataError
        If there are fewer records than clients, or the partition does not fit the data.
    """
    if spec.partition == "natural":
        return _checked_natural(records, clients)
    if clients > len(records):
        raise DataError(
            f"data.clients = {clients} exceeds the {len(records)} training records "
            "(data.limit and data.test_fraction count); choose fewer clients"
        )
    if spec.partition == "iid":
        return iid(len(records), clients, seed)
    if records.targets.ndim > 1:
        raise DataError(
            f'data.partition = "{spec.partition}" needs one label an example, and a sequence has '
            'many; allowed: "natural", "iid"'
        )
    if spec.partition == "dirichlet":
        if records.targets.dtype.kind == "f":
            raise DataError(
                'data.partition = "dirichlet" needs classes, and the labels are values; '
                'allowed: "iid", "shards", "natural"'
            )
        return dirichlet(records.targets, clients, spec.alpha, seed)
    if clients * spec.shards_per_client > len(records):
        raise DataError(
            f"data.shards_per_client = {spec.shards_per_client} times data.clients = {clients} "
            f"exceeds the {len(records)} training records; choose fewer"
        )
    return shards(records.targets, clients, spec.shards_per_client, seed)


def iid(count: int, clients: int, seed: int) -> Partition:
    """Shuffle and cut into parts whose sizes differ by one at most.

    Parameters
    ----------
    count : int
        Number of records.
    clients : int
    seed : int
        The experiment's seed.

    Returns
    -------
    Partition
        Of all records.
    """
    order = numpy_generator(seed, "partition").permutation(count)
    return Partition(order, np.arange(clients + 1) * count // clients)


def dirichlet(labels: np.ndarray, clients: int, alpha: float, seed: int) -> Partition:
    """Divide each class over the clients in proportions drawn from Dirichlet(alpha).

    Source: Yurochkin et al. 2019, section 4. Clients differ in size, and some may hold nothing.
    Above 1e12, where shares are equal to six digits, alpha counts as 1e12: sums of the gamma
    variates behind the shares would overflow.

    Parameters
    ----------
    labels : numpy.ndarray
        Class indices, int64, shape (n,).
    clients : int
    alpha : float
        Concentration: small values give each client few classes.
    seed : int
        The experiment's seed.

    Returns
    -------
    Partition
        Of all records.

    Raises
    ------
    DataError
        If alpha is not above 0.
    """
    if not alpha > 0:
        raise DataError(f"data.alpha = {alpha}: allowed: numbers above 0")
    alpha = min(alpha, 1e12)
    generator = numpy_generator(seed, "partition")
    owners = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = generator.permutation(np.flatnonzero(labels == label))
        shares = generator.dirichlet(np.full(clients, alpha))
        ends = np.rint(np.cumsum(shares) * len(members)).astype(np.int64)
        ends[-1] = len(members)
        owners[members] = np.searchsorted(ends, np.arange(len(members)), side="right")
    return natural(owners, clients)


def shards(labels: np.ndarray, clients: int, per_client: int, seed: int) -> Partition:
    """Sort by label, cut into equal shards, deal ``per_client`` of them to each client.

    Source: McMahan et al. 2017, section 3 (there, 2 shards of 300 digits each).

    Parameters
    ----------
    labels : numpy.ndarray
        Class indices, int64, shape (n,).
    clients : int
    per_client : int
        Shards that each client gets.
    seed : int
        The experiment's seed.

    Returns
    -------
    Partition
        Of all records.
    """
    generator = numpy_generator(seed, "partition")
    shuffled = generator.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    pieces = np.array_split(by_label, clients * per_client)
    dealt = [pieces[i] for i in generator.permutation(len(pieces))]
    sizes = [len(piece) for piece in dealt]
    ends = np.cumsum(sizes)[per_client - 1 :: per_client]
    return Partition(np.concatenate(dealt), np.concatenate([[0], ends]))


def natural(owners: np.ndarray, clients: int) -> Partition:
    """Group records by the client that owns them, in [0, clients).

    Parameters
    ----------
    owners : numpy.ndarray
        Each record's client, int64, shape (n,).
    clients : int

    Returns
    -------
    Partition
        Of all records.
    """
    order = np.argsort(owners, kind="stable")
    bounds = np.searchsorted(owners[order], np.arange(clients + 1))
    return Partition(order, bounds)


def natural_owners(records: Records) -> np.ndarray:
    """Return each record's client in the natural partition, int64 in [0, clients).

    Clients whose records are all held out for testing are left out.

    Parameters
    ----------
    records : Records
        With ``owners``.

    Returns
    -------
    numpy.ndarray
        int64, shape (n,), numbered in the order of the owners' own numbers.

    Raises
    ------
    DataError
        If the records name no owners.
    """
    if records.owners is None:
        raise DataError(
            'data.partition = "natural" needs data.client_column, the column that names each '
            'record\'s client, or a file a client; set it, or use "iid", "dirichlet" or '
            '"shards"'
        )
    return np.unique(records.owners, return_inverse=True)[1].astype(np.int64)


def _checked_natural(records: Records, clients: int) -> Partition:
    owners = natural_owners(records)
    count = int(owners.max()) + 1
    if clients != count:
        raise DataError(
            f"data.clients = {clients}, but the natural partition has {count} clients; "
            "leave data.clients out"
        )
    return natural(owners, clients)
