"""Tests of jobs: nothing is started, no time passes, and workers die when they are told to."""

import pytest

from detent import Detent
from detent.testing import Crashed, Rig

app = Detent()
sent: list[int] = []


@app.job
def order(number: int) -> None:
    invoice.using(delay=86_400).enqueue(number)


@app.job
def invoice(number: int) -> str:
    sent.append(number)
    return f"invoice {number}"


def test_an_invoice_follows_its_order_a_day_later() -> None:
    with Rig(app) as rig:
        order.enqueue(7)
        rig.drain()
        [handle] = rig.assert_enqueued(invoice.bind(7), count=1)
        assert handle.status().state == "scheduled"
        rig.drain(advance=True)
        assert handle.result() == "invoice 7"


def test_a_dead_worker_does_not_lose_the_invoice() -> None:
    with Rig(app) as rig:
        handle = invoice.enqueue(8)
        with pytest.raises(Crashed):
            rig.drain(crash="before_report")
        rig.drain()
        assert handle.result() == "invoice 8"
        assert sent[-2:] == [8, 8]  # at least once: that is why invoices need a number
