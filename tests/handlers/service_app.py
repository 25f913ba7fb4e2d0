"""A web service with a lifespan, and a route that holds the interpreter lock."""

import ctypes
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from service_jobs import Labels, Song, hand, tag

HELD = ctypes.PyDLL(None)
"""Calls into the C library that do not let go of the interpreter."""


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncGenerator[dict[str, str]]:
    yield {"greeting": "hello"}


app = FastAPI(lifespan=lifespan)
hand.attach(app)


@app.get("/about")
async def about(request: Request) -> dict[str, Any]:
    return {"pid": os.getpid(), "greeting": request.state.greeting}


@app.post("/songs", status_code=202)
async def submit(song: Song) -> str:
    return (await tag.enqueue_async(song)).id


@app.get("/songs/{id}")
async def result(id: str) -> Labels:
    return await tag.ref(id).result(timeout=30)


@app.get("/hold")
async def hold(fifo: str) -> str:
    """Wait in C code, with the interpreter held, until somebody writes into the fifo."""
    descriptor = os.open(fifo, os.O_RDWR)
    HELD.read(descriptor, ctypes.create_string_buffer(1), 1)
    os.close(descriptor)
    return "held"
