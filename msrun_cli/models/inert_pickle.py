"""Reads a pickle without executing it: an own machine for the opcodes, in which names are only names.

Python's unpickler imports what a file names and calls it. This one never imports: a name is looked up in the
caller's `Rules` or refused, and only functions from `Rules.calls` are ever called. Opcodes that plain data and
PyTorch's files do not need (INST, OBJ, EXT*, NEWOBJ_EX, out-of-band buffers) are refused as well. Work and memory are
bounded by the length of the file: no allocation follows a size that the file merely declares.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

MAX_OPCODES = 5_000_000  # a YOLOv5x checkpoint has about 0.1 million
MAX_INTEGER_BITS = 128  # hashing a long integer takes time in proportion to its length


class RefusedPickle(ValueError):
    """The pickle names or does something that data does not need."""


class BrokenPickle(ValueError):
    """The pickle is cut off or damaged."""


@dataclass(eq=False)
class Inert:
    """Stands for an object of class `class_name`; keeps the attributes that the file gives it and can do nothing."""

    class_name: str
    state: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Named:
    """A name from the file that was allowed: with `call` a function for REDUCE, without one a class."""

    text: str
    call: Callable[..., Any] | None


@dataclass(frozen=True)
class Rules:
    """What the names in a pickle may stand for; every other name is refused."""

    calls: Mapping[str, Callable[..., Any]]  # "module.name" -> own function for REDUCE
    values: Mapping[str, Any]  # "module.name" -> plain value
    is_class: Callable[[str], bool]  # names of classes whose objects become `Inert`
    load_persistent: Callable[[Any], Any]  # persistent id -> value


def read_pickle(stream: BinaryIO, rules: Rules) -> Any:
    """Read one pickle from the position of `stream`; the stream then stands behind it.

    `stream` must be in memory (BytesIO), so that reading a declared length never allocates more than there is.

    Raises:
        RefusedPickle, BrokenPickle
    """
    machine = _Machine(rules)
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
            if count >= MAX_OPCODES:
                raise RefusedPickle(f"it has more than {MAX_OPCODES} steps")
            machine.step(opcode.name, argument)
        return machine.pop()
    except (RefusedPickle, BrokenPickle):
        raise
    except LookupError as error:
        raise BrokenPickle("it refers to something that is not there") from error
    except (ValueError, TypeError, AttributeError, ArithmeticError, MemoryError, struct.error) as error:
        raise BrokenPickle(str(error) or type(error).__name__) from error


_MARK = object()
_KEY_TYPES = (str, int, float, bytes, type(None))
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_FRESH: dict[str, Callable[[], Any]] = {
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_SET": list,  # as a list, so that members need not be hashable
    "EMPTY_DICT": dict,
    "MARK": lambda: _MARK,
}
_NUMBERS = {"INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
_TEXTS = {
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_IGNORED = {"FRAME", "STOP"}


class _Machine:
    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}  # a dict, so a huge index costs nothing

    def step(self, opcode: str, argument: Any) -> None:
        if opcode in _TEXTS:
            self.stack.append(argument)
        elif opcode in _NUMBERS:
            self.stack.append(_number(argument))
        elif opcode in _CONSTANTS:
            self.stack.append(_CONSTANTS[opcode])
        elif opcode in _FRESH:
            self.stack.append(_FRESH[opcode]())
        elif opcode in _ACTIONS:
            _ACTIONS[opcode](self, argument)
        elif opcode not in _IGNORED:
            what = f" ({argument})" if argument is not None else ""
            raise RefusedPickle(f"it uses the pickle opcode {opcode}{what}, which weights do not need")

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise BrokenPickle("a value is missing")
        return value

    def pop_to_mark(self) -> list[Any]:
        values = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        values.reverse()
        return values

    def top(self) -> Any:
        if self.stack[-1] is _MARK:
            raise BrokenPickle("a value is missing")
        return self.stack[-1]

    # opcodes, each with its argument

    def protocol(self, version: int) -> None:
        if version > 5:
            raise BrokenPickle(f"unknown pickle protocol {version}")

    def put(self, index: int) -> None:
        self.memo[index] = self.top()

    def memoize(self, _: None) -> None:
        self.memo[len(self.memo)] = self.top()

    def get(self, index: int) -> None:
        self.stack.append(self.memo[index])

    def dup(self, _: None) -> None:
        self.stack.append(self.top())

    def drop(self, _: None) -> None:
        self.stack.pop()

    def drop_to_mark(self, _: None) -> None:
        self.pop_to_mark()

    def tuple_of(self, size: int) -> None:
        values = [self.pop() for _ in range(size)]
        self.stack.append(tuple(reversed(values)))

    def tuple_to_mark(self, _: None) -> None:
        self.stack.append(tuple(self.pop_to_mark()))

    def list_to_mark(self, _: None) -> None:
        self.stack.append(self.pop_to_mark())

    def dict_to_mark(self, _: None) -> None:
        items = self.pop_to_mark()
        self.stack.append({})
        self._set_items(items)

    def append(self, _: None) -> None:
        self._extend([self.pop()])

    def appends(self, _: None) -> None:
        self._extend(self.pop_to_mark())

    def set_item(self, _: None) -> None:
        value = self.pop()
        self._set_items([self.pop(), value])

    def set_items(self, _: None) -> None:
        self._set_items(self.pop_to_mark())

    def global_name(self, argument: str) -> None:
        self.stack.append(self._resolve(*argument.split(" ", 1)))

    def stack_global(self, _: None) -> None:
        name = self.pop()
        module = self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise RefusedPickle("it names something by other than text")
        self.stack.append(self._resolve(module, name))

    def reduce(self, _: None) -> None:
        arguments = self.pop()
        target = self.pop()
        if not isinstance(target, Named) or target.call is None or not isinstance(arguments, tuple):
            raise RefusedPickle(f"it calls {_describe(target)}")
        self.stack.append(target.call(*arguments))

    def new_object(self, _: None) -> None:
        self.pop()  # arguments of __new__, which is not called
        target = self.pop()
        if not isinstance(target, Named) or target.call is not None:
            raise RefusedPickle(f"it makes an object of {_describe(target)}")
        self.stack.append(Inert(target.text))

    def build(self, _: None) -> None:
        state = self.pop()
        target = self.top()
        if isinstance(target, Inert):
            if isinstance(state, dict):
                target.state.update(state)
        elif not isinstance(target, dict):  # attributes of an OrderedDict, as in state dicts, are not needed
            raise RefusedPickle(f"it sets the state of {_describe(target)}")

    def persistent(self, identifier: str) -> None:
        raise RefusedPickle(f"it has a persistent id in text form ({identifier[:40]})")

    def persistent_on_stack(self, _: None) -> None:
        self.stack.append(self.rules.load_persistent(self.pop()))

    def _extend(self, values: list[Any]) -> None:
        target = self.top()
        if isinstance(target, list):
            target.extend(values)
        elif not isinstance(target, Inert):
            raise BrokenPickle("items are added to something that is no list")

    def _set_items(self, items: list[Any]) -> None:
        target = self.top()
        if isinstance(target, Inert):
            return
        if not isinstance(target, dict) or len(items) % 2:
            raise BrokenPickle("entries are set in something that is no dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Nested tuples and long integers can be made to take for ever as keys (hashing, collisions).
            if not isinstance(key, _KEY_TYPES) or (isinstance(key, int) and key.bit_length() > 63):
                raise RefusedPickle(f"a dictionary key is {_describe(key)}")
            target[key] = value

    def _resolve(self, module: str, name: str) -> Any:
        text = f"{module}.{name}"
        if text in self.rules.values:
            return self.rules.values[text]
        if text in self.rules.calls:
            return Named(text, self.rules.calls[text])
        if self.rules.is_class(text):
            return Named(text, None)
        raise RefusedPickle(f"it names {text[:200]}")


_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": _Machine.protocol,
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.put),
    "MEMOIZE": _Machine.memoize,
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
    "DUP": _Machine.dup,
    "POP": _Machine.drop,
    "POP_MARK": _Machine.drop_to_mark,
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "TUPLE": _Machine.tuple_to_mark,
    **dict.fromkeys(("LIST", "FROZENSET"), _Machine.list_to_mark),
    "DICT": _Machine.dict_to_mark,
    "APPEND": _Machine.append,
    **dict.fromkeys(("APPENDS", "ADDITEMS"), _Machine.appends),
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "GLOBAL": _Machine.global_name,
    "STACK_GLOBAL": _Machine.stack_global,
    "REDUCE": _Machine.reduce,
    "NEWOBJ": _Machine.new_object,
    "BUILD": _Machine.build,
    "PERSID": _Machine.persistent,
    "BINPERSID": _Machine.persistent_on_stack,
}


def _number(value: int | float) -> int | float:
    if isinstance(value, int) and value.bit_length() > MAX_INTEGER_BITS:
        raise RefusedPickle(f"it has an integer of more than {MAX_INTEGER_BITS} bits")
    return value


def _describe(value: Any) -> str:
    if isinstance(value, Named):
        return value.text[:200]
    return f"an object of {value.class_name[:200]}" if isinstance(value, Inert) else f"a {type(value).__name__}"
