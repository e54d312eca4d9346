"""Results that another version wrote: refused, with what it was and what to do."""

import json

import pytest
from support.saved_runs import RUNS, as_json, save
from support.saved_runs.ks import USED, audit_of, judged, ks_run

from jaxaudit.errors import InputError
from jaxaudit.runs.saved import read_run
from jaxaudit.version import __version__


@pytest.mark.parametrize("kind", RUNS)
def test_the_first_schema_is_refused_in_words(tmp_path, kind: str):
    """Runs of the version before have other fields, and say less than is shown."""
    run = RUNS[kind]()
    folder = save(run, tmp_path / "run", {**as_json(run), "schema": f"jaxaudit.{kind}/1"})
    with pytest.raises(InputError, match="older version") as caught:
        read_run(folder)
    assert f"jaxaudit.{kind}/1" in str(caught.value)


@pytest.mark.parametrize("writer", ["0.0.9", __version__, "0" * 5000, 9, None])
def test_a_result_without_a_newer_field_is_refused_with_the_field_and_both_versions(tmp_path, writer: object):
    result = as_json(ks_run(audit=audit_of(judged(usage=(USED,)))))
    for name in ("upper", "design"):
        lacking = json.loads(json.dumps(result))
        del lacking["targets"][0]["usage"][0][name]
        lacking["provenance"] = None if writer is None else {**result["provenance"], "jaxaudit": writer}
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(json.dumps(lacking))
        with pytest.raises(InputError) as caught:
            read_run(tmp_path / name)
        said = str(caught.value)
        assert f"`{name}`" in said or writer in (9, None)
        assert f"jaxaudit {__version__} " in said
        assert not isinstance(writer, str) or f"by jaxaudit {writer[:40]}" in said
        assert len(said) < 600
