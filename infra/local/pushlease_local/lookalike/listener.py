"""A loopback TLS port and the connections that it has open."""

import asyncio
import ssl

from pushlease_local.lookalike.connection import Connection
from pushlease_local.lookalike.desk import Desk


class Listener:
    """Serves one desk on a free port of 127.0.0.1, from `open` to `close`."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.connections: set[Connection] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def open(self, tls: ssl.SSLContext) -> str:
        """Listen; returns the base URL."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=tls)
        return f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        """Stop listening and cut what is open."""
        if self._server is not None:
            self._server.close()
            self._server.abort_clients()
            await self._server.wait_closed()
        await asyncio.gather(*self._serving)

    def cut(self) -> None:
        """Cut every open connection."""
        for connection in tuple(self.connections):
            connection.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.desk.outage == "closed":
            writer.transport.abort()
            return
        connection = Connection(reader, writer, self.desk)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs this callback as a task
        self.connections.add(connection)
        self._serving.add(task)
        try:
            await connection.serve()
        finally:
            self.connections.discard(connection)
            self._serving.discard(task)
