"""The plain app's ClientApp, private by one line: it is loaded where it trains alone."""

from zerosum.client.flower.private_mod import PrivateClientApp

app = PrivateClientApp("zerosum.simulations.bench.apps.plain.plain_client:app")
