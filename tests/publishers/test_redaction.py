"""Secrets in texts and URLs."""

from __future__ import annotations

import pytest

from redbox.publishers.redaction import redactor, shown_url


@pytest.mark.parametrize(
    "text",
    ["a/b+c=<&>ü", "a%2Fb%2Bc%3D%3C%26%3E%C3%BC", "a/b+c=&lt;&amp;&gt;ü", r"a\/b+c=<&>\u00fc", "a/b+c=<&>\\u00fc"],
)
def test_a_secret_is_found_as_it_is_quoted_elsewhere(text: str):
    assert redactor(["a/b+c=<&>ü"])(f"[{text}]") == "[[redacted]]"


def test_the_longest_secret_is_replaced_first():
    assert redactor(["token", "Bearer token"])("Bearer token, token") == "[redacted], [redacted]"


@pytest.mark.parametrize("secrets", [[], [""], ["abc"]])
def test_what_is_too_short_for_a_secret_is_left(secrets: list[str]):
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
def test_a_url_is_shown_without_what_looks_secret(url: str, shown: str):
    assert shown_url(url) == shown


@pytest.mark.parametrize(
    "path",
    ["orders", "order-created-notifications", "OrderEvents", "v2024.orders_created", "api2/webhooks/shopEU", "%20"],
)
def test_names_are_shown(path: str):
    assert shown_url(f"https://a/{path}") == f"https://a/{path}"
