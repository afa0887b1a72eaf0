"""A JupyterLab for browser tests."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

# Running a cell before its notebook has a kernel does nothing and says nothing.
READY = """() =>
    window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === "idle"
"""


class Lab:
    """A JupyterLab of its own: port, token, settings and all files of its own."""

    def __init__(self, root):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.token, self.address = secrets.token_hex(16), f"http://127.0.0.1:{port}"
        home = root.parent / "home"
        names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
        own = {name: str(home / name.lower()) for name in names}
        quiet = home / "jupyter_config_dir/lab/user-settings/@jupyterlab/apputils-extension"
        quiet.mkdir(parents=True)
        # All cells are on the page, not only those in view.
        tracker = quiet.parent / "notebook-extension/tracker.jupyterlab-settings"
        tracker.parent.mkdir()
        tracker.write_text(json.dumps({"windowingMode": "none"}))
        (quiet / "notification.jupyterlab-settings").write_text(
            json.dumps({"fetchNews": "false", "checkForUpdates": False, "doNotDisturbMode": True})
        )
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1"]
        command += [f"--port={port}", "--ServerApp.port_retries=0", "--expose-app-in-browser"]
        command += [f"--ServerApp.root_dir={root}", "--allow-root"]
        self.log = root.parent / "lab.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=root, stdout=log, stderr=log,
                env=os.environ | own | {"HOME": str(home), "JUPYTER_TOKEN": self.token},
            )  # fmt: skip

    def ask(self, path, method="GET"):
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.address}/api/{path}", None, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or "null")

    def wait(self):
        for _ in range(240):
            try:
                return self.ask("status")
            except OSError:
                assert self.process.poll() is None, self.log.read_text()
                time.sleep(0.5)
        raise AssertionError(self.log.read_text())

    def end_sessions(self):
        """End the kernels; a notebook that is opened again gets a new one."""
        for session in self.ask("sessions"):
            self.ask(f"sessions/{session['id']}", "DELETE")
        assert self.ask("kernels") == []

    def stop(self):
        try:
            self.end_sessions()
        except OSError:
            pass  # it is gone already
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def running_lab(root):
    """A JupyterLab on a folder, ready, and stopped in the end."""
    lab = Lab(root)
    try:
        lab.wait()
        yield lab
    finally:
        lab.stop()
