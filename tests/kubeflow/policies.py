"""Connections that NetworkPolicies allow, as networking.k8s.io/v1 defines it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

Item = dict[str, Any]


@dataclass(frozen=True)
class Peer:
    """A pod; or, without a namespace, an address outside of the cluster's pods (of its API server, of the internet)."""

    namespace: str | None
    labels: dict[str, str] = field(default_factory=dict)
    address: str = "10.244.0.7"


class Policies:
    """The policies of some rendered objects.

    Args:
        namespaces: the labels of namespaces, beside the name that every one has as a label.
    """

    def __init__(self, items: Iterable[Item], namespaces: dict[str, dict[str, str]]) -> None:
        self._policies = [item for item in items if item["kind"] == "NetworkPolicy"]
        self._namespaces = namespaces

    def allow(self, client: Peer, server: Peer, port: int, protocol: str = "TCP") -> bool:
        """Return whether the client's policies let a connection out and the server's let it in."""
        return self._passes("egress", client, server, port, protocol) and self._passes(
            "ingress", server, client, port, protocol
        )

    def _passes(self, way: str, pod: Peer, other: Peer, port: int, protocol: str) -> bool:
        specs = [
            policy["spec"]
            for policy in self._policies
            if policy["metadata"]["namespace"] == pod.namespace
            and way.capitalize() in policy["spec"]["policyTypes"]
            and selects(policy["spec"]["podSelector"], pod.labels)
        ]
        if not specs:
            return True  # a pod that no policy selects is open
        return any(
            self._peers(rule.get({"egress": "to", "ingress": "from"}[way]), pod, other)
            and _ports(rule.get("ports"), port, protocol)
            for spec in specs
            for rule in spec.get(way, ())
        )

    def _peers(self, peers: list[Item] | None, pod: Peer, other: Peer) -> bool:
        return not peers or any(self._peer(peer, pod, other) for peer in peers)

    def _peer(self, peer: Item, pod: Peer, other: Peer) -> bool:
        if "ipBlock" in peer:
            block, address = peer["ipBlock"], ip_address(other.address)
            return address in ip_network(block["cidr"]) and not any(
                address in ip_network(one) for one in block.get("except", ())
            )
        if other.namespace is None:
            return False
        if "namespaceSelector" in peer:
            labels = {"kubernetes.io/metadata.name": other.namespace, **self._namespaces.get(other.namespace, {})}
            if not selects(peer["namespaceSelector"], labels):
                return False
        elif other.namespace != pod.namespace:
            return False
        return selects(peer.get("podSelector", {}), other.labels)


def selects(selector: Item, labels: dict[str, str]) -> bool:
    """Return whether a label selector, which selects all if it is empty, selects these labels."""
    if not (selector.get("matchLabels") or {}).items() <= labels.items():
        return False
    for expression in selector.get("matchExpressions") or ():
        value = labels.get(expression["key"])
        fits = {
            "Exists": value is not None,
            "DoesNotExist": value is None,
            "In": value in expression.get("values", ()),
            "NotIn": value not in expression.get("values", ()),
        }
        if not fits[expression["operator"]]:
            return False
    return True


def _ports(ports: list[Item] | None, port: int, protocol: str) -> bool:
    return not ports or any(
        protocol == one.get("protocol", "TCP") and one["port"] <= port <= one.get("endPort", one["port"])
        for one in ports
    )
