"""Without what only POSIX has: the package is imported, and an audit is made, saved and shown."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli_runs import jaxaudit

# Not _posixshmem, which joblib needs wherever Python calls the system POSIX.
MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "readline")
FUNCTIONS = (
    *("fork", "forkpty", "getuid", "geteuid", "getgid", "getegid", "getgroups", "sysconf", "sched_getaffinity"),
    *("sched_setaffinity", "pread", "preadv", "pwrite", "fchmod", "fchown", "chown", "lchown", "mkfifo", "mknod"),
    *("statvfs", "fstatvfs", "setsid", "getpgid", "killpg", "nice", "getloadavg", "sync", "confstr", "wait"),
    *("O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_CLOEXEC", "openpty", "ttyname", "register_at_fork", "posix_spawn"),
)
HIDE = f"""
import os, signal, sys, tempfile, subprocess, multiprocessing, platform, platformdirs
platform.uname(), tempfile.gettempdir(), platformdirs.user_cache_dir("jaxaudit")
for name in {MODULES}:
    sys.modules[name] = None
for name in {FUNCTIONS}:
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGALRM", "SIGUSR1", "SIGQUIT", "setitimer", "pthread_sigmask", "sigwait"):
    if hasattr(signal, name):
        delattr(signal, name)
"""
"""What the standard library itself settles by the system is settled before: it would choose otherwise elsewhere."""
RUN = f"""{HIDE}
from jaxaudit.cli import main
sys.argv = ["jaxaudit", *sys.argv[1:]]
main()
"""
IMPORT = f"""{HIDE}
import importlib, pkgutil, jaxaudit
skipped = {{"jaxaudit.__main__"}}
for module in pkgutil.walk_packages(jaxaudit.__path__, "jaxaudit."):
    if module.name not in skipped:
        importlib.import_module(module.name)
print(sum(name.startswith("jaxaudit.") for name in sys.modules))
"""

pytestmark = pytest.mark.outer


def python(code: str, *words: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::ImportWarning", "-c", code, *words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_is_imported(tmp_path: Path):
    assert int(python(IMPORT, cwd=tmp_path)) > 200


def test_an_audit_is_made_saved_and_shown(tmp_path: Path):
    words = ("pdtp", "--data", "wine", "--model", "nb", "--out", "run", "--report", "page.html")
    printed = python(RUN, *words, cwd=tmp_path)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["finding"]["verdict"] in printed
    assert result["finding"]["verdict"] in (tmp_path / "page.html").read_text()
    assert "@misc{long2017membership" in python(RUN, "cite", "run", cwd=tmp_path)
    # The same numbers as with everything.
    assert jaxaudit(*words[:5], "--json").result["records"] == result["records"]
