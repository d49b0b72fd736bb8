"""JupyterLite in the browser: open a notebook, run its cells, read the outputs."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

# Each script gets `window.jupyterapp`, JupyterLab's application object.
READY = """async () => {
  while (!window.jupyterapp?.restored) await new Promise((resolve) => setTimeout(resolve, 50));
  await window.jupyterapp.restored;
}"""
OPEN = """async (path) => {
  const app = window.jupyterapp;
  const panel = await app.commands.execute('docmanager:open', { path, factory: 'Notebook' });
  await panel.context.ready;
  await panel.sessionContext.ready;
  app.shell.activateById(panel.id);
  await panel.sessionContext.session.kernel.info;
}"""
RUN_ALL = """async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  await window.jupyterapp.commands.execute('notebook:run-all-cells');
  return panel.content.model.toJSON();
}"""
CLOSE = """async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  await panel.context.save();
  const { id } = panel.sessionContext.session;
  panel.close();
  await window.jupyterapp.serviceManager.sessions.shutdown(id);
}"""
EXECUTE = """async (code) => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const outputs = [];
  const future = kernel.requestExecute({ code, allow_stdin: false });
  future.onIOPub = ({ header, content }) => {
    if (['stream', 'execute_result', 'display_data', 'error'].includes(header.msg_type)) {
      outputs.push({ output_type: header.msg_type, ...content });
    }
  };
  const reply = await future.done;
  return { status: reply.content.status, outputs };
}"""


COMPLETE = """async (code) => {
  const kernel = window.jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const reply = await kernel.requestComplete({ code, cursor_pos: code.length });
  return reply.content.matches;
}"""

PATIENCE_S = 240

# Console messages of JupyterLab that do not concern this project.
USUAL = (
    "Memory storage fallback enabled",
    "Disabling terminals plugin",
    "was preloaded using link preload but not used",
    "uncaught: Session [0-9a-f-]+ not found",  # it polls for a session that has just ended
)


class CellFailed(Exception):
    """Code in the kernel raised; the message is its traceback."""


class Notebooks:
    """JupyterLab in a page, with one notebook open at a time."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.path: str | None = None
        page.goto(url + "lab/index.html")
        self._do(READY)

    def open(self, path: str) -> None:
        """Open a notebook in place of the current one, and wait for its kernel."""
        if self.path is not None:
            self.close()
        self._do(OPEN, path)
        self.path = path

    def run_all(self) -> list[dict[str, Any]]:
        """Run every cell of the open notebook; return the cells in notebook format."""
        content: dict[str, Any] = self._do(RUN_ALL)
        cells: list[dict[str, Any]] = content["cells"]
        return cells

    def close(self) -> None:
        """Save and close the notebook and end its kernel."""
        self._do(CLOSE)
        self.path = None

    def execute(self, code: str) -> list[dict[str, Any]]:
        """Run `code` in the kernel as a separate cell; return its outputs.

        Raises:
            CellFailed: the code raised an exception.
        """
        reply: dict[str, Any] = self._do(EXECUTE, code)
        if reply["status"] != "ok":
            raise CellFailed("\n".join(line for o in reply["outputs"] for line in o.get("traceback", ())))
        outputs: list[dict[str, Any]] = reply["outputs"]
        return outputs

    def complete(self, code: str) -> list[str]:
        """Return the completions that Tab offers after `code`."""
        matches: list[str] = self._do(COMPLETE, code)
        return matches

    def _do(self, script: str, argument: str | None = None) -> Any:
        """Run an async function in the page; return its result, or fail after PATIENCE_S."""
        late = f"setTimeout(() => no(new Error('more than {PATIENCE_S} s')), {1000 * PATIENCE_S})"
        race = f"(argument) => Promise.race([({script})(argument), new Promise((_, no) => {late})])"
        return self.page.evaluate(race, argument)
