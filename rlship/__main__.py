"""The `rlship` command. The command line itself is the sidecar's, and so are the packages it needs."""

from __future__ import annotations

import os
import sys

from rlship.hook.environment import drop_hook


def main() -> None:
    """Run the command line. If only the writer is installed, explain how to install the rest and exit with code 1."""
    drop_hook(os.environ)  # its own client of W&B, and that of its children, is the real one
    try:
        from rlship_sidecar.cli import main as command
    except ModuleNotFoundError as error:
        if str(error.name).startswith(("rlship.", "rlship_sidecar.", "rlship_formats.")):
            raise  # one of rlship's own modules is missing, which no installed package would cure
        sys.stderr.write(f"rlship: {error}: only the writer is installed. What the command needs: {_install()}\n")
        sys.exit(1)
    command()


def _install() -> str:
    """The command that installs rlship's dependencies.

    It names them and not rlship, which is on no index: anyone could put a package of that name there.
    """
    from importlib.metadata import PackageNotFoundError, requires
    from shlex import join

    try:
        needed = [one for one in requires("rlship") or () if "extra ==" not in one]
    except PackageNotFoundError:
        return "the dependencies in rlship's pyproject.toml"
    return join([sys.executable, "-m", "pip", "install", *needed])


if __name__ == "__main__":
    main()
