"""What a person who redrives may ask for, as a pydantic model."""

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from pushlease.codes import Code
from pushlease.edge import AppIdText, NotificationIdText, Request
from pushlease.jobs.job import JobId
from redrive.usecase import Filter


class RedriveModel(Request):
    """Which dead jobs shall run again."""

    action: Literal["redrive"] = "redrive"
    job_ids: Annotated[list[Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]], Field(max_length=1000)] = []
    app_id: AppIdText | None = None
    notification_id: NotificationIdText | None = None
    code: Annotated[Code, Field(strict=False)] | None = None
    all: bool = False  # every dead job: to be said, since no condition would mean the same
    limit: Annotated[int, Field(ge=1, le=1000)] = 1000
    dry_run: bool = False

    @model_validator(mode="after")
    def _some_condition(self) -> Self:
        if not (self.job_ids or self.app_id or self.notification_id or self.code or self.all):
            raise ValueError("must name job_ids, app_id, notification_id or code, or say all: true")
        return self

    def filter(self) -> Filter:
        """As the use case's value."""
        return Filter(
            job_ids=[JobId(job_id) for job_id in self.job_ids],
            app_id=self.app_id,
            notification_id=self.notification_id,
            code=self.code,
            limit=self.limit,
            dry_run=self.dry_run,
        )
