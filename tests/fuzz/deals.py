"""Deals of records with groups, and audits of what was dealt: query set, holdout and known members."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from PIL import Image
from pyarrow import parquet
from support.banks import logits
from support.deals import write_deal, write_model

from fuzz.commands import Ran, command, swept
from fuzz.readers import SECRET, Reader
from jaxaudit.data import load
from jaxaudit.data.challenge import Key, answers_of, key_as_json, load_answers, read_key
from jaxaudit.data.examples import Role

RECORDS, CLASSES, A_GROUP = 240, 3, 4
ROLES = {"query": 20, "holdout": 24, "members": 52}
"""Too few to teach how difficult they are: that would train, for longer than a case may take."""
MODELS = ("model", "model.npz", "model.csv")
PATIENTS = np.array([f"{SECRET} {row // A_GROUP}" for row in range(RECORDS)])


def records(count: int, start: int = 0) -> dict[str, Any]:
    inputs = np.random.default_rng(start).normal(size=(count, CLASSES)).astype(np.float32)
    return {"x": inputs, "y": np.arange(count) % CLASSES}


def to_deal(folder: Path) -> None:
    """Records with groups: as an array, a column of a table, and files of groups alone."""
    whole = records(RECORDS)
    np.savez(folder / "all.npz", **whole, patient=PATIENTS)
    np.savez(folder / "plain.npz", **whole)
    rows = zip(*whole["x"].T, whole["y"], PATIENTS, strict=True)
    lines = ["a,b,c,label,patient", *(",".join(map(str, row)) for row in rows), ""]
    (folder / "all.csv").write_text("\n".join(lines))
    np.save(folder / "groups.npy", np.arange(RECORDS) // A_GROUP)
    (folder / "groups.csv").write_text("\n".join(["group", *PATIENTS, ""]))


def dealt(folder: Path, choose: random.Random) -> object:
    """The sides, none of which has the name of a group: in a table its cells may stand in any column."""
    data, groups = choose.choice(
        (("all.npz", "patient"), ("all.csv", "patient"), ("plain.npz", "groups.npy"), ("plain.npz", "groups.csv"))
    )
    shares = choose.choice((("--members-share", "0.3"), ("--withdraw", "0.4"), ()))
    with swept(folder):
        ran = command(folder, ("deal", data, "--groups", groups, *shares, "--out", "dealt"))
        facts = json.loads((folder / "dealt" / "deal.json").read_text())
        for file in (folder / "dealt").iterdir():
            content = file.read_bytes()
            if data != "all.csv" and any(
                SECRET.encode(coding) in content for coding in ("utf-8", "utf-32-le", "utf-32-be")
            ):
                raise AssertionError(f"{file.name} has the name of a group")
        sides = [facts[role]["records"] for role in ROLES if facts[role]]
        if sum(sides) != facts["source"]["records"]:
            raise AssertionError(f"{sides} of {facts['source']['records']} records were dealt")
        return without_names(ran)


def texts_to_deal(folder: Path) -> None:
    for name in ("plain", "other"):
        lines = [
            {"prompt": f"{name} {row}", "answer": "a", "author": PATIENTS[row], "further": {"a": [row]}}
            for row in range(120)
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    np.save(folder / "teams.npy", np.arange(120) // 24)


def dealt_texts(folder: Path, choose: random.Random) -> object:
    """The sides, none of which has the name of a group; or one version of each record on either side."""
    groups = ("--groups", "author")
    shares = (
        *(("--members-share", "0.3", *groups), ("--withdraw", "0.4", *groups), groups),
        *(("--pairs", "other.jsonl"), ("--by", "teams.npy")),
    )
    with swept(folder):
        words = choose.choice(shares)
        ran = command(folder, ("deal", "plain.jsonl", *words, "--out", "dealt"))
        facts = json.loads((folder / "dealt" / "deal.json").read_text())
        sides = [facts[role]["records"] for role in ROLES if facts[role]]
        if sum(sides) != facts["source"]["records"] * (1 + ("--pairs" in words)):
            raise AssertionError(f"{sides} of {facts['source']['records']} records were dealt")
        return without_names(ran)


def without_names(ran: Ran) -> Ran:
    """What was printed, if it names no group."""
    assert SECRET not in ran.out + ran.err, "the name of a group was printed"
    return ran


def with_members(folder: Path) -> None:
    """Three sets with groups, and a target's outputs on each in every form of a model."""
    outputs, first = {}, 0
    for place, (role, count) in enumerate(ROLES.items()):
        whose = {"who": PATIENTS[first : first + count], "group": np.arange(count) // A_GROUP + first}
        write_deal(folder / "deal", **{role: {**records(count, place + 1), **whose}})
        used = np.full(count, role == "members")
        outputs[role] = logits(9000 + place, used, 3.0, np.arange(count) % CLASSES)
        first += count
    for form in MODELS:
        write_model(folder / form, **outputs)


def judged(folder: Path, choose: random.Random) -> object:
    words = ["ks", "--deal", "deal", "--target", choose.choice(MODELS)]
    words += choose.choice((("--groups", "who"), ("--groups", "group"), (), ("--before", choose.choice(MODELS))))
    with swept(folder):
        return without_names(command(folder, (*words, *choose.choice((("--json",), (), ("--out", "run"))))))


def blind(folder: Path) -> None:
    """The key of a challenge, and outputs on it that carry the names of its records."""
    key = Key(salt="ab" * 32, seed=7, groups=False, files={}, rows={Role.QUERY: [4, 0, 2], Role.HOLDOUT: [1, 3, 5]})
    (folder / "key.json").write_bytes(key_as_json(key))
    values = np.random.default_rng(1).random((6, 1)) * [1, -1] + [0, 1]
    np.savez(folder / "outputs.npz", record=np.array(key.names), probabilities=values)
    rows = [f"{name},{first},{second}" for name, (first, second) in zip(key.names, values, strict=True)]
    (folder / "outputs.csv").write_text("\n".join(("record,a,b", *rows, "")))
    named = {"record": key.names, "a": values[:, 0], "b": values[:, 1]}
    parquet.write_table(pa.table(named), folder / "outputs.parquet")


def answered(folder: Path, choose: random.Random) -> object:
    key = read_key(folder / "key.json")
    answers = load_answers(folder / choose.choice(("outputs.npz", "outputs.csv", "outputs.parquet")), key, 2)
    return [answers_of(answers, key, role).probabilities for role in key.rows]


def scans(folder: Path) -> None:
    """Gray pictures of 16 bits, of which few are dark enough for 8, in folders of two classes."""
    levels = np.random.default_rng(4).integers(0, 4096, (24, 6, 5), dtype=np.uint16)
    for row, picture in enumerate(levels):
        path = folder / "scans" / f"class{row % 2}" / f"{row}.{('png', 'tiff')[row // 2 % 2]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)


def read_scans(folder: Path, choose: random.Random) -> object:
    """The pictures as records, or dealt."""
    if choose.random() < 0.5:
        return load(str(folder / "scans"), gray=choose.random() < 0.5)
    with swept(folder):
        return command(folder, ("deal", "scans", *choose.choice(((), ("--blind",))), "--out", "dealt"))


READERS = [
    Reader("images-16-bits", scans, read_scans, 3),
    Reader("deal", to_deal, dealt, 4),
    Reader("deal-texts", texts_to_deal, dealt_texts, 3),
    Reader("members", with_members, judged, 5),
    Reader("challenge", blind, answered),
]
