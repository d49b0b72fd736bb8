// @ts-check
/** Write small ONNX models, so that none has to be fetched. */

/** Codes of ONNX's element types. @type {Record<string, number>} */
const ELEMENTS = { float32: 1, float16: 10, bfloat16: 16, uint8: 2, int8: 3, int64: 7 };

/** @param {number} value @returns {number[]} */
function varint(value) {
  return value < 128 ? [value] : [(value & 127) | 128, ...varint(Math.floor(value / 128))];
}

/** A length-delimited field: bytes, text or a message. @param {number} number @param {readonly number[] | string} content */
function field(number, content) {
  const bytes = typeof content === 'string' ? [...new TextEncoder().encode(content)] : content;
  return [number * 8 + 2, ...varint(bytes.length), ...bytes];
}

/** @param {number} number @param {number} value */
function count(number, value) {
  return [...varint(number * 8), ...varint(value)];
}

/** A tensor among inputs and outputs: `[name, type, dims]`, with symbolic dimensions. @typedef {[string, string, readonly string[]]} Value */

/** @param {Value} value */
function valueInfo([name, type, dims]) {
  const shape = dims.flatMap((dim) => field(1, field(2, dim)));
  return [...field(1, name), ...field(2, field(1, [...count(1, ELEMENTS[type]), ...field(2, shape)]))];
}

/**
 * A node: `[operator, inputs, output, type]`; type is that of Cast.
 * @typedef {[operator: string, inputs: readonly string[], output: string, to?: string]} Node
 */

/** @param {Node} node */
function written([operator, inputs, output, to]) {
  const attribute = to ? field(5, [...field(1, 'to'), ...count(3, ELEMENTS[to]), ...count(20, 2)]) : [];
  return [...inputs.flatMap((name) => field(1, name)), ...field(2, output), ...field(4, operator), ...attribute];
}

/**
 * Serialize a model.
 * @param {string} name
 * @param {readonly Node[]} nodes in execution order
 * @param {Record<string, number>} constants int64 [1] initializers
 * @param {readonly Value[]} inputs
 * @param {Value} output
 */
export function modelOf(name, nodes, constants, inputs, output) {
  const initializer = (/** @type {[string, number]} */ [own, value]) => (
    field(5, [...count(1, 1), ...count(2, ELEMENTS.int64), ...field(7, varint(value)), ...field(8, own)]));
  const graph = [
    ...nodes.flatMap((node) => field(1, written(node))), ...field(2, name), ...Object.entries(constants).flatMap(initializer),
    ...inputs.flatMap((input) => field(11, valueInfo(input))), ...field(12, valueInfo(output)),
  ];
  const opset = [...field(1, ''), ...count(2, 17)];
  return new Uint8Array([...count(1, 8), ...field(7, graph), ...field(8, opset)]);
}
