"""``zerosum keys`` and ``zerosum roster``: what nodes are given before a deployed run."""

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from zerosum.client.files.durable_append import replace_file
from zerosum.client.files.private_files import OpenToOthersError, write_private
from zerosum.client.protocol.node_keys import ProvisioningError, read_identity, read_roster
from zerosum.secagg import IdentityKey, LocalProtocolError, Roster, SignedRoster
from zerosum.simulations.terminal.command_line import CommandApp
from zerosum.simulations.terminal.user_errors import user_errors

keys_app = CommandApp("Signing keys of nodes and of a roster's authority.")
roster_app = CommandApp("The signed list of all clients' public keys.")


@keys_app.command("new")
def new_key(
    file: Annotated[Path, typer.Argument(help="File to write: absent until now.")],
) -> None:
    """Draw a signing key, write it for its owner alone, and print its public part."""
    key = IdentityKey.generate()
    with user_errors(ProvisioningError):
        try:
            write_private(file, key.to_bytes())
        except OSError as error:
            raise ProvisioningError(f"FILE {file}: {error.strerror}; choose a new file") from None
        except OpenToOthersError as error:
            raise ProvisioningError(str(error)) from None
    # Beside the output, which is the key alone: several are made in a row, and one is not a node's.
    Console(stderr=True).print(
        f"made {file}, which stays with its owner; its public part:",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    Console().print(key.public.hex(), highlight=False, soft_wrap=True)


@keys_app.command("show")
def show_key(file: Annotated[Path, typer.Argument(help="A signing key.")]) -> None:
    """Print the public part of a signing key."""
    with user_errors(ProvisioningError):
        key = read_identity(str(file), "FILE")
    Console().print(key.public.hex(), highlight=False, soft_wrap=True)


@roster_app.command("add")
def add_to_roster(
    file: Annotated[Path, typer.Argument(help="The roster: made if it is absent.")],
    clients: Annotated[
        list[str],
        typer.Argument(
            metavar="INDEX=PUBLIC...",
            help="Each client's index, and what zerosum keys new printed.",
        ),
    ],
    authority: Annotated[Path, typer.Option(help="The signing key of the roster's authority.")],
) -> None:
    """Add clients to a roster or replace their keys, and sign it as its next version."""
    with user_errors(ProvisioningError, LocalProtocolError):
        signer = read_identity(str(authority), "--authority")
        before = read_roster(str(file), signer.public.hex()) if file.exists() else Roster(0, {})
        entries = {**before.entries, **dict(_entry(text) for text in clients)}
        roster = Roster(before.version + 1, entries)
    replace_file(file, SignedRoster.sign(roster, signer).to_bytes())
    Console().print(
        f"version {roster.version}, {len(roster)} clients; authority {signer.public.hex()}",
        highlight=False,
        soft_wrap=True,
    )


_ENTRY = re.compile(r"(\d+)=([0-9a-fA-F]{64})", re.ASCII)


def _entry(text: str) -> tuple[int, bytes]:
    match = _ENTRY.fullmatch(text)
    if match is None:
        raise ProvisioningError(
            f"{text!r} is not INDEX=PUBLIC: a roster index, and the 64 hexadecimal digits that "
            "zerosum keys new printed"
        )
    return int(match[1]), bytes.fromhex(match[2])
