"""The proxy that the other tests measure and break connections with: it leaves nothing open."""

from __future__ import annotations

import contextlib
import gc
import socket
import threading
import time

from memfs.testing import Moto, Proxy


def test_left_while_clients_connect(moto_server: Moto) -> None:
    """Left at any moment, with clients that connect and hang up as fast as they can: no socket is unclosed.

    One that is, is a ResourceWarning when it is collected, and this suite's warnings are errors.
    """

    def connect(port: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                with socket.create_connection(("127.0.0.1", port), timeout=0.1) as client:
                    client.sendall(b"GET / HTTP/1.1\r\n\r\n")

    for n in range(40):
        with Proxy(moto_server.port, rtt_s=n % 2 / 1000) as proxy:
            clients = [threading.Thread(target=connect, args=(proxy.port,)) for _ in range(4)]
            for client in clients:
                client.start()
            time.sleep(n / 4000)
        for client in clients:
            client.join()
    gc.collect()
