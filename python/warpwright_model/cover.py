"""Chooses the regions: a cut through the tree of modules that takes most of the time."""

from __future__ import annotations

from typing import Any

from . import check
from .failure import Untraceable
from .names import Names, identifier, snake
from .observe import Node, Observed
from .region import Region, regions_of

REPEATED_SHARE = 0.5
"""A module is divided if more than this part of its time is in one repeated module, which is then
optimised once."""
MOST_PATHS = 8
"""Paths that are listed of modules that did not become a region."""


class Cover:
    """The cut, from the model downwards."""

    def __init__(
        self, found: Observed, title: str, limit: int, least_share: float, separate: bool
    ) -> None:
        self.found = found
        self.separate = separate
        self.title = title
        self.limit = limit
        self.least_share = least_share
        self.regions: dict[str, list[Region]] = {}
        """By the signature of their modules."""
        self.reasons: dict[str, str] = {}
        """Why modules of a signature are no region."""
        self.refused: list[tuple[Node, str]] = []
        self.signatures = {path: node.signature() for path, node in found.nodes.items()}

    def share_of_equal(self, path: str) -> float:
        """The share of a module and of those that may be the same region."""
        equal = [
            p for p, signature in self.signatures.items() if signature == self.signatures[path]
        ]
        return sum(self.found.share(other) for other in equal)

    def below(self, path: str) -> list[str]:
        """The modules that a module calls, directly or not."""
        paths = []
        for child in self.found.nodes[path].children:
            paths += [child, *self.below(child)]
        return paths

    def repeated(self, path: str) -> bool:
        """Whether most of a module's time is in modules of which there are several."""
        shares: dict[str, list[float]] = {}
        for inner in self.below(path):
            if self.found.nodes[inner].children:
                shares.setdefault(self.signatures[inner], []).append(self.found.share(inner))
        most = max((sum(s) for s in shares.values() if len(s) > 1), default=0.0)
        return most > REPEATED_SHARE * self.found.share(path)

    def attempt(self, path: str) -> bool:
        """Whether the module becomes a region, or one of a region that is there."""
        node, signature = self.found.nodes[path], self.signatures[path]
        reason = self.reasons.get(signature)
        if reason is None and signature not in self.regions:
            try:
                leaves = [p for p in self.below(path) if not self.found.nodes[p].children]
                if len(leaves) > self.limit:
                    raise Untraceable(f"it calls {len(leaves)} modules, more than {self.limit}")
                self.regions[signature] = regions_of(
                    node, self.title_of(node), self.limit, self.separate
                )
            except Untraceable as error:
                reason = self.reasons[signature] = str(error)
        if reason is None:
            try:
                for region in self.regions[signature]:
                    if region.owner is not node:
                        check.same(
                            region.source, region.body, node.module, self.calls(region, node)
                        )
            except Untraceable as error:
                reason = str(error)
        if reason is not None:
            self.refused.append((node, reason))
            return False
        for region in self.regions[signature]:
            region.members.append(node)
        return True

    def calls(self, region: Region, node: Node) -> list[Any]:
        """The calls of a module that a region serves."""
        keys = {variant.call.key() for variant in region.variants}
        return [call for calls in node.calls.values() for call in calls if call.key() in keys]

    def title_of(self, node: Node) -> str:
        """The first line of a task."""
        return f"{identifier(type(node.module).__name__, 'Module')}, a region of {self.title}."

    def descend(self, path: str) -> bool:
        """Covers a module; returns whether any of it became a region."""
        if self.share_of_equal(path) < self.least_share:
            return False
        node = self.found.nodes[path]
        first_inside = self.repeated(path)
        if first_inside and any([self.descend(child) for child in node.children]):
            self.refused.append((node, "most of it is in modules that it has several of"))
            return True
        if self.attempt(path):
            return True
        return not first_inside and any([self.descend(child) for child in node.children])

    def all_regions(self) -> list[Region]:
        """The regions with members, by their share, with names."""
        regions = [region for group in self.regions.values() for region in group if region.members]
        sets = self.found.seconds
        for region in regions:
            total = 0.0
            for name, seconds in sets.items():
                for node in region.members:
                    total += node.seconds.get(name, 0.0) * region.part(node, name) / seconds
            region.share = min(total / len(sets), 1.0)
        regions.sort(key=lambda region: -region.share)
        names = Names()
        for region in regions:
            name = snake(type(region.owner.module).__name__)
            if self.separate and len(sets) > 1:
                name = f"{name}_{snake(region.variants[0].name)}"
            region.name = names.new(name, "region")
        return regions

    def left_out(self) -> list[dict[str, Any]]:
        """The modules that are no region and why; equal ones once."""
        groups: dict[tuple[str, str], list[Node]] = {}
        for node, reason in self.refused:
            groups.setdefault((type(node.module).__name__, reason), []).append(node)
        return [
            {
                "class": identifier(kind, "Module"),
                "modules": [node.path for node in nodes[:MOST_PATHS]],
                "count": len(nodes),
                "share": min(sum(self.found.share(node.path) for node in nodes), 1.0),
                "reason": reason,
            }
            for (kind, reason), nodes in groups.items()
        ]
