"""The code of the function in the template beside it."""

import os


def handle(event: dict[str, str], context: object) -> dict[str, int]:
    print(event["say"])  # noqa: T201 what a function prints is its log
    return {"pid": os.getpid()}
