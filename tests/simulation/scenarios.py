"""The situations of the crash matrix: what is sent, what providers say, what persons do, and how it must end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from simulation.invariants import Invariant as I  # noqa: N817  (it stands in every line here)
from simulation.provider import OK, POISON
from simulation.row import Row
from simulation.shape import HOUR, Order, Shape
from simulation.wire import Outcome
from simulation.world import World

DEAD, DONE, CANCELLED = {"dead"}, {"done"}, {"cancelled"}
FOREVER = ["down"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """``ends``: how each user's job must end, wherever a crash struck. ``sees``: what it must have examined."""

    name: str
    orders: tuple[Order, ...]
    ends: Mapping[str, set[str]]
    sees: frozenset[I]
    arrange: Callable[[World], None] = lambda _world: None
    always: Mapping[tuple[str, int], Outcome] = field(default_factory=dict)
    shape: Shape = field(default_factory=Shape)

    def prepare(self, world: World) -> None:
        """Set the stage."""
        for order in self.orders:
            world.order(order)
        self.arrange(world)

    def check(self, world: World) -> None:
        """How it ended."""
        for order in self.orders:
            status = Row(world.table.rows.get(order.job_id, {})).status
            if status not in self.ends[order.user]:
                raise AssertionError(f"{order.user} ended {status}, not {self.ends[order.user]}")


def _cancel(user: str, at_ms: int) -> Callable[[World], None]:
    return lambda world: world.person(at_ms, lambda: world.cancel(Order(user=user, scripts={}).job_id))


def _console(*at_hours: int) -> Callable[[World], None]:
    def arrange(world: World) -> None:
        for hour in at_hours:
            world.person(hour * HOUR, world.redrive_by_console)

    return arrange


def _console_and_function(world: World) -> None:
    _console(3)(world)
    world.person(3 * HOUR + 5, world.redrive_by_function)


def _moved_to_work(world: World) -> None:
    world.person(3 * HOUR, lambda: world.redrive_by_console("work"))


def _unreadable(world: World) -> None:
    world.person(10_000, lambda: world.spoil(Order(user="a", scripts={}).job_id))
    _console(3)(world)


def _cancelled_before_its_check(world: World) -> None:
    """Dead, its letter lost, and cancelled just before the tick that would send another."""
    _cancel("a", 290_000)(world)


def _redriven_while_sighted(world: World) -> None:
    world.person(20_000, world.redrive_by_function)
    _console(3)(world)


def _redriven_twice_slowly(world: World) -> None:
    _console(3)(world)
    world.person(3 * HOUR + 20_000, world.redrive_by_function)


def _redriven_and_cancelled(world: World) -> None:
    _console(3)(world)
    _cancel("a", 3 * HOUR + 20_000)(world)


def _erased(world: World) -> None:
    world.person(120_000, lambda: world.erase(Order(user="a", scripts={}).job_id))


