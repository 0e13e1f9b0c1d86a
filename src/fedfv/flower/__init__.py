"""The rules on a network with Flower: a strategy for any rule, apps of clients for it, and audits of any strategy."""

from fedfv._extras import comes_with

with comes_with("flower"):
    from fedfv.flower._audited import Audited, audited
    from fedfv.flower._client import fair_client
    from fedfv.flower._contract import fair_app, identify
    from fedfv.flower._strategy import FairStrategy

__all__ = ["Audited", "FairStrategy", "audited", "fair_app", "fair_client", "identify"]
