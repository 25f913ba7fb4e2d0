"""Mutants of how jobs are cancelled."""

from mutant import Mutant

CANCEL = (
    Mutant(
        name="a worker is not told that its job is cancelled",
        file="model/fleet.py",
        old="        return [Recall(component, job)]\n",
        new="        return []\n",
        profile="cancel",
        first=3,
    ),
    Mutant(
        name="one that does not hear is left alone",
        file="model/fleet.py",
        old="            place.cancel_at = now + self._liveness.cancel\n        return [",
        new="            pass\n        return [",
        profile="cancel",
        first=3,
    ),
    Mutant(
        name="a cancelled job has no time to end by itself",
        file="model/fleet.py",
        old="            place.cancel_at = now + self._liveness.cancel\n        return [",
        new="            place.cancel_at = now\n        return [",
        profile="cancel",
    ),
    Mutant(
        name="the cancel of one job is held against the next",
        file="model/fleet.py",
        old="        place.job, place.job_until, place.cancel_at, place.endless = None, None, None, False\n",
        new="        place.job, place.job_until, place.endless = None, None, False\n",
        profile="cancel",
    ),
    Mutant(
        name="whoever is replaced for a cancelled job is charged",
        file="model/fleet.py",
        old="        if reason in (Reason.JOB_TIMEOUT, Reason.CANCELLED):\n",
        new="        if reason is Reason.JOB_TIMEOUT:\n",
        profile="cancel",
    ),
    Mutant(
        name="a job that did not hear has crashed",
        file="model/death.py",
        old="    if verdict is Reason.CANCELLED:\n",
        new="    if verdict is Reason.CANCELLED and asked:\n",
        profile="cancel",
        first=3,
    ),
    Mutant(
        name="what waits in memory is handed out though it is cancelled",
        file="model/ledger.py",
        old="            for claim in [claim for claim in bench.ahead if claim.id in jobs]:\n",
        new="            for claim in [claim for claim in bench.ahead if not jobs]:\n",
        profile="cancelled wherever it is",
    ),
    Mutant(
        name="a cancelled job is queued again",
        file="stores/sqlite_transaction.py",
        old="  state = iif(?3 = 'queued' AND cancel_ms IS NOT NULL, 'cancelled', ?3),\n",
        new="  state = ?3,\n",
        profile="cancel",
        first=9,
    ),
    Mutant(
        name="a good end does not stand if a cancel came before it",
        file="stores/sqlite_transaction.py",
        old="UPDATE chargehand_job NOT INDEXED SET state = 'done',",
        new="UPDATE chargehand_job NOT INDEXED SET state = iif(cancel_ms IS NULL, 'done', 'cancelled'),",
        profile="cancel",
        first=12,
    ),
    Mutant(
        name="a job that was retried is still cancelled",
        file="stores/sqlite_transaction.py",
        old="  cancel_ms = NULL, retried_ms = ?2\n",
        new="  retried_ms = ?2\n",
        profile="cancel",
        first=17,
    ),
    Mutant(
        name="a busy node does not see what was cancelled in the store",
        file="model/ledger.py",
        old="            poll=poll and not self.closed,\n",
        new="            poll=poll and not hinted and not self.closed,\n",
        profile="cancelled beside a busy crew",
    ),
)
