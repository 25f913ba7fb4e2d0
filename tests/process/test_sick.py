"""Processes that can do nothing any more: they say so, or they fail one job after the other."""

from collections.abc import Callable

import pytest
from fault_checks import BRISK, FAULTY, LIMITED, reports, shows
from world import World

from chargehand import Chargehand, JobFailed, JobPolicy
from chargehand.model.job import State
from chargehand.testing import eventually

MakeHand = Callable[..., Chargehand]


@shows("sick")
def test_one_sick_process_fails_no_good_job(make_hand: MakeHand, world: World) -> None:  # spec: WP-13
    hand = make_hand(liveness=BRISK, restart=LIMITED, jobs=JobPolicy(suspect_after=4))
    crew = hand.crew("do", FAULTY, workers=2, max_attempts=2)
    with hand.running():
        good = [world.put(crew, fault="nap", seconds=0.01, result=number) for number in range(10)]
        crew.enqueue({"fault": "sick"}, max_attempts=1)
        good += [world.put(crew, fault="nap", seconds=0.01, result=number) for number in range(10, 30)]
        assert [ref.wait(40) for ref in good] == list(range(30))
        found = hand.crashes()
        assert {(each.reason, each.charged, each.follows) for each in found} == {
            ("suspect", False, "restarted at once")
        }
        assert "it failed 4 jobs in a row" in found[0].text
        assert (hand.status() or {})["suspect_after"] == 4, "doctor cannot know the setting"


@shows("broken", "unsound", "cuda")
def test_a_process_that_reports_itself_as_broken_is_replaced(make_hand: MakeHand, world: World) -> None:  # spec: WP-12
    hand = make_hand(liveness=BRISK, restart=LIMITED)
    crew = hand.crew("do", FAULTY, workers=3)
    faults = {"broken": "as told", "unsound": "is_sound returned False", "cuda": "device-side assert triggered"}
    with hand.running():
        refs = {fault: world.put(crew, fault=fault) for fault in faults}
        good = [world.put(crew, result=number) for number in range(20)]
        assert [ref.wait(40) for ref in good] == list(range(20))
        for fault, text in faults.items():
            with pytest.raises(JobFailed, match="poison"):
                refs[fault].wait(40)
            job = refs[fault].job()
            assert (job.state, job.failures, job.crashes) == (State.FAILED, 0, 3)
            assert text in (job.error or "")
            assert len(set(world.starts(refs[fault]))) == 3, "each attempt had a process of its own"
            for report in reports(hand, 3, job=refs[fault].id):
                assert (report.reason, report.exit_code) == ("broken", 1)
                assert text in report.text
                assert "no job can succeed" not in report.text, "the error itself is shown, not its wrapper"
        eventually(lambda: all(each["status"] == "healthy" for each in (hand.status() or {"workers": []})["workers"]))
