"""What Adreel does with films: submit, show, try again, classify again, delete, expire. Imports no media library.

Any process may call this: the API of any node, a worker, the command line. Everything that must survive a crash is
written to the store before it is acknowledged.
"""

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from adreel import clock, names, uploads
from adreel.catalogue import Catalogue, FilmRow, State
from adreel.crews import Crews
from adreel.errors import DISK_FULL, NoSuchFilm, Refused
from adreel.records import CHAPTERS, RESULT, Code, Film, still_name
from adreel.settings import Settings
from adreel.stages import Shown, shown_stages
from chargehand import Component, Conflict, Flow, FlowNotFound, FlowRecord, JobFilter, StoreError, Transaction

log = logging.getLogger("adreel")
DECODED = ("ocr", "classify", "persist")
"""The stages that need the key frames or the text, and no longer the film."""
ASLEEP = "asleep"
"""The status of a worker that its next job starts."""
LARGEST = 1 << 31
"""No key frame has such a number; with one of hundreds of digits, a path would be too long for the file system."""
MOST = 200
"""The largest number of films on a page; one more may be asked for, which tells whether there is another page."""


class FilmView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A film as the API shows it."""

    id: str
    status: str
    """`queued`, `running`, `done`, `failed`, `cancelled` or `deleting`."""
    name: str
    size: int
    submitted_ms: int
    ended_ms: int | None = None
    stage: str | None = None
    """The stage that is going on, or that failed."""
    category: str | None = None
    confidence: float | None = None
    seconds: float | None = None
    """The length of the film."""
    scenes: int | None = None
    brands: tuple[str, ...] = ()
    code: str | None = None
    """Why it failed, for programs."""
    error: str | None = None
    """Why it failed, for people."""
    expired: bool = False
    """Whether the uploaded file is gone, so that the film can be classified again, but not decoded."""
    stages: tuple[Shown, ...] | None = None
    result: msgspec.Raw | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the table keeps about the end of a film, as JSON."""

    stages: tuple[Shown, ...] = ()
    stage: str | None = None
    confidence: float | None = None
    seconds: float | None = None
    scenes: int | None = None
    brands: tuple[str, ...] = ()
    code: str | None = None


