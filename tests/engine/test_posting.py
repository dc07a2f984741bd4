"""Nothing is sent to where strangers may not send us, whatever names and tricks they use."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Sequence
from pathlib import Path

import pytest

from detent.engine.addresses import Resolve, Rules, is_public, resolve, target_of
from detent.engine.posting import HEAD_BYTES_MAX, Poster
from detent.errors import AddressRefused, BadWebhook, PostFailed
from tests.engine.receiver import certified, receiving

LOCAL = Rules(allow=("127.0.0.0/8",))
PUBLIC = "93.184.216.34"


def answering(*answers: Sequence[str]) -> tuple[Resolve, list[str]]:
    """A resolver that gives these answers, one after the other, and who asked."""
    asked: list[str] = []
    left = list(answers)

    async def resolver(host: str, _: int) -> Sequence[str]:
        asked.append(host)
        return left.pop(0) if len(left) > 1 else left[0]

    return resolver, asked


async def post(url: str, poster: Poster) -> int:
    return await poster.post(url, {"X-A": "b"}, b"{}")


PRIVATE = [
    "127.0.0.1",
    "127.8.8.8",
    "10.0.0.1",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.1.1",
    "169.254.169.254",
    "169.254.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "0.0.0.0",  # noqa: S104 - nobody binds to it
    "0.1.2.3",
    "255.255.255.255",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "168.63.129.16",
    "192.88.99.1",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "fec0::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "3fff::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:8.8.8.8",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::808:808",
    "64:ff9b:1::7f00:1",
    "2001:0:7f00:1::",
    "100::1",
    "::ffff:0:127.0.0.1",
    "5f00::1",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_what_is_not_public_is_known(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", [PUBLIC, "8.8.8.8", "1.1.1.1", "2606:4700:4700::1111"])
def test_what_is_public_is_known(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", PRIVATE)
def test_a_name_for_it_is_refused_and_nothing_is_told_of_where_it_is(address: str) -> None:
    resolver, _ = answering([address])
    with pytest.raises(AddressRefused) as caught:
        asyncio.run(post("https://harmless.example/", Poster(resolver=resolver)))
    assert address not in str(caught.value)
    assert not caught.value.retryable


TRICKS = [
    "https://127.0.0.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://localhost/",
    "https://0/",
    "https://[::]/",
    "https://[fe80::1%25lo]/",
    "https://127.0.0.1:443/",
]


@pytest.mark.parametrize("url", TRICKS)
def test_no_way_to_write_this_machine_gets_through(url: str) -> None:
    with pytest.raises((AddressRefused, BadWebhook, PostFailed)):
        asyncio.run(post(url, Poster(timeout_s=5)))


BAD = [
    *("ftp://a.example/", "file:///etc/passwd", "gopher://a.example/", "//a.example/", "a.example"),
    *("https://", "https:///x", "https://user@a.example/", "https://u:p@a.example/"),
    *("https://a.example/#x", "https://a.example:99999/", "https://a.example:x/", "https://[::1/"),
    *("https://a.example/\r\nX: y", "https://a.example/ b", "https://bücher.example/", ""),
    *("https://a.example\\@127.0.0.1/", "https://a.example/\0", "https://a_b!.example/"),
    f"https://a.example/{'x' * 3_000}",
]


@pytest.mark.parametrize("url", BAD)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(BadWebhook):
        target_of(url)


def test_one_bad_address_among_good_ones_is_enough() -> None:
    resolver, _ = answering([PUBLIC, "10.0.0.1"])
    with pytest.raises(AddressRefused):
        asyncio.run(post("https://a.example/", Poster(resolver=resolver)))


@pytest.mark.parametrize("found", [[], ["nonsense"]])
def test_a_name_without_an_address_is_refused(found: list[str]) -> None:
    resolver, _ = answering(found)
    with pytest.raises(AddressRefused):
        asyncio.run(post("https://a.example/", Poster(resolver=resolver)))


@pytest.mark.parametrize(
    "url", ["http://a.example/", "https://a.example:22/", "https://a.example:80/"]
)
def test_public_addresses_are_spoken_to_over_tls_on_ports_of_the_web(url: str) -> None:
    resolver, _ = answering([PUBLIC])
    with pytest.raises(AddressRefused):
        asyncio.run(post(url, Poster(resolver=resolver)))


async def _rebound(url_host: str) -> tuple[int, int, list[str]]:
    async with receiving(200) as receiver:
        resolver, asked = answering(["127.0.0.1"], ["10.255.255.1"])
        poster = Poster(LOCAL, resolver=resolver)
        status = await post(f"http://{url_host}:{receiver.port}/", poster)
        with pytest.raises(AddressRefused):
            await post(f"http://{url_host}:{receiver.port}/", poster)
        return status, receiver.connections, asked


def test_a_name_is_resolved_once_and_what_was_checked_is_what_is_connected_to() -> None:
    """The second answer of the resolver is another one: it is judged anew, never slipped in."""
    status, connections, asked = asyncio.run(_rebound("rebind.example"))
    assert (status, connections, asked) == (200, 1, ["rebind.example", "rebind.example"])


def test_a_name_that_turns_to_this_machine_after_it_was_checked_reaches_nothing() -> None:
    async def run() -> int:
        async with receiving(200) as receiver:
            resolver, _ = answering([PUBLIC], ["127.0.0.1"])
            poster = Poster(resolver=resolver, timeout_s=0.2)
            await poster.check("https://rebind.example/")
            for _ in range(2):
                with pytest.raises(AddressRefused):
                    await post(f"https://rebind.example:{receiver.port}/", poster)
            return receiver.connections

    assert asyncio.run(run()) == 0


def test_who_gives_an_address_does_not_wait_for_slow_names() -> None:
    async def slow(_: str, __: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    async def run() -> None:
        poster = Poster(resolver=slow, look_s=0.05, timeout_s=0.05)
        await poster.check("https://slow.example/")
        # What is sent there is judged by what the name says then, or not sent.
        with pytest.raises(PostFailed):
            await post("https://slow.example/", poster)

    asyncio.run(asyncio.wait_for(run(), 20))


def test_the_request_is_what_was_asked_for() -> None:
    async def run() -> None:
        async with receiving(204) as receiver:
            assert await post(receiver.url, Poster(LOCAL)) == 204
            [got] = receiver.got
            assert got.line == "POST /hook?a=1 HTTP/1.1"
            assert got.headers["Host"] == f"127.0.0.1:{receiver.port}"
            assert (got.headers["X-A"], got.body) == ("b", b"{}")

    asyncio.run(run())


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    async def run() -> None:
        async with receiving(200) as inner:
            told = f"HTTP/1.1 302 Found\r\nLocation: {inner.url}\r\n\r\n".encode()
            async with receiving(told) as outer:
                assert await post(outer.url, Poster(LOCAL)) == 302
            assert inner.connections == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 200 " + b"x" * HEAD_BYTES_MAX * 3, "answer"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "answer"),
        (b"", "answer"),
        (b"HTTP/1.1 abc\r\n\r\n", "answer"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 9, "answer"),
    ],
)
def test_an_answer_that_is_none_is_told_apart(answer: bytes, why: str) -> None:
    async def run() -> None:
        async with receiving(answer) as receiver:
            with pytest.raises(PostFailed) as caught:
                await post(receiver.url, Poster(LOCAL))
            assert caught.value.fields["why"] == why
            assert caught.value.retryable

    asyncio.run(run())


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 201 Y\r\n\r\n", b"HTTP/1.1 201"]
)
def test_an_answer_may_come_after_a_hint_or_without_much(answer: bytes) -> None:
    async def run() -> int:
        async with receiving(answer) as receiver:
            return await post(receiver.url, Poster(LOCAL))

    assert asyncio.run(run()) == 201


def test_silence_and_closed_doors_end_in_time() -> None:
    async def run() -> None:
        async with receiving() as receiver:
            with pytest.raises(PostFailed) as caught:
                await post(receiver.url, Poster(LOCAL, timeout_s=0.2))
            assert caught.value.fields["why"] == "timeout"
            gone = receiver.url
        with pytest.raises(PostFailed) as caught:
            await post(gone, Poster(LOCAL))
        assert caught.value.fields["why"] == "connect"

    asyncio.run(run())


def test_the_next_address_is_tried_when_one_takes_no_connection() -> None:
    async def run() -> int:
        async with receiving(200) as receiver:
            resolver, _ = answering(["127.0.0.2", "127.0.0.1"])
            poster = Poster(LOCAL, resolver=resolver)
            return await post(f"http://two.example:{receiver.port}/", poster)

    assert asyncio.run(run()) == 200


def test_a_certificate_must_be_for_the_name_though_the_address_is_connected_to(
    tmp_path: Path,
) -> None:
    server, trust = certified(tmp_path, "good.example")

    async def run() -> None:
        resolver, _ = answering(["127.0.0.1"])
        async with receiving(200, trust=server) as receiver:
            poster = Poster(LOCAL, resolver=resolver, trust=trust)
            assert await post(f"https://good.example:{receiver.port}/", poster) == 200
            for url, its_trust in (
                (f"https://evil.example:{receiver.port}/", trust),
                (f"https://good.example:{receiver.port}/", None),
            ):
                with pytest.raises(PostFailed) as caught:
                    await post(url, Poster(LOCAL, resolver=resolver, trust=its_trust))
                assert caught.value.fields["why"] == "tls"
            assert len(receiver.got) == 1

    asyncio.run(run())


def test_the_environment_says_what_else_is_allowed() -> None:
    rules = Rules.of({"DETENT_WEBHOOK_ALLOW": "10.1.0.0/16, fd00::/8"})
    assert rules.allow == ("10.1.0.0/16", "fd00::/8")
    assert Rules.of({}).allow == ()
    with pytest.raises(BadWebhook):
        Rules.of({"DETENT_WEBHOOK_ALLOW": "10.1.0.0/99"})


def test_the_system_knows_this_machine() -> None:
    assert "127.0.0.1" in asyncio.run(resolve("127.0.0.1", 80))
