"""The body of `POST /jobs`: files as multipart, one file as it is, or paths as JSON."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request

from adreel import multipart, names, uploads
from adreel.errors import DISK_FULL, Refused
from adreel.live import Stopping
from adreel.service import FilmView, Service
from chargehand import StoreError

log = logging.getLogger("adreel")
SMALL = 64 << 10
"""The largest body that names paths, and the largest field of a form."""
SLACK = 1 << 20
"""Bytes of a multipart body beside its files."""


class Rejected(msgspec.Struct, frozen=True):
    """A file of a request that was not accepted, and why."""

    name: str
    status: int
    code: str
    error: str


class Paths(msgspec.Struct, forbid_unknown_fields=True):
    """A body that names files below the configured roots."""

    path: str | None = None
    paths: list[str] = []


class Received(msgspec.Struct, frozen=True):
    """What became of a request: films that are queued, and files that were refused."""

    jobs: tuple[FilmView, ...]
    refused: tuple[Rejected, ...]


async def receive(request: Request, service: Service, stopping: Stopping) -> Received:
    """Reads the body, and starts the analysis of every film in it when all of it has arrived. Raises Refused."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    _check_length(request, service, 1 if kind != "multipart/form-data" else service.settings.max_files)
    body = uploads.received(aiter(request.stream()), service.settings, stopping.event)
    try:
        if kind == "application/json":
            return await _paths(body, service)
        if kind == "multipart/form-data":
            boundary = multipart.boundary_of(request.headers["content-type"])
            return await _form(multipart.pieces(body, boundary), service)
        if kind in ("", "application/x-www-form-urlencoded"):
            raise Refused(415, "content-type", "send a film as multipart/form-data or video/*, or a path as JSON")
        return await _one(body, service, request)
    except ClientDisconnect:
        raise Refused(400, "incomplete", "the upload ended before its end") from None


def _check_length(request: Request, service: Service, files: int) -> None:
    """Raises Refused at once if the length that the client states is too large, or does not fit on the disk."""
    text = request.headers.get("content-length", "0")
    length = int(text[:30]) if text.isdigit() else 0
    if length > files * service.settings.max_upload + SLACK:
        raise uploads.too_large(service.settings.max_upload)
    uploads.check_space(service.settings, length)


async def _one(body: AsyncIterator[bytes], service: Service, request: Request) -> Received:
    """Receives a file that is the whole body; `?name=` is its name."""
    with uploads.Upload(service.settings, request.query_params.get("name", "")) as upload:
        async for part in body:
            await upload.write(part)
        _check_complete(request, upload.size)
        await upload.finish()
        return Received((await asyncio.to_thread(service.submit, upload),), ())


def _check_complete(request: Request, size: int) -> None:
    text = request.headers.get("content-length", "")
    if text.isdigit() and int(text) != size:
        raise Refused(400, "incomplete", "the upload ended before its end")


async def _paths(body: AsyncIterator[bytes], service: Service) -> Received:
    text = b""
    async for part in body:
        text += part
        if len(text) > SMALL:
            raise Refused(413, "too-large", f"the body is larger than {SMALL:,} bytes")
    try:
        found = msgspec.json.decode(text, type=Paths)
    except msgspec.DecodeError as error:
        raise Refused(422, "invalid-request", f'expected {{"path": "…"}} or {{"paths": […]}}: {error}') from error
    named = [*([] if found.path is None else [found.path]), *found.paths]
    return await _submit_paths(named, Received((), ()), service)


async def _submit_paths(named: list[str], found: Received, service: Service) -> Received:
    """Returns what was found before, and what became of these paths."""
    if not 0 < len(named) <= service.settings.max_files:
        raise Refused(422, "invalid-request", f"expected 1 to {service.settings.max_files} paths, not {len(named)}")
    for path in named:
        found = await _submit(partial(service.submit_path, path), path, found)
    return found


