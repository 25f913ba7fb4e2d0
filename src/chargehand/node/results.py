"""Reads the results that a worker's job asks for, in pages that fit into a frame."""

from chargehand.model.flows import Predecessor, PredecessorFilter
from chargehand.protocol.worker import PAGE_BYTES, ResultsFrame, page_of
from chargehand.store import Store

MOST = 1000
"""Results in one page."""
AT_ONCE = 100
"""Results that are read at once: each may have a megabyte."""


def read_page(store: Store, question: ResultsFrame) -> bytes:
    """Returns the answer to a job's question for results, as a frame."""
    limit = max(1, min(question.limit, MOST))
    found: list[Predecessor] = []
    size, more = 0, True
    after: tuple[int, int] | None = question.after
    while more and len(found) < limit and size < PAGE_BYTES:
        count = min(AT_ONCE, limit - len(found))
        which = PredecessorFilter(job=question.id, queue=question.queue, after=after, limit=count)
        page: list[Predecessor] = store.jobs.predecessors(which)
        more = len(page) == count
        found += page
        size += sum(len(each.error or "") + len(bytes(each.result or b"")) for each in page)
        after = (page[-1].nr, page[-1].ordinal) if page else after
    return page_of(question, found, more=more)
