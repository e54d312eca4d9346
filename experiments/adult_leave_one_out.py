"""Twenty thousand leave-one-out networks of Adult by two workers: undisturbed, and with a worker and the driver killed.

    JAXAUDIT_DATA=FOLDER python -m experiments.adult_leave_one_out    # a quarter of an hour on two cores

The command line is the real one, in processes of its own. The second run loses a worker by SIGKILL, then the driver by
SIGKILL, and is started again. Both must write the same records, byte for byte. Writes
`results/adult_leave_one_out-DEVICE.json` and `.md`.
"""

import argparse
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from experiments.record import RESULTS, describe_run, device_slug
from experiments.summary import Row

FIRST_KILL, SECOND_KILL = 0.2, 0.4
"""The share of the models after which a worker is killed, and after which the driver is."""
PERCENT = re.compile(rb"(\d+)%[^\r\n]*$")


def words(records: int, workers: int, out: Path) -> list[str]:
    recipe = ["--model", "nn", "--hidden", "32", "--epochs", "5", "--batch-size", "256"]
    asked = ["pdtp", "--data", "adult", "--sample", str(records), *recipe, "--workers", str(workers)]
    return [sys.executable, "-m", "jaxaudit", *asked, "--out", str(out)]


def started(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=file)


def share(log: Path) -> float:
    """How far a run says that it is."""
    found = PERCENT.findall(log.read_bytes().replace(b"\r", b"\n").strip().rpartition(b"\n")[2])
    return int(found[-1]) / 100 if found else 0.0


def workers_of(process: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=False)
    return sorted(map(int, found.stdout.split()))


def wait_for(reached: float, run: subprocess.Popen[bytes], log: Path) -> None:
    while share(log) < reached:
        if run.poll() is not None:
            raise SystemExit(f"the run ended with status {run.returncode} before it could be disturbed")
        time.sleep(0.5)


def undisturbed(command: list[str], log: Path) -> float:
    began = time.monotonic()
    if started(command, log).wait() != 0:
        raise SystemExit("the run failed: " + log.read_text("utf-8", "replace")[-500:])
    return time.monotonic() - began


def disturbed(command: list[str], log: Path) -> None:
    run = started(command, log)
    wait_for(FIRST_KILL, run, log)
    os.kill(workers_of(run.pid)[0], signal.SIGKILL)
    wait_for(SECOND_KILL, run, log)
    orphans = workers_of(run.pid)
    run.kill()
    run.wait()
    time.sleep(2)
    if alive := [each for each in orphans if Path(f"/proc/{each}").exists()]:
        raise SystemExit(f"workers {alive} outlive their driver")
    undisturbed(command, log)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        whole, killed, log = Path(folder) / "whole", Path(folder) / "killed", Path(folder) / "killed.log"
        seconds = undisturbed(words(arguments.records, arguments.workers, whole), Path(folder) / "whole.log")
        disturbed(words(arguments.records, arguments.workers, killed), log)
        said = log.read_text("utf-8", "replace")
        digests = [
            hashlib.sha256((each / name).read_bytes()).hexdigest()
            for name in ("records.csv", "records.parquet")
            for each in (whole, killed)
        ]
        result = json.loads((whole / "result.json").read_text("utf-8"))
    models = re.search(r"([\d,]+) models", said)
    resumed = re.search(r"Resuming: (\d+) of", said)
    found = {
        "models": int(models[1].replace(",", "")) if models else None,
        "seconds": round(seconds, 1),
        "resumed_with": int(resumed[1]) if resumed else 0,
        "tried_again": said.count("trained again"),
        "same": digests[0] == digests[1] and digests[2] == digests[3],
        "largest_pdtp": result["max_pdtp"],
        "verdict": result["finding"]["verdict"],
    }
    run = describe_run(vars(arguments), time.time() - began)
    record = {"experiment": "adult_leave_one_out", **run, "rows": [found]}
    name = f"adult_leave_one_out-{device_slug()}"
    (arguments.out / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    (arguments.out / f"{name}.md").write_text("\n".join(page(record)) + "\n")
    print("\n".join(page(record)))


def page(record: dict[str, Any]) -> list[str]:
    """The result, in words."""
    found, workers = record["rows"][0], record["options"]["workers"]
    return [
        "# Leave-one-out networks of Adult by workers that die",
        "",
        f"`jaxaudit pdtp --data adult` trains {found['models']:,} networks by {workers} workers in "
        f"{found['seconds']:.0f} seconds, processes' start included. {record['device']}.",
        "",
        f"A second run lost a worker (SIGKILL) at {FIRST_KILL:.0%} of the models and its driver (SIGKILL) at "
        f"{SECOND_KILL:.0%}, was started again with {found['resumed_with']:,} models kept; workers' ends cost "
        f"{found['tried_again']} chunks another try. Its records are "
        f"{'the same, byte for byte' if found['same'] else 'OTHERS'}.",
        "",
        f"Largest PDTP: {found['largest_pdtp']:.3f} nats ({found['verdict']}).",
    ]


def summary(result: dict[str, Any]) -> list[Row]:
    """The row of `experiments/README.md`."""
    found = result["rows"][0]
    return [
        Row(
            "none",
            f"{found['models']:,} leave-one-out networks of Adult by {result['options']['workers']} workers",
            "records of a run that lost a worker and its driver, beside those of one that did not",
            "the same",
            f"{'the same' if found['same'] else 'OTHERS'}, byte for byte; {found['seconds']:.0f} s undisturbed",
            "Networks are small (32 hidden units, 5 epochs): what is shown is the way there, not Adult's risk.",
            "",
        )
    ]


if __name__ == "__main__":
    main()
