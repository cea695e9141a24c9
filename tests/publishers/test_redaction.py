"""Secrets in texts and URLs."""

from __future__ import annotations

import pytest

from redbox.publishers.redaction import HIDDEN, redactor, shown_url


@pytest.mark.parametrize(
    "text",
    ["a/b+c=<&>ü", "a%2Fb%2Bc%3D%3C%26%3E%C3%BC", "a/b+c=&lt;&amp;&gt;ü", r"a\/b+c=<&>\u00fc", "a/b+c=<&>\\u00fc"],
)
def test_a_secret_is_found_in_its_usual_escaped_forms(text: str):
    assert redactor(["a/b+c=<&>ü"])(f"[{text}]") == "[[redacted]]"


@pytest.mark.parametrize(
    "text",
    [
        r"a\u002Fb\u002Bc\u003D\u003C\u0026\u003E\u0022",
        r"a\/b\u002bc\u003d\u003c\u0026\u003e\"",
        r"a/b+c=\u003c\u0026\u003e\"",
        "a%2fb%2bc%3d%3c%26%3e%22",
        "a/b%2bc=%3c&amp;%3E&quot;",
        "a&#47;b&#43;c&#x3D;&lt;&amp;&gt;&#34;",
    ],
)
def test_a_secret_is_found_however_its_characters_are_escaped(text: str):
    assert redactor(['a/b+c=<&>"'])(f"[{text}]") == "[[redacted]]"


def test_an_escaped_secret_that_begins_with_another_is_replaced_as_a_whole():
    assert redactor(["abcd", "abcd+efgh"])(r"abcd\u002befgh abcd") == "[redacted] [redacted]"


def test_no_text_makes_the_search_for_secrets_slow():
    found = redactor(["\\" * 60, "%25" * 30])("\\" * 89 + "x" + "%25" * 20 + "%2525" * 9)
    assert HIDDEN in found


def test_the_longest_secret_is_replaced_first():
    assert redactor(["token", "Bearer token"])("Bearer token, token") == "[redacted], [redacted]"


@pytest.mark.parametrize("secrets", [[], [""], ["abc"]])
def test_a_text_too_short_for_a_secret_is_kept(secrets: list[str]):
    assert redactor(secrets)("abc abc") == "abc abc"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:p@shop.example:8443/hook?token=x#y", "https://shop.example:8443/hook"),
        ("https://hooks.slack.com/services/T000/B000/XXXXXXXX", "https://hooks.slack.com/services/T000/B000/XXX…"),
        ("https://a/services/T0ABCDEF1/B0ABCDEF2/aB3dE6gH9jK2", "https://a/services/T0A…/B0A…/aB3…"),
        ("https://a/api/webhooks/1234567890123/abcdefghijklmnopqrst", "https://a/api/webhooks/123…/abc…"),
        ("https://a/in/550e8400-e29b-41d4-a716-446655440000/x", "https://a/in/550…/x"),
        ("https://a/x/deadbeef00112233", "https://a/x/dea…"),
        ("https://a/k%C3%A4se-und-brot/hush%3D%3Dhush12aB9cD8", "https://a/k%C3%A4se-und-brot/hus…"),
        ("/relative/path", "/relative/path"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, shown: str):
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    "path",
    ["orders", "order-created-notifications", "OrderEvents", "v2024.orders_created", "api2/webhooks/shopEU", "%20"],
)
def test_names_are_shown(path: str):
    assert shown_url(f"https://a/{path}") == f"https://a/{path}"
