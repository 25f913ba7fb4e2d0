"""The names of workers where several nodes have workers of the same name."""

import pytest

from chargehand.errors import ConfigurationError
from chargehand.model import address

BOTH = [("a", "app"), ("a", "worker:do:0"), ("b", "app"), ("b", "worker:do:0"), ("b", "worker:gpu:0")]


# spec: MN-1
@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a/do:0", ("a", "worker:do:0")),
        ("b/worker:do:0", ("b", "worker:do:0")),
        ("worker:gpu:0", ("b", "worker:gpu:0")),
        ("gpu:0", ("b", "worker:gpu:0")),
        ("a/gpu:0", None),
        ("c/do:0", None),
        ("b/app", ("b", "app")),
        ("app", ("a", "app")),
        ("", None),
        ("/", None),
    ],
)
def test_an_address_names_one_worker_and_a_name_that_only_one_node_has_needs_none(
    text: str, meant: tuple[str, str] | None
) -> None:
    assert address.meant(text, BOTH) == meant
    if meant is not None:
        assert address.meant(address.written(*meant), BOTH) == meant


# spec: MN-1
def test_a_name_that_several_nodes_have_is_refused_with_the_addresses() -> None:
    for text in ("worker:do:0", "do:0"):
        with pytest.raises(ConfigurationError, match="name one of a/do:0, b/do:0"):
            address.meant(text, BOTH)


# spec: MN-1
def test_a_node_that_is_gone_makes_no_name_ambiguous() -> None:
    gone = [("b", "worker:do:0"), ("c", "worker:do:0")]
    assert address.meant("do:0", [("a", "worker:do:0")], gone) == ("a", "worker:do:0")
    assert address.meant("b/do:0", [("a", "worker:do:0")], gone) == ("b", "worker:do:0")
    assert address.meant("do:0", [], gone) == ("b", "worker:do:0")


# spec: MN-1
def test_the_name_of_a_node_may_have_slashes() -> None:
    odd = ("rack/7", "worker:do:0")
    assert address.written(*odd) == "rack/7/do:0"
    assert address.meant("rack/7/do:0", [odd, ("7", "worker:do:0")]) == odd
