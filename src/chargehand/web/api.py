"""Everything under the prefix, as an application of its own: routes, errors, documentation."""

from fastapi import FastAPI

from chargehand import __version__
from chargehand.web import events
from chargehand.web.site import Site


def create(site: Site) -> FastAPI:
    """The application that is mounted under the prefix, or served alone."""
    api = FastAPI(title="Chargehand", version=__version__)
    api.state.site = site
    events.include(api, site)

    @api.get("/healthz")
    async def healthz() -> dict[str, str]:  # pyright: ignore[reportUnusedFunction]
        """This process lives."""
        return {"status": "ok"}

    return api
