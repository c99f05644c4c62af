"""The `trilogue` command. It reads what was asked for, and says what went wrong in words; the work is done elsewhere.

Exit codes: 0 done, 1 something is wrong with the configuration, the data or the machine, 2 the command was not understood.
Modules of the broker are imported only by the commands that need them, so that the others answer at once.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import NoReturn

import click

from trilogue import __version__
from trilogue.config.load import Loaded, load
from trilogue.config.model import Config
from trilogue.config.problems import ConfigError
from trilogue.config.show import effective, template
from trilogue.core.errors import OperatingError

FILE = click.Path(dir_okay=False, path_type=pathlib.Path)
FOLDER = click.Path(file_okay=False, path_type=pathlib.Path)
WRONG = 1

folder_argument = click.argument("folder", metavar="DIR", type=FOLDER)

config_option = click.option("--config", "file", type=FILE, envvar="TRILOGUE_CONFIG", show_envvar=True,
                             help="Configuration file. Without one the built-in defaults hold.")
set_option = click.option("--set", "arguments", multiple=True, metavar="KEY=VALUE",
                          help="Set one option, such as storage.durability=os. Wins over the rest.")


@click.group("trilogue", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="trilogue", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> None:
    """A message broker for AMQP 0-9-1, MQTT and STOMP clients, on one replayable log.

    Options come from the configuration file, then from environment variables such as TRILOGUE_STORAGE__DURABILITY, then from --set; the
    last one wins.

    \b
    Completion: eval "$(_TRILOGUE_COMPLETE=bash_source trilogue)"   (or zsh_source, fish_source)
    Exit codes: 0 done; 1 something is wrong, and it was said what; 2 the command was not understood.
    """
    if os.environ.get("NO_COLOR"):
        context.color = False


@main.command()
@config_option
@click.option("--data-dir", type=FOLDER, help="Where everything is kept; the same as --set node.data_dir=DIR.")
@set_option
@click.option("--ready-file", type=FILE, help="Written when clients can connect: JSON with the process id and every listener's address.")
def serve(file: pathlib.Path | None, data_dir: pathlib.Path | None, arguments: tuple[str, ...], ready_file: pathlib.Path | None) -> None:
    """Run the broker until SIGTERM or SIGINT; SIGHUP reloads the configuration."""
    if data_dir is not None:
        arguments = (*arguments, f"node.data_dir={json.dumps(str(data_dir))}")

    def reload() -> Config:
        return load_all(file, arguments).config

    with explained():
        from trilogue.serve import run

        run(reload(), ready_file, reload)


@main.group()
def config() -> None:
    """Check and show the configuration."""


@config.command()
@click.argument("file", type=FILE)
@set_option
def check(file: pathlib.Path, arguments: tuple[str, ...]) -> None:
    """Report every mistake in FILE at once, with its place."""
    with explained():
        load_all(file, arguments)
    click.echo(f"{file}: correct")


@config.command()
@config_option
@set_option
@click.option("--origin", is_flag=True, help="Also say where each value comes from.")
def show(file: pathlib.Path | None, arguments: tuple[str, ...], origin: bool) -> None:
    """Print every effective value, as TOML. Secrets are not shown."""
    with explained():
        for line in effective(load_all(file, arguments), origin):
            click.echo(line)


@config.command()
def example() -> None:
    """Print a configuration file that explains every option."""
    click.echo(template(), nl=False)


def partition_id(context: click.Context, parameter: click.Parameter, value: str | None) -> int:
    """A partition as its folder is called, in hexadecimal; -1 for all."""
    try:
        return -1 if value is None else int(value, 16)
    except ValueError:
        raise click.BadParameter(f"{value} is not the name of a partition's folder") from None


@main.group()
def log() -> None:
    """Look into the logs of a broker that is not running."""


@log.command()
@folder_argument
def verify(folder: pathlib.Path) -> None:
    """Read everything in the data directory DIR and check every checksum. Changes nothing."""
    from trilogue.store import verify as tools
    from trilogue.store.disk import OsDisk

    damaged = 0
    with explained():
        for report in tools.verify(OsDisk(), str(folder)):
            click.echo(report.line())
            for line in report.problems + report.notes:
                click.echo(f"    {line}")
            damaged += bool(report.problems)
    if damaged:
        fail(f"{damaged} {'partition is' if damaged == 1 else 'partitions are'} damaged")


@log.command()
@folder_argument
@click.option("--partition", callback=partition_id, metavar="ID", help="Only this one; ID is the name of its folder.")
def dump(folder: pathlib.Path, partition: int) -> None:
    """Print every record in the data directory DIR, one a line. Changes nothing."""
    from trilogue.store import verify as tools
    from trilogue.store.disk import OsDisk

    with explained():
        for line in tools.dump(OsDisk(), str(folder), partition):
            click.echo(line)


@log.command()
@folder_argument
def reindex(folder: pathlib.Path) -> None:
    """Make the offset and time indexes in the data directory DIR anew from its logs."""
    from trilogue.store import verify as tools
    from trilogue.store.disk import OsDisk
    from trilogue.store.settings import StoreSettings

    with explained():
        for line in tools.reindex(OsDisk(), str(folder), StoreSettings().index_interval_bytes):
            click.echo(line)


def load_all(file: pathlib.Path | None, arguments: tuple[str, ...]) -> Loaded:
    frontends = {entry.name for entry in importlib.metadata.entry_points(group="trilogue.frontends")}
    return load(file, os.environ, arguments, frontends)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn what a user can do something about into words and exit code 1. Everything else is a bug and keeps its traceback."""
    try:
        yield
    except ConfigError as e:
        for problem in e.problems:
            click.secho(str(problem), err=True)
        count = len(e.problems)
        fail(f"the configuration has {count} {'mistake' if count == 1 else 'mistakes'}")
    except OperatingError as e:
        fail(str(e))
    except OSError as e:
        fail(f"{e.filename}: {e.strerror}" if e.filename else e.strerror or str(e))


def fail(message: str) -> NoReturn:
    click.secho(f"trilogue: {message}", fg="red", err=True)
    sys.exit(WRONG)


if __name__ == "__main__":
    main()
