"""Histories by chance, as the machine beside this plays them."""

from fleet_machine import Machine
from hypothesis import HealthCheck, settings

# spec: SV-3, SV-4, SV-6, SV-9, SV-10, PD-3, RP-6
TestFleetMachine = Machine.TestCase
TestFleetMachine.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
