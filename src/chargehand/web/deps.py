"""Dependencies and helpers of the routes: the site, the caller, cursors, and blocking calls on behalf of the caller."""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from chargehand.host.actor import acting_as
from chargehand.web.answers import place
from chargehand.web.auth import Guarded, caller_of, open_to_all, requires, site_of
from chargehand.web.problems import MOST_FAULTS, Fault, Problem, summary
from chargehand.web.site import Site

T = TypeVar("T")

PAGE, LONGEST_PAGE = 50, 500
READ, ENQUEUE, CONTROL = ([Depends(requires(scope))] for scope in ("read", "enqueue", "control"))
OPEN = [Depends(open_to_all)]

Limit = Annotated[int, Query(ge=1, le=LONGEST_PAGE, description="The size of a page.")]
After = Annotated[str | None, Query(max_length=500, description="`next` of the previous page.")]
Text = Annotated[str | None, Query(max_length=1000)]


def router(tag: str) -> APIRouter:
    """Returns a router whose routes check the caller first, and then the names of the query parameters."""
    return APIRouter(tags=[tag], route_class=Guarded, dependencies=[Depends(check_query)])


def _parameters(dependant: Dependant) -> list[str]:
    """Returns the names of the query parameters of a route and of its dependencies."""
    of_dependencies = [name for each in dependant.dependencies for name in _parameters(each)]
    return of_dependencies + [field.alias for field in dependant.query_params]


def check_query(request: Request) -> None:
    """Raises Problem if the query has an unknown parameter: a misspelled filter must not be ignored."""
    route: APIRoute = request.scope["route"]
    known = _parameters(route.dependant)
    wrong = [name for name in request.query_params if name not in known]
    if wrong and route.path.startswith("/api/"):
        listed = ", ".join(known) or "none"
        text = f"is not a parameter of this path; there are: {listed}"
        faults = [Fault(f"query/{name[:100]}", text) for name in wrong[:MOST_FAULTS]]
        raise Problem(422, "invalid-request", summary(faults), faults=faults)


Here = Annotated[Site, Depends(site_of)]


async def act(request: Request, work: Callable[[], T]) -> T:
    """Runs a blocking call in a thread, on behalf of the caller, and returns its result."""
    caller = await caller_of(request)
    origin = site_of(request).origin_of(request)
    person = caller.csrf is not None or caller.kind == "token"  # programs use keys

    def acting() -> T:
        with acting_as(caller.name, origin, person=person):
            return work()

    return await site_of(request).in_thread(acting)


def place_of(after: str | None, *kinds: type[Any]) -> list[Any] | None:
    """Returns the content of a cursor. Raises Problem if it is not a cursor of this list."""
    if after is None:
        return None
    found = place(after)
    if [type(each) for each in found] != list(kinds) or any(isinstance(n, int) and not 0 <= n < 1 << 62 for n in found):
        detail = "is not the `next` of a page of this list"
        raise Problem(422, "invalid-request", f"query/after: {detail}", faults=[Fault("query/after", detail)])
    return found
