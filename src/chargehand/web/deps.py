"""What the routes share: the site, the caller, pages, and work beside the event loop in the caller's name."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from fastapi.routing import APIRoute

from chargehand.host.actor import acting_as
from chargehand.web.answers import place
from chargehand.web.auth import Guarded, caller_of, open_to_all, requires
from chargehand.web.problems import MOST_FAULTS, Fault, Problem, in_words
from chargehand.web.site import Site

T = TypeVar("T")

PAGE, LONGEST_PAGE = 50, 500
READ, ENQUEUE, CONTROL = ([Depends(requires(scope))] for scope in ("read", "enqueue", "control"))
OPEN = [Depends(open_to_all)]

Limit = Annotated[int, Query(ge=1, le=LONGEST_PAGE, description="How many on a page.")]
After = Annotated[str | None, Query(max_length=500, description="`next` of the page before.")]
Text = Annotated[str | None, Query(max_length=1000)]


def router(tag: str) -> APIRouter:
    """A router whose routes check their callers before anything else, and then the names in the query."""
    return APIRouter(tags=[tag], route_class=Guarded, dependencies=[Depends(check_query)])


def check_query(request: Request) -> None:
    """A Problem if the query has what the route does not know: a filter with a slip in its name would be none at all,
    and the answer everything."""
    route: APIRoute = request.scope["route"]
    known = [field.alias for field in route.dependant.query_params]
    wrong = [name for name in request.query_params if name not in known]
    if wrong and route.path.startswith("/api/"):
        there_are = f"there are: {', '.join(known)}" if known else "there are none"
        words = f"is no parameter of this path; {there_are}"
        faults = [Fault(f"query/{name[:100]}", words) for name in wrong[:MOST_FAULTS]]
        raise Problem(422, "invalid-request", in_words(faults), faults=faults)


def site_of(request: Request) -> Site:
    """The site that a request is for."""
    return request.app.state.site


Here = Annotated[Site, Depends(site_of)]


async def act(request: Request, work: Callable[[], T]) -> T:
    """Do something that blocks, beside the event loop and in the caller's name."""
    caller = await caller_of(request)
    origin = f"http {request.client.host if request.client else 'unknown'}"

    def acting() -> T:
        with acting_as(caller.name, origin):
            return work()

    return await site_of(request).aside(acting)


def place_of(after: str | None, *kinds: type[Any]) -> list[Any] | None:
    """What a cursor says; a Problem if it is none of ours."""
    if after is None:
        return None
    found = place(after)
    if [type(each) for each in found] != list(kinds) or any(isinstance(n, int) and not 0 <= n < 1 << 62 for n in found):
        detail = "is not `next` of a page of this list"
        raise Problem(422, "invalid-request", f"query/after: {detail}", faults=[Fault("query/after", detail)])
    return found