async def _submit(begin: Callable[[], FilmView], name: str, found: Received) -> Received:
    """Starts the analysis of a film, and returns what was found with its outcome.

    An error of the store is raised only if no film of the request was started: the answer has to name those that were.
    """
    try:
        return Received((*found.jobs, await asyncio.to_thread(begin)), found.refused)
    except Refused as error:
        outcome = _rejected(name, error)
    except StoreError as error:
        if not found.jobs:
            raise
        log.error("the store cannot be used: %s", error)  # the text has paths
        status = 507 if error.code == DISK_FULL else 503
        outcome = Rejected(names.shown(name), status, error.code, "the store cannot be used: submit the film again")
    return Received(found.jobs, (*found.refused, outcome))


async def _form(pieces: AsyncIterator[multipart.Piece], service: Service) -> Received:
    """Receives the files of a form. They are submitted when the body is complete."""
    refused: list[Rejected] = []
    named: list[str] = []
    with ExitStack() as stack:
        complete: list[uploads.Upload] = []
        part: _File | _Field | None = None
        async for piece in pieces:
            match piece:
                case multipart.Begin(field, None):
                    part = _Field(field)
                case multipart.Begin(_, str() as name):
                    if len(complete) + len(refused) >= service.settings.max_files:
                        raise _too_many(service.settings.max_files)
                    part = _File(stack.enter_context(uploads.Upload(service.settings, name)))
                case multipart.End():
                    match part:
                        case _File():
                            await part.end(complete, refused)
                        case _Field("path"):
                            named.append(part.value.decode("utf-8", "replace"))
                            if len(named) > service.settings.max_files:
                                raise _too_many(service.settings.max_files)
                        case _:
                            pass
                    part = None
                case bytes() if part is not None:
                    await part.write(piece)
                case _:
                    pass
        found = Received((), tuple(refused))
        for upload in complete:
            found = await _submit(partial(service.submit, upload), upload.name, found)
    if named:
        return await _submit_paths(named, found, service)
    if not found.jobs and not found.refused:
        raise Refused(422, "empty", "the form has no file")
    return found


def _too_many(most: int) -> Refused:
    return Refused(413, "too-many-files", f"a request may have {most} files (ADREEL_MAX_FILES)")


class _Field:
    """A part that is no file."""

    __match_args__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name, self.value = name, b""

    async def write(self, data: bytes) -> None:
        """Adds data. Raises Refused if the field is too long."""
        self.value += data
        if len(self.value) > SMALL:
            raise Refused(413, "too-large", f"a field is longer than {SMALL:,} bytes")


class _File:
    """A part that is a file; after an error, the rest of it is read and dropped."""

    def __init__(self, upload: uploads.Upload) -> None:
        self._upload = upload
        self._error: Refused | None = None

    async def write(self, data: bytes) -> None:
        """Adds data. Raises Refused if the disk is full."""
        if self._error is not None:
            return
        try:
            await self._upload.write(data)
        except Refused as error:
            self._fail(error)

    async def end(self, complete: list[uploads.Upload], refused: list[Rejected]) -> None:
        """Completes the file, and adds it to one of the two lists."""
        if self._error is None:
            try:
                await self._upload.finish()
            except Refused as error:
                self._fail(error)
        if self._error is None:
            complete.append(self._upload)
        else:
            refused.append(_rejected(self._upload.name, self._error))

    def _fail(self, error: Refused) -> None:
        if error.status >= 500:  # every other file would fail, too
            raise error
        self._error = error


def _rejected(name: str, error: Refused) -> Rejected:
    return Rejected(names.shown(name), error.status, error.code, str(error))


def answer(found: Received) -> tuple[int, Any]:
    """Returns the status and the body of the response: one film as it is, several as lists."""
    every = len(found.jobs) + len(found.refused)
    if not found.jobs:
        first = found.refused[0]
        if every == 1:
            raise Refused(first.status, first.code, first.error)
        return first.status, {"status": "refused", "jobs": [], "refused": found.refused}
    if every == 1:
        return 202, found.jobs[0]
    return 202, {"status": "queued", "jobs": found.jobs, "refused": found.refused}
