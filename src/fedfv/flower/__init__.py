"""The rules on a network with Flower: a strategy for any rule, and client apps that send the replies it needs."""

from fedfv._extras import comes_with

with comes_with("flower"):
    from fedfv.flower._client import fair_client
    from fedfv.flower._contract import fair_app, identify
    from fedfv.flower._strategy import FairStrategy

__all__ = ["FairStrategy", "fair_app", "fair_client", "identify"]
