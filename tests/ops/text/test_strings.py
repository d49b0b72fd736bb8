"""String operators: concatenation, normalisation, splitting, regular expressions, n-grams."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from pyruntime import errors
from pyruntime.ir import Array
from pyruntime.ops.text.re2 import Pattern
from tests.harness import make_op, run_op
from tests.oracle import check_against_ort, node_of


def strings(*texts: str) -> Array:
    return np.array(texts, object)


@pytest.mark.parametrize(("a", "b"), [((3, 1), (1, 2)), ((), (2,)), ((), ()), ((0, 2), (1, 2))])
def test_string_concat__broadcast_scalar_empty__as_onnxruntime(a: Any, b: Any) -> None:
    x = np.full(a, "x é", object)
    y = np.full(b, "", object)
    check_against_ort("StringConcat", [x, y], opset=20)


@pytest.mark.parametrize("sensitive", [0, 1])
@pytest.mark.parametrize("action", ["LOWER", "UPPER", "NONE"])
def test_string_normalizer__stop_words_and_case__as_onnxruntime(sensitive: int, action: str) -> None:
    x = strings("Monday", "tuesday", "MONDAY", "two words", "", "Été")
    # onnxruntime's default locale, en_US, is not installed everywhere.
    attributes: dict[str, Any] = {"stopwords": ["monday", "two"], "locale": "C.UTF-8"}
    attributes |= {"case_change_action": action, "is_case_sensitive": sensitive}
    check_against_ort("StringNormalizer", [x], opset=20, **attributes)
    check_against_ort("StringNormalizer", [x.reshape(1, -1)], opset=20, **attributes)


def test_string_normalizer__rank_3__invalid_graph() -> None:
    op = make_op(node_of("StringNormalizer", [strings("a")]), {"": 20})
    with pytest.raises(errors.InvalidGraph, match=r"shape \[C\] or \[1, C\]"):
        run_op(op, [strings("a").reshape(1, 1, 1)])


@pytest.mark.parametrize("attributes", [{}, {"delimiter": ","}, {"delimiter": "--"}, {"delimiter": ""}])
@pytest.mark.parametrize("maxsplit", [None, 1, 2])
def test_string_split__delimiters_and_limits__as_onnxruntime(attributes: dict[str, Any], maxsplit: int | None) -> None:
    limit: dict[str, Any] = {} if maxsplit is None else {"maxsplit": maxsplit}
    x = np.array([["a,b,,c", "  lead  trail  "], ["", "a--b----c--"]], object)
    check_against_ort("StringSplit", [x], opset=20, outputs=2, **attributes, **limit)


@pytest.mark.parametrize("attributes", [{}, {"delimiter": ","}])
def test_string_split__nothing_but_empty_strings__no_parts_as_onnxruntime(attributes: dict[str, Any]) -> None:
    for shape in ((3,), (2, 2), (0,)):
        check_against_ort("StringSplit", [np.full(shape, "", object)], opset=20, outputs=2, **attributes)


PATTERNS = [
    *(r"a*", r"(a|b)*c?", r"[a-c]+", r"[^a-c]+", r"(?i)A+", r"a.b", r"(?s)a.b", r"\w+@\w+\.com", r"x{20}", r"x{5,}"),
    *(r"x{3,7}", r"\d+(-\d+)?", r"[[:alpha:]]+", r"[[:^alpha:]]+", r"\pL+", r"\p{Lu}", r"\PL+", r"^a$", r"a$"),
    *(r"(?m)a$\n^b", r"\ba\b.*", r"a\Bb", r"\Qa.b\E", r"\Qa\Eb*", r"[]]", r"[]a]+", r"[a-]+", r"[\]\\-]+", r"\141"),
    *(r"\x61\x{62}", r"a{2}", r"a{,2}", r"(?P<n>a)(?<m>b)", r"(?i:a)b|C", r"a(?i)b", r"a|(?i)b|c", r"(?U)a*", r"a*?"),
    *(r"()", r"|a", r"(|a)+", r"(a*)*", r"(a*)+b?", r"(?-s)a.b", r"[\d\s]+", r"[^\D]+", r"\Aa\z", r"\$|\^"),
    *(r"(?i)[^a]", r"(?i)ß|k", r"(?i)é", r"[α-ω]+", r"\W+", r"[\w-]+", r"[\p{L}1-3]+", r"\_"),
]
TEXTS = [
    *("", "a", "A", "aaa", "ab", "abab", "abc", "a.b", "a\nb", "foo@bar.com", "x" * 20, "123", "12-34", "_w", "é", "ß"),
    *("K", "\n", "a b", "$", "^", "[", "]", "\\", "-", "ab-", "tab\tx", "αβγ", "a{2}", "aa"),
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_regex_full_match__pattern__as_onnxruntime(pattern: str) -> None:
    check_against_ort("RegexFullMatch", [strings(*TEXTS)], opset=20, pattern=pattern)


@pytest.mark.parametrize(
    "pattern",
    ["a**", "a+*", "(?=a)", r"\1", "[b-a]", "(", "a)", "[a", "x{1001}", r"\8", "[[:foo:]]", "*a", "a{2}{3}", r"\K"],
)
def test_regex_full_match__not_re2__invalid_graph(pattern: str) -> None:
    with pytest.raises(errors.InvalidGraph, match="pattern"):
        Pattern(pattern)


def test_regex_full_match__script_class__not_implemented() -> None:
    with pytest.raises(errors.NotImplemented, match="Unicode class Greek"):
        Pattern(r"\p{Greek}")


def test_regex_full_match__pattern_that_backtracks_for_ever_elsewhere__answers() -> None:
    began = time.perf_counter()
    assert not Pattern("(a*)*b").fullmatch("a" * 2000)
    assert Pattern("(a?){100}a{100}").fullmatch("a" * 100)
    assert time.perf_counter() - began < 30


def test_regex_full_match__nested_counts__refused() -> None:
    with pytest.raises(errors.InvalidGraph, match="parts"):
        Pattern("((((){1000}){1000}){1000}){1000}")


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("skip", [0, 2])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_tfidf__weights_and_modes__as_onnxruntime(mode: str, skip: int, dtype: Any) -> None:
    x = np.array([[1, 1, 3, 3, 3, 7], [8, 6, 7, 5, 6, 8]], dtype)
    for rows in (x, x[0], x[:, :1]):
        check_against_ort(
            "TfIdfVectorizer",
            [rows],
            mode=mode,
            min_gram_length=1,
            max_gram_length=2,
            max_skip_count=skip,
            ngram_counts=[0, 4],
            ngram_indexes=[0, 1, 2, 3, 4, 5, 6],
            pool_int64s=[2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
            weights=[0.5, 2.0, 3.0, 1.5, 0.25, 4.0, 0.75],
        )


def test_tfidf__strings_shared_coordinates__counts_add_up() -> None:
    x = strings("a", "b", "a", "c")
    op = make_op(
        node_of(
            "TfIdfVectorizer",
            [x],
            mode="TF",
            min_gram_length=1,
            max_gram_length=1,
            max_skip_count=0,
            ngram_counts=[0],
            ngram_indexes=[2, 0, 2],
            pool_strings=["a", "b", "c"],
        ),
        {"": 9},
    )
    np.testing.assert_array_equal(run_op(op, [x])[0], [1, 0, 3])


def test_tfidf__gram_lengths_and_skips_without_end__only_those_that_fit() -> None:
    x = np.array([1, 2, 3])
    endless = 2**62
    attributes: dict[str, Any] = {"ngram_counts": [0, 3], "ngram_indexes": [0, 1, 2, 3], "pool_int64s": [1, 2, 3, 1, 3]}
    attributes |= {"mode": "TF", "min_gram_length": 1, "max_gram_length": endless, "max_skip_count": endless}
    op = make_op(node_of("TfIdfVectorizer", [x], **attributes), {"": 9})
    np.testing.assert_array_equal(run_op(op, [x])[0], [1, 1, 1, 1])


@pytest.mark.parametrize(
    ("pattern", "text", "start", "wanted"),
    [
        ("a+", "baac", 0, (1, 3)),
        ("a+", "baac", 2, (2, 3)),
        ("a|ab|abc", "xabcd", 0, (1, 4)),
        ("a+?", "aaa", 0, (0, 3)),
        ("b|aab", "aab", 0, (0, 3)),
        ("x*", "yx", 0, (0, 0)),
        (r"\bcat\b", "concat cat", 0, (7, 10)),
        ("^a", "ba", 1, None),
        ("a$", "aba", 0, (2, 3)),
        ("z", "", 0, None),
    ],
)
def test_search__leftmost_then_longest(pattern: str, text: str, start: int, wanted: tuple[int, int] | None) -> None:
    assert Pattern(pattern).search(text, start) == wanted


def test_search__pattern_that_backtracks_for_ever__takes_linear_time() -> None:
    assert Pattern("(a*)*b").search("a" * 500) is None
