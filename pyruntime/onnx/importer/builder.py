"""Conversion of graph, node and function records to `ir.Graph`s: resolves names, creates operators, inlines functions.

Source: ONNX IR specification (graphs, functions, operator set imports, optional inputs and outputs).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyruntime.errors import Fail, InvalidGraph, NotImplemented, OrtError
from pyruntime.ir import Graph, Node, ValueInfo
from pyruntime.onnx.formats.external import ExternalData
from pyruntime.onnx.formats.protobuf import Limits
from pyruntime.onnx.importer.attributes import needed_inputs, operator_fields, signature
from pyruntime.onnx.importer.declared import Constants, value_info
from pyruntime.onnx.importer.element_types import check_types
from pyruntime.onnx.importer.order import ordered
from pyruntime.onnx.importer.scope import LONGEST_NAME, Argument, Frame, FunctionKey, Target
from pyruntime.onnx.records import AttributeType, FunctionRecord, GraphRecord, NodeRecord, OperatorSetId
from pyruntime.ops.base import UNFIT, Op
from pyruntime.ops.registry import op_class

__all__ = ["GraphBuilder", "plain_domain", "versions"]

_MAX_LISTED = 10
_PARTS_OF_A_NODE = 16


def plain_domain(domain: str) -> str:
    """Return the domain, with '' for ai.onnx."""
    return "" if domain == "ai.onnx" else domain


def versions(imports: Iterable[OperatorSetId]) -> dict[str, int]:
    """Return the operator set version of each domain; the highest where a domain is imported twice."""
    found: dict[str, int] = {}
    for entry in imports:
        domain = plain_domain(entry.domain)
        found[domain] = max(entry.version, found.get(domain, entry.version))
    return found


class GraphBuilder:
    """Builds the graph of one model.

    Raises:
        Fail: two functions have the same name.
    """

    def __init__(
        self,
        functions: Sequence[FunctionRecord],
        opsets: Mapping[str, int],
        external: ExternalData | None,
        limits: Limits,
        overridable: bool,
    ) -> None:
        self._opsets = opsets
        self._constants = Constants(external)
        self._limits = limits
        self._overridable = overridable
        self._nodes = 0
        self._labels: Counter[str] = Counter()
        self._classes: dict[tuple[str, str, int], type[Op]] = {}
        self._unknown: dict[tuple[str, str, int], str] = {}
        self._functions: dict[FunctionKey, FunctionRecord] = {}
        for function in functions:
            key = (plain_domain(function.domain), function.name, function.overload)
            if key in self._functions:
                raise Fail(f"the model defines the function {_shown(key)} twice; export it again")
            self._functions[key] = function

    def main(self, record: GraphRecord) -> Graph:
        """Return the model's graph. Raises as `import_model` does."""
        frame = Frame(Target(Graph(record.name), None), {}, None, self._opsets)
        for value in record.input:
            if value.type is None:
                raise Fail(f"the graph input {value.name!r} has no type; export the model again")
        self._fill(frame, record)
        if self._unknown:
            reasons = list(self._unknown.values())
            more = f"; and {len(reasons) - _MAX_LISTED} more" if len(reasons) > _MAX_LISTED else ""
            raise NotImplemented("; ".join(reasons[:_MAX_LISTED]) + more)
        graph = frame.target.graph
        check_types(graph)
        if any(node.op.op_type == "Gradient" for node in graph.nodes):
            from pyruntime.onnx.importer.gradient import expand_gradients  # rare, and not worth its import otherwise

            expand_gradients(graph, self._limits.nodes)
        return graph

    def _fill(self, frame: Frame, record: GraphRecord) -> None:
        """Add a graph's values and nodes to the frame's target."""
        graph, names = frame.target.graph, frame.names
        if frame.outer is not None:
            self._spend(record.input, record.output, record.initializer, record.sparse_initializer)
        initializers = {t.name for t in record.initializer} | {s.name for s in record.sparse_initializer}
        self._declare(frame, record)
        top = frame.target.around is None
        for value in record.input:
            info = value_info(value, names[value.name], f"the graph input {value.name!r}")
            if value.name not in initializers:
                graph.inputs.append(info)
            elif top and self._overridable:
                graph.overridable.append(info)
        for tensor in record.initializer:
            if tensor.name:
                graph.constants[names[tensor.name]] = self._constants.of(tensor)
        for sparse in record.sparse_initializer:
            if sparse.name:
                graph.constants[names[sparse.name]] = self._constants.of(sparse)
        for node in record.node:
            self._node(frame, node)
        graph.outputs = [self._output(frame, value) for value in record.output]
        graph.captures = tuple(frame.target.captures)
        if not self._unknown:
            graph.nodes = ordered(graph.nodes)

    def _declare(self, frame: Frame, record: GraphRecord) -> None:
        """Name every value that the graph defines in the target; the last of initializers with one name counts.

        Raises:
            Fail: another name is defined twice.
        """
        inputs = [value.name for value in record.input]
        stored = [t.name for t in record.initializer if t.name] + [s.name for s in record.sparse_initializer if s.name]
        if "" in inputs:
            raise Fail("the graph has an input without name; export the model again")
        _refuse_repeated("input", inputs)
        for name in dict.fromkeys((*inputs, *stored)):
            frame.names[name] = frame.target.define(name)
        self._declare_made(frame, (name for node in record.node for name in node.output if name))

    def _declare_made(self, frame: Frame, made: Iterable[str], returned: Mapping[str, str] | None = None) -> None:
        """Name the outputs of nodes in the target: by `returned`, else by their own names."""
        for name in made:
            if name in frame.names:
                raise _duplicate("value", name)
            known = returned.get(name) if returned else None
            frame.names[name] = known or frame.target.define(frame.name_of(name))

    def _output(self, frame: Frame, value: Any) -> ValueInfo:
        name = frame.look_up(value.name) if value.name else None
        if not name:
            raise Fail(f"the graph output {value.name!r} is not made by any node; export the model again")
        frame.target.read([name])
        return value_info(value, name, f"the graph output {value.name!r}")

    def _node(self, frame: Frame, node: NodeRecord) -> None:
        """Add a node, or the nodes of the function that it calls, to the frame's target."""
        self._spend(node.input, node.output, node.attribute)
        try:
            inputs = [self._input(frame, name) for name in node.input]
            outputs = tuple([frame.names[name] if name else "" for name in node.output])
            key = (plain_domain(node.domain), node.op_type, node.overload)
            function = self._functions.get(key)
            if function is not None:
                self._call(frame, node, key, function, inputs, outputs)
            else:
                self._operator(frame, node, inputs, outputs)
        except OrtError as error:
            raise type(error)(f"{_label(node)}: {error}") from error

    def _spend(self, *parts: Sequence[object]) -> None:
        """Count a node, and long lists in it, which functions repeat. Raises Fail: the limit is exceeded."""
        self._nodes += 1 + sum(map(len, parts)) // _PARTS_OF_A_NODE
        if self._nodes > self._limits.nodes:
            raise Fail(
                f"the model has more than {self._limits.nodes} nodes, with its functions inlined; "
                "raise the limit `nodes` (SessionOptions.limits) if it is trusted"
            )

    def _input(self, frame: Frame, name: str) -> str:
        if not name:
            return ""
        found = frame.look_up(name)
        if found is None:
            raise InvalidGraph(
                f"the input {name!r} is not a graph input, an initializer or a node's output; export the model again"
            )
        return found

    def _operator(self, frame: Frame, node: NodeRecord, inputs: list[str], outputs: tuple[str, ...]) -> None:
        domain = plain_domain(node.domain)
        opset = frame.opsets.get(domain)
        if opset is None:
            raise InvalidGraph(f"the model does not import the operator set {domain or 'ai.onnx'!r}; export it again")
        cls = self._class(node, domain, opset)
        if cls is None:
            return
        attributes = list(self._attributes(frame, node))
        given = {a.record.name: a.frame for a in attributes}

        def body(name: str, record: GraphRecord) -> Graph:
            lexical = given[name].within(Target(Graph(record.name), frame.target))
            self._fill(lexical, record)
            return lexical.target.graph

        values = operator_fields(cls, [a.record for a in attributes], body, self._constants)
        while inputs and not inputs[-1]:
            inputs.pop()
        _check_arity(cls, len(inputs))
        absent = [at for at in sorted(needed_inputs(cls)) if at < len(inputs) and not inputs[at]]
        if absent:
            raise InvalidGraph(f"{cls.op_type} needs its input {absent[0]}, which is absent")
        bodies = [values[name] for name in sorted(values) if isinstance(values[name], Graph)]
        captured = dict.fromkeys(name for graph in bodies for name in graph.captures)
        op = _made(cls, values, outputs)
        read = frame.target.read((*inputs, *captured))
        frame.target.graph.nodes.append(Node(op, read, outputs, frame.name_of(node.name) if node.name else ""))

    def _class(self, node: NodeRecord, domain: str, opset: int) -> type[Op] | None:
        """Return the operator's class; None where there is none, which is recorded for the error at the end."""
        key = (node.op_type, domain, opset)
        if key not in self._classes:
            try:
                self._classes[key] = op_class(*key)
            except NotImplemented as error:
                self._unknown.setdefault(key, f"{_label(node)}: {error}")
                return None
        return self._classes[key]

    def _attributes(self, frame: Frame, node: NodeRecord) -> Iterator[Argument]:
        """Yield a node's attributes, with references replaced by the function call's arguments, if it has them."""
        for attribute in node.attribute:
            if not attribute.ref_attr_name:
                yield Argument(attribute, frame)
                continue
            if frame.arguments is None:
                raise InvalidGraph(f"attribute {attribute.name!r} refers to an attribute of a function, outside of one")
            given = frame.arguments.get(attribute.ref_attr_name)
            if given is None:
                continue
            if attribute.type not in (AttributeType.UNDEFINED, given.record.type):
                raise InvalidGraph(
                    f"attribute {attribute.name!r} is {attribute.type.name}, but the function was given "
                    f"{given.record.type.name} for {attribute.ref_attr_name!r}"
                )
            yield Argument(replace(given.record, name=attribute.name), given.frame)

    def _call(
        self,
        frame: Frame,
        node: NodeRecord,
        key: FunctionKey,
        function: FunctionRecord,
        inputs: list[str],
        outputs: tuple[str, ...],
    ) -> None:
        """Add the function's nodes to the target, with the caller's names for its inputs and outputs."""
        if key in frame.calls:
            chain = " -> ".join(_shown(call) for call in (*frame.calls[frame.calls.index(key) :], key))
            raise InvalidGraph(f"functions call each other in a cycle, {chain}; ONNX has no recursion")
        if len(inputs) > len(function.input) or len(outputs) > len(function.output):
            raise InvalidGraph(
                f"the function has {len(function.input)} inputs and {len(function.output)} outputs, "
                f"the node {len(inputs)} and {len(outputs)}"
            )
        self._spend(
            function.input, function.output, function.attribute, function.attribute_proto, function.opset_import
        )
        arguments = {a.record.name: a for a in self._attributes(frame, node)}
        inner = frame.call(key, self._call_label(node), {**self._opsets, **versions(function.opset_import)}, arguments)
        declared = {*function.attribute, *(a.name for a in function.attribute_proto)}
        if not arguments.keys() <= declared:
            raise InvalidGraph(f"the function has no attribute {min(arguments.keys() - declared)!r}")
        for default in function.attribute_proto:
            arguments.setdefault(default.name, Argument(default, inner))
        _refuse_repeated("function input", function.input)
        inner.names.update(zip(function.input, inputs + [""] * len(function.input), strict=False))
        copies = self._name_outputs(inner, function, outputs)
        for body_node in function.node:
            self._node(inner, body_node)
        for source, output in copies:
            self._copy(inner, source, output)

    def _name_outputs(self, inner: Frame, function: FunctionRecord, outputs: tuple[str, ...]) -> list[tuple[str, str]]:
        """Name the outputs of the function's nodes; return (inner, outer) names of outputs that need a copy.

        Copies are needed for inputs that the function returns, and for values that it returns twice.
        """
        made = dict.fromkeys(name for node in function.node for name in node.output if name)
        returned: dict[str, str] = {}
        copies = []
        for name, output in zip(function.output, outputs, strict=False):
            if output and name in made and name not in returned and name not in inner.names:
                returned[name] = output
            elif output:
                copies.append((name, output))
        self._declare_made(inner, (name for node in function.node for name in node.output if name), returned)
        return copies

    def _copy(self, frame: Frame, source: str, output: str) -> None:
        name = frame.look_up(source)
        if not name:
            raise InvalidGraph(f"the function's output {source!r} has no value")
        identity = op_class("Identity", "", frame.opsets.get("", 1))
        frame.target.graph.nodes.append(Node(identity(), frame.target.read([name]), (output,), frame.name_of(source)))

    def _call_label(self, node: NodeRecord) -> str:
        label = (node.name or node.op_type)[-LONGEST_NAME:]
        self._labels[label] += 1
        return label if self._labels[label] == 1 else f"{label}_{self._labels[label]}"


