from __future__ import annotations

from pathlib import Path

import pytest

from fedqcl.cli.given import Given, given_in_file, given_in_words
from fedqcl.cli.words import split_options
from fedqcl.errors import InputError


def test_a_class_is_the_value_of_its_key_and_comes_before_its_options() -> None:
    content = {"model": {"method": {"init_args": {"V": 3, "deep": {"class_path": "D"}}, "class_path": "FedQCL"}}}
    assert list(given_in_file(content, "a.yaml")) == [
        Given("model.method", "FedQCL", "a.yaml"),
        Given("model.method.V", 3, "a.yaml"),
        Given("model.method.deep", "D", "a.yaml"),
    ]


def test_options_without_class_path() -> None:
    content = {"data": {"augment": {"crop": 4}, "source": {"init_args": {"root": "x"}}}, 5: None}
    assert [(g.key, g.value) for g in given_in_file(content, "a.yaml")] == [
        ("data.augment.crop", 4),
        ("data.source.root", "x"),
        ("5", None),
    ]


def test_an_option_beside_class_path_is_refused() -> None:
    with pytest.raises(InputError, match=r"^m\.V: is beside class_path in a\.yaml; move it under m\.init_args$"):
        list(given_in_file({"m": {"class_path": "FedQCL", "V": 3}}, "a.yaml"))


def test_words() -> None:
    words = ["--config", "x.yaml", "-q", "--m.init_args.V", "3", "--m.class_path", "A", "--t+", "4", "--b", "--m.help"]
    assert list(given_in_words(split_options(words))) == [
        Given("m.V", "3"),
        Given("m", "A"),
        Given("t", "4"),
        Given("b", None),
    ]


def test_a_mapping_in_a_word() -> None:
    words = split_options(["--m", "{class_path: A, init_args: {V: 3}}", "--n", "{x", "--o", "[1]"])
    assert list(given_in_words(words)) == [Given("m", "A"), Given("m.V", 3), Given("n", "{x"), Given("o", "[1]")]


def test_a_stray_word_is_refused_with_what_it_may_have_been_meant_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    for word, meant in (("my.yaml", "--config my.yaml"), ("runs", "--ckpt_path runs")):
        with pytest.raises(InputError, match=rf"^{word}: belongs to no option; did you mean {meant}\?$"):
            list(given_in_words(split_options([word])))
    with pytest.raises(InputError, match=r"^stray: belongs to no option"):
        list(given_in_words(split_options(["-q", "stray"])))
