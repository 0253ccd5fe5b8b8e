"""What the shell proposes for a name that is being typed: shifts, suites, metrics, monitors, templates.

The components are imported when the shell asks, not when the command line is built, so that `--help` stays fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


def names_of(kind: str) -> Callable[[str], list[str]]:
    """A function that completes the name of a component of a kind that `roadworthy list` knows."""

    def complete(incomplete: str) -> list[str]:
        from roadworthy.listing import listing

        return _starting_with(incomplete, (name for name, _ in listing(kind)))

    return complete


def complete_shift(incomplete: str) -> list[str]:
    """The shifts that start with what was typed; they are imported without all else that can be listed.

    >>> complete_shift("fog")
    ['fog', 'fog_veil']
    """
    from roadworthy.core.roles import SHIFTS
    from roadworthy.shifts import ATTACKS

    return _starting_with(incomplete, (*SHIFTS, *ATTACKS))


def complete_template(incomplete: str) -> list[str]:
    """The templates of criteria that start with what was typed."""
    from roadworthy.protocols.joint_test.templates import template_names

    return _starting_with(incomplete, template_names())


def _starting_with(incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that start so, in order, each once."""
    return sorted({name for name in names if name.startswith(incomplete)})
