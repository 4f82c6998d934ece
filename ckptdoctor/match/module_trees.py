"""Compares two state dicts as trees of modules: which part of one is which part of the other, by what parts hold.

Parts that hold the same parameters have the same form, whatever their names are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random

from ckptdoctor.match.likeness import alike, kin_of, letters, of_one_kind, within
from ckptdoctor.match.rewordings import template
from ckptdoctor.noun import field, noun
from ckptdoctor.regex import regex

Tokens = tuple[str, ...]
ParameterKind = tuple[str, tuple[int, ...]]

_DEPTH = 32  # tokens of a key that make a tree: longer ones stand outside
_BITS = 96


@noun(frozen=False, eq=False)
class ModuleNode:
    """A module, or a parameter where ``key`` is set. ``form`` is the same where the same kinds of keys are below."""

    tokens: Tokens
    parent: ModuleNode | None
    order: int
    key: str | None = None
    children: dict[tuple[str, bool], ModuleNode] = field(default_factory=dict)
    size: int = 0
    form: int = 0

    def parts(self) -> Iterator[ModuleNode]:
        """Yield the modules and parameters right below."""
        for child in self.children.values():
            yield child.branch()

    def branch(self) -> ModuleNode:
        """Return this, or what is below it where that is alone in it: ``stages.0.blocks`` for ``stages.0``."""
        node = self
        while len(node.children) == 1:
            node = next(iter(node.children.values()))
        return node

    def top(self) -> ModuleNode:
        """Return the outermost module whose only content is this one: the reverse."""
        node = self
        while node.parent is not None and node.parent.parent is not None and len(node.parent.children) == 1:
            node = node.parent
        return node

    def outside(self) -> ModuleNode | None:
        """Return the nearest module around this one with something else in it."""
        return self.top().parent


class Forms:
    """Numbers for kinds of keys: the sum of those below a module is its form, whatever their order and nesting.

    Two modules that differ have the same sum only by a chance that nobody can arrange; names never rest on it alone.
    """

    def __init__(self) -> None:
        self._known: dict[ParameterKind, int] = {}
        self._random = Random(0)  # no secret: the same file always gives the same answer

    def number(self, kind: ParameterKind) -> int:
        """Return the number of a kind."""
        found = self._known.get(kind)
        if found is None:
            found = self._known[kind] = self._random.getrandbits(_BITS)
        return found


def tree(keys: Iterable[str], kind: Callable[[str], ParameterKind], forms: Forms) -> ModuleNode:
    """Return the tree of these keys."""
    root = ModuleNode((), None, 0)
    for order, key in enumerate(keys):
        tokens = tuple(key.split("."))
        if len(tokens) <= _DEPTH:
            _grow(root, tokens, key, order, forms.number(kind(key)))
    return root


def _grow(root: ModuleNode, tokens: Tokens, key: str, order: int, number: int) -> None:
    node = root
    node.size += 1
    node.form += number
    for depth, token in enumerate(tokens, start=1):
        last = depth == len(tokens)
        child = node.children.get((token, last))
        if child is None:
            child = node.children[token, last] = ModuleNode(tokens[:depth], node, order, key if last else None)
        node = child
        node.size += 1
        node.form += number


# ---- which part of one tree is which part of another one


_DIGITS = regex(r"[0-9]+")
_LONG = 9  # longer numbers count nothing
_FEW = 64  # parts of one form that are held against each other
_ROUNDS = 8  # how often what was told is used to tell more


@noun(eq=False)
class Match:
    """One part here and the part there that it is. ``sure`` is false where only the order of equal parts tells.

    ``old`` and ``new`` are their paths inside the parts that they were found in, of which ``within`` is that here.
    """

    here: ModuleNode
    there: ModuleNode
    old: Tokens
    new: Tokens
    sure: bool
    within: ModuleNode


def counterparts(here: ModuleNode, there: ModuleNode) -> Iterator[Match]:
    """Yield all parts that belong together, whole ones before what is in them.

    What one part does not tell may be known from others of its kind: that is asked when all others are done.
    """
    learnt: Learnt = defaultdict(set)
    later: list[_Scope] = []
    waiting = [_Scope(Match(here, there, (), (), True, here), learnt)]
    while waiting or later:
        if waiting:
            scope = waiting.pop()
            scope.settle_all()
            if scope.groups:
                later.append(scope)
        else:
            scope = later.pop()
            scope.settle_all()
            scope.by_order()
        for found in scope.new():
            yield found
            if found.here.key is None:
                waiting.append(_Scope(found, learnt))


Learnt = dict[Tokens, set[Tokens]]
Nodes = list[tuple[ModuleNode, ModuleNode]]


@noun(eq=False)
class _Group:
    """Equally many parts of one form on both sides."""

    here: Sequence[ModuleNode]
    there: Sequence[ModuleNode]


def _groups(outer: Match) -> Iterator[_Group]:
    """Yield parts of one form, the largest first; what has not as many counterparts is taken apart."""
    sizes: dict[int, tuple[list[ModuleNode], list[ModuleNode]]] = defaultdict(lambda: ([], []))
    _add(sizes, 0, outer.here)
    _add(sizes, 1, outer.there)
    while sizes:
        ours, theirs = sizes.pop(max(sizes))
        forms: dict[int, tuple[list[ModuleNode], list[ModuleNode]]] = defaultdict(lambda: ([], []))
        for side, nodes in enumerate((ours, theirs)):
            for node in nodes:
                forms[node.form][side].append(node)
        for here, there in forms.values():
            if len(here) == len(there):
                yield _Group(here, there)
                continue
            for side, nodes in enumerate((here, there)):
                for node in nodes:
                    _add(sizes, side, node)


def _add(sizes: dict[int, tuple[list[ModuleNode], list[ModuleNode]]], side: int, node: ModuleNode) -> None:
    for part in node.parts():
        sizes[part.size][side].append(part)


class _Scope:
    """What is known of the parts inside two matched ones, and the groups in which something is left to tell."""

    def __init__(self, outer: Match, learnt: Learnt) -> None:
        self.groups = list(_groups(outer))
        self._outer = outer
        self._learnt = learnt
        self._beside: dict[ModuleNode, set[ModuleNode]] = defaultdict(set)
        self._found: list[Match] = []

    def new(self) -> list[Match]:
        """Return what was matched since this was asked last."""
        found, self._found = self._found, []
        return found

    def settle_all(self) -> None:
        """Match what can be told, again as long as that tells more."""
        for _ in range(_ROUNDS):
            before = sum([len(group.here) for group in self.groups])
            left = [rest for group in self.groups if (rest := self.settle(group)) is not None]
            self.groups = [group for group in left if len(group.here) <= _FEW]  # nothing more will tell larger ones
            if sum([len(group.here) for group in self.groups]) == before:
                break

    def by_order(self) -> None:
        """Match the rest, of which only the order tells."""
        for group in self.groups:
            self.match(zip(_ordered(group.here), _ordered(group.there), strict=True), sure=False)
        self.groups = []

    def settle(self, group: _Group) -> _Group | None:
        """Match what can be told, and give the rest."""
        for tell in (_by_numbers, self._by_place, self._by_name, _by_family, self._by_others, _by_likeness):
            if len(group.here) <= 1:
                break
            pairs = tell(group)
            self.match(pairs)
            group = _without(group, pairs)
        if len(group.here) == 1:
            self.match([(group.here[0], group.there[0])])
            return None
        return group if group.here else None

    def match(self, pairs: Iterable[tuple[ModuleNode, ModuleNode]], *, sure: bool = True) -> None:
        """Note that these are the same."""
        for one, other in pairs:
            around, there = one.outside(), other.outside()
            if sure and around is not None and around is not self._outer.here and there is not None:
                self._beside[around].add(there)
            found = Match(one, other, self._ours(one), self._theirs(other), sure and self._outer.sure, self._outer.here)
            self._found.append(found)
            if found.sure:
                self._learnt[found.old].add(found.new)

    def _ours(self, node: ModuleNode) -> Tokens:
        return node.tokens[len(self._outer.here.tokens) :]

    def _theirs(self, node: ModuleNode) -> Tokens:
        return node.tokens[len(self._outer.there.tokens) :]

    def _by_place(self, group: _Group) -> Nodes:
        """Return parts that are next to parts that are known to belong together."""
        here: dict[ModuleNode, list[ModuleNode]] = defaultdict(list)
        for node in group.here[: _FEW + 1]:
            around = node.outside()
            if around is not None and len(self._beside.get(around, ())) == 1:
                here[around].append(node)
        found = []
        for around, nodes in here.items() if len(group.here) <= _FEW else ():
            (place,) = self._beside[around]
            others = [node for node in group.there if _within(node, place)]
            if len(nodes) == len(others) == 1:
                found.append((nodes[0], others[0]))
        return found if len({other for _, other in found}) == len(found) else []

    def _by_name(self, group: _Group) -> Nodes:
        """Return the same names; all of them, or those that no other number of the group speaks against."""
        names = {self._theirs(node): node for node in group.there}
        found = [(node, names[path]) for node in group.here if (path := self._ours(node)) in names]
        if len(found) == len(group.here):
            return found
        rest = _without(group, found)
        same = {_template(self._ours(one)) for one, _ in found}
        left = {_template(self._ours(node)) for node in rest.here}
        left |= {_template(self._theirs(node)) for node in rest.there}
        return [] if same & left else found

    def _by_others(self, group: _Group) -> Nodes:
        """Return what has become of parts of these names elsewhere."""
        if len(group.here) > _FEW:
            return []
        names = {self._theirs(node): node for node in group.there}
        told = [
            (node, [names[path] for path in self._learnt.get(self._ours(node), ()) if path in names])
            for node in group.here
        ]
        found = [(node, others[0]) for node, others in told if len(others) == 1]
        return found if len({other for _, other in found}) == len(found) else []


def _without(group: _Group, pairs: Nodes) -> _Group:
    if not pairs:
        return group
    gone = {node for pair in pairs for node in pair}
    return _Group([node for node in group.here if node not in gone], [node for node in group.there if node not in gone])


def _by_numbers(group: _Group) -> Nodes:
    """Return ``0, 1, 2`` and ``0, 1, 2``, or all counted from another number; parts of lists whatever their numbers."""
    ours, theirs = _numbered(group.here), _numbered(group.there)
    if ours is None or theirs is None:
        return []
    if ours.nodes.keys() == theirs.nodes.keys():
        return [(node, theirs.nodes[numbers]) for numbers, node in ours.nodes.items()]
    pairs = list(zip(sorted(ours.nodes), sorted(theirs.nodes), strict=True))
    if not (ours.plain and theirs.plain) and not _shifted(pairs):
        return []
    return [(ours.nodes[one], theirs.nodes[other]) for one, other in pairs]


def _by_family(group: _Group) -> Nodes:
    """Do as ``_by_numbers`` does, but of names of one form that has numbers which no other form has."""
    ours, theirs = _families(group.here), _families(group.there)
    found: Nodes = []
    for numbers, nodes in ours.items():
        others = theirs.get(numbers)
        if nodes is not None and others is not None:
            found += [(nodes[each], others[each]) for each in nodes]
    return found


def _families(
    nodes: Sequence[ModuleNode],
) -> dict[frozenset[tuple[int, ...]], dict[tuple[int, ...], ModuleNode] | None]:
    """Return parts whose names differ only in numbers, by these numbers.

    It is None where others have the same ones.
    """
    forms: dict[str, list[ModuleNode]] = defaultdict(list)
    for node in nodes:
        forms[_template(node.tokens)].append(node)
    found: dict[frozenset[tuple[int, ...]], dict[tuple[int, ...], ModuleNode] | None] = {}
    for family in forms.values():
        numbered = _numbered(family) if len(family) > 1 else None
        if numbered is not None:
            numbers = frozenset(numbered.nodes)
            found[numbers] = None if numbers in found else numbered.nodes
    return found


def _by_likeness(group: _Group) -> Nodes:
    """Return ``q`` and ``q_proj``, ``to_query`` and ``q_proj``: each is like one alone, and none is left out."""
    if len(group.here) > _FEW:
        return []
    ours, theirs = _distinct(group.here), _distinct(group.there)
    for tell in (_only_alike, _only_kin, _only_kind, _only_words):
        pairs = [(node, tell(name, list(theirs))) for name, node in ours.items()]
        found = [(one, theirs[other]) for one, other in pairs if other is not None]
        if len(found) == len(group.here) and len({other for _, other in found}) == len(found):
            return found
    return []


@noun
class _Numbered:
    """Parts by the numbers that tell them apart. ``plain``: these numbers are whole tokens, as in lists."""

    nodes: dict[tuple[int, ...], ModuleNode]
    plain: bool


def _numbered(nodes: Sequence[ModuleNode]) -> _Numbered | None:
    """Return parts whose paths differ only in numbers, or None where they differ otherwise."""
    if len({_template(node.tokens) for node in nodes}) != 1:
        return None
    digits = [_DIGITS.findall(".".join(node.tokens)) for node in nodes]
    if any(len(each) > _LONG for found in digits for each in found):
        return None
    numbers = [tuple(map(int, found)) for found in digits]
    vary = [index for index, each in enumerate(zip(*numbers, strict=True)) if len(set(each)) > 1]
    by_number = {tuple([each[index] for index in vary]): node for each, node in zip(numbers, nodes, strict=True)}
    columns = zip(*[node.tokens for node in nodes], strict=True)
    plain = all(each[0].isdecimal() for each in columns if len(set(each)) > 1)
    return _Numbered(by_number, plain) if len(by_number) == len(nodes) else None


def _shifted(pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]) -> bool:
    return {len(each) for pair in pairs for each in pair} == {1} and len({b[0] - a[0] for a, b in pairs}) == 1


def _template(tokens: Tokens) -> str:
    return template(".".join(tokens))


def _within(node: ModuleNode, outer: ModuleNode) -> bool:
    return node.tokens[: len(outer.tokens)] == outer.tokens


def _ordered(nodes: Sequence[ModuleNode]) -> list[ModuleNode]:
    return sorted(nodes, key=lambda node: node.order)


def _distinct(nodes: Sequence[ModuleNode]) -> dict[Tokens, ModuleNode]:
    """Return the parts by what tells their paths apart: without the tokens that all of them begin and end with."""
    paths = [node.tokens for node in nodes]
    shortest = min(map(len, paths))
    start = 0
    while start < shortest and len({path[start] for path in paths}) == 1:
        start += 1
    end = 0
    while end < shortest - start and len({path[-1 - end] for path in paths}) == 1:
        end += 1
    return {path[start : len(path) - end]: node for path, node in zip(paths, nodes, strict=True)}


def _only_alike(name: Tokens, others: list[Tokens]) -> Tokens | None:
    found = [each for each in others if letters(name) and letters(each) and alike(name, each)]
    return found[0] if len(found) == 1 else None


def _only_kin(name: Tokens, others: list[Tokens]) -> Tokens | None:
    words = {".".join(each): each for each in others}
    found = kin_of(".".join(name), words)
    return words[found] if found is not None else None


def _only_kind(name: Tokens, others: list[Tokens]) -> Tokens | None:
    found = [each for each in others if of_one_kind(name, each)]
    return found[0] if len(found) == 1 else None


def _only_words(name: Tokens, others: list[Tokens]) -> Tokens | None:
    found = [each for each in others if within(name, each)]
    return found[0] if len(found) == 1 else None