def _made(cls: type[Op], values: dict[str, Any], outputs: tuple[str, ...]) -> Op:
    try:
        return cls(**values, present=tuple(map(bool, outputs)))
    except OrtError:
        raise
    except UNFIT as error:
        raise InvalidGraph(f"{cls.op_type} does not accept its attributes: {error}") from error


def _check_arity(cls: type[Op], count: int) -> None:
    known = signature(cls)
    if count < known.least or (known.most is not None and count > known.most):
        most = "more" if known.most is None else str(known.most)
        expected = str(known.least) if most == str(known.least) else f"{known.least} to {most}"
        raise InvalidGraph(f"{cls.op_type} takes {expected} inputs, got {count}")


def _label(node: NodeRecord) -> str:
    name = node.name or next(filter(None, node.output), "?")
    return f"node {name[-LONGEST_NAME:]!r} ({node.op_type[:LONGEST_NAME]})"


def _shown(key: FunctionKey) -> str:
    domain, name, overload = key
    return f"{domain or 'ai.onnx'}.{name}" + (f":{overload}" if overload else "")


def _refuse_repeated(kind: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise _duplicate(kind, next(name for name, count in Counter(names).items() if count > 1))


def _duplicate(kind: str, name: str) -> Fail:
    return Fail(f"duplicate definition of the {kind} {name!r}; export the model again")
