from __future__ import annotations

import signal

import pytest

from fedqcl.errors import ClassError, ClientError, InputError, Interrupted, RankError, account, first_line, refusal


def test_the_first_line_of_an_error() -> None:
    assert first_line(ValueError("one\ntwo")) == "ValueError: one"
    assert first_line(ValueError()) == "ValueError"


def test_what_the_disk_had_against_a_write() -> None:
    assert refusal(OSError(28, "No space left on device")) == "No space left on device"
    assert refusal(OSError("odd")) == "odd"


@pytest.mark.parametrize(
    ("error", "text", "status"),
    [
        (InputError("data.alpha: is\n  wrong"), "fedqcl fit: error: data.alpha: is wrong", 2),
        (RankError("rank 1 was killed by SIGKILL", 137), "fedqcl fit: error: rank 1 was killed by SIGKILL", 137),
        (RankError("", 1), "", 1),
        (KeyboardInterrupt(), "", 130),
        (Interrupted(signal.SIGTERM), "", 143),
        (
            ClientError("client 3: left"),
            "fedqcl.errors.ClientError: client 3: left\nfedqcl fit: error: client 3: left",
            1,
        ),
        (KeyError("x"), "KeyError: 'x'\nfedqcl fit: error: KeyError: 'x'", 1),
    ],
)
def test_what_is_said_of_an_error_and_how_the_process_ends(error: BaseException, text: str, status: int) -> None:
    assert account(error, "fedqcl fit") == (text, status)


def test_a_class_s_error_is_traced_to_its_cause() -> None:
    error = ClassError("model.method: KeyError: 'x'")
    error.__cause__ = KeyError("x")
    assert account(error, "fedqcl fit") == ("KeyError: 'x'\nfedqcl fit: error: model.method: KeyError: 'x'", 1)


def test_a_client_s_error_is_traced_to_its_cause() -> None:
    error = ClientError("client 3, task 1, round 2: KeyError: 'x'")
    error.__cause__ = KeyError("x")
    text = "KeyError: 'x'\nfedqcl fit: error: rank 1, client 3, task 1, round 2: KeyError: 'x'"
    assert account(error, "fedqcl fit", at="rank 1, ") == (text, 1)
