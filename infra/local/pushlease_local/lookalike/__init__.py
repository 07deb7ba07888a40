"""Look-alike APNs, FCM and Google's grant servers: real HTTP/2 over TLS, faithful answers, faults on demand.

They check what the providers check (signatures, headers, sizes), answer with the providers' statuses, reasons and
bodies, remember every accepted push, and misbehave by script. They reach no network and know nothing of pushlease.

    connection ──Request──► desk ──judge──► apns | fcm | oauth | federation, who ask the world what is registered
               ◄──Reaction──  │ ◄──step──── script, what is to go wrong
                              └───────────► memory, what was accepted and asked

`Lookalike.start()` runs them inside a test; `python -m pushlease_local.lookalike --state-dir DIR` as a process, driven
through `LookalikeControl`.
"""

from pushlease_local.lookalike.client import LookalikeControl
from pushlease_local.lookalike.lookalike import Lookalike
from pushlease_local.lookalike.memory import Seen
from pushlease_local.lookalike.messages import Accepted, Service
from pushlease_local.lookalike.script import Step

__all__ = ["Accepted", "Lookalike", "LookalikeControl", "Seen", "Service", "Step"]
