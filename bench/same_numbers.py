"""Does a change leave the numbers of every command as they were, bit for bit? Save before it, compare after it.

    python bench/same_numbers.py save before
    python bench/same_numbers.py compare before
    python bench/same_numbers.py compare before --only ks "power by a bank"

Thirty runs of all commands on small made sets: models trained here and by a bank, banks that were planned, grown,
imported and continued after a kill, every classifier, every attack, every unlearning method. Kept are the JSON result
of each and a digest of every array that it wrote. Times, versions and the command's own words are left out.

Numbers are those of one machine and one set of libraries: save and compare on the same.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.canaries import write_inputs, write_outputs  # noqa: E402
from support.other_tools import write_lira  # noqa: E402

LEFT_OUT = {"started", "seconds", "versions", "command", "options", "machine", "device", "jaxaudit"}
"""Of a result's provenance."""
SHOWN = 8
SMALL = "--recipe hidden=8 --epochs 2 --recipe batch-size=50 --recipe models-per-batch=20"
ENOUGH = "--effort full"
WITHOUT_HOLDOUT = f"{ENOUGH} --tests shadow,rho --test-option rho.replicates=3 --test-option shadow.never=20"
HELD = f"{ENOUGH} --test-option holdout.mixed=20"
SETS = "--deal two --calibration leakfile_other.npz"
PAIR = "--query deal/query.npz --calibration leakfile_other.npz"
GROUPS = "--groups group"
MEMBERS = "--deal deal --target of-three"
TARGET = "--target of-two"
TWO_SETS = "--target with-calibration"
PEOPLE = "--data leakfile_people.csv --label diagnosis --drop town"
NETWORK = "--recipe hidden=8 --epochs 3 --recipe models-per-batch=20"
ONE_EPOCH = " ".join(
    f"--method-option {name}.epochs=1" for name in ("fine-tuning", "gradient-ascent", "negative-gradient", "scrub")
)
FORGET = "--data leakfile.npz --test-data leakfile_other.npz --class leakclass1 --recipe hidden=8 --epochs 2"
RUNS = {
    "ks": f"ks {SETS} {TARGET} {SMALL} {HELD} --test-option shadow.never=20 --tests all --out RUN",
    "ks by groups": f"ks {SETS} {GROUPS} {TARGET} {SMALL} {HELD} --out RUN",
    "ks of simulated targets": f"ks {PAIR} {SMALL} {WITHOUT_HOLDOUT} --same-recipe --out RUN",
    "ks by two sets": f"ks {PAIR} {TWO_SETS} {SMALL} {WITHOUT_HOLDOUT} --out RUN",
    "ks by the query set alone": f"ks {PAIR} --target query.csv {SMALL} {WITHOUT_HOLDOUT} --out RUN",
    "ks by members": f"ks {MEMBERS} --out RUN",
    "ks of what is left": f"ks {MEMBERS} {GROUPS} --question left --out RUN",
    "ks of a deletion": f"ks {SETS} {TARGET} --before before {SMALL} {HELD} --same-recipe --out RUN",
    "ks by a bank": f"ks --shadows ks {TARGET} --leave-one-out --out RUN",
    "ks by a bank and members": f"ks --shadows ks {MEMBERS} {GROUPS} --same-recipe --out RUN",
    "power": f"power {PAIR} {SMALL} --models 20 --effort full --out RUN",
    "power by a bank": "power --shadows ks --out RUN",
    "attack by a bank": "attack --shadows ks --target query.csv --out RUN",
    "shadows train": f"shadows train {SETS} {GROUPS} {SMALL} --models 4 --out RUN",
    "shadows train, more": f"shadows train {SETS} {GROUPS} {SMALL} --models 6 --out RUN:shadows-train",
    "shadows train, killed": f"shadows train {SETS} --recipe hidden=8 --epochs 400 --recipe models-per-batch=1 "
    "--models 6 --out RUN",
    "shadows plan": f"shadows plan {SETS} --models 4 --out RUN",
    "shadows add": "shadows add shadows-plan one.npy",
    "shadows import": "shadows import experiments --out RUN",
    "attack by an imported bank": "attack --shadows shadows-import --attacks lira,rmia,base,attack-p --out RUN",
    "pdtp nb": f"pdtp {PEOPLE} --model nb --out RUN",
    "pdtp of an estimator": f"pdtp {PEOPLE} --model sklearn.ensemble:ExtraTreesClassifier --recipe n_estimators=10 "
    "--sample 100 --measured-records 10 --out RUN",
    "pdtp nn": f"pdtp {PEOPLE} --model nn {NETWORK} --sample 100 --measured-records 20 --out RUN",
    "pdtp, killed": f"pdtp {PEOPLE} --model nn --epochs 400 --recipe models-per-batch=1 --sample 100 "
    "--measured-records 6 --out RUN",
    "attack": f"attack {PEOPLE} --model nb --targets 8 --iterations 4 --out RUN",
    "attack nn": f"attack {PEOPLE} --model nn {NETWORK} --targets 8 --iterations 3 --out RUN",
    "unlearn": f"unlearn {FORGET} --methods retraining,amnesiac,fisher,fine-tuning,gradient-ascent,negative-gradient,"
    f"scrub,ssd --seeds 16 --attack-epochs 2 {ONE_EPOCH} --recipe models-per-batch=8 --out RUN",
    "efficacy": "efficacy --model mlp --recipe hidden=8 --params unlearn/original-00.safetensors --data leakfile.npz "
    "--reference untrained --out RUN",
}
"""By name; RUN is a directory of the name, and what comes later reads those of before."""


