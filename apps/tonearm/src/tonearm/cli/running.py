"""Commands for analysis: serve, scan, status, try, retag, calibrate."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tonearm import catalogue, crews, hearing, hours, report
from tonearm import scan as scanning
from tonearm.calibration import ENOUGH
from tonearm.cli.common import HomeOption, at_work, called, counted, opened, tell_what_is_next, write_soon
from tonearm.crews import Crews
from tonearm.errors import TonearmError
from tonearm.handlers import Count, Look
from tonearm.library import Folder, Library, home, shown

PORT = 8356
LOOPBACK = ("127.0.0.1", "localhost")
SHOWN_DRIFT = 0.005
Folders = Annotated[
    list[Path] | None, typer.Argument(help="Folders with music; if none is given, those of the library.")
]


def serve(
    folders: Folders = None,
    where: HomeOption = None,
    host: Annotated[str, typer.Option(help="127.0.0.1 or localhost.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="TONEARM_PORT", help="Port of the page.")] = PORT,
    between: Annotated[
        str | None, typer.Option(help="Analyse and write files only between these times: 01:00-07:00.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Number of analysis workers; default: by cores and memory.", min=1)
    ] = None,
    nice: Annotated[int, typer.Option(help="Niceness of the workers, 0 to 19.", min=0, max=19)] = 10,
    rescan: Annotated[float, typer.Option(help="Minutes between quick scans; 0: only at start.", min=0)] = 60,
    watching: Annotated[bool, typer.Option("--watch", help="Scan a folder within seconds after it changes.")] = False,
) -> None:
    """Scan the folders, analyse new files, and serve a page, until Ctrl+C."""
    import uvicorn  # imported here: only this command needs it

    from tonearm import watch, web

    if host not in LOOPBACK:
        raise TonearmError(
            f"the page has no encryption, so it cannot listen on {host}: use 127.0.0.1 and connect from "
            f"another machine with `ssh -L {port}:127.0.0.1:{port}` or through a proxy with HTTPS"
        )
    keeping = None if between is None else hours.parse(between)
    library = Library(home(where))
    chosen = called(library, folders)
    if not chosen:
        raise TonearmError("the library has no folder yet: tonearm serve ~/Music")
    all_crews = crews.build(where, workers=workers, nice=nice)
    _have_scanned(all_crews, chosen, rescan)
    all_crews.hand.log_level = "WARNING"
    if new := [shown(folder.root) for folder in chosen if folder.scanned_ms is None]:
        typer.echo(f"scanning {', '.join(new)} first; no file is written")
    else:
        tell_what_is_next(library, all_crews.tag.plan.workers)
    page = web.address(all_crews, f"http://{host}:{port}/")
    typer.echo(f"{page} shows the progress; Ctrl+C stops, and no work is lost")
    beside = [hours.Keeper(all_crews.hand, keeping), *([watch.Watcher(all_crews, chosen)] if watching else [])]
    for each in beside:
        each.start()
    try:
        uvicorn.run(web.create(all_crews, library), host=host, port=port, log_level="warning")
    finally:
        for each in beside:
            each.stop()
        all_crews.hand.close()
        library.close()


def _have_scanned(all_crews: Crews, folders: list[Folder], minutes: float) -> None:
    """Enqueues a scan of each folder now and schedules the next ones."""
    for folder in folders:
        key = f"scan {folder.id}"
        all_crews.library.enqueue(Look(folder.id), key=key, label=shown(folder.root))
        if minutes > 0:
            all_crews.hand.recurring(key, all_crews.library, Look(folder.id), every=minutes * 60, key=key)


def scan(
    folders: Folders = None,
    where: HomeOption = None,
    full: Annotated[bool, typer.Option("--full", help="Open every file, also unchanged ones.")] = False,
) -> None:
    """Scan folders for new, changed, moved and missing files. Works with or without running workers."""
    library = opened(where, create=True)
    chosen = called(library, folders)
    if not chosen:
        raise TonearmError("the library has no folder yet: tonearm scan ~/Music")
    running = at_work(where)
    for folder in chosen:
        if running is not None:
            ref = running.library.enqueue(Look(folder.id, full), key=f"scan {folder.id}", label=shown(folder.root))
            found = scanning.Report(**ref.wait(timeout=24 * 3600))
            running.hand.wake("tag")
        else:
            found = scanning.scan(library, folder, full=full)
        typer.echo(
            f"{shown(folder.root)}: {found.files} files, {found.new} new, {found.changed} changed, "
            f"{found.moved} moved, {found.missing} missing, {found.unreadable} unreadable (tonearm errors)"
        )
    tell_what_is_next(library, crews.Machine.here().listeners())
    if running is None and report.progress(library).waiting:
        typer.echo(
            "no workers are running: `tonearm serve` analyses the files, `tonearm try` selects fifty songs first"
        )


def status(where: HomeOption = None) -> None:
    """Show the progress, the estimated remaining time, and what each worker does."""
    library, running = opened(where), at_work(where)
    workers = [] if running is None else report.workers(running.hand, library)
    if running is not None:
        report.notice_failures(running.hand, library)
    listeners = sum(each["crew"] == "tag" and each["pid"] is not None for each in workers)
    tell_what_is_next(library, listeners or crews.Machine.here().listeners())
    for each in workers:
        step: dict[str, Any] = each["progress"] or {}
        share = f" {100 * step['done'] / step['total']:.0f} %" if step.get("done") and step.get("total") else ""
        doing = f"{step.get('stage') or 'working'}{share}"
        idle = "idle" if each["status"] == "healthy" else ""
        what = f"{each['song'] or ''} {doing}".strip() if each["doing"] else each["text"] or idle
        typer.echo(f"  {each['component']:22} pid {each['pid'] or '–':<8} {each['status']:10} {what}")
    if running is None:
        typer.echo("no workers are running: start `tonearm serve`")
    else:
        for pause in running.hand.pauses():
            typer.echo(f"  paused: {pause.scope}, {pause.reason or 'by ' + pause.who}")


def try_some(
    where: HomeOption = None,
    count: Annotated[int, typer.Option("--count", help="Number of songs.", min=1)] = 50,
    all_of_it: Annotated[bool, typer.Option("--go-on", help="End the trial and analyse all other songs.")] = False,
) -> None:
    """Analyse only fifty varied songs first, until `tonearm try --go-on`."""
    library, running = opened(where), at_work(where)
    if all_of_it:
        library.set("trying", None)
        typer.echo("all songs are analysed now, newest first")
    else:
        chosen = catalogue.again(library, catalogue.varied(library, count), first=True)
        library.set("trying", "yes")
        typer.echo(
            f"{counted(chosen, 'song')} from the whole library first; to analyse all others: tonearm try --go-on"
        )
    if running is not None:
        running.hand.wake("tag")
    else:
        typer.echo("no workers are running: start `tonearm serve`")


def retag(
    where: HomeOption = None,
    track: Annotated[str | None, typer.Argument(help="A track; all tracks if none is given.")] = None,
) -> None:
    """Analyse one track or all tracks again. User corrections stay."""
    from tonearm import browse

    library, running = opened(where), at_work(where)
    if track is None:
        which = [row[0] for row in library.rows("SELECT id FROM file WHERE missing_ms IS NULL AND size > 0")]
    else:
        which = [browse.find(library, track)]
    typer.echo(f"{counted(catalogue.again(library, which), 'song')} queued again")
    if running is not None:
        running.hand.wake("tag")
    else:
        typer.echo("no workers are running: start `tonearm serve`")


def calibrate(where: HomeOption = None) -> None:
    """Count how common each label is in this library, and derive all labels again. No file is analysed."""
    library, running = opened(where), at_work(where)
    library.book()  # reports an invalid label file immediately
    if running is not None:
        ref = running.calibration.enqueue(Count(force=True), priority=10, label="requested")
        done = msgspec.convert(ref.wait(timeout=3600), hearing.Recount)
    else:
        done = hearing.recalibrate(library, force=True)
    typer.echo(f"{counted(done.tracks, 'track')} counted, labels derived again; no file was analysed")
    if not done.enough:
        typer.echo(f"fewer than {ENOUGH} tracks are too few for percentiles: fixed thresholds are used until then")
    if moved := [(label, share) for label, share in (done.drift or {}).items() if share >= SHOWN_DRIFT]:
        typer.echo("largest changes since the last calibration:")
        for label, share in moved[:10]:
            typer.echo(f"  {share:4.0%}  {label}")
    elif done.drift is not None:
        typer.echo("no label changed since the last calibration")
    write_soon(library, where)
