"""Which nodes an order or a question concerns, and how the workers of several nodes are named. Pure.

A scope is a crew, a worker (`crew:0` or `worker:crew:0`), or everything (None or `*`). A node in front of it
(`node/crew`, `node/*`) means this node alone. Names of crews contain no slash.
"""

from collections.abc import Sequence

import msgspec

from chargehand.errors import ChargehandError, ConfigurationError, NobodyServes, UnknownCrew
from chargehand.model.address import written
from chargehand.model.fleet.lifecycle import Status
from chargehand.model.fleet.orders import Answer, AnswerCode
from chargehand.model.records import HealthRow, LivingNode, Pause

ALL = "*"
_WORKER = "worker:"


class Target(msgspec.Struct, frozen=True):
    """A node that a scope concerns, the scope as this node knows it, and whether answers name the node."""

    node: LivingNode
    scope: str | None
    named: bool

    def shown(self, component: str) -> str:
        """Returns a component of the node as callers see it."""
        return written(self.node.name, component) if self.named else component


def split(scope: str | None) -> tuple[str | None, str | None]:
    """Returns the node that a scope names, and the rest; None for no node, and for everything."""
    node, slash, rest = (scope or "").rpartition("/")
    return node if slash else None, None if rest in ("", ALL) else rest


def component_of(scope: str) -> str | None:
    """Returns the component of a scope that is one worker; None for a crew."""
    if ":" not in scope:
        return None
    return scope if scope.startswith(_WORKER) else f"{_WORKER}{scope}"


def targets(scope: str | None, nodes: Sequence[LivingNode]) -> list[Target]:
    """Returns the nodes that a scope concerns: one that it names, or all that have the crew or worker.

    Raises NobodyServes if the named node does not live, UnknownCrew if no node has the crew or worker, and
    ConfigurationError if several nodes have the worker.
    """
    name, rest = split(scope)
    if name is not None:
        named = [node for node in nodes if node.name == name]
        if not named:
            raise NobodyServes(f"there is no node {name!r} that runs; there are: {_names(nodes)}")
        return [Target(named[0], rest, True)]
    found = list(nodes) if rest is None else _having(rest, nodes)
    return [Target(node, rest, len(nodes) > 1) for node in found]


def _having(scope: str, nodes: Sequence[LivingNode]) -> list[LivingNode]:
    component = component_of(scope)
    crew = scope if component is None else component.split(":")[1]
    found = [node for node in nodes if crew in node.crews]
    if component is not None:
        # Health rows are written a moment after a worker is added: the only node of the crew knows it by itself.
        having = [node for node in found if component in node.workers]
        if len(having) > 1:
            choice = ", ".join(written(node.name, component) for node in having)
            raise ConfigurationError(f"several nodes have a worker {scope!r}: name one of {choice}")
        found = having or (found if len(found) == 1 else [])
    if not found:
        known = sorted({crew for node in nodes for crew in node.crews})
        raise UnknownCrew(
            f"there is no crew or worker {scope!r} on a node that runs ({_names(nodes)}); "
            f"there are: {', '.join(known) or 'none'}"
        )
    return found


def scaled(crew: str | None, found: Sequence[Target]) -> list[Target]:
    """Returns the nodes whose number of workers a scale changes, of those that its scope concerns.

    A node whose settings give the crew no workers is left out unless it was named, or has the crew alone: the crew may
    not be able to run there. Raises ConfigurationError if several nodes have the crew, and none is set to run it.
    """
    if len(found) < 2:
        return list(found)
    chosen = [target for target in found if crew not in target.node.without]
    if not chosen:
        raise ConfigurationError(
            f"the settings of all nodes ({_names([target.node for target in found])}) give crew {crew!r} no workers: "
            f"name the node that shall run it, as in {written(found[0].node.name, crew or '')}"
        )
    return chosen


def _names(nodes: Sequence[LivingNode]) -> str:
    return ", ".join(node.name for node in nodes) or "none"


def merged(replies: Sequence[tuple[Target, list[Answer] | ChargehandError]]) -> list[Answer]:
    """Returns the answers of all nodes, with one for each node that did not answer. Raises if none did."""
    failed = [reply for _, reply in replies if isinstance(reply, ChargehandError)]
    if failed and len(failed) == len(replies):
        raise failed[0]
    answers: list[Answer] = []
    for target, reply in replies:
        if isinstance(reply, ChargehandError):
            answers.append(Answer(target.node.name, str(reply), AnswerCode.NO_ANSWER))
        else:
            answers += [msgspec.structs.replace(each, component=target.shown(each.component)) for each in reply]
    return answers


