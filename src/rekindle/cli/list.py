"""`rekindle list`: which methods there are, and the card of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from rich.table import Table

    from rekindle.methods.card import Card


def run(method: Annotated[str | None, tyro.conf.Positional] = None) -> None:
    """Show the methods as a table, or the whole card of one.

    Args:
        method: Key of a method, such as fire; all of them in a table when left out.
    """
    from rich.console import Console
    from rich.markdown import Markdown

    import rekindle as rk
    from rekindle.methods.spec import name_of

    console = Console()
    cards = rk.list_methods()
    if method is None:
        console.print(table(cards))
        console.print("The whole card of one: rekindle list <key>")
    else:
        settings = type(rk.method(method))  # an unknown key raises with the known ones
        card = next(card for card in cards if card.key == name_of(method))
        text = card.to_markdown(settings)
        if console.is_terminal:
            console.print(Markdown(text))
        else:
            print(text)  # as it is: a file or a pager wants no line breaks of ours


def table(cards: list[Card]) -> Table:
    """Return the cards as a table, one line each."""
    from rich.markup import escape
    from rich.table import Table

    made = Table(title=f"{len(cards)} methods", title_justify="left")
    made.add_column("key", no_wrap=True)
    for name in ("kind", "what it does", "source"):
        made.add_column(name)
    for card in cards:
        made.add_row(*map(escape, (card.key, card.kind, f"{card.title}: {card.summary}", card.source)))
    return made
