"""Examples of responses for the OpenAPI document."""

import msgspec

from chargehand import __version__
from chargehand.host.readings import Failures
from chargehand.live.bodies import NodeBody, NodeCrewBody
from chargehand.model.access import Operation
from chargehand.model.doctor.causes import Finding, Severity
from chargehand.model.failures import FailureGroup
from chargehand.model.fleet.orders import Answer, AnswerCode
from chargehand.model.fleet.stacks import StackCode, WorkerStacks
from chargehand.model.flows import FlowCounts, FlowRecord, FlowStage
from chargehand.model.health import Verdict
from chargehand.model.job import Attempt, JobRecord, State
from chargehand.model.records import ClaimRow, CrashRecord, CrewRow, JobRun, Pause, Recurrence, Snapshot, Tally
from chargehand.model.status import NodeStatus, Progress, RestartBudget
from chargehand.web.answers import (
    Answers,
    ApiKeys,
    BulkChanged,
    Changed,
    Claims,
    ComponentHealth,
    Concurrency,
    CrashDetail,
    CrashPage,
    CrewConcurrency,
    CrewInfo,
    CrewReadiness,
    Crews,
    Diagnosed,
    FlowDetail,
    FlowMade,
    FlowPage,
    Health,
    HistoryPage,
    Info,
    JobDetail,
    JobPage,
    KeyFacts,
    LogLine,
    LogLines,
    Made,
    MadeKey,
    MadeMany,
    NodeAnswer,
    Nodes,
    OperationPage,
    Pauses,
    Queue,
    QueueHistories,
    QueueHistory,
    Queues,
    Readiness,
    Recurring,
    SignedIn,
    SupervisorInfo,
    WorkerHistory,
    WorkerMoment,
    WorkerStatus,
    WorkerThreads,
)

AT = 1_790_000_000_000
ID = "0199c3b1e2f04c7d8a9b0c1d2e3f4a5b"
NODE, WORKER = "studio", "worker:tag:0"
EARLIER_CLAIM, CLAIM = "7507797606400001234", "7507797610174006789"