@dataclass(frozen=True)
class Service:
    """Adreel on one store and one data folder."""

    settings: Settings
    crews: Crews
    films: Catalogue

    @classmethod
    def on(cls, settings: Settings, crews: Crews) -> "Service":
        """Returns Adreel with these crews."""
        return cls(settings, crews, Catalogue(crews.hand))

    # submitting

    def submit(self, upload: uploads.Upload) -> FilmView:
        """Starts the analysis of a file that has arrived. It is durable when this returns."""
        film = names.new_id()
        path = upload.keep(film)
        try:
            return self._begin(film, upload.name, path, upload.size, uploaded=True)
        except StoreError as error:
            if error.code == DISK_FULL:  # nothing was committed; after other errors, the sweep knows
                uploads.remove_tree(self.folder(film))
            raise

    def submit_path(self, given: str) -> FilmView:
        """Starts the analysis of a file below one of the configured roots, which stays where it is."""
        path = uploads.below_root(given, self.settings)
        return self._begin(names.new_id(), names.shown(path.name), path, path.stat().st_size, uploaded=False)

    def _begin(self, film: str, name: str, path: Path, size: int, *, uploaded: bool) -> FilmView:
        payload = Film(film, os.fspath(path), name, str(self.folder(film)), self._categories())
        with self.films.transaction() as tx:
            flow = self.crews.analyse(payload, within=tx)
            row = FilmRow(
                id=film, name=name, source=os.fspath(path), uploaded=uploaded, size=size, submitted_ms=clock.now_ms(),
                flow=flow, state="open", ends=0, ended_ms=None, category=None, error=None, outcome=None,
                deleting_ms=None,
            )  # fmt: skip
            self.films.add(tx, row)
        return _view(row, "queued")

    def _categories(self) -> str | None:
        return None if self.settings.categories is None else str(self.settings.categories)

    # showing

    def folder(self, film: str) -> Path:
        """Returns the folder of the files of a film."""
        return self.settings.films / film

    def row(self, film: str) -> FilmRow:
        """Returns a film. Raises NoSuchFilm, also if it is being deleted and nothing of it is left."""
        found = self.films.get(film) if names.is_id(film) else None
        if found is None or (found.deleting_ms is not None and self._go_on_deleting(found)):
            raise NoSuchFilm(film)
        return found

    def get(self, film: str, *, result: bool = True) -> FilmView:
        """Returns a film with its stages and its result. Raises NoSuchFilm.

        The result of an earlier analysis stays until another one replaces it, also if that one fails.
        """
        view, row = self._look(self.row(film), stages=True)
        if view.status == "cancelled":  # perhaps by a deletion that was not wished yet when the row was read
            view, row = self._look(self.row(film), stages=True)
        if view.stages is not None and any(stage.state == "queued" for stage in view.stages):
            view = msgspec.structs.replace(view, stages=tuple(map(self._with_cause, view.stages)))
        if result and row.deleting_ms is None:
            try:
                found = msgspec.Raw((self.folder(film) / RESULT).read_bytes())
            except FileNotFoundError:
                if row.state == "done":  # deleted meanwhile
                    raise NoSuchFilm(film) from None
                return view
            return msgspec.structs.replace(view, result=found)
        return view

    def _with_cause(self, stage: Shown) -> Shown:
        """Returns a stage with the reason why no worker takes it, if it waits for one and none can."""
        if stage.state != "queued":
            return stage
        workers = [part for part in self.crews.hand.health() if part.crew == stage.name]
        causes = [why_away(worker) for worker in workers]
        return msgspec.structs.replace(stage, detail=causes[0]) if causes and all(causes) else stage

    def page(
        self, *, text: str = "", status: str = "", category: str = "", before: str = "", limit: int = 50
    ) -> list[FilmView]:
        """Returns a page of films, newest first."""
        limit = max(1, min(limit, MOST + 1))
        known: dict[str, State] = {"queued": "open", "running": "open"}
        known |= {"done": "done", "failed": "failed", "cancelled": "cancelled"}
        found: list[FilmView] = []
        while len(found) < limit:
            page = self.films.find(
                text=text, state=known.get(status), category=category, before=before, limit=min(MOST, 2 * limit),
                deleting=status == "deleting",
            )  # fmt: skip
            if not page:
                break
            before = page[-1].id
            views = (self._look(row)[0] for row in page)
            found += [view for view in views if not status or view.status == status]
        return found[:limit]

    def _look(self, row: FilmRow, *, stages: bool = False) -> tuple[FilmView, FilmRow]:
        """Returns a film as it is now, and its row; records its end if nobody has done so yet."""
        if row.deleting_ms is not None:
            return _view(row, "deleting", stages=stages), row
        if row.state != "open":
            return _view(row, row.state, stages=stages), row
        flow, record = self._flow(row)
        if flow is None or record is None:
            return _view(row, "cancelled", stages=stages), row
        if record.ended_ms is not None:
            if record.ends <= row.ends:  # the wish to try it again is on record, and its flow does not know it yet
                return _view(row, "queued", stages=stages), row
            row = self._ended(row, flow, record)
            with suppress(StoreError):  # a full disk must not hide films; whoever sees the end next records it
                self.films.settle(row)
            return _view(row, row.state, stages=stages), row
        begun = bool(record.counts.running or record.counts.done)
        going_on = shown_stages(flow, record) if stages or begun else ()
        stage = next((each.name for each in going_on if each.state == "running"), None)
        view = _view(row, "running" if begun else "queued", stages=stages)
        return msgspec.structs.replace(view, stage=stage, stages=going_on if stages else None), row

    def _flow(self, row: FilmRow) -> tuple[Flow | None, FlowRecord | None]:
        try:
            flow = self.crews.hand.find_flow(row.flow)
            return flow, flow.status()
        except FlowNotFound:
            return None, None

    def settle(self, row: FilmRow, flow: Flow, record: FlowRecord) -> FilmRow:
        """Records how a film has ended, and returns its row. The first one to see the end does so."""
        ended = self._ended(row, flow, record)
        self.films.settle(ended)
        return ended

    def _ended(self, row: FilmRow, flow: Flow, record: FlowRecord) -> FilmRow:
        """Returns the row of a film whose flow has ended."""
        stages = shown_stages(flow, record)
        failed = next((each for each in stages if each.state in ("failed", "cancelled")), None)
        error = None
        result = self._result(row.id)  # if the analysis has failed, that of an earlier one
        guess: dict[str, Any] = result.get("guess") or {}
        cut: dict[str, Any] = result.get("cut") or {}
        outcome = Outcome(
            stages=stages,
            confidence=guess.get("confidence"),
            seconds=cut.get("seconds"),
            scenes=len(result.get("scenes") or ()) if result else None,
            brands=tuple(brand["text"] for brand in (result.get("brands") or ())[:5]),
        )
        if record.state != "done" and failed is not None:
            error = failed.error or "the analysis was cancelled"
            outcome = msgspec.structs.replace(outcome, stage=failed.name, code=failed.code)
        return msgspec.structs.replace(
            row, state="open" if record.state == "running" else record.state, ends=record.ends,
            ended_ms=record.ended_ms, category=guess.get("category"), error=error,
            outcome=msgspec.json.encode(outcome).decode(),
        )  # fmt: skip

    def _result(self, film: str) -> dict[str, Any]:
        """Returns the newest result of a film; empty if there is none."""
        try:
            return msgspec.json.decode((self.folder(film) / RESULT).read_bytes())
        except (FileNotFoundError, msgspec.DecodeError):
            return {}

    def frame(self, film: str, number: int) -> Path:
        """Returns the file of a key frame. Raises NoSuchFilm, and Refused if there is no such frame."""
        path = self.folder(self.row(film).id) / still_name(number)
        if not 0 < number < LARGEST or not path.is_file():
            raise Refused(404, "no-such-frame", f"the film has no key frame {number}")
        return path

    def chapters(self, film: str) -> str:
        """Returns the scenes as chapters in WebVTT. Raises Refused if the analysis is not done."""
        row = self.row(film)
        try:
            return (self.folder(row.id) / CHAPTERS).read_text("utf-8")
        except FileNotFoundError:
            raise Refused(409, "not-done", "the analysis of this film is not done") from None

    # going on

    def retry(self, film: str) -> FilmView:
        """Continues a failed analysis with what failed; what is done is not done again."""
        view, row = self._look(self.row(film))
        if view.status not in ("failed", "cancelled"):
            raise Refused(409, "not-failed", f"the film is {view.status}: only a failed analysis can be tried again")
        flow, _ = self._flow(row)
        if (flow is None or view.stage not in DECODED) and not self._has_source(row):
            raise Refused(410, "expired", "the file has expired: submit it again")
        if flow is None:
            return self._again(row, decode=True)
        if view.code == Code.CATEGORIES and self._has_other_categories(flow):
            return self._again(row, decode=False)
        with self.films.transaction() as tx:
            self._unchanged(tx, row)
            self.films.reopen(tx, row.id)
        with suppress(FlowNotFound):  # deleted meanwhile, as `get` tells
            flow.retry()  # `tidy` does it if this process ends here
        return self.get(film, result=False)

    def _has_other_categories(self, flow: Flow) -> bool:
        """Returns whether the jobs of a flow name another file of categories than the settings do now."""
        jobs = flow.jobs(JobFilter(queue=self.crews.classify.name, limit=1))
        return any(msgspec.json.decode(job.payload, type=Film).categories != self._categories() for job in jobs)

    def reanalyse(self, film: str) -> FilmView:
        """Classifies a film again with the present categories, from the text that was read; nothing is decoded."""
        view, row = self._look(self.row(film))
        if view.status != "done":
            raise Refused(409, "not-done", f"the film is {view.status}: only what is done can be classified again")
        return self._again(row, decode=False)

    def _again(self, row: FilmRow, *, decode: bool) -> FilmView:
        payload = Film(row.id, row.source or "", row.name, str(self.folder(row.id)), self._categories())
        with self.films.transaction() as tx:
            now = self._unchanged(tx, row)
            begin = self.crews.analyse if decode else self.crews.classify_again
            self.films.begin_again(tx, now, begin(payload, within=tx))
        return self.get(row.id, result=False)

    def _unchanged(self, tx: Transaction, row: FilmRow) -> FilmRow:
        """Returns the film within a transaction. Raises Refused if another request has changed it."""
        now = self.films.within(tx, row.id)
        if (
            now is None
            or now.deleting_ms is not None
            or (now.flow, now.state, now.ends) != (row.flow, row.state, row.ends)
        ):
            raise Refused(409, "changed", "the film was changed by another request")
        return now

    def _has_source(self, row: FilmRow) -> bool:
        return row.source is not None and Path(row.source).is_file()

    # deleting

    def delete(self, film: str) -> bool:
        """Deletes a film: stops its work, and removes its files and rows. Returns whether nothing is left of it.

        The wish is durable when this returns. While a stage still has to stop, any node completes it later.
        """
        row = self.films.wish(film) if names.is_id(film) else None
        return row is None or self._go_on_deleting(row)

    def _go_on_deleting(self, row: FilmRow) -> bool:
        """Goes on with a deletion whose wish is on record, which an error of the store would deny."""
        try:
            return self.finish_deletion(row)
        except StoreError as error:
            log.warning("the deletion of the film %s is completed later: %s", row.id, error)
            return False

    def finish_deletion(self, row: FilmRow) -> bool:
        """Goes on with a deletion. Returns whether nothing is left. Safe to call at the same time in many processes."""
        ended = [self._end_flow(flow) for flow in (*row.earlier, row.flow)]
        if not all(ended):
            return False
        if self.settings.webhook is not None:
            self.crews.hand.clear(JobFilter(queue=self.crews.upkeep.name, tag=row.id))  # calls of it that failed
        try:
            uploads.remove_tree(self.folder(row.id))
        except OSError as error:  # a file that another machine has open, or another owner's: it delays no other film
            log.warning("the files of the film %s cannot be removed yet: %s", row.id, error)
            return False
        self.films.remove(row.id)  # last: until here the wish is on record
        return True

    def _end_flow(self, flow_id: str) -> bool:
        """Cancels a flow and deletes it. Returns whether it is gone."""
        try:
            flow = self.crews.hand.find_flow(flow_id)
            record = flow.status()
            if record.ended_ms is None:
                flow.cancel()
                record = flow.status()
            if record.ended_ms is None:
                return False
            flow.delete()
            if record.on_end is not None:
                self.crews.hand.delete(record.on_end)
        except FlowNotFound:
            return True
        except Conflict:  # its end was not seen yet, or another process deletes it
            return False
        return True

    # upkeep

    def sweep(self) -> list[Path]:
        """Removes files that crashed processes have left, and returns them."""
        return uploads.sweep(self.settings, lambda film: self.films.get(film) is not None)

    def tidy(self) -> dict[str, int]:
        """Completes deletions and wishes to try films again, records ends that nobody has seen, and removes what has
        expired."""
        now = clock.now_ms()
        settled = sum(self._complete(row) for row in self.films.unsettled())
        old = self.films.ended_before(now - int(self.settings.keep_results * 1000))
        for row in old:
            self.films.wish(row.id)
        finished = sum(self.finish_deletion(row) for row in self.films.wished())
        expired = self.films.ended_before(now - int(self.settings.keep_uploads * 1000), with_upload=True)
        gone = sum(self._remove_source(row) for row in expired)
        return {"settled": settled, "expired": len(old), "deleted": finished, "uploads": gone}

    def _remove_source(self, row: FilmRow) -> bool:
        """Removes the uploaded file of a film. Returns whether it is gone."""
        try:
            Path(row.source or "").unlink(missing_ok=True)
        except OSError as error:
            log.warning("the file of the film %s has expired, and cannot be removed yet: %s", row.id, error)
            return False
        self.films.lose_source(row.id)
        return True

    def _complete(self, row: FilmRow) -> bool:
        """Records the end of a film, or completes the wish to try it again. Returns whether its end is on record."""
        if row.deleting_ms is None:
            flow, record = self._flow(row)
            if flow is not None and record is not None and record.ended_ms is not None and record.ends <= row.ends:
                flow.retry()
        return self._look(row)[1].state != "open"


def why_away(worker: Component) -> str | None:
    """Returns why a worker does not run; None if it does, or if its next job starts it."""
    return None if worker.pid is not None or worker.status == ASLEEP else worker.cause or worker.text


def _view(row: FilmRow, status: str, *, stages: bool = False) -> FilmView:
    outcome = msgspec.json.decode(row.outcome, type=Outcome) if row.outcome else Outcome()
    if row.state == "open":  # the facts of an earlier analysis stay, but not how it ended
        outcome = msgspec.structs.replace(outcome, stages=(), stage=None, code=None)
    return FilmView(
        id=row.id, status=status, name=row.name, size=row.size, submitted_ms=row.submitted_ms, ended_ms=row.ended_ms,
        stage=outcome.stage, category=row.category, confidence=outcome.confidence,
        seconds=outcome.seconds, scenes=outcome.scenes, brands=outcome.brands, code=outcome.code, error=row.error,
        expired=row.source is None, stages=outcome.stages if stages else None,
    )  # fmt: skip