SCENARIOS = (
    Scenario(
        name="success",
        orders=(Order(user="a", scripts={"apns-1": [OK], "fcm-1": [OK]}), Order(user="b", scripts={"apns-1": [OK]})),
        ends={"a": DONE, "b": DONE},
        sees=frozenset({I.NO_JOB_LOST, I.ONE_LIVE_CLAIM, I.INDEX_AGREES, I.STALE_WRITER_REFUSED, I.ATTEMPTS_BOUNDED})
        | frozenset({I.ENDS_HAVE_CAUSES, I.SUCCESS_RECORDED, I.IN_TIME, I.ROWS_ARE_KEPT, I.REASON_IS_TOLD}),
    ),
    Scenario(
        name="partial success",
        orders=(Order(user="a", scripts={"apns-1": [OK], "fcm-1": ["busy", OK], "fcm-2": ["gone"]}),),
        ends={"a": DONE},
        sees=frozenset({I.SENT_NEVER_AGAIN, I.BACKOFF_IN_WINDOW, I.PROVIDERS_APART}),
    ),
    Scenario(
        name="five failures",
        orders=(Order(user="a", scripts={"apns-1": FOREVER, "fcm-1": ["busy 1200", OK]}),),
        ends={"a": DEAD},
        sees=frozenset({I.DEAD_HAS_NO_WORK, I.DEAD_IS_REDRIVABLE, I.DELAY_SPLIT, I.PROVIDERS_APART}),
    ),
    Scenario(
        name="death",
        orders=(Order(user="a", scripts={"apns-1": ["bad"]}), Order(user="b", scripts={"apns-1": [OK]})),
        ends={"a": DEAD, "b": DONE},
        sees=frozenset({I.DEAD_HAS_NO_WORK, I.DEAD_IS_REDRIVABLE, I.TICKS_OVERLAP, I.DUPLICATES_BOUNDED}),
    ),
    Scenario(
        name="redrive",
        orders=(Order(user="a", scripts={"apns-1": [OK], "fcm-1": ["bad", OK]}),),
        ends={"a": DONE | DEAD},  # a crash of the last refusal leaves its letter for another redrive
        sees=frozenset({I.ONE_DEATH_REVIVES_ONCE, I.NO_REVIVAL_UNASKED, I.SENT_NEVER_AGAIN, I.CLAIM_SEQ_NEVER_FALLS}),
        arrange=_console(3, 6),
    ),
    Scenario(
        name="redrive twice over",
        orders=(Order(user="a", scripts={"apns-1": ["bad", OK]}), Order(user="b", scripts={"apns-1": ["bad"]})),
        ends={"a": DONE, "b": DEAD},
        sees=frozenset({I.ONE_DEATH_REVIVES_ONCE, I.SECOND_DEATH_BURIED, I.REDRIVE_REVIVES}),
        arrange=_console_and_function,
    ),
    Scenario(
        name="letter moved to work",
        orders=(Order(user="a", scripts={"apns-1": ["bad", OK]}),),
        ends={"a": DONE | DEAD},
        sees=frozenset({I.ONE_DEATH_REVIVES_ONCE, I.NO_REVIVAL_UNASKED}),
        arrange=_moved_to_work,
    ),
    Scenario(
        name="second death",
        orders=(Order(user="a", scripts={"apns-1": ["bad"]}, max_attempts=2),),
        ends={"a": DEAD},
        sees=frozenset({I.SECOND_DEATH_BURIED}),
        arrange=_console(3, 6),
    ),
    Scenario(
        name="cancel meanwhile",
        orders=(
            Order(user="a", scripts={"apns-1": ["down"], "fcm-1": [OK]}),
            Order(user="b", scripts={"apns-1": [OK]}),
        ),
        ends={"a": CANCELLED | DEAD, "b": DONE},
        sees=frozenset({I.CANCEL_WINS, I.STALE_WRITER_REFUSED}),
        arrange=_cancel("a", 4_000),
        always={("push", 1): Outcome.SLOW},
    ),
    Scenario(
        name="lease lost",
        orders=(
            Order(user="a", scripts={"apns-1": [OK], "fcm-1": ["down", OK]}),
            Order(user="b", scripts={"fcm-1": [OK]}),
        ),
        ends={"a": DONE, "b": DONE},
        sees=frozenset({I.STALE_WRITER_REFUSED, I.SENT_NEVER_AGAIN, I.DUPLICATES_BOUNDED, I.THROTTLES_NEUTRAL}),
        always={("push", 1): Outcome.FREEZE},
    ),
    Scenario(
        name="poison",
        # Later than SQS can wait: one drain claims them all together.
        orders=(
            *(Order(user=user, scripts={"apns-1": [OK]}, deliver_in_ms=1_000_000) for user in "abc"),
            Order(user="p", scripts={"apns-1": [POISON]}, deliver_in_ms=1_000_000),
            Order(user="q", scripts={"apns-1": [POISON]}, deliver_in_ms=1_000_000, max_attempts=2),
        ),
        ends={"a": DONE, "b": DONE, "c": DONE, "p": DEAD, "q": DEAD},
        sees=frozenset({I.POISON_ISOLATED, I.ATTEMPTS_BOUNDED}),
        shape=Shape(lanes=1),
    ),
    Scenario(
        name="expiry",
        orders=(
            Order(user="a", scripts={"apns-1": FOREVER}, expires_in_s=400),
            Order(user="b", scripts={"apns-1": ["busy 7200"]}, expires_in_s=3600),
        ),
        ends={"a": DONE, "b": DONE},
        sees=frozenset({I.EXPIRY_HONOURED}),
    ),
    Scenario(
        name="unreadable row",
        orders=(Order(user="a", scripts={"apns-1": ["down"]}), Order(user="b", scripts={"apns-1": ["down", OK]})),
        ends={"a": DEAD, "b": DONE},
        sees=frozenset({I.DEAD_IS_REDRIVABLE}),
        arrange=_unreadable,
    ),
    Scenario(
        name="unreadable row met twice",
        orders=(Order(user="a", scripts={"apns-1": ["down"]}),),
        ends={"a": DEAD},
        sees=frozenset({I.DEAD_IS_REDRIVABLE, I.STALE_WRITER_REFUSED}),
        arrange=_unreadable,
        always={("update_item", 1): Outcome.FREEZE},
    ),
    Scenario(
        name="overlapping ticks",
        orders=(
            *(Order(user=user, scripts={"apns-1": ["busy 1200", OK]}) for user in "abc"),
            Order(user="d", scripts={"apns-1": ["bad"]}),
        ),
        ends={"a": DONE, "b": DONE, "c": DONE, "d": DEAD},
        sees=frozenset({I.TICKS_OVERLAP}),
        shape=Shape(ticks=2, lanes=1, index_lag_ms=(0, 3_000), page=2),
        always={("send to burial", 1): Outcome.ERROR},
    ),
    Scenario(
        name="lease lost by two",
        orders=(Order(user="a", scripts={"apns-1": [OK], "apns-2": [OK], "fcm-1": ["down", OK]}),),
        ends={"a": DONE},
        sees=frozenset({I.STALE_WRITER_REFUSED, I.SENT_NEVER_AGAIN, I.SUCCESS_RECORDED}),
        always={("push", 1): Outcome.FREEZE, ("push", 2): Outcome.FREEZE},
    ),
    # What one reads, and another changes before the first one writes.
    Scenario(
        name="cancel overtaken by a claim",
        orders=(Order(user="a", scripts={"apns-1": ["down", POISON]}),),
        ends={"a": DEAD | CANCELLED},
        sees=frozenset({I.CANCEL_WINS}),
        arrange=_cancel("a", 10_000),
        always={("batch_execute_statement", 4): Outcome.FREEZE},
    ),
    Scenario(
        name="claim overtaken by a cancel",
        orders=(Order(user="a", scripts={"apns-1": [OK]}),),
        ends={"a": DONE | CANCELLED},
        sees=frozenset({I.CANCEL_WINS}),
        arrange=_cancel("a", 20),
        always={("batch_execute_statement", 2): Outcome.LOST_ANSWER},
    ),
    Scenario(
        name="cancel overtaken by a settle",
        orders=(Order(user="a", scripts={"apns-1": [OK], "fcm-1": ["busy 1200", OK]}),),
        ends={"a": DONE | CANCELLED},
        sees=frozenset({I.CANCEL_WINS, I.SENT_NEVER_AGAIN}),
        arrange=_cancel("a", 4_000),
        always={("push", 1): Outcome.SLOW, ("batch_execute_statement", 3): Outcome.FREEZE},
    ),
    Scenario(
        name="release overtaken by a cancel",
        orders=(
            Order(user="a", scripts={"apns-1": [OK]}, deliver_in_ms=1_000_000),
            Order(user="p", scripts={"apns-1": [POISON]}, deliver_in_ms=1_000_000),
        ),
        ends={"a": CANCELLED | DONE, "p": DEAD},
        sees=frozenset({I.CANCEL_WINS, I.POISON_ISOLATED}),
        arrange=_cancel("a", 1_150_000),
        always={("batch_execute_statement", 6): Outcome.FREEZE},
        shape=Shape(lanes=1),
    ),
    Scenario(
        name="cancel of the dead",
        orders=(Order(user="a", scripts={"apns-1": ["bad"]}),),
        ends={"a": CANCELLED | DEAD},
        sees=frozenset({I.CANCEL_WINS}),
        arrange=_cancelled_before_its_check,
        always={("send to burial", 1): Outcome.ERROR},
        shape=Shape(index_lag_ms=(70_000, 70_000)),
    ),
    Scenario(
        name="revive overtaken by a cancel",
        orders=(Order(user="a", scripts={"apns-1": ["bad", OK]}),),
        ends={"a": CANCELLED | DEAD | DONE},
        sees=frozenset({I.CANCEL_WINS}),
        arrange=_redriven_and_cancelled,
        always={("batch_execute_statement", 4): Outcome.FREEZE},
    ),
    Scenario(
        name="revive overtaken by a second death",
        orders=(Order(user="a", scripts={"apns-1": ["bad"]}),),
        ends={"a": DEAD},
        sees=frozenset({I.ONE_DEATH_REVIVES_ONCE}),
        arrange=_redriven_twice_slowly,
        always={("batch_execute_statement", 4): Outcome.FREEZE},
    ),
    Scenario(
        name="sight overtaken by a second death",
        orders=(Order(user="a", scripts={"apns-1": ["bad"]}),),
        ends={"a": DEAD},
        sees=frozenset({I.ONE_DEATH_REVIVES_ONCE}),
        arrange=_redriven_while_sighted,
        always={("update_item", 1): Outcome.FREEZE},
    ),
    Scenario(
        name="sight overtaken by a cancel",
        orders=(Order(user="a", scripts={"apns-1": ["bad"]}),),
        ends={"a": CANCELLED | DEAD},
        sees=frozenset({I.CANCEL_WINS}),
        arrange=_cancel("a", 20_000),
        always={("update_item", 1): Outcome.FREEZE},
    ),
    Scenario(
        name="erased meanwhile",
        orders=(Order(user="a", scripts={"apns-1": [OK]}),),
        ends={"a": {""} | DONE},  # done where the person was faster than the sender
        sees=frozenset({I.NO_JOB_LOST}),
        arrange=_erased,
        always={("push", 1): Outcome.FREEZE},
    ),
    Scenario(
        name="letter overtaken by a second death",
        orders=(Order(user="a", scripts={"apns-1": ["bad"]}),),
        ends={"a": DEAD},
        sees=frozenset({I.NO_REVIVAL_UNASKED}),
        arrange=_redriven_twice_slowly,
        always={("batch_get_item", 6): Outcome.FREEZE},
    ),
    Scenario(
        name="condemnation overtaken by a settle",
        orders=(Order(user="a", scripts={"apns-1": ["busy 1200", OK]}),),
        ends={"a": DONE | DEAD},
        sees=frozenset({I.STALE_WRITER_REFUSED}),
        arrange=_unreadable,
        always={("push", 1): Outcome.FREEZE, ("update_item", 1): Outcome.FREEZE},
    ),
    Scenario(
        name="death overtaken by a settle",
        orders=(Order(user="a", scripts={"apns-1": [OK]}, max_attempts=1),),
        ends={"a": DONE | DEAD},
        sees=frozenset({I.STALE_WRITER_REFUSED}),
        always={("push", 1): Outcome.FREEZE, ("batch_execute_statement", 4): Outcome.FREEZE},
    ),
)