MADE = Made(id=ID, queue="tag", created=True)
MADE_MANY = MadeMany((MADE,))
JOB = JobRecord(
    id=ID, queue="tag", label="a.flac", payload=msgspec.Raw(b'{"path": "a.flac"}'), state=State.DONE, priority=0,
    run_at_ms=AT, attempts=0, max_attempts=3, crashes=1, interruptions=0, timeout_ms=300_000, key=None, progress=None,
    result=msgspec.Raw(b'{"scores": {"rock": 0.9}}'), error=None, reason=None, created_ms=AT, started_ms=AT + 2,
    finished_ms=AT + 4_000, claim=CLAIM, node=None, worker=None, limit_key=None, item=None, cancel_ms=None, seq=41,
)  # fmt: skip
JOB_PAGE = JobPage((JOB,), "WzQxXQ")
CRASH = CrashRecord(
    id="0199c3b1e30000000000000000000001", component=WORKER, crew="tag", incarnation="5f1d", pid=4711, reason="crash",
    text="ended by signal 11, SIGSEGV", exit_code=None, signal=11, job=ID, memory=734_003_200,
    uptime_ms=61_000, charged=False, follows="restarted in 1.0 s", stacks="Fatal Python error: Segmentation fault",
    lines=("decoding a.flac",), node=NODE, at_ms=AT + 900, age_ms=60_000,
)  # fmt: skip
CRASH_DETAIL = CrashDetail(
    **{name: getattr(CRASH, name) for name in CrashRecord.__struct_fields__},
    own_frames=("/srv/music/tagger.py:53 in perform\n    decode(job.payload)",),
)
CRASHES = CrashPage((CRASH,))
JOB_DETAIL = JobDetail(
    **{name: getattr(JOB, name) for name in JobRecord.__struct_fields__},
    attempt_history=(
        Attempt(
            claim=EARLIER_CLAIM, node=NODE, worker=WORKER, pid=4711, started_ms=AT + 2, duration_ms=898,
            outcome="crashed", error="worker:tag:0 ended by signal 11, SIGSEGV while it performed the job",
        ),
        Attempt(
            claim=CLAIM, node=NODE, worker="worker:tag:1", pid=4712, started_ms=AT + 902, duration_ms=3_000,
            outcome="done", error=None,
        ),
    ),
    crash_reports=(CRASH,),
)  # fmt: skip
FLOW_ID = "0199c3b1e2f04c7d8a9b0c1d2e3f0001"
FLOW = FlowRecord(
    id=FLOW_ID, name="summer.mp4", state="running", counts=FlowCounts(queued=3, following=1, running=2, done=9),
    created_ms=AT, ended_ms=None, ends=0, cancel_ms=None, on_end=None,
)  # fmt: skip
FLOW_PAGE = FlowPage((FLOW,))
FLOW_DETAIL = FlowDetail(
    **{name: getattr(FLOW, name) for name in FlowRecord.__struct_fields__},
    stages=(
        FlowStage(queue="decode", counts=FlowCounts(done=1), begun_ms=AT + 2, ended_ms=AT + 900),
        FlowStage(queue="scene", counts=FlowCounts(queued=2, running=2, done=8), begun_ms=AT + 903),
        FlowStage(queue="classify", counts=FlowCounts(queued=1, following=1)),
    ),
)
FLOW_MADE = FlowMade(id=FLOW_ID, name="summer.mp4", jobs=(MADE,))
FLOW_CANCELLED = Answer(FLOW_ID, "3 jobs are cancelled", "cancelled")
FLOW_RETRIED = Answer(FLOW_ID, "3 jobs are queued again", "queued")
FLOW_DELETED = Answer(FLOW_ID, "is deleted, with its jobs", "deleted")
ANSWERS = Answers((Answer(WORKER, f"finishes {ID}, then stops"), Answer("worker:tag:1", "stops")))
DELETED = Answer(ID, "is deleted", "deleted")
RETRIED, CANCELLED, RELEASED = Answer(ID, "is queued again"), Answer(ID, "is cancelled"), Answer(ID, "is queued again")
WOKEN = Answer("tag", "searches for work at once")
WORKERS = [
    WorkerStatus(
        component=WORKER, node=NODE, crew="tag", status="healthy", flags=(), reason=None, text=None, pid=4713,
        incarnation="7a2e", current_job=ID, last_heartbeat_ms=AT, restart_count=1, restarts_total=1,
        last_restart_ms=AT - 60_000,
        exit_code=None, signal=11, created_at_ms=AT - 60_000, metadata={"crew": "tag"}, is_healthy=True, index=0,
        progress=Progress(done=1, total=3, stage="net"), memory=734_003_200, jobs=12,
        budget=RestartBudget(4, 19), restart_in_s=None,
    )
]  # fmt: skip
_COMPONENT = {
    name: getattr(WORKERS[0], name) for name in ComponentHealth.__struct_fields__ if hasattr(WORKERS[0], name)
}
COMPONENT = ComponentHealth(**_COMPONENT, well=True)
HEALTH = Health(
    status=Verdict.DEGRADED, reasons=("worker:tag:1 crashed: ended by signal 11",), components=(WORKERS[0],)
)
HISTORY = HistoryPage(
    (
        Snapshot(
            timestamp_ms=AT,
            components=msgspec.Raw(
                b'[{"component": "worker:tag:0", "status": "healthy", "flags": [], "current_job": null, "pid": 4711, '
                b'"restart_count": 0}]'
            ),
        ),
    )
)
NODES = Nodes(
    (
        NodeBody(
            name=NODE, status="healthy", machine="studio-1", version=__version__, pid=4700, started_ms=AT - 60_000,
            last_beat_ms=AT, beat_age_ms=1_200,
            crews=(NodeCrewBody(crew="tag", queue="tag", configured=2, live=2, busy=1),),
        ),
    )
)  # fmt: skip
INFO = Info(
    version=__version__,
    node=NODE,
    supervisor=SupervisorInfo(node=NODE, pid=4700, version=__version__, started_ms=AT, answers=True),
    worker_enabled=True,
    embed_workers=True,
    workers=(CrewInfo(crew="tag", queue="tag", configured=2, live=2),),
    queues=("tag",),
)
DIAGNOSED = Diagnosed(
    store="/srv/chargehand.db",
    status=Severity.ERROR,
    well=False,
    headline="not working since 12:00: tag paused by ops; 12 waiting, the oldest 3 minutes",
    findings=(
        Finding(
            severity=Severity.ERROR, cause="paused", about="tag", text="tag was paused by ops 3 minutes ago: new model",
            remedy="chargehand resume tag", short="tag paused by ops", since_ms=AT,
        ),
    ),
    at_ms=AT,
)  # fmt: skip
LOG_LINES = LogLines((LogLine(at_ms=AT, level="info", text="loaded", component=WORKER),))
NODE_ANSWER = NodeAnswer(NodeStatus(node=NODE, pid=4700, version=__version__, started_ms=AT))
QUEUES = Queues((Queue(queue="tag", queued=12, running=2, done=431, failed=1, crews=("tag",), oldest_wait_ms=1_200),))
WORKER_HISTORY = WorkerHistory(
    component=WORKER,
    node=NODE,
    at_ms=AT + 60_000,
    moments=(
        WorkerMoment(at_ms=AT + 2_000, kind="job", what="done", job=ID, duration_ms=1_200),
        WorkerMoment(at_ms=AT + 800, kind="status", what="healthy", pid=4711),
        WorkerMoment(at_ms=AT, kind="status", what="starting", pid=4711),
    ),
    memory_at_ms=(AT + 1_000,),
    memory=(220 << 20,),
)
WORKER_STACKS = WorkerStacks(
    component=WORKER,
    pid=4711,
    job=ID,
    code=StackCode.DUMPED,
    text="wrote its stacks",
    stacks='Thread 0x00007f2b4c1f6740 (most recent call first):\n  File "/app/tagger.py", line 41 in perform',
    threads="thread 4711 'python': state S, in do_poll.constprop.0",
    memory=412_000_256,
    cpu=0.98,
    cpu_s=61.24,
)
QUEUE_HISTORIES = QueueHistories(
    (QueueHistory("tag", at_ms=(AT, AT + 10_000), waiting=(12, 9), running=(2, 2), failed=(1, 1), rate=(0.0, 0.3)),)
)
CHANGED = Changed(3, False)
BULK_CHANGED = BulkChanged(count=37, refused=1)
TALLY = Tally(queued=2, running=1, done=310, failed=37)
FAILURES = Failures(
    (
        FailureGroup(
            cause="ValueError: truncated at byte 77",
            where=None,
            count=37,
            queues=("tag",),
            newest=ID,
            last_ms=AT,
            filter='state:failed reason:raised error:"ValueError: truncated at byte"',
        ),
    ),
    37,
)
CLAIMS = Claims(
    (
        ClaimRow(
            id=ID, queue="tag", label="a.flac", claim=CLAIM, node=NODE, worker=WORKER, started_ms=AT, cancel_ms=None,
            item="/music/a.flac",
        ),
    )
)  # fmt: skip
OPERATIONS = OperationPage(
    (Operation(id=7, at_ms=AT, who="ops", verb="pause", target="tag", detail="new model", origin="http 127.0.0.1"),)
)
PAUSES = Pauses((Pause(scope="tag", who="ops", reason="new model", since_ms=AT, until_ms=AT + 60_000, left_ms=9_000),))
CREWS = Crews(
    (CrewRow(name="tag", queue="tag", handler="tagging:Tagger", workers=2, max_attempts=3, timeout_ms=300_000),)
)
RECURRING = Recurring(
    (
        Recurrence(
            name="scan", schedule='{"every_ms":60000}', job='{"queue":"tag"}', next_run_ms=AT, last_job=JOB.id,
            in_words="every 60 s", queue="tag", label="scan", paused_ms=AT, paused_by="ops", pause_reason="new disk",
            runs=(JobRun(id=JOB.id, state=State.DONE, created_ms=AT, started_ms=AT, finished_ms=AT + 900),),
        ),
    )
)  # fmt: skip
RECURRING_RUN = Answer(JOB.id, "is queued", AnswerCode.QUEUED)
RECURRING_PAUSED = Answer("scan", "is paused: it skips its times", AnswerCode.PAUSED)
RECURRING_RESUMED = Answer("scan", "is no longer paused", AnswerCode.RESUMED)
KEYS = ApiKeys((KeyFacts(id=ID, name="ann", scopes=("read",), state="in use", created_ms=AT, used_ms=AT),))
KEY_REVOKED = Answer("ann", "is revoked", AnswerCode.DELETED)
MADE_KEY = MadeKey(key="ch_…", id=ID, name="ann", scopes=("read",), state="in use", created_ms=AT)
READINESS = Readiness(ready=True, reasons=(), crews=(CrewReadiness(crew="tag", queue="tag", ready=True),))
CONCURRENCY = Concurrency(
    (
        CrewConcurrency(
            crew="tag",
            configured=2,
            live=1,
            busy=1,
            threads_configured=1,
            workers=(WorkerThreads(component=WORKER, pid=4713, busy=True, threads=2),),
        ),
    )
)
SIGNED_IN = SignedIn(name="ops", kind="key", scopes=("read", "control"), csrf="b1946ac9…", expires_ms=AT + 43_200_000)
