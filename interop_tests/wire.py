"""A way to the broker that can be cut: both ends then see their connection end without a word of protocol, as when a cable is pulled."""

from __future__ import annotations

import socket
import threading


class Wire:
    def __init__(self, port: int) -> None:
        self.target = port
        self.ends: list[socket.socket] = []
        self.lock = threading.Lock()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listening.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def accept(self) -> None:
        while True:
            try:
                near, _ = self.listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            with self.lock:
                self.ends += (near, far)
            for source, sink in ((near, far), (far, near)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self.carry, args=(source, sink), daemon=True).start()

    @staticmethod
    def carry(source: socket.socket, sink: socket.socket) -> None:
        try:
            while chunk := source.recv(65_536):
                sink.sendall(chunk)
        except OSError:
            pass
        hang_up(sink)

    def cut(self) -> None:
        """End every connection; new ones are accepted."""
        with self.lock:
            ends, self.ends = self.ends, []
        for end in ends:
            hang_up(end)
            end.close()

    def close(self) -> None:
        hang_up(self.listening)
        self.listening.close()
        self.cut()


def hang_up(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
