from __future__ import annotations

from fedqcl.report.names import Names


def test_a_name_is_fit_for_a_file_and_made_once() -> None:
    names = Names(["runs"])
    words = ["e7-V", "a b", "a-b", "A/B", "a-b-2", "runs", "..", "!"]
    assert list(map(names.make, words)) == ["e7-V", "a-b", "a-b-2", "A-B-3", "a-b-2-2", "runs-2", "..", "unnamed"]
