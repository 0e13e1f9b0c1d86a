"""Labels of rules, in tables and records."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from fedfv.core._rules import inner_rules, learning_rate_field, title


def label(rule: Any, lr: float | None = None) -> str:
    """The title of a rule, with its rules inside, and with the hyper-parameters of `shown_fields`.

    Args:
        rule: the rule.
        lr: the clients' learning rate, which a label does not repeat.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Blend:
    ...     always_shown = ("share",)
    ...     share: float = 0.5
    ...     power: float = 1.0
    >>> label(Blend()), label(Blend(power=2.0))
    ('Blend(share=0.5)', 'Blend(share=0.5, power=2.0)')
    """
    inner, kind = inner_rules(rule), type(rule)
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    values = {each.name: getattr(rule, each.name) for each in fields if each.name not in ("seed", *inner)}
    if (rate := learning_rate_field(kind)) is not None and values.get(rate) is None:
        values.pop(rate, None)
    shown = shown_fields(kind, values, lr)
    return labelled(
        title(kind),
        [label(each, lr) for each in inner.values()],
        {name: value for name, value in values.items() if name in shown},
    )


def shown_fields(kind: type[Any], values: Mapping[str, Any], lr: float | None) -> frozenset[str]:
    """The hyper-parameters that every label of a rule shows: changed ones, and those that are always shown.

    Args:
        kind: the class of the rule.
        values: the hyper-parameters.
        lr: the clients' learning rate, the default of the field that holds it.
    """
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    defaults = {field.name: field.default for field in fields}
    if (rate := learning_rate_field(kind)) is not None:
        defaults[rate] = lr
    changed = {name for name, value in values.items() if value != defaults.get(name)}
    return frozenset(changed) | frozenset(getattr(kind, "always_shown", ()))


def labelled(title: str, inner: Iterable[str], values: Mapping[str, Any]) -> str:
    """A label from its parts: a title, the labels of the rules inside, and hyper-parameters."""
    return f"{title}({', '.join([*inner, *(f'{name}={value!r}' for name, value in values.items())])})"