def write_files(folder: Path) -> None:
    """What the runs read; the sets of the deal are dealt by the first of them."""
    write_inputs(folder)
    jaxaudit("deal leakfile.npz --groups patient --members-share 0.3 --holdout-share 0.4 --seed 5 --out deal", folder)
    labels = {name: np.load(folder / "deal" / f"{name}.npz")["y"] for name in ("query", "holdout", "members")}
    labels["other"] = np.load(folder / "leakfile_other.npz")["y"]
    for name, of_set in labels.items():
        write_outputs(folder / f"{name}.csv", of_set, 0.1 * (name == "members"))
    write_outputs(folder / "before.csv", labels["query"], 0.1)
    sets = {"query": "query.csv", "holdout": "holdout.csv", "members": "members.csv"}
    two = {role: sets[role] for role in ("query", "holdout")}
    models = {
        "of-three": sets,
        "of-two": two,
        "with-calibration": {"query": "query.csv", "calibration": "other.csv"},
        "before": {**two, "query": "before.csv"},
        "two": {f"{role}": f"deal/{role}.npz" for role in two},
    }
    for name, files in models.items():
        (folder / name).mkdir()
        for role, file in files.items():
            shutil.copy(folder / file, folder / name / f"{role}{Path(file).suffix}")
    count = sum(len(labels[name]) for name in ("query", "holdout", "other"))
    np.save(folder / "one.npy", np.random.default_rng(1).normal(size=(count, 3)))
    write_lira(folder / "experiments", 20)


def jaxaudit(words: str, folder: Path, killed: Path | None = None) -> None:
    """Runs it as a process; with `killed`, where it writes: it is killed once a chunk is kept there, and run again."""
    command = [sys.executable, "-m", "jaxaudit", *words.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAXAUDIT_CACHE": str(folder / "cache")}
    if killed is not None:
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as run:
            while run.poll() is None and not _keeps_a_chunk(killed):
                time.sleep(0.01)
            run.send_signal(signal.SIGKILL)
        if run.returncode != -signal.SIGKILL:
            raise SystemExit(f"jaxaudit {words}\nended before it was killed")
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"jaxaudit {words}\n{done.stderr}")


def _keeps_a_chunk(run: Path) -> bool:
    try:
        return any(run.rglob("[0-9]*-*.npz")) or any(run.glob("outputs/*.npy"))
    except FileNotFoundError:  # A folder that was there when it was listed.
        return False


def numbers(runs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Of each run: its result, flat, and digests of its arrays."""
    found = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_files(folder)
        for name in runs:
            words = RUNS[name]
            out = name.replace(",", "").replace(" ", "-")
            whole, colon, other = words.partition("RUN:")
            out, words = (other, whole + other) if colon else (out, words.replace("RUN", out))
            jaxaudit(words, folder, folder / out if "killed" in name else None)
            found[name] = dict(_of_run(folder / (out if "--out" in words else "shadows-plan")))
            print(f"{name}: {len(found[name]):,} numbers and arrays", file=sys.stderr)
    return found


def _of_run(run: Path) -> Iterator[tuple[str, Any]]:
    for path in sorted(path for path in run.rglob("*") if path.is_file()):
        name = str(path.relative_to(run))
        if path.suffix == ".json":
            yield from _flat(json.loads(path.read_text()), name)
        elif path.suffix == ".npz":
            with np.load(path) as arrays:
                yield from ((f"{name} {key}", _digest(arrays[key])) for key in arrays)
        elif path.suffix == ".npy":
            yield name, _digest(np.load(path))
        elif path.suffix == ".parquet":
            table = pyarrow.parquet.read_table(path)
            yield from ((f"{name} {key}", _digest(table[key].to_numpy())) for key in table.column_names)
        elif path.suffix in (".csv", ".txt", ".safetensors"):
            yield name, hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _digest(array: np.ndarray) -> str:
    text = array.astype(str) if array.dtype.hasobject else array
    return f"{array.dtype} {array.shape} {hashlib.sha256(np.ascontiguousarray(text).tobytes()).hexdigest()[:16]}"


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key not in LEFT_OUT:
                yield from _flat(each, f"{name} {key}")
    elif isinstance(value, list) and any(isinstance(each, dict | list) for each in value):
        for place, each in enumerate(value):
            yield from _flat(each, f"{name} {place}")
    else:
        yield name, value


def compare(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> int:
    """Prints what differs, run by run; how many runs do."""
    differing = 0
    for name in after:
        old, new = before.get(name, {}), json.loads(json.dumps(after[name]))
        said = [f"  {key}: {old[key]!r} -> {new[key]!r}"[:200] for key in old if key in new and old[key] != new[key]]
        said += [f"  gone: {key}" for key in old if key not in new] + [f"  new: {key}" for key in new if key not in old]
        print(f"{name}: {'the same' if not said else f'{len(said)} differ'}")
        print("\n".join([*said[:SHOWN], "  ..."][: len(said) + (len(said) > SHOWN)]), end="\n" if said else "")
        differing += bool(said)
    return differing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("save", "compare"))
    parser.add_argument("file", type=Path, help="where the numbers are kept, as JSON")
    parser.add_argument(
        "--only", nargs="+", choices=RUNS, default=list(RUNS), metavar="RUN", help="with those it reads"
    )
    given = parser.parse_args()
    if given.what == "save":
        given.file.write_text(json.dumps(numbers(given.only), indent=1))
    else:
        sys.exit(bool(compare(json.loads(given.file.read_text()), numbers(given.only))))


if __name__ == "__main__":
    main()
