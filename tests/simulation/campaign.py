"""Random campaigns: a seed draws the deployment, the orders, the faults and what persons do."""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from simulation.faults import Dice
from simulation.provider import OK, POISON
from simulation.runs import run
from simulation.shape import DAY, HOUR, MINUTE, Order, Shape
from simulation.sqs import Manners
from simulation.wire import Outcome
from simulation.world import World

FAULTS_END_MS = 2 * HOUR
LAST_ACT_MS = 5 * HOUR

SCRIPTS = (
    [OK],
    [OK],
    [OK],
    ["busy", OK],
    ["busy 100", "down", OK],
    ["busy 1200", OK],
    ["busy 7200", OK],
    ["reset", "down 60", "busy", "reset", "down", OK],
    ["down"],
    ["gone"],
    ["bad"],
    ["bad", OK],
    ["large", "down", OK],
    [POISON],
    [POISON, OK],
)
MOVES = (
    Manners(),
    Manners(keeps_id=True),
    Manners(keeps_time=True),
    Manners(keeps_id=True, keeps_time=True, counts_on=True),
    Manners(move_keeps_id=False),
)
# How often a try of a call meets each, before the seed's own intensity.
RATES = {
    Outcome.ERROR: 0.015,
    Outcome.LOST_ANSWER: 0.02,
    Outcome.LATE: 0.015,
    Outcome.SLOW: 0.01,
    Outcome.THROTTLED: 0.06,
    Outcome.MURKY: 0.03,
    Outcome.CRASH_BEFORE: 0.008,
    Outcome.CRASH_AFTER: 0.008,
}


def campaign(seed: int) -> World:
    """Run one campaign; raises ``Failed`` with its trace."""
    dice = Random(seed)  # noqa: S311  (to be repeated, not to be secret)
    manners = dice.choice(MOVES)
    breaker_after = dice.choice((2, 10, 1_000))
    shape = Shape(
        lanes=dice.choice((1, 2, 4)),
        page=dice.choice((1, 2, 5, 50)),
        batch=dice.choice((1, 3, 10)),
        concurrency=dice.choice((1, 2, 5)),
        max_skew_ms=dice.choice((0, 500, 7_500)),
        index_lag_ms=(0, dice.choice((5, 500, 5_000, 70_000))),
        latency_ms=(1, dice.choice((5, 50, 400))),
        freeze_ms=(20_000, 300_000),
        ticks=dice.choice((1, 1, 2)),
        second_ticks=dice.random() < 0.3,
        throttled_pulls=dice.choice((0.0, 0.0, 0.1, 0.3)),
        lost_deletes=dice.choice((0.0, 0.1)),
        breaker_after=breaker_after,
        hidden_rows=dice.choice((0.0, 0.2)),
        burial_receives=dice.choice((2, 3, 5)),
        burial_read_from_ms=dice.choice((0, 0, 0, 2 * HOUR)),
        manners=Manners(
            keeps_id=manners.keeps_id,
            keeps_time=manners.keeps_time,
            counts_on=manners.counts_on,
            move_keeps_id=manners.move_keeps_id,
            doubled=dice.choice((0.0, 0.05, 0.2)),
        ),
    )
    intensity = dice.choice((0.2, 1.0, 2.5))
    rates = {outcome: rate * intensity for outcome, rate in RATES.items()}
    if dice.random() < 0.4:
        rates[Outcome.FREEZE] = 0.01 * intensity
    faults = Dice(
        Random(dice.random()),  # noqa: S311  (likewise)
        rates,
        outages=0.004 * intensity,
        storms=0.003 * intensity,
        silences=0.01 * intensity,
    )

    def stage(world: World) -> None:
        faults.clock = lambda: world.kernel.now_ms
        _arrange(world, dice, longest_s=HOUR // 1_000 if breaker_after < 10 else DAY // 1_000)

        def calm() -> None:
            faults.calm = world.calm = True
            world.watch.pace.quiet_since = world.kernel.now_ms

        world.person(FAULTS_END_MS, calm)
        world.run(days=2.5)  # what was revived last expires a day later
        if dice.random() < 0.15:
            _long(world, dice)

    return run(seed, faults, shape, stage, f"uv run pytest tests/simulation/test_campaign.py --seed {seed}")


def _arrange(world: World, dice: Random, *, longest_s: int) -> None:
    """``longest_s``: no order lives longer. An open breaker would be probed once a minute for a day."""
    orders = [_order(f"u{number}", dice, longest_s) for number in range(dice.randint(3, 9))]
    for order in orders:
        world.order(order, at_ms=dice.choice((0, dice.randint(0, 20 * MINUTE))))
    for _ in range(dice.randint(0, 3)):
        world.person(dice.randint(5 * MINUTE, LAST_ACT_MS), _redrive(world, dice, orders))
    for _ in range(dice.randint(0, 2)):
        job_id = dice.choice(orders).job_id
        world.person(dice.choice((dice.randint(0, 1_000), dice.randint(0, HOUR))), partial(world.cancel, job_id))
    for _ in range(dice.randint(0, 2)):  # somebody acts just when something is going on
        act = dice.choice((world.cancel, world.cancel, world.erase, world.redrive_by_function))
        world.at_write(dice.randint(1, 30), dice.choice((0, 5, 500, 3_000)), act)
    if dice.random() < 0.2:
        world.person(dice.randint(0, HOUR), world.withdraw)
    for act in (world.mute, world.remove):
        if dice.random() < 0.2:
            world.person(dice.randint(0, HOUR), partial(act, dice.choice(orders)))
    if dice.random() < 0.15:
        spoiled = dice.choice(orders).job_id
        world.person(dice.randint(0, HOUR), lambda: world.spoil(spoiled))


def _order(user: str, dice: Random, longest_s: int) -> Order:
    devices = dice.sample(("apns-1", "apns-2", "fcm-1"), dice.choice((1, 1, 2, 3)))
    return Order(
        user=user,
        scripts={device: dice.choice(SCRIPTS) for device in devices},
        max_attempts=dice.choice((1, 2, 3, 5, 5)),
        expires_in_s=min(longest_s, dice.choice((300, 3_600, 86_400, 86_400))),
        deliver_in_ms=dice.choice((0, 0, 0, 400_000, 2_000_000)),
        app=dice.choice(("shop", "bank")),
        large=dice.random() < 0.2,
        in_app=dice.random() < 0.15,
        channel=dice.random() < 0.3,
    )


def _redrive(world: World, dice: Random, orders: list[Order]) -> Callable[[], None]:
    """One of the ways in which a person redrives; sometimes two at once."""
    ways: Sequence[Callable[[], None]] = [
        world.redrive_by_console,
        world.redrive_by_console,
        lambda: world.redrive_by_console("work"),
        lambda: world.redrive_by_console("burial"),
        world.redrive_by_function,
        lambda: world.redrive_by_function(*[order.job_id for order in orders[:2]]),
    ]
    chosen = dice.sample(ways, dice.choice((1, 1, 2)))

    def act() -> None:
        for way in chosen:
            way()

    return act


def _long(world: World, dice: Random) -> None:
    """Weeks later: letters have left the dead-letter queue and come again, then TTL prunes what is over."""
    start_ms = world.kernel.now_ms
    for day in range(1, 18):
        world.kernel.at(start_ms + day * DAY, world.prune)
    world.kernel.run(start_ms + 18 * DAY)
    world.judge()
    for day in range(18, 35):
        world.kernel.at(start_ms + day * DAY, world.prune)
    world.kernel.run(start_ms + 36 * DAY)
    world.judge()
    world.happened["weeks later"] += 1