# pauses in a store for many nodes


def local(scope: str, node: str) -> str | None:
    """Returns the scope of a pause as this node knows it; None if it is about another node."""
    name, slash, rest = scope.rpartition("/")
    return rest if not slash or name == node else None


def stored(scope: str | None, found: Sequence[Target]) -> str:
    """Returns the scope of a pause as it is stored. A worker is one of a node, if a node has it (`found`)."""
    name, rest = split(scope)
    component = None if rest is None else component_of(rest)
    if component is not None and name is None and found:
        name = found[0].node.name
    text = component or rest or ALL
    return text if name is None else f"{name}/{text}"


def also_resumed(scope: str) -> list[str]:
    """Returns the stored scopes that a resume of this one clears: a worker may be paused without the name of a node."""
    _, slash, rest = scope.rpartition("/")
    return [scope, rest] if slash and rest.startswith(_WORKER) else [scope]


def _covered(rows: Sequence[HealthRow], found: Sequence[Target]) -> list[tuple[Target, HealthRow]]:
    """Returns the workers of these targets."""
    covered: list[tuple[Target, HealthRow]] = []
    for target in found:
        scope = target.scope
        wanted = None if scope is None else component_of(scope)
        for row in rows:
            if row.node != target.node.name or not row.component.startswith(_WORKER):
                continue
            if scope is None or row.component == wanted or (wanted is None and row.component.split(":")[1] == scope):
                covered.append((target, row))
    return covered


def paused(scope: str, rows: Sequence[HealthRow], found: Sequence[Target], replaced: str) -> list[Answer]:
    """Returns the answers to a pause that was written to the store. `replaced`: what it replaces, in words."""
    answers: list[Answer] = []
    for target, row in _covered(rows, found):
        job = f"finishes {row.current_job}, then takes" if row.current_job else "takes"
        text = f"{job} nothing more" if row.pid is not None else f"is {row.status}, and will take nothing"
        answers.append(Answer(target.shown(row.component), f"{text}{replaced}", AnswerCode.PAUSED))
    none = "it has no workers" if found else "no node runs, and the next one takes no jobs either"
    return answers or [Answer(scope, f"is paused; {none}{replaced}", AnswerCode.PAUSED)]


def resumed(
    scope: str, rows: Sequence[HealthRow], found: Sequence[Target], pauses: Sequence[Pause], *, was_paused: bool
) -> list[Answer]:
    """Returns the answers to a resume that was written to the store. `pauses` are those that are left."""
    answers: list[Answer] = []
    for target, row in _covered(rows, found):
        left = [pause.scope for pause in pauses if _holds(pause.scope, row)]
        if row.status == Status.FAILED:
            remedy = f"`chargehand reset {target.shown(row.component)}` starts it"
            code, text = AnswerCode.GIVEN_UP, f"stays given up ({row.reason}); {remedy}"
        elif left:
            lifting = " and ".join("`chargehand resume" + ("`" if each == ALL else f" {each}`") for each in left)
            code, text = AnswerCode.PAUSED, f"is still paused by another pause: {lifting}"
        elif row.status == Status.STOPPING:
            code, text = AnswerCode.STOPS, "is stopping"
        elif row.pid is not None:
            code, text = AnswerCode.RESUMED, "accepts jobs again"
        else:
            code, text = AnswerCode.RESUMED, f"is {row.status}" + (f" ({row.reason})" if row.reason else "")
        answers.append(Answer(target.shown(row.component), text, code))
    if answers:
        return answers
    if not was_paused:
        return [Answer(scope, "was not paused", AnswerCode.NOT_PAUSED)]
    why = "it has no workers" if found else "no node runs"
    return [Answer(scope, f"is no longer paused; {why}", AnswerCode.RESUMED)]


def _holds(scope: str, row: HealthRow) -> bool:
    """Returns whether a stored pause concerns the worker of this row."""
    return local(scope, row.node) in (ALL, row.component, row.component.split(":")[1])
