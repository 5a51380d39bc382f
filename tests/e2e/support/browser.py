# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for tests, driven through Debian's chromedriver over HTTP.
Standard library only."""

import base64
import json
import pathlib
import shutil
import subprocess
import time
import urllib.request

from support.page_client import free_port

FOUND = shutil.which("chromium") and shutil.which("chromedriver")

# Every element with text of its own, and the contrast of that text with what is behind it; and what
# can be used but has no name. An element that shows an image behind its text is left out.
CHECK = """
const parse = (text) => {
  const parts = text.match(/[\\d.]+/g).map(Number);
  return text.startsWith("color(srgb") ? [...parts.slice(0, 3).map((p) => p * 255), parts[3] ?? 1]
                                       : [...parts.slice(0, 3), parts[3] ?? 1];
};
const light = ([r, g, b]) => {
  const part = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
};
const behind = (node) => {
  for (let at = node; at; at = at.parentElement) {
    const style = getComputedStyle(at);
    if (style.backgroundImage !== "none") return null;
    const colour = parse(style.backgroundColor);
    if (colour[3] > 0.99) return colour;
  }
  return [255, 255, 255, 1];
};
const problems = [];
for (const node of document.querySelectorAll("body *")) {
  const box = node.getBoundingClientRect();
  if (!box.width || !box.height || node.closest("[aria-hidden=true], noscript, option")) continue;
  const own = [...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim());
  if (own && !node.disabled && !node.closest(".unseen, .skip")) {
    const back = behind(node);
    if (back) {
      const a = light(parse(getComputedStyle(node).color)), b = light(back);
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      const text = node.textContent.slice(0, 40);
      if (ratio < 4.5) problems.push(`contrast ${ratio.toFixed(2)}: ${text}`);
    }
  }
  if (node.matches("a[href], button, input, select, textarea")) {
    const name = node.getAttribute("aria-label") || node.textContent.trim() || node.labels?.length;
    if (!name) problems.push(`no name: ${node.outerHTML.slice(0, 80)}`);
    if (!node.disabled && node.tabIndex < 0) problems.push(`not by keyboard: ${name}`);
  }
  const scrolls = ["auto", "scroll"].includes(getComputedStyle(node).overflowX);
  const inside = node.querySelector("a[href], button, input, select, textarea");
  if (scrolls && node.scrollWidth > node.clientWidth + 1 && node.tabIndex < 0 && !inside)
    problems.push(`scrolls, but not by keyboard: ${node.className}`);
  if (node.matches("img:not([alt])")) problems.push("an image without alt");
}
const wide = document.documentElement.scrollWidth - window.innerWidth;
if (wide > 1) problems.push(`${wide} pixels wider than the window`);
const heads = document.querySelectorAll("h1").length;
if (heads !== 1) problems.push(`${heads} first headings`);
return [...new Set(problems)];
"""


class Browser:
    """Use as a context manager."""

    def __init__(self):
        port = free_port()
        self.base = f"http://127.0.0.1:{port}"
        self.driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        arguments += ["--hide-scrollbars", "--disable-background-networking", "--no-first-run"]
        wanted = {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        for attempt in range(100):
            try:
                body = {"capabilities": {"alwaysMatch": wanted}}
                self.session = self.call("POST", "session", body)
                break
            except OSError:
                if attempt == 99:
                    raise
                time.sleep(0.2)
        self.path = "session/" + self.session["sessionId"] + "/"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("DELETE", self.path.rstrip("/"))
        finally:
            self.driver.terminate()
            self.driver.wait(10)

    def call(self, method, path, body=None):
        request = urllib.request.Request(
            f"{self.base}/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]

    def developer(self, command, **parameters):
        """A command of the developer tools."""
        body = {"cmd": command, "params": parameters}
        return self.call("POST", self.path + "goog/cdp/execute", body)

    def size(self, width, height=900):
        self.developer(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def dark(self, dark):
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.developer("Emulation.setEmulatedMedia", features=[feature])

    def go(self, url):
        self.call("POST", self.path + "url", {"url": url})

    def run(self, script, *arguments):
        body = {"script": script, "args": list(arguments)}
        return self.call("POST", self.path + "execute/sync", body)

    def wait(self, script, seconds=20):
        """Until the script gives something true, which is returned."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.run("return " + script)
            if value:
                return value
            if time.monotonic() > deadline:
                shown = self.run("return document.body.innerText.slice(0, 600)")
                raise AssertionError(f"{script} did not come true; the page says: {shown}")
            time.sleep(0.05)

    def press(self, *keys):
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        body = {"actions": [{"type": "key", "id": "keys", "actions": actions}]}
        self.call("POST", self.path + "actions", body)

    def picture(self, path):
        data = base64.b64decode(self.call("GET", self.path + "screenshot"))
        pathlib.Path(path).write_bytes(data)

    def console(self):
        """What the console has said since the last call."""
        return [e["message"] for e in self.call("POST", self.path + "se/log", {"type": "browser"})]

    def traffic(self):
        """Messages of the network since the last call."""
        entries = self.call("POST", self.path + "se/log", {"type": "performance"})
        return [json.loads(entry["message"])["message"] for entry in entries]

    def problems(self):
        """What is wrong with contrast, names and widths of what is shown."""
        return self.run(CHECK)
