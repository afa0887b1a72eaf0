"""The notebooks in a real JupyterLab: the first runs in full, the others are opened."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell
from scripts import NOTEBOOKS, ROOT
from tiny_jobs import wait_for

from mmlib.suite import runner
from mmlib.suite.course import versions

ASKED = yaml.safe_load((ROOT / "tests/suite/lab.yaml").read_text(encoding="utf-8"))


class Lab:
    """A JupyterLab on copies of the notebooks: port, token, settings and all files of its own."""

    def __init__(self, home):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.token, self.address = secrets.token_hex(16), f"http://127.0.0.1:{port}"
        self.notebooks = home / "notebooks"
        versions.write("student", self.notebooks, NOTEBOOKS)
        names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
        own = {name: str(home / name.lower()) for name in names}
        for name, content in ASKED["settings"].items():
            path = home / f"jupyter_config_dir/lab/user-settings/@jupyterlab/{name}"
            path.parent.mkdir(parents=True)
            path.with_suffix(".jupyterlab-settings").write_text(json.dumps(content))
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1"]
        command += [f"--port={port}", "--ServerApp.port_retries=0", "--expose-app-in-browser"]
        command += [f"--ServerApp.root_dir={self.notebooks}", "--allow-root"]
        environment = os.environ | own | {"HOME": str(home), "JUPYTER_TOKEN": self.token}
        self.process = subprocess.Popen(command, cwd=home, env=environment)

    def ask(self, path, method="GET"):
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.address}/api/{path}", None, headers, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read() or "null")

    def is_ready(self):
        assert self.process.poll() is None
        try:
            return self.ask("status")
        except OSError:
            return False

    def end_sessions(self):
        """End the kernels; a notebook that is opened again gets a new one."""
        for session in self.ask("sessions"):
            self.ask(f"sessions/{session['id']}", "DELETE")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    server = Lab(tmp_path_factory.mktemp("lab"))
    try:
        wait_for(server.is_ready, seconds=120)
        yield server
        server.end_sessions()
    finally:
        server.process.send_signal(signal.SIGTERM)
        try:
            server.process.wait(20)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()


@pytest.mark.parametrize(("user", "told"), [(0, True), (1000, False)])
def test_root_can_open_the_lab(tmp_path, user, told):
    for name, line in (("id", f"echo {user}"), ("jupyter-lab", 'echo "$@"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    command = ["make", "-s", "-o", "none", "lab", "READY=none", f"BIN={tmp_path}"]
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | path, capture_output=True, text=True, check=True
    )
    assert ("--allow-root" in done.stdout) == told
    assert "--LabApp.default_url=/lab/tree/notebooks/00_" in done.stdout


@contextmanager
def opened(browser, lab, name, run):
    """A page with a notebook in the lab, its cells run where asked; then its kernel is ended."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(1000 * runner.TIME_LIMITS["world"])
    page.goto(f"{lab.address}/lab/tree/{name}?reset&token={lab.token}")
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    page.wait_for_function(f"() => {ASKED['idle']}")
    if run:
        page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells') }")
        page.wait_for_timeout(3000)
        page.wait_for_function(f"() => {ASKED['idle']} && {ASKED['done']}", polling=1000)
    yield page
    if shots := os.environ.get("MMLIB_SCREENSHOTS"):
        page.screenshot(path=f"{shots}/{name}.png")
    page.close()
    lab.end_sessions()


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_in_the_browser(source, browser, lab):
    cells = nbformat.read(source, as_version=4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    with opened(browser, lab, source.name, run=source == NOTEBOOKS[0]) as page:
        page.wait_for_selector(".jp-RenderedMarkdown h1")
        seen = page.evaluate(ASKED["seen"])
    assert seen["heading"] == cells[0].source.splitlines()[0].removeprefix("# ")
    assert (seen["errors"], seen["unrun"]) == ([], 0)
    assert seen["pictures"] == sum("image/png" in output.get("data", {}) for output in outputs) > 0


@pytest.mark.parametrize("source", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_slider_that_moves_redraws_its_picture(source, browser, lab):
    notebook = nbformat.read(source, as_version=4)
    needed = ASKED["needed"][source.stem[:2]]
    notebook.cells = [new_code_cell(cell.source) for cell in notebook.cells if cell.id in needed]
    nbformat.write(notebook, lab.notebooks / (name := f"dial-{source.name}"))
    with opened(browser, lab, name, run=True) as page:
        parts = (page.locator(f".widget-slider .noUi-{part}").first for part in ("handle", "base"))
        before, (handle, bar) = page.evaluate(ASKED["dialled"]), parts
        box, x = bar.bounding_box(), handle.bounding_box()["x"] + 8
        farther = (box["width"] - 1) * (x < box["x"] + box["width"] / 2)
        handle.drag_to(bar, target_position={"x": farther, "y": 2}, force=True)
        page.wait_for_function(ASKED["redrawn"], arg=before, timeout=60_000)
        assert page.evaluate(ASKED["seen"])["errors"] == []
